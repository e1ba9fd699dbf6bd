"""A gallery of models of practice with their data, on which verdicts and remedies are tried beside NUTS.

What long chains of NUTS found of each (``laplacebook/data/gallery_nuts.json``), and what :func:`laplacebook.diagnose`
and its remedies said (``gallery_verdicts.json``), was written by ``tools/gallery.py``; a test tries it again.
"""

import json
from collections.abc import Callable
from functools import cache, partial
from importlib.resources import files
from inspect import cleandoc, signature
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from laplacebook import datasets
from laplacebook.base.errors import LaplaceError
from laplacebook.base.table import Table
from laplacebook.beyond.grid import WITHOUT_NUTS
from laplacebook.beyond.hyperparameters import hyperparameters_of
from laplacebook.beyond.nested import nested
from laplacebook.fit.approximation import Approximation
from laplacebook.fit.laplace import laplace
from laplacebook.gallery_models import MODELS
from laplacebook.model.density import ModelDensity
from laplacebook.trust.diagnose import diagnose
from laplacebook.trust.slices import INTERVAL

__all__ = [
    "Example",
    "against_nuts",
    "example",
    "first_verdicts",
    "names",
    "nuts",
    "path",
    "tried",
]

#: of the quantiles that are kept of NUTS: around both ends of a 90 % interval, so that what another one holds can be
#: read off, and of the middle
LEVELS = (
    *(round(0.01 * i, 2) for i in range(1, 11)),
    0.25,
    0.5,
    0.75,
    *(round(0.9 + 0.01 * i, 2) for i in range(10)),
)
_DRAWS = 4000
_INTERVAL = (0.05, 0.5, 0.95)


class Example(NamedTuple):
    """A NumPyro model of the gallery, its arguments by name, and what is modelled and where the data come from."""

    model: Callable[..., None]
    data: dict[str, np.ndarray]
    about: str


def names() -> list[str]:
    """The names of all models.

    In the book: :doc:`/book/trust`.

    >>> names()[:3]
    ['globe', 'o_rings', 'tumours']
    """
    return list(MODELS)


def example(name: str) -> Example:
    """One model of the gallery.

    In the book: :doc:`/book/trust`.

    Args:
        name: one of :func:`names`.

    Raises:
        ValueError: there is no such model.

    >>> pumps = example("pumps")
    >>> pumps.data["failures"]
    array([ 5,  1,  5, 14,  3, 19,  1,  1,  4, 22])
    """
    if name not in MODELS:
        raise ValueError(f"name must be one of {names()}, not {name!r}")
    model, given = MODELS[name], _given(name)
    data = {key: np.array(given[key]) for key in signature(model).parameters}
    return Example(model, data, cleandoc(model.__doc__ or ""))


def nuts(name: str) -> dict[str, Any]:
    """What long chains of NUTS found of a model of the gallery.

    In the book: :doc:`/book/trust`.

    Args:
        name: one of :func:`names`.

    Returns:
        ``quantiles``, at the levels ``LEVELS``, and ``sd``: dicts of site -> lists of numbers, in the shape of the
        site; ``chains``, ``draws`` of each, ``seed``, ``numpyro``: where they come from; ``divergences``, the largest
        ``r_hat`` and the smallest ``ess``: how far they may be trusted.

    >>> nuts("globe")["divergences"]
    0
    """
    return _read("gallery_nuts.json")[example(name).model.__name__]


def tried(name: str) -> list[dict[str, Any]]:
    """What :func:`path` found of a model of the gallery, as it was written when it was last tried.

    In the book: :doc:`/book/trust`.

    >>> tried("globe")[0]["verdict"]
    'usable'
    """
    return _read("gallery_verdicts.json")[example(name).model.__name__]["tried"]


def first_verdicts(name: str) -> list[str]:
    """What ``diagnose`` says of the first fit with each of several random keys, as it was written; empty if refused.

    In the book: :doc:`/book/trust`.

    >>> sorted(set(first_verdicts("housing")))
    ['good']
    """
    return _read("gallery_verdicts.json")[example(name).model.__name__]["first"]


def against_nuts(name: str, approx: Approximation, key: Key[Array, ""]) -> Table:
    """An approximation of a model of the gallery beside long chains of NUTS.

    Of ``eruptions``, whose two laws may change their labels, the law of the shorter minutes comes first.

    In the book: :doc:`/book/trust`.

    Args:
        name: one of :func:`names`.
        approx: of that model with its data.
        key: a JAX random key, for draws where numbers are put into order.

    Returns:
        A row for each number of each site: how far the median is off, in standard deviations as the 90 % interval of
        NUTS tells them (its width over 3.29); the width of the central 90 % interval over that of NUTS; and the share
        of the draws of NUTS that it holds.
    """
    if name == "eruptions":
        draws = told(name, approx.sample(key, (_DRAWS,)))
        ours = {site: np.quantile(x, _INTERVAL, axis=0) for site, x in draws.items()}
    else:
        ours = {site: np.asarray(x, float) for site, x in approx.quantiles(_INTERVAL).items()}
    columns: dict[str, list] = {"number": [], "median off (sd)": [], "width ratio": [], "holds": []}
    found = nuts(name)
    for site, quantiles in found["quantiles"].items():
        table = np.array(quantiles, float).reshape(len(LEVELS), -1)
        of_site, shape = ours[site].reshape(3, -1), ours[site].shape[1:]
        for i, (known, (low, median, high)) in enumerate(zip(table.T, of_site.T, strict=True)):
            truth = {level: known[LEVELS.index(level)] for level in _INTERVAL}
            below, up_to = np.interp([low, high], known, LEVELS, left=0, right=1)
            label = f"{site}[{i}]" if shape else site
            width = truth[0.95] - truth[0.05]
            off = float((median - truth[0.5]) / width * 2 * INTERVAL)
            ratio = float((high - low) / width)
            row = (label, off, ratio, float(up_to - below))
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
    return Table(f"{name} beside NUTS", columns)


