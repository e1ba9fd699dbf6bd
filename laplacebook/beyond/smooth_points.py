"""From the log marginal on a grid to many weighted points between its nodes."""

from functools import partial
from math import prod
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key

from laplacebook.base.quick import jit_quickly
from laplacebook.beyond.grid import Grid

POINTS = 2**13
_CLIFF = 15.0  # nats
_WHOLE = 2000  # nodes: a spline through more takes seconds
_NEAR = 40  # nodes, through which it then goes


class SmoothPoints(NamedTuple):
    """Points of the hyperparameters, in the unconstrained space.

    Attributes:
        points: shape (P, H).
        weights: they sum to one, shape (P,).
        log_density: of the law that the weighted points stand for, at each of them, shape (P,).
    """

    points: np.ndarray
    weights: np.ndarray
    log_density: np.ndarray

    def drawn(self, uniform: float, number: int) -> Int[np.ndarray, " S"]:
        """Which points so many draws are: systematically, each as often as its weight says, up to one.

        Args:
            uniform: a random number between 0 and 1.
            number: of draws.
        """
        places = (np.arange(number) + uniform) / max(number, 1)
        return np.minimum(np.searchsorted(np.cumsum(self.weights), places), len(self.weights) - 1)


def smooth_points(grid: Grid) -> SmoothPoints:
    """Points of the hyperparameters that fill the cells of a grid, and their weights.

    The log marginal between the nodes is a cubic spline (radial basis functions r^3 with a quadratic
    polynomial, which is the cubic spline in one dimension), through the nearest nodes alone where there are
    thousands; the points are spread evenly, in each
    cell as many as its node weighs.
    """
    from scipy.interpolate import RBFInterpolator  # slow to import

    size = grid.place.shape[1]
    heights = grid.conditional.log_marginal - grid.conditional.log_marginal.max()
    # What lies deep below holds nothing, and a spline through a cliff would swing beside it.
    many = len(heights) > _WHOLE
    smooth = RBFInterpolator(
        grid.place.astype(float),
        np.maximum(heights, -_CLIFF),
        neighbors=_NEAR if many else None,
        kernel="cubic",
        degree=1 if many else 2,
    )
    uniform = evenly(size + 1)
    density = np.exp(heights)
    cells = np.searchsorted(np.cumsum(density) / density.sum(), uniform[:, 0])
    cells = np.minimum(cells, len(heights) - 1)
    within = grid.place[cells] + uniform[:, 1:] - 0.5
    log_density = np.minimum(smooth(within), 1)
    log_weights = log_density - heights[cells]
    weights = np.exp(log_weights - log_weights.max())
    log_mass = log_weights.max() + np.log(weights.mean() * density.sum())
    weights /= weights.sum()
    within, stretch = _matched(within, weights, grid.place, density)
    axes = grid.spacing * grid.mode.axes
    log_volume = sum(np.linalg.slogdet(part)[1] for part in (stretch, axes))
    points = grid.mode.point + within @ axes.T
    return SmoothPoints(points, weights, log_density - log_mass - log_volume)


def _matched(
    points: np.ndarray, weights: np.ndarray, nodes: np.ndarray, density: np.ndarray
) -> tuple[Float[np.ndarray, "P H"], Float[np.ndarray, "H H"]]:
    """The points with the mean and the covariance that the trapezoidal rule gives: to rounding, mostly.

    And the matrix by which they were stretched.
    """
    mean, root = _moments(points, weights)
    right, its_root = _moments(nodes, density / density.sum())
    stretch = np.linalg.solve(root.T, its_root.T)
    return right + (points - mean) @ stretch, stretch


def _moments(points: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean = weights @ points
    return mean, np.linalg.cholesky((weights[:, None] * (points - mean)).T @ (points - mean))


def evenly(dimension: int, count: int = POINTS, part: int = 0) -> Float[np.ndarray, "P n"]:
    """Points that fill the unit cube evenly: multiples of irrational numbers, less their whole parts.

    Of powers of 1/g, where g^n = g + 1 (Roberts 2018); the first coordinate is one of equal distances.

    Args:
        dimension: of the cube, n.
        count: P of them.
        part: after so many times P others of the sequence.
    """
    g = 2.0
    for _ in range(60):
        g = (1 + g) ** (1 / dimension)
    steps = g ** -np.arange(1, dimension)
    number = np.arange(count)[:, None]
    multiples = (0.5 + (part * count + number) * steps) % 1
    return np.concatenate([(number + 0.5) / count, multiples], axis=1)


@partial(jit_quickly, work=lambda _, *shape: prod(shape), static_argnames=("number", "size"))
def parts_of_draws(key: Key[Array, ""], number: int, size: int) -> tuple[Array, Array, Array]:
    """What so many draws are made of: one uniform number, an order, and normal vectors.

    Args:
        key: a JAX random key.
        number: of draws.
        size: of the vectors.
    """
    to_hyper, to_effects = jax.random.split(key)
    uniform, order = jax.random.split(to_hyper)
    normal = jax.random.normal(to_effects, (number, size))
    return jax.random.uniform(uniform), jax.random.permutation(order, number), normal
