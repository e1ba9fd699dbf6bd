"""One function at very many points, in bounded memory."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from laplacebook.base.jaxprs import array_sizes, linear_algebra
from laplacebook.base.namespace import Numbers
from laplacebook.base.one_thread import one_thread
from laplacebook.base.progress import progress
from laplacebook.base.quick import is_eager, jit, jit_quickly

NUMBERS = 2**18  # in the largest array of a batch: about what a processor keeps at hand
_SMALLEST = 64  # batch, where it fits: so that few points do not need a program of their own
# Of the factorisations of a batch. Larger ones JAX (0.10) shares between the threads that also run the program, and
# two of them at once can wait for each other for ever on a machine with two cores.
_ALGEBRA = 2**15
_ONE_THREAD = 10**9  # of a factorisation: beyond it several threads of LAPACK save time
_CALLS = 32  # of the compiled program, about: between them the progress bar moves


def at_many(
    function: Callable[..., Array],
    operands: tuple,
    points: Numbers,
    progress_bar: bool | None = None,
) -> Numbers:
    """``function(*operands, point)`` for each of S points.

    They are evaluated a batch at a time, so large that no array within the function exceeds about
    2^18 numbers (unless it does so for a single point): memory does not grow with S but for the
    values themselves. Where the function factorises matrices, batches are smaller. Compiled once for
    a function, the shapes of its operands, and S up to a factor of two.

    Args:
        function: of a module, since what is compiled is found again by it; returns an array.
        operands: pytrees of arrays, the same for all points.
        points: shape (S, ...).
        progress_bar: whether to show one if it takes longer than two seconds; by default if the
            standard error stream is a terminal. None within a compiled program.

    Returns:
        The values, shape (S, *value shape), in NumPy unless within a compiled program.
    """
    number, at = len(points), _reader(points)
    program = jax.make_jaxpr(partial(_one, function))(operands, at(0))
    largest = max(array_sizes(program.jaxpr), default=1)
    size = min(_power_of_two(NUMBERS // largest // 2 + 1), max(_power_of_two(number), _SMALLEST))
    algebra = max(linear_algebra(program.jaxpr), default=1)
    size = min(size, max(_ALGEBRA // algebra, 1))
    batches = -(-number // size)
    together = _power_of_two(-(-batches // _CALLS))
    calls = -(-batches // together)
    # What is missing in the last batch is made up by points taken again.
    index = np.arange(calls * together * size) % number
    if not is_eager():
        return _evaluate(function, operands, points[index.reshape(-1, size)])[:number]
    evaluate, values = _evaluate.for_work(number * largest), []
    threads = one_thread() if 1 < algebra <= _ONE_THREAD else nullcontext()
    with threads, progress(number, progress_bar) as bar:
        for part in index.reshape(calls, together, size):
            values.append(np.asarray(evaluate(function, operands, at(part))))
            bar.update(min(part.size, number - bar.n))
    return np.concatenate(values)[:number]


def _reader(points: Numbers) -> Callable[[Any], Numbers]:
    """From an index to the points; read in NumPy if they are known, keys as their words."""
    if not is_eager():
        return lambda index: points[index]
    if not jnp.issubdtype(points.dtype, jax.dtypes.prng_key):
        return np.asarray(points).__getitem__
    words, implementation = np.asarray(jax.random.key_data(points)), jax.random.key_impl(points)
    return lambda index: jax.random.wrap_key_data(words[index], impl=implementation)


def _values(function: Callable, operands: tuple, points: Array) -> Array:
    """The function at points of shape (batches, batch size, ...), as one list of values."""
    values = jax.lax.map(jax.vmap(partial(_one, function, operands)), points)
    return values.reshape(-1, *values.shape[2:])


_evaluate: Any = jit_quickly(_values, static_argnums=0)


@partial(jit, static_argnums=0)
def _one(function: Callable, operands: tuple, point: Array) -> Array:
    """Compiled apart, so that what is traced to find the batch size is not traced again."""
    return function(*operands, point)


def _power_of_two(number: int) -> int:
    """The smallest power of two that is not below a number of one or more."""
    return 1 << max(number - 1, 0).bit_length()
