"""One damped Newton step: where to look next, and what to make of what was seen there.

Pure functions of a state, so that the log joint may be evaluated within a compiled loop
(:mod:`laplacebook.search.newton`) or by a pass over data that are not in memory.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from laplacebook.search.metric import FEW, Metric, decrement, metric_at, probe, tolerance

MAX_ITERATIONS = 1000
ACCEPTANCE = 1e-4  # of the predicted decrease
NEAR = 1  # posterior standard deviations: a curvature from there serves to the end
CLOSE = 1e-3  # of f: so near the minimum a smaller slope says more than the rounded values of f
STEADY = 0.1  # largest relative change of the curvature over a probe that counts as regular
JUMP = 0.01  # of f over a probe: more than rounding makes where f is a sum of large terms


class Seen(NamedTuple):
    """How much f, and its gradient in posterior standard deviations, change over a probe."""

    rise: Array
    bend: Array


class State(NamedTuple):
    """Where a search stands."""

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
    seen: Seen  # by the last probe
    iteration: Array
    certified: Array
    stuck: Array  # no step can change x


class Look(NamedTuple):
    """f, what it returns beside, and its derivatives at a point; the Hessian for few coordinates."""

    f: Array
    beside: Any
    gradient: Array
    hessian: Array | None


class Step(NamedTuple):
    """Where to look next.

    Attributes:
        x: the point, shape (D,).
        move: the way to it, unrounded, shape (D,).
        predicted: the decrease of f that the quadratic model predicts.
        probing: whether it is a look beside a point that may be the minimum, and no step.
    """

    x: Array
    move: Array
    predicted: Array
    probing: Array


class Verdict(NamedTuple):
    """What was seen there.

    Attributes:
        accept: whether the search goes there.
        renew: whether the Hessian is to be computed where the search stands after it.
        ratio: of the actual to the predicted decrease.
        seen: over the probe.
        certified: whether the point is a minimum.
        stuck: whether no step can change it.
    """

    accept: Array
    renew: Array
    ratio: Array
    seen: Seen
    certified: Array
    stuck: Array


def initial_state(start: Array, beside: Any) -> State:
    """A state without a slope, whose first step has length zero and evaluates the start."""
    identity, zero = jnp.eye(start.size, dtype=start.dtype), jnp.zeros_like(start)
    no, one = jnp.zeros((), bool), jnp.ones((), start.dtype)
    return State(
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
        seen=Seen(0 * one, zero),
        iteration=jnp.zeros((), int),
        certified=no,
        stuck=no,
    )


def unfinished(state: State) -> Array:
    """Whether there is another step to make."""
    return ~state.certified & ~state.stuck & (state.iteration < MAX_ITERATIONS)


def next_step(state: State) -> Step:
    """Where to look next: the damped Newton step, or a probe beside the point."""
    probing = state.exact & (state.decrement <= tolerance(state.metric, state.x))
    step, predicted = _step(state, probing)
    return Step(state.x + step, step, predicted, probing)


def judge(state: State, step: Step, look: Look) -> Verdict:
    """What to make of f and its derivatives at ``step.x``."""
    first, metric, x = state.iteration == 0, state.metric, step.x
    enough = tolerance(metric, state.x)
    probing, predicted = step.probing, step.predicted
    finite = _finite(look)
    decrease = state.f - look.f
    noise = 10 * jnp.finfo(x.dtype).eps * jnp.maximum(jnp.abs(look.f), 1)
    # How far the minimum is after the step, by the curvature before it.
    slope = metric.whiten(look.gradient)
    left = _distance(slope, state.inverse)
    close = metric.regular & (predicted <= jnp.maximum(CLOSE, noise))
    ratio = jnp.where(close & (left < state.decrement / 2), 1, decrease / predicted)
    accept = finite & ((ratio > ACCEPTANCE) | first) & ~probing

    seen = Seen(-decrease, slope - metric.whiten(state.gradient))
    parabola = (state.side > 0) | _is_parabola(predicted, enough, noise, state.seen, seen)
    certified = probing & finite & parabola & (state.side < 0)
    failed = ~finite | ~parabola
    stuck = jnp.where(first, ~finite, jnp.where(probing, failed, jnp.all(x == state.x)))

    slow = (left > 0.9 * state.decrement) | (ratio < 0.25) | (state.damping > 0) | ~metric.regular
    arrives = (left < enough / 4) | ((left < NEAR) & (state.decrement >= NEAR))
    # A step that failed by an estimated curvature is tried again with the Hessian.
    renew = jnp.where(accept, first | slow | arrives | (x.size <= FEW), ~(state.exact | probing))
    return Verdict(accept, renew, ratio, seen, certified, stuck & (state.exact | first))


def point_after(state: State, step: Step, verdict: Verdict) -> Float[Array, " D"]:
    """Where the search stands after a step: there, or where it was."""
    return jnp.where(verdict.accept, step.x, state.x)


def conclude(
    state: State, step: Step, look: Look, verdict: Verdict, hessian: Float[Array, "D D"]
) -> State:
    """The state after a step, with the Hessian that the verdict asked for."""
    first, probing, accept = state.iteration == 0, step.probing, verdict.accept
    hold = first | probing | (~accept & ~state.exact)
    damping, growth = _damping(state, accept, verdict.ratio, hold)
    x, value, beside, gradient = jax.tree.map(
        lambda new, old: jnp.where(accept, new, old),
        (step.x, look.f, look.beside, look.gradient),
        (state.x, state.f, state.beside, state.gradient),
    )
    renew = verdict.renew
    metric = lax.cond(renew, lambda: metric_at(hessian), lambda: state.metric)
    moved = state.metric.lengths(step.move)
    inverse = _inverse(state, accept, renew, moved, verdict.seen.bend)
    estimate = jnp.where(accept, _distance(metric.whiten(gradient), inverse), state.decrement)
    return State(
        x=x,
        f=value,
        beside=beside,
        gradient=gradient,
        hessian=hessian,
        exact=renew | (state.exact & ~accept),
        metric=metric,
        inverse=inverse,
        decrement=jnp.where(renew, decrement(metric, x, gradient), estimate),
        damping=damping,
        growth=growth,
        side=jnp.where(probing, -state.side, 1),
        seen=verdict.seen,
        iteration=state.iteration + 1,
        certified=verdict.certified,
        stuck=verdict.stuck,
    )


def _step(state: State, probing: Array) -> tuple[Array, Array]:
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


def _finite(look: Look) -> Array:
    parts = (look.f, look.gradient, look.hessian)
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in parts if x is not None]))


def _inverse(state: State, accept: Array, renew: Array, step: Array, change: Array) -> Array | None:
    """The identity where the Hessian is known, else what explains the change of the slope (BFGS)."""
    if state.inverse is None:
        return None
    seen, moved = step @ change, state.inverse @ change
    cross = jnp.outer(step, moved)
    update = (1 + change @ moved / seen) * jnp.outer(step, step) - cross - cross.T
    usable = accept & (seen > STEADY * (step @ step))
    updated = jnp.where(usable, state.inverse + update / seen, state.inverse)
    return jnp.where(renew, jnp.eye(step.size, dtype=step.dtype), updated)


def _is_parabola(predicted: Array, enough: Array, noise: Array, ahead: Seen, behind: Seen) -> Array:
    """Whether the probes on both sides found the parabola; their mean is free of odd terms."""
    rise, bend = (ahead.rise + behind.rise) / 2, (ahead.bend - behind.bend) / 2
    size, shared = probe(bend), (ahead.bend + behind.bend) / 2
    straight = jnp.abs(bend - size) <= STEADY * jnp.abs(size) + 4 * enough
    # What both sides share: a gradient that is wrong at x alone, where kinks of two terms cancel.
    right = jnp.abs(shared) <= jnp.abs(size) + 4 * enough
    return jnp.all(straight & right) & (jnp.abs(rise + predicted) <= JUMP + noise)


def _damping(state: State, accept: Array, ratio: Array, hold: Array) -> tuple[Array, Array]:
    """Less damping where the model predicted well, faster and faster more where it failed."""
    damping, growth = state.damping, state.growth
    good = jnp.where(damping < 1e-4, 0, damping / 5)
    poor = jnp.where(ratio > 0.25, damping, jnp.maximum(2 * damping, 0.01))
    kept = jnp.where(ratio > 0.75, good, poor)
    new = jnp.where(accept, kept, jnp.maximum(damping * growth, 0.1))
    return jnp.where(hold, damping, new), jnp.where(hold, growth, jnp.where(accept, 2, 2 * growth))
