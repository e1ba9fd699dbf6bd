"""Random keys: split as ``jax.random.split`` does, by one small program."""

from functools import partial

import jax
from jaxtyping import Array, Key

from laplacebook.base.quick import jit_quickly


@partial(jit_quickly, static_argnames="number")
def split(key: Key[Array, ""], number: int) -> Key[Array, " S"]:
    """So many keys, as an array."""
    return jax.random.split(key, number)


@partial(jit_quickly, static_argnames="number")
def split_into(key: Key[Array, ""], number: int = 2) -> tuple[Key[Array, ""], ...]:
    """So many keys, each an array of its own."""
    return tuple(jax.random.split(key, number))
