"""The picture of a diagnosis: the exact density along principal axes, and the approximation."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from laplacebook.base.style import STYLES
from laplacebook.trust.slices import Slice

_ACROSS = 3  # small pictures side by side
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
