"""Taylor coefficients and Taylor polynomials of any order, by automatic differentiation.

A function is followed along a line, by ``base/paths``; here is what is asked of it, and what is refused.
"""

import itertools
import math
import operator
from collections.abc import Callable
from functools import partial
from typing import SupportsIndex

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from laplacebook.base.jaxprs import primitives
from laplacebook.base.paths import coefficients_along
from laplacebook.base.pytrees import is_traced
from laplacebook.base.quick import in_full_precision, jit_as_written, jit_quickly
from laplacebook.model.fingerprint import Fixed

__all__ = ["taylor_coefficients", "taylor_polynomial"]

Polynomial = Callable[[ArrayLike], Float[Array, "..."]]
Along = Callable[[ArrayLike, ArrayLike], Float[Array, " terms"]]  # coefficients, by point and way

_BESIDE = 1e-5  # of the way to the nearest pole
_CHANGE = 1e-3  # of a coefficient, or of
_SMALL = 1e-6  # of the largest, if that is more
_CHOICES = {"select_n", "cond", "clamp"}
_UNITS = 1e3  # of rounding: what is less than that says nothing of a coefficient
_STEPS = 0.0625 * 0.125 ** np.arange(9)


@in_full_precision
def taylor_coefficients(
    f: Callable[[Array], Array], x0: ArrayLike, degree: SupportsIndex
) -> Float[Array, " terms"] | tuple[Int[np.ndarray, "M D"], Float[Array, " M"]]:
    """Coefficients of the Taylor polynomial of ``f`` around ``x0``.

    Works under ``jit``, ``vmap`` and ``grad``, also in ``x0``. At a kink that is a choice
    (``jnp.where``, ``lax.cond``, a sort) the branch that is taken counts as the function.

    Args:
        f: function of an array of the shape of ``x0``; returns a scalar.
        x0: the point of expansion, shape () or (D,), floating point.
        degree: highest total degree, 0 or more. The cost grows as degree² in one variable, as
            2^degree where f loops or branches, and as (2D)^degree in several variables.

    Returns:
        For x0 of shape (), the array c of shape (degree + 1,) with c[k] = f⁽ᵏ⁾(x0) / k!.
        For x0 of shape (D,), the pair ``(exponents, coefficients)`` of shapes (M, D) and (M,), in
        order of total degree: the polynomial is Σₘ coefficients[m] Πᵢ (xᵢ - x0ᵢ)^exponents[m, i].

    Raises:
        TypeError: ``x0`` or the value of ``f`` is not floating point; ``degree`` is no integer.
        ValueError: ``f`` returns no scalar, ``degree`` is negative, ``x0`` has two dimensions or
            more, or a derivative is not finite (under a transformation: NaN from that order on), or
            is lost in rounding, as beside a quotient 0/0 (not seen under a transformation).

    Source: B. Taylor, Methodus incrementorum directa et inversa (1715), proposition VII. In the
    book: :eq:`eq-taylor-polynomial` and :eq:`eq-taylor-multi-index` of :doc:`/book/taylor`.

    >>> taylor_coefficients(lambda x: 1 / (1 - x), 0.0, 4).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0]
    >>> exponents, coefficients = taylor_coefficients(lambda x: x[0] * x[1] ** 2, jnp.ones(2), 2)
    >>> for e, c in zip(exponents.tolist(), coefficients.tolist()):
    ...     print(e, c)
    [0, 0] 1.0
    [1, 0] 1.0
    [0, 1] 2.0
    [2, 0] 0.0
    [1, 1] 2.0
    [0, 2] 1.0
    """
    x0, finite = _checked(f, x0, degree)
    if x0.ndim == 0:
        return finite
    exponents = [_exponents(x0.size, order) for order in range(finite.size)]
    return np.concatenate(exponents), _partial_coefficients(Fixed(f), x0, finite)


def _indices(size: int, order: int) -> Int[np.ndarray, "M order"]:
    """The derivatives of an order, each once: of each the coordinates along which it is taken."""
    combinations = list(itertools.combinations_with_replacement(range(size), order))
    return np.array(combinations, int).reshape(len(combinations), order)


def _exponents(size: int, order: int) -> Int[np.ndarray, "M D"]:
    return (_indices(size, order)[:, :, None] == np.arange(size)).sum(axis=1)


@partial(jit_as_written, static_argnums=0)
def _partial_coefficients(
    f: Fixed, x0: Array, finite: Float[Array, " terms"]
) -> Float[Array, " M"]:
    """The coefficients in several variables, in order of total degree; NaN where those along a line are."""
    found, tensor = [], f.value
    for order, check in enumerate(finite):
        repeats = np.vectorize(math.factorial, otypes=[float])(_exponents(x0.size, order)).prod(
            axis=1
        )
        derivatives = jnp.ravel(jnp.asarray(tensor(x0))[tuple(_indices(x0.size, order).T)])
        defect = check - check  # 0, or NaN where the check fails
        found.append(derivatives / repeats.astype(derivatives.dtype) + defect)
        tensor = jax.jacfwd(tensor)
    return jnp.concatenate(found)


