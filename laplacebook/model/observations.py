"""The data that a model observes, and whether those of two models are the same."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpyro.distributions import (
    BernoulliLogits,
    BernoulliProbs,
    BetaBinomial,
    BinomialLogits,
    BinomialProbs,
    DirichletMultinomial,
    Distribution,
    MaskedDistribution,
    MultinomialLogits,
    MultinomialProbs,
)
from numpyro.distributions.discrete import ZeroInflatedProbs

from laplacebook.base.quick import jit_quickly
from laplacebook.model.density import ModelDensity
from laplacebook.model.distributions import unwrapped, wrapped

_UNITS = 16  # units in the last place
_OF_TOTALS = (
    BinomialLogits,
    BinomialProbs,
    BetaBinomial,
    DirichletMultinomial,
    MultinomialLogits,
    MultinomialProbs,
)


class Observed(NamedTuple):
    """What a model observes and no mask hides.

    Attributes:
        numbers: all of them, sorted.
        counted: those of a discrete distribution, whose densities are masses; sorted.
        of_totals: counts with the total that each is out of, in rows; a Bernoulli's is one.
    """

    numbers: np.ndarray
    counted: np.ndarray
    of_totals: Float[np.ndarray, "n 2"]


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


@jit_quickly
def observed_data(density: ModelDensity, u: Float[Array, " D"]) -> dict[str, Array]:
    """What the observed sites of a model hold, by name.

    Args:
        density: a model and its arguments.
        u: where the model runs, shape (D,).
    """
    return {name: site["value"] for name, site in observed_sites(density, u).items()}


def observed_numbers(density: ModelDensity, u: Float[Array, " D"]) -> np.ndarray | None:
    """All numbers that a model observes and no mask hides, sorted.

    Args:
        density: a model and its arguments.
        u: where the model runs, shape (D,).

    Returns:
        A vector; None if there is no observed site, or a factor beside them: what that holds is
        not known.
    """
    found = observed(density, u)
    return None if found is None else found.numbers


def observed(density: ModelDensity, u: Float[Array, " D"]) -> Observed | None:
    """The same numbers, and which of them are counts, out of what.

    Args:
        density: a model and its arguments.
        u: where the model runs, shape (D,).
    """
    sites = jax.tree.map(np.asarray, _observations(density, u))
    if not sites:
        return None
    parts = [
        [np.broadcast_to(x, mask.shape)[mask].astype(_real(x)) for x in (value, total, is_count)]
        for value, mask, total, is_count in sites
    ]
    numbers, totals, is_count = (np.concatenate(column) for column in zip(*parts, strict=True))
    of_totals = np.stack([numbers, totals], axis=1)[totals > 0].astype(float)
    return Observed(
        np.sort(numbers),
        np.sort(numbers[is_count > 0]),
        of_totals[np.lexsort(of_totals.T)],
    )


def _real(x: np.ndarray) -> type | np.dtype:
    return x.dtype if x.dtype.kind == "f" else float


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
    scales = {name: trace[name]["scale"] for name in log_probs if name in density.names}
    return {name: jnp.any(jnp.asarray(s) != 1) for name, s in scales.items() if s is not None}


@jit_quickly
def _observations(density: ModelDensity, u: Array) -> list[tuple[Array, Array, Array, Array]]:
    """Of each observed site the numbers, which of them no mask hides, their totals, and whether they count."""
    trace, _ = density.trace(u)
    # A factor is an observed site with an empty value.
    sites = [trace[name] for name in density.observed(trace)]
    if not all(np.size(site["value"]) for site in sites):
        return []
    return [
        (
            jnp.asarray(site["value"]),
            _unmasked(site),
            _total(site["fn"]),
            jnp.asarray(site["fn"].support.is_discrete),
        )
        for site in sites
    ]


def _total(fn: Distribution) -> Array:
    """Out of how many the counts of a site are; zero where there is no such number."""
    base = unwrapped(fn)
    while isinstance(base, ZeroInflatedProbs):
        base = unwrapped(base.base_dist)
    if isinstance(base, BernoulliLogits | BernoulliProbs):
        return jnp.ones(())
    if not isinstance(base, _OF_TOTALS):
        return jnp.zeros(())
    total = jnp.asarray(base.total_count, float)
    return total[(..., *[None] * base.event_dim)]


def same_numbers(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two sorted vectors are equal, up to rounding in the coarser of their precisions."""
    if one.size != other.size or not one.size:
        return one.size == other.size
    coarsest = max(np.finfo(x.dtype).eps for x in (one, other))
    if np.all(np.abs(one - other) <= _UNITS * coarsest * np.abs(one)):
        return True
    first, second = _in_single(one), _in_single(other)  # wide by now, whatever they were held in
    is_single = np.array_equal(first, one) or np.array_equal(second, other)
    return is_single and np.array_equal(first, second)


def _in_single(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return x.astype(np.float32)


def _unmasked(site: dict) -> Bool[Array, "..."]:
    """Which numbers of a site count: each as often as in the likelihood, unless masked."""
    shape = jnp.broadcast_shapes(jnp.shape(site["value"]), site["fn"].shape())
    seen = jnp.ones(shape, bool)
    for layer in wrapped(site["fn"]):
        if isinstance(layer, MaskedDistribution):
            mask = jnp.asarray(layer._mask)
            seen &= mask.reshape(mask.shape + (1,) * layer.event_dim)
    return seen
