"""The Taylor coefficients of a curve, pushed through the operations of a function.

A curve x(t) = x0 + x1 t + x2 t² + ... is kept as its *path*, the list ``[x0, x1, ..., xK]``, and
pushed through the operations of f one after the other, so that order K costs about K², not 2^K. The
common operations use the rules of ``jax.experimental.jet``. The others, loops, and functions with a
derivative rule of their own use d/dt f(x(t)) = f'(x(t)) x'(t), whose path is one shorter: repeated
jvp, of that operation alone. (``jet`` by itself has no rule for ``lgamma``, gives ``softplus`` a
slope of 0 at 0 instead of 1/2, and ``x**2.0`` a slope of NaN at -1.)
"""

import itertools
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.jet import jet
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal
from jaxtyping import Array, Float

from laplacebook.base.jaxprs import evaluate, without_idle
from laplacebook.base.pytrees import is_traced

Path = list[Any]

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
_BESSEL = {"bessel_i0e": 0, "bessel_i1e": 1}  # their orders
_ANGLES = np.pi * (np.arange(256) + 0.5) / 256


def coefficients_along(
    f: Callable, x0: Array, direction: Array, degree: int
) -> Float[Array, " terms"]:
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