@partial(jit_as_written, static_argnames=("f", "degree"))
def _coefficients_along(
    f: Fixed, x0: ArrayLike, direction: ArrayLike, degree: int
) -> Float[Array, " terms"]:
    return coefficients_along(f.value, jnp.asarray(x0), jnp.asarray(direction), degree)


@partial(jit_as_written, static_argnums=0)
def _at_points(f: Fixed, points: ArrayLike) -> Float[Array, " points"]:
    return jax.vmap(f.value)(jnp.asarray(points))


@in_full_precision
def taylor_polynomial(
    f: Callable[[Array], Array], x0: ArrayLike, degree: SupportsIndex
) -> Polynomial:
    """The Taylor polynomial of ``f`` around ``x0``, as a function of x.

    Args:
        f: function of an array of the shape of ``x0``; returns a scalar.
        x0: the point of expansion, shape () or (D,), floating point.
        degree: highest total degree, 0 or more.

    Returns:
        A function T. For x0 of shape (), T maps an array of any shape elementwise. For x0 of shape
        (D,), T maps (..., D) to (...): at each x it sums the one-variable coefficients of
        t -> f(x0 + t (x - x0)), so no derivative tensor is formed.

    Raises:
        TypeError: as :func:`taylor_coefficients`.
        ValueError: as :func:`taylor_coefficients`; and T raises it if the last axis of x is not D long.

    Source: as :func:`taylor_coefficients`. In the book: :eq:`eq-taylor-polynomial` and
    :eq:`eq-taylor-directional` of :doc:`/book/taylor`.

    >>> T = taylor_polynomial(jnp.exp, 0.0, 2)
    >>> T(jnp.array([0.0, 1.0, 2.0])).tolist()
    [1.0, 2.5, 5.0]
    >>> T = taylor_polynomial(lambda x: jnp.exp(x.sum()), jnp.zeros(2), 2)
    >>> T(jnp.array([[0.0, 0.0], [0.5, 0.5], [1.0, 1.0]])).tolist()
    [1.0, 2.5, 5.0]
    """
    x0, finite = _checked(f, x0, degree)
    if x0.ndim == 0:
        return lambda x: _in_powers(finite, jnp.asarray(x), x0)

    def along(direction: Float[Array, " D"]) -> Float[Array, ""]:
        return coefficients_along(f, x0, direction, finite.size - 1).sum()

    compiled = jit_quickly(jnp.vectorize(along, signature="(d)->()"))

    def polynomial(x: ArrayLike) -> Float[Array, "..."]:
        x = jnp.asarray(x)
        if x.shape[-1:] != x0.shape:
            raise ValueError(f"the last axis of x must be {x0.size} long; x has shape {x.shape}.")
        return compiled(x - x0)

    return polynomial


@jit_quickly
def _in_powers(coefficients: Float[Array, " terms"], x: Array, x0: Array) -> Array:
    """A polynomial in x - x0 of one variable."""
    return jnp.polyval(coefficients[::-1], x - x0)


def _checked(
    f: Callable, x0: ArrayLike, degree: SupportsIndex
) -> tuple[Array, Float[Array, " terms"]]:
    """The point x0 as an array, and the coefficients of t -> f(x0 + t (1, ..., 1)): all finite."""
    if isinstance(degree, bool) or not hasattr(degree, "__index__"):
        raise TypeError(f"degree must be an integer, such as 2, not {degree!r}.")
    if (degree := operator.index(degree)) < 0:
        raise ValueError(f"degree must be 0 or more, not {degree}.")
    x0 = jnp.asarray(x0)
    if not jnp.issubdtype(x0.dtype, jnp.floating):
        raise TypeError(f"x0 must be floating point, such as 0.0, not of type {x0.dtype.name}.")
    if x0.ndim > 1:
        raise ValueError(f"x0 must have shape () or (D,), not {x0.shape}: flatten it first.")
    if isinstance(f, np.ufunc):
        raise TypeError(
            f"f is NumPy's {f.__name__}, of which JAX has no derivative: take jnp.{f.__name__}."
        )
    out = jax.eval_shape(f, x0)
    if not isinstance(out, jax.ShapeDtypeStruct):
        raise TypeError(f"f must return one number, not a {type(out).__name__}.")
    if out.shape != ():
        raise ValueError(f"f must return a scalar, not an array of shape {out.shape}.")
    if not jnp.issubdtype(out.dtype, jnp.floating):
        raise TypeError(f"f must return a floating-point number, not one of type {out.dtype.name}.")
    function = Fixed(f)
    along = partial(_coefficients_along, function, degree=degree)
    found = along(x0, np.ones(x0.shape, x0.dtype))
    if is_traced(found):
        return x0, found
    point, coefficients = np.asarray(x0), np.asarray(found)
    if not np.isfinite(coefficients).all():
        order = int(np.argmin(np.isfinite(coefficients)))
        what = f"its derivative of order {order} does not exist or" if order else "its value there"
        raise ValueError(
            f"f has no Taylor polynomial of degree {degree} at x0 = {x0}: {what} is not finite."
        )
    if _is_at_a_pole(point, coefficients):
        raise ValueError(
            f"f has no Taylor polynomial at x0 = {x0} that says anything: it would change by more than "
            "its own size within the rounding of x0, as beside a pole."
        )
    if (lost := _lost_in_rounding(along, point, coefficients)) is not None:
        raise ValueError(
            f"f has no Taylor polynomial of degree {degree} at x0 = {x0} to working precision: within the rounding "
            f"of x0 the coefficient of order {lost} changes by more than a thousandth. (a) f is computed "
            "as a difference of nearly equal numbers, as sin(x) / x is beside 0: write it without; (b) f is made of "
            "pieces, and x0 is where they meet; (c) JAX's derivative of a special function is wrong there."
        )
    if (left := _not_followed(function, along, point, coefficients)) is not None:
        raise ValueError(
            f"f has no Taylor polynomial of degree {degree} at x0 = {x0}: beside x0 the values of f do not follow "
            f"the coefficient of order {left}. (a) f has no derivative of that order there, as x log x at 0; (b) f "
            "is chosen at x0 alone, by jnp.where(x == 0, ...), where a constant has no slope: write a few terms of "
            "its series there; (c) JAX's derivative of a special function is wrong there."
        )
    return x0, found


