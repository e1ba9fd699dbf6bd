"""Scales of priors that are latent sites themselves, for which a joint mode does not answer."""

from typing import Any

import jax
from jaxtyping import Array

from laplacebook.base.jaxprs import depends_on
from laplacebook.model.density import LikelihoodDensity, ModelDensity
from laplacebook.model.distributions import innermost
from laplacebook.model.plain_function import is_plain


def scales_of_effects(density: ModelDensity) -> dict[str, list[str]]:
    """The positive latent sites on which the priors of others depend, and these others.

    Args:
        density: a model and its arguments; empty for another function of its coordinates.
    """
    if isinstance(density, LikelihoodDensity) or is_plain(density):
        return {}
    parts = density.unravel(density.start())
    trace, _ = density.trace(parts)
    names = [site.name for site in density.sites]
    found = {}
    for name in names:
        lower = getattr(innermost(trace[name]["fn"].support), "lower_bound", None)
        if isinstance(lower, int | float) and lower == 0:
            moved = depends_on(
                lambda value, name=name: _priors(density, parts, name, value), parts[name]
            )
            found[name] = [other for other in names if other != name and any(moved[other])]
    return {name: effects for name, effects in found.items() if effects}


def _priors(density: ModelDensity, parts: dict, name: str, value: Array) -> dict[str, list[Any]]:
    """The parameters of the priors of all latent sites, with one of these at another value."""
    trace, _ = density.trace({**parts, name: value})
    return {site.name: jax.tree.leaves(trace[site.name]["fn"]) for site in density.sites}


def integrate_out(density: ModelDensity) -> str:
    """What to do about a hierarchical model, with the call for its sites; empty if it is none."""
    scales = scales_of_effects(density)
    if not scales:
        return ""
    effects = dict.fromkeys(
        name for of_one in scales.values() for name in of_one if name not in scales
    )
    whose = _listed(list(effects))
    return (
        f" A joint mode does not answer for {_listed(list(scales))}, the scale of {whose}, in whatever form "
        f"the model is written: integrate {whose} out, laplace(marginalize({density.name}, {list(effects)}), "
        "...) with the arguments of the model for the dots."
    )


def _listed(names: list[str]) -> str:
    return " and ".join(f"'{name}'" for name in names)
