"""What a person reads of an approximation."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Array

from laplacebook.density import ModelDensity
from laplacebook.program import name_of
from laplacebook.settings import DENSE_HESSIAN, Settings
from laplacebook.sites import Site
from laplacebook.table import Table

__all__ = [
    "improper_evidence",
    "made_of",
    "modes_found",
    "settings_lines",
    "summary_table",
]


def summary_table(density: ModelDensity, columns: Mapping[str, Mapping[str, Array]]) -> Table:
    """One row for each number of each latent site.

    Args:
        density: the log joint, whose sites they are.
        columns: name -> a dict of site -> array of the shape of the site's value.

    Returns:
        A table with a column ``site`` before the others.
    """
    sites = density.sites
    title = (
        f"{density.method} of {name_of(density.model)}, {density.space} space, "
        f"D = {density.dimension}"
    )
    names = {"site": [name for site in sites for name in _element_names(site)]}
    return Table(title, names | {name: _flat(sites, values) for name, values in columns.items()})


def improper_evidence(density: ModelDensity) -> list[str]:
    """A line that says so if the evidence is defined only up to a constant."""
    names = density.improper
    if not names:
        return []
    whose = "prior of {} is" if len(names) == 1 else "priors of {} are"
    listed = " and ".join(f"'{name}'" for name in names)
    return [f"defined only up to a constant: the {whose.format(listed)} {density.without_prior}"]


def modes_found(log_evidence: Array, others: Sequence[Array]) -> list[str]:
    """A line that names the log evidence of each mode if there are several."""
    if not others:
        return []
    listed = ", ".join(f"{value:.4f}" for value in others)
    return [f"{1 + len(others)} modes found, log evidence {log_evidence:.4f} (this one), {listed}"]


def made_of(settings: Settings) -> str:
    """The curvature and what was kept of it, in words."""
    rank = f" {settings.rank}" if settings.rank else ""
    structure = settings.structure.replace("_", " ")
    return f"{settings.curvature.replace('_', ' ')} curvature, {structure}{rank}"


def settings_lines(settings: Settings) -> list[str]:
    """Lines that name a curvature that is not the whole Hessian, and the tolerance if it was given."""
    lines = [] if made_of(settings) == made_of(DENSE_HESSIAN) else [made_of(settings)]
    if settings.tolerance is not None:
        lines.append(f"a Newton decrement of {settings.tolerance:g} was accepted for a mode")
    return lines


def _element_names(site: Site) -> list[str]:
    return replace(site, shape=site.value_shape).coordinate_names()


def _flat(sites: Sequence[Site], values: Mapping[str, Array]) -> list[float]:
    return np.concatenate([np.ravel(values[site.name]) for site in sites]).tolist()
