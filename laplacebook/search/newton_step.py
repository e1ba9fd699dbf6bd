"""One damped Newton step: where to look next, and what to make of what was seen there.

Pure functions of a state, so that the log joint may be evaluated within a compiled loop
(:mod:`laplacebook.search.newton`) or by a pass over data that are not in memory.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from laplacebook.base.namespace import Numbers, branch, larger, lazily, namespace, select
from laplacebook.gaussian.precision import Precision
from laplacebook.search.metric import (
    Curvature,
    Metric,
    decrement,
    has_hessian,
    metric_at,
    probe,
    product,
    tolerance,
)

MAX_ITERATIONS = 1000
ACCEPTANCE = 1e-4  # of the predicted decrease
NEAR = 1  # posterior standard deviations: a curvature from there serves to the end
CLOSE = 1e-3  # of f: so near the minimum a smaller slope says more than the rounded values of f
STEADY = 0.1  # largest relative change of the curvature over a probe that counts as regular
_PATIENCE = 100  # iterations, before a fall as on a plane is one without end
_LINEAR = 1e-6  # of the predicted decrease
_OVERDAMPED = 1e30  # a step so damped leads nowhere
JUMP = 0.01  # of f over a probe: more than rounding makes where f is a sum of large terms


class Seen(NamedTuple):
    """How much f, and its gradient in posterior standard deviations, change over a probe."""

    rise: Numbers
    bend: Numbers


class State(NamedTuple):
    """Where a search stands."""

    x: Numbers
    f: Numbers
    beside: Any
    gradient: Numbers
    hessian: Curvature  # at x if exact, else where it was last evaluated
    exact: Numbers
    metric: Metric  # by that Hessian
    inverse: Numbers | None  # an estimate of the inverse curvature at x in that metric
    decrement: Numbers
    damping: Numbers
    growth: Numbers
    side: Numbers  # of x on which the next probe looks
    seen: Seen  # by the last probe
    iteration: Numbers
    certified: Numbers
    stuck: Numbers  # no step can change x, or f falls without end


class Look(NamedTuple):
    """f, what it returns beside, and its derivatives at a point; the Hessian for few coordinates."""

    f: Numbers
    beside: Any
    gradient: Numbers
    hessian: Curvature | None


class Step(NamedTuple):
    """Where to look next.

    Attributes:
        x: the point, shape (D,).
        move: the way to it, unrounded, shape (D,).
        predicted: the decrease of f that the quadratic model predicts.
        probing: whether it is a look beside a point that may be the minimum, and no step.
    """

    x: Numbers
    move: Numbers
    predicted: Numbers
    probing: Numbers


class Verdict(NamedTuple):
    """What was seen there.

    Attributes:
        accept: whether the search goes there.
        renew: whether the Hessian is to be computed where the search stands after it.
        ratio: of the actual to the predicted decrease.
        seen: over the probe.
        certified: whether the point is a minimum.
        stuck: whether no step can change it, or f falls there as on a plane, after many steps.
    """

    accept: Numbers
    renew: Numbers
    ratio: Numbers
    seen: Seen
    certified: Numbers
    stuck: Numbers


def initial_state(
    start: Float[Numbers, " D"],
    beside: Any,
    identity: Curvature | None = None,
    estimated: bool | None = None,
) -> State:
    """A state without a slope, whose first step has length zero and evaluates the start.

    Args:
        start: shape (D,).
        beside: what has the shape of what f returns beside its value.
        identity: of the kind that the Hessian is; by default a matrix.
        estimated: whether the curvature is estimated in between from the gradients; by default where a Hessian
            costs many of them.
    """
    xp, zero = namespace(start), namespace(start).zeros_like(start)
    identity = xp.eye(start.size, dtype=start.dtype) if identity is None else identity
    estimated = not has_hessian(start) if estimated is None else estimated
    no, one = xp.zeros((), bool), xp.ones((), start.dtype)
    return State(
        x=start,
        f=xp.inf * one,
        beside=beside,
        gradient=zero,
        hessian=identity,
        exact=no,
        metric=metric_at(identity),
        inverse=xp.eye(start.size, dtype=start.dtype) if estimated else None,
        decrement=xp.inf * one,
        damping=0 * one,
        growth=2 * one,
        side=one,
        seen=Seen(0 * one, zero),
        iteration=xp.zeros((), int),
        certified=no,
        stuck=no,
    )


def unfinished(state: State) -> Numbers:
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
    xp = namespace(x)
    enough = tolerance(metric, state.x)
    probing, predicted = step.probing, step.predicted
    finite = _finite(look)
    decrease = state.f - look.f
    noise = 10 * jnp.finfo(x.dtype).eps * larger(abs(look.f), 1)
    # How far the minimum is after the step, by the curvature before it.
    slope = metric.whiten(look.gradient)
    left = _distance(slope, state.inverse)
    close = metric.regular & (predicted <= larger(noise, CLOSE))
    ratio = select(close & (left < state.decrement / 2), 1 + 0 * noise, decrease / predicted)
    accept = finite & ((ratio > ACCEPTANCE) | first) & ~probing

    seen = Seen(-decrease, slope - metric.whiten(state.gradient))
    parabola = lazily(
        ~probing | (state.side > 0),
        lambda: np.True_,
        lambda: _is_parabola(predicted, enough, noise, state.seen, seen),
    )
    certified = probing & finite & parabola & (state.side < 0)
    failed = ~finite | ~parabola
    endless = (state.iteration >= _PATIENCE) & ~metric.regular & (state.damping == 0)
    endless &= (predicted > NEAR) & (xp.abs(ratio - 1) < _LINEAR)
    nowhere = endless | (x == state.x).all() | (state.damping > _OVERDAMPED)
    stuck = select(first, ~finite, select(probing, failed, nowhere))

    slow = (left > 0.9 * state.decrement) | (ratio < 0.25) | (state.damping > 0) | ~metric.regular
    arrives = (left < enough / 4) | ((left < NEAR) & (state.decrement >= NEAR))
    known = state.inverse is None
    # A step that failed by an estimated curvature is tried again with the Hessian.
    renew = select(accept, first | slow | arrives | known, ~(state.exact | probing))
    return Verdict(accept, renew, ratio, seen, certified, stuck & (state.exact | first))


def point_after(state: State, step: Step, verdict: Verdict) -> Float[Numbers, " D"]:
    """Where the search stands after a step: there, or where it was."""
    return select(verdict.accept, step.x, state.x)


def conclude(state: State, step: Step, look: Look, verdict: Verdict, hessian: Curvature) -> State:
    """The state after a step, with the Hessian that the verdict asked for."""
    first, probing, accept = state.iteration == 0, step.probing, verdict.accept
    hold = first | probing | (~accept & ~state.exact)
    damping, growth = _damping(state, accept, verdict.ratio, hold)
    x, value, beside, gradient = select(
        accept,
        (step.x, look.f, look.beside, look.gradient),
        (state.x, state.f, state.beside, state.gradient),
    )
    renew = verdict.renew
    metric = branch(renew, lambda: metric_at(hessian), lambda: state.metric)
    moved = state.metric.lengths(step.move)
    inverse = _inverse(state, accept, renew, moved, verdict.seen.bend)

    def estimate() -> Numbers:
        return _distance(metric.whiten(gradient), inverse)

    return State(
        x=x,
        f=value,
        beside=beside,
        gradient=gradient,
        hessian=hessian,
        exact=renew | (state.exact & ~accept),
        metric=metric,
        inverse=inverse,
        decrement=lazily(
            renew,
            lambda: decrement(metric, x, gradient),
            lambda: lazily(accept, estimate, lambda: state.decrement),
        ),
        damping=damping,
        growth=growth,
        side=select(probing, -state.side, abs(state.side)),
        seen=verdict.seen,
        iteration=state.iteration + 1,
        certified=verdict.certified,
        stuck=verdict.stuck,
    )


def _step(state: State, probing: Numbers) -> tuple[Numbers, Numbers]:
    """The probe or the next step, and the decrease of f that the quadratic model predicts."""
    metric = state.metric
    step = lazily(
        probing,
        lambda: metric.unwhiten(state.side * probe(state.x)),
        lambda: metric.step(state.gradient, state.damping),
    )
    predicted = -step @ (state.gradient + product(state.hessian, step) / 2)
    if state.inverse is None:
        return step, predicted
    lengths = -state.inverse @ metric.whiten(state.gradient)
    estimated = -lengths @ metric.whiten(state.gradient) / 2
    return select(state.exact, (step, predicted), (metric.unwhiten(lengths), estimated))


def _distance(slope: Numbers, inverse: Numbers | None) -> Numbers:
    xp = namespace(slope)
    return xp.linalg.norm(slope) if inverse is None else xp.sqrt(slope @ inverse @ slope)


def _finite(look: Look) -> Numbers:
    xp = namespace(look.gradient)
    hessian = look.hessian
    if isinstance(hessian, Precision):  # of which the factor may be NaN
        hessian = hessian.matvec(xp.ones_like(look.gradient))
    finite = xp.isfinite(look.f) & xp.isfinite(look.gradient).all()
    return finite if hessian is None else finite & xp.isfinite(hessian).all()


def _inverse(
    state: State, accept: Numbers, renew: Numbers, step: Numbers, change: Numbers
) -> Numbers | None:
    """The identity where the Hessian is known, else what explains the change of the slope (BFGS)."""
    if state.inverse is None:
        return None
    xp = namespace(step)
    seen, moved = step @ change, state.inverse @ change
    cross = xp.outer(step, moved)
    update = (1 + change @ moved / seen) * xp.outer(step, step) - cross - cross.T
    usable = accept & (seen > STEADY * (step @ step))
    updated = xp.where(usable, state.inverse + update / seen, state.inverse)
    return xp.where(renew, xp.eye(step.size, dtype=step.dtype), updated)


def _is_parabola(
    predicted: Numbers, enough: Numbers, noise: Numbers, ahead: Seen, behind: Seen
) -> Numbers:
    """Whether the probes on both sides found the parabola; their mean is free of odd terms."""
    rise = (ahead.rise + behind.rise) / 2
    xp = namespace(rise)
    return is_straight(ahead.bend, behind.bend, enough) & (xp.abs(rise + predicted) <= JUMP + noise)


def is_straight(
    ahead: Float[Numbers, " D"], behind: Float[Numbers, " D"], enough: Numbers | float
) -> Bool[Numbers, ""]:
    """Whether the gradient changes over a probe as it does on a parabola.

    Args:
        ahead: by how much it changes, in posterior standard deviations, shape (D,).
        behind: to the other side.
        enough: the decrement that is small enough.
    """
    xp = namespace(ahead)
    bend, shared = (ahead - behind) / 2, (ahead + behind) / 2
    size = probe(bend)
    straight = xp.abs(bend - size) <= STEADY * xp.abs(size) + 4 * enough
    # What both sides share: a gradient that is wrong at x alone, where kinks of two terms cancel.
    right = xp.abs(shared) <= xp.abs(size) + 4 * enough
    return (straight & right).all()


def _damping(
    state: State, accept: Numbers, ratio: Numbers, hold: Numbers
) -> tuple[Numbers, Numbers]:
    """Less damping where the model predicted well, faster and faster more where it failed."""
    damping, growth = state.damping, state.growth
    good = select(damping < 1e-4, 0 * damping, damping / 5)
    poor = select(ratio > 0.25, damping, larger(2 * damping, 0.01 + 0 * damping))
    kept = select(ratio > 0.75, good, poor)
    new = select(accept, kept, larger(damping * growth, 0.1 + 0 * damping))
    two = 2 + 0 * growth
    return select(hold, damping, new), select(hold, growth, select(accept, two, 2 * growth))
