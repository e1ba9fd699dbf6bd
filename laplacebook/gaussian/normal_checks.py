"""What the functions of :mod:`laplacebook.gaussian.normal` refuse, and what they read of a distribution."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int
from numpyro.distributions import MultivariateNormal

from laplacebook.base.errors import NotPositiveDefinite
from laplacebook.base.pytrees import is_traced

Numbers = ArrayLike | Sequence[Any]

Seen = Any  # an array as NumPy sees it, or within a compiled program a tracer

_SOURCES = ("covariance_matrix", "precision_matrix", "scale_tril")


def mean_and_factor(
    name: str, p: MultivariateNormal
) -> tuple[Float[Array, "*#batch D"], Float[Array, "*#batch D D"]]:
    """The mean of a normal distribution, and the Cholesky factor of its covariance.

    Args:
        name: what to call it in an error.
        p: the distribution.

    Returns:
        Both; the factor is NaN where the matrix of ``p`` is not symmetric positive definite and
        nothing can be raised.

    Raises:
        TypeError: ``p`` is no multivariate normal.
        ValueError: its mean is not finite, or its matrix not symmetric.
        NotPositiveDefinite: its matrix is not positive definite.
    """
    if not isinstance(p, MultivariateNormal):
        raise TypeError(
            f"`{name}` must be a numpyro.distributions.MultivariateNormal, not a "
            f"{type(p).__name__}. One variable is MultivariateNormal(jnp.array([mean]), "
            "scale_tril=jnp.array([[sd]])); a batch comes from a batch of means."
        )
    given, D = _given(p), p.event_shape[0]
    matrix = _real(f"the {given} of {name}", vars(p)[given])
    mean = floats(f"the mean of {name}", p.loc)
    if mean.shape[-1] not in (1, D) or matrix.shape[-2] != D:
        raise ValueError(
            f"The mean of `{name}` has shape {mean.shape} and its {given} {matrix.shape}: they must "
            "be (D,) and (D, D), with any axes of a batch before."
        )
    if mean.shape[-1] != D:
        mean = jnp.broadcast_to(mean, (*mean.shape[:-1], D))
    factor, seen = matrix, _host(matrix)
    if given == "scale_tril":
        valid = _triangular(name, seen) & _positive(name, seen)
    else:
        factor = p.scale_tril.astype(matrix.dtype)  # NumPyro's, of a precision, may be wider
        valid = _symmetric(name, given, seen) & _positive(name, _host(factor))
        valid &= _above_rounding(name, given, seen, _host(factor))
    return mean, _nan_unless(valid, factor)


def result(name: str, p: MultivariateNormal) -> MultivariateNormal:
    """A distribution that was computed; its factor is NaN where nothing can be raised.

    Raises:
        NotPositiveDefinite: rounding left no positive diagonal in the factor.
    """
    factor = p.scale_tril
    valid = _positive(name, _host(factor))
    if not is_traced(valid):
        return p
    # NumPyro's own check would be a second one, and of a joint distribution not a cheap one.
    return MultivariateNormal(p.loc, scale_tril=_nan_unless(valid, factor), validate_args=False)


def floats(name: str, values: Numbers) -> Float[Array, "*shape"]:
    """As an array of floats; what is infinite is NaN where nothing can be raised.

    Raises:
        ValueError: a number is complex, NaN or infinite.
    """
    array = _real(name, values)
    finite = _namespace(array).isfinite(_host(array))
    if (found := _first(~finite)) is not None:
        at = f" at {list(found)}" if found else ""
        raise ValueError(f"`{name}` must be finite, and has {array[found]}{at}.")
    return jnp.where(finite, array, jnp.nan) if is_traced(finite) else array


def _real(name: str, values: Numbers) -> Float[Array, "*shape"]:
    array = jnp.asarray(values)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise ValueError(f"`{name}` must be real, and is {array.dtype}.")
    is_float = jnp.issubdtype(array.dtype, jnp.floating)
    return array if is_float else array.astype(jnp.result_type(float))


def require_shape(name: str, array: Array, event: tuple[int, ...], why: str) -> None:
    """Refuse an array whose last axes are not those of ``event``.

    Raises:
        ValueError: so it is; ``why`` says where ``event`` comes from.
    """
    if array.shape[max(array.ndim - len(event), 0) :] != event:
        sizes = ", ".join(map(str, event))
        raise ValueError(
            f"`{name}` has shape {array.shape}, and must have ({sizes}{',' * (len(event) == 1)}), "
            f"with any axes of a batch before: {why}."
        )


def require_batches(**batches: tuple[int, ...]) -> None:
    """Refuse shapes of batches, by the name of what has them, that do not broadcast.

    Raises:
        ValueError: so it is.
    """
    try:
        np.broadcast_shapes(*batches.values())
    except ValueError as error:
        listed = ", ".join(f"`{name}` has {shape}" for name, shape in batches.items())
        raise ValueError(
            f"The shapes of the batches do not broadcast, as those of NumPy do: {listed}."
        ) from error


def split_indices(
    indices: int | Sequence[int] | Int[np.ndarray, " K"], D: int
) -> tuple[Int[np.ndarray, " K"], Int[np.ndarray, " L"]]:
    """The coordinates named, counted from the front, and the others in order.

    Raises:
        TypeError: an index is no integer.
        IndexError: an index is out of range.
        ValueError: an index is repeated.
    """
    listed = np.atleast_1d(np.asarray(indices))
    if listed.ndim != 1 or listed.size and not np.issubdtype(listed.dtype, np.integer):
        raise TypeError(f"The indices must be integers in one list, not {indices!r}.")
    chosen = [int(i) + D * (i < 0) for i in listed]
    for i, place in zip(listed, chosen, strict=True):
        if not 0 <= place < D:
            raise IndexError(f"Index {i} is out of range: there are {D} variables, 0 to {D - 1}.")
        if chosen.count(place) > 1:
            raise ValueError(f"Index {i} is given more than once: {listed.tolist()}.")
    others = [i for i in range(D) if i not in set(chosen)]
    return np.array(chosen, int), np.array(others, int)


def _given(p: MultivariateNormal) -> str:
    """Which matrix made it: NumPyro sets that one first, and others when they are asked for."""
    return next((name for name in vars(p) if name in _SOURCES), "scale_tril")


def _positive(name: str, factor: Seen) -> Seen:
    xp = _namespace(factor)
    good = xp.isfinite(factor).all(axis=(-2, -1)) & (_diagonal(factor) > 0).all(axis=-1)
    if (found := _first(~good)) is not None:
        raise NotPositiveDefinite(
            f"The matrix of `{name}`{_place(found)} is not positive definite: it has no Cholesky "
            f"factor with a positive diagonal in {factor.dtype}.",
            causes=[
                "a covariance was computed from fewer draws than there are variables",
                "two variables are the same, or one is a combination of others",
                "an entry is mistaken, NaN, or of a size that the precision cannot hold",
            ],
            remedy="leave out variables that others determine, give the Cholesky factor instead of "
            "the matrix, or call numpyro.enable_x64().",
        )
    return good


def _above_rounding(name: str, kind: str, matrix: Seen, factor: Seen) -> Seen:
    """Whether each pivot of the factorisation is more than the rounding of its diagonal element."""
    squares = _diagonal(factor) ** 2
    pivots = squares if kind == "covariance_matrix" else 1 / squares
    flat = pivots <= factor.shape[-1] * jnp.finfo(factor.dtype).eps * _diagonal(matrix)
    if (found := _first(flat)) is not None:
        raise NotPositiveDefinite(
            f"The {kind} of `{name}`{_place(found[:-1])} is singular in {factor.dtype}: what the "
            f"other variables leave of variable {found[-1]} is rounding.",
            causes=[
                "two variables are the same, or one is a combination of others",
                "the precision of the numbers is too low",
            ],
            remedy="leave out that variable, give the Cholesky factor instead of the matrix, or "
            "call numpyro.enable_x64().",
        )
    return ~flat.any(axis=-1)


def _symmetric(name: str, kind: str, matrix: Seen) -> Seen:
    xp, transposed = _namespace(matrix), matrix.swapaxes(-1, -2)
    if xp is np and np.array_equal(matrix, transposed):  # at a tenth of the cost
        return np.ones(matrix.shape[:-2], bool)
    size = xp.sqrt(abs(_diagonal(matrix)))
    allowed = jnp.finfo(matrix.dtype).eps ** 0.5 * size[..., :, None] * size[..., None, :]
    away = abs(matrix - transposed) > allowed
    if (found := _first(away)) is not None:
        *batch, i, j = found
        raise ValueError(
            f"The {kind} of `{name}`{_place(batch)} is not symmetric: element [{i}, {j}] is "
            f"{matrix[found]:.6g}, and [{j}, {i}] is {matrix[(*batch, j, i)]:.6g}."
        )
    return ~away.any(axis=(-2, -1))


def _triangular(name: str, factor: Seen) -> Seen:
    above = _namespace(factor).triu(factor, 1) != 0
    if (found := _first(above)) is not None:
        *batch, i, j = found
        raise ValueError(
            f"The scale_tril of `{name}`{_place(batch)} must be lower triangular: element "
            f"[{i}, {j}] is {factor[found]:.6g}."
        )
    return ~above.any(axis=(-2, -1))


def _nan_unless(valid: Seen, factor: Float[Array, "*batch D D"]) -> Float[Array, "*batch D D"]:
    """The factor, which is valid where an error could have been raised."""
    if not is_traced(valid):
        return factor
    return jnp.where(valid[..., None, None], factor, jnp.nan)


def _first(wrong: Seen) -> tuple[int, ...] | None:
    """Where the first True is; None where there is none, and within a compiled program."""
    if is_traced(wrong) or not wrong.any():
        return None
    return tuple(int(i) for i in np.argwhere(wrong)[0])


def _host(array: Array) -> Seen:
    """As NumPy sees it, where it has values: to look at them then compiles nothing."""
    return array if is_traced(array) else np.asarray(array)


def _namespace(array: Seen) -> Any:
    return jnp if is_traced(array) else np


def _diagonal(matrix: Seen) -> Seen:
    return matrix.diagonal(axis1=-2, axis2=-1)


def _place(batch: Sequence[int]) -> str:
    return f", number {', '.join(map(str, batch))} of the batch," if len(batch) else ""
