"""Distances in posterior standard deviations, by the curvature at a point."""

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Union

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Bool, Float

from laplacebook.base.irregular import irregular_signs
from laplacebook.base.namespace import Numbers, between, larger, lazily, namespace, select
from laplacebook.gaussian.precision import Precision

if TYPE_CHECKING:
    from laplacebook.search.sparse_metric import SparseMetric

FEW = 16  # coordinates: up to here an eigendecomposition costs next to nothing
COARSEST = 1e-3  # posterior standard deviations: no mode is certified to less than that
EDGE = 1e-3  # standard deviations: a mode nearer than that to the end of its interval lies on it


@lru_cache
def rounding_floor(size: int, dtype: Any) -> np.floating:
    """The smallest eigenvalue of a matrix with unit diagonal that can be told from zero.

    A sum over many observations rounds by more than the machine precision. What is a quarter of
    the digits above it is certain, and is known to a quarter of the digits.
    """
    eps = jnp.finfo(dtype).eps
    return np.dtype(dtype).type(max(4 * eps**0.75, 10 * size * eps))


class EigenMetric(NamedTuple):
    """The curvature H at a point in units of its own diagonal, by its eigenvalues.

    Attributes:
        scale: S, the diagonal of H to the power -1/2, shape (D,).
        values: the eigenvalues of S H S in rising order, shape (D,).
        vectors: V, its eigenvectors in columns, shape (D, D).
        curvature: the absolute eigenvalues, or where they cannot be told from zero what can be.
        roots: of the curvature, shape (D,).
        regular: whether S H S is positive definite beyond rounding.
    """

    scale: Numbers
    values: Numbers
    vectors: Numbers
    curvature: Numbers
    roots: Numbers
    regular: Numbers

    @classmethod
    def of(cls, scale: Float[Numbers, " D"], scaled: Float[Numbers, "D D"]) -> "EigenMetric":
        """From S and S H S, which is finite."""
        xp, floor = namespace(scaled), rounding_floor(scale.size, scale.dtype)
        values, vectors = xp.linalg.eigh(scaled)
        curvature = xp.maximum(xp.abs(values), floor)
        return cls(scale, values, vectors, curvature, xp.sqrt(curvature), values[0] > floor)

    def condition_number(self) -> Float[Numbers, ""]:
        """Of S H S; infinite where that is not positive definite."""
        xp = namespace(self.values)
        return xp.where(self.regular, self.values[-1] / self.values[0], xp.inf)

    def whiten(self, gradient: Float[Numbers, " D"]) -> Float[Numbers, " D"]:
        """A gradient in posterior standard deviations: R^-1 S g with S |H| S = R R'."""
        return self.vectors.T @ (self.scale * gradient) / self.roots

    def lengths(self, step: Float[Numbers, " D"]) -> Float[Numbers, " D"]:
        """A step in posterior standard deviations: R' S^-1 step."""
        return self.vectors.T @ (step / self.scale) * self.roots

    def unwhiten(self, lengths: Float[Numbers, " D"]) -> Float[Numbers, " D"]:
        """The inverse of :meth:`lengths`."""
        return self.scale * (self.vectors @ (lengths / self.roots))

    def step(
        self, gradient: Float[Numbers, " D"], damping: Float[Numbers, ""]
    ) -> Float[Numbers, " D"]:
        """The damped Newton step; where the curvature is negative, along it and away."""
        step = -self.vectors.T @ (self.scale * gradient) / (self.curvature + damping)
        upward = self.values[0] < -rounding_floor(step.size, step.dtype)

        def away() -> Numbers:
            return namespace(step).concatenate([_away(step[:1], damping), step[1:]])

        return self.scale * (self.vectors @ lazily(upward, away, lambda: step))


class CholeskyMetric(NamedTuple):
    """The same for many coordinates, by a Cholesky factor wherever there is one.

    An eigendecomposition costs ten times as much; and the threads of many a LAPACK spin after it,
    on the cores that the next matrix product needs.

    Attributes:
        scale: S, shape (D,).
        matrix: S H S; where that is not positive definite beyond rounding, the same with absolute
            eigenvalues. Shape (D, D).
        root: its lower Cholesky factor R, shape (D, D).
        ridge: the eigenvector of the most negative eigenvalue, or zero if there is none, shape (D,).
        regular: whether S H S is positive definite beyond rounding.
    """

    scale: Array
    matrix: Array
    root: Array
    ridge: Array
    regular: Array

    @classmethod
    def of(cls, scale: Float[Array, " D"], scaled: Float[Array, "D D"]) -> "CholeskyMetric":
        """From S and S H S, which is finite."""
        floor = rounding_floor(scale.size, scale.dtype)
        above = jnp.linalg.cholesky(scaled - floor * jnp.eye(scale.size, dtype=scale.dtype))
        regular = jnp.all(jnp.isfinite(above))

        def bent() -> tuple[Array, Array]:
            values, vectors = jnp.linalg.eigh(scaled)
            curvature = jnp.maximum(jnp.abs(values), floor)
            return (vectors * curvature) @ vectors.T, vectors[:, 0] * (values[0] < -floor)

        matrix, ridge = lax.cond(regular, lambda: (scaled, 0 * scale), bent)
        return cls(scale, matrix, jnp.linalg.cholesky(matrix), ridge, regular)

    def condition_number(self) -> Float[Array, ""]:
        """Of S H S; infinite where that is not positive definite."""
        values = jnp.linalg.eigvalsh(self.matrix)
        return jnp.where(self.regular, values[-1] / values[0], jnp.inf)

    def whiten(self, gradient: Float[Array, " D"]) -> Float[Array, " D"]:
        """A gradient in posterior standard deviations: R^-1 S g."""
        return solve_triangular(self.root, self.scale * gradient, lower=True)

    def lengths(self, step: Float[Array, " D"]) -> Float[Array, " D"]:
        """A step in posterior standard deviations: R' S^-1 step."""
        return self.root.T @ (step / self.scale)

    def unwhiten(self, lengths: Float[Array, " D"]) -> Float[Array, " D"]:
        """The inverse of :meth:`lengths`."""
        return self.scale * solve_triangular(self.root, lengths, lower=True, trans="T")

    def step(self, gradient: Float[Array, " D"], damping: Float[Array, ""]) -> Float[Array, " D"]:
        """The damped Newton step; where the curvature is negative, along it and away."""
        identity = jnp.eye(self.scale.size, dtype=self.scale.dtype)
        damped = jnp.linalg.cholesky(self.matrix + damping * identity)
        step = -cho_solve((damped, True), self.scale * gradient)
        along, upward = self.ridge @ step, jnp.any(self.ridge != 0)
        more = jnp.where(upward, _away(along, damping) - along, 0)
        return self.scale * (step + more * self.ridge)


