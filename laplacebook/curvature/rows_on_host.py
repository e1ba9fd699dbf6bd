"""The products with the features of a large linear predictor on the host: by rows, in threads, in half the arithmetic.

XLA has no product of a matrix with its own transpose, and on a CPU compiles its products for the least of the
processors that it knows. BLAS has both; but its threads wait for work by spinning, on the cores that XLA needs next.
So each thread of this file gives BLAS one thread, and a share of the rows.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float

from laplacebook.base.one_thread import blas_threads, one_thread

_BLOCK = 2**16  # entries of so many rows as are scaled at a time: they stay in the cache of a core

_WIDE = 40  # columns


class Rows:
    """The rows of a matrix of features M, shape (N, p), within a ``with`` statement."""

    def __init__(self, features: Float[np.ndarray, "N p"]) -> None:
        self._features, self._threads = features, blas_threads()
        ends = np.linspace(0, len(features), self._threads + 1, dtype=int).tolist()
        self._shares = [slice(*pair) for pair in pairwise(ends)]

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, p)."""
        return self._features.shape

    def __enter__(self) -> "Rows":
        self._limit, self._pool = one_thread(), ThreadPoolExecutor(self._threads)
        self._limit.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._pool.shutdown()
        self._limit.__exit__(*error)

    def times(self, z: Float[np.ndarray, " p"]) -> Float[np.ndarray, " N"]:
        """M z."""
        return np.concatenate(self._each(lambda rows: self._features[rows] @ z))

    def weighted_sum(self, d: Float[np.ndarray, "*K N"]) -> Float[np.ndarray, "*K p"]:
        """d M: the sum of the rows, each times its number."""
        return sum(self._each(lambda rows: _sum(d[..., rows], self._features[rows])))

    def weighted_products(
        self, d: Float[np.ndarray, " N"], every: int = 1
    ) -> Float[np.ndarray, "p p"]:
        """M' diag(d) M; or what the first of each so many rows make it."""

        def share(rows: slice) -> np.ndarray:
            taken = slice(rows.start + -rows.start % every, rows.stop, every)
            return _products(self._features[taken], d[taken])

        found = every * sum(self._each(share))
        return (found + found.T) / 2

    def _each(self, share: Callable[[slice], np.ndarray]) -> Any:
        return list(self._pool.map(share, self._shares))


def _sum(d: Float[np.ndarray, "*K n"], m: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "*K p"]:
    by_rows = m.flags.c_contiguous and m.shape[1] >= _WIDE
    if d.ndim == 1 and m.dtype == np.float64 and by_rows:
        return np.einsum("n,np->p", d, m)  # as the rows lie in memory: twice as fast as BLAS
    return d @ m


def _products(m: Float[np.ndarray, "n p"], d: Float[np.ndarray, " n"]) -> Float[np.ndarray, "p p"]:
    found = np.zeros((m.shape[1], m.shape[1]), m.dtype)
    step = max(1, _BLOCK // m.shape[1])
    scaled = np.empty((step, m.shape[1]), m.dtype)
    for begin in range(0, len(m), step):
        rows, weights = m[begin : begin + step], d[begin : begin + step, None]
        block = scaled[: len(rows)]
        if np.all(weights >= 0):
            np.multiply(rows, np.sqrt(weights), out=block)
            found += block.T @ block  # of which BLAS computes one triangle
        else:
            np.multiply(rows, weights, out=block)
            found += rows.T @ block
    return found
