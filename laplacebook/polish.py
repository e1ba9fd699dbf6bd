"""The mode of a density by L-BFGS in the metric of the precision that it is to have there."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from laplacebook.metric import COARSEST
from laplacebook.precision import Leaf

__all__ = ["Polished", "enough", "polish"]

ROUNDS = 100  # of L-BFGS, each in the metric of the point where it begins
STEPS = 100  # of L-BFGS in a round
MEMORY = 30  # of its steps
PATIENCE = 3  # rounds that bring the point no nearer
KRYLOV = 10  # products of the Hessian with a vector that look for a way down from a saddle


class Polished(NamedTuple):
    """Where the search ended.

    Attributes:
        point: shape (D,).
        beside: what f returns there beside its value.
        precision: the precision there.
        converged: whether the Newton decrement is at most the tolerance, and the Hessian has no
            direction of negative curvature among those that ten steps of Lanczos see.
        newton_decrement: sqrt(g' A^-1 g) with that precision A.
        iterations: steps of L-BFGS.
    """

    point: Leaf
    beside: Any
    precision: Any
    converged: Leaf
    newton_decrement: Leaf
    iterations: Leaf


class _State(NamedTuple):
    x: Array
    f: Array
    beside: Any
    gradient: Array
    precision: Any
    decrement: Array
    best: Array
    waited: Array
    settled: Array
    rounds: Array
    iterations: Array


def polish(
    f: Callable[[Array], tuple[Array, Any]],
    precision_at: Callable[[Array], Any],
    start: Float[Array, " D"],
    tolerance: float | None = None,
) -> Polished:
    """The minimum of f that L-BFGS reaches from ``start`` in the metric of ``precision_at``.

    In coordinates z, x = start + R'^-1 z with A = R R' the precision at the start, the curvature of
    f is close to the identity, as close as A is to the Hessian; there L-BFGS (Liu and Nocedal 1989)
    needs few steps. Each round begins with the precision of its own start. No Hessian of f is
    computed, so that it may be indefinite on the way, and A may be of any structure.

    Args:
        f: a differentiable function of a vector of shape (D,) that returns a scalar and, beside it,
            a pytree of arrays.
        precision_at: the precision at a point, with ``whitened`` and ``half_solve``; where it is not
            positive definite it is NaN, and the round makes do with the identity.
        start: where the search begins, shape (D,).
        tolerance: the Newton decrement that is small enough; by default the square root of the
            machine precision, or in single precision 0.001.

    Returns:
        What was found. Nothing is raised.
    """
    near_enough = enough(tolerance, start.dtype)

    def look(x: Array) -> tuple[Array, Any, Array, Any, Array]:
        (value, beside), gradient = jax.value_and_grad(f, has_aux=True)(x)
        precision = precision_at(x)
        decrement = jnp.linalg.norm(precision.half_solve(gradient))
        decrement = jnp.where(jnp.isnan(decrement), jnp.inf, decrement)
        return value, beside, gradient, precision, decrement

    def go_on(state: _State) -> Array:
        going = (state.rounds <= ROUNDS) & (state.waited < PATIENCE) & ~state.settled
        return going & (jnp.isfinite(state.f) | (state.rounds == 0))

    def advance(state: _State) -> _State:
        near = state.decrement <= near_enough
        way, lowest = lax.cond(
            near, partial(_lowest, f), lambda state: (state.x, state.f * 0 + 1), state
        )
        return lax.cond(
            near & (lowest >= 0),
            lambda: state._replace(settled=near),
            lambda: move(state, near, way),
        )

    def move(state: _State, near: Array, way: Array) -> _State:
        # The first move looks at the start, so that only one look is compiled.
        x, steps = lax.switch(
            jnp.where(state.rounds == 0, 0, jnp.where(near, 1, 2)),
            [
                lambda: (state.x, jnp.zeros((), int)),
                lambda: (_downhill(state, way), jnp.ones((), int)),
                lambda: _descend(f, state, near_enough),
            ],
        )
        value, beside, gradient, precision, decrement = look(x)
        nearer = near | (decrement < state.best / 2)
        lower = value < state.f - 1e-3
        return _State(
            x=x,
            f=value,
            beside=beside,
            gradient=gradient,
            precision=precision,
            decrement=decrement,
            best=jnp.where(nearer, decrement, state.best),
            waited=jnp.where(nearer | lower, 0, state.waited + 1),
            settled=state.settled,
            rounds=state.rounds + 1,
            iterations=state.iterations + steps,
        )

    nowhere = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(look, start))
    _, beside, gradient, precision, _ = nowhere
    none, infinite = jnp.zeros((), int), jnp.asarray(jnp.inf, start.dtype)
    first = _State(
        x=start,
        f=infinite,
        beside=beside,
        gradient=gradient,
        precision=precision,
        decrement=infinite,
        best=infinite,
        waited=none,
        settled=jnp.zeros((), bool),
        rounds=none,
        iterations=none,
    )
    end = lax.while_loop(go_on, advance, first)
    return Polished(end.x, end.beside, end.precision, end.settled, end.decrement, end.iterations)


def enough(tolerance: float | None, dtype: Any) -> float:
    """The Newton decrement that passes for a mode."""
    if tolerance is not None:
        return tolerance
    return float(jnp.finfo(dtype).eps) ** 0.5 if dtype == jnp.float64 else COARSEST


def _lowest(f: Callable, state: _State) -> tuple[Array, Array]:
    """The direction of least curvature in the metric of the precision, and that; 0 is rounding."""
    product = jax.linearize(jax.grad(lambda x: f(x)[0]), state.x)[1]
    size, dtype = state.x.size, state.x.dtype
    steps = min(KRYLOV, size)
    seed = jnp.asarray(np.random.default_rng(0).normal(size=size), dtype)
    basis = jnp.zeros((steps, size), dtype).at[0].set(seed / jnp.linalg.norm(seed))

    def extend(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        basis, image = carry
        new = state.precision.half_solve(product(state.precision.whitened(basis[i])))
        left = new - basis.T @ (basis @ new)
        left -= basis.T @ (basis @ left)
        length = jnp.linalg.norm(left)
        known = length <= jnp.finfo(dtype).eps ** 0.5 * jnp.linalg.norm(new)
        left = jnp.where(known, 0, left / jnp.where(known, 1, length))
        return basis.at[i + 1].set(left, mode="drop"), image.at[i].set(new)

    basis, image = lax.fori_loop(0, steps, extend, (basis, jnp.zeros_like(basis)))
    small = basis @ image.T
    values, vectors = jnp.linalg.eigh((small + small.T) / 2)
    rounding = jnp.finfo(dtype).eps ** 0.5 * jnp.max(jnp.abs(values))
    lowest = jnp.where(values[0] < -rounding, values[0], 0)
    return state.precision.whitened(basis.T @ vectors[:, 0]), lowest


def _downhill(state: _State, way: Array) -> Array:
    """A standard deviation away from a saddle, to the side to which the slope points, if any."""
    return state.x - way * jnp.where(state.gradient @ way > 0, 1, -1)


class _Descent(NamedTuple):
    z: Array
    memory: Any
    gradient: Array
    steps: Array


def _descend(f: Callable, state: _State, near_enough: float) -> tuple[Array, Array]:
    """One round: the point, and how many steps led there."""
    import optax  # here, because few models need it and every import would pay for it

    regular = jnp.isfinite(state.decrement)
    size = jnp.maximum(jnp.linalg.norm(state.gradient), 1)

    def point(z: Array) -> Array:
        return state.x + jnp.where(regular, state.precision.whitened(z), z / size)

    def g(z: Array) -> Array:
        return f(point(z))[0]

    solver = optax.lbfgs(memory_size=MEMORY)
    value_and_gradient = optax.value_and_grad_from_state(g)

    def step(descent: _Descent) -> _Descent:
        value, gradient = value_and_gradient(descent.z, state=descent.memory)
        update, memory = solver.update(
            gradient, descent.memory, descent.z, value=value, grad=gradient, value_fn=g
        )
        z = optax.apply_updates(descent.z, update)
        after = optax.tree_utils.tree_get(memory, "grad")
        return _Descent(z, memory, after, descent.steps + 1)

    def far(descent: _Descent) -> Array:
        slope = jnp.linalg.norm(descent.gradient)
        return (
            (descent.steps < STEPS) & (slope > near_enough / 4) & jnp.all(jnp.isfinite(descent.z))
        )

    zero = jnp.zeros_like(state.x)
    first = _Descent(zero, solver.init(zero), jnp.full_like(zero, jnp.inf), jnp.zeros((), int))
    end = lax.while_loop(far, step, first)
    x = point(end.z)
    return jnp.where(jnp.all(jnp.isfinite(x)), x, state.x), end.steps