Metric = Union[EigenMetric, CholeskyMetric, "SparseMetric"]
Curvature = Numbers  # a matrix, shape (D, D); or a SparsePrecision


def units(hessian: Curvature) -> Float[Numbers, " D"]:
    """The diagonal of a Hessian to the power -1/2, shape (D,); one where it is zero."""
    sparse = isinstance(hessian, Precision)
    xp = np if sparse else namespace(hessian)
    diagonal = abs(hessian.diagonal_of_matrix() if sparse else xp.diagonal(hessian))
    return 1 / xp.sqrt(xp.where(diagonal > 0, diagonal, 1))


def has_hessian(x: Float[Numbers, " D"]) -> bool:
    """Whether a search takes the Hessian wherever it looks: few coordinates, or driven from Python."""
    return x.size <= FEW or namespace(x) is np


def product(hessian: Curvature, v: Float[Numbers, " D"]) -> Float[Numbers, " D"]:
    """H v."""
    return hessian.matvec(v) if isinstance(hessian, Precision) else hessian @ v


def metric_at(hessian: Curvature) -> Metric:
    """The metric of a Hessian; that of one that is not finite is not regular."""
    scale = units(hessian)
    if isinstance(hessian, Precision):
        from laplacebook.search.sparse_metric import SparseMetric

        return SparseMetric.of(scale, hessian, float(rounding_floor(scale.size, scale.dtype)))
    xp = namespace(hessian)
    scaled = scale[:, None] * hessian * scale
    finite = xp.isfinite(scaled).all()
    identity = partial(xp.eye, scale.size, dtype=scale.dtype)
    scaled = lazily(finite, lambda: scaled, identity)
    metric = EigenMetric if has_hessian(scale) else CholeskyMetric
    found = metric.of(scale, scaled)
    return found._replace(regular=found.regular & finite)


def condition_of(hessian: Float[np.ndarray, "D D"]) -> np.floating:
    """The condition number of a positive definite Hessian in units of its own diagonal."""
    scale = units(hessian)
    values = np.linalg.eigvalsh(scale[:, None] * hessian * scale)
    return values[-1] / values[0]


def _away(along: Numbers, damping: Numbers) -> Numbers:
    """A step along a direction of negative curvature, where a short one would stay on the ridge."""
    xp = namespace(along)
    size = xp.maximum(xp.abs(along), 1 / (1 + damping))
    return xp.where(along < 0, -size, size)


def probe(x: Float[Numbers, " D"]) -> Float[Numbers, " D"]:
    """A short step in every direction at once, in posterior standard deviations.

    Far longer than the distance left to the minimum, so that a tail or a quartic shows, and short
    enough to stay in a curved valley: 0.00001 in float64, 0.01 in float32. The signs are in no
    order that a model has.
    """
    return _probe(x.size, x.dtype)


@lru_cache
def _probe(size: int, dtype: Any) -> np.ndarray:
    return irregular_signs(0, size).astype(dtype) * (2 * jnp.finfo(dtype).eps ** (1 / 3))


def _rounding(metric: Metric, x: Numbers) -> Numbers:
    """The rounding of the coordinates in posterior standard deviations."""
    return jnp.finfo(x.dtype).eps * (abs(x) / metric.scale).max()


def decrement(
    metric: Metric, x: Float[Numbers, " D"], gradient: Float[Numbers, " D"]
) -> Float[Numbers, ""]:
    """The Newton decrement sqrt(g' H^-1 g), but at least the rounding; infinite if H is singular."""
    measured = namespace(x).linalg.norm(metric.whiten(gradient))
    known = larger(measured, _rounding(metric, x))
    return select(metric.regular, known, x.dtype.type(np.inf))


def tolerance(metric: Metric, x: Float[Numbers, " D"]) -> Float[Numbers, ""]:
    """The decrement that is small enough."""
    eps = jnp.finfo(x.dtype).eps
    return between(np.sqrt(eps), 4 * _rounding(metric, x), x.dtype.type(COARSEST))


def inside(space: str, room: Float[Numbers, " D"], precision: Precision) -> Bool[Numbers, ""]:
    """Whether a mode is not at the end of an interval, which in the unconstrained space is nowhere.

    Args:
        space: in which the coordinates are, ``"unconstrained"`` or ``"constrained"``.
        room: how far each is from the end of its interval, shape (D,).
        precision: at the mode.
    """
    if space == "unconstrained":
        return np.True_
    xp = namespace(room)
    return xp.all(room > EDGE * xp.sqrt(precision.diagonal_of_inverse()))
