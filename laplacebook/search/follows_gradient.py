"""Does the log joint follow its own gradient? Where it jumps, or JAX is kept from seeing it, no."""

from collections.abc import Callable

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


def follows_along(
    f: Callable[[Array], Array], mode: Float[Array, " D"], direction: Float[Array, " D"]
) -> Bool[Array, ""]:
    """The same for a direction of :func:`direction_of_look`."""
    nodes, unit = jnp.asarray(NODES, mode.dtype), jnp.ones((), mode.dtype)
    line, constants = jax.closure_convert(lambda t: f(mode + t * direction), unit)
    constants = lax.stop_gradient(constants)  # a loop of unknown length has no reverse mode

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        i, values, slopes = state
        return (i < LOOK_NODES) | (
            (i < nodes.size) & fails(values[:LOOK_NODES], slopes[:LOOK_NODES])
        )

    def look(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        i, values, slopes = state
        value, slope = jax.jvp(lambda t: line(t, *constants), (nodes[i],), (unit,))
        return i + 1, values.at[i].set(value), slopes.at[i].set(slope)

    start = jnp.zeros((), int), jnp.zeros_like(nodes), jnp.zeros_like(nodes)
    _, values, slopes = lax.while_loop(unfinished, look, start)
    return ~fails(values[:LOOK_NODES], slopes[:LOOK_NODES]) | follows_finely(
        values[LOOK_NODES:], slopes[LOOK_NODES:]
    )


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
    return gap > ALLOWED + SHARE * change + _noise(values)


def follows_finely(values: Float[Numbers, " n"], slopes: Float[Numbers, " n"]) -> Bool[Numbers, ""]:
    """Whether at the finer nodes f does what its slope says from the mode to the end of each panel, on both sides.

    Where the slope is monotone within a panel, the error of the quadrature is at most 0.18 of the
    panel's length times the range of the slope: that of a step in the worst place.
    """
    xp = namespace(values)
    values, slopes = values.reshape(2, FINE.size), slopes.reshape(2, FINE.size)
    panels = slopes[:, np.add.outer(4 * np.arange(PANELS), np.arange(LOOK_NODES))]
    outwards = np.array([[-1], [1]]) / PANELS
    explained = outwards.astype(slopes.dtype) * (panels @ WEIGHTS.astype(slopes.dtype))
    gap = xp.cumsum(xp.diff(values[:, ::4]) - explained, axis=1)
    bound = xp.cumsum(xp.ptp(panels, axis=2), axis=1) / PANELS
    return xp.all(xp.abs(gap) <= ALLOWED + SHARE * bound + _noise(values))


def _noise(values: Numbers) -> Numbers:
    xp = namespace(values)
    return 100 * jnp.finfo(values.dtype).eps * xp.max(xp.abs(values))
