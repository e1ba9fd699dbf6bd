"""How far the integral of a marginal model is off, which Laplace's method took for it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array

from laplacebook.base.estimate import Estimate
from laplacebook.base.weights import mean_of_weights, pareto_k
from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.skewed_effects import PAIRS, TOGETHER, pairs_at
from laplacebook.model.density import ModelDensity


class Integral(NamedTuple):
    """The integral over some sites, at values of the others.

    Attributes:
        sites: over which it is.
        off: its logarithm by Laplace's method less that by pairs of draws; of an infinite error where these do not
            tell it.
        pareto_k: of the ratios of the densities at the pairs.
    """

    sites: tuple[str, ...]
    off: Estimate
    pareto_k: float


def checked_integral(density: ModelDensity, values: Mapping[str, Array]) -> Integral | None:
    """By 4,096 pairs of draws to both sides of the mode; None if the sites have none, or are sparse.

    Args:
        density: of the marginal model.
        values: of its sites.
    """
    marginal: Any = density.model
    if marginal.structure == "sparse":
        return None
    args, kwargs = density.arguments
    whole = ModelDensity.of(marginal.model, args, kwargs)
    effects = Effects(whole, tuple(values))
    mode = marginal.given(values, *args, **kwargs).mode
    point = np.asarray(whole.start({**values, **mode}), float)[None]
    of_hyper, of_effects = effects.places
    node = effects.given(point[:, of_hyper], point[:, of_effects])
    if not np.isfinite(node.log_marginal).all():
        return None
    ratios = pairs_at(effects, node, np.zeros(PAIRS // TOGETHER, int), 0)[0]
    k = pareto_k(ratios)
    return Integral(effects.names, -mean_of_weights(ratios, k), k)
