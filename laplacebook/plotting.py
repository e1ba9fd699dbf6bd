"""The figure style of the book, for a reader who draws with Matplotlib.

A chapter calls `use_style` once, in its first cell, and draws with the roles of `STYLES`, so that
the exact answer and the approximation look the same on every page::

    ax.plot(x, f(x), **STYLES["exact"], label="exact")
    ax.plot(x, q(x), **STYLES["approximation"], label="Laplace")

Backgrounds are transparent and every colour has a contrast of at least 3 against a white page and
against a near-black one (#121212), and the grey of the text 4.3 against both, which is the most that
one colour can have against the two. The hues are those of Okabe and Ito (2008), a palette that
readers with colour vision deficiencies can tell apart, without its hues that are too light for white.
"""

from typing import Any

import matplotlib as mpl
from matplotlib.rcsetup import cycler

from laplacebook.base.style import COLORS, STYLES
from laplacebook.trust.picture import plot_slices

__all__ = ["COLORS", "STYLES", "plot_slices", "use_style"]


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
