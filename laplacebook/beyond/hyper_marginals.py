"""The marginal density of each hyperparameter, on a grid that follows its skewness."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

from laplacebook.base.panels import panels
from laplacebook.base.style import STYLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GRID = 201
_TAIL = 1e-3  # of the mass, on each side, where the grid ends
_SKEW = 3.0  # times the standard deviation about the mode: with that of all above it there are modes far apart
DENSE = 0.1  # of the standard deviation: of the kernel, which widens it by half a percent


class HyperMarginal(NamedTuple):
    """The posterior density of one number of a hyperparameter.

    In the book: :eq:`accuracy-marginal` of :doc:`/book/accuracy`.

    Attributes:
        name: of the coordinate, such as ``"tau"`` or ``"sd[1]"``.
        u: values of the unconstrained coordinate, shape (G,).
        density: there, shape (G,).
    """

    name: str
    u: np.ndarray
    density: np.ndarray


def hyper_marginals(
    names: list[str],
    points: Float[np.ndarray, "P H"],
    weights: Float[np.ndarray, " P"],
    scale: Float[np.ndarray, " H"],
    width: float = DENSE,
) -> tuple[HyperMarginal, ...]:
    """The density of each coordinate, from weighted points that lie densely.

    Args:
        names: of the coordinates.
        points: of the hyperparameters in the unconstrained space, shape (P, H).
        weights: of the points, which sum to one, shape (P,).
        scale: standard deviations about the mode, shape (H,): those of all may be of modes far apart.
        width: of the kernel, in standard deviations.
    """
    columns = zip(names, points.T, scale, strict=True)
    return tuple(_one(name, u, weights, about_mode, width) for name, u, about_mode in columns)


def width_of(number: float) -> float:
    """The width for so many independent draws, by the rule of Silverman (1986, section 3.4)."""
    return float(0.9 * number**-0.2)


def _one(
    name: str, u: np.ndarray, weights: np.ndarray, about_mode: float, of_kernel: float
) -> HyperMarginal:
    order = np.argsort(u)
    mass = np.cumsum(weights[order])
    low, high = np.interp([_TAIL, 1 - _TAIL], mass, u[order])
    mean = weights @ u
    width = of_kernel * min(np.sqrt(weights @ (u - mean) ** 2), _SKEW * about_mode)
    # Where there is much mass they lie closer: else narrow modes far apart would fall between two of them.
    levels = np.linspace(_TAIL, 1 - _TAIL, _GRID // 2)
    dense = np.interp(levels, mass, u[order])
    grid = np.union1d(np.linspace(low - 3 * width, high + 3 * width, _GRID - len(dense)), dense)
    kernels = np.exp(-(((grid[:, None] - u) / width) ** 2) / 2)
    return HyperMarginal(name, grid, kernels @ weights / (width * np.sqrt(2 * np.pi)))


def plot_hyper_marginals(marginals: tuple[HyperMarginal, ...]) -> "Figure":
    """The densities side by side, in the unconstrained space.

    Args:
        marginals: of the hyperparameters.
    """

    def draw(axes: "Axes", i: int) -> None:
        axes.plot(marginals[i].u, marginals[i].density, **STYLES["approximation"])
        axes.set(title=marginals[i].name, yticks=[], ylim=(0, None))

    label = "unconstrained coordinate, such as the logarithm of a scale"
    return panels(len(marginals), draw, label, "posterior density")
