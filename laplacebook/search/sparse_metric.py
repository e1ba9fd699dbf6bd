"""Distances in posterior standard deviations, by a sparse curvature."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from laplacebook.base.namespace import Numbers
from laplacebook.curvature.eigenvalues import condition_number
from laplacebook.gaussian.precision import Precision
from laplacebook.gaussian.sparse import SparsePrecision

_FIRST, _LAST = 1e-4, 1e8  # of the diagonal, added to it until it suffices


class SparseMetric(NamedTuple):
    """The curvature H at a point, as :class:`~laplacebook.search.metric.EigenMetric` has it.

    Where H is not positive definite, its diagonal is raised by a multiple of itself until it is: a sparse
    matrix has no eigenvalues that could be turned around.

    Attributes:
        scale: S, the diagonal of H to the power -1/2, shape (D,).
        precision: H, or what is positive definite in its place.
        regular: whether H is positive definite beyond rounding.
        upward: whether it is negative in a direction, beyond rounding.
    """

    scale: np.ndarray
    precision: SparsePrecision
    regular: np.ndarray
    upward: bool

    @classmethod
    def of(
        cls, scale: Float[np.ndarray, " D"], curvature: Precision, floor: float
    ) -> "SparseMetric":
        """From S and H, which is finite, and the smallest eigenvalue of S H S that is told from zero."""
        assert isinstance(curvature, SparsePrecision)  # no other one is a curvature here
        regular = is_definite(raised(curvature, -floor / scale**2))
        added = _FIRST
        found = curvature
        while not is_definite(found) and added < _LAST:
            found = raised(curvature, added / scale**2)
            added *= 10
        upward = found is not curvature and not is_definite(raised(curvature, floor / scale**2))
        return cls(scale, found, np.asarray(regular), upward)

    def condition_number(self) -> Float[Numbers, ""]:
        """Of S H S, by Lanczos: never too large; infinite where H is not positive definite."""
        return condition_number(self.precision) if self.regular else np.asarray(np.inf)

    def whiten(self, gradient: Float[np.ndarray, " D"]) -> Float[np.ndarray, " D"]:
        """A gradient in posterior standard deviations: R^-1 g with H = R R'."""
        return self.precision.half_solve(gradient)

    def lengths(self, step: Float[np.ndarray, " D"]) -> Float[np.ndarray, " D"]:
        """A step in posterior standard deviations: R' step, which is R^-1 H step."""
        return self.precision.half_solve(self.precision.matvec(step))

    def unwhiten(self, lengths: Float[np.ndarray, " D"]) -> Float[np.ndarray, " D"]:
        """The inverse of :meth:`lengths`."""
        return self.precision.whitened(lengths)

    def step(
        self, gradient: Float[np.ndarray, " D"], damping: Float[Numbers, ""] | float
    ) -> Float[np.ndarray, " D"]:
        """The damped Newton step; where the curvature is negative, not a short one, which would stay on a ridge."""
        damped = raised(self.precision, damping / self.scale**2) if damping else self.precision
        step = -damped.solve(gradient)
        length, least = np.linalg.norm(self.lengths(step)), 1 / (1 + damping)
        return step * (least / length) if self.upward and 0 < length < least else step


def raised(precision: SparsePrecision, more: Float[np.ndarray, " D"]) -> SparsePrecision:
    """The same with a larger diagonal.

    Args:
        precision: a sparse one.
        more: what is added to its diagonal, shape (D,).
    """
    entries = precision.entries.copy()
    entries[precision.layout.diagonal] += more
    return SparsePrecision.of(precision.layout, entries, precision.left, precision.middle)


def is_definite(precision: SparsePrecision) -> bool:
    """Whether it is positive definite."""
    return bool(np.isfinite(precision.log_determinant()))
