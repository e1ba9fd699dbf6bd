"""An approximation of thousands of numbers, site by site: what is printed of it, and its picture."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from laplacebook.base.namespace import Numbers
from laplacebook.base.table import Table
from laplacebook.fit.summary import summary_table
from laplacebook.model.density import ModelDensity
from laplacebook.model.sites import Site

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LONG = 50  # numbers of a site; one of more is printed as one line
_ROWS = 10  # of the short sites, and of the long ones
_LARGEST = 3  # numbers that are named
_DRAWN = 1000  # places in a picture, of which each stands for several numbers where there are more

Columns = Mapping[str, Mapping[str, Numbers]]


def table_by_site(density: ModelDensity, columns: Columns) -> Table:
    """The first rows of a summary; a site of more than 50 numbers is one row, of ranges.

    Args:
        density: the log joint, whose sites they are.
        columns: as :func:`~laplacebook.fit.summary.summary_table` takes them; ``mode`` and ``sd`` among them.
    """
    long = [site for site in density.sites if _size(site) > _LONG]
    short = [site for site in density.sites if _size(site) <= _LONG]
    whole = summary_table(density, columns, short)
    rows = whole.head(_ROWS)
    if not long:
        return rows
    names = [f"{site.name} ({_size(site):,} numbers)" for site in long[:_ROWS]]
    ranges = {
        name: [_range(np.asarray(values[site.name])) for site in long[:_ROWS]]
        for name, values in columns.items()
    }
    table = {name: [*rows[name], *more] for name, more in ({"site": names} | ranges).items()}
    left_out = len(whole) - len(rows)
    footer = [f"... and {left_out} more numbers of sites of at most {_LONG}"] if left_out else []
    for site in long[:_ROWS]:
        footer += _lines(site, *(np.asarray(columns[name][site.name]) for name in ("mode", "sd")))
    if len(long) > _ROWS:
        footer.append(f"... and {len(long) - _ROWS} more sites of more than {_LONG} numbers each")
    return Table(rows.title, table, tuple(footer))


def plot_along_index(
    name: str,
    mode: Float[np.ndarray, " N"],
    low: Numbers,
    high: Numbers,
    level: str,
    middle: str = "mode",
) -> "Figure":
    """The mode of each number of a site, and an interval about it, against its index.

    Of more than a thousand numbers each place stands for several: between their lowest and highest.

    Args:
        name: of the site.
        mode: shape (N,).
        low: the lower end of each interval, shape (N,).
        high: the upper end, shape (N,).
        level: of the interval, in words.
        middle: what stands in the place of the mode, in words.
    """
    import matplotlib.pyplot as plt  # slow to import

    from laplacebook.base.style import COLORS

    first = np.arange(0, mode.size, -(-mode.size // _DRAWN))
    bottom, lowest = (np.minimum.reduceat(x, first) for x in (np.asarray(low), mode))
    top, highest = (np.maximum.reduceat(x, first) for x in (np.asarray(high), mode))
    each = "" if first.size == mode.size else f" (a place: {first[1]:,} numbers)"
    figure, axes = plt.subplots(figsize=(6.0, 3.4), layout="constrained")
    color = COLORS["approximation"]
    label = f"{level}{each}"
    axes.fill_between(first, bottom, top, color=color, alpha=0.3, linewidth=0, label=label)
    if each:
        axes.fill_between(first, lowest, highest, color=color, linewidth=0.5, label=middle)
    else:
        axes.plot(first, mode, color=color, linewidth=1, label=middle)
    axes.set(xlabel="index", ylabel=name)
    figure.legend(loc="outside upper center", ncols=2)
    plt.close(figure)
    return figure


def _size(site: Site) -> int:
    return int(np.prod(site.value_shape))


def _range(values: Float[np.ndarray, "*shape"]) -> str:
    known = values[~np.isnan(values)]
    if not known.size:
        return "nan"
    ends = (f"{end:#.4g}".rstrip(".") for end in (known.min(), known.max()))
    return " to ".join(dict.fromkeys(ends))


def _lines(site: Site, mode: np.ndarray, sd: np.ndarray) -> list[str]:
    """What ranges do not say: where the largest numbers are, and how many have no standard deviation."""
    unknown = np.count_nonzero(np.isnan(sd))
    with np.errstate(all="ignore"):
        ratio = np.nan_to_num(np.abs(mode) / sd, nan=-1.0).ravel()
    order = np.argsort(-ratio, kind="stable")[:_LARGEST]
    places = (np.unravel_index(i, site.value_shape) for i in order)
    at = [
        f"{ratio[i]:.3g} at {site.name}{list(map(int, place))}"
        for i, place in zip(order, places, strict=True)
    ]
    nowhere = [f"the sd of {unknown:,} of the numbers of {site.name} is NaN"] if unknown else []
    return [f"largest |mode| / sd of {site.name}: {', '.join(at)}", *nowhere]
