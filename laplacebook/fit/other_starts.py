"""Another start, where the middle of the prior led nowhere: effects first, or weights that differ."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float
from numpyro import handlers

from laplacebook.base.quick import jit_quickly
from laplacebook.curvature.settings import Settings
from laplacebook.model.density import ModelDensity
from laplacebook.model.hierarchy import scales_of_effects
from laplacebook.search.certificate import Fit
from laplacebook.search.search import search

REST = 0.01  # entries of a matrix that differ by less have not been moved apart


def start_by_effects(density: ModelDensity, settings: Settings) -> Float[Array, " D"] | None:
    """The mode of all other sites given the scales of priors, with these in the middle of their own.

    A search for all together may shrink a scale before the data have moved the effects apart.

    Args:
        density: a log joint of which a search has failed.
        settings: of that search.

    Returns:
        A point of shape (D,); None if no latent site is a scale of others, or there is no such mode, or the log joint
        has gradients only.
    """
    scales = scales_of_effects(density)
    if not scales or density.only_gradients:
        return None
    known = {name: value for name, value in _centre(density).items() if name in scales}
    args, kwargs = density.arguments
    given_scales = ModelDensity.of(_Given(density.model), (known, *args), kwargs, density.space)
    given = search(given_scales, None, settings)
    return density.start({**known, **given.mode}) if given.certificate.converged else None


def start_by_weights(density: ModelDensity, found: Fit) -> Float[Array, " D"] | None:
    """Scaled draws of weights, as training begins with, if a search has left those of a network as they were.

    Where all weights of two layers and more are zero the log joint has no slope in them. It may have a maximum there,
    at which the outputs do not depend on the features.

    Args:
        density: the log joint.
        found: where a search ended, in which nothing is traced.

    Returns:
        A point of shape (D,), by a fixed key; None if a matrix has entries that differ, or there are no layers.
    """
    layers = [site for site in density.sites if len(site.shape) > 1]
    # Of one unit, or of one row as some biases are, the entries may be moved alike.
    matrices = {site.name for site in layers if sum(size > 1 for size in site.shape) > 1}
    if len(layers) < 2 or not matrices:
        return None
    ends = np.cumsum([site.size for site in density.sites])[:-1]
    for site, part in zip(density.sites, np.split(np.asarray(found.last), ends), strict=True):
        if site.name in matrices and np.ptp(part) > REST:
            return None
    from laplacebook.search.train import initial_weights

    return initial_weights(density, jax.random.key(0))


@dataclass(frozen=True)
class _Given:
    """A model whose sites of given names have given values: the same for all values, so that it is compiled once."""

    model: Callable

    def __call__(self, known: Mapping[str, Array], /, *args: Any, **kwargs: Any) -> Any:
        return handlers.condition(self.model, known)(*args, **kwargs)


@jit_quickly
def _centre(density: ModelDensity) -> dict[str, Array]:
    """The latent sites in the middle of their priors."""
    return density.values(density.start())
