"""From the log marginal on a grid to many weighted points between its nodes."""

import numpy as np
from jaxtyping import Float

from laplacebook.beyond.grid import Grid

POINTS = 2**13
_CLIFF = 15.0  # nats
_WHOLE = 2000  # nodes: a spline through more takes seconds
_NEAR = 40  # nodes, through which it then goes


def smooth_points(grid: Grid) -> tuple[Float[np.ndarray, "P H"], Float[np.ndarray, " P"]]:
    """Points of the hyperparameters that fill the cells of a grid, and their weights.

    The log marginal between the nodes is a cubic spline (radial basis functions r^3 with a quadratic
    polynomial, which is the cubic spline in one dimension), through the nearest nodes alone where there are
    thousands; the points are spread evenly, in each
    cell as many as its node weighs.

    Returns:
        The points in the unconstrained space, shape (P, H), and weights that sum to one, shape (P,).
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
    uniform = _evenly(size + 1)
    cells = np.searchsorted(np.cumsum(np.exp(heights)) / np.exp(heights).sum(), uniform[:, 0])
    cells = np.minimum(cells, len(heights) - 1)
    within = grid.place[cells] + uniform[:, 1:] - 0.5
    log_weights = np.minimum(smooth(within), 1) - heights[cells]
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    within = _matched(within, weights, grid.place, np.exp(heights))
    return grid.mode.point + grid.spacing * within @ grid.mode.axes.T, weights


def _matched(
    points: np.ndarray, weights: np.ndarray, nodes: np.ndarray, density: np.ndarray
) -> Float[np.ndarray, "P H"]:
    """The points with the mean and the covariance that the trapezoidal rule gives: to rounding, mostly."""
    mean, root = _moments(points, weights)
    right, its_root = _moments(nodes, density / density.sum())
    return right + (points - mean) @ np.linalg.solve(root.T, its_root.T)


def _moments(points: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean = weights @ points
    return mean, np.linalg.cholesky((weights[:, None] * (points - mean)).T @ (points - mean))


def _evenly(dimension: int) -> Float[np.ndarray, "P n"]:
    """Points that fill the unit cube evenly: multiples of irrational numbers, less their whole parts.

    Of powers of 1/g, where g^n = g + 1 (Roberts 2018); the first coordinate is one of equal distances.
    """
    g = 2.0
    for _ in range(60):
        g = (1 + g) ** (1 / dimension)
    steps = g ** -np.arange(1, dimension)
    number = np.arange(POINTS)[:, None]
    return np.concatenate([(number + 0.5) / POINTS, (0.5 + number * steps) % 1], axis=1)
