"""The Laplace approximation of a plain function: the integral of exp(log_density) over R^D."""

from collections.abc import Callable
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import SequenceKey, keystr, tree_flatten_with_path
from jax.typing import ArrayLike
from jaxtyping import Array, PyTree

from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.pytrees import is_traced
from laplacebook.fit.laplace import laplace
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.model.arguments import Call, of_known_type
from laplacebook.model.fingerprint import name_of
from laplacebook.model.plain_function import FACTOR, PlainModel


def laplace_of_density(
    log_density: Callable,
    start: PyTree[ArrayLike],
    *args: Any,
    throw: bool = True,
    **kwargs: Any,
) -> LaplaceApproximation:
    """The Laplace approximation of exp(log_density), a positive function on R^D.

    The function need not be normalised: ``log_evidence`` approximates the logarithm of its integral
    (Bishop, Pattern Recognition and Machine Learning, equation 4.135). Compiles and transforms as
    :func:`~laplacebook.laplace` does.

    In the book: :prf:ref:`laplace-theorem` of :doc:`/book/laplace`.

    Args:
        log_density: called as ``log_density(point, *args, **kwargs)``; returns a scalar.
        start: where the search for the mode begins, an array or a pytree of arrays: it tells what
            a point looks like.
        args: further positional arguments of the function; arrays among them are data.
        throw: raise if there is no mode, as in :func:`~laplacebook.laplace`.
        kwargs: further keyword arguments of the function.

    Returns:
        A :class:`~laplacebook.LaplaceApproximation`. Its sites are the leaves of ``start``, each
        named by its path (``w``, ``layer.bias``), or by the function's first parameter where
        ``start`` is one array; ``mode`` is a dict of these names. ``log_likelihood`` is the
        function's value at the mode, and the log prior is 0.

    Raises:
        UnsupportedModel: ``start`` is empty, or the function returns no scalar.
        ValueError: ``start`` is not finite or not real, or two leaves have one name.
        NonFinite: the function is not finite at the start.
        NotConverged: the search found no mode.
        NotPositiveDefinite: the function is flat, or curves upwards, at the point found.

    >>> approx = laplace_of_density(lambda z, n: n * jnp.log(z) - z, 8.0, jnp.array(10.0))
    >>> print(f"{approx.mode['z']:.4f}")
    10.0000
    >>> print(f"{jnp.exp(approx.log_evidence):.0f}")  # Stirling's formula for 10! = 3,628,800
    3598696
    """
    paths, structure = tree_flatten_with_path(start)
    names = [_name(path, log_density) for path, _ in paths]
    values = {name: _checked(name, leaf) for name, (_, leaf) in zip(names, paths, strict=True)}
    if len({*names, FACTOR}) <= len(names):
        raise ValueError(f"The leaves of start need names of their own, and are called {names}.")
    if not sum(value.size for value in values.values()):
        raise UnsupportedModel(
            "start has no number in it: there is nothing to approximate.",
            remedy="pass an array, or a pytree of arrays, of the shape that log_density takes.",
        )
    shapes = {name: value.shape for name, value in values.items()}
    model = PlainModel(name_of(log_density), jax.tree.unflatten(structure, names), shapes)
    return laplace(model, Call.of(log_density, args, kwargs), start=values, throw=throw)


def _name(path: tuple, log_density: Callable) -> str:
    name = keystr(path, simple=True, separator=".")
    if path and not isinstance(path[0], SequenceKey):
        return name
    return ".".join(filter(None, [_parameter(log_density), name]))


def _parameter(function: Callable) -> str:
    """The name of the first parameter, where Python knows it."""
    try:
        return next(iter(signature(function).parameters), "x")
    except (TypeError, ValueError):
        return "x"


def _checked(name: str, leaf: Any) -> Array:
    value = jnp.asarray(of_known_type(leaf))
    real = jnp.issubdtype(value.dtype, jnp.floating) or jnp.issubdtype(value.dtype, jnp.integer)
    if not real:
        raise ValueError(f"start: {name} is of type {value.dtype}; it has to be real.")
    traced = is_traced(value)
    if not traced and not jnp.all(jnp.isfinite(value)):
        raise ValueError(f"start: {name} is not finite: {value}")
    return value.astype(float)
