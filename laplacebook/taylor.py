"""Taylor coefficients and Taylor polynomials of any order, by automatic differentiation.

A curve x(t) = x0 + x1 t + x2 t² + ... is kept as its *path*, the list ``[x0, x1, ..., xK]``, and
pushed through the operations of f one after the other, so that order K costs about K², not 2^K. The
common operations use the rules of ``jax.experimental.jet``. The others, loops, and functions with a
derivative rule of their own use d/dt f(x(t)) = f'(x(t)) x'(t), whose path is one shorter: repeated
jvp, of that operation alone. (``jet`` by itself has no rule for ``lgamma``, gives ``softplus`` a
slope of 0 at 0 instead of 1/2, and ``x**2.0`` a slope of NaN at -1.)
"""

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any, SupportsIndex

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.jet import jet
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from laplacebook.base.jaxprs import evaluate, without_idle
from laplacebook.base.pytrees import is_traced
from laplacebook.base.quick import in_full_precision, jit

__all__ = ["taylor_coefficients", "taylor_polynomial"]

Path = list[Any]
Polynomial = Callable[[ArrayLike], Float[Array, "..."]]

# fmt: off
_EXACT_IN_JET = {
    "neg", "add", "sub", "add_any", "convert_element_type", "broadcast_in_dim", "concatenate",
    "pad", "reshape", "squeeze", "transpose", "slice", "dynamic_slice", "gather", "reduce_sum",
    "cumsum", "select_n", "mul", "div", "dot_general", "exp", "expm1", "log", "log1p", "sqrt",
    "rsqrt", "square", "integer_pow", "sin", "cos", "sinh", "cosh", "tanh", "logistic", "erf",
}
# fmt: on
# Where these have no derivative, automatic differentiation returns a number all the same.
_KINKS: dict[str, Callable[..., Any]] = {
    "abs": lambda x: x == 0,
    "sign": lambda x: x == 0,
    "max": operator.eq,
    "min": operator.eq,
    "floor": lambda x: x == jnp.floor(x),
    "ceil": lambda x: x == jnp.floor(x),
    "round": lambda x: x - jnp.floor(x) == 0.5,
    "rem": lambda x, y: (x != 0) & (jax.lax.rem(x, y) == 0),
}
_BESIDE = 1e-5  # of the way to the nearest pole
_CHANGE = 1e-3  # of a coefficient, or of
_SMALL = 1e-6  # of the largest, if that is more
_BESSEL = {"bessel_i0e": 0, "bessel_i1e": 1}  # their orders
_ANGLES = np.pi * (np.arange(256) + 0.5) / 256


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
        return _along(f, x0, direction, finite.size - 1).sum()

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
    coefficients = _along(f, x0, jnp.ones_like(x0), degree)
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
            there = _along(f, x0 * side, jnp.ones_like(x0), len(sizes) - 1)
            lost = lost[~(np.abs(there - coefficients) <= allowed)[lost]]
    return int(lost[0]) if lost.size else None


def _is_at_a_pole(x0: Array, coefficients: Float[Array, " terms"]) -> bool:
    """Whether within the rounding of x0 each term of the polynomial outgrows the one before it."""
    sizes, step = np.abs(coefficients[1:]), np.max(np.spacing(np.abs(x0)), initial=0)
    return bool(sizes.size > 1 and np.all(sizes > 0) and np.all(sizes[1:] * step > sizes[:-1]))


def _along(f: Callable, x0: Array, direction: Array, degree: int) -> Float[Array, " terms"]:
    """Taylor coefficients of t -> f(x0 + t direction) at t = 0."""
    line = [x0, direction, *[jnp.zeros_like(x0)] * (degree - 1)]
    return jnp.stack(_compose(lambda x: [f(x)], [line[: degree + 1]])[0])


def _compose(f: Callable, paths: list[Path]) -> list[Path]:
    """The paths of the outputs of f, a function that returns a list, from those of its inputs."""
    closed = jax.make_jaxpr(f)(*[path[0] for path in paths])
    outputs = _evaluate(without_idle(closed), paths)
    rest = len(paths[0]) - 1
    return [y if isinstance(y, list) else [y, *[jnp.zeros_like(y)] * rest] for y in outputs]


