"""The minimum of a function by L-BFGS (Liu and Nocedal 1989), which takes no Hessian."""

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

MEMORY = 30  # steps of L-BFGS
ROUNDS = 100  # of a search, each in the metric of the point where it begins
STEPS = 100  # of L-BFGS in a round
STALLED = 3  # rounds that bring the point no nearer
KRYLOV = 10  # products of the Hessian with a vector that look for a way down from a saddle
EXTREMES = 5  # products with a matrix, for its extreme eigenvalues to a few percent
LOOKS = 100  # of a descent at the Newton decrement
STRETCH = 50  # steps of L-BFGS before each
NEAR = 0.1  # posterior standard deviations: from here Newton steps are the quicker way
PRODUCTS = 500  # of the Hessian with a vector, in one Newton step


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


def search_by_lbfgs(
    f: Callable[[Array], tuple[Array, Any]],
    precision_at: Callable[[Array], Precision],
    start: Float[Array, " D"],
    tolerance: Float[Array, ""] | float,
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

    Returns:
        A :class:`~laplacebook.search.certificate.Search` with the precision. Nothing is raised: it
        is certified where the Newton decrement by that precision is at most the tolerance, and the
        Hessian has no direction of negative curvature among those that ten steps of Lanczos see.
    """

    def look(x: Array) -> tuple[Array, Any, Array, Any, Array]:
        (value, beside), gradient = jax.value_and_grad(f, has_aux=True)(x)
        precision = precision_at(x)
        decrement = jnp.linalg.norm(precision.half_solve(gradient))
        decrement = jnp.where(jnp.isnan(decrement), jnp.inf, decrement)
        return value, beside, gradient, precision, decrement

    def near(state: _State) -> Array:
        return state.decrement <= tolerance

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
                lambda: _round(f, state, tolerance),
            ],
        )
        value, beside, gradient, precision, decrement = look(x)
        nearer = near(state) | (decrement < state.best / 2)
        lower = value < state.f - 1e-3
        way, lowest = lax.cond(
            decrement <= tolerance,
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


def _round(f: Callable, state: _State, tolerance: Array | float) -> tuple[Array, Array]:
    """One round: the point, and how many steps led there."""
    regular = jnp.isfinite(state.decrement)
    size = jnp.maximum(jnp.linalg.norm(state.gradient), 1)

    def point(z: Array) -> Array:
        return state.x + jnp.where(regular, state.precision.whitened(z), z / size)

    first = _at(jnp.zeros_like(state.x))
    end = _steps(lambda z: f(point(z))[0], first, STEPS, tolerance / 4)
    x = point(end.z)
    return jnp.where(jnp.all(jnp.isfinite(x)), x, state.x), end.steps


class _Descent(NamedTuple):
    z: Array
    memory: Any
    gradient: Array
    steps: Array


def _solver() -> Any:
    import optax  # here, because few models need it and every import would pay for it

    return optax.lbfgs(memory_size=MEMORY)


def _at(z: Array) -> _Descent:
    return _Descent(z, _solver().init(z), jnp.full_like(z, jnp.inf), jnp.zeros((), int))


def _steps(
    g: Callable[[Array], Array], first: _Descent, most: int, slope: Array | float
) -> _Descent:
    """So many more steps of L-BFGS, fewer where the gradient is as short as ``slope``."""
    import optax

    value_and_gradient = optax.value_and_grad_from_state(g)

    def step(descent: _Descent) -> _Descent:
        value, gradient = value_and_gradient(descent.z, state=descent.memory)
        update, memory = _solver().update(
            gradient, descent.memory, descent.z, value=value, grad=gradient, value_fn=g
        )
        z = optax.apply_updates(descent.z, update)
        after = optax.tree_utils.tree_get(memory, "grad")
        return _Descent(z, memory, after, descent.steps + 1)

    def far(descent: _Descent) -> Array:
        going = (descent.steps < first.steps + most) & jnp.all(jnp.isfinite(descent.z))
        return going & (jnp.linalg.norm(descent.gradient) > slope)

    return lax.while_loop(far, step, first)


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

    def advance(state: tuple[_Descent, Array, Array]) -> tuple[_Descent, Array, Array]:
        descent, _, looks = state
        descent = _steps(f, descent, STRETCH, 0.0)
        return descent, newton_step(f, descent.z)[1], looks + 1

    def far(state: tuple[_Descent, Array, Array]) -> Array:
        descent, decrement, looks = state
        return jnp.all(jnp.isfinite(descent.z)) & (looks < LOOKS) & (decrement > NEAR)

    first = _at(start), jnp.asarray(jnp.inf, start.dtype), jnp.zeros((), int)
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
