"""Linear algebra of small matrices by one thread."""

import functools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar, cast

_F = TypeVar("_F", bound=Callable)
_ALONE = 64  # rows of a matrix: up to there BLAS takes one thread by itself
_MANY = 1000  # rows: from there on several threads save time


class _Inside:
    """Who is within: a limit on the process, whichever Python thread leaves first."""

    def __init__(self) -> None:
        self._lock, self._entered = threading.Lock(), 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._entered == 0:
                self._limit = _libraries().limit(limits=1, user_api="blas")
                self._limit.__enter__()
            self._entered += 1

    def __exit__(self, *error: Any) -> None:
        with self._lock:
            self._entered -= 1
            if self._entered == 0:
                self._limit.__exit__(*error)


_INSIDE = _Inside()


@functools.cache
def _libraries() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_thread() -> AbstractContextManager:
    """Where NumPy, SciPy and XLA give LAPACK and BLAS one thread.

    Of a matrix with a few hundred rows the threads of OpenBLAS save little. They wait for each other by spinning, on
    the cores that XLA and other processes need: where these are busy a Cholesky factor takes a thousand times as long.
    The number is that of the process: it is as before when the last of its Python threads has left.
    """
    return _INSIDE


def one_thread_for(rows: int) -> AbstractContextManager:
    """:func:`one_thread` for a matrix with so many rows, if several would take longer."""
    return one_thread() if _ALONE < rows <= _MANY else nullcontext()


def blas_threads() -> int:
    """How many threads LAPACK and BLAS have here."""
    libraries = _libraries().select(user_api="blas").info()
    return max((library["num_threads"] for library in libraries), default=1)


def by_one_thread(function: _F) -> _F:
    """The function, within :func:`one_thread`."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with one_thread():
            return function(*args, **kwargs)

    return cast(_F, call)
