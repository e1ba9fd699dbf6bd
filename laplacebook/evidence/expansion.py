"""What the parabola of a fit leaves out: higher derivatives at the mode, and the log joint along lines."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.quick import numbers_in
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.fit.summary import made_of
from laplacebook.gaussian.precision import DensePrecision, Precision
from laplacebook.gaussian.sparse import SparsePrecision
from laplacebook.model.density import ModelDensity

_LINES = 32  # at least
_RADII = 8  # on each side of a line: in one dimension the 16 points of Gauss and Hermite
_NUMBERS = 2**22  # at a time: a log joint of as many data is followed along one line after another


class Lines(NamedTuple):
    """The log joint on lines through the mode, along which q is a standard normal.

    Attributes:
        points: u, shape (K, R, 2, D), with both sides of the mode beside each other.
        ratios: of the posterior to its parabola there, both one at the mode, shape (K, R, 2); in a mixture of the part
            of the posterior that its component has.
        units: the directions where q is standard normal, of length one, shape (K, D).
        ways: the same as steps of u, shape (K, D).
        radii: in standard deviations, shape (R,).
        weights: of the radii, with a sum of one, shape (R,).
    """

    points: Array
    ratios: Array
    units: Array
    ways: Array
    radii: Array
    weights: Array

    def mean_of_each(self, values: Float[Array, "K R *C"]) -> Float[Array, "K *C"]:
        """The mean along each line; the mean of these, in turn, is that under q."""
        return jnp.tensordot(values, self.weights, ([1], [0]))


#: a mode, its precision as a matrix, and the log joint at the mode
Parabola = tuple[Array, Array, Array]


def others_of(
    approx: LaplaceApproximation, gaussians: Sequence[LaplaceApproximation]
) -> tuple[Parabola, ...]:
    """The other components of a mixture, for :func:`lines_at`.

    Args:
        approx: a component.
        gaussians: all of them, or none where there is no mixture.
    """
    return tuple(
        (one.mode_vector, one.precision.matrix, jnp.asarray(one.log_likelihood + one.log_prior))
        for one in gaussians
        if one is not approx
    )


def lines_at(
    density: ModelDensity,
    mode: Float[Array, " D"],
    precision: Precision,
    others: tuple[Parabola, ...] = (),
) -> Lines:
    """The log joint along lines that together stand for all of q.

    Of a mixture with parabolas P_k the posterior p is the sum of p P_k / sum_j P_j. The ratios are of the part about
    the mode: none is counted twice, and no line about a mode sees what stands about another.

    Args:
        density: the log joint.
        mode: of q.
        precision: of q.
        others: the other components of a mixture.
    """
    units, radii, weights = map(jnp.asarray, _rule(mode.size, mode.dtype.name))
    ways = precision.whitened(units.T).T
    offsets = radii[:, None, None] * jnp.array([[1], [-1]], mode.dtype)
    points = mode + offsets * ways[:, None, None]
    top = density.log_joint(mode)

    def height(u: Array) -> Array:
        return density.log_joint(u) - top

    heights = at_rows(height, density, points.reshape(-1, mode.size)).reshape(points.shape[:-1])
    own = top - radii[:, None] ** 2 / 2
    total = jnp.zeros_like(
        heights
    )  # the logarithm of the sum of all parabolas over that of the mode
    for centre, matrix, peak in others:
        away = points - centre
        total = jnp.logaddexp(total, peak - jnp.sum(away @ matrix * away, axis=-1) / 2 - own)
    ratios = jnp.exp(heights + radii[:, None] ** 2 / 2 - total)
    return Lines(points, ratios, units, ways, radii, weights)


@lru_cache
def _rule(dimension: int, dtype: str) -> tuple[np.ndarray, ...]:
    """Directions, radii and weights of the radii, for the mean over D standard normal numbers.

    The directions are rows of random orthogonal matrices, the same ones at each call. Half of the squared
    radius has a Gamma distribution, for which the radii are those of Gauss and Laguerre.
    """
    rng, sets = np.random.default_rng(0), -(-_LINES // dimension) if dimension > 1 else 1
    drawn = [np.linalg.qr(rng.standard_normal((dimension, dimension)))[0] for _ in range(sets)]
    k = np.arange(_RADII)
    beside = np.sqrt(k[1:] * (k[1:] + dimension / 2 - 1))
    halves, vectors = np.linalg.eigh(np.diag(2 * k + dimension / 2) + np.diag(beside, -1))
    found = np.concatenate(drawn), np.sqrt(2 * halves), vectors[0] ** 2
    return tuple(x.astype(dtype) for x in found)


def along(f: Callable[[Array], Array], *ways: Float[Array, " D"]) -> Callable[[Array], Array]:
    """The derivative of f along some directions, of as high an order as there are, as a function."""
    for way in ways:
        f = _slope(f, way)
    return f


def _slope(f: Callable[[Array], Array], way: Array) -> Callable[[Array], Array]:
    return lambda u: jax.jvp(f, (u,), (way,))[1]


def loss_of(density: ModelDensity) -> Callable[[Array], Array]:
    """f(u) = -log p(D, u), without what stands beside it."""
    return lambda u: density.loss(u)[0]


def at_rows(function: Callable[..., Any], density: ModelDensity, *rows: Array) -> Any:
    """A function of a row of each array, for as many rows at a time as the data of a model allow."""
    number = len(rows[0])
    width = max(1, min(number, _NUMBERS // numbers_in((density, rows[0][0]))))
    chunks = -(-number // width)
    index = (
        np.arange(chunks * width) % number
    )  # what is missing in the last is made up by others again
    parts = tuple(x[index].reshape(chunks, width, *x.shape[1:]) for x in rows)
    found = jax.lax.map(lambda part: jax.vmap(function)(*part), parts)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:number], found)


def why_not_expanded(approx: LaplaceApproximation, most: int) -> str | None:
    """Why there is no expansion about a fit, in words that go on after "since"; or None.

    Args:
        approx: the fit.
        most: how many coordinates, at most.
    """
    kept = isinstance(approx.precision, DensePrecision | SparsePrecision)
    if approx.settings.curvature != "hessian" or not kept:
        return f"the fit has not the whole Hessian but {made_of(approx.settings)}"
    if approx.density.only_gradients:
        return "the integral by a sparse precision has one derivative, not four"
    size = approx.mode_vector.shape[-1]
    return f"D = {size} is above {most}" if size > most else None


def dense(precision: Precision) -> Precision:
    """The same as a matrix, where it is a sparse one of few coordinates."""
    if not isinstance(precision, SparsePrecision):
        return precision
    return DensePrecision.of(precision.matrix)


def require_expansion(approx: LaplaceApproximation, most: int, remedy: str) -> None:
    """Refuse a fit about whose mode the log joint has no expansion.

    Args:
        approx: the fit.
        most: how many coordinates, at most.
        remedy: what to do instead.

    Raises:
        UnsupportedModel: there is none.
    """
    why = why_not_expanded(approx, most)
    if why is not None:
        raise UnsupportedModel(
            f"There is no expansion about the mode of {approx.density.name}, since {why}.",
            remedy=f"{remedy}, or fit with curvature='hessian' and structure='dense' where that is not "
            "what was done.",
        )
