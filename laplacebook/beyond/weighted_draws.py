"""Draws by which a nested approximation is checked: their density is known, and so are their weights."""

from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Key

from laplacebook.base.keys import split_into
from laplacebook.base.quick import in_full_precision
from laplacebook.base.weights import defined
from laplacebook.beyond.known_points import between_nodes
from laplacebook.beyond.nested_approximation import NestedApproximation

TOGETHER = 8  # draws of the effects for the same hyperparameters


class WeightedDraws(NamedTuple):
    """Draws with importance weights, under which they are the posterior's.

    Attributes:
        u: in the unconstrained space, shape (S, D); ``TOGETHER`` after each other have the same hyperparameters.
        log_weights: the log joint less the log density of each, shape (S,).
    """

    u: np.ndarray
    log_weights: np.ndarray


@in_full_precision
def weighted_draws(fit: NestedApproximation, key: Key[Array, ""], number: int) -> WeightedDraws:
    """Draws of the hyperparameters, and of the effects given them, from fits of their own.

    Of the effects every other draw is Gaussian, and every other one has the skew marginals; each is
    weighted by the mixture of the two laws. So the weights are as even as those of the better one: the
    Gaussian is where copulas of skew marginals leave a narrow ridge, such as a sum that is known.

    Args:
        fit: the approximation.
        key: a JAX random key.
        number: how many draws, about.

    Raises:
        LaplaceError: at a draw of the hyperparameters the effects have no mode.
        NonFinite: the log joint is NaN at a draw.
    """
    groups = -(-number // TOGETHER)
    to_hyper, to_effects = split_into(key)
    points, skewed = fit._points, fit.skewed
    chosen = points.drawn(float(jax.random.uniform(to_hyper)), groups)
    given = between_nodes(fit.effects, fit.grid, fit.start, points.points[chosen])
    index = np.repeat(np.arange(groups), TOGETHER)
    shape = (len(index), given.mode.shape[1])
    normal = np.asarray(jax.random.normal(to_effects, shape), float)
    gaussian, skew = (
        one.draws_given(given, index, normal) for one in (replace(skewed, image=None), skewed)
    )
    u = np.where(np.arange(len(index))[:, None] % 2, skew, gaussian)
    effects = u[:, fit.effects.places[1]]
    log_joint = fit.effects.log_joint(given.hyper, effects.reshape(groups, TOGETHER, -1)).ravel()
    log_q = skewed.log_densities(given, index, effects - given.mode[index])
    log_q = np.logaddexp.reduce(log_q) - np.log(len(log_q)) + points.log_density[chosen][index]
    return WeightedDraws(u, defined(log_joint - log_q, fit.density.name, "draws"))
