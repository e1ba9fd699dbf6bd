"""Where a sparse matrix has entries, and in which order it is factorised."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from threading import Lock
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from laplacebook.base.checks import require_number
from laplacebook.base.namespace import Numbers


def optional(name: str) -> Any:
    """A module that the extra ``sparse`` brings.

    Raises:
        ImportError: it is not there, or does not go with this version of JAX.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ImportError(
            "A sparse precision needs packages that are not here (asdex, numba, qdldl): "
            'pip install "laplacebook[sparse]".'
        ) from error
    except ImportError as error:
        raise ImportError(
            f"A sparse precision needs {name}, which fails with jax {jax.__version__}: {error}. Take other versions "
            'of them: pip install --upgrade "laplacebook[sparse]", or "jax<0.12".'
        ) from error


class SparseLayout:
    """Where a symmetric sparse matrix has entries: rows >= columns, the diagonal whole.

    Equal to another by what is in it, and hashable, so that JAX's programs can depend on it. The
    order of elimination (approximate minimum degree, Amestoy, Davis and Duff 1996) and the structure
    of the factor are found at the first use, and kept.

    Attributes:
        size: D.
        rows: of the entries, int32, shape (nnz,), rising within a column.
        cols: of the entries, int32, shape (nnz,), rising.
    """

    def __init__(
        self, size: int, rows: Int[np.ndarray, " nnz"], cols: Int[np.ndarray, " nnz"]
    ) -> None:
        """Of places as :meth:`of` puts them."""
        self.size, self.rows, self.cols = size, rows, cols
        digest = hashlib.sha256(np.stack([rows, cols]).tobytes()).digest()
        self._key = (size, digest)
        self._hash = hash(self._key)

    @classmethod
    def of(
        cls, size: int, rows: Int[np.ndarray, " N"], cols: Int[np.ndarray, " N"]
    ) -> "SparseLayout":
        """Of places in any order and in both triangles, some of them twice; the diagonal is added.

        Args:
            size: D, 1 or more.
            rows: shape (N,).
            cols: shape (N,).

        Raises:
            ValueError: a place is outside of the matrix.
        """
        require_number("size", size)
        rows, cols = np.asarray(rows, np.int64), np.asarray(cols, np.int64)
        for name, places in (("row", rows), ("column", cols)):
            if places.size and not (places.min() >= 0 and places.max() < size):
                wrong = places[(places < 0) | (places >= size)][0]
                raise ValueError(
                    f"A matrix of size {size} has no {name} {wrong}: they are 0 to {size - 1}."
                )
        along = np.arange(size)
        low, high = np.minimum(rows, cols), np.maximum(rows, cols)
        keys = np.unique(np.concatenate([low * size + high, along * size + along]))
        return cls(int(size), (keys % size).astype(np.int32), (keys // size).astype(np.int32))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, SparseLayout) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"SparseLayout(size={self.size:,}, {self.rows.size:,} entries in a triangle)"

    def __reduce__(self) -> tuple[Any, ...]:
        order = self.__dict__["factor"].permutation if "factor" in self.__dict__ else None
        return _rebuilt, (self.size, self.rows, self.cols, order)

    @cached_property
    def diagonal(self) -> Int[np.ndarray, " D"]:
        """The places of the diagonal among the entries."""
        return np.flatnonzero(self.rows == self.cols)

    @cached_property
    def below(self) -> Int[np.ndarray, " K"]:
        """The places below the diagonal among the entries."""
        return np.flatnonzero(self.rows != self.cols)

    @cached_property
    def factor(self) -> "Factor":
        """The order of elimination and the structure of the factor, found by factorising once."""
        return Factor.of(self)

    @property
    def fill(self) -> int:
        """How many numbers the factor has below its diagonal."""
        return self.factor.indices.size

    @property
    def flops(self) -> int:
        """The sum of squares of the numbers of entries in each column of the factor."""
        return int(np.sum((np.diff(self.factor.indptr).astype(np.int64) + 1) ** 2))


def _rebuilt(size: int, rows: np.ndarray, cols: np.ndarray, order: Any) -> SparseLayout:
    """A layout from a pickle; one whose factors were eliminated in another order is refused."""
    layout = SparseLayout(size, rows, cols)
    if order is not None and not np.array_equal(layout.factor.permutation, order):
        raise ValueError(
            "This sparse precision was factorised by another version of qdldl, in another order: "
            "make it anew from its entries."
        )
    return layout


@dataclass(frozen=True)
class Factor:
    """The structure of L in P' S P = L D L', and what computes its numbers.

    Attributes:
        permutation: coordinate ``permutation[k]`` is eliminated as the k-th, shape (D,).
        inverse: its inverse, shape (D,).
        indptr: where the columns of L begin, shape (D + 1,).
        indices: rows of the strictly lower entries of L, column by column, shape (nnz_L,).
        places: of the layout's entries among those of L, followed by the diagonal, shape (nnz,).
    """

    permutation: np.ndarray
    inverse: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    places: np.ndarray
    _upper: Any
    _order: np.ndarray
    _solver: Any
    _lock: Any

    @classmethod
    def of(cls, layout: SparseLayout) -> "Factor":
        """Order and factorise a positive definite matrix with entries at all the places."""
        qdldl = optional("qdldl")
        from scipy import sparse

        size, rows, cols = layout.size, layout.rows, layout.cols
        order = np.lexsort((cols, rows))  # the upper triangle, column by column
        degrees = np.bincount(rows, minlength=size) + np.bincount(cols, minlength=size)
        entries = np.where(rows == cols, degrees[rows], -1.0)
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=size))])
        upper = sparse.csc_matrix((entries[order], cols[order], starts), shape=(size, size))
        solver = qdldl.Solver(upper, upper=True)
        lower, _, permutation = solver.factors()
        inverse = np.argsort(permutation)
        # The places of L, column by column, are in rising order of column * D + row.
        one, other = inverse[rows], inverse[cols]
        column = np.repeat(np.arange(size), np.diff(lower.indptr))
        keys = np.minimum(one, other) * size + np.maximum(one, other)
        below = np.searchsorted(column * size + lower.indices, keys)
        places = np.where(rows == cols, lower.nnz + one, below)
        return cls(
            *(permutation, inverse, lower.indptr, lower.indices, places),
            *(upper, order, solver, Lock()),
        )

    def numbers(
        self, entries: Float[np.ndarray, " nnz"]
    ) -> tuple[Float[np.ndarray, " nnz_L"], Float[np.ndarray, " D"]]:
        """The strictly lower entries of L, and D; NaN behind a pivot that is zero."""
        with self._lock:
            self._upper.data[:] = entries[self._order]
            self._solver.update(self._upper, upper=True)
            lower, pivots, _ = self._solver.factors()
        zero = np.flatnonzero(pivots == 0)
        if zero.size:  # qdldl stops there, and the rest is of another matrix
            pivots[zero[0] + 1 :] = np.nan
        return lower.data, pivots


def as_numbers(x: Numbers) -> Float[np.ndarray, "..."]:
    """In double precision, contiguous and read-only: the one kind of array that the loops take."""
    found = np.ascontiguousarray(x, np.float64).view()
    found.flags.writeable = False
    return found