def path(name: str, key: Key[Array, ""], everything: bool = True) -> list[dict[str, Any]]:
    """From the first fit of a model of the gallery to an answer: what ``diagnose`` says, and what its remedies give.

    In the book: :doc:`/book/trust`.

    Args:
        name: one of :func:`names`.
        key: a JAX random key.
        everything: try all remedies but those that sample by NUTS, and not only until one is judged good or usable.

    Returns:
        The fit, then each remedy in the order in which ``diagnose`` offers it (the error, where there is no fit):
        ``line`` of code; ``verdict``: of its diagnosis, or ``"refused"``; and where there is an approximation, the
        worst of its numbers beside NUTS: ``median``, ``width``, and ``holds``, the least and the most.
    """
    model, data, _ = example(name)
    arguments = ", ".join(data)
    steps = []

    def step(line: str, make: Callable[[], Any]) -> Any:
        try:
            approx = make()
            found = diagnose(approx, key)
            numbers = _worst(against_nuts(name, approx, key))
        except LaplaceError as refused:
            steps.append(
                {"line": line, "verdict": "refused", "why": " ".join(str(refused).split())}
            )
            return None
        steps.append({"line": line, "verdict": found.level, "why": found.verdict} | numbers)
        return found

    def is_answered() -> bool:
        return steps[-1]["verdict"] in ("good", "usable")

    found = step(f"lb.laplace({name}, {arguments})", lambda: laplace(model, *data.values()))
    if found is None:
        offered = [(f"lb.nested({name}, {arguments})", lambda: nested(model, *data.values()))]
        density = ModelDensity.of(model, tuple(data.values()))
        offered *= "nested(" in steps[-1]["why"] and _without_nuts(density)
    else:
        offered = [
            (one.line, partial(one.make, key))
            for one in found.remedies
            if one.make is not None and "nuts" not in one.line
        ]
    for line, make in offered:
        if everything or not is_answered():
            step(line, make)
    return steps


def _without_nuts(density: ModelDensity) -> bool:
    """Whether ``nested`` integrates the hyperparameters of a model numerically, and does not sample them."""
    over = hyperparameters_of(density, None)
    return sum(site.size for site in density.sites if site.name in over) <= WITHOUT_NUTS


def told(name: str, draws: dict[str, Any]) -> dict[str, Any]:
    """Draws of a model of the gallery, in an order of the labels where they can be exchanged.

    Args:
        name: one of :func:`names`.
        draws: of its sites, of any number of axes before theirs.
    """
    if name != "eruptions":
        return draws
    first = jnp.argsort(draws["mean"], axis=-1)
    share = jnp.where(first[..., 0] == 0, draws["share"], 1 - draws["share"])
    ordered = {
        site: jnp.take_along_axis(jnp.asarray(draws[site]), first, -1) for site in ("mean", "sd")
    }
    return {"share": share} | ordered


def _worst(beside: Table) -> dict[str, Any]:
    """The worst of all numbers, of three digits."""
    off, width, holds = (np.array(beside[column]) for column in list(beside.columns)[1:])
    furthest = np.argmax(np.abs(np.log(width)))
    return {
        "median": round(float(np.abs(off).max()), 3),
        "width": round(float(width[furthest]), 3),
        "holds": [round(float(holds.min()), 3), round(float(holds.max()), 3)],
    }


@cache
def _read(file: str) -> dict[str, Any]:
    return json.loads(files("laplacebook").joinpath("data", file).read_text(encoding="utf-8"))


def _given(name: str) -> dict[str, Any]:
    """The data of a model: of a data set of the book where it is there."""
    if name == "o_rings":
        return datasets.o_rings()._asdict()
    if name == "tumours":
        tumours = datasets.breast_cancer()
        first = tumours.measurements[:, :5]
        return {"x": (first - first.mean(0)) / first.std(0), "malignant": tumours.malignant}
    if name == "pines":
        return datasets.radiata_pine()._asdict()
    if name == "lip_cancer":
        return datasets.lip_cancer()._asdict()
    if name == "coal":
        days = np.datetime64("1850-12-31") + datasets.coal_mining()
        years = days.astype("datetime64[Y]").astype(int) + 119  # from 1851; NumPy counts from 1970
        return {"explosions": np.bincount(years, minlength=112)}
    return _read("gallery.json")[name]
