"""The data that a model observes, and whether those of two models are the same."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpyro.distributions import MaskedDistribution

from laplacebook.base.quick import jit_quickly
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
    sites = jax.tree.map(np.asarray, _values_and_masks(density, u))
    if not sites:
        return None
    seen = [np.broadcast_to(value, mask.shape)[mask] for value, mask in sites]
    return np.sort(np.concatenate([x if x.dtype.kind == "f" else x.astype(float) for x in seen]))


def scaled_sites(density: ModelDensity, u: Float[Array, " D"]) -> list[str]:
    """The sites whose log density a handler multiplies by something other than one.

    Args:
        density: a model and its arguments.
        u: where the model runs, shape (D,).
    """
    return [name for name, is_scaled in _scaled(density, u).items() if is_scaled]


@jit_quickly
def _scaled(density: ModelDensity, u: Array) -> dict[str, Array]:
    trace, log_probs = density.trace(u)
    scales = {name: trace[name]["scale"] for name in log_probs}
    return {name: jnp.any(jnp.asarray(s) != 1) for name, s in scales.items() if s is not None}


@jit_quickly
def _values_and_masks(density: ModelDensity, u: Array) -> list[tuple[Array, Array]]:
    """Of each observed site the numbers, and which of them no mask hides."""
    trace, _ = density.trace(u)
    # A factor is an observed site with an empty value.
    sites = [trace[name] for name in density.observed(trace)]
    if not all(np.size(site["value"]) for site in sites):
        return []
    return [(jnp.asarray(site["value"]), _unmasked(site)) for site in sites]


def same_numbers(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two sorted vectors are equal, up to rounding in the coarser of their precisions."""
    if one.size != other.size or not one.size:
        return one.size == other.size
    coarsest = max(np.finfo(x.dtype).eps for x in (one, other))
    return bool(np.all(np.abs(one - other) <= _UNITS * coarsest * np.abs(one)))


def _unmasked(site: dict) -> Bool[Array, "..."]:
    """Which numbers of a site count: each as often as in the likelihood, unless masked."""
    shape = jnp.broadcast_shapes(jnp.shape(site["value"]), site["fn"].shape())
    seen = jnp.ones(shape, bool)
    for layer in wrapped(site["fn"]):
        if isinstance(layer, MaskedDistribution):
            mask = jnp.asarray(layer._mask)
            seen &= mask.reshape(mask.shape + (1,) * layer.event_dim)
    return seen
