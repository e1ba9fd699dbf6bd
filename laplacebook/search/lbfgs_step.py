"""Steps of L-BFGS (Liu and Nocedal 1989), each by as many looks as its line search needs."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from laplacebook.base.namespace import solve_lower

MEMORY = 30  # steps
TRIES = 30  # of a line search
DECREASE = 1e-4  # of what the slope predicts
CURVATURE = 0.9  # of the slope that may be left


class Descent(NamedTuple):
    """Where a descent stands.

    Attributes:
        z: the point, shape (D,).
        value: of the function there.
        gradient: shape (D,).
        direction: in which the next point is looked for, shape (D,).
        slope: along it, negative.
        length: how far along it to look next.
        low: the longest step seen that goes down, and goes on to.
        high: the shortest step seen that is too long.
        tries: looks along this direction.
        moves: earlier steps, shape (M, D); none is a row of zeros.
        changes: of the gradient over them, shape (M, D).
        products: entry (j, i) is that of change j with move i, where i is no younger; of none the identity.
        scale: the inverse curvature along the last move.
        kept: how many moves were ever remembered; the next one takes the place of the oldest.
        steps: made so far.
        stuck: whether no step goes down.
    """

    z: Array
    value: Array
    gradient: Array
    direction: Array
    slope: Array
    length: Array
    low: Array
    high: Array
    tries: Array
    moves: Array
    changes: Array
    products: Array
    scale: Array
    kept: Array
    steps: Array
    stuck: Array


def descent_from(z: Float[Array, " D"]) -> Descent:
    """A descent that has seen nothing: its first look is at ``z`` itself, and is no step."""
    zero, none = jnp.zeros((), z.dtype), jnp.zeros((), int)
    nothing, memory = jnp.zeros_like(z), jnp.zeros((MEMORY, z.size), z.dtype)
    return Descent(
        z=z,
        value=zero + jnp.inf,
        gradient=nothing,
        direction=nothing,
        slope=zero,
        length=zero,
        low=zero,
        high=zero + jnp.inf,
        tries=none,
        moves=memory,
        changes=memory,
        products=jnp.eye(MEMORY, dtype=z.dtype),
        scale=zero + 1,
        kept=none,
        steps=none - 1,
        stuck=jnp.zeros((), bool),
    )


def descend_by(
    look: Callable[[Array], tuple[Array, Array]],
    first: Descent,
    most: int | Array,
    slope: float | Array,
) -> Descent:
    """More steps: up to ``most`` in all, and until the gradient is as short as ``slope``.

    Args:
        look: the function and its gradient at a point.
        first: where the descent stands.
        most: a number of steps.
        slope: a length.
    """

    def goes_on(descent: Descent) -> Array:
        far = (descent.steps < 0) | (jnp.linalg.norm(descent.gradient) > slope)
        return far & (descent.steps < most) & ~descent.stuck

    def step(descent: Descent) -> Descent:
        z = descent.z + descent.length * descent.direction
        return _after(descent, z, *look(z))

    return lax.while_loop(goes_on, step, first)


def _after(descent: Descent, z: Array, value: Array, gradient: Array) -> Descent:
    """The descent after a look at z: a step, or another length along the same direction.

    A step goes down, and so far that the slope is less steep than before (Wolfe 1969); the lengths
    between are halved (Lewis and Overton 2013). Where f changes by less than its own rounding, the
    slope alone says whether it goes down (Hager and Zhang 2005).
    """
    length, slope, tries = descent.length, descent.slope, descent.tries + 1
    along = gradient @ descent.direction
    noise = 10 * jnp.finfo(z.dtype).eps * jnp.maximum(jnp.abs(value), 1)
    level = (value <= descent.value + noise) & (along <= (2 * DECREASE - 1) * slope)
    down = (value <= descent.value + DECREASE * length * slope) | level
    down &= jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient)) & jnp.all(jnp.isfinite(z))
    low, high = jnp.where(down, length, descent.low), jnp.where(down, descent.high, length)
    again = descent._replace(
        length=jnp.where(jnp.isfinite(high), (low + high) / 2, 2 * length),
        low=low,
        high=high,
        tries=tries,
        stuck=~down & (tries >= TRIES),
    )
    accept = down & ((along >= CURVATURE * slope) | (tries >= TRIES))
    return lax.cond(accept, lambda: _stepped(descent, z, value, gradient), lambda: again)


def _stepped(descent: Descent, z: Array, value: Array, gradient: Array) -> Descent:
    move, change = z - descent.z, gradient - descent.gradient
    seen, squared = move @ change, change @ change
    usable = seen > jnp.finfo(z.dtype).eps * jnp.sqrt((move @ move) * squared)
    i = jnp.where(usable, descent.kept % MEMORY, MEMORY)  # where there is no row

    def put(rows: Array, row: Array) -> Array:
        return rows.at[i].set(row, mode="drop")

    moves = put(descent.moves, move)
    there = descent._replace(
        z=z,
        value=value,
        gradient=gradient,
        moves=moves,
        changes=put(descent.changes, change),
        products=put(descent.products, moves @ change),
        scale=jnp.where(usable, seen / squared, descent.scale),
        kept=descent.kept + usable,
        steps=descent.steps + 1,
        length=jnp.ones_like(value),
        low=jnp.zeros_like(value),
        high=jnp.full_like(value, jnp.inf),
        tries=jnp.zeros_like(descent.tries),
    )
    direction = _direction(there)
    steepest = -gradient / jnp.maximum(jnp.linalg.norm(gradient), 1)
    direction = jnp.where((there.kept > 0) & (direction @ gradient < 0), direction, steepest)
    return there._replace(direction=direction, slope=direction @ gradient)


def _direction(descent: Descent) -> Float[Array, " D"]:
    """The quasi-Newton step: the recursion over all moves, back and forth, as two triangular systems."""
    scale, place = descent.scale, jnp.arange(MEMORY)
    by_age, of_age = (descent.kept + place) % MEMORY, (place - descent.kept) % MEMORY
    lower = descent.products[by_age][:, by_age]
    back = solve_lower(lower, (descent.moves @ descent.gradient)[by_age], "T")
    rest = descent.gradient - back[of_age] @ descent.changes
    left = jnp.diagonal(lower) * back - scale * (descent.changes @ rest)[by_age]
    forth = solve_lower(lower, left, "N")
    return -scale * rest - forth[of_age] @ descent.moves
