"""A log joint with a large linear predictor, in turns: what has many columns on the host, the rest in JAX."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.pytrees import is_here
from laplacebook.base.quick import jit, jit_quickly
from laplacebook.curvature import linear_predictor
from laplacebook.curvature.hessian import value_gradient_hessian
from laplacebook.curvature.linear_predictor import (
    Bends,
    Split,
    assembled,
    bends,
    split_at_predictor,
)
from laplacebook.curvature.rows_on_host import Rows
from laplacebook.model.density import ModelDensity

_EVERY = 11  # rows, of which one is taken: data repeat after a week or a dozen, seldom after that
_SAMPLE = 32  # rows for each feature, at least: they tell the curvature to a third or so
_MANY = 40  # features, from which on a Hessian costs several looks


def features_of(density: ModelDensity, most: int) -> np.ndarray | None:
    """The matrix of a large linear predictor, shape (N, p), if it is one of the data as they are; else None.

    Args:
        density: the log joint.
        most: coordinates that it may have.
    """
    leaves = jax.tree.leaves(density)
    large = [np.ndim(x) == 2 and np.size(x) >= linear_predictor.LARGE for x in leaves]
    if not any(large) or density.placement is not None or not all(map(is_here, leaves)):
        return None
    place = _place_of_features(density.program, most)
    if place is None:
        return None
    # Whole numbers too: BLAS has products of floating ones alone.
    return np.asarray(leaves[place]).astype(jnp.result_type(float), copy=False)


@lru_cache
def _place_of_features(program: tuple, most: int) -> int | None:
    """Which of the data it is, in all densities with this program."""
    found: list[int | None] = []

    def look(density: ModelDensity) -> None:
        start = density.start()
        split = _split(density, start) if start.size <= most else None
        leaves = enumerate(jax.tree.leaves(density))
        found.append(next((i for i, x in leaves if split and x is split.features), None))

    structure, *shapes = program
    leaves = [jax.ShapeDtypeStruct(*shape) for shape in shapes]
    jax.eval_shape(look, jax.tree.unflatten(structure, leaves))
    return found[0]


class PredictorOnHost:
    """f(u) = -log p(D, theta) with its gradient and its Hessian, in NumPy.

    Args:
        density: the log joint.
        rows: of its features, as :func:`features_of` has them.
    """

    def __init__(self, density: ModelDensity, rows: Rows) -> None:
        self._density, self._rows = density, rows
        self._last: _Seen | None = None
        self._ahead: tuple[np.ndarray, np.ndarray] | None = None

    def value_and_slope(self, u: Float[np.ndarray, " D"]) -> tuple[Any, Float[np.ndarray, " D"]]:
        """f(u), shape (), and its gradient."""
        seen = self._seen(u)
        value, by_eta, by_k = map(np.asarray, _slope(self._density, u, seen.eta))
        seen.multipliers = np.concatenate([self._rows.weighted_sum(by_eta), by_k])
        return value, seen.jacobian.T @ seen.multipliers

    def value_and_slope_along(
        self, u: Float[np.ndarray, " D"], direction: Float[np.ndarray, " D"]
    ) -> tuple[Any, Any]:
        """f(u) and its derivative along a direction, shapes ()."""
        seen = self._seen(u)
        value, by_eta, by_k = map(np.asarray, _slope(self._density, u, seen.eta))
        ahead = seen.jacobian @ direction
        of_eta, of_k = np.split(ahead, [ahead.size - by_k.size])
        return value, by_eta @ self._products_with(of_eta) + by_k @ of_k

    def _products_with(self, z: Float[np.ndarray, " p"]) -> Float[np.ndarray, " N"]:
        """M z, of which the last is remembered: along a line it is mostly the same."""
        if self._ahead is None or not np.array_equal(self._ahead[0], z):
            self._ahead = z, self._rows.times(z)
        return self._ahead[1]

    @property
    def hessian_by_sample(self) -> Callable[[np.ndarray], np.ndarray] | None:
        """About the Hessian of f at a point, by one of each eleven rows; None where that saves little."""
        N, p = self._rows.shape
        return partial(self.hessian, every=_EVERY) if _MANY <= p <= N / (_SAMPLE * _EVERY) else None

    def hessian(self, u: Float[np.ndarray, " D"], every: int = 1) -> Float[np.ndarray, "D D"]:
        """The Hessian of f at u; or what the first of each so many rows make it."""
        seen = self._seen(u)
        if seen.multipliers is None:
            self.value_and_slope(u)
        bend, across, inner = map(np.asarray, _bends(self._density, u, seen.eta)[:3])
        beside = np.asarray(_beside(self._density, u, seen.multipliers))
        # By what is only added, such as the log prior, and the predictor there are none.
        some = across.any(axis=1)
        mixed = np.zeros((len(across), seen.jacobian.shape[0] - len(across)), across.dtype)
        mixed[some] = self._rows.weighted_sum(across[some])
        products = self._rows.weighted_products(bend, every)
        return assembled(products, mixed, inner, seen.jacobian, beside)

    def _seen(self, u: np.ndarray) -> "_Seen":
        if self._last is None or not np.array_equal(self._last.u, u):
            z, jacobian = map(np.asarray, _seen(self._density, u))
            self._last = _Seen(u.copy(), jacobian, self._rows.times(z))
        return self._last


@dataclass
class _Seen:
    """What is known of a point: the derivatives of z and k by u, eta, and those of f by z and k."""

    u: np.ndarray
    jacobian: np.ndarray
    eta: np.ndarray
    multipliers: np.ndarray | None = None


def _split(density: ModelDensity, u: Array) -> Split | None:
    return split_at_predictor(lambda u: density.loss(u)[0], u)


def _known_split(density: ModelDensity, u: Array) -> Split:
    found = _split(density, u)
    assert found is not None
    return found


def _little(*_: Any) -> int:
    """What a program computes that does not look at the rows."""
    return 0


@partial(jit_quickly, work=_little)
def _seen(density: ModelDensity, u: Array) -> tuple[Array, Array]:
    """z, and the derivatives of z and k by u, shape (p + m, D)."""
    split = _known_split(density, u)
    return split.seen(u)[0], jnp.concatenate(jax.jacfwd(split.seen)(u))


@jit
def _slope(density: ModelDensity, u: Array, eta: Array) -> tuple[Array, Array, Array]:
    split = _known_split(density, u)
    value, (by_eta, by_k) = jax.value_and_grad(split.rows, (0, 1))(eta, split.seen(u)[1])
    return value, by_eta, by_k


@jit
def _bends(density: ModelDensity, u: Array, eta: Array) -> Bends:
    split = _known_split(density, u)
    return bends(split, eta, split.seen(u)[1])


@partial(jit_quickly, work=_little)
def _beside(density: ModelDensity, u: Array, multipliers: Array) -> Array:
    split = _known_split(density, u)

    def seen(u: Array) -> tuple[Array, None]:
        return multipliers @ jnp.concatenate(split.seen(u)), None

    return value_gradient_hessian(seen, u)[3]