@np.errstate(over="ignore")
def _lost_in_rounding(
    along: Along, x0: np.ndarray, coefficients: Float[np.ndarray, " terms"]
) -> int | None:
    """The order of the first coefficient that is another one a few roundings away.

    A coordinate that is exactly 0 stays: there a formula is often right that is not beside it.
    """
    sizes = np.abs(coefficients)
    allowed = _CHANGE * np.maximum(sizes, _SMALL * np.max(sizes))
    size = float(np.max(np.abs(x0), initial=0))
    # Beside a pole coefficients change by themselves: it is about as far as two of them are apart.
    far = np.min(sizes[:-1][sizes[1:] > 0] / sizes[1:][sizes[1:] > 0], initial=np.inf)
    step = min(float(jnp.finfo(x0.dtype).eps) ** 0.75, _BESIDE * far / size) if size else 0.0
    lost = np.arange(len(sizes))
    for side in (
        1 + step,
        1 - step,
    ):  # where a choice is made at x0, it may be another one on one of them
        if lost.size:
            there = along(x0 * side, np.ones_like(x0))
            lost = lost[~(np.abs(np.asarray(there) - coefficients) <= allowed)[lost]]
    return int(lost[0]) if lost.size else None


def _not_followed(
    f: Fixed, along: Along, x0: np.ndarray, coefficients: Float[np.ndarray, " terms"]
) -> int | None:
    """The order of the first coefficient that the values of f beside a coordinate of 0 do not follow, on either side.

    Only where the program of f chooses. What is left of f over the power of a step shrinks with the
    step, if the coefficients up to that order are right.
    """
    if not np.any(x0 == 0) or not _CHOICES & primitives(jax.make_jaxpr(f.value)(x0)):
        return None
    sizes = np.abs(coefficients)
    steps = np.asarray(_STEPS, x0.dtype)
    left = np.arange(1, len(sizes))
    for side in (1, -1):
        direction = np.where(x0 == 0, side, 0).astype(x0.dtype)
        values = _at_points(f, x0 + steps[:, None] * direction if x0.ndim else steps * side)
        own = side ** np.arange(len(sizes)) * np.asarray(coefficients)
        if x0.ndim:
            own = np.asarray(along(x0, direction))
        apart = np.asarray(values) - np.polynomial.polynomial.polyval(steps, own[:1])
        wrong = []
        for order in range(1, len(sizes)):
            powers = steps**order
            known = powers > _UNITS * np.finfo(steps.dtype).eps
            if known.sum() < 3 or abs(own[order]) * powers[known][-1] > np.max(np.abs(values)):
                break  # f bends within the shortest step
            apart = apart - own[order] * powers
            gaps = np.abs(apart / powers)[known]
            small = max(_CHANGE * abs(own[order]), _SMALL * sizes.max())
            follows = (gaps <= small) | (gaps <= np.append(0, gaps[:-1] / 2))
            if not np.any(follows & np.isfinite(gaps)):
                wrong.append(order)
        left = np.intersect1d(left, wrong)
    return int(left[0]) if left.size else None


def _is_at_a_pole(x0: np.ndarray, coefficients: Float[np.ndarray, " terms"]) -> bool:
    """Whether within the rounding of x0 each term of the polynomial outgrows the one before it."""
    sizes, step = np.abs(coefficients[1:]), np.max(np.spacing(np.abs(x0)), initial=0)
    return bool(sizes.size > 1 and np.all(sizes > 0) and np.all(sizes[1:] * step > sizes[:-1]))
