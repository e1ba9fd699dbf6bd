"""The mode of a density by L-BFGS in the metric of the precision that it is to have there."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.sparse.linalg import cg
from jaxtyping import Array, Float

from laplacebook.curvature.eigenvalues import ritz
from laplacebook.gaussian.precision import Precision
from laplacebook.search.certificate import Certificate, Search
from laplacebook.search.metric import COARSEST

ROUNDS = 100  # of L-BFGS, each in the metric of the point where it begins
STEPS = 100  # of L-BFGS in a round
MEMORY = 30  # of its steps
STALLED = 3  # rounds that bring the point no nearer
KRYLOV = 10  # products of the Hessian with a vector that look for a way down from a saddle
EXTREMES = 5  # products with a matrix, for its extreme eigenvalues to a few percent


class _State(NamedTuple):
    x: Array
    f: Array
    beside: Any
    gradient: Array
    precision: Any
    decrement: Array
    best: Array
    way: Array
    lowest: Array
    waited: Array
    rounds: Array
    iterations: Array


def polish(
    f: Callable[[Array], tuple[Array, Any]],
    precision_at: Callable[[Array], Precision],
    start: Float[Array, " D"],
    tolerance: float | None = None,
) -> Search:
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
        A :class:`~laplacebook.search.certificate.Search` with the precision. Nothing is raised: it
        is certified where the Newton decrement by that precision is at most the tolerance, and the
        Hessian has no direction of negative curvature among those that ten steps of Lanczos see.
    """
    near_enough = enough(tolerance, start.dtype)

    def look(x: Array) -> tuple[Array, Any, Array, Any, Array]:
        (value, beside), gradient = jax.value_and_grad(f, has_aux=True)(x)
        precision = precision_at(x)
        decrement = jnp.linalg.norm(precision.half_solve(gradient))
        decrement = jnp.where(jnp.isnan(decrement), jnp.inf, decrement)
        return value, beside, gradient, precision, decrement

    def near(state: _State) -> Array:
        return state.decrement <= near_enough

    def go_on(state: _State) -> Array:
        going = (state.rounds <= ROUNDS) & (state.waited < STALLED)
        going &= ~(near(state) & ((state.lowest >= 0) | jnp.isnan(state.lowest)))
        return going & (jnp.isfinite(state.f) | (state.rounds == 0))

    def advance(state: _State) -> _State:
        # The first round looks at the start, so that only one look is compiled.
        x, steps = lax.switch(
            jnp.where(state.rounds == 0, 0, jnp.where(near(state), 1, 2)),
            [
                lambda: (state.x, jnp.zeros((), int)),
                lambda: (_downhill(state), jnp.ones((), int)),
                lambda: _descend(f, state, near_enough),
            ],
        )
        value, beside, gradient, precision, decrement = look(x)
        nearer = near(state) | (decrement < state.best / 2)
        lower = value < state.f - 1e-3
        way, lowest = lax.cond(
            decrement <= near_enough,
            lambda: _lowest(f, x, precision),
            lambda: (jnp.zeros_like(x), jnp.zeros((), x.dtype)),
        )
        return _State(
            x=x,
            f=value,
            beside=beside,
            gradient=gradient,
            precision=precision,
            decrement=decrement,
            best=jnp.where(nearer, decrement, state.best),
            way=way,
            lowest=lowest,
            waited=jnp.where(nearer | lower, 0, state.waited + 1),
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
        way=jnp.zeros_like(start),
        lowest=jnp.zeros((), start.dtype),
        waited=none,
        rounds=none,
        iterations=none,
    )
    end = lax.while_loop(go_on, advance, first)
    settled = near(end) & (end.lowest >= 0)
    condition = jnp.where(settled, _condition_number(end.precision), jnp.inf)
    certificate = Certificate(settled, end.decrement, end.iterations, condition)
    return Search(end.x, end.beside, end.precision, certificate)


def enough(tolerance: float | None, dtype: Any) -> float:
    """The Newton decrement that passes for a mode."""
    if tolerance is not None:
        return tolerance
    return float(jnp.finfo(dtype).eps) ** 0.5 if dtype == jnp.float64 else COARSEST


def _lowest(f: Callable, x: Array, precision: Precision) -> tuple[Array, Array]:
    """The direction of least curvature in the metric of the precision, and that; 0 is rounding."""
    product = jax.linearize(jax.grad(lambda x: f(x)[0]), x)[1]
    values, vectors = ritz(
        lambda z: precision.half_solve(product(precision.whitened(z))), x, KRYLOV
    )
    rounding = jnp.finfo(x.dtype).eps ** 0.5 * jnp.max(jnp.abs(values))
    lowest = jnp.where(values[0] >= -rounding, 0, values[0])
    return precision.whitened(vectors[0]), lowest


def _condition_number(precision: Precision) -> Array:
    """Of A scaled to a unit diagonal, by Lanczos with it and with its inverse: never too large."""
    root = jnp.sqrt(precision.diagonal_of_matrix())
    above = ritz(lambda v: precision.matvec(v / root) / root, root, EXTREMES)[0][-1]
    return above * ritz(lambda v: root * precision.solve(root * v), root, EXTREMES)[0][-1]


def _downhill(state: _State) -> Array:
    """A standard deviation away from a saddle, to the side to which the slope points, if any."""
    return state.x - state.way * jnp.where(state.gradient @ state.way > 0, 1, -1)


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


MAX_STEPS = 5000
STRETCH = 50  # steps of L-BFGS between two looks at the Newton decrement
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
        (x, memory), _ = lax.scan(step, (state.x, state.memory), length=STRETCH)
        return _Approach(x, memory, newton_step(f, x)[1], state.steps + STRETCH)

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
