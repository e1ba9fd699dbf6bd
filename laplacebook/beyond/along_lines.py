"""The log joint along the line of each effect, on which the others follow, and the marginals that it makes."""

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import ndtr

from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.dense_conditional import AnyConditional

_SIDE = np.array([0.7, 1.4, 2.2, 3.2, 4.5])
PLACES = np.concatenate([-_SIDE[::-1], [0], _SIDE])  # on a line, in standard deviations
FINE = np.linspace(-6, 6, 241)  # the places among them
_NEXT = 1e-6  # less than half of their distance
FLOOR = -60.0  # nats: what is lower is nowhere
FALLEN = -20.0  # nats, of p over q: beyond a bound
_STANDING = -2.0  # nats, at the place before: what falls by degrees has a slope
_MET = 5  # places to either side, at which a bound is looked for: up to 3.2 standard deviations
_OVER = 0.5  # nats, by which a spline leaves the interval of its ends: it swings beside a cliff


def residuals_of(effects: Effects, nodes: AnyConditional) -> Float[np.ndarray, "J d G"]:
    """r(x) of each effect at each point, at equal distances from -6 to 6."""
    from scipy.interpolate import CubicSpline, PchipInterpolator  # slow to import

    heights = effects.along(nodes, PLACES)
    residuals = heights - heights[:, PLACES == 0] + PLACES[:, None] ** 2 / 2
    residuals = np.clip(np.nan_to_num(residuals, nan=FLOOR), FLOOR, -FLOOR)
    inside = np.clip(FINE, PLACES[0], PLACES[-1])
    smooth = CubicSpline(PLACES, residuals, axis=1)(inside)
    cell = np.searchsorted(PLACES, inside).clip(1) - 1
    ends = np.stack([residuals[:, cell], residuals[:, cell + 1]])
    over = np.maximum(smooth - ends.max(axis=0), ends.min(axis=0) - smooth)
    swings = over.max(axis=1, keepdims=True) > _OVER
    if swings.any():
        smooth = np.where(swings, PchipInterpolator(PLACES, residuals, axis=1)(inside), smooth)
    return np.moveaxis(smooth, 1, 2)


def meets_bound(residuals: Float[np.ndarray, "*J d G"]) -> Bool[np.ndarray, "*J d"]:
    """Whether the log joint along a line falls from one place to the next as beyond a bound."""
    at = residuals[..., np.searchsorted(FINE, PLACES - _NEXT)]
    sides = at[..., len(_SIDE) :][..., :_MET], at[..., len(_SIDE) :: -1][..., :_MET]
    falls = [(one[..., :-1] > _STANDING) & (one[..., 1:] < FALLEN) for one in sides]
    return np.any(falls[0] | falls[1], axis=-1)


def image_of(
    residuals: Float[np.ndarray, "d G"], slope: Float[np.ndarray, " d"]
) -> Float[np.ndarray, "d G"]:
    """The quantile of each skewed marginal at the probability of each normal number."""
    logs = residuals + slope[:, None] * FINE - FINE**2 / 2
    density = np.exp(logs - logs.max(axis=1, keepdims=True))
    mass = np.cumsum(density, axis=1) - density / 2
    mass /= density.sum(axis=1, keepdims=True)
    return np.array([np.interp(ndtr(FINE), one, FINE) for one in mass])


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
