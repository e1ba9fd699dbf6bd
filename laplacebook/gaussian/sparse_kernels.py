"""Loops over the columns of a sparse factor, compiled by numba: imported at the first factorisation."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

_DENSE = 32  # columns: of fewer the recursion is as quick


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled; kept on disk for the next process where a directory can be written."""
    function = inspect.unwrap(
        function
    )  # the tests check types around it, which numba cannot compile
    try:
        return njit(cache=True)(function)
    except RuntimeError:
        return njit(function)


@_compiled
def substitute(
    indptr: np.ndarray, indices: np.ndarray, lower: np.ndarray, columns: np.ndarray
) -> None:
    """L^-1 v for each column v, in its place, of a unit lower triangular L."""
    for j in range(indptr.size - 1):
        for p in range(indptr[j], indptr[j + 1]):
            for k in range(columns.shape[1]):
                columns[indices[p], k] -= lower[p] * columns[j, k]


@_compiled
def substitute_transposed(
    indptr: np.ndarray, indices: np.ndarray, lower: np.ndarray, columns: np.ndarray
) -> None:
    """L'^-1 v for each column v, in its place, of a unit lower triangular L."""
    for j in range(indptr.size - 2, -1, -1):
        for p in range(indptr[j], indptr[j + 1]):
            for k in range(columns.shape[1]):
                columns[j, k] -= lower[p] * columns[indices[p], k]


@_compiled
def add_product(directions: np.ndarray, along: np.ndarray, columns: np.ndarray) -> None:
    """Directions times numbers along them, added to the columns in their place."""
    for i in range(columns.shape[0]):
        for j in range(directions.shape[1]):
            for k in range(columns.shape[1]):
                columns[i, k] += directions[i, j] * along[j, k]


def selected_inverse(
    indptr: np.ndarray, indices: np.ndarray, lower: np.ndarray, pivots: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The entries of (L D L')^-1 at the places of L, and its diagonal.

    The recursion of Takahashi, Fagan and Chin (1973), from the last column to the first: with Z the
    inverse and R the rows of column j of L, Z[R, j] = -Z[R, R] L[R, j], and all of Z[R, R] is known,
    since two rows of one column of L are a place of L (Erisman and Tinney 1975). The last columns, where
    all rows that follow are places of L, are a dense matrix, whose rows need not be looked up.
    """
    size = pivots.size
    below, diagonal = np.empty(indices.size), np.empty(size)
    number = np.diff(indptr)
    full = number == size - 1 - np.arange(size)
    first = size if full.all() else int(np.argmin(full[::-1]))
    first = size - first if first >= _DENSE else size
    block = np.zeros((0, 0))
    if first < size:
        start = indptr[first]
        rows, cols = indices[start:] - first, np.repeat(np.arange(size - first), number[first:])
        root = np.zeros((size - first, size - first))
        root[rows, cols] = lower[start:]
        block = _dense_recursion(root, pivots[first:])
        below[start:], diagonal[first:] = block[rows, cols], block.diagonal()
    _recursion(first, block, indptr, indices, lower, pivots, below, diagonal)
    return below, diagonal


@_compiled
def _dense_recursion(lower: np.ndarray, pivots: np.ndarray) -> np.ndarray:
    """The inverse of a dense L D L', of which the entries of L below the diagonal are given."""
    size = pivots.size
    inverse, product = np.zeros((size, size)), np.zeros(size)
    for j in range(size - 1, -1, -1):
        product[j + 1 :] = 0.0
        for k in range(j + 1, size):
            factor, row, along = lower[k, j], inverse[k, j + 1 :], product[j + 1 :]
            for i in range(along.size):  # from 0 on, which is what LLVM makes vectors of
                along[i] += row[i] * factor
        variance = 1 / pivots[j]
        for i in range(j + 1, size):
            inverse[i, j] = inverse[j, i] = -product[i]
            variance += lower[i, j] * product[i]
        inverse[j, j] = variance
    return inverse


@_compiled
def _recursion(
    first: int,
    block: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
    lower: np.ndarray,
    pivots: np.ndarray,
    below: np.ndarray,
    diagonal: np.ndarray,
) -> None:
    """The columns before the first one of a block that is known, in their places."""
    size = pivots.size
    column, product = np.zeros(size), np.zeros(size)
    within = np.full(size, -1, np.int32)
    for j in range(first - 1, -1, -1):
        start, stop = indptr[j], indptr[j + 1]
        for p in range(start, stop):
            within[indices[p]] = j
            column[indices[p]] = lower[p]
            product[indices[p]] = 0.0
        for p in range(start, stop):
            k, factor = indices[p], lower[p]
            along = diagonal[k] * factor
            if k >= first:
                for q in range(start, stop):
                    i = indices[q]
                    if i > k:
                        along += block[i - first, k - first] * column[i]
                        product[i] += block[i - first, k - first] * factor
            else:
                for q in range(indptr[k], indptr[k + 1]):
                    i = indices[q]
                    if within[i] == j:
                        along += below[q] * column[i]
                        product[i] += below[q] * factor
            product[k] += along
        variance = 1 / pivots[j]
        for p in range(start, stop):
            below[p] = -product[indices[p]]
            variance -= lower[p] * below[p]
        diagonal[j] = variance
