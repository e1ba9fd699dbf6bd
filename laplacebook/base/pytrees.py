"""Leaves of pytrees: of any type, known or traced, NaN where there is no result."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Leaf = Any  # an array, or what a JAX transformation puts in its place
STATIC = {"static": True}  # metadata of a field of a registered dataclass that is no leaf


def is_traced(tree: Any) -> bool:
    """Whether a number of a pytree is not known yet, under a JAX transformation."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))


def loud(sound: Bool[Array, "*B"], dtype: Any) -> Float[Array, "*B"]:
    """One where it is sound, else NaN: a factor, so that derivatives are NaN too."""
    return jnp.where(sound, 1, jnp.nan).astype(dtype)
