"""Does the log joint follow its own gradient? Where it jumps, or JAX is kept from seeing it, no."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from laplacebook.base.irregular import irregular_signs
from laplacebook.base.namespace import Numbers, namespace
from laplacebook.gaussian.precision import Precision
from laplacebook.search.metric import probe

ALLOWED = 0.1  # of the log joint, in nats
MUCH = 100  # times the curvature that is told
SHARE = 0.25  # of its own change, or of what bounds the error of the quadrature
NODE = np.sqrt(3 / 7)
LOBATTO = np.array([-1, -NODE, 0, NODE, 1])  # the middle one is the mode
WEIGHTS = np.array([1 / 20, 49 / 180, 16 / 45, 49 / 180, 1 / 20])  # on an interval of length one
PANELS = 16  # of the finer look, to each side: neighbours share a node
FINE = np.append(np.add.outer(np.arange(PANELS), (1 + LOBATTO[:-1]) / 2) / PANELS, 1)
NODES = np.concatenate([LOBATTO, -FINE, FINE])
LOOK_NODES = LOBATTO.size


def follows_gradient(
    f: Callable[[Array], Array],
    mode: Float[Array, " D"],
    precision: Precision,
    room: Float[Array, " D"],
) -> Bool[Array, ""]:
    """Whether f changes by the integral of its slope, one standard deviation to both sides.

    A change point, ``round``, ``floor`` and ``stop_gradient`` have a slope of zero wherever one
    looks: by derivatives alone, the mode of the prior would be the mode. Five evaluations decide
    most cases. A smooth f may bend too fast for so few, as separable classes do under a wide
    prior: so where they fail f is followed through many short panels. There the error of the
    quadrature falls, and that of a jump or a hidden slope stays.

    Args:
        f: the negative log joint, of a vector of shape (D,).
        mode: where its gradient vanishes, shape (D,).
        precision: the Hessian there.
        room: how far each coordinate is from the end of its interval; no more than half of it is
            used, since a density may be singular at the end. Shape (D,).

    Returns:
        Whether it does; true where f is not finite at one of the five. No derivative goes through.
    """
    return follows_along(f, mode, direction_of_look(mode, precision, room))


class _Followed(NamedTuple):
    """What is known of the whole interval, and then of the panels to the left of the mode and to its right.

    Attributes:
        panel: the next one; -1 is the whole interval.
        fails: whether the whole interval contradicts its slopes.
        gap: what the slopes leave unexplained of the change from the mode to the end of the last panel.
        bound: what an error of the quadrature would explain of it, but for a factor.
        worst: of the gaps beyond what is explained.
        largest: of the absolute values.
    """

    panel: Array
    fails: Array
    gap: Array
    bound: Array
    worst: Array
    largest: Array


def follows_along(
    f: Callable[[Array], Array], mode: Float[Array, " D"], direction: Float[Array, " D"]
) -> Bool[Array, ""]:
    """The same for a direction of :func:`direction_of_look`."""
    unit = jnp.ones((), mode.dtype)
    line, constants = jax.closure_convert(lambda t: f(mode + t * direction), unit)
    constants = lax.stop_gradient(constants)  # a loop of unknown length has no reverse mode

    def look(t: Array) -> tuple[Array, Array]:
        return jax.jvp(lambda t: line(t, *constants), (t,), (unit,))

    def unfinished(state: _Followed) -> Array:
        return (state.panel < 0) | (state.fails & (state.panel < 2 * PANELS))

    def follow(state: _Followed) -> _Followed:
        first = state.panel < 0
        side = jnp.where(state.panel < PANELS, -1, 1)
        step = jnp.where(first, 2, side / PANELS).astype(mode.dtype)
        begin = jnp.where(first, -1, side * (state.panel % PANELS) / PANELS).astype(mode.dtype)
        nodes = begin + step * jnp.asarray((1 + LOBATTO) / 2, mode.dtype)
        values, slopes = lax.map(look, nodes)
        anew = state.panel % PANELS == 0
        gap, bound = _unexplained(values, slopes, step)
        gap, bound = jnp.where(anew, 0, state.gap) + gap, jnp.where(anew, 0, state.bound) + bound
        return _Followed(
            state.panel + 1,
            jnp.where(first, fails(values, slopes), state.fails),
            gap,
            bound,
            jnp.where(first, -jnp.inf, jnp.maximum(state.worst, _excess(gap, bound))),
            jnp.where(first, 0, jnp.maximum(state.largest, jnp.max(jnp.abs(values)))),
        )

    # A few numbers are carried, not all values: under vmap each lane's are copied at every turn.
    nothing = _Followed(jnp.full((), -1), jnp.zeros((), bool), *[0 * unit] * 4)
    found = lax.while_loop(unfinished, follow, nothing)
    return ~found.fails | (found.worst <= ALLOWED + _noise(found.largest))


def direction_of_look(
    mode: Float[Numbers, " D"], precision: Precision, room: Float[Numbers, " D"]
) -> Float[Numbers, " D"]:
    """One standard deviation in an irregular direction, no further than half of the room."""
    xp, signs = namespace(mode), irregular_signs(1, mode.size) / np.sqrt(mode.size)
    direction = precision.whitened(xp.asarray(signs, mode.dtype))
    return direction * xp.minimum(1, xp.min(room / xp.abs(direction)) / 2)


def levels_off(
    gradient: Callable[[Numbers], Float[Numbers, " D"]],
    mode: Float[Numbers, " D"],
    precision: Precision,
) -> Bool[Numbers, ""]:
    """Whether across a short step f bends far more than the precision says: as it does on a tail.

    The Hessian is looked at more closely by the search itself. Any other precision may differ from
    it, but not by this much.

    Args:
        gradient: of f at a point.
        mode: shape (D,).
        precision: there.
    """
    step = precision.whitened(probe(mode))
    bend = step @ (gradient(mode + step) - gradient(mode - step)) / 2
    return ~(abs(bend) <= MUCH * (step @ precision.matvec(step)))


def fails(values: Float[Numbers, "5"], slopes: Float[Numbers, "5"]) -> Bool[Numbers, ""]:
    """Whether five evaluations at the nodes of Gauss and Lobatto contradict each other."""
    xp = namespace(values)
    odd = values[4] - values[0]
    odd_slopes = 2 * WEIGHTS.astype(slopes.dtype) @ slopes
    even = values[4] + values[0] - 2 * values[2]
    # Exact for the first and the third power of t from 0 to 1.
    even_slopes = 7 / (16 * NODE) * (slopes[3] - slopes[1]) + (slopes[4] - slopes[0]) / 16
    gap = xp.maximum(xp.abs(odd - odd_slopes), xp.abs(even - even_slopes))
    change = xp.max(xp.abs(values - values[2]))
    return gap > ALLOWED + SHARE * change + _noise(xp.max(xp.abs(values)))


def follows_finely(values: Float[Numbers, " n"], slopes: Float[Numbers, " n"]) -> Bool[Numbers, ""]:
    """Whether at the finer nodes f does what its slope says from the mode to the end of each panel, on both sides.

    Where the slope is monotone within a panel, the error of the quadrature is at most 0.18 of the
    panel's length times the range of the slope: that of a step in the worst place.
    """
    xp = namespace(values)
    panels = np.add.outer(4 * np.arange(PANELS), np.arange(LOOK_NODES))
    values, slopes = (
        values.reshape(2, FINE.size)[:, panels],
        slopes.reshape(2, FINE.size)[:, panels],
    )
    outwards = np.array([[-1], [1]], slopes.dtype) / PANELS
    gap, bound = _unexplained(values, slopes, outwards)
    excess = _excess(xp.cumsum(gap, axis=1), xp.cumsum(bound, axis=1))
    return xp.max(excess) <= ALLOWED + _noise(xp.max(xp.abs(values)))


def _unexplained(
    values: Float[Numbers, "*P 5"], slopes: Float[Numbers, "*P 5"], length: Float[Numbers, "*L"]
) -> tuple[Float[Numbers, "*P"], Float[Numbers, "*P"]]:
    """What of the change over panels of a signed length their slopes do not explain, and the scale of its error."""
    xp = namespace(values)
    explained = length * (slopes @ WEIGHTS.astype(slopes.dtype))
    return values[..., -1] - values[..., 0] - explained, abs(length) * xp.ptp(slopes, axis=-1)


def _excess(gap: Numbers, bound: Numbers) -> Numbers:
    return abs(gap) - SHARE * bound


def _noise(largest: Numbers) -> Numbers:
    return 100 * jnp.finfo(largest.dtype).eps * largest
