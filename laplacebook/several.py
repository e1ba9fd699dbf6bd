"""Several starts: which modes are there?"""

from collections.abc import Iterable, Iterator, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from laplacebook.density import ModelDensity
from laplacebook.precision import DensePrecision

__all__ = ["distinct", "more_starts"]

SPREAD = 10  # posterior standard deviations about the first mode
SAME = 0.1  # posterior standard deviations: nearer points are one mode


def more_starts(
    density: ModelDensity,
    key: Key[Array, ""],
    number: int,
    point: Float[Array, " D"],
    precision: DensePrecision,
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


def distinct(
    points: Sequence[tuple[Float[Array, " D"], DensePrecision]], order: Iterable[int]
) -> list[int]:
    """Which of several modes differ, by the posterior standard deviations between them.

    Args:
        points: modes, each with its precision.
        order: which to take first.

    Returns:
        Their indices, in that order.
    """
    kept: list[int] = []
    for i in order:
        if all(_distance(points[i][0], *points[j]) > SAME for j in kept):
            kept.append(i)
    return kept


def _distance(point: Array, mode: Array, precision: DensePrecision) -> Array:
    return jnp.sqrt((point - mode) @ precision.matvec(point - mode))


@jax.jit
def _prior_draw(density: ModelDensity, key: Array) -> Array:
    return density.draw_start(key)
