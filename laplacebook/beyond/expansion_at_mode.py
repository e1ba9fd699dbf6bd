"""Third derivatives at the mode of many effects: where their mean is, and what cubic terms add to their integral."""

from functools import partial

import jax
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.quick import jit_quickly
from laplacebook.beyond.sparse_integral import SparseIntegral, bend, loss_of
from laplacebook.curvature.sparse_hessian import Parts
from laplacebook.gaussian.sparse import SparsePrecision
from laplacebook.model.density import ModelDensity


@np.errstate(all="ignore")
def expansion(
    whole: SparseIntegral,
    density: ModelDensity,
    z: Float[np.ndarray, " d"],
    normal: Float[np.ndarray, "d n 2"],
) -> tuple[Float[np.ndarray, " d"], float]:
    """How far the mean is from the mode z, to first order, and what cubic terms add to the integral's log.

    With the third derivatives T of f, the first is m = -A^-1 times the slope of (1/2) log |A|, and the second
    (1/2) m' A m + (1/12) E v' A^-1 v, v = T(x, y), of independent x and y with the covariance A^-1: a mean
    of sums over the coordinates, so that few draws suffice.

    Args:
        whole: the integral.
        density: of its pattern.
        z: shape (d,).
        normal: standard normal numbers for the draws of x and y, shape (d, n, 2).
    """
    precision, slope = _precision_and_slope(whole, density, z)
    x, y = np.moveaxis(precision.whitened(normal), (2, 1), (0, 1))
    v = np.asarray(_third(density, z, x, y)).T
    mean = -precision.solve(slope)
    cubes = np.sum(v * precision.solve(v)) / normal.shape[1] / 12
    return mean, float(-mean @ slope / 2 + cubes)


@np.errstate(all="ignore")
def mean_at(
    whole: SparseIntegral, density: ModelDensity, z: Float[np.ndarray, " d"]
) -> Float[np.ndarray, " d"]:
    """The first of :func:`expansion` alone, with the same arguments."""
    precision, slope = _precision_and_slope(whole, density, z)
    return -precision.solve(slope)


def _precision_and_slope(
    whole: SparseIntegral, density: ModelDensity, z: np.ndarray
) -> tuple[SparsePrecision, np.ndarray]:
    """A at z, and the slope of (1/2) log |A|."""
    parts = jax.device_get(whole.pattern.parts_at(density, z))
    slope = _slope_of_bend(density, z, *whole.inverse(parts), parts, whole=whole)
    return whole.factorised(parts), np.asarray(slope)


@partial(jit_quickly, static_argnames="whole")
def _slope_of_bend(
    density: ModelDensity,
    z: Array,
    inverse: Array,
    solved: Array,
    parts: Parts,
    whole: SparseIntegral,
) -> Array:
    return jax.grad(lambda z: bend(whole, density, z, inverse, solved, parts))(z)


@jit_quickly
def _third(
    density: ModelDensity, z: Array, x: Float[Array, "n d"], y: Float[Array, "n d"]
) -> Float[Array, "n d"]:
    """The third derivatives of f along x and y."""
    slope = jax.grad(loss_of(density))

    def along(pair: tuple[Array, Array]) -> Array:
        one, other = pair
        return jax.jvp(lambda z: jax.jvp(slope, (z,), (one,))[1], (z,), (other,))[1]

    return jax.lax.map(along, (x, y))
