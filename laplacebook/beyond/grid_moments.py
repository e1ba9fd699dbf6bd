"""Means and standard deviations over a grid, of effects as their skewed marginals given each point have them."""

from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import Float, Int

from laplacebook.beyond.along_lines import FINE
from laplacebook.beyond.dense_conditional import AnyConditional
from laplacebook.beyond.fitted_log_mean import shares
from laplacebook.beyond.grid import DEPTH, Grid
from laplacebook.model.sites import Site

# Of the mean deviation and the variance, what may lie beyond the depth of the grid; of the first, in a grid as deep
# as most: all layers have the same share of a mean that does not exist.
_LONG = {1: 0.1, 2: 0.5}


def moments_of_images(
    image: Float[np.ndarray, "J d G"],
) -> tuple[Float[np.ndarray, "J d"], Float[np.ndarray, "J d"]]:
    """The mean and the variance of the image of a standard normal number.

    Args:
        image: of G normal numbers at equal distances from -6 to 6.
    """
    x = np.linspace(FINE[0], FINE[-1], image.shape[-1])
    weights = np.exp(-(x**2) / 2)
    weights /= weights.sum()
    away = image - x  # of which two numbers tell a shift
    mean = away @ weights
    return mean, 1 + (2 * x * away + away**2) @ weights - mean**2


@np.errstate(all="ignore")
def mixture_moments(
    nodes: AnyConditional,
    deviations: Float[np.ndarray, "K d"],
    image: Float[np.ndarray, "J d G"] | None,
    near: Int[np.ndarray, " K"] | None,
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"], Float[np.ndarray, "K d"]]:
    """Of the effects over all points of the hyperparameters: means, deviations, mean squares from the mean at each.

    Args:
        nodes: the Gaussian approximations at K points.
        deviations: of these, which are known already.
        image: of normal numbers, for some of these points and each effect; None where all stay normal.
        near: which of these is nearest to each point, shape (K,).
    """
    weights, middle, variance = shares(nodes.log_marginal), nodes.mode, deviations**2
    if image is not None:
        shift, wider = moments_of_images(image)
        middle = middle + deviations * shift[near]
        variance = variance * wider[near]
    mean = weights @ middle
    # Far out, where there is no weight, a variance may be infinite.
    squares = np.where(weights[:, None] > 0, variance + (middle - mean) ** 2, 0.0)
    return mean, np.sqrt(weights @ squares), squares


def unbounded(
    effects: Iterable[Site], z: Float[np.ndarray, "K d"], values: Mapping[str, np.ndarray]
) -> dict[str, slice]:
    """The effects whose values are their coordinates, as seen at some points, and which of all these they are.

    Args:
        effects: their sites, in the order of the coordinates.
        z: these at K points, none of them zero, where a bound may not be seen.
        values: what they are there by site, on the scale of the model, shape (K, ...).
    """
    found, end = {}, 0
    for site in effects:
        part = slice(end, end + site.size)
        end = part.stop
        there = values[site.name].reshape(len(z), -1)
        if np.array_equal(there, z[:, part].astype(there.dtype)):
            found[site.name] = part
    return found


@np.errstate(all="ignore")
def squares_of(grid: Grid, values: Float[np.ndarray, "K ..."]) -> Float[np.ndarray, "K ..."]:
    """Squares from the mean of a hyperparameter.

    Args:
        grid: of K points.
        values: of the hyperparameter there, on the scale of the model.
    """
    weights = shares(grid.conditional.log_marginal)
    return np.asarray((values - np.average(values, axis=0, weights=weights)) ** 2)


@np.errstate(all="ignore")
def is_known(grid: Grid, squares: Float[np.ndarray, "K ..."], power: int) -> np.ndarray:
    """Whether the grid tells a mean (power 1) or a variance (2): little of it is outermost.

    Args:
        grid: of K points.
        squares: from the mean, at each of these in the mean.
        power: of the distance from the mean.
    """
    weights = shares(grid.conditional.log_marginal)
    outermost = weights < weights.max() * np.exp(-grid.depth)
    away = squares if power == 2 else np.sqrt(squares)
    share = np.tensordot(weights[outermost], away[outermost], axes=1)
    share /= np.tensordot(weights, away, axes=1)
    least = _LONG[power] * (DEPTH / grid.depth if power == 1 else 1)
    return np.asarray(~(share > least))
