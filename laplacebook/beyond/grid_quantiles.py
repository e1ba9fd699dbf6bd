"""Quantiles of effects over a grid, each a mixture of its skewed marginals given the points."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtr

from laplacebook.beyond.along_lines import FINE
from laplacebook.beyond.dense_conditional import AnyConditional
from laplacebook.beyond.fitted_log_mean import shares

_COUNTED = 1e-10  # of the mass: what a point that counts has
_TOGETHER = 2**18  # numbers, of all points, at one time
_EPS = 4 * np.finfo(float).eps
_PLACES = 513  # of the inverse of an image, between which it is linear
_NEAR = 1e-10  # how far the probability of less may be from the one that is asked for
_STEPS = 1500  # of Newton's method, or halvings: of the largest bracket there is


class _Marginals(NamedTuple):
    """Of some effects at K points: normal numbers x, of which the value is mode + deviation image(x).

    Attributes:
        weights: of the points, shape (K,).
        mode: shape (K, n).
        deviation: shape (K, n).
        ends: of the images, shape (2, K, n).
        inverse: of the images between their ends, at equal distances, shape (K, n, 513); None where these are shifts.
    """

    weights: np.ndarray
    mode: np.ndarray
    deviation: np.ndarray
    ends: np.ndarray
    inverse: tuple[np.ndarray, np.ndarray] | None

    def distribution(self, value: Float[np.ndarray, " n"]) -> tuple[np.ndarray, np.ndarray]:
        """The probability of less, and the density."""
        t, (low, high) = (value - self.mode) / self.deviation, self.ends
        if self.inverse is None:
            x, slope = t + FINE[0] - low, 1.0
        else:
            table, near = self.inverse
            step = np.maximum(high - low, np.finfo(float).tiny) / (_PLACES - 1)
            place = np.clip((t - low) / step, 0, _PLACES - 1)
            left = np.minimum(place.astype(int), _PLACES - 2)
            effect = np.arange(t.shape[1])
            first, second = (table[near, effect, left + i] for i in (0, 1))
            x, slope = first + (place - left) * (second - first), (second - first) / step
        density = np.exp(-(x**2) / 2) * slope / self.deviation / np.sqrt(2 * np.pi)
        return self.weights @ ndtr(x), self.weights @ density

    def quantile(self, level: float) -> Float[np.ndarray, " n"]:
        """Where the probability of less is this, by Newton's method within a bracket."""
        low, high = (self.mode + self.deviation * end for end in self.ends)
        low, high = low.min(axis=0), high.max(axis=0)
        value = self.weights @ self.mode
        for _ in range(_STEPS):
            below, density = self.distribution(value)
            is_less = below < level
            low, high = np.where(is_less, value, low), np.where(is_less, high, value)
            with np.errstate(all="ignore"):
                step = value + (level - below) / density
            after = np.where((step > low) & (step < high), step, low / 2 + high / 2)
            # Where it jumps no probability is near.
            found = (abs(below - level) <= _NEAR) | (abs(after - value) <= _EPS * abs(value))
            if found.all():
                return value
            value = np.where(found, value, after)
        return np.where(found, value, np.nan)


def mixture_quantiles(
    nodes: AnyConditional,
    deviations: Float[np.ndarray, "K d"],
    image: Float[np.ndarray, "J d G"] | None,
    near: Int[np.ndarray, " K"] | None,
    levels: Float[np.ndarray, " P"],
) -> Float[np.ndarray, "P d"]:
    """Of the effects over all points of the hyperparameters.

    Args:
        nodes: the Gaussian approximations at K points.
        deviations: of these, which are known already.
        image: of normal numbers, for some of these points and each effect; None where all stay normal.
        near: which of these is nearest to each point, shape (K,).
        levels: the probabilities.
    """
    weights = shares(nodes.log_marginal)
    counted = weights > _COUNTED
    weights = weights[counted] / weights[counted].sum()
    if image is None:
        image, near = FINE[None, None, [0, -1]], np.zeros(len(counted), int)
        image = np.broadcast_to(image, (1, nodes.mode.shape[1], 2))
    assert near is not None
    together, found = max(1, _TOGETHER // len(weights)), []
    for begin in range(0, nodes.mode.shape[1], together):
        some = slice(begin, begin + together)
        images, of_points = image[:, some], near[counted]
        law = _Marginals(
            weights,
            nodes.mode[counted, some],
            deviations[counted, some],
            np.stack([images[of_points, :, end] for end in (0, -1)]),
            None if images.shape[-1] == 2 else (_inverses(images), of_points[:, None]),
        )
        found.append([law.quantile(level) for level in levels])
    return np.concatenate(found, axis=1)


def _inverses(images: Float[np.ndarray, "J n G"]) -> Float[np.ndarray, "J n _"]:
    """Normal numbers at equal distances between the ends of their images."""
    places = np.linspace(0, 1, _PLACES)
    flat = images.reshape(-1, images.shape[-1])
    found = [np.interp(one[0] + places * (one[-1] - one[0]), one, FINE) for one in flat]
    return np.stack(found).reshape(*images.shape[:2], _PLACES)
