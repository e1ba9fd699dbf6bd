"""Does the log joint follow its own gradient? Where it jumps, or JAX is kept from seeing it, no."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from laplacebook.precision import Precision

__all__ = ["follows_gradient"]

ALLOWED = 0.1  # of the log joint, in nats
SHARE = 0.25  # of its own change: the quadrature is exact up to the fifth power
NODE = np.sqrt(3 / 7)  # Gauss-Lobatto with five points, of which the middle one is the mode


def follows_gradient(
    f: Callable[[Array], Array],
    mode: Float[Array, " D"],
    precision: Precision,
    room: Float[Array, " D"],
) -> Bool[Array, ""]:
    """Whether f changes by the integral of its slope, one standard deviation to both sides.

    A change point, ``round``, ``floor`` and ``stop_gradient`` have a slope of zero wherever one
    looks: by derivatives alone, the mode of the prior would be the mode.

    Args:
        f: the negative log joint, of a vector of shape (D,).
        mode: where its gradient vanishes, shape (D,).
        precision: the Hessian there.
        room: how far each coordinate is from the end of its interval; no more than half of it is
            used, since a density may be singular at the end. Shape (D,).

    Returns:
        Whether it does; true where f is not finite on the way.
    """
    signs = np.random.default_rng(1).choice([-1, 1], mode.size) / np.sqrt(mode.size)
    direction = precision.whitened(jnp.asarray(signs, mode.dtype))
    direction *= jnp.minimum(1, jnp.min(room / jnp.abs(direction)) / 2)
    nodes = jnp.asarray([-1, -NODE, 0, NODE, 1], mode.dtype)

    def along(t: Array) -> tuple[Array, Array]:
        return jax.jvp(lambda t: f(mode + t * direction), (t,), (jnp.ones_like(t),))

    values, slopes = jax.lax.map(along, nodes)
    odd = values[4] - values[0]
    odd_slopes = (slopes[0] + slopes[4]) / 10 + 49 / 90 * (slopes[1] + slopes[3])
    odd_slopes += 32 / 45 * slopes[2]
    even = values[4] + values[0] - 2 * values[2]
    # Exact for the first and the third power of t from 0 to 1.
    even_slopes = 7 / (16 * NODE) * (slopes[3] - slopes[1]) + (slopes[4] - slopes[0]) / 16
    gap = jnp.maximum(jnp.abs(odd - odd_slopes), jnp.abs(even - even_slopes))
    change = jnp.max(jnp.abs(values - values[2]))
    noise = 100 * jnp.finfo(mode.dtype).eps * jnp.max(jnp.abs(values))
    return ~(gap > ALLOWED + SHARE * change + noise)
