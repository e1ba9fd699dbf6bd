"""The posterior mean of some numbers by an expansion about the mode, and what it leaves out."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.namespace import Numbers
from laplacebook.base.one_thread import by_one_thread
from laplacebook.base.quick import is_eager, jit_quickly
from laplacebook.curvature.hessian import value_gradient_hessian
from laplacebook.evidence.expansion import Parabola, along, at_rows, lines_at, loss_of
from laplacebook.fit.function_of_sites import numbers_at
from laplacebook.gaussian.precision import DensePrecision, Precision
from laplacebook.model.arguments import Call
from laplacebook.model.density import ModelDensity
from laplacebook.search.driven import drive
from laplacebook.search.looks import is_small
from laplacebook.search.mode import find_mode
from laplacebook.search.newton_step import Look


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
    density: ModelDensity,
    g: Call,
    mode: Float[Array, " D"],
    precision: Precision,
    others: tuple[Parabola, ...] = (),
) -> Terms:
    """What the derivatives at the mode, and values along lines, say of the numbers that g returns.

    Args:
        density: the log joint.
        g: a function of the sites.
        mode: of q.
        precision: of q: the Hessian.
        others: the other components of a mixture.
    """
    f = loss_of(density)
    steps = precision.whitened(jnp.eye(mode.size, dtype=mode.dtype)).T

    def of_u(u: Array) -> Array:
        return numbers_at(density, g, u)

    def of_way(v: Array) -> tuple[Array, Array, Array]:
        """The third derivatives of f along v, v and each step; the first and second of g along v."""
        slope, bend = jax.jvp(along(of_u, v), (mode,), (v,))
        return steps @ jax.grad(along(f, v, v))(mode), slope, bend

    lines, size, at = lines_at(density, mode, precision, others), mode.size, of_u(mode)
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


def ratio_of_evidences(
    density: ModelDensity, g: Call, mode: Array, precision: Precision, at: Float[Numbers, " C"]
) -> tuple[Float[Numbers, " C"], Numbers]:
    """The mean of each number of g by Tierney and Kadane, and whether the mode that it takes was found.

    Args:
        density: the log joint.
        g: a function of the sites.
        mode: of q.
        precision: of q: the Hessian.
        at: the numbers at the mode, none of which is zero.
    """
    if is_eager() and is_small(density, mode.size):
        return _ratio_by_looks(density, g, *jax.device_get((mode, precision, at)))
    return _ratio(density, g, mode, precision, at)


def _tilted(
    density: ModelDensity, g: Call, sign: Float[Array, " C"], u: Float[Array, " D"]
) -> tuple[Array, None]:
    """f minus the logarithm of one number of g, whose sign is that of the only entry that is not zero."""
    return density.loss(u)[0] - jnp.log(sign @ numbers_at(density, g, u)), None


@jit_quickly
def _ratio(
    density: ModelDensity, g: Call, mode: Array, precision: Precision, at: Array
) -> tuple[Array, Array]:
    def tilted(u: Array, density: ModelDensity, g: Call, sign: Array) -> tuple[Array, None]:
        return _tilted(density, g, sign, u)

    def of_number(sign: Array) -> tuple[Array, Array]:
        found = find_mode(tilted, mode, density, g, sign)
        other = DensePrecision.of_symmetric(found.curvature)
        volume = other.log_volume() - precision.log_volume()
        rise = density.loss(mode)[0] - tilted(found.point, density, g, sign)[0]
        return jnp.sum(sign) * jnp.exp(rise + volume), found.certificate.converged

    return jax.vmap(of_number)(jnp.diag(jnp.sign(at)))


@by_one_thread
@np.errstate(all="ignore")
def _ratio_by_looks(
    density: ModelDensity, g: Call, mode: np.ndarray, precision: Precision, at: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same of a small fit: one program looks, and NumPy makes the steps in between."""
    ratios, found = np.empty_like(at), np.empty(at.size, bool)
    for i, sign in enumerate(np.diag(np.sign(at))):

        def look_at(u: np.ndarray, sign: np.ndarray = sign) -> Look:
            value, _, slope, hessian = jax.device_get(_look(density, g, sign, u))
            return Look(value, None, slope, hessian)

        end = drive(look_at, mode)
        volume = DensePrecision.of_symmetric(end.curvature).log_volume() - precision.log_volume()
        rise = look_at(mode).f + np.log(abs(at[i])) - look_at(end.point).f
        ratios[i], found[i] = sign.sum() * np.exp(rise + volume), end.certificate.converged
    return ratios, found


@jit_quickly
def _look(density: ModelDensity, g: Call, sign: Array, u: Array) -> tuple:
    return value_gradient_hessian(partial(_tilted, density, g, sign), u)
