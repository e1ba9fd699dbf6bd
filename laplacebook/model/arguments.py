"""The arguments of a model: which are data, what they are called, and what is wrong with them."""

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr
from jaxtyping import Array
from numpyro.primitives import Messenger

from laplacebook.base.errors import UnsupportedModel
from laplacebook.model.fingerprint import Fixed, is_data
from laplacebook.model.sharding import here, placed
from laplacebook.model.single_precision import loses

_NUMBERS = bool | int | float | complex


def split(
    model: Callable, args: tuple, kwargs: Mapping
) -> tuple[list[Array | None], tuple[Any, tuple[Fixed | None, ...]]]:
    """The arguments of a model as data and program.

    Args:
        model: the model, which gives the arguments their names.
        args: its positional arguments.
        kwargs: its keyword arguments.

    Returns:
        The leaves that are data, None elsewhere; and what :func:`join` needs to put them back: the
        structure, and the leaves that are not data, None elsewhere.

    Raises:
        UnsupportedModel: JAX works in single precision, which cannot hold the data; or knows
            nothing of a mask that they have.
    """
    leaves, structure = jax.tree.flatten((_in_order(args), _in_order(dict(kwargs))))
    if any(loses(leaf) for leaf in leaves):
        raise _too_narrow(_named(model, args, kwargs))
    hidden = [name for name, leaf in _named(model, args, kwargs) if np.ma.is_masked(leaf)]
    if hidden:
        raise UnsupportedModel(
            f"Argument '{hidden[0]}' is a masked array, of which JAX would read what the mask hides.",
            remedy="pass its data and its mask, and hide those data with numpyro.handlers.mask.",
        )
    data = [_own(leaf) if is_data(leaf) else None for leaf in leaves]
    fixed = tuple(None if is_data(leaf) else Fixed(leaf) for leaf in leaves)
    return data, (structure, fixed)


def join(
    data: list[Array | None], program: tuple[Any, tuple[Fixed | None, ...]]
) -> tuple[tuple, dict]:
    """The inverse of :func:`split`."""
    structure, fixed = program
    leaves = [d if f is None else f.value for d, f in zip(data, fixed, strict=True)]
    return jax.tree.unflatten(structure, leaves)


def not_finite_arguments(model: Callable, args: tuple, kwargs: Mapping) -> list[str]:
    """Which arguments have a NaN or an infinity, how many and where.

    Returns:
        One phrase an argument, such as ``"argument 'x' has 3 NaN, first at [4, 0]"``.
    """
    found = []
    for name, leaf in _named(model, args, kwargs):
        if (is_data(leaf) or isinstance(leaf, float)) and _is_inexact(leaf):
            leaf = here(leaf) if isinstance(leaf, jax.Array) else leaf
            bad = {"NaN": np.isnan(leaf), "infinite": np.isinf(leaf)}
            counted = [f"{np.sum(where)} {kind}" for kind, where in bad.items() if np.any(where)]
            if counted:
                first = np.argwhere(bad["NaN"] | bad["infinite"])[0].tolist()
                at = f", first at {first}" if first else ""
                found.append(f"argument '{name}' has {' and '.join(counted)}{at}")
    return found


def _not_arrays(model: Callable, args: tuple, kwargs: Mapping) -> list[str]:
    """Which arguments hold numbers, or should, and yet are no arrays of numbers.

    Returns:
        One phrase an argument, such as ``"argument 'y' is a list"``.
    """
    found: dict[str, None] = {}
    for name, value in _named(model, args, kwargs, lambda x: isinstance(x, list | tuple)):
        if isinstance(value, list | tuple):
            leaves = jax.tree.leaves(value)
            if leaves and all(isinstance(leaf, _NUMBERS) for leaf in leaves):
                found[f"argument '{name}' is a {type(value).__name__} of numbers"] = None
        elif isinstance(value, np.ndarray) and not is_data(value):
            found[f"argument '{name}' is an array of {value.dtype.name} values"] = None
        elif hasattr(value, "__array__") and not is_data(value) and not np.isscalar(value):
            kind = type(value)
            found[f"argument '{name}' is a {kind.__module__.split('.')[0]} {kind.__name__}"] = None
        elif isinstance(value, str):
            found[f"argument '{name}' is a string"] = None
    return list(found)


@contextmanager
def arrays_blamed(model: Callable, args: tuple, kwargs: Mapping) -> Iterator[None]:
    """A TypeError of the model, as an error that names the arguments that are no arrays."""
    try:
        yield
    except TypeError as error:
        causes = _not_arrays(model, args, kwargs)
        if not causes:
            raise
        raise UnsupportedModel(
            f"The model cannot compute with its arguments: {error}",
            causes=causes,
            remedy="pass numbers as NumPy or JAX arrays, such as np.asarray(y, float).",
        ) from error


def _too_narrow(named: list[tuple[str, Any]]) -> UnsupportedModel:
    name, leaf = next((name, leaf) for name, leaf in named if loses(leaf))
    return UnsupportedModel(
        f"Argument '{name}' is {leaf.dtype}, which JAX would narrow: {loses(leaf)}.",
        causes=["timestamps, identifiers or coordinates with a large offset"],
        remedy="call numpyro.enable_x64() before the first array is made, or centre and scale the data.",
    )


def _own(leaf: Any) -> Array:
    """The array; of a NumPy one a copy, for the result goes on describing the data of the fit."""
    return placed(leaf) if isinstance(leaf, jax.Array) else jnp.array(leaf)


def _is_inexact(leaf: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)


def _named(
    model: Callable, args: tuple, kwargs: Mapping, is_leaf: Callable | None = None
) -> list[tuple[str, Any]]:
    """The leaves of the arguments with their names: ``"columns['age']"``."""
    names = positional_names(model, len(args))
    top = [*zip(names, args, strict=True), *kwargs.items()]
    return [
        (name + keystr(path), leaf)
        for name, value in top
        for path, leaf in jax.tree_util.tree_leaves_with_path(_in_order(value), is_leaf)
    ]


def positional_names(model: Callable, count: int) -> list[str]:
    """What the model calls its positional arguments, such as ``["x", "args[0]"]``.

    Args:
        model: a function, or one within handlers of NumPyro.
        count: how many there are.
    """
    try:
        parameters = list(inspect.signature(within_handlers(model)).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    single = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    extra = (f"{rest}[{i}]" for i in range(count))
    return [*single[:count], *islice(extra, max(0, count - len(single)))]


def within_handlers(model: Callable) -> Callable:
    """The function that handlers of NumPyro are around, if any are."""
    while isinstance(model, Messenger) and model.fn is not None:
        model = model.fn
    return model


def _in_order(tree: Any) -> Any:
    """The same arguments with dicts that keep their order, in which JAX would sort the keys."""
    if type(tree) is dict:
        return OrderedDict((key, _in_order(value)) for key, value in tree.items())
    if type(tree) in (list, tuple):
        return type(tree)(_in_order(value) for value in tree)
    return tree
