"""The data that a model observes, and whether those of two models are the same."""

import numpy as np
from jaxtyping import Array, Bool, Float
from numpyro.distributions import Distribution, MaskedDistribution

from laplacebook.model.density import ModelDensity
from laplacebook.model.distributions import wrapped

_UNITS = 16  # units in the last place


def observed_sites(density: ModelDensity, u: Float[Array, " D"]) -> dict[str, dict]:
    """The observed sites of a model, as NumPyro's trace has them.

    Args:
        density: a model and its arguments.
        u: where the model runs, shape (D,).

    Returns:
        A dict of name -> site.
    """
    trace, log_probs = density.trace(u)
    observed = {name: trace[name] for name in log_probs if trace[name]["is_observed"]}
    # A factor is an observed site with an empty value.
    return {name: site for name, site in observed.items() if np.size(site["value"])}


def observed_numbers(density: ModelDensity, u: Float[Array, " D"]) -> np.ndarray | None:
    """All numbers that a model observes and no mask hides, sorted.

    Args:
        density: a model and its arguments.
        u: where the model runs, shape (D,).

    Returns:
        A vector; None if there is no observed site, or a factor beside them: what that holds is
        not known.
    """
    trace, _ = density.trace(u)
    sites = [trace[name] for name in density.observed(trace)]
    if not sites or not all(np.size(site["value"]) for site in sites):
        return None
    return np.sort(np.concatenate([_seen(site) for site in sites]))


def same_numbers(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two sorted vectors are equal, up to rounding in the coarser of their precisions."""
    if one.size != other.size or not one.size:
        return one.size == other.size
    coarsest = max(np.finfo(x.dtype).eps for x in (one, other))
    return bool(np.all(np.abs(one - other) <= _UNITS * coarsest * np.abs(one)))


def _seen(site: dict) -> np.ndarray:
    """The numbers of a site that count: each as often as the likelihood does, unless masked."""
    value = np.asarray(site["value"])
    if value.dtype.kind != "f":
        value = value.astype(float)
    value = np.broadcast_to(value, np.broadcast_shapes(value.shape, site["fn"].shape()))
    return value[_unmasked(site["fn"], value.shape)]


def _unmasked(fn: Distribution, shape: tuple[int, ...]) -> Bool[np.ndarray, "..."]:
    seen = np.ones(shape, bool)
    for layer in wrapped(fn):
        if isinstance(layer, MaskedDistribution):
            mask = np.asarray(layer._mask)
            seen &= mask.reshape(mask.shape + (1,) * layer.event_dim)
    return seen
