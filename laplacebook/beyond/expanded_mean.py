"""The posterior mean of some numbers by an expansion about the mode, and what it leaves out."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from laplacebook.base.quick import jit_quickly
from laplacebook.evidence.expansion import along, at_rows, lines_at, loss_of
from laplacebook.fit.function_of_sites import numbers_at
from laplacebook.gaussian.precision import DensePrecision, Precision
from laplacebook.model.arguments import Call
from laplacebook.model.density import ModelDensity
from laplacebook.search.mode import find_mode


class Terms(NamedTuple):
    """What the derivatives at the mode, and values on lines through it, say of C numbers.

    Attributes:
        at: at the mode, shape (C,).
        delta: what the delta method adds, shape (C,).
        told: what the lines add, shape (C,).
        noise: of that, as lines differ, shape (C,).
        spread: the posterior standard deviation by the lines, shape (C,).
        flat: whether the first two derivatives vanish, shape (C,).
        one_sign: whether the number has one sign wherever the lines have seen it, shape (C,).
        ratios: of the posterior to its parabola on the lines, shape (S,).
    """

    at: Array
    delta: Array
    told: Array
    noise: Array
    spread: Array
    flat: Array
    one_sign: Array
    ratios: Array


@partial(jit_quickly, half=True)
def terms_of(
    density: ModelDensity, g: Call, mode: Float[Array, " D"], precision: Precision
) -> Terms:
    """What the derivatives at the mode, and values along lines, say of the numbers that g returns.

    Args:
        density: the log joint.
        g: a function of the sites.
        mode: of q.
        precision: of q: the Hessian.
    """
    f = loss_of(density)
    steps = precision.whitened(jnp.eye(mode.size, dtype=mode.dtype)).T

    def of_u(u: Array) -> Array:
        return numbers_at(density, g, u)

    def of_way(v: Array) -> tuple[Array, Array, Array]:
        """The third derivatives of f along v, v and each step; the first and second of g along v."""
        slope, bend = jax.jvp(along(of_u, v), (mode,), (v,))
        return steps @ jax.grad(along(f, v, v))(mode), slope, bend

    lines, size, at = lines_at(density, mode, precision), mode.size, of_u(mode)
    thirds, slopes, bends = at_rows(of_way, density, jnp.concatenate([steps, lines.ways]))
    delta = (bends[:size].sum(axis=0) - thirds[:size].sum(axis=0) @ slopes[:size]) / 2

    values = at_rows(of_u, density, lines.points.reshape(-1, size))
    values = values.reshape(*lines.ratios.shape, at.size)
    ratios = lines.ratios[..., None]
    values = jnp.where(ratios > 0, values, at)  # beyond the support it does not matter
    # Of these terms the mean over all of q is known: what the delta method adds.
    third = jnp.sum(thirds[size:] * lines.units, axis=1)[:, None, None]
    radii = lines.radii[:, None]
    told = radii**2 * bends[size:, None] / 2 - radii**4 * third * slopes[size:, None] / 6
    rest = lines.mean_of_each(jnp.mean((values - at) * ratios, axis=2) - told)
    masses = lines.mean_of_each(lines.ratios.mean(axis=2))[:, None]
    mass = masses.mean()
    away = (delta + rest.mean(axis=0)) / mass
    noise = jnp.std(rest - away * masses, axis=0) / mass / len(rest) ** 0.5
    squares = lines.mean_of_each(jnp.mean((values - at - away) ** 2 * ratios, axis=2))
    return Terms(
        at,
        delta,
        away,
        noise,
        jnp.sqrt(squares.mean(axis=0) / mass),
        jnp.all((slopes == 0) & (bends == 0), axis=0),
        jnp.all(values * jnp.sign(at) > 0, axis=(0, 1, 2)),
        lines.ratios.ravel(),
    )


@jit_quickly
def ratio_of_evidences(
    density: ModelDensity, g: Call, mode: Array, precision: DensePrecision, at: Float[Array, " C"]
) -> tuple[Float[Array, " C"], Array]:
    """The mean of each number of g by Tierney and Kadane, and whether the mode that it takes was found.

    Args:
        density: the log joint.
        g: a function of the sites.
        mode: of q.
        precision: of q: the Hessian.
        at: the numbers at the mode, none of which is zero.
    """

    def tilted(u: Array, density: ModelDensity, g: Call, sign: Array) -> tuple[Array, None]:
        return density.loss(u)[0] - jnp.log(sign @ numbers_at(density, g, u)), None

    def of_number(sign: Array) -> tuple[Array, Array]:
        found = find_mode(tilted, mode, density, g, sign)
        other = DensePrecision.of_symmetric(found.curvature)
        volume = other.log_volume() - precision.log_volume()
        rise = density.loss(mode)[0] - tilted(found.point, density, g, sign)[0]
        return jnp.sum(sign) * jnp.exp(rise + volume), found.certificate.converged

    return jax.vmap(of_number)(jnp.diag(jnp.sign(at)))
