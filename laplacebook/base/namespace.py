"""One formula for NumPy's arrays, which need no compilation, and for JAX's, which may be traced."""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax import lax
from jax.scipy.linalg import solve_triangular

from laplacebook.base.one_thread import one_thread_for

Numbers = Any  # an array of NumPy or of JAX
_OF_NUMPY = (np.ndarray, np.generic)
_KNOWN = (*_OF_NUMPY, bool)
_T = TypeVar("_T")
_SOLVERS = {(np.dtype(t), np.dtype(t)): f"{c}trtrs" for t, c in ((np.float32, "s"), (float, "d"))}


def namespace(*arrays: Any) -> ModuleType:
    """The module that computes with such arrays: ``numpy`` if all are NumPy's, else ``jax.numpy``."""
    for x in arrays:
        if not isinstance(x, _OF_NUMPY):
            return jnp
    return np


def once(method: Callable[[Any], _T]) -> Callable[[Any], _T]:
    """A method of what does not change: what it returns is kept where that is an array of NumPy's, and not traced."""
    name = f"_once_{method.__name__}"

    @functools.wraps(method)
    def call(self: Any) -> _T:
        known = self.__dict__.get(name)
        if known is None:
            known = method(self)
            if isinstance(known, _OF_NUMPY):
                self.__dict__[name] = known
        return known

    return call


def logsumexp(x: Any) -> Any:
    """log sum exp(x) over the last axis; minus infinity if all of them are, NaN if one is NaN."""
    if namespace(x) is jnp:
        return jax.scipy.special.logsumexp(x, axis=-1)
    top = np.max(x, axis=-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore"):
        return np.log(np.sum(np.exp(x - top), axis=-1)) + top[..., 0]


def select(condition: Any, new: _T, old: _T) -> _T:
    """One of two pytrees: by a condition of NumPy's either, by one of JAX's two with the same leaves."""
    if isinstance(condition, _KNOWN):
        return new if condition else old
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def lazily(condition: Any, new: Callable[[], _T], old: Callable[[], _T]) -> _T:
    """One of what two functions return: by a condition of NumPy's only that one is run, by one of JAX's both are."""
    if isinstance(condition, _KNOWN):
        return new() if condition else old()
    return select(condition, new(), old())


def larger(x: Any, y: Any) -> Any:
    """The larger of two numbers, NaN if one is: in no time, where they are known, and an array is not made of them."""
    if namespace(x) is np:
        return y if y > x or y != y else x
    return jnp.maximum(x, y)


def between(low: Any, x: Any, high: Any) -> Any:
    """The number x, or the bound that it is beyond; NaN if it is."""
    if namespace(x) is np:
        return low if x < low else high if x > high else x
    return jnp.clip(x, low, high)


def branch(condition: Any, yes: Callable[[], _T], no: Callable[[], _T]) -> _T:
    """What one of two functions returns; the other is not run."""
    if namespace(condition) is np:
        return yes() if condition else no()
    return lax.cond(condition, yes, no)


def repeat(times: int, step: Callable[[Any, _T], _T], first: _T) -> _T:
    """``step(i, state)`` for i from zero, over and over."""
    if not all(namespace(x) is np for x in jax.tree.leaves(first)):
        return lax.fori_loop(0, times, step, first)
    state = first
    for i in range(times):
        state = step(i, state)
    return state


def repeat_while(goes_on: Callable[[_T], Any], step: Callable[[_T], _T], first: _T) -> _T:
    """``step(state)`` over and over, as long as ``goes_on(state)``."""
    if not all(namespace(x) is np for x in jax.tree.leaves(first)):
        return lax.while_loop(goes_on, step, first)
    state = first
    while goes_on(state):
        state = step(state)
    return state


def put(rows: Any, i: Any, row: Any) -> Any:
    """Rows with another one at i, if they reach so far: those of NumPy are changed in place."""
    if namespace(rows) is jnp:
        return rows.at[i].set(row, mode="drop")
    if i < len(rows):
        rows[i] = row
    return rows


def eigh(matrix: Any) -> tuple[Any, Any]:
    """The eigenvalues of a symmetric matrix in rising order, and its eigenvectors; NaN if it is not finite."""
    if namespace(matrix) is jnp:
        return jnp.linalg.eigh(matrix)
    if not np.all(np.isfinite(matrix)):
        return np.full_like(matrix[0], np.nan), np.full_like(matrix, np.nan)
    return np.linalg.eigh(matrix)


def left_svd(matrix: Any) -> tuple[Any, Any]:
    """The left singular vectors of a matrix, as few as it has, and its singular values; NaN if it is not finite."""
    if namespace(matrix) is jnp or np.all(np.isfinite(matrix)):
        return namespace(matrix).linalg.svd(matrix, full_matrices=False)[:2]
    few = min(matrix.shape)
    return np.full_like(matrix[:, :few], np.nan), np.full_like(matrix[0, :few], np.nan)


def cholesky(matrix: Any) -> Any:
    """The lower Cholesky factor of a symmetric matrix, NaN where it is not positive definite."""
    if namespace(matrix) is jnp:
        return jnp.linalg.cholesky(matrix, symmetrize_input=False)
    try:
        with one_thread_for(matrix.shape[-1]):
            return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return np.tril(np.full_like(matrix, np.nan))


def solve_lower(lower: Any, columns: Any, trans: str) -> Any:
    """L^-1 v of a lower triangular matrix for each column v, or with ``trans="T"`` L'^-1 v."""
    if namespace(lower, columns) is jnp:
        return solve_triangular(lower, columns, lower=True, trans=trans)
    return _solve_lower(lower, columns, trans)


def _solve_lower(lower: np.ndarray, columns: np.ndarray, trans: str) -> np.ndarray:
    """As SciPy does it, whose checks take longer than a solution of few numbers."""
    name = _SOLVERS.get((lower.dtype, columns.dtype))
    if name is None or not lower.size or not columns.size:
        return scipy.linalg.solve_triangular(lower, columns, trans, lower=True, check_finite=False)
    # The transpose of a matrix by rows is one by columns, as LAPACK has it.
    turned = not lower.flags.f_contiguous
    with one_thread_for(len(lower)):
        solution, info = getattr(scipy.linalg.lapack, name)(
            lower.T if turned else lower, columns, lower=not turned, trans=turned != (trans == "T")
        )
    if info:
        raise np.linalg.LinAlgError(f"a zero on the diagonal, in row {info}")
    return solution
