"""Small pictures side by side, with one legend."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ACROSS = 3  # side by side


def panels(
    number: int, draw: Callable[["Axes", int], None], xlabel: str, ylabel: str = "density"
) -> "Figure":
    """A figure of some small pictures, three of them side by side.

    Args:
        number: how many.
        draw: draws the picture of a number, from 0.
        xlabel: of all of them.
        ylabel: of all of them.

    Returns:
        A figure that pyplot has forgotten, so that a notebook shows it once.
    """
    import matplotlib.pyplot as plt  # slow to import

    across = min(number, _ACROSS)
    down = -(-number // across)
    size = (max(4.2, 2.6 * across), 0.8 + 2.3 * down)
    figure, grid = plt.subplots(down, across, figsize=size, squeeze=False, layout="constrained")
    for i, axes in enumerate(grid.flat):
        if i < number:
            draw(axes, i)
        else:
            axes.remove()
    handles, labels = grid[0, 0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    figure.supxlabel(xlabel, fontsize="medium")
    figure.supylabel(ylabel, fontsize="medium")
    plt.close(figure)
    return figure
