"""The Laplace approximations of the effects at many points of the hyperparameters, with dense precisions."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import lapack, solve_triangular

from laplacebook.beyond.leaves import Leaves
from laplacebook.beyond.sparse_conditional import SparseConditional
from laplacebook.gaussian.precision import DensePrecision


class Conditional(NamedTuple):
    """The Laplace approximations of the effects z at K values of the hyperparameters h.

    Attributes:
        hyper: h, in the unconstrained space, shape (K, H).
        log_marginal: log p(D, h) with z integrated out, shape (K,); NaN where z has no mode.
        mode: of z given h, shape (K, d).
        root: L^-1, with the lower Cholesky factor L of its precision, shape (K, d, d); where there are leaves, that of
            the other effects alone, (K, r, r).
        leaves: the effects that are independent of each other given the others, if that is known.
    """

    hyper: np.ndarray
    log_marginal: np.ndarray
    mode: np.ndarray
    root: np.ndarray
    leaves: Leaves | None = None

    def at(self, index: Any) -> "Conditional":
        """Those of some of the points."""
        leaves = None if self.leaves is None else self.leaves.at(index)
        hyper, heights, mode, root = (part[index] for part in self._arrays)
        return Conditional(hyper, heights, mode, root, leaves)

    @classmethod
    def joined(cls, parts: Sequence["Conditional"]) -> "Conditional":
        """The points of all parts."""
        kept = [part.leaves for part in parts if part.leaves is not None]
        if 0 < len(kept) < len(parts):
            parts = [part.without_leaves() for part in parts]
        arrays = zip(*(part._arrays for part in parts), strict=True)
        hyper, heights, mode, root = map(np.concatenate, arrays)
        leaves = Leaves.joined(kept) if len(kept) == len(parts) else None
        return cls(hyper, heights, mode, root, leaves)

    def without_leaves(self) -> "Conditional":
        """The same, with the root of the whole precision."""
        if self.leaves is None:
            return self
        unit = np.eye(self.mode.shape[1])
        root = [self.precision(k).half_solve(unit) for k in range(len(self.hyper))]
        return self._replace(root=np.array(root).reshape(-1, *unit.shape), leaves=None)

    @property
    def _arrays(self) -> tuple[np.ndarray, ...]:
        return self.hyper, self.log_marginal, self.mode, self.root

    def precision(self, k: int | np.integer) -> DensePrecision:
        """Of the effects at one of the points."""
        factor = lapack.dtrtri(self.root[k], lower=1)[0]
        matrix = factor @ factor.T
        if self.leaves is None:
            return DensePrecision(matrix, factor)
        return DensePrecision.of_symmetric(self.leaves.precision(k, matrix))

    def roots(self) -> Float[np.ndarray, "K d d"]:
        """R, with the covariances R'R of the effects."""
        if self.leaves is None:
            return self.root
        return np.array([self.leaves.whole(k, root) for k, root in enumerate(self.root)])

    @property
    def deviations(self) -> Float[np.ndarray, "K d"]:
        """Standard deviations of z given h."""
        of_root = np.sqrt(np.einsum("kij,kij->kj", self.root, self.root))
        return of_root if self.leaves is None else self.leaves.deviations(self.root, of_root)

    @property
    def log_roots(self) -> Float[np.ndarray, " K"]:
        """Half of the log determinant of the precision."""
        of_root = -np.log(np.diagonal(self.root, axis1=1, axis2=2)).sum(axis=1)
        return of_root if self.leaves is None else of_root - np.log(self.leaves.spread).sum(axis=1)

    def ways(self, k: int, which: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n d"]:
        """How all effects move where one does by a standard deviation, and the others by their conditional means.

        Args:
            k: at which of the points.
            which: those that move.
        """
        root = self.root[k] if self.leaves is None else self.leaves.whole(k, self.root[k])
        moved = root[:, which]
        return moved.T @ root / np.sqrt(np.einsum("ij,ij->j", moved, moved))[:, None]

    def offsets(
        self, index: Int[np.ndarray, " S"], normal: Float[np.ndarray, "S d"]
    ) -> Float[np.ndarray, "S d"]:
        """How far draws are from the modes.

        Args:
            index: at which of the points each draw is, shape (S,).
            normal: standard normal vectors, one for each, shape (S, d).
        """
        offset = np.empty_like(normal)
        for k in np.unique(index):
            drawn, leaves = normal[index == k], self.leaves
            root = self.root[k]
            offset[index == k] = drawn @ root if leaves is None else leaves.offsets(k, root, drawn)
        return offset

    def squares(
        self, index: Int[np.ndarray, " S"], offset: Float[np.ndarray, "S d"]
    ) -> Float[np.ndarray, " S"]:
        """The squared lengths of the normal vectors of which these are the offsets."""
        normal = np.empty_like(offset)
        for k in np.unique(index):
            away, root = offset[index == k], self.root[k]
            if self.leaves is not None:
                normal[index == k] = self.leaves.normal(k, root, away)
            else:
                normal[index == k] = solve_triangular(root, away.T, trans=1, lower=True).T
        return np.sum(normal**2, axis=1)


AnyConditional = Conditional | SparseConditional


def in_order(
    parts: Sequence[AnyConditional], index: Sequence[Int[np.ndarray, " n"]]
) -> AnyConditional:
    """The points of all parts, each in its place.

    Args:
        parts: what is known at some of the points.
        index: of each part, which of them these are, shape (n,).
    """
    kind: Any = type(parts[0])
    return kind.joined(parts).at(np.argsort(np.concatenate(index)))