def _evaluate(program: ClosedJaxpr, inputs: list[Any]) -> list[Any]:
    """Runs a program on values of which some are paths (lists) and the others do not move."""
    jaxpr = program.jaxpr
    values = dict(zip(jaxpr.constvars + jaxpr.invars, program.consts + inputs, strict=True))

    def read(atoms: list) -> list[Any]:
        return [atom.val if isinstance(atom, Literal) else values[atom] for atom in atoms]

    made: dict[Any, JaxprEqn] = {}
    for eqn in jaxpr.eqns:
        results = _apply(eqn, read(eqn.invars))
        bessel = _bessel_in(eqn, made)
        if bessel is not None and isinstance(results[0], list):
            order, argument = bessel
            results = [[results[0][0], *_of_bessel(order, False, *read([argument]))]]
        values.update(zip(eqn.outvars, results, strict=True))
        made |= dict.fromkeys(eqn.outvars, eqn)
    return read(jaxpr.outvars)


def _apply(eqn: JaxprEqn, inputs: list[Any]) -> list[Any]:
    """One operation of a program, on values of which some are paths."""
    name = eqn.primitive.name
    if name in ("jit", "pjit"):
        return _evaluate(eqn.params["jaxpr"], inputs)
    if name == "custom_jvp_call" and _is_bessel(eqn.params["call_jaxpr"]):
        return _evaluate(eqn.params["call_jaxpr"], inputs)
    moves = [isinstance(value, list) for value in inputs]
    start = [value[0] if isinstance(value, list) else value for value in inputs]

    def operation(*values: Array) -> list[Array]:
        moved = iter(values)
        pairs = zip(moves, start, strict=True)
        return evaluate(eqn, [next(moved) if moves_here else value for moves_here, value in pairs])

    paths = list(itertools.compress(inputs, moves))
    outputs: list[Any] = operation(*[path[0] for path in paths])
    smooth = [i for i, out in enumerate(outputs) if jnp.issubdtype(out.dtype, jnp.inexact)]
    if not paths or not smooth or len(paths[0]) == 1:
        return outputs
    if name == "pow" and not moves[1] and (power := _whole(start[1])) is not None:
        return _compose(lambda base: [jax.lax.integer_pow(base, power)], inputs[:1])
    if name in _BESSEL:
        return [[*outputs, *_of_bessel(_BESSEL[name], True, paths[0])]]
    in_jet = name in _EXACT_IN_JET or (name == "pow" and moves[1])
    rule = _by_jet if in_jet else _by_velocity
    kink: Any = _KINKS[name](*start) if name in _KINKS else False
    if name in ("reduce_max", "reduce_min"):
        axes = eqn.params["axes"]
        kink = jnp.sum(start[0] == jnp.expand_dims(outputs[0], axes), axes) > 1
    if name == "custom_jvp_call":
        kink = _bends_abruptly(operation, paths, smooth)
    for i, terms in zip(smooth, rule(operation, paths, smooth), strict=True):
        outputs[i] = [outputs[i], *(jnp.where(kink, jnp.nan, term) for term in terms)]
    return outputs


def _is_bessel(program: ClosedJaxpr) -> bool:
    """Whether a function with a derivative rule of its own is I_0, of which that rule is not used."""
    made: dict[Any, JaxprEqn] = {}
    for eqn in program.jaxpr.eqns:
        made |= dict.fromkeys(eqn.outvars, eqn)
    return bool(made) and _bessel_in(eqn, made) is not None


