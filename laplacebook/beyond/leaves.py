"""Effects of which many meet none of each other, but a few: only these have a dense precision given the rest."""

from collections.abc import Sequence
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import lapack, solve_triangular

_MANY = 128  # effects: of fewer a Cholesky factor takes as little
_SHARE = 1 / 3  # of all, that the others may be


class Layout(NamedTuple):
    """Which of d effects are leaves: independent of each other given the others.

    A Hessian then is a vector of m + m r + r r numbers: the diagonal of the leaves, their entries with the others, row
    by row, and those of the others.

    Attributes:
        leaves: shape (m,).
        others: shape (r,).
    """

    leaves: np.ndarray
    others: np.ndarray

    @classmethod
    def of(cls, known: Bool[np.ndarray, "d d"]) -> "Layout | None":
        """That of a Hessian, where it saves much; else None.

        Args:
            known: where it has entries, its diagonal among them.
        """
        size = len(known)
        if size <= _MANY:
            return None
        is_leaf, met = np.zeros(size, bool), np.zeros(size, bool)
        for i in np.argsort(known.sum(axis=1), kind="stable"):
            if not met[i]:
                is_leaf[i] = True
                met |= known[i]
        if np.count_nonzero(~is_leaf) > _SHARE * size:
            return None
        is_leaf[-1] &= not is_leaf.all()  # LAPACK takes no matrix without rows
        return cls(np.flatnonzero(is_leaf), np.flatnonzero(~is_leaf))

    @property
    def numbers(self) -> int:
        """How many a Hessian is."""
        m, r = self.leaves.size, self.others.size
        return m + m * r + r * r

    def places(self, rows: Int[np.ndarray, " n"], cols: Int[np.ndarray, " n"]) -> np.ndarray:
        """Where entries of the Hessian stand among its numbers; -1 where another one stands for them, shape (n,)."""
        m, r = self.leaves.size, self.others.size
        place, is_leaf = np.empty(m + r, int), np.zeros(m + r, bool)
        place[self.leaves], place[self.others] = np.arange(m), np.arange(r)
        is_leaf[self.leaves] = True
        of_leaf = np.where(rows == cols, place[rows], m + place[rows] * r + place[cols])
        of_other = np.where(is_leaf[cols], -1, m + m * r + place[rows] * r + place[cols])
        return np.where(is_leaf[rows], of_leaf, of_other)

    def parts(self, hessian: Float[np.ndarray, " n"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The diagonal of the leaves (m,), their entries with the others (m, r), and those of the others (r, r)."""
        m, r = self.leaves.size, self.others.size
        diagonal, across, within = np.split(hessian, [m, m + m * r])
        return diagonal, across.reshape(m, r), within.reshape(r, r)

    def matrix(self, hessian: Float[np.ndarray, " n"]) -> Float[np.ndarray, "d d"]:
        """The Hessian as a matrix."""
        diagonal, across, within = self.parts(hessian)
        whole = np.zeros((self.leaves.size + self.others.size,) * 2)
        whole[self.leaves, self.leaves] = diagonal
        whole[np.ix_(self.leaves, self.others)] = across
        whole[np.ix_(self.others, self.leaves)] = across.T
        whole[np.ix_(self.others, self.others)] = within
        return whole


class Factor(NamedTuple):
    """A factorised Hessian: that of the others once the leaves are integrated out, and of these given the others.

    Attributes:
        lower: the lower Cholesky factor, shape (r, r); without a layout that of the whole, shape (d, d).
        layout: None where no effect is a leaf.
        spread: the standard deviations of the leaves given the others, shape (m,).
        slopes: of their means in the others, shape (m, r).
    """

    lower: np.ndarray
    layout: Layout | None = None
    spread: np.ndarray = np.empty(0)
    slopes: np.ndarray = np.empty((0, 0))

    @classmethod
    def of(cls, hessian: np.ndarray, layout: Layout | None) -> "Factor | None":
        """That of a Hessian as a matrix, or as the numbers of a layout; None where it is not positive definite."""
        if layout is None or hessian.ndim == 2:
            lower = _lower(hessian)
            return None if lower is None else cls(lower)
        diagonal, across, within = layout.parts(hessian)
        if not (diagonal.min() > 0 and diagonal.max() < np.inf):
            return None
        slopes = across / -diagonal[:, None]
        lower = _lower(within + across.T @ slopes)
        return None if lower is None else cls(lower, layout, diagonal**-0.5, slopes)

    @property
    def log_root(self) -> float:
        """Half of the log determinant."""
        return float(np.log(np.diagonal(self.lower)).sum() - np.log(self.spread).sum())

    def solved(self, slope: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        """The inverse Hessian times a vector."""
        if self.layout is None:
            return lapack.dpotrs(self.lower, slope, lower=1)[0]
        leaves, others = self.layout
        found, of_leaves = np.empty_like(slope), slope[leaves]
        moved = lapack.dpotrs(self.lower, slope[others] + of_leaves @ self.slopes, lower=1)[0]
        found[others] = moved
        found[leaves] = self.spread**2 * of_leaves + self.slopes @ moved
        return found


def _lower(matrix: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"] | None:
    factor, failed = lapack.dpotrf(matrix.T, lower=1, clean=1)
    return None if failed or not isfinite(factor.trace()) else factor


class Leaves(NamedTuple):
    """The leaves given the others, at K points of the hyperparameters.

    Attributes:
        places: which of the effects they are, shape (m,).
        spread: their standard deviations given the others, shape (K, m).
        slopes: of their means in the others, shape (K, m, r).
    """

    places: np.ndarray
    spread: np.ndarray
    slopes: np.ndarray

    @classmethod
    def nowhere(cls, layout: Layout, number: int) -> "Leaves":
        """Of so many points, of which nothing is known."""
        m, r = layout.leaves.size, layout.others.size
        return cls(layout.leaves, np.full((number, m), np.nan), np.full((number, m, r), np.nan))

    @classmethod
    def joined(cls, parts: Sequence["Leaves"]) -> "Leaves":
        """The points of all parts."""
        arrays = map(np.concatenate, zip(*(part[1:] for part in parts), strict=True))
        return cls(parts[0].places, *arrays)

    def at(self, index: Any) -> "Leaves":
        """At some of the points."""
        return Leaves(self.places, self.spread[index], self.slopes[index])

    def put(self, k: int, factor: Factor) -> None:
        """What a factorised Hessian says of one of the points."""
        self.spread[k], self.slopes[k] = factor.spread, factor.slopes

    @property
    def others(self) -> Int[np.ndarray, " r"]:
        """Which of the effects are none."""
        return np.delete(np.arange(sum(self.slopes.shape[1:])), self.places)

    def whole(self, k: int | np.integer, root: Float[np.ndarray, "r r"]) -> np.ndarray:
        """R with the covariance R'R of all effects at one of the points.

        Args:
            k: which of them.
            root: such a matrix for the others.
        """
        m, places, others = self.places.size, self.places, self.others
        found = np.zeros((m + len(root),) * 2)
        found[:m, places] = np.diag(self.spread[k])
        found[m:, others] = root
        found[m:, places] = root @ self.slopes[k].T
        return found

    def precision(
        self, k: int | np.integer, of_others: Float[np.ndarray, "r r"]
    ) -> Float[np.ndarray, "d d"]:
        """Of all effects at one of the points.

        Args:
            k: which of them.
            of_others: that of the others, once the leaves are integrated out.
        """
        diagonal = self.spread[k] ** -2
        across = -diagonal[:, None] * self.slopes[k]
        within = of_others - across.T @ self.slopes[k]
        numbers = np.concatenate([diagonal, across.ravel(), within.ravel()])
        return Layout(self.places, self.others).matrix(numbers)

    def deviations(
        self, root: Float[np.ndarray, "K r r"], of_others: Float[np.ndarray, "K r"]
    ) -> Float[np.ndarray, "K d"]:
        """Standard deviations of all effects.

        Args:
            root: R, with the covariances R'R of the others.
            of_others: their standard deviations.
        """
        found = np.empty((len(root), self.places.size + self.others.size))
        carried = root @ self.slopes.swapaxes(1, 2)
        found[:, self.places] = np.sqrt(self.spread**2 + np.einsum("kij,kij->kj", carried, carried))
        found[:, self.others] = of_others
        return found

    def offsets(
        self, k: int | np.integer, root: Float[np.ndarray, "r r"], normal: Float[np.ndarray, "S d"]
    ) -> Float[np.ndarray, "S d"]:
        """How far draws at one of the points are from the mode.

        Args:
            k: which of them.
            root: R, with the covariance R'R of the others.
            normal: standard normal vectors, shape (S, d).
        """
        found, others = np.empty_like(normal), self.others
        moved = normal[:, others] @ root
        found[:, others] = moved
        found[:, self.places] = self.spread[k] * normal[:, self.places] + moved @ self.slopes[k].T
        return found

    def normal(
        self, k: int | np.integer, root: Float[np.ndarray, "r r"], offset: Float[np.ndarray, "S d"]
    ) -> Float[np.ndarray, "S d"]:
        """The normal vectors of which these are the offsets.

        Args:
            k: at which of the points.
            root: lower triangular, with the covariance R'R of the others.
            offset: shape (S, d).
        """
        found, others = np.empty_like(offset), self.others
        moved = offset[:, others]
        found[:, others] = solve_triangular(root, moved.T, trans=1, lower=True).T
        given = offset[:, self.places] - moved @ self.slopes[k].T
        found[:, self.places] = given / self.spread[k]
        return found
