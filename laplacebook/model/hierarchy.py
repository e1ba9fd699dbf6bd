"""On which latent sites a model's distributions depend; and its scales, for which a joint mode does not answer."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro.distributions import Distribution

from laplacebook.base.jaxprs import sources
from laplacebook.model.arguments import as_called
from laplacebook.model.density import LikelihoodDensity, ModelDensity
from laplacebook.model.distributions import innermost
from laplacebook.model.plain_function import is_plain

_SOURCES: dict[tuple, "Sources"] = {}
_KEPT = 200  # of them
_NOTHING = 1e-4  # relative


class Sources(NamedTuple):
    """On which latent sites the distributions of a model depend.

    Attributes:
        priors: latent site -> the other latent sites on which its prior depends.
        likelihoods: observed site -> those on which each of its :func:`real_parameters` depends.
        affine: the latent sites that are affine functions of their coordinates.
        positive: those whose support begins at zero.
    """

    priors: dict[str, frozenset[str]]
    likelihoods: dict[str, list[frozenset[str]]]
    affine: tuple[str, ...]
    positive: frozenset[str]


def sources_of(density: ModelDensity) -> Sources:
    """On which latent sites the distributions of a model depend, by its program; found once for it.

    Args:
        density: a model and its arguments.
    """
    key = density.program
    if key not in _SOURCES:
        while len(_SOURCES) >= _KEPT:
            del _SOURCES[next(iter(_SOURCES))]
        _SOURCES[key] = _sources_of(density)
    return _SOURCES[key]


def _sources_of(density: ModelDensity) -> Sources:
    names = [site.name for site in density.sites]
    positive: set[str] = set()

    def of_sites(parts: dict[str, Array]) -> tuple[dict, tuple[dict, dict]]:
        trace, _ = density.trace(parts)
        positive.update(name for name in names if _begins_at_zero(trace[name]["fn"]))
        priors = {name: jax.tree.leaves(trace[name]["fn"]) for name in names}
        observed = {name: real_parameters(trace[name]) for name in density.observed(trace)}
        return {name: trace[name]["value"] for name in names}, (priors, observed)

    def seen(parts: dict[str, Array]) -> Any:
        ones = jax.tree.map(jnp.ones_like, parts)
        _, slopes, others = jax.jvp(of_sites, (parts,), (ones,), has_aux=True)
        return slopes, *others

    number = jnp.result_type(float)
    parts = {site.name: jax.ShapeDtypeStruct(site.shape, number) for site in density.sites}
    slopes, priors, likelihoods = sources(seen, parts)
    united = {name: frozenset().union(*priors[name]) - {name} for name in names}
    affine = tuple(name for name in names if not slopes[name])
    return Sources(united, likelihoods, affine, frozenset(positive))


def _begins_at_zero(prior: Distribution) -> bool:
    lower = getattr(innermost(prior.support), "lower_bound", None)
    return isinstance(lower, int | float) and lower == 0


def real_parameters(site: dict) -> list[Any]:
    """The arrays of real numbers that the distribution of a site of a trace is made of."""
    leaves = jax.tree.leaves(site["fn"])
    return [leaf for leaf in leaves if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)]


def scales_of_effects(density: ModelDensity) -> dict[str, list[str]]:
    """The positive latent sites on which the priors of others depend, and these others.

    Args:
        density: a model and its arguments; empty for another function of its coordinates.
    """
    if isinstance(density, LikelihoodDensity) or is_plain(density):
        return {}
    known = sources_of(density)
    found = {
        name: [other for other, of_prior in known.priors.items() if name in of_prior]
        for name in known.priors
        if name in known.positive
    }
    return {name: effects for name, effects in found.items() if effects}


def has_shrunk(
    density: ModelDensity, start: Float[np.ndarray, " D"], u: Float[np.ndarray, " D"]
) -> bool:
    """Whether a scale of others is next to nothing of what it was at the start of a search.

    Args:
        density: the log joint.
        start: shape (D,).
        u: where the search stands, shape (D,).
    """
    scales, ends = scales_of_effects(density), np.cumsum([site.size for site in density.sites])
    least = start + np.log(_NOTHING) if density.space == "unconstrained" else _NOTHING * start
    parts = np.split(u < least, ends[:-1])
    return any(
        part.any() for site, part in zip(density.sites, parts, strict=True) if site.name in scales
    )


def is_marginal(density: ModelDensity) -> bool:
    """Whether sites of the model are integrated out, by a search wherever its log joint is evaluated."""
    return getattr(density.model, "is_marginal", False)


def integrate_out(density: ModelDensity) -> str:
    """What to do about a hierarchical model, with the call for its sites; empty if it is none."""
    scales = scales_of_effects(density)
    if not scales:
        return ""
    effects = dict.fromkeys(
        name for of_one in scales.values() for name in of_one if name not in scales
    )
    whose = _listed(list(effects))
    nested, marginal = (
        ", ".join([model, *as_called(density.model, *density.arguments)])
        for model in (density.name, f"lb.marginalize({density.name}, {list(effects)})")
    )
    return (
        f" A joint mode does not answer for {_listed(list(scales))}, the scale of {whose}, in whatever form "
        f"the model is written: integrate {whose} out, lb.nested({nested}), or "
        f"lb.laplace({marginal})."
    )


def _listed(names: list[str]) -> str:
    return " and ".join(f"'{name}'" for name in names)
