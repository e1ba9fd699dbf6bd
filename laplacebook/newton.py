"""Damped Newton steps until the certificate holds."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from laplacebook.curvature import value_gradient_hessian
from laplacebook.metric import FEW, Metric, decrement, metric_at, probe, tolerance

__all__ = ["MAX_ITERATIONS", "Search", "newton"]

MAX_ITERATIONS = 1000
ACCEPTANCE = 1e-4  # of the predicted decrease
NEAR = 1  # posterior standard deviations: a curvature from there serves to the end
KEPT, ROUGH, EXACT = 0, 1, 2  # the Hessian after a step
CLOSE = 1e-3  # of f: so near the minimum a smaller slope says more than the rounded values of f
STEADY = 0.1  # largest relative change of the curvature over a probe that counts as regular
JUMP = 0.01  # of f over a probe: more than rounding makes where f is a sum of large terms


class Search(NamedTuple):
    """Where a search ended, and what is known there.

    Attributes:
        point: shape (D,).
        beside: what f returns there beside its value.
        hessian: the Hessian of f there, shape (D, D); an estimate of it if not converged.
        converged: whether the point is certified to be a minimum.
        newton_decrement: its distance from the minimum in posterior standard deviations.
        condition_number: of the Hessian scaled to unit diagonal; infinite if that is singular.
        iterations: how often f and its gradient were evaluated.
    """

    point: Array
    beside: Any
    hessian: Array
    converged: Array
    newton_decrement: Array
    condition_number: Array
    iterations: Array


class _Seen(NamedTuple):
    """How much f, and its gradient in posterior standard deviations, change over a probe."""

    rise: Array
    bend: Array


class _State(NamedTuple):
    x: Array
    f: Array
    beside: Any
    gradient: Array
    hessian: Array  # at x if exact, else where it was last evaluated
    exact: Array
    metric: Metric  # by that Hessian
    inverse: Array | None  # an estimate of the inverse curvature at x in that metric
    decrement: Array
    damping: Array
    growth: Array
    side: Array  # of x on which the next probe looks
    seen: _Seen  # by the last probe
    iteration: Array
    certified: Array
    stuck: Array  # no step can change x


class _Look(NamedTuple):
    f: Array
    beside: Any
    gradient: Array
    hessian: Array | None


def newton(
    f: Callable[[Array], tuple[Array, Any]],
    start: Float[Array, " D"],
    rough_hessian: Callable[[Array], Array] | None = None,
) -> Search:
    """The minimum of f that damped Newton steps reach from ``start``.

    Each step minimises the quadratic model with the absolute eigenvalues of the Hessian plus a
    damping that follows the ratio of actual to predicted decrease (Levenberg 1944, Marquardt 1963);
    where the curvature is negative it moves along it, so a saddle does not hold the search. With
    many coordinates a Hessian costs many gradients: there the steps in between update it from the
    gradients (BFGS), as long as each step brings it nearer, and a rough Hessian will do until the
    last one.

    The last step is followed by a short look to both sides: where f and its gradient do not follow
    the parabola (a kink, a jump, a quartic, a tail on the way to a minimum at infinity) nothing is
    certified.

    Args:
        f: a twice differentiable function of a vector of shape (D,) that returns a scalar and,
            beside it, a pytree of arrays.
        start: where the search begins, shape (D,).
        rough_hessian: the Hessian of f to a few digits, if that costs less: it serves on the way.

    Returns:
        A :class:`Search`. Nothing is raised: ``converged`` says whether there is a minimum.
    """

    def unfinished(state: _State) -> Array:
        return ~state.certified & ~state.stuck & (state.iteration < MAX_ITERATIONS)

    _, beside = jax.eval_shape(f, start)
    end = lax.while_loop(unfinished, partial(_iterate, f, rough_hessian), _initial(start, beside))
    return Search(
        end.x,
        end.beside,
        end.hessian,
        end.certified,
        end.decrement,
        end.metric.condition_number(),
        end.iteration,
    )


def _initial(start: Array, beside: Any) -> _State:
    """A state without a slope, whose first step has length zero and evaluates the start."""
    identity, zero = jnp.eye(start.size, dtype=start.dtype), jnp.zeros_like(start)
    no, one = jnp.zeros((), bool), jnp.ones((), start.dtype)
    return _State(
        x=start,
        f=jnp.inf * one,
        beside=jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), beside),
        gradient=zero,
        hessian=identity,
        exact=no,
        metric=metric_at(identity),
        inverse=None if start.size <= FEW else identity,
        decrement=jnp.inf * one,
        damping=0 * one,
        growth=2 * one,
        side=one,
        seen=_Seen(0 * one, zero),
        iteration=jnp.zeros((), int),
        certified=no,
        stuck=no,
    )


def _iterate(f: Callable, rough: Callable | None, state: _State) -> _State:
    first, metric = state.iteration == 0, state.metric
    enough = tolerance(metric, state.x)
    probing = state.exact & (state.decrement <= enough)
    step, predicted = _step(state, probing)
    x = state.x + step
    look = _look(f, x, state)
    finite = _finite(look)
    decrease = state.f - look.f
    noise = 10 * jnp.finfo(x.dtype).eps * jnp.maximum(jnp.abs(look.f), 1)
    # How far the minimum is after the step, by the curvature before it.
    slope = metric.whiten(look.gradient)
    left = _distance(slope, state.inverse)
    close = metric.regular & (predicted <= jnp.maximum(CLOSE, noise))
    ratio = jnp.where(close & (left < state.decrement / 2), 1, decrease / predicted)
    accept = finite & ((ratio > ACCEPTANCE) | first) & ~probing

    seen = _Seen(-decrease, slope - metric.whiten(state.gradient))
    parabola = (state.side > 0) | _is_parabola(predicted, enough, noise, state.seen, seen)
    certified = probing & finite & parabola & (state.side < 0)
    failed = ~finite | ~parabola
    stuck = jnp.where(first, ~finite, jnp.where(probing, failed, jnp.all(x == state.x)))

    slow = (left > 0.9 * state.decrement) | (ratio < 0.25) | (state.damping > 0) | ~metric.regular
    exactly = (~first & (slow | (left < enough / 4))) | (x.size <= FEW)
    roughly = first | ((left < NEAR) & (state.decrement >= NEAR))
    renewal = jnp.where(exactly, EXACT, jnp.where(roughly, ROUGH, KEPT))
    # A step that failed by an estimated curvature is tried again with the Hessian.
    renewal = jnp.where(accept, renewal, jnp.where(state.exact | probing, KEPT, EXACT))
    hold = first | probing | (~accept & ~state.exact)
    damping, growth = _damping(state, accept, ratio, hold)
    x, value, beside, gradient = jax.tree.map(
        lambda new, old: jnp.where(accept, new, old),
        (x, look.f, look.beside, look.gradient),
        (state.x, state.f, state.beside, state.gradient),
    )
    hessian, renew = _hessian(f, rough, x, look, renewal, state), renewal > KEPT
    metric = lax.cond(renew, lambda: metric_at(hessian), lambda: metric)
    inverse = _inverse(state, accept, renew, state.metric.lengths(step), seen.bend)
    estimate = jnp.where(accept, _distance(metric.whiten(gradient), inverse), state.decrement)
    return _State(
        x=x,
        f=value,
        beside=beside,
        gradient=gradient,
        hessian=hessian,
        exact=(renewal == EXACT) | (state.exact & ~accept),
        metric=metric,
        inverse=inverse,
        decrement=jnp.where(renew, decrement(metric, x, gradient), estimate),
        damping=damping,
        growth=growth,
        side=jnp.where(probing, -state.side, 1),
        seen=seen,
        iteration=state.iteration + 1,
        certified=certified,
        stuck=stuck & (state.exact | first),
    )


def _step(state: _State, probing: Array) -> tuple[Array, Array]:
    """The probe or the next step, and the decrease of f that the quadratic model predicts."""
    metric = state.metric
    step = jnp.where(
        probing,
        metric.unwhiten(state.side * probe(state.x)),
        metric.step(state.gradient, state.damping),
    )
    predicted = -step @ (state.gradient + state.hessian @ step / 2)
    if state.inverse is None:
        return step, predicted
    lengths = -state.inverse @ metric.whiten(state.gradient)
    estimated = -lengths @ metric.whiten(state.gradient) / 2
    return (
        jnp.where(state.exact, step, metric.unwhiten(lengths)),
        jnp.where(state.exact, predicted, estimated),
    )


def _distance(slope: Array, inverse: Array | None) -> Array:
    return jnp.linalg.norm(slope) if inverse is None else jnp.sqrt(slope @ inverse @ slope)


def _look(f: Callable, x: Array, state: _State) -> _Look:
    """f and its derivatives at x; NaN where x is not finite."""

    def at(x: Array) -> _Look:
        if x.size <= FEW:
            return _Look(*value_gradient_hessian(f, x))
        (value, beside), gradient = jax.value_and_grad(f, has_aux=True)(x)
        return _Look(value, beside, gradient, None)

    hessian = state.hessian if x.size <= FEW else None
    nowhere = _Look(jnp.nan * state.f, state.beside, state.gradient, hessian)
    # A branch, because XLA would otherwise compute the model again in each expression that uses it.
    return lax.cond(jnp.all(jnp.isfinite(x)), at, lambda _: nowhere, x)


def _finite(look: _Look) -> Array:
    parts = (look.f, look.gradient, look.hessian)
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in parts if x is not None]))


def _hessian(
    f: Callable, rough: Callable | None, x: Array, look: _Look, renewal: Array, state: _State
) -> Array:
    """The Hessian at x, exact or rough, or where it is not worth its price the last one."""
    if look.hessian is not None:
        return jnp.where(renewal == EXACT, look.hessian, state.hessian)

    def exact() -> Array:
        return value_gradient_hessian(f, x)[3]

    if rough is None:
        return lax.cond(renewal > KEPT, exact, lambda: state.hessian)
    return lax.switch(renewal, [lambda: state.hessian, lambda: rough(x), exact])


def _inverse(
    state: _State, accept: Array, renew: Array, step: Array, change: Array
) -> Array | None:
    """The identity where the Hessian is known, else what explains the change of the slope (BFGS)."""
    if state.inverse is None:
        return None
    seen, moved = step @ change, state.inverse @ change
    cross = jnp.outer(step, moved)
    update = (1 + change @ moved / seen) * jnp.outer(step, step) - cross - cross.T
    usable = accept & (seen > STEADY * (step @ step))
    updated = jnp.where(usable, state.inverse + update / seen, state.inverse)
    return jnp.where(renew, jnp.eye(step.size, dtype=step.dtype), updated)


def _is_parabola(
    predicted: Array, enough: Array, noise: Array, ahead: _Seen, behind: _Seen
) -> Array:
    """Whether the probes on both sides found the parabola; their mean is free of odd terms."""
    rise, bend = (ahead.rise + behind.rise) / 2, (ahead.bend - behind.bend) / 2
    size, shared = probe(bend), (ahead.bend + behind.bend) / 2
    straight = jnp.abs(bend - size) <= STEADY * jnp.abs(size) + 4 * enough
    # What both sides share: a gradient that is wrong at x alone, where kinks of two terms cancel.
    right = jnp.abs(shared) <= jnp.abs(size) + 4 * enough
    return jnp.all(straight & right) & (jnp.abs(rise + predicted) <= JUMP + noise)


def _damping(state: _State, accept: Array, ratio: Array, hold: Array) -> tuple[Array, Array]:
    """Less damping where the model predicted well, faster and faster more where it failed."""
    damping, growth = state.damping, state.growth
    good = jnp.where(damping < 1e-4, 0, damping / 5)
    poor = jnp.where(ratio > 0.25, damping, jnp.maximum(2 * damping, 0.01))
    kept = jnp.where(ratio > 0.75, good, poor)
    new = jnp.where(accept, kept, jnp.maximum(damping * growth, 0.1))
    return jnp.where(hold, damping, new), jnp.where(hold, growth, jnp.where(accept, 2, 2 * growth))
