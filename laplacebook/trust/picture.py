"""The picture of a diagnosis: the exact density along principal axes, and the approximation."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from laplacebook.base.panels import panels
from laplacebook.base.style import STYLES
from laplacebook.trust.slices import Slice

_SHOWN = 4.5  # standard deviations to both sides


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
    label = "standard deviations of the approximation"
    return panels(len(drawn), lambda axes, i: _draw_slice(axes, drawn[i]), label)


def _draw_slice(axes: Axes, one: Slice) -> None:
    gaussian = np.exp(-(one.t**2) / 2) / np.sqrt(2 * np.pi)
    axes.plot(one.t, one.density, **STYLES["exact"], label="exact")
    axes.plot(one.t, gaussian, **STYLES["approximation"], label="Laplace")
    axes.set(title=f"{one.axis}\nskewness {one.skewness:z.2f}", xlim=(-_SHOWN, _SHOWN), yticks=[])