def _bessel_in(eqn: JaxprEqn, made: dict) -> tuple[int, Any] | None:
    """The order and the argument, if it is exp(|x|) times a scaled Bessel function, as I_0 and I_1 are written."""
    if eqn.primitive.name != "mul":
        return None

    def of(atom: Any, *names: str) -> JaxprEqn | None:
        maker = None if isinstance(atom, Literal) else made.get(atom)
        return maker if maker is not None and maker.primitive.name in names else None

    for one, other in (eqn.invars, eqn.invars[::-1]):
        scaled, grown = of(one, *_BESSEL), of(other, "exp")
        size = grown and of(grown.invars[0], "abs")
        if scaled and size and scaled.invars[0] in (size.invars[0], size.outvars[0]):
            return _BESSEL[scaled.primitive.name], size.invars[0]
    return None


def _of_bessel(order: int, scaled: bool, path: Path) -> Path:
    """The path of I_n(x), maybe times exp(-|x|), after its start: the mean of cos(nt) exp(x cos t) over half a turn.

    The rule for its derivative divides by x. The midpoint rule of a periodic function has no error
    but for rounding while |x| is below 700, where exp(x) overflows.
    """

    def mean(x: Array) -> list[Array]:
        exponent = x[..., None] * np.cos(_ANGLES).astype(x.dtype)
        exponent = exponent - jnp.abs(x)[..., None] if scaled else exponent
        weights = np.cos(order * _ANGLES).astype(x.dtype) / _ANGLES.size
        return [jnp.sum(weights * jnp.exp(exponent), axis=-1)]

    terms = _compose(mean, [path])[0][1:]
    if scaled and order == 1 and terms:  # which has one derivative at 0
        terms[0] = jnp.where(path[0] == 0, path[1] / 2, terms[0])
    return [jnp.where(jnp.abs(path[0]) < 700, term, jnp.nan) for term in terms]


def _whole(exponent: Any) -> int | None:
    """The power, if it is one whole number that is known."""
    if is_traced(exponent) or not np.size(exponent) or np.ptp(exponent) != 0:
        return None
    power = float(np.ravel(exponent)[0])
    return int(power) if power.is_integer() and power >= 0 else None


def _bends_abruptly(operation: Callable, paths: list[Path], smooth: list[int]) -> Array:
    """Whether the slope of an operation jumps at the start, as that of a rectifier at 0.

    Across a smaller step the slopes of a smooth one differ by less.
    """
    start = [path[0] for path in paths]
    speed = [jnp.where(path[1] == 0, 1, path[1]) for path in paths]  # x may be x0 itself
    unit = jnp.finfo(start[0].dtype).eps

    def slope(t: float) -> list[Array]:
        there = [x + t * jnp.maximum(jnp.abs(x), 1) * v for x, v in zip(start, speed, strict=True)]
        _, slopes = jax.jvp(operation, there, speed)
        return [slopes[i] for i in smooth]

    def gaps(t: float) -> list[Array]:
        return [jnp.abs(a - b) for a, b in zip(slope(t), slope(-t), strict=True)]

    far, near = float(unit) ** 0.5, float(unit) ** 0.5 / 64
    sizes = zip(gaps(far), gaps(near), slope(far), strict=True)
    jumps = [jnp.any((b > a / 2) & (b > unit**0.5 * (1 + jnp.abs(s)))) for a, b, s in sizes]
    return jnp.any(jnp.stack(jumps))


def _by_jet(operation: Callable, paths: list[Path], smooth: list[int]) -> list[Path]:
    """The paths of the outputs of an operation after their starts, by its rule in jet."""
    starts, terms = [path[0] for path in paths], [path[1:] for path in paths]
    return jet(operation, starts, terms, factorial_scaled=False)[1]


def _by_velocity(operation: Callable, paths: list[Path], smooth: list[int]) -> list[Path]:
    """The same from d/dt f(x(t)) = f'(x(t)) x'(t), by the derivative rule of the operation."""

    def velocity(*state: Array) -> list[Array]:
        _, slopes = jax.jvp(operation, state[: len(paths)], state[len(paths) :])
        return [slopes[i] for i in smooth]

    positions = [path[:-1] for path in paths]
    speeds = [[k * term for k, term in enumerate(path[1:], start=1)] for path in paths]
    slopes = _compose(velocity, positions + speeds)
    return [[term / k for k, term in enumerate(slope, start=1)] for slope in slopes]
