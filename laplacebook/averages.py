"""Averages over draws, of what a model says of new data."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from laplacebook.density import ModelDensity
from laplacebook.outcomes import outcome_at

__all__ = ["outcome_over_draws", "outputs_over_draws", "standard_error"]


@partial(jax.jit, static_argnames=["site"])
def outcome_over_draws(
    density: ModelDensity, new: ModelDensity, draws: Float[Array, "S D"], site: str | None
) -> tuple[Any, Any]:
    """Mean and variance over draws of the outcome's mean and of its variance.

    Args:
        density: the model and the arguments that it was fitted to.
        new: the same model and the new arguments.
        draws: of the latent sites, shape (S, D).
        site: the observed site; needed if there are several.

    Returns:
        Two pairs: the means, and the variances, of the outcome's mean and of its variance.
    """

    def at(u: Array) -> tuple[Array, Array]:
        outcome = outcome_at(density, new, u, site)
        return outcome.mean, outcome.variance

    return _moments(at, draws)


@jax.jit
def outputs_over_draws(
    logits: Float[Array, "*N"],
    variance: Float[Array, "*N"],
    covariance: Float[Array, "*M C C"] | None,
    keys: Key[Array, " S"],
) -> tuple[Array, Array]:
    """Mean and variance of the probabilities over draws of the logits; of classes with covariance.

    Args:
        logits: their means, shape (*N), or (*N, C) of classes.
        variance: of the same shape.
        covariance: of the classes of a row, shape (*N, C, C); None for two classes.
        keys: one a draw.

    Returns:
        Mean and variance, of the shape of the logits.
    """
    deviation = jnp.sqrt(variance)

    def bernoulli(normal: Array) -> Array:
        return jax.nn.sigmoid(logits + deviation * normal)

    def categorical(root: Array, normal: Array) -> Array:
        return jax.nn.softmax(logits + jnp.einsum("...ck,...k->...c", root, normal))

    link = bernoulli
    if covariance is not None:  # by singular values, since it may have no inverse
        left, singular, _ = jnp.linalg.svd(covariance)
        link = partial(categorical, left * jnp.sqrt(singular)[..., None, :])
    return _moments(lambda key: link(jax.random.normal(key, logits.shape, logits.dtype)), keys)


def _moments(at: Callable[[Array], Any], draws: Array) -> tuple[Any, Any]:
    """Mean and variance over draws of each array that a function of one returns (Welford)."""

    def add(sums: tuple, numbered: tuple) -> tuple:
        (mean, square), (number, draw) = sums, numbered
        value = at(draw)
        after = jax.tree.map(lambda x, m: m + (x - m) / number, value, mean)
        square = jax.tree.map(lambda s, x, m, a: s + (x - m) * (x - a), square, value, mean, after)
        return (after, square), None

    numbers = jnp.arange(1, len(draws) + 1)
    start = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(at, draws[0]))
    (mean, squares), _ = jax.lax.scan(add, (start, start), (numbers, draws))
    return mean, jax.tree.map(lambda s: s / (len(draws) - 1), squares)


def standard_error(spread: Float[Array, "*N"], number: int) -> Float[Array, "*N"]:
    """The standard error of a mean of so many draws with this variance; infinite for one."""
    return jnp.sqrt(spread / number) if number > 1 else jnp.full_like(spread, jnp.inf)
