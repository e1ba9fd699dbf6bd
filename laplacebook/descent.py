"""Many parameters: descend without a Hessian to where the last steps need one."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.sparse.linalg import cg
from jaxtyping import Array, Float

__all__ = ["descend"]

MAX_STEPS = 5000
STEPS = 50  # of L-BFGS between two looks at the Newton decrement
NEAR = 0.1  # posterior standard deviations: from here Newton steps are the quicker way
PRODUCTS = 500  # of the Hessian with a vector, in one Newton step


def descend(f: Callable[[Array], Array], start: Float[Array, " D"]) -> Float[Array, " D"]:
    """A point near a minimum of f, by L-BFGS (optax) and then Newton steps without a matrix.

    Args:
        f: a twice differentiable function of a vector of shape (D,), scalar.
        start: where the descent begins, shape (D,).

    Returns:
        The point, shape (D,): at a distance from the minimum of a fraction of the square root of
        the machine precision, in posterior standard deviations, if all went well; the start if f
        is not finite along the way. It is for the caller to certify it.
    """
    near = _approach(f, start)
    end = _polish(f, near)
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


class _Approach(NamedTuple):
    x: Array
    memory: Any
    decrement: Array
    steps: Array


def _approach(f: Callable, start: Array) -> Array:
    """L-BFGS until the Newton decrement says that the minimum is near."""
    import optax  # here, because few models need it and every import would pay for it

    solver = optax.lbfgs()
    value_and_gradient = optax.value_and_grad_from_state(f)

    def step(carry: tuple, _: None) -> tuple[tuple, None]:
        x, memory = carry
        value, gradient = value_and_gradient(x, state=memory)
        update, memory = solver.update(gradient, memory, x, value=value, grad=gradient, value_fn=f)
        return (optax.apply_updates(x, update), memory), None

    def advance(state: _Approach) -> _Approach:
        (x, memory), _ = lax.scan(step, (state.x, state.memory), length=STEPS)
        return _Approach(x, memory, newton_step(f, x)[1], state.steps + STEPS)

    def far(state: _Approach) -> Array:
        going = jnp.all(jnp.isfinite(state.x)) & (state.steps < MAX_STEPS)
        return going & (state.decrement > NEAR)

    first = _Approach(
        start, solver.init(start), jnp.asarray(jnp.inf, start.dtype), jnp.zeros((), int)
    )
    return lax.while_loop(far, advance, first).x


class _Polish(NamedTuple):
    x: Array
    step: Array
    decrement: Array
    better: Array


def _polish(f: Callable, start: Array) -> Array:
    """Newton steps as long as each at least halves the distance."""

    def advance(state: _Polish) -> _Polish:
        x = state.x + state.step
        step, decrement = newton_step(f, x)
        better = decrement < state.decrement / 2
        kept = jnp.where(better, x, state.x)
        return _Polish(kept, step, jnp.where(better, decrement, state.decrement), better)

    def unfinished(state: _Polish) -> Array:
        enough = jnp.sqrt(jnp.finfo(start.dtype).eps) / 4
        return state.better & (state.decrement > enough) & jnp.isfinite(state.decrement)

    first = _Polish(start, *newton_step(f, start), jnp.ones((), bool))
    return lax.while_loop(unfinished, advance, first).x
