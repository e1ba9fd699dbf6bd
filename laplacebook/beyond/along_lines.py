"""The log joint along the line of each effect, on which the others follow, and the marginals that it makes."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import ndtr

from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.dense_conditional import AnyConditional

_SIDE = np.array([0.7, 1.4, 2.2, 3.2, 4.5])
_AWAY = np.concatenate([-_SIDE[::-1], _SIDE])
PLACES = np.insert(_AWAY, len(_SIDE), 0)  # on a line, in standard deviations
FINE = np.linspace(-6, 6, 241)
_LEVELS = ndtr(FINE)
FLOOR = -60.0  # nats: what is lower is nowhere
FALLEN = -8.0  # nats, of p over q: there is none
_STANDING = -2.0  # nats, at the place before: what falls by degrees has a slope
_LEVEL = 2.0  # times as low at the place behind, at most: what goes on falling is a tail
_AS_NEAR = 1e-6  # relative
_OVER = 0.5  # nats, by which a spline leaves the interval of its ends: it swings beside a cliff


class Lines(NamedTuple):
    """The log joint along the lines of d effects at J points of the hyperparameters.

    Attributes:
        residuals: r(x), of which -x^2/2 is left out, at equal distances from -6 to 6, shape (J, d, G).
        bounded: whether it falls as over a cliff, with a level behind, shape (J, d).
    """

    residuals: np.ndarray
    bounded: np.ndarray

    @classmethod
    def of(cls, effects: Effects, nodes: AnyConditional) -> "Lines":
        """Those at some points."""
        from scipy.interpolate import CubicSpline, PchipInterpolator  # slow to import

        away = effects.along(nodes, _AWAY) + _AWAY[:, None] ** 2 / 2
        seen = np.insert(np.nan_to_num(away, nan=-np.inf, neginf=-np.inf), len(_SIDE), 0, axis=1)
        values = np.clip(seen, FLOOR, -FLOOR)
        inside = np.clip(FINE, PLACES[0], PLACES[-1])
        smooth = CubicSpline(PLACES, values, axis=1)(inside)
        cell = np.searchsorted(PLACES, inside).clip(1) - 1
        ends = np.stack([values[:, cell], values[:, cell + 1]])
        over = np.maximum(smooth - ends.max(axis=0), ends.min(axis=0) - smooth)
        swings = over.max(axis=1, keepdims=True) > _OVER
        if swings.any():
            smooth = np.where(swings, PchipInterpolator(PLACES, values, axis=1)(inside), smooth)
        right, left = seen[:, len(_SIDE) :], seen[:, len(_SIDE) :: -1]
        return cls(np.moveaxis(smooth, 1, 2), _falls(right) | _falls(left))


def _falls(side: Float[np.ndarray, "J P d"]) -> Bool[np.ndarray, "J d"]:
    """Whether it falls as over a cliff on the way out."""
    before, here, behind = side[:, :-2], side[:, 1:-1], side[:, 2:]
    cliff = (before > _STANDING) & (here < FALLEN) & (behind >= _LEVEL * here)
    return np.asarray(cliff.any(axis=1))


def image_of(
    residuals: Float[np.ndarray, "d G"], slope: Float[np.ndarray, " d"]
) -> Float[np.ndarray, "d G"]:
    """The quantile of each skewed marginal at the probability of each normal number."""
    logs = residuals + slope[:, None] * FINE - FINE**2 / 2
    density = np.exp(logs - logs.max(axis=1, keepdims=True))
    mass = np.cumsum(density, axis=1) - density / 2
    mass /= density.sum(axis=1, keepdims=True)
    return np.array([np.interp(_LEVELS, one, FINE) for one in mass])


def interpolated(
    values: Float[np.ndarray, "d G"], x: Float[np.ndarray, "n d"]
) -> Float[np.ndarray, "n d"]:
    """Each function, known at equal distances, at its column of x."""
    steps = len(FINE) - 1
    place = np.clip((x - FINE[0]) * (steps / (FINE[-1] - FINE[0])), 0, steps)
    left = np.minimum(place.astype(int), steps - 1)
    first = left + np.arange(len(values)) * len(FINE)
    low, high = values.ravel()[first], values.ravel()[first + 1]
    return low + (place - left) * (high - low)


def nearest(
    points: Float[np.ndarray, "J H"], hyper: Float[np.ndarray, "K H"]
) -> Int[np.ndarray, " K"]:
    """Which of some points is nearest; of those that are as near, as on a lattice, the first, whatever the rounding.

    Args:
        points: shape (J, H).
        hyper: from where, shape (K, H).
    """
    from scipy.spatial.distance import cdist  # slow to import

    scale = np.maximum(points.std(axis=0), np.finfo(float).tiny)
    away = cdist(hyper / scale, points / scale)
    return np.argmax(away <= (1 + _AS_NEAR) * away.min(axis=1, keepdims=True), axis=1)
