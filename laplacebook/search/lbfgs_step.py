"""Steps of L-BFGS (Liu and Nocedal 1989), each by as many looks as its line search needs.

In one compiled loop with the function, or in NumPy between looks at it.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from laplacebook.base.namespace import Numbers, branch, namespace, put, repeat_while, solve_lower

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

    z: Numbers
    value: Numbers
    gradient: Numbers
    direction: Numbers
    slope: Numbers
    length: Numbers
    low: Numbers
    high: Numbers
    tries: Numbers
    moves: Numbers
    changes: Numbers
    products: Numbers
    scale: Numbers
    kept: Numbers
    steps: Numbers
    stuck: Numbers


def descent_from(z: Float[Numbers, " D"]) -> Descent:
    """A descent that has seen nothing: its first look is at ``z`` itself, and is no step."""
    xp = namespace(z)
    zero, none = xp.zeros((), z.dtype), xp.zeros((), int)
    nothing = xp.zeros_like(z)
    moves, changes = (xp.zeros((MEMORY, z.size), z.dtype) for _ in range(2))
    return Descent(
        z=z,
        value=zero + xp.inf,
        gradient=nothing,
        direction=nothing,
        slope=zero,
        length=zero,
        low=zero,
        high=zero + xp.inf,
        tries=none,
        moves=moves,
        changes=changes,
        products=xp.eye(MEMORY, dtype=z.dtype),
        scale=zero + 1,
        kept=none,
        steps=none - 1,
        stuck=xp.zeros((), bool),
    )


def descend_by(
    look: Callable[[Numbers], tuple[Numbers, Numbers]],
    first: Descent,
    most: int | Numbers,
    slope: float | Numbers,
) -> Descent:
    """More steps: up to ``most`` in all, and until the gradient is as short as ``slope``.

    Args:
        look: the function and its gradient at a point.
        first: where the descent stands.
        most: a number of steps.
        slope: a length.
    """
    xp = namespace(first.z)

    def goes_on(descent: Descent) -> Numbers:
        far = (descent.steps < 0) | (xp.linalg.norm(descent.gradient) > slope)
        return far & (descent.steps < most) & ~descent.stuck

    def step(descent: Descent) -> Descent:
        z = descent.z + descent.length * descent.direction
        return _after(descent, z, *look(z))

    return repeat_while(goes_on, step, first)


def rounding_of(value: Float[Numbers, ""]) -> Float[Numbers, ""]:
    """How far rounding may move a log density: it may be small itself, and yet a difference of large sums."""
    eps = jnp.finfo(value.dtype).eps
    return namespace(value).maximum(10 * eps * abs(value), eps**0.5)


def _after(descent: Descent, z: Numbers, value: Numbers, gradient: Numbers) -> Descent:
    """The descent after a look at z: a step, or another length along the same direction.

    A step goes down, and so far that the slope is less steep than before (Wolfe 1969); the lengths
    between are halved (Lewis and Overton 2013). Where f changes by less than its own rounding, the
    slope alone says whether it goes down (Hager and Zhang 2005).
    """
    xp = namespace(z)
    length, slope, tries = descent.length, descent.slope, descent.tries + 1
    along = gradient @ descent.direction
    level = (value <= descent.value + rounding_of(value)) & (along <= (2 * DECREASE - 1) * slope)
    down = (value <= descent.value + DECREASE * length * slope) | level
    down &= xp.isfinite(value) & xp.all(xp.isfinite(gradient)) & xp.all(xp.isfinite(z))
    low, high = xp.where(down, length, descent.low), xp.where(down, descent.high, length)
    again = descent._replace(
        length=xp.where(xp.isfinite(high), (low + high) / 2, 2 * length),
        low=low,
        high=high,
        tries=tries,
        stuck=~down & (tries >= TRIES),
    )
    accept = down & ((along >= CURVATURE * slope) | (tries >= TRIES))
    return branch(accept, lambda: _stepped(descent, z, value, gradient), lambda: again)


def _stepped(descent: Descent, z: Numbers, value: Numbers, gradient: Numbers) -> Descent:
    xp = namespace(z)
    move, change = z - descent.z, gradient - descent.gradient
    seen, squared = move @ change, change @ change
    usable = seen > jnp.finfo(z.dtype).eps * xp.sqrt((move @ move) * squared)
    i = xp.where(usable, descent.kept % MEMORY, MEMORY)  # where there is no row

    moves = put(descent.moves, i, move)
    there = descent._replace(
        z=z,
        value=value,
        gradient=gradient,
        moves=moves,
        changes=put(descent.changes, i, change),
        products=put(descent.products, i, moves @ change),
        scale=xp.where(usable, seen / squared, descent.scale),
        kept=descent.kept + usable,
        steps=descent.steps + 1,
        length=xp.ones_like(value),
        low=xp.zeros_like(value),
        high=xp.full_like(value, xp.inf),
        tries=xp.zeros_like(descent.tries),
    )
    direction = _direction(there)
    steepest = -gradient / xp.maximum(xp.linalg.norm(gradient), 1)
    direction = xp.where((there.kept > 0) & (direction @ gradient < 0), direction, steepest)
    return there._replace(direction=direction, slope=direction @ gradient)


def _direction(descent: Descent) -> Float[Numbers, " D"]:
    """The quasi-Newton step: the recursion over all moves, back and forth, as two triangular systems."""
    scale, place = descent.scale, np.arange(MEMORY)
    by_age, of_age = (descent.kept + place) % MEMORY, (place - descent.kept) % MEMORY
    lower = descent.products[by_age][:, by_age]
    back = solve_lower(lower, (descent.moves @ descent.gradient)[by_age], "T")
    rest = descent.gradient - back[of_age] @ descent.changes
    left = lower.diagonal() * back - scale * (descent.changes @ rest)[by_age]
    forth = solve_lower(lower, left, "N")
    return -scale * rest - forth[of_age] @ descent.moves
