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
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler

from laplacebook.slices import Slice

__all__ = ["COLORS", "STYLES", "DegreeSlider", "plot_slices", "use_style"]

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
}

_ACROSS = 3  # small pictures side by side
_SHOWN = 4.5  # standard deviations to both sides

Values = Float[np.ndarray | Array, "..."]
Ticks = Sequence[int] | Sequence[float]

_SLIDER = """<div style="max-width: 32rem; margin: auto">
<svg viewBox="-28 -8 400 232" role="img" aria-label="{label}" style="width: 100%; height: auto">
<path d="M0,0 V200 H360" fill="none" stroke="{colors[text]}"/>
<g fill="currentColor" font-size="13">
{ticks}
</g>
<svg width="360" height="200" fill="none" stroke-width="2">
<path d="{exact}" stroke="{colors[exact]}"/>
<g stroke="{colors[approximation]}" stroke-dasharray="7 4">
{curves}
</g>
</svg>
</svg>
<label style="display: block">Degree
<input type="range" min="0" max="{highest}" value="{start}" autocomplete="off" style="width: 100%"
oninput="for (const e of this.closest('div').querySelectorAll('[data-degree]'))
e.style.display = e.dataset.degree === this.value ? '' : 'none'">
</label>
<p aria-live="polite">
{captions}
</p>
</div>"""


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
    plt.close(figure)
    return figure


def _draw_slice(axes: Axes, one: Slice) -> None:
    gaussian = np.exp(-(one.t**2) / 2) / np.sqrt(2 * np.pi)
    axes.plot(one.t, one.density, **STYLES["exact"], label="exact")
    axes.plot(one.t, gaussian, **STYLES["approximation"], label="Laplace")
    axes.set(title=f"{one.axis}\nskewness {one.skewness:z.2f}", xlim=(-_SHOWN, _SHOWN), yticks=[])


@dataclass(frozen=True)
class DegreeSlider:
    """A curve and its approximations of degree 0, 1, ..., of which a slider shows one at a time.

    The last value of a notebook cell is shown as SVG with one line of JavaScript: it works in Jupyter
    and on a static page, without a kernel or the network. Without JavaScript it stays at ``start``.

    In the book: :eq:`eq-taylor-polynomial` of :doc:`/book/taylor`.

    Args:
        label: what the picture shows, for those who cannot see it.
        x: abscissae, shape (n,).
        exact: the curve, shape (n,).
        approximations: the approximation of each degree, shape (K + 1, n).
        captions: what to say below the picture at each degree, K + 1 texts.
        x_ticks: the numbers on the horizontal axis, which ends at the first and the last of them.
        y_ticks: the same for the vertical axis.
        start: the degree that is shown first.
    """

    label: str
    x: Values = field(repr=False)
    exact: Values = field(repr=False)
    approximations: Values = field(repr=False)
    captions: Sequence[str] = field(repr=False)
    x_ticks: Ticks = field(repr=False)
    y_ticks: Ticks = field(repr=False)
    start: int = 1

    def _repr_html_(self) -> str:
        def at(degree: int) -> str:
            hidden = "" if degree == self.start else ' style="display: none"'
            return f'data-degree="{degree}"{hidden}'

        curves = [f'<path {at(k)} d="{self._path(y)}"/>' for k, y in enumerate(self.approximations)]
        captions = [f"<span {at(k)}>{text}</span>" for k, text in enumerate(self.captions)]
        return _SLIDER.format(
            label=self.label,
            ticks="\n".join(self._tick_labels()),
            exact=self._path(self.exact),
            curves="\n".join(curves),
            captions="\n".join(captions),
            start=self.start,
            highest=len(captions) - 1,
            colors=COLORS,
        )

    def _path(self, y: Values) -> str:
        across, up = _place(self.x, self.x_ticks, 360), _place(y, self.y_ticks, 200)
        return "M" + " ".join(f"{a:.1f},{200 - b:.1f}" for a, b in zip(across, up, strict=True))

    def _tick_labels(self) -> list[str]:
        label = '<text x="{:.0f}" y="{:.0f}" text-anchor="{}">{:g}</text>'
        across = zip(_place(self.x_ticks, self.x_ticks, 360), self.x_ticks, strict=True)
        up = zip(_place(self.y_ticks, self.y_ticks, 200), self.y_ticks, strict=True)
        return [
            *(label.format(a, 216, "middle", tick) for a, tick in across),
            *(label.format(-6, 204 - b, "end", tick) for b, tick in up),
        ]


def _place(values: Values | Ticks, ticks: Ticks, length: int) -> np.ndarray:
    """Where values lie on an axis of that length, which begins and ends at the outer ticks."""
    return length * (np.asarray(values) - ticks[0]) / (ticks[-1] - ticks[0])
