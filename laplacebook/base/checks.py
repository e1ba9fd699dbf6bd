"""What an argument has to be."""

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.errors import LaplaceError
from laplacebook.base.namespace import Numbers
from laplacebook.base.pytrees import is_traced

_RAW = (2,), (4,)  # shapes of the keys of ``jax.random.PRNGKey``


def require_number(name: str, number: Any) -> None:
    """Refuse what cannot count draws, points or rows.

    Raises:
        ValueError: ``number`` is not a positive integer.
    """
    if isinstance(number, bool) or not isinstance(number, Integral) or number < 1:
        raise ValueError(f"{name} must be a whole number, 1 or more, not {number!r}")


def require_working_precision(what: str, array: Any) -> None:
    """Refuse double precision where JAX has been told since to leave it.

    Args:
        what: names what the array is of.
        array: which has a type.

    Raises:
        LaplaceError: JAX does not work in that type now.
    """
    if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
        raise LaplaceError(
            f"{what} has numbers in {array.dtype}, which JAX is set not to use.",
            remedy="call numpyro.enable_x64() at the top of the program, or use it within the same "
            "jax.enable_x64(True) as where it was made.",
        )


def require_numbers(what: str, tree: Any, remedy: str = "") -> None:
    """Refuse a JAX transformation of what looks at numbers.

    Args:
        what: names it.
        tree: a pytree of what it looks at.
        remedy: what to do instead; by default to call it outside.

    Raises:
        ValueError: a number is not known yet.
    """
    if is_traced(tree):
        outside = (
            "call it outside of compiled programs, on one approximation or data set at a time."
        )
        raise ValueError(
            f"{what} looks at numbers, so it cannot be compiled (jit, vmap, grad): {remedy or outside}"
        )


def names_of_sites(name: str, given: Any) -> tuple[str, ...]:
    """The names of latent sites, given as one or as several.

    Args:
        name: of the argument.
        given: its value.

    Raises:
        ValueError: there are none.
        TypeError: they are no names.
    """
    names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    said = f"{name} is the name, or names, of latent sites, not {given!r}"
    if not names:
        raise ValueError(said)
    if not all(isinstance(one, str) for one in names):
        raise TypeError(said)
    return names


def require_key(key: Any) -> None:
    """Refuse what is no random key.

    Raises:
        TypeError: it is something else, or several keys.
    """
    if isinstance(key, jax.Array | np.ndarray):
        typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
        if (typed and not key.shape) or (key.dtype == np.uint32 and key.shape in _RAW):
            return
        found = f"an array of shape {key.shape} and type {key.dtype}"
    else:
        found = repr(key)
    raise TypeError(
        f"key is a JAX random key, such as jax.random.key(0), not {found}. The same key gives the same draws "
        "again; jax.random.split(key) makes others of it."
    )


def require_one(what: str, shape: tuple[int, ...], dimensions: int, mappable: bool = True) -> None:
    """Refuse a batch of what is to be one.

    Args:
        what: names it.
        shape: its shape.
        dimensions: of one.
        mappable: whether the function that takes it works within ``jax.vmap``.

    Raises:
        ValueError: it has another number of dimensions.
    """
    if len(shape) != dimensions:
        alone = "call the function on one at a time, jax.tree.map(lambda x: x[i], batch)"
        remedy = "call the function or method within jax.vmap" if mappable else alone
        raise ValueError(f"{what} is a batch, of shape {shape}: {remedy}.")


def coordinates(
    v: Numbers, shape: tuple[int, ...], columns: bool = False, name: str = "This vector"
) -> Numbers:
    """A vector in the coordinates of one Gaussian; by its shape and type alone anything else is refused.

    Args:
        v: an array.
        shape: ``(*B, D)``, of the precision or the mode.
        columns: whether further axes may follow that of the coordinates.
        name: of the argument.

    Returns:
        The array.

    Raises:
        TypeError: it is no array of numbers.
        ValueError: the array is no such vector, or the Gaussian is a batch of them.
    """
    require_one("This Gaussian", shape, 1)
    _require_array_of_numbers(name, v, shape)
    found = jnp.shape(v)
    if found[:1] != shape or (not columns and len(found) != 1):
        more = ", with any axes after" if columns else "; for several at once use jax.vmap"
        raise ValueError(
            f"{name} has shape {found}, and must have {shape}, one number for each coordinate{more}."
        )
    return v


def _require_array_of_numbers(name: str, v: Any, shape: tuple[int, ...]) -> None:
    is_number = np.isscalar(v) and not isinstance(v, str | bytes)
    if is_number or getattr(getattr(v, "dtype", None), "kind", "O") not in "OSUMm":
        return
    found = f"an array of type {v.dtype}" if hasattr(v, "dtype") else f"a {type(v).__name__}"
    raise TypeError(
        f"{name} must be an array of numbers of shape {shape}, one for each coordinate, such as "
        f"jax.numpy.array([...]), not {found}."
    )


def symmetric_part(matrix: Float[Array, "*B D D"]) -> Float[Array, "*B D D"]:
    """(A + A') / 2, where the two differ by rounding only, or are not known.

    Raises:
        ValueError: the matrix is not square, or known not to be symmetric.
    """
    shape = jnp.shape(matrix)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ValueError(f"A precision is a square matrix, shape (D, D), not of shape {shape}.")
    if not is_traced(matrix):
        _require_symmetric(np.asarray(matrix))
    return (matrix + jnp.swapaxes(matrix, -1, -2)) / 2


def _require_symmetric(seen: np.ndarray) -> None:
    if np.array_equal(seen, seen.swapaxes(-1, -2)):  # at a tenth of the cost
        return
    with np.errstate(invalid="ignore"):  # NaN is what a matrix of a failed fit has
        away = np.abs(seen - seen.swapaxes(-1, -2))
    wrong = away > float(jnp.finfo(jnp.result_type(float, seen)).eps) ** 0.5 * np.abs(seen).max()
    if wrong.any():
        *batch, i, j = (int(place[0]) for place in np.nonzero(wrong))
        raise ValueError(
            f"A precision is a symmetric matrix, and element [{i}, {j}] is "
            f"{seen[(*batch, i, j)]:.6g}, element [{j}, {i}] {seen[(*batch, j, i)]:.6g}. If its "
            "symmetric part is meant, pass (A + A.T) / 2."
        )


def require_sample_shape(sample_shape: Any) -> None:
    """Refuse a number where the leading shape of draws is asked for.

    Raises:
        ValueError: ``sample_shape`` is no tuple of whole numbers, 0 or more.
    """
    whole = isinstance(sample_shape, Sequence) and not isinstance(sample_shape, str)
    if not whole or not all(isinstance(n, Integral) and int(n) >= 0 for n in sample_shape):
        raise ValueError(
            f"sample_shape is a tuple of whole numbers, such as (10,) for ten draws, not {sample_shape!r}"
        )
