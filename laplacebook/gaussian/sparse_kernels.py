"""Loops over the columns of a sparse factor, compiled by numba: imported at the first factorisation."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit


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


@_compiled
def selected_inverse(
    indptr: np.ndarray, indices: np.ndarray, lower: np.ndarray, pivots: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The entries of (L D L')^-1 at the places of L, and its diagonal.

    The recursion of Takahashi, Fagan and Chin (1973), from the last column to the first: with Z the
    inverse and R the rows of column j of L, Z[R, j] = -Z[R, R] L[R, j], and all of Z[R, R] is known,
    since two rows of one column of L are a place of L (Erisman and Tinney 1975).
    """
    size = pivots.size
    below, diagonal = np.empty(indices.size), np.empty(size)
    column, product = np.zeros(size), np.zeros(size)
    within = np.full(size, -1, np.int32)
    for j in range(size - 1, -1, -1):
        start, stop = indptr[j], indptr[j + 1]
        for p in range(start, stop):
            within[indices[p]] = j
            column[indices[p]] = lower[p]
            product[indices[p]] = 0.0
        for p in range(start, stop):
            k, factor = indices[p], lower[p]
            along = diagonal[k] * factor
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
    return below, diagonal
