"""The marginal density of single coordinates, the others integrated out by Laplace's method."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from laplacebook.base.progress import progress
from laplacebook.fit.glance import Seen, factorises, seen_at
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.fit.summary import own_numbers
from laplacebook.gaussian.precision import DensePrecision
from laplacebook.search.looks import is_small
from laplacebook.trust.slices import Slice

_MOST = 64  # coordinates: the others are searched for each of them, some tens of times
_STEP = 0.5  # standard deviations of q
_REACH = 12  # of them, at most
_NEGLIGIBLE = 10  # nats below the highest
_SMALL = 4  # of them, where the reach ends
_FLAT = 1e-3  # of the largest curvature: less does not carry a step
_HALVINGS = 7  # of a step, to an edge of the support
_STEPS = 10  # of Newton's method at one value of the coordinate
_CLOSE = 1e-2  # nats above the minimum: a parabola tells the rest to a thousandth of it
_DRAWS = 8  # of q, by which coordinates are chosen
_OF_A_SITE = 4  # of them, where derivatives are dear
_FINE = 20  # points between two values, for masses
_NUMBERS = 121  # values of a number of a site, for its standard deviation
# Both are cut where they are negligible: of a very long tail no more can be told of either.
_OF_Q = np.linspace(-1, 1, _NUMBERS) * (2 * _NEGLIGIBLE) ** 0.5

Marginals = tuple[Slice, ...]
Heights = tuple[np.ndarray, np.ndarray]  # distances from the mode, and the log marginal there


def marginals(approx: LaplaceApproximation, progress_bar: bool | None = None) -> Marginals | None:
    """The marginal density of each coordinate, where q has a standard normal one.

    At each value t of a coordinate the others are integrated out by Laplace's method around their own
    mode given t, p(t) ~ p(D, t, others(t)) |A_others(t)|^-1/2, whose relative error is of the order
    N^-3/2 (Tierney and Kadane 1986, Journal of the American Statistical Association 81, 82-86, section
    4): it sees a volume that changes along t, as that of the effects along the logarithm of their scale,
    where a line through the mode of q sees nothing.

    Args:
        approx: the approximation.
        progress_bar: as in :func:`~laplacebook.importance_sampling`.

    Returns:
        A slice for each coordinate, in their order, whose density is NaN where the others have no mode
        or the density does not fall within twelve standard deviations. Where the log joint factorises
        matrices, as that of a Gaussian process does, of each site the four alone that look least Gaussian.
        None for a fit that is not small (more than 64 coordinates, or many data).
    """
    size = approx.mode_vector.size
    small = size <= _MOST and is_small(approx.density, size)
    if not small or approx.density.placement is not None:
        return None
    covariance = np.asarray(approx.covariance, float)
    mode = np.asarray(approx.mode_vector, float)
    names = approx.density.coordinate_names()

    deviations = np.sqrt(np.diag(covariance))

    def look_at(t: np.ndarray) -> Seen:
        """In standard deviations of q from the mode, where units do not matter."""
        u = (mode + deviations * t).astype(approx.mode_vector.dtype)
        f, gradient, hessian, outside = seen_at(approx.density, u)
        scaled = hessian * np.outer(deviations, deviations)
        return Seen(f, gradient * deviations, scaled, outside)

    looked_at = list(range(size))
    if factorises(approx.density, approx.mode_vector):
        correlations = covariance / np.outer(deviations, deviations)
        looked_at = _least_gaussian(
            look_at, correlations, [one.size for one in approx.density.sites]
        )

    found = []
    with progress(len(looked_at), progress_bar) as bar:
        for j in looked_at:
            way = covariance[:, j] / deviations / deviations[j]
            sides = [_outwards(look_at, sign * way, j) for sign in (-1, 1)]
            found.append(_joined(names[j], *sides))
            bar.update()
    reached = np.zeros((size, 6 + 2 * _NUMBERS))
    for j, one in zip(looked_at, found, strict=True):
        if one.is_known:
            own = np.linspace(one.t[0], one.t[-1], _NUMBERS)
            reached[j] = np.concatenate([one.ends, own, _OF_Q])
    u = (mode + deviations * reached.T).astype(approx.mode_vector.dtype)
    numbers = np.asarray(own_numbers(approx.density, u), float).T[looked_at]
    return tuple(_on_its_scale(*pair) for pair in zip(found, numbers, strict=True))


def _on_its_scale(one: Slice, numbers: Float[np.ndarray, " G"]) -> Slice:
    """With the number that the coordinate alone decides, if there is one."""
    ends, own, of_q = np.split(numbers, [6, 6 + _NUMBERS])
    if not (one.is_known and np.isfinite(ends).all()):
        return one
    t = np.linspace(one.t[0], one.t[-1], _NUMBERS)
    with np.errstate(over="ignore", invalid="ignore"):
        spreads = (
            _spread(own, np.interp(t, one.t, one.density)),
            _spread(of_q, np.exp(-(_OF_Q**2) / 2)),
        )
    known = np.isfinite(spreads).all() and spreads[0] > 0
    return replace(one, scale=ends, spread_of_number=np.array(spreads) if known else None)


def _spread(values: Float[np.ndarray, " G"], density: Float[np.ndarray, " G"]) -> float:
    """The standard deviation under a density at equal distances of the coordinate."""
    weights = density / density.sum()
    return float(np.sqrt(weights @ (values - weights @ values) ** 2))


def _least_gaussian(
    look_at: Callable[[np.ndarray], Seen], correlations: np.ndarray, sizes: Sequence[int]
) -> list[int]:
    """Of each site the coordinates whose mode a Newton step with the curvature of q, from draws of it, misses most."""
    draws = np.random.default_rng(0).multivariate_normal(
        np.zeros(len(correlations)), correlations, _DRAWS, method="cholesky"
    )
    steps = np.array([correlations @ look_at(t).gradient for t in draws])
    missed = np.nan_to_num(np.mean((steps - draws) ** 2, axis=0), nan=np.inf)
    ends = np.cumsum(sizes)
    chosen = [
        begin + np.argsort(-missed[begin:end])[:_OF_A_SITE]
        for begin, end in zip(ends - sizes, ends, strict=True)
    ]
    return np.sort(np.concatenate(chosen)).tolist()


def _outwards(look_at: Callable[[np.ndarray], Seen], way: np.ndarray, j: int) -> Heights:
    """The log marginal from the mode outwards; its last value is NaN if it cannot be told."""
    others = np.arange(way.size) != j
    here, before, heights = np.zeros(way.size), -_STEP * way, list[float]()
    while len(heights) <= _REACH / _STEP:
        height, there = _given(look_at, here, others)
        if heights and np.isneginf(height):
            at, height = _last_inside(look_at, before, here, others)
            return _from_mode([*heights, height], at)
        heights.append(height)
        if not height >= max(heights) - _NEGLIGIBLE:
            return _from_mode(heights)
        # Where the others went last, they go on; the coordinate itself by one step.
        here, before = 2 * there - before, there
    return _from_mode(heights if height < max(heights) - _SMALL else [*heights, np.nan])


def _last_inside(
    look_at: Callable[[np.ndarray], Seen],
    inside: np.ndarray,
    outside: np.ndarray,
    others: np.ndarray,
) -> tuple[float, float]:
    """How much of a step leads to the edge of the support, and the log marginal there; minus infinity if none does."""
    low, high, last = 0.0, 1.0, -np.inf
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        height, _ = _given(look_at, inside + middle * (outside - inside), others)
        if np.isfinite(height):
            low, last = middle, height
        else:
            high = middle
    return low, last


def _from_mode(heights: Sequence[float], last_step: float = 1.0) -> Heights:
    """With the distances from the mode, in equal steps but for the last one."""
    t = _STEP * np.arange(len(heights))
    t[1:][-1:] -= _STEP * (1 - last_step)
    return t, np.array(heights)


def _given(
    look_at: Callable[[np.ndarray], Seen], here: np.ndarray, others: np.ndarray
) -> tuple[float, np.ndarray]:
    """The log marginal where the coordinate is as here, and the point where the others have their mode."""
    u, best, length = here.copy(), np.inf, 1.0
    step = np.zeros(others.sum())
    for _ in range(_STEPS):
        seen = look_at(u)
        if seen.outside:
            return -np.inf, u
        if not np.isfinite(seen.f) or seen.f > best + _CLOSE:
            length /= 2
            u[others] -= length * step
            continue
        best, length = seen.f, 1.0
        if not others.any():
            return -seen.f, u
        gradient, hessian = seen.gradient[others], seen.hessian[np.ix_(others, others)]
        try:
            precision = DensePrecision(hessian, np.linalg.cholesky(hessian))
        except np.linalg.LinAlgError:
            step = -_descent(hessian, gradient)
            u[others] += step
            continue
        step = -precision.solve(gradient)
        u[others] += step
        below = -step @ gradient / 2
        if below <= _CLOSE:
            return below - seen.f - precision.log_determinant() / 2, u
    return np.nan, u


def _descent(hessian: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Where the Hessian has directions that bend downwards: as if they bent upwards."""
    bends, axes = np.linalg.eigh(hessian)
    return axes @ (axes.T @ gradient / np.maximum(abs(bends), _FLAT * abs(bends).max()))


def _joined(name: str, left: Heights, right: Heights) -> Slice:
    from scipy.interpolate import CubicSpline, PchipInterpolator  # slow to import

    t, heights = (
        np.concatenate([sign * a[:0:-1], b])
        for sign, a, b in zip((-1, 1), left, right, strict=True)
    )
    if np.isnan(heights).any():
        return Slice(name, np.array([-1.0, 1.0]), np.full(2, np.nan))
    inner = np.isfinite(heights)
    t, heights = t[inner], heights[inner]
    fine = np.linspace(t[0], t[-1], _FINE * (len(t) - 1) + 1)
    # Towards an edge the density may fall steeply within a short step, where a cubic spline would overshoot.
    even = np.ptp(np.diff(t)) < _STEP / 2**_HALVINGS
    curve = (CubicSpline if even else PchipInterpolator)(t, heights - heights.max())
    density = np.exp(curve(fine))
    return Slice(name, fine, density / np.trapezoid(density, fine))
