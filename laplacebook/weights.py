"""A log density at many points: none is NaN, and what the mean of draws of it is worth."""

from math import nan

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from laplacebook.density import ModelDensity
from laplacebook.errors import NonFinite
from laplacebook.estimate import Estimate, log_mean
from laplacebook.pareto import pareto_k, usable_below
from laplacebook.program import name_of

__all__ = ["defined", "estimate_of", "mean_of_weights"]


def defined(values: Float[Array, " S"], density: ModelDensity, where: str) -> Float[Array, " S"]:
    """The values, none of which is NaN or plus infinity.

    Args:
        values: of the log joint or log likelihood, or what is made of them.
        density: whose they are.
        where: they were computed, in words.

    Raises:
        NonFinite: one of them is. Not within a compiled program.
    """
    bad = jnp.isnan(values) | jnp.isposinf(values)
    if isinstance(bad, jax.core.Tracer) or not bad.any():
        return values
    raise NonFinite(
        f"The log density of {name_of(density.model)} is NaN or infinite at {int(bad.sum()):,} of "
        f"{bad.size:,} {where}.",
        causes=[
            "a parameter of a distribution that is not valid there, such as a scale a + b*x below 0",
            "an overflow far from the data, such as exp(u) in a rate, under a vague prior",
        ],
        remedy="keep parameters valid everywhere (softplus or exp of a linear function, clipped "
        "before it overflows), or make the prior say where they can be.",
    )


def mean_of_weights(weights: Float[Array, " S"], k: float) -> Estimate:
    """The logarithm of the mean of importance weights, with the error that their tail allows.

    Args:
        weights: log weights, shape (S,).
        k: their Pareto k-hat; NaN where it is not known.

    Returns:
        The :class:`Estimate`, with an infinite error where k says that none can be told.
    """
    estimate = log_mean(weights)
    if k > usable_below(weights.size):
        return Estimate(estimate.value, jnp.full_like(estimate.value, jnp.inf))
    return estimate


def estimate_of(weights: Float[Array, " S"]) -> Estimate:
    """The same with the k of the weights, which is not looked at within a compiled program.

    Args:
        weights: log weights, shape (S,).
    """
    compiled = isinstance(weights, jax.core.Tracer)
    return mean_of_weights(weights, nan if compiled else pareto_k(weights))
