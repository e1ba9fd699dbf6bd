"""Leaves of pytrees: of any type, known or traced, NaN where there is no result."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from laplacebook.base.namespace import Numbers, namespace

Leaf = Any  # an array, or what a JAX transformation puts in its place
STATIC = {"static": True}  # metadata of a field of a registered dataclass that is no leaf


def is_traced(tree: Any) -> bool:
    """Whether a number of a pytree is not known yet, under a JAX transformation."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))


def loud(sound: Bool[Numbers, "*B"], dtype: Any) -> Float[Numbers, "*B"]:
    """One where it is sound, else NaN: a factor, so that derivatives are NaN too."""
    xp = namespace(sound)
    return xp.where(sound, 1, xp.nan).astype(dtype)


def on_host(tree: Any) -> Any:
    """The same with NumPy's arrays, in which nothing is compiled, where the numbers are here."""

    def leaf(x: Any) -> Any:
        return np.asarray(x) if is_here(x) else x

    return jax.tree.map(leaf, tree)


def from_host(x: Any) -> Any:
    """An array, or a number, of NumPy as one of JAX; any other as it is."""
    return x if namespace(x) is jnp else jax.device_put(x)


def is_here(x: Any) -> bool:
    """Whether the numbers of an array are known, and in the memory that NumPy computes in."""
    if not isinstance(x, jax.Array) or is_traced(x) or not x.is_fully_addressable:
        return False
    return all(device.platform == "cpu" for device in x.devices())
