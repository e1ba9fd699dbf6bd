"""The Laplace approximations of many effects at many points of the hyperparameters, with sparse precisions."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from laplacebook.gaussian.sparse import SparsePrecision
from laplacebook.gaussian.sparse_layout import SparseLayout


class SparseConditional(NamedTuple):
    """The Laplace approximations of d effects z at K values of the hyperparameters h.

    Of each precision S + W K W' its entries are kept, and it is factorised where it is asked for.

    Attributes:
        layout: where S has entries.
        hyper: h, in the unconstrained space, shape (K, H).
        log_marginal: log p(D, h) with z integrated out, shape (K,); NaN where z has no mode.
        mode: of z given h, shape (K, d).
        deviations: standard deviations of z given h, shape (K, d).
        log_roots: half of the log determinant of the precision, shape (K,).
        entries: of S at the places of the layout, shape (K, nnz).
        left: W, shape (K, d, r).
        middle: K, shape (K, r, r).
    """

    layout: SparseLayout
    hyper: np.ndarray
    log_marginal: np.ndarray
    mode: np.ndarray
    deviations: np.ndarray
    log_roots: np.ndarray
    entries: np.ndarray
    left: np.ndarray
    middle: np.ndarray

    def at(self, index: Any) -> "SparseConditional":
        """Those of some of the points."""
        return SparseConditional(self.layout, *(part[index] for part in self._arrays))

    @classmethod
    def joined(cls, parts: Sequence["SparseConditional"]) -> "SparseConditional":
        """The points of all parts."""
        arrays = zip(*(part._arrays for part in parts), strict=True)
        return cls(parts[0].layout, *map(np.concatenate, arrays))

    @property
    def _arrays(self) -> tuple[Any, ...]:
        return self[1:]

    def precision(self, k: int | np.integer) -> SparsePrecision:
        """Of the effects at one of the points, factorised."""
        return SparsePrecision.of(self.layout, self.entries[k], self.left[k], self.middle[k])

    def ways(self, k: int, which: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n d"]:
        """As :meth:`~laplacebook.beyond.conditional.Conditional.ways`."""
        return ways(self.precision(k), self.deviations[k], which)

    def offsets(
        self, index: Int[np.ndarray, " S"], normal: Float[np.ndarray, "S d"]
    ) -> Float[np.ndarray, "S d"]:
        """As :meth:`~laplacebook.beyond.conditional.Conditional.offsets`."""
        offset = np.empty_like(normal)
        for k in np.unique(index):
            offset[index == k] = self.precision(k).whitened(normal[index == k].T).T
        return offset

    def squares(
        self, index: Int[np.ndarray, " S"], offset: Float[np.ndarray, "S d"]
    ) -> Float[np.ndarray, " S"]:
        """As :meth:`~laplacebook.beyond.conditional.Conditional.squares`."""
        found = np.empty(len(offset))
        for k in np.unique(index):
            precision = self.precision(k)
            for row in np.flatnonzero(index == k):
                found[row] = offset[row] @ precision.matvec(offset[row])
        return found


def ways(
    precision: SparsePrecision, deviations: Float[np.ndarray, " d"], which: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "n d"]:
    """How all effects move where one does by a standard deviation, and the others by their conditional means.

    Args:
        precision: of the effects.
        deviations: their standard deviations.
        which: those that move.
    """
    unit = np.zeros((deviations.size, len(which)))
    unit[which, np.arange(len(which))] = 1 / deviations[which]
    return np.asarray(precision.solve(unit)).T
