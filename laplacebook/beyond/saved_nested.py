"""The file of a nested approximation: its grid, its effects, and what notices that they are another model's."""

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_type_hints

import jax
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.quick import jit_quickly
from laplacebook.beyond.chains import Chains
from laplacebook.beyond.cloud import Cloud
from laplacebook.beyond.dense_conditional import AnyConditional, Conditional
from laplacebook.beyond.grid import Grid
from laplacebook.beyond.leaves import Leaves
from laplacebook.beyond.sparse_conditional import SparseConditional
from laplacebook.fit.digest import digests
from laplacebook.fit.saved_file import ARGUMENT, Archive, data_of, within, write
from laplacebook.gaussian.sparse_layout import SparseLayout
from laplacebook.model.density import ModelDensity
from laplacebook.model.sites import Site
from laplacebook.model.trace import Terms

KIND = "nested"
_VALUE = "value/"  # before the name of each site: its values at the draws that are looked at
_GRID = "grid/"  # before the name of each number of it
_SKEWED = "skewed/"  # likewise
_LOOKED = 32  # draws
_ROUNDING = 1e-6  # relative


class StoredNested(NamedTuple):
    """A nested approximation as a file holds it: without the model and its data.

    Attributes:
        sites: the latent sites.
        over: the names of the hyperparameters.
        grid: the grid, and the effects at its points; or draws, and the effects at some of them.
        skewed: what makes the effects skew, by the names of the attributes of ``SkewedEffects``.
        start: of a search for the effects.
        seen: the log likelihood, the log prior and the values of the sites at some draws.
        data: digests of the arguments and of what is observed.
    """

    sites: tuple[Site, ...]
    over: tuple[str, ...]
    grid: Grid | Cloud | Chains
    skewed: dict[str, Any]
    start: np.ndarray
    seen: tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]
    data: tuple[dict[str, np.ndarray], np.ndarray]


def save(fit: Any, path: str | os.PathLike) -> None:
    """Write the numbers of a nested approximation to a file.

    Args:
        fit: a ``NestedApproximation``, whose class imports this module to have the method.
        path: of the file.
    """
    rows = looked_at(fit._draws)
    terms = jax.device_get(terms_at(fit.density, rows))
    arguments, observed = digests(fit.density, rows[0])
    skewed = {
        name: getattr(fit.skewed, name)
        for name in ("chosen", "image", "index", "log_ratios", "expansion", "outside", "error")
    }
    arrays = {
        "start": fit.start,
        "observed": observed,
        "log_likelihood": terms.log_likelihood,
        "log_prior": terms.log_prior,
        **_named(_VALUE, terms.values),
        **_named(_GRID, _flat(fit.grid)),
        **_named(_SKEWED, {name: x for name, x in skewed.items() if x is not None}),
        **_named(ARGUMENT, arguments),
    }
    write(path, fit.density, {"kind": KIND, "over": fit.over, **fit._judged}, arrays)


