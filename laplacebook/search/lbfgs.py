"""The minimum of a function by L-BFGS, which takes no Hessian, as one compiled program."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.sparse.linalg import cg
from jaxtyping import Array, Float

from laplacebook.gaussian.precision import Precision
from laplacebook.search.certificate import Search
from laplacebook.search.lbfgs_step import Descent, descend_by, descent_from
from laplacebook.search.newton_step import Look
from laplacebook.search.rounds import (
    Rounds,
    after_round,
    downhill,
    ended,
    go_on,
    initial_rounds,
    leaves,
    ridge,
    round_from,
    whitened,
)

LOOKS = 100  # of a descent at the Newton decrement
STRETCH = 50  # steps of L-BFGS before each
NEAR = 0.1  # posterior standard deviations: from here Newton steps are the quicker way
PRODUCTS = 500  # of the Hessian with a vector, in one Newton step


def search_by_lbfgs(
    f: Callable[[Array], tuple[Array, Any]],
    precision_at: Callable[[Array], Precision],
    start: Float[Array, " D"],
    tolerance: Float[Array, ""] | float,
    metric_at: Callable[[Array], Precision] | None = None,
    judges: bool = False,
    patient: bool = False,
) -> Search:
    """The minimum of f that L-BFGS reaches from ``start`` in the metric of ``precision_at``.

    In coordinates z, x = start + R'^-1 z with A = R R' the precision at the start, the curvature of
    f is close to the identity, as close as A is to the Hessian; there L-BFGS needs few steps. Each
    round begins with the precision of its own start. No Hessian of f is computed, so that it may be
    indefinite on the way, and A may be of any structure.

    Args:
        f: a differentiable function of a vector of shape (D,) that returns a scalar and, beside it,
            a pytree of arrays.
        precision_at: the precision at a point, with ``whitened`` and ``half_solve``; where it is not
            positive definite it is NaN, and the round makes do with the identity.
        start: where the search begins, shape (D,).
        tolerance: the Newton decrement that is small enough.
        metric_at: the precision of the steps at a point, if it is another one.
        judges: whether the distance is judged by that as well.
        patient: as in :func:`~laplacebook.search.rounds.go_on`.

    Returns:
        A :class:`~laplacebook.search.certificate.Search` with the precision. Nothing is raised: it
        is certified where the Newton decrement by each that judges is at most the tolerance, and the
        Hessian has no direction of negative curvature among those that ten steps of Lanczos see.
    """

    def look_at(x: Array) -> tuple[Look, Precision, Precision | None]:
        (value, beside), gradient = jax.value_and_grad(f, has_aux=True)(x)
        judge = metric_at(x) if judges and metric_at is not None else None
        return Look(value, beside, gradient, None), precision_at(x), judge

    def next_round(state: Rounds) -> tuple[Array, Array]:
        metric = state.judge if judges or metric_at is None else metric_at(state.x)
        return round_from(jax.value_and_grad(lambda x: f(x)[0]), state, tolerance, metric)

    def advance(state: Rounds) -> Rounds:
        # The first round looks at the start, so that only one look is compiled.
        x, steps = lax.switch(
            jnp.where(state.rounds == 0, 0, jnp.where(leaves(state, tolerance), 1, 2)),
            [
                lambda: (state.x, jnp.zeros((), int)),
                lambda: (downhill(lambda x: f(x)[0], state), jnp.ones((), int)),
                lambda: next_round(state),
            ],
        )
        look, precision, judge = look_at(x)

        def ridge_there() -> tuple[Array, Array]:
            product = jax.linearize(jax.grad(lambda x: f(x)[0]), x)[1]
            return ridge(partial(whitened, product, precision), x, precision)

        return after_round(state, x, look, precision, judge, steps, ridge_there, tolerance)

    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(look_at, start))
    first = initial_rounds(start, *nothing)
    return ended(lax.while_loop(lambda s: go_on(s, tolerance, patient), advance, first), tolerance)


def descend(f: Callable[[Array], Array], start: Float[Array, " D"]) -> Float[Array, " D"]:
    """A point near a minimum of f, by L-BFGS and then Newton steps without a matrix.

    Args:
        f: a twice differentiable function of a vector of shape (D,), scalar.
        start: where the descent begins, shape (D,).

    Returns:
        The point, shape (D,): at a distance from the minimum of a fraction of the square root of
        the machine precision, in posterior standard deviations, if all went well; the start if f
        is not finite along the way. It is for the caller to certify it.
    """
    end = _finish(f, _approach(f, start))
    return jnp.where(jnp.all(jnp.isfinite(end)), end, start)


def newton_step(
    f: Callable[[Array], Array], x: Float[Array, " D"]
) -> tuple[Float[Array, " D"], Float[Array, ""]]:
    """The Newton step -H^-1 g at x by conjugate gradients, without the matrix H.

    Args:
        f: a twice differentiable function of a vector of shape (D,), scalar.
        x: the point, shape (D,).

    Returns:
        The step, shape (D,), and the Newton decrement sqrt(g' H^-1 g), shape (), infinite where H
        is seen not to be positive definite.
    """
    gradient, product = jax.linearize(jax.grad(f), x)
    step = -cg(product, gradient, tol=jnp.finfo(x.dtype).eps ** 0.25, maxiter=PRODUCTS)[0]
    squared = -step @ gradient
    positive = (step @ product(step) > 0) & (squared > 0)
    decrement = jnp.where(positive, jnp.sqrt(jnp.where(positive, squared, 0)), jnp.inf)
    return step, jnp.where(jnp.all(gradient == 0), 0, decrement)


def _approach(f: Callable, start: Array) -> Array:
    """L-BFGS until the Newton decrement says that the minimum is near."""

    def advance(state: tuple[Descent, Array, Array]) -> tuple[Descent, Array, Array]:
        descent, _, looks = state
        descent = descend_by(jax.value_and_grad(f), descent, descent.steps + STRETCH, 0.0)
        return descent, newton_step(f, descent.z)[1], looks + 1

    def far(state: tuple[Descent, Array, Array]) -> Array:
        descent, decrement, looks = state
        return ~descent.stuck & (looks < LOOKS) & (decrement > NEAR)

    first = descent_from(start), jnp.asarray(jnp.inf, start.dtype), jnp.zeros((), int)
    return lax.while_loop(far, advance, first)[0].z


class _Finish(NamedTuple):
    x: Array
    step: Array
    decrement: Array
    better: Array


def _finish(f: Callable, start: Array) -> Array:
    """Newton steps as long as each at least halves the distance."""

    def advance(state: _Finish) -> _Finish:
        x = state.x + state.step
        step, decrement = newton_step(f, x)
        better = decrement < state.decrement / 2
        kept = jnp.where(better, x, state.x)
        return _Finish(kept, step, jnp.where(better, decrement, state.decrement), better)

    def unfinished(state: _Finish) -> Array:
        enough = jnp.sqrt(jnp.finfo(start.dtype).eps) / 4
        return state.better & (state.decrement > enough) & jnp.isfinite(state.decrement)

    first = _Finish(start, *newton_step(f, start), jnp.ones((), bool))
    return lax.while_loop(unfinished, advance, first).x
