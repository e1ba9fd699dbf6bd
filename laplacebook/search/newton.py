"""Damped Newton steps until the certificate holds."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from laplacebook.curvature.hessian import hessian_of, value_gradient_hessian
from laplacebook.search.certificate import Certificate, Search
from laplacebook.search.metric import has_hessian
from laplacebook.search.newton_step import (
    Look,
    State,
    conclude,
    initial_state,
    judge,
    next_step,
    point_after,
    unfinished,
)


def newton(
    f: Callable[[Array], tuple[Array, Any]],
    start: Float[Array, " D"],
) -> Search:
    """The minimum of f that damped Newton steps reach from ``start``.

    Each step minimises the quadratic model with the absolute eigenvalues of the Hessian plus a
    damping that follows the ratio of actual to predicted decrease (Levenberg 1944, Marquardt 1963);
    where the curvature is negative it moves along it, so a saddle does not hold the search. With
    many coordinates a Hessian costs many gradients: there the steps in between update it from the
    gradients (BFGS), as long as each step brings it nearer.

    The last step is followed by a short look to both sides: where f and its gradient do not follow
    the parabola (a kink, a jump, a quartic, a tail on the way to a minimum at infinity) nothing is
    certified.

    Args:
        f: a twice differentiable function of a vector of shape (D,) that returns a scalar and,
            beside it, a pytree of arrays.
        start: where the search begins, shape (D,).

    Returns:
        A :class:`~laplacebook.search.certificate.Search` with the Hessian, or one from the way if not converged.
        Nothing is raised: the certificate says whether there is a minimum.
    """
    _, beside = jax.eval_shape(f, start)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), beside)
    first = initial_state(start, nothing)
    return ended(lax.while_loop(unfinished, partial(_iterate, f), first))


def ended(end: State) -> Search:
    """What is known where a search stopped."""
    condition = end.metric.condition_number()
    certificate = Certificate(end.certified, end.decrement, end.iteration, condition)
    return Search(end.x, end.beside, end.hessian, certificate)


def _iterate(f: Callable, state: State) -> State:
    step = next_step(state)
    look = _look(f, step.x, state)
    verdict = judge(state, step, look)
    x = point_after(state, step, verdict)
    hessian = _hessian(f, x, look, verdict.renew, state)
    return conclude(state, step, look, verdict, hessian)


def _look(f: Callable, x: Array, state: State) -> Look:
    """f and its derivatives at x; NaN where x is not finite."""

    def at(x: Array) -> Look:
        if has_hessian(x):
            return Look(*value_gradient_hessian(f, x))
        (value, beside), gradient = jax.value_and_grad(f, has_aux=True)(x)
        return Look(value, beside, gradient, None)

    hessian = state.hessian if has_hessian(x) else None
    nowhere = Look(jnp.nan * state.f, state.beside, state.gradient, hessian)
    # A branch, because XLA would otherwise compute the model again in each expression that uses it.
    return lax.cond(jnp.all(jnp.isfinite(x)), at, lambda _: nowhere, x)


def _hessian(f: Callable, x: Array, look: Look, renew: Array, state: State) -> Array:
    """The Hessian at x, or where it is not worth its price the last one."""
    if look.hessian is not None:
        return jnp.where(renew, look.hessian, state.hessian)
    return lax.cond(renew, lambda: hessian_of(f, x), lambda: state.hessian)
