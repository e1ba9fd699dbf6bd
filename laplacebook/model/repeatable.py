"""Does a function compute with the same numbers each time that it is traced?

A number that Python draws, or reads off a clock, is a constant of the trace that it was drawn in.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.pytrees import is_traced
from laplacebook.base.quick import at_once

_REMEDY = "switch the randomness off, or make each random number a latent site (numpyro.sample)."
_NUMBERS = (bool, int, float, complex, np.generic, np.ndarray, jax.Array)


def require_repeats(function: Callable[..., Any], *args: Any) -> ClosedJaxpr:
    """Refuse a function that computes with other numbers, or draws some, each time that it is traced.

    What is the same in two traces a moment apart is not seen: a clock in whole seconds, or a number
    in the program of a function that the user has compiled.

    Args:
        function: returns arrays.
        args: its arguments, arrays.

    Returns:
        The program of the function, by its first trace.

    Raises:
        UnsupportedModel: it does.
    """
    before = _random_state()
    program = _trace(function, args)
    if _random_state() != before:
        raise draws_numbers("from NumPy's global generator (np.random)")
    if not _repeats(function, args, program):
        raise UnsupportedModel(
            "The model computes with other numbers each time that it is run, so it has no one log joint.",
            causes=[
                "random numbers or a clock (random, np.random.default_rng, time.time)",
                "a counter, or another value that the model keeps between calls",
                "an iterative solver with a random start (scipy's eigsh: pass v0)",
            ],
            remedy=_REMEDY,
        )
    return program


def draws_numbers(whence: str) -> UnsupportedModel:
    """The error for a model with random numbers of its own."""
    return UnsupportedModel(
        f"The model draws random numbers of its own {whence}, so it has no one log joint.",
        causes=[
            "dropout or another stochastic layer",
            "data simulated within the model",
            "a latent site that numpyro.handlers.block hides",
        ],
        remedy=_REMEDY,
    )


def _repeats(function: Callable[..., Any], args: tuple, program: ClosedJaxpr) -> bool:
    """Whether another trace has the same numbers in it.

    If it has other operations, the first trace may have filled a cache that the second finds, and a
    third is compared with the second.
    """
    one, other = list(_parts(program)), list(_parts(_trace(function, args)))
    if _operations(one) != _operations(other):
        one, other = other, list(_parts(_trace(function, args)))
    return _operations(one) == _operations(other) and all(map(_same, one, other))


def _trace(function: Callable[..., Any], args: tuple) -> ClosedJaxpr:
    return jax.make_jaxpr(lambda *args: function(*args))(
        *args
    )  # JAX would not trace the same function again


def _random_state() -> tuple:
    """Of NumPy's global generator, which changes when a model draws from it."""
    _, words, *rest = np.random.get_state()  # noqa: NPY002
    return np.asarray(words).tobytes(), *rest


def numbers_in(tree: Any) -> list[Any]:
    """The numbers among the leaves of a pytree, as a function that is traced may return them."""
    return [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, _NUMBERS)]


def _parts(program: ClosedJaxpr | Jaxpr) -> Iterator[Any]:
    """The names of all operations of a program, and the numbers in it."""
    yield from getattr(program, "consts", ())
    inner = getattr(program, "jaxpr", program)
    for equation in inner.eqns:
        yield equation.primitive.name
        yield from (x.val for x in equation.invars if isinstance(x, Literal))
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_program):
            if _is_program(value):
                yield from _parts(value)
            elif isinstance(value, _NUMBERS):
                yield value
    yield from (x.val for x in inner.outvars if isinstance(x, Literal))


def _operations(parts: list[Any]) -> list[str | None]:
    """The names in their places, None for a number."""
    return [part if isinstance(part, str) else None for part in parts]


def _is_program(value: Any) -> bool:
    return isinstance(value, ClosedJaxpr | Jaxpr)


def _same(one: Any, other: Any) -> bool:
    if one is other or not (_is_known(one) and _is_known(other)):
        return True
    return bool(np.array_equal(_numbers(one), _numbers(other), equal_nan=True))


def _numbers(part: Any) -> Any:
    """Those of a number or an array; the words of random keys."""
    if not _is_key(part):
        return part
    with at_once():
        return np.asarray(jax.random.key_data(part))


def _is_known(part: Any) -> bool:
    """Whether it is numbers that this process has."""
    if isinstance(part, str) or is_traced(part) or not getattr(part, "is_fully_addressable", True):
        return False
    return _is_key(part) or not jnp.issubdtype(_dtype(part), jax.dtypes.extended)


def _is_key(part: Any) -> bool:
    return jnp.issubdtype(_dtype(part), jax.dtypes.prng_key)


def _dtype(part: Any) -> Any:
    return getattr(part, "dtype", float)
