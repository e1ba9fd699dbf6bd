"""Several starts: which modes are there?"""

from collections.abc import Iterable, Iterator

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from laplacebook.density import ModelDensity
from laplacebook.precision import Precision
from laplacebook.result import LaplaceApproximation

__all__ = ["by_height", "distinct", "log_joint", "more_starts"]

SPREAD = 10  # posterior standard deviations about the first mode
SAME = 0.1  # posterior standard deviations: nearer points are one mode


def more_starts(
    density: ModelDensity,
    key: Key[Array, ""],
    number: int,
    point: Float[Array, " D"],
    precision: Precision,
) -> Iterator[Float[Array, " D"]]:
    """Points from which to search again: far from one another, and from the mode that is known.

    In turn a draw from the prior, which reaches modes far away, and a draw from the approximation
    ten times as wide, which reaches those near by where the prior is vague.

    Args:
        density: the log joint.
        key: a JAX random key.
        number: how many points.
        point: the mode that is known, shape (D,).
        precision: A at that mode; NaN if there is none, and all points are draws from the prior.

    Yields:
        Points of shape (D,).
    """
    wide = jnp.isfinite(precision.log_determinant())
    for i, one in enumerate(jax.random.split(key, number)):
        if wide and i % 2:
            yield point + SPREAD * precision.sample(one)
        else:
            yield _prior_draw(density, one)


def by_height(modes: Iterable[LaplaceApproximation]) -> list[LaplaceApproximation]:
    """By falling log joint."""
    return sorted(modes, key=log_joint, reverse=True)


def log_joint(mode: LaplaceApproximation) -> float:
    """log p(D, mode): the height of a mode."""
    return float(mode.log_likelihood + mode.log_prior)


def distinct(modes: Iterable[LaplaceApproximation]) -> list[LaplaceApproximation]:
    """Those that differ from all before them, by the posterior standard deviations between them."""
    kept: list[LaplaceApproximation] = []
    for mode in modes:
        if all(_distance(mode.mode_vector, one) > SAME for one in kept):
            kept.append(mode)
    return kept


def _distance(point: Array, mode: LaplaceApproximation) -> Array:
    offset = point - mode.mode_vector
    return jnp.sqrt(offset @ mode.precision.matvec(offset))


@jax.jit
def _prior_draw(density: ModelDensity, key: Array) -> Array:
    return density.draw_start(key)
