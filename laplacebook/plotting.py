"""The figure style of the book; the only file of the package that imports matplotlib.

A chapter calls `use_style` once, in its first cell, and draws with the roles of `STYLES`, so that
the exact answer and the approximation look the same on every page::

    ax.plot(x, f(x), **STYLES["exact"], label="exact")
    ax.plot(x, q(x), **STYLES["approximation"], label="Laplace")

Backgrounds are transparent and every colour has a contrast of at least 3 against a white page and
against a near-black one (#121212), and the grey of the text 4.3 against both, which is the most that
one colour can have against the two. The hues are those of Okabe and Ito (2008), a palette that
readers with colour vision deficiencies can tell apart, without its hues that are too light for white.
"""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler

from laplacebook.slices import Slice

__all__ = ["COLORS", "STYLES", "plot_slices", "use_style"]

COLORS = {
    "exact": "#0072b2",  # blue
    "approximation": "#d55e00",  # vermillion
    "data": "#009e73",  # bluish green
    "accent": "#c46f9f",  # reddish purple
    "text": "#797979",  # the grey of text, ticks and axes
}

STYLES: dict[str, dict[str, Any]] = {
    "exact": {"color": COLORS["exact"], "linestyle": "-"},
    "approximation": {"color": COLORS["approximation"], "linestyle": "--"},
    "data": {"color": COLORS["data"], "linestyle": "none", "marker": "o"},
    "accent": {"color": COLORS["accent"], "linestyle": "-."},
    "reference": {"color": COLORS["text"], "linestyle": ":"},
}

_ACROSS = 3  # small pictures side by side
_SHOWN = 4.5  # standard deviations to both sides


def use_style() -> None:
    """Make matplotlib draw as the book does, by setting its `rcParams`.

    Figures come out as PNG of twice the width at which a page shows them, without a background.
    """
    grey = COLORS["text"]
    style: dict[Any, Any] = dict.fromkeys(
        ["text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"], grey
    )
    style |= {
        "figure.figsize": (6.0, 3.4),
        "figure.dpi": 200,
        "figure.constrained_layout.use": True,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "savefig.facecolor": "none",
        "savefig.dpi": "figure",
        "legend.framealpha": 0.0,
        "legend.edgecolor": "none",
        "font.size": 11,
        "axes.titlesize": "medium",
        "axes.linewidth": 1.0,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": cycler(color=[s["color"] for s in STYLES.values()]),
        "lines.linewidth": 2.0,
        "image.cmap": "cividis",
        "grid.color": grey,
        "grid.alpha": 0.3,
    }
    mpl.rcParams.update(style)


def plot_slices(slices: Sequence[Slice], most: int = 6) -> Figure:
    """The exact density along principal axes, and the standard normal that stands for it there.

    In the book: :doc:`/book/sigmoid-coin`.

    Args:
        slices: the first of which are drawn.
        most: how many of them.

    Returns:
        A figure that pyplot has forgotten, so that a notebook shows it once.
    """
    drawn = slices[:most]
    across = min(len(drawn), _ACROSS)
    down = -(-len(drawn) // across)
    size = (max(4.2, 2.6 * across), 0.8 + 2.3 * down)
    figure, grid = plt.subplots(down, across, figsize=size, squeeze=False, layout="constrained")
    for axes, one in zip(grid.flat, drawn, strict=False):
        _draw_slice(axes, one)
    for axes in grid.flat[len(drawn) :]:
        axes.remove()
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    figure.supxlabel("standard deviations of the approximation", fontsize="medium")
    figure.supylabel("density", fontsize="medium")
    plt.close(figure)
    return figure


def _draw_slice(axes: Axes, one: Slice) -> None:
    gaussian = np.exp(-(one.t**2) / 2) / np.sqrt(2 * np.pi)
    axes.plot(one.t, one.density, **STYLES["exact"], label="exact")
    axes.plot(one.t, gaussian, **STYLES["approximation"], label="Laplace")
    axes.set(title=f"{one.axis}\nskewness {one.skewness:z.2f}", xlim=(-_SHOWN, _SHOWN), yticks=[])
