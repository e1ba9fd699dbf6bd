"""Find the mode: damped Newton steps in units of the curvature, and a certificate.

Everything is measured in coordinates scaled by the diagonal of the Hessian, so the search and its
certificate do not depend on the units of the parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from laplacebook.curvature import value_gradient_hessian
from laplacebook.precision import Leaf

__all__ = ["Certificate", "Mode", "find_mode"]

MAX_ITERATIONS = 200
ACCEPTANCE = 1e-4  # of the predicted decrease
STEADY = 0.1  # largest change of the curvature over a step that counts as regular
PROBE = 0.01  # posterior standard deviations


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["converged", "newton_decrement", "iterations", "condition_number"],
    meta_fields=[],
)
@dataclass(frozen=True)
class Certificate:
    """How far a point is from the mode, and whether that is near enough.

    Attributes:
        converged: the Newton decrement is at most the square root of the machine precision, the
            precision matrix is positive definite beyond rounding, and the last step (or, where
            none was needed, one of a hundredth of a standard deviation) changes it by less than
            a tenth: on the way to a mode at infinity every step changes it by more.
        newton_decrement: sqrt(g' A^-1 g), the distance to the mode in posterior standard deviations.
        iterations: evaluations of the log joint with its gradient and Hessian.
        condition_number: of A scaled to a unit diagonal, so that units do not matter; infinite
            where A is not positive definite.
    """

    converged: Leaf
    newton_decrement: Leaf
    iterations: Leaf
    condition_number: Leaf

    def __repr__(self) -> str:
        if isinstance(self.converged, jax.core.Tracer) or jnp.ndim(self.converged):
            return f"Certificate(converged={self.converged})"
        return (
            f"{'mode certified' if self.converged else 'NO MODE'}: Newton decrement "
            f"{self.newton_decrement:.0e}, condition number {self.condition_number:.2g}, "
            f"{self.iterations} iterations"
        )


class Mode(NamedTuple):
    """Where a search ended.

    Attributes:
        point: the point, shape (D,).
        beside: what f returns there beside its value.
        hessian: the Hessian of f there, shape (D, D).
        certificate: whether it is a mode.
    """

    point: Float[Array, " D"]
    beside: Any
    hessian: Float[Array, "D D"]
    certificate: Certificate


class _Eigen(NamedTuple):
    """The Hessian in units of its own diagonal: S H S = V diag(values) V', and V' S g.

    Below ``floor`` an eigenvalue cannot be told from zero; the decrement is infinite if one is.
    """

    scale: Array
    values: Array
    vectors: Array
    slope: Array
    floor: Array
    decrement: Array


class _State(NamedTuple):
    x: Array
    f: Array
    beside: Any
    hessian: Array
    eigen: _Eigen
    damping: Array
    growth: Array
    side: Array  # of the point that the next probe looks at
    iteration: Array
    steady: Array  # the last step left the curvature as it was
    stuck: Array  # no step can change x


def find_mode(
    f: Callable[..., tuple[Array, Any]], start: Float[Array, " D"], *parameters: Any
) -> Mode:
    """The minimum of f that a damped Newton search reaches from ``start``.

    Each step minimises the quadratic model with the absolute eigenvalues of the Hessian plus a
    damping that follows the ratio of actual to predicted decrease (Levenberg 1944, Marquardt 1963);
    where the curvature is negative it moves along it, so a saddle does not hold the search.
    ``jit``- and ``vmap``-able; derivatives with respect to the parameters, and to real arrays that
    f closes over, go through the minimum by the implicit function theorem. Where there is no
    minimum they are NaN.

    Args:
        f: a twice differentiable function of a vector of shape (D,), and of the parameters, that
            returns a scalar and, beside it, a pytree of arrays.
        start: where the search begins, shape (D,).
        parameters: pytrees of arrays, integer ones included, on which f depends.

    Returns:
        A :class:`Mode`. Nothing is raised: the certificate says whether there is a mode.
    """
    closed, constants = jax.closure_convert(f, start, *parameters)
    point, beside, hessian, certified = _find_mode(closed, start, (*parameters, *constants))
    return Mode(point, beside, hessian, Certificate(*certified))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _find_mode(f: Callable, start: Array, constants: Any) -> tuple:
    def at(x: Array) -> tuple[Array, Any, Array, _Eigen]:
        value, beside, gradient, hessian = value_gradient_hessian(lambda x: f(x, *constants), x)
        return value, beside, hessian, _eigen(gradient, hessian)

    _, beside = jax.eval_shape(lambda x: f(x, *constants), start)
    final = lax.while_loop(_unfinished, partial(_iterate, at), _initial(start, beside))
    smallest, largest = final.eigen.values[0], final.eigen.values[-1]
    condition = jnp.where(smallest > final.eigen.floor, largest / smallest, jnp.inf)
    certified = (_converged(final), final.eigen.decrement, final.iteration, condition)
    return final.x, final.beside, final.hessian, certified


@_find_mode.defjvp
def _find_mode_jvp(f: Callable, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
    start, constants = primals
    point, beside, hessian, certified = _find_mode(f, start, constants)

    loud = jnp.where(certified[0], 1, jnp.nan)
    real = jax.tree.map(lambda t: t if t.dtype == jax.dtypes.float0 else t * loud, tangents[1])

    def derivative(g: Callable, d_point: Array) -> Any:
        return jax.jvp(g, (point, constants), (d_point, real))[1]

    def value(x: Array, c: Any) -> Array:
        return f(x, *c)[0]

    factor = jax.scipy.linalg.cho_factor(hessian, lower=True)
    d_gradient = derivative(jax.grad(value), jnp.zeros_like(point))
    d_point = -jax.scipy.linalg.cho_solve(factor, d_gradient)
    d_beside = derivative(lambda x, c: f(x, *c)[1], d_point)
    d_hessian = derivative(jax.hessian(value), d_point)
    d_certified = tuple(_no_tangent(x) for x in certified)
    return (point, beside, hessian, certified), (d_point, d_beside, d_hessian, d_certified)


def _no_tangent(x: Array) -> Any:
    if jnp.issubdtype(x.dtype, jnp.inexact):
        return jnp.zeros_like(x)
    return np.zeros(x.shape, jax.dtypes.float0)


def _initial(start: Array, beside: Any) -> _State:
    """A state whose first step has length zero, so that the first iteration evaluates the start."""
    identity, ones = jnp.eye(start.size, dtype=start.dtype), jnp.ones_like(start)
    no, one = jnp.zeros((), bool), jnp.ones((), start.dtype)
    beside = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), beside)
    eigen = _Eigen(ones, ones, identity, 0 * ones, 0 * one, one)
    return _State(
        start,
        jnp.inf * one,
        beside,
        identity,
        eigen,
        0 * one,
        2 * one,
        one,
        jnp.zeros((), int),
        no,
        no,
    )


def _unfinished(state: _State) -> Array:
    return ~_converged(state) & ~state.stuck & (state.iteration < MAX_ITERATIONS)


def _converged(state: _State) -> Array:
    return _small(state.eigen.decrement) & state.steady


def _iterate(at: Callable, state: _State) -> _State:
    first = state.iteration == 0
    # Stationary, but the last step changed the curvature (or there was none): look around once.
    probing = _small(state.eigen.decrement) & ~first
    step, predicted = _step(state.eigen, state.damping, probing * state.side)
    x = state.x + step
    # A branch, because XLA would otherwise compute the model again in each expression that uses it.
    nowhere = (jnp.nan * state.f, state.beside, state.hessian, state.eigen)
    f, beside, hessian, eigen = lax.cond(jnp.all(jnp.isfinite(x)), at, lambda _: nowhere, x)
    finite = jnp.isfinite(f) & jnp.all(jnp.isfinite(hessian)) & jnp.all(jnp.isfinite(eigen.slope))
    noise = 10 * jnp.finfo(x.dtype).eps * jnp.maximum(jnp.abs(f), 1)
    decrease = state.f - f
    ratio = jnp.where((predicted <= noise) & (decrease >= -noise), 1, decrease / predicted)
    accept = finite & ((ratio > ACCEPTANCE) | first) & ~probing
    still = jnp.all(x == state.x)
    scale = state.eigen.scale
    change = jnp.max(jnp.abs(scale[:, None] * (hessian - state.hessian) * scale))
    steady = finite & ~first & ~still & (change < STEADY)
    # A probe has to find the parabola on both sides: a kink or a jump has no Hessian to show it.
    steady &= ~probing | (jnp.abs(decrease - predicted) <= jnp.abs(predicted) / 2 + noise)
    stuck = jnp.where(first, ~finite, still | (probing & ~steady))
    damping, growth = _damping(state, accept, ratio)
    side = jnp.where(probing, -state.side, 1)
    counted = state.iteration + 1
    new = _State(x, f, beside, hessian, eigen, damping, growth, side, counted, steady, stuck)
    old = state._replace(
        damping=damping,
        growth=growth,
        side=side,
        iteration=counted,
        steady=steady & probing & (side > 0),
        stuck=stuck,
    )
    return lax.cond(accept, lambda: new, lambda: old)


def _eigen(gradient: Array, hessian: Array) -> _Eigen:
    """Scaled eigendecomposition; a Hessian that is not finite gives one that no step will use."""
    diagonal = jnp.abs(jnp.diagonal(hessian))
    scale = jnp.where(diagonal > 0, lax.rsqrt(diagonal), 1)
    scaled = scale[:, None] * hessian * scale
    usable = jnp.all(jnp.isfinite(scaled))
    identity = jnp.eye(scale.size, dtype=scale.dtype)
    values, vectors = jnp.linalg.eigh(jnp.where(usable, scaled, identity))
    slope = vectors.T @ (scale * gradient)
    limits, largest = jnp.finfo(values.dtype), jnp.maximum(-values[0], values[-1])
    floor = jnp.maximum(10 * values.size * limits.eps * largest, limits.tiny)
    squares = slope**2 / jnp.maximum(values, floor)
    decrement = jnp.where(values[0] > floor, jnp.sqrt(jnp.sum(squares)), jnp.inf)
    return _Eigen(scale, values, vectors, slope, floor, decrement)


def _step(eigen: _Eigen, damping: Array, probe: Array) -> tuple[Array, Array]:
    """The damped step, and the decrease of f that the quadratic model predicts for it.

    The probe is no step of the search. Far out on a tail all is flat and looks stationary; a
    hundredth of a standard deviation away it does not look the same.
    """
    curvature = jnp.maximum(jnp.abs(eigen.values), eigen.floor)
    step = -eigen.slope / (curvature + damping)
    upward = eigen.values[0] < -eigen.floor
    away = -jnp.where(eigen.slope[0] < 0, -1, 1) * jnp.maximum(jnp.abs(step[0]), 1 / (1 + damping))
    step = step.at[0].set(jnp.where(upward, away, step[0]))
    step = jnp.where(probe != 0, probe * PROBE * lax.rsqrt(curvature), step)
    predicted = -jnp.sum(step * (eigen.slope + eigen.values * step / 2))
    return eigen.scale * (eigen.vectors @ step), predicted


def _damping(state: _State, accept: Array, ratio: Array) -> tuple[Array, Array]:
    """Less damping where the model predicted well, faster and faster more where it failed."""
    damping, growth = state.damping, state.growth
    good = jnp.where(damping < 1e-4, 0, damping / 5)
    kept = jnp.where(
        ratio > 0.75, good, jnp.where(ratio > 0.25, damping, jnp.maximum(2 * damping, 0.01))
    )
    more = jnp.maximum(damping * growth, 0.1)
    return jnp.where(accept, kept, more), jnp.where(accept, 2, 2 * growth)


def _small(decrement: Array) -> Array:
    return decrement <= jnp.sqrt(jnp.finfo(decrement.dtype).eps)
