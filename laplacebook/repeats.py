"""Does a function compute with the same numbers each time that it is traced?

A number that Python draws, or reads off a clock, is a constant of the trace that it was drawn in.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

__all__ = ["numbers_in", "repeats"]

_NUMBERS = (bool, int, float, complex, np.generic, np.ndarray, jax.Array)


def repeats(function: Callable[[], Any], program: ClosedJaxpr) -> bool:
    """Whether another trace of a function has the same numbers in it.

    Programs of other operations are not compared: the first trace may have filled a cache that the
    second finds. Nor is what a transformation of JAX does not know yet.

    Args:
        function: without arguments; returns arrays.
        program: what ``jax.make_jaxpr`` made of it before.
    """
    again = jax.make_jaxpr(lambda: function())()  # JAX would not trace the same function again
    one, other = list(_parts(program)), list(_parts(again))
    if _operations(one) != _operations(other):
        return True
    return all(map(_same, one, other))


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
    return bool(np.array_equal(one, other, equal_nan=True))


def _is_known(part: Any) -> bool:
    """Whether it is numbers that this process has, and no random key."""
    if isinstance(part, str | jax.core.Tracer) or not getattr(part, "is_fully_addressable", True):
        return False
    return not jnp.issubdtype(getattr(part, "dtype", float), jax.dtypes.extended)
