"""The picture of a site that is known by weighted draws: a histogram of each of its numbers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from laplacebook.base.panels import panels
from laplacebook.base.style import COLORS, STYLES
from laplacebook.fit.functions import weighted_quantiles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW = 6  # numbers, of which each has a histogram
_TAIL = 0.001  # of the mass at either end that is not drawn
_BINS = 40


def plot_draws(
    names: Sequence[str], values: Float[np.ndarray, "S n"], weights: Float[np.ndarray, " S"]
) -> "Figure":
    """A histogram of each number, and the normal density with its mean and standard deviation.

    Args:
        names: of the numbers.
        values: draws of them, shape (S, n).
        weights: of the draws, which sum to one, shape (S,).
    """
    lows, highs = weighted_quantiles(values, weights, np.array([_TAIL, 1 - _TAIL]))
    means = weights @ values
    deviations = np.sqrt(weights @ (values - means) ** 2)

    def draw(axes: "Axes", i: int) -> None:
        heights, edges = np.histogram(
            values[:, i], _BINS, range=(lows[i], highs[i]), weights=weights, density=True
        )
        axes.stairs(
            heights,
            edges,
            fill=True,
            color=COLORS["exact"],
            alpha=0.5,
            label=f"{len(values):,} draws",
        )
        x = np.linspace(lows[i], highs[i], 201)
        normal = np.exp(-(((x - means[i]) / deviations[i]) ** 2) / 2) / np.sqrt(2 * np.pi)
        label = "normal, of the same mean and sd"
        axes.plot(x, normal / deviations[i], **STYLES["approximation"], label=label)
        axes.set(title=names[i], yticks=[], ylim=(0, None))

    return panels(len(names), draw, "value")
