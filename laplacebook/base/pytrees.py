"""Pytrees: their classes, and leaves of any type, known or traced, NaN where there is no result."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import GetAttrKey, PyTreeDef
from jaxtyping import Array, Bool, Float

from laplacebook.base.namespace import Numbers, namespace

Leaf = Any  # an array, or what a JAX transformation puts in its place
STATIC = {"static": True}  # metadata of a field of a registered dataclass that is no leaf
# Bytes: fewer JAX copies at once, more behind the back of who changes them meanwhile.
LARGE_COPY = 2**16
_ALIGNED = 64  # bytes: XLA reads memory that begins at a multiple of them, and copies other memory
_Class = TypeVar("_Class", bound=type)


def register_dataclass(kind: _Class) -> _Class:
    """A dataclass as a class of pytrees, whose fields are children but for those marked ``STATIC``.

    As ``jax.tree_util.register_dataclass``, by which in JAX 0.10 the structures of two such classes with the same
    fields are equal. Then what was compiled for the one is, one time in some hundred, called for the other.
    """
    of_class = [one for one in fields(kind) if one.init]
    static = tuple(one.name for one in of_class if one.metadata.get("static"))
    names = tuple(one.name for one in of_class if not one.metadata.get("static"))
    keys = tuple(map(GetAttrKey, names))

    def parts(tree: Any) -> tuple[tuple, tuple]:
        return tuple(getattr(tree, n) for n in names), tuple(getattr(tree, n) for n in static)

    def with_keys(tree: Any) -> tuple[tuple, tuple]:
        children, rest = parts(tree)
        return tuple(zip(keys, children, strict=True)), rest

    def whole(rest: tuple, children: Iterable[Any]) -> Any:
        return kind(
            **dict(zip(names, children, strict=True)), **dict(zip(static, rest, strict=True))
        )

    jax.tree_util.register_pytree_with_keys(kind, with_keys, whole, parts)
    return kind


def classes_in(structure: PyTreeDef) -> tuple[type, ...]:
    """The class of each node, which JAX 0.10 leaves out where it compares two structures."""
    node = structure.node_data()
    within = (one for child in structure.children() for one in classes_in(child))
    return () if node is None else (node[0], *within)


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


def own_copy(array: Any, dtype: Any = None) -> Array:
    """The numbers as an array of JAX that stays as it is when the given one is changed.

    JAX takes eight times as long to copy a large array as NumPy does into memory that XLA can read; and it
    copies in a thread of its own, which may read what was written after the call.

    Args:
        array: an array or a number, of NumPy.
        dtype: of the copy; by default that of the array, as far as JAX has it.
    """
    wanted = np.dtype(jax.dtypes.canonicalize_dtype(dtype or jnp.result_type(array)))
    with np.errstate(all="ignore"):
        if not isinstance(array, np.ndarray) or array.nbytes < LARGE_COPY:
            is_number = wanted.kind in "biufc"  # what is none is refused by jnp.asarray
            place = jax.device_put if is_number else jnp.asarray  # that compiles for each shape
            return place(np.array(array, wanted))
        memory = np.empty(array.size * wanted.itemsize + _ALIGNED, np.uint8)
        begin = -memory.ctypes.data % _ALIGNED
        copy = memory[begin : begin + array.size * wanted.itemsize]
        copy = copy.view(wanted).reshape(array.shape)
        np.copyto(copy, array, casting="unsafe")
    return jax.device_put(copy)
