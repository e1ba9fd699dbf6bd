"""The rounds of a search without a Hessian: each in the metric of the point where it begins.

Pure functions of a state, so that what is between the rounds may be one program with them
(:mod:`laplacebook.search.lbfgs`) or done in NumPy (:mod:`laplacebook.search.driven_rounds`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from laplacebook.base.namespace import Numbers, branch, namespace, repeat_while
from laplacebook.curvature.eigenvalues import condition_number, ritz
from laplacebook.gaussian.precision import Precision
from laplacebook.search.certificate import Certificate, Search
from laplacebook.search.lbfgs_step import descend_by, descent_from, rounding_of
from laplacebook.search.newton_step import Look

ROUNDS = 100
STEPS = 100  # of L-BFGS in a round
STALLED = 3  # rounds that bring the point no nearer
EARLY = 10  # rounds before the pace of a search counts
NEAREST = 2**-9  # posterior standard deviations: so far from a saddle rounding hides the way down
KRYLOV = 10  # products of the Hessian with a vector that look for a way down from a saddle


class Rounds(NamedTuple):
    """Where a search stands after some rounds.

    Attributes:
        x: the point, shape (D,).
        f: the function there.
        beside: what it returns beside its value.
        gradient: shape (D,).
        precision: there.
        judge: a precision there that is closer to the Hessian, for the steps and the decrement; or None.
        decrement: the Newton decrement by that precision, and by the judge where that is larger.
        farthest: the largest one that was a number.
        best: the smallest one of which the next is to be a half.
        way: the direction of least curvature, where the decrement is small enough.
        lowest: that curvature in units of the precision; zero where it was not looked for.
        left: whether the last round left a saddle.
        waited: rounds that brought the point no nearer.
        rounds: made so far.
        iterations: steps of L-BFGS.
    """

    x: Numbers
    f: Numbers
    beside: Any
    gradient: Numbers
    precision: Any
    judge: Any
    decrement: Numbers
    farthest: Numbers
    best: Numbers
    way: Numbers
    lowest: Numbers
    left: Numbers
    waited: Numbers
    rounds: Numbers
    iterations: Numbers


def initial_rounds(
    start: Float[Numbers, " D"],
    nothing: Look,
    precision: Precision | None,
    judge: Precision | None = None,
) -> Rounds:
    """A state without a look, whose first round looks at the start; ``nothing`` has the shapes of one."""
    xp = namespace(start)
    none, infinite = xp.zeros((), int), xp.asarray(xp.inf, start.dtype)
    return Rounds(
        x=start,
        f=infinite,
        beside=nothing.beside,
        gradient=nothing.gradient,
        precision=precision,
        judge=judge,
        decrement=infinite,
        farthest=xp.zeros((), start.dtype),
        best=infinite,
        way=xp.zeros_like(start),
        lowest=xp.zeros((), start.dtype),
        left=xp.zeros((), bool),
        waited=none,
        rounds=none,
        iterations=none,
    )


def go_on(state: Rounds, tolerance: Numbers | float, patient: bool = False) -> Numbers:
    """Whether there is another round to make.

    Args:
        state: after the last one.
        tolerance: the Newton decrement that is small enough.
        patient: whether rounds cost so little that their pace does not count. Along a ridge the decrement stays as it
            is for many, and then falls to nothing in two.
    """
    xp = namespace(state.x)
    going = (state.rounds <= ROUNDS) & (state.waited < STALLED)
    going &= patient | ~_too_slow(state, tolerance)
    going &= ~(near(state, tolerance) & ((state.lowest >= 0) | xp.isnan(state.lowest)))
    return going & (xp.isfinite(state.f) | (state.rounds == 0))


def _too_slow(state: Rounds, tolerance: Numbers | float) -> Numbers:
    """Whether at its pace so far the decrement would not be small enough when the rounds are over."""
    xp = namespace(state.x)
    rounds = state.rounds - 1  # the first one is a look at the start
    with np.errstate(divide="ignore", invalid="ignore"):  # of a state without a decrement
        halved, left = xp.log2(state.farthest / state.best), xp.log2(state.best / tolerance)
        in_time = halved * (ROUNDS - rounds) >= left * rounds
    return (rounds >= EARLY) & xp.isfinite(state.best) & ~in_time


def near(state: Rounds, tolerance: Numbers | float) -> Numbers:
    """Whether this is a mode or a saddle."""
    return state.decrement <= tolerance


def leaves(state: Rounds, tolerance: Numbers | float) -> Numbers:
    """Whether the next round leaves a saddle; after a short way from one there are steps first, be it near or not."""
    return near(state, tolerance) & ~state.left


def downhill(value_at: Callable[[Numbers], Numbers], state: Rounds) -> Float[Numbers, " D"]:
    """Away from a saddle, to the side to which the slope points, if any: a standard deviation, or so far as it falls.

    Args:
        value_at: the function at a point.
        state: at a saddle.

    Returns:
        A point that is no higher than the saddle but for rounding: a standard deviation away, or a half, a quarter
        and so on of it. The last one tried, where none is.
    """
    xp = namespace(state.x)
    side = xp.where(state.gradient @ state.way > 0, 1, -1).astype(state.x.dtype)
    noise = rounding_of(state.f)

    def point(length: Numbers) -> Numbers:
        return state.x - length * state.way * side

    def halve(tried: tuple[Numbers, Numbers]) -> tuple[Numbers, Numbers]:
        length = tried[0] / 2
        return length, value_at(point(length)) < state.f + noise

    twice = 2 * abs(side), abs(side) < 0
    return point(repeat_while(lambda tried: ~tried[1] & (tried[0] > NEAREST), halve, twice)[0])


def round_from(
    look_at: Callable[[Numbers], tuple[Numbers, Numbers]],
    state: Rounds,
    tolerance: Numbers | float,
    metric: Precision | None = None,
) -> tuple[Float[Numbers, " D"], Int[Numbers, ""]]:
    """One round: where it ends, and how many steps led there.

    In coordinates z, x + R'^-1 z with A = R R' the metric; where there is none, in those in which
    the gradient has at most the length one.

    Args:
        look_at: the function and its gradient at a point.
        state: where the round begins.
        tolerance: the Newton decrement that is small enough.
        metric: a precision there that is closer to the Hessian than that of the state, such as its
            judge; where it is not positive definite, and by default, that of the state.
    """
    x, gradient = state.x, state.gradient
    xp, precision, distance = namespace(x), state.precision, state.decrement
    whitened, half_solve = precision.whitened, precision.half_solve
    if metric is not None:
        by_metric = xp.linalg.norm(metric.half_solve(gradient))
        better = xp.isfinite(by_metric)
        distance = xp.where(better, by_metric, distance)
        whitened, half_solve = (
            partial(_one_of, better, *ways)
            for ways in (
                (metric.whitened, precision.whitened),
                (metric.half_solve, precision.half_solve),
            )
        )
    regular, size = xp.isfinite(distance), xp.maximum(xp.linalg.norm(gradient), 1)
    # What is short enough in the metric has to be so by the precision.
    enough = tolerance / 4 * xp.clip(distance / state.decrement, 0, 1)
    enough = xp.where(xp.isfinite(enough), enough, tolerance / 4)

    def point(z: Numbers) -> Numbers:
        return x + xp.where(regular, whitened(z), z / size).astype(x.dtype)

    def look(z: Numbers) -> tuple[Numbers, Numbers]:
        value, gradient = look_at(point(z))
        return value, xp.where(regular, half_solve(gradient), gradient / size).astype(x.dtype)

    end = descend_by(look, descent_from(xp.zeros_like(x)), STEPS, enough)
    there = point(end.z)
    return xp.where(xp.all(xp.isfinite(there)), there, x), xp.maximum(end.steps, 0)


def _one_of(
    first: Numbers,
    one: Callable[[Numbers], Numbers],
    other: Callable[[Numbers], Numbers],
    z: Float[Numbers, " D"],
) -> Float[Numbers, " D"]:
    return branch(first, lambda: one(z), lambda: other(z))


def after_round(
    state: Rounds,
    x: Float[Numbers, " D"],
    look: Look,
    precision: Precision,
    judge: Precision | None,
    steps: Numbers,
    ridge_there: Callable[[], tuple[Numbers, Numbers]],
    tolerance: Numbers | float,
) -> Rounds:
    """The state after a round.

    Args:
        state: before it.
        x: where it ended, shape (D,).
        look: there.
        precision: there.
        judge: there, if there is one.
        steps: of L-BFGS.
        ridge_there: returns what :func:`ridge` does there.
        tolerance: the Newton decrement that is small enough.
    """
    xp = namespace(x)
    decrement = xp.linalg.norm(precision.half_solve(look.gradient))
    decrement = xp.where(xp.isnan(decrement), xp.inf, decrement).astype(x.dtype)
    if judge is not None:  # where it is not positive definite, it has no say
        decrement = xp.fmax(decrement, xp.linalg.norm(judge.half_solve(look.gradient)))
    nearer = near(state, tolerance) | (decrement < state.best / 2)
    lower = look.f < state.f - 1e-3
    way, lowest = branch(
        decrement <= tolerance,
        ridge_there,
        lambda: (xp.zeros_like(x), xp.zeros((), x.dtype)),
    )
    return Rounds(
        x=x,
        f=look.f,
        beside=look.beside,
        gradient=look.gradient,
        precision=precision,
        judge=judge,
        decrement=decrement,
        farthest=xp.where(
            xp.isfinite(decrement), xp.maximum(decrement, state.farthest), state.farthest
        ),
        best=xp.where(nearer, decrement, state.best),
        way=way,
        lowest=lowest,
        left=leaves(state, tolerance),
        waited=xp.where(nearer | lower, 0, state.waited + 1),
        rounds=state.rounds + 1,
        iterations=state.iterations + steps,
    )


def ended(state: Rounds, tolerance: Numbers | float) -> Search:
    """What is known where a search stopped."""
    xp = namespace(state.x)
    settled = near(state, tolerance) & (state.lowest >= 0)
    condition = branch(
        settled,
        lambda: condition_number(state.precision),
        lambda: xp.asarray(xp.inf, state.x.dtype),
    )
    certificate = Certificate(settled, state.decrement, state.iterations, condition)
    return Search(state.x, state.beside, state.precision, certificate)


def ridge(
    product: Callable[[Numbers], Numbers], x: Float[Numbers, " D"], precision: Precision
) -> tuple[Float[Numbers, " D"], Float[Numbers, ""]]:
    """The direction of least curvature in the metric of the precision, and that; 0 is rounding.

    Args:
        product: of the :func:`whitened` Hessian at x with a vector.
        x: the point, shape (D,).
        precision: there.
    """
    xp = namespace(x)
    values, vectors = ritz(product, x, KRYLOV)
    rounding = jnp.finfo(x.dtype).eps ** 0.5 * xp.max(xp.abs(values))
    lowest = xp.where(values[0] >= -rounding, 0, values[0])
    return precision.whitened(vectors[0]), lowest.astype(x.dtype)


def whitened(
    product: Callable[[Numbers], Numbers], precision: Precision, z: Float[Numbers, " D"]
) -> Float[Numbers, " D"]:
    """R^-1 H R'^-1 z, with A = R R' the precision.

    Args:
        product: v -> H v.
        precision: A.
        z: shape (D,).
    """
    return precision.half_solve(product(precision.whitened(z)))