def looked_at(draws: Float[np.ndarray, "S D"]) -> Float[Array, "n D"]:
    """The draws at which the model is compared with that of the fit."""
    return jax.numpy.asarray(draws[:: len(draws) // _LOOKED], float)


@jit_quickly
def terms_at(density: ModelDensity, u: Float[Array, "n D"]) -> Terms:
    """The terms of the log joint at each of some points."""
    return jax.lax.map(density.terms, u)


def parse_nested(archive: Archive) -> StoredNested:
    """The numbers of a nested approximation.

    Raises:
        LookupError, TypeError, ValueError: they are none.
    """
    arrays, sites = archive.arrays, archive.sites
    skewed = within(arrays, _SKEWED)
    of_grid = within(arrays, _GRID)
    kind: Any = Chains if "draws" in of_grid else Cloud if "seen" in of_grid else Grid
    stored = StoredNested(
        sites,
        tuple(archive.header["over"]),
        _record(kind, of_grid),
        {name: skewed[name] for name in ("chosen", "index", "log_ratios")}
        | {name: skewed.get(name) for name in ("image", "expansion")}
        | {name: float(skewed.get(name, 0.0)) for name in ("outside", "error")},
        arrays["start"],
        (arrays["log_likelihood"], arrays["log_prior"], within(arrays, _VALUE)),
        data_of(arrays),
    )
    hyper = sum(site.size for site in sites if site.name in stored.over)
    effects = sum(site.size for site in sites) - hyper
    at, (points, _) = stored.grid.conditional, np.shape(stored.grid.place)
    shapes: list[Any] = [
        np.shape(x) for x in (stored.grid.place, at.hyper, at.log_marginal, at.mode)
    ]
    shapes += [at.deviations.shape, stored.start.shape]
    right: list[Any] = [(points, hyper)] * 2 + [(points,)] + [(points, effects)] * 2 + [(effects,)]
    if isinstance(at, SparseConditional):
        rank = np.shape(at.middle)[-1]
        shapes += [x.shape for x in (at.log_roots, at.entries, at.left, at.middle)]
        right += [(points,), (points, at.layout.rows.size)]
        right += [(points, effects, rank), (points, rank, rank)]
    elif at.leaves is not None:
        m, r = np.shape(at.leaves.slopes)[1:]
        shapes += [np.shape(x) for x in (*at.leaves, at.root)]
        right += [(m,), (points, m), (points, m, r), (points, r, r)]
    if isinstance(stored.grid, Chains):
        draws = stored.grid.draws.shape
        shapes += [draws[2:], stored.grid.heights.shape, stored.grid.correction.shape]
        right += [(hyper,), draws[:2], draws[:2]]
    if isinstance(stored.grid, Cloud):
        cloud = stored.grid
        shapes += [np.shape(x) for x in (cloud.hyper, cloud.heights, cloud.logs, cloud.correction)]
        right += [(len(cloud.hyper), hyper)] + [(len(cloud.hyper),)] * 3
        shapes += [np.shape(cloud.which), np.shape(cloud.ratios)]
        right += [(points,)] * 2
    if shapes != right:
        raise ValueError("its arrays do not fit together")
    if isinstance(at, SparseConditional):
        variances = at.precision(0).diagonal_of_inverse()
        if not np.allclose(at.deviations[0] ** 2, variances, rtol=_ROUNDING):
            raise ValueError("its deviations are not those of its precisions")
    return stored


def _named(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {prefix + name: x for name, x in arrays.items()}


def _flat(record: Any) -> dict[str, Any]:
    """The numbers of a named tuple and of those in it, by the names of their fields."""
    found: dict[str, Any] = {}
    for name, value in record._asdict().items():
        if isinstance(value, SparseLayout):
            places = {"size": value.size, "rows": value.rows, "cols": value.cols}
            found |= _named(f"{name}/", places)
        elif hasattr(value, "_asdict"):
            found |= _named(f"{name}/", _flat(value))
        elif value is not None:
            found[name] = value
    return found


def _record(kind: Callable[..., Any], arrays: Mapping[str, np.ndarray]) -> Any:
    """The named tuple of which these are the numbers."""
    parts: dict[str, Any] = {}
    for name, of in get_type_hints(kind).items():
        below = within(arrays, f"{name}/")
        if of == AnyConditional:
            parts[name] = _record(Conditional if "root" in below else SparseConditional, below)
        elif of is SparseLayout:
            parts[name] = SparseLayout.of(int(below["size"]), below["rows"], below["cols"])
        elif of == Leaves | None:
            parts[name] = _record(Leaves, below) if below else None
        elif hasattr(of, "_fields"):
            parts[name] = _record(of, below)
        elif name in arrays:
            parts[name] = arrays[name] if arrays[name].ndim else arrays[name].item()
    return kind(**parts)
