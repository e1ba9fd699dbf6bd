"""Random keys: split as ``jax.random.split`` does, by one small program."""

from functools import partial

import jax
from jaxtyping import Array, Key

from laplacebook.base.checks import require_key
from laplacebook.base.quick import jit_quickly


def split(key: Key[Array, ""], number: int) -> Key[Array, " S"]:
    """So many keys, as an array; what is no key is a TypeError."""
    require_key(key)
    return _split(key, number)


def split_into(key: Key[Array, ""], number: int = 2) -> tuple[Key[Array, ""], ...]:
    """So many keys, each an array of its own; what is no key is a TypeError."""
    require_key(key)
    return _split_into(key, number)


@partial(jit_quickly, static_argnames="number")
def _split(key: Array, number: int) -> Array:
    return jax.random.split(key, number)


@partial(jit_quickly, static_argnames="number")
def _split_into(key: Array, number: int) -> tuple[Array, ...]:
    return tuple(jax.random.split(key, number))
