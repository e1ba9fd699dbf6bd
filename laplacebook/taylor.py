"""Taylor coefficients and Taylor polynomials of any order, by automatic differentiation.

A function is followed along a line, by ``base/paths``; here is what is asked of it, and what is refused.
"""

import itertools
import math
import operator
from collections.abc import Callable
from typing import SupportsIndex

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from laplacebook.base.jaxprs import primitives
from laplacebook.base.paths import coefficients_along
from laplacebook.base.pytrees import is_traced
from laplacebook.base.quick import in_full_precision, jit

__all__ = ["taylor_coefficients", "taylor_polynomial"]

Polynomial = Callable[[ArrayLike], Float[Array, "..."]]

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
    exponents, coefficients = [], []
    for order, check in enumerate(finite):
        combinations = list(itertools.combinations_with_replacement(range(x0.size), order))
        indices = np.array(combinations, int).reshape(len(combinations), order)
        exponents.append((indices[:, :, None] == np.arange(x0.size)).sum(axis=1))
        repeats = np.vectorize(math.factorial, otypes=[float])(exponents[-1]).prod(axis=1)
        derivatives = jnp.ravel(jnp.asarray(f(x0))[tuple(indices.T)])
        defect = check - check  # 0, or NaN where the check fails
        coefficients.append(derivatives / repeats.astype(derivatives.dtype) + defect)
        f = jax.jacfwd(f)
    return np.concatenate(exponents), jnp.concatenate(coefficients)


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
        return lambda x: jnp.polyval(finite[::-1], jnp.asarray(x) - x0)

    def along(direction: Float[Array, " D"]) -> Float[Array, ""]:
        return coefficients_along(f, x0, direction, finite.size - 1).sum()

    compiled = jit(jnp.vectorize(along, signature="(d)->()"))

    def polynomial(x: ArrayLike) -> Float[Array, "..."]:
        x = jnp.asarray(x)
        if x.shape[-1:] != x0.shape:
            raise ValueError(f"the last axis of x must be {x0.size} long; x has shape {x.shape}.")
        return compiled(x - x0)

    return polynomial


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
    out = jax.eval_shape(f, x0)
    if not isinstance(out, jax.ShapeDtypeStruct):
        raise TypeError(f"f must return one number, not a {type(out).__name__}.")
    if out.shape != ():
        raise ValueError(f"f must return a scalar, not an array of shape {out.shape}.")
    if not jnp.issubdtype(out.dtype, jnp.floating):
        raise TypeError(f"f must return a floating-point number, not one of type {out.dtype.name}.")
    coefficients = coefficients_along(f, x0, jnp.ones_like(x0), degree)
    if not is_traced(coefficients) and not jnp.isfinite(coefficients).all():
        order = int(jnp.argmin(jnp.isfinite(coefficients)))
        what = f"its derivative of order {order} does not exist or" if order else "its value there"
        raise ValueError(
            f"f has no Taylor polynomial of degree {degree} at x0 = {x0}: {what} is not finite."
        )
    if not is_traced(coefficients) and _is_at_a_pole(x0, coefficients):
        raise ValueError(
            f"f has no Taylor polynomial at x0 = {x0} that says anything: it would change by more than "
            "its own size within the rounding of x0, as beside a pole."
        )
    if not is_traced(coefficients) and (lost := _lost_in_rounding(f, x0, coefficients)) is not None:
        raise ValueError(
            f"f has no Taylor polynomial of degree {degree} at x0 = {x0} to working precision: within the rounding "
            f"of x0 the coefficient of order {lost} changes by more than a thousandth. (a) f is computed "
            "as a difference of nearly equal numbers, as sin(x) / x is beside 0: write it without; (b) f is made of "
            "pieces, and x0 is where they meet; (c) JAX's derivative of a special function is wrong there."
        )
    if not is_traced(coefficients) and (left := _not_followed(f, x0, coefficients)) is not None:
        raise ValueError(
            f"f has no Taylor polynomial of degree {degree} at x0 = {x0}: beside x0 the values of f do not follow "
            f"the coefficient of order {left}. (a) f has no derivative of that order there, as x log x at 0; (b) f "
            "is chosen at x0 alone, by jnp.where(x == 0, ...), where a constant has no slope: write a few terms of "
            "its series there; (c) JAX's derivative of a special function is wrong there."
        )
    return x0, coefficients


def _lost_in_rounding(f: Callable, x0: Array, coefficients: Float[Array, " terms"]) -> int | None:
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
            there = coefficients_along(f, x0 * side, jnp.ones_like(x0), len(sizes) - 1)
            lost = lost[~(np.abs(there - coefficients) <= allowed)[lost]]
    return int(lost[0]) if lost.size else None


def _not_followed(f: Callable, x0: Array, coefficients: Float[Array, " terms"]) -> int | None:
    """The order of the first coefficient that the values of f beside a coordinate of 0 do not follow, on either side.

    Only where the program of f chooses. What is left of f over the power of a step shrinks with the
    step, if the coefficients up to that order are right.
    """
    if not jnp.any(x0 == 0) or not _CHOICES & primitives(jax.make_jaxpr(f)(x0)):
        return None
    sizes = np.abs(coefficients)
    steps = np.asarray(_STEPS, x0.dtype)
    left = np.arange(1, len(sizes))
    for side in (1, -1):
        direction = jnp.where(x0 == 0, side, 0).astype(x0.dtype)
        values = jax.vmap(f)(x0 + steps[:, None] * direction if x0.ndim else steps * side)
        own = side ** np.arange(len(sizes)) * np.asarray(coefficients)
        if x0.ndim:
            own = np.asarray(coefficients_along(f, x0, direction, len(sizes) - 1))
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


def _is_at_a_pole(x0: Array, coefficients: Float[Array, " terms"]) -> bool:
    """Whether within the rounding of x0 each term of the polynomial outgrows the one before it."""
    sizes, step = np.abs(coefficients[1:]), np.max(np.spacing(np.abs(x0)), initial=0)
    return bool(sizes.size > 1 and np.all(sizes > 0) and np.all(sizes[1:] * step > sizes[:-1]))
