"""The log marginal of several hyperparameters between few points: interpolated, and looked at where it has its mass."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri

from laplacebook.base.namespace import logsumexp
from laplacebook.beyond.cloud import Cloud
from laplacebook.beyond.dense_conditional import AnyConditional
from laplacebook.beyond.fitted_log_mean import fitted_log_mean, polynomial
from laplacebook.beyond.grid import DEPTH, explore
from laplacebook.beyond.known_points import KnownPoints
from laplacebook.beyond.outer_mode import OuterMode
from laplacebook.beyond.skewed_effects import FLOOR
from laplacebook.beyond.smooth_points import POINTS, evenly

# Standard deviations at the mode between the points of the lattice that is explored, by the number of hyperparameters.
COARSE = {4: 2.0, 5: 2.5, 6: 3.0}
_MOST = 2000  # of its points
_APART = 3.0  # nats below the highest: where a second peak is as high, no lattice so coarse tells the modes
_BATCH = 192  # points that are looked at in a round
_ROUNDS = 10
_RISK = 1e-3  # of the mass, beside points at which the effects have no mode
# Root mean square, of the fractions by which the density at new points was not foreseen.
_CLOSE = {4: 0.15, 5: 0.15, 6: 0.2}
_HOPELESS, _SOME = 0.6, 4  # by which it is not, after some rounds
_CLIFF = 15.0  # nats: a surface through what lies deeper would swing beside it
_RISE = 6.0  # nats above the nearest point, at most
_FEW = 2048  # points of a cloud that shows where to look
_CENTRES = 256  # from which one spreads
_FLATTER = 0.6, 0.5  # powers of its weights, for centres, and for half of a batch
_WIDER = 3.0  # times the width of the kernel, for one point of eight
_EVEN = 0.15, 0.3  # effective number of a cloud in its own: the least, and enough
_TRIES = 4
_NODES, _FEWEST_NODES = 512, 128  # at which the effects are known
_HEAVY = 64  # points
_INSIDE = (0.02, 0.98)  # of the nodes, in which a correction is a polynomial
_NUMBERS = 2**26  # of their Cholesky factors, 512 MiB


class _Heights(NamedTuple):
    """The log marginal alone, where a lattice asks for the effects, too."""

    hyper: np.ndarray
    log_marginal: np.ndarray

    def at(self, index: np.ndarray) -> "_Heights":
        return _Heights(self.hyper[index], self.log_marginal[index])

    @classmethod
    def joined(cls, parts: Sequence["_Heights"]) -> "_Heights":
        return cls(*(np.concatenate(one) for one in zip(*parts, strict=True)))


class _Surface:
    """Heights between points, by radial basis functions r^5 with a quadratic polynomial.

    Not more than 6 nats above the nearest point, and falling where that is far.

    Attributes:
        x: the points, in standard deviations at the mode, shape (n, H).
        y: the heights there, below that of the mode, shape (n,).
        reach: from a point; beyond it nothing is known.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, reach: float) -> None:
        self.x, self.y, self.reach = x, y, reach

    @cached_property
    def _parts(self) -> tuple[Any, Any]:
        from scipy.interpolate import RBFInterpolator  # slow to import
        from scipy.spatial import KDTree

        heights = np.maximum(self.y, self.y.max() - _CLIFF)
        smooth = RBFInterpolator(self.x, heights, kernel="quintic", degree=2, smoothing=1e-8)
        return smooth, KDTree(self.x)

    def __call__(self, x: Float[np.ndarray, "P H"]) -> Float[np.ndarray, " P"]:
        smooth, tree = self._parts
        away, nearest = tree.query(x)
        highest = np.minimum(self.y[nearest] + _RISE, self.y.max() + 1)
        return np.minimum(smooth(x), highest) - np.maximum(0, away - self.reach) ** 2


class _Points(NamedTuple):
    """Points of some density, weighted so that they stand for the surface.

    Attributes:
        x: shape (P, H).
        heights: of the surface, shape (P,).
        logs: log weights, shape (P,): their mean weight is the integral of the surface.
    """

    x: np.ndarray
    heights: np.ndarray
    logs: np.ndarray

    @property
    def evenness(self) -> float:
        """Their effective number in their number."""
        return float(1 / np.sum(_weights(self.logs) ** 2) / len(self.logs))

    def drawn(self, logs: np.ndarray, number: int, uniform: float) -> Int[np.ndarray, " S"]:
        """So many of them by these log weights, spread out over where they lie, and none that outweighs all others.

        Weights are truncated (Ionides 2008): a surface may rise far from all points.
        """
        from scipy.spatial import KDTree  # slow to import

        order = KDTree(self.x, leafsize=1).indices
        places = (np.arange(number) + uniform) / number
        logs = np.minimum(logs, logsumexp(logs) - np.log(len(logs)) / 2)
        mass = np.cumsum(_weights(logs)[order])
        return order[np.minimum(np.searchsorted(mass, places), len(order) - 1)]

    def spread(self, surface: _Surface, number: int, begin: int) -> "_Points":
        """Others, from normal kernels about some of them (West 1993, adaptive mixture importance sampling)."""
        size = self.x.shape[1]
        centres = self.x[self.drawn(_FLATTER[0] * self.logs, _CENTRES, 0.5)]
        width = (4 / (_CENTRES * (size + 2))) ** (1 / (size + 4))  # Silverman's
        covariance = np.cov(centres.T) + 1e-4 * np.eye(size)
        root = 1.1 * width * np.linalg.cholesky(covariance)
        uniform = evenly(size + 1, number, begin)
        which = np.minimum((uniform[:, 0] * _CENTRES).astype(int), _CENTRES - 1)
        wide = np.where(np.arange(number) % 8 == 7, _WIDER, 1)[:, None]
        x = centres[which] + wide * ndtri(uniform[:, 1:]) @ root.T
        heights = surface(x)
        return _Points(x, heights, heights - _log_kernels(x, centres, root))


def _log_kernels(
    x: Float[np.ndarray, "P H"], centres: Float[np.ndarray, "C H"], root: Float[np.ndarray, "H H"]
) -> Float[np.ndarray, " P"]:
    from scipy.spatial.distance import cdist  # slow to import

    size = len(root)
    squares = cdist(*(np.linalg.solve(root, y.T).T for y in (x, centres)), "sqeuclidean")
    narrow, wide = (np.exp(-squares / (2 * w**2)).mean(1) / w**size for w in (1, _WIDER))
    volume = size / 2 * np.log(2 * np.pi) + np.linalg.slogdet(root)[1]
    with np.errstate(divide="ignore"):
        return np.log(7 / 8 * narrow + wide / 8) - volume


def interpolated(
    known: KnownPoints, mode: OuterMode, seeds: Float[np.ndarray, "M H"]
) -> Cloud | None:
    """Points of the hyperparameters by interpolation, and the effects at some of them.

    The lattice about the mode is a coarse one. What is interpolated between its points is looked at where it has its
    mass, and rounds of new points are added until it has foreseen the density at a round of them, and at the points
    at which the effects are kept, to 15 % in root mean square (of six coordinates 20 %).

    Args:
        known: the log marginal.
        mode: of the hyperparameters, of which there are four to six.
        seeds: points from which the lattice is explored, the mode among them.

    Returns:
        None where so few points do not tell the log marginal: it has several modes, or none at some of the points;
        it does not fall on all sides; or rounds have an end before it is foreseen.
    """
    scale = np.linalg.norm(mode.axes, axis=1)

    def at(hyper: np.ndarray) -> Any:
        return _Heights(hyper, known.heights(hyper, scale))

    size = mode.point.size
    nodes = int(np.clip(_NUMBERS // known.effects.held, _FEWEST_NODES, _NODES))
    spacing = COARSE[size]
    lattice = explore(at, mode, spacing, seeds, _MOST, DEPTH)
    tops = lattice.conditional.log_marginal[lattice.peaks]
    several = np.sum(tops > tops.max() - _APART) > 1
    if not lattice.ends or lattice.is_full or lattice.at_risk > _RISK or several:
        return None
    x = spacing * lattice.place
    y = lattice.conditional.log_marginal - mode.height
    points, reach = _in_cells(x, y, spacing), 0.6 * spacing * size**0.5
    is_last = False
    for part in range(0, _ROUNDS * _TRIES, _TRIES):
        points = _settled(points, _Surface(x, y, reach), POINTS if is_last else _FEW, part)
        rows = points.drawn(points.logs, nodes if is_last else _BATCH // 2, 0.5)
        foreseen = len(rows)
        if not is_last:
            flat = points.logs - (1 - _FLATTER[1]) * points.heights
            rows = np.append(rows, points.drawn(flat, _BATCH // 2, 0.5))
        hyper = mode.point + points.x[rows] @ mode.axes.T
        found = known.conditional(hyper, scale) if is_last else at(hyper)
        heights = found.log_marginal - mode.height
        if not np.isfinite(heights).all():
            return None
        ratios = np.expm1(heights - points.heights[rows])[:foreseen]
        off = np.sqrt(np.mean(ratios**2))
        is_even = points.evenness > _EVEN[0]
        is_close = bool(off < _CLOSE[size] and is_even)
        if is_last and is_close:
            return _cloud(mode, points, found, rows, at, len(x) + len(rows) + _HEAVY)
        if off > _HOPELESS and is_even and part >= _SOME * _TRIES:
            return None
        is_last = is_close
        fresh, first = np.unique(rows, return_index=True)
        x, y = np.concatenate([x, points.x[fresh]]), np.append(y, heights[first])
    return None


def _weights(logs: np.ndarray) -> np.ndarray:
    return np.exp(logs - logsumexp(logs))


def _in_cells(x: np.ndarray, y: np.ndarray, spacing: float) -> _Points:
    """In the cells of a lattice, by the heights of their middles."""
    mass, uniform = np.cumsum(_weights(y)), evenly(x.shape[1] + 1, _FEW, 0)
    cells = np.minimum(np.searchsorted(mass, uniform[:, 0]), len(y) - 1)
    within = x[cells] + spacing * (uniform[:, 1:] - 0.5)
    return _Points(within, y[cells], np.zeros(_FEW))


def _settled(points: _Points, surface: _Surface, number: int, begin: int) -> _Points:
    """Points that follow the surface, and stand for it evenly if a few tries make them do so."""
    for i in range(_TRIES):
        few = points.evenness < _EVEN[1] and i < _TRIES - 1
        points = points.spread(surface, _FEW if few else number, begin + i)
        if points.evenness > _EVEN[1] and len(points.x) == number:
            break
    return points


def _cloud(
    mode: OuterMode,
    points: _Points,
    conditional: AnyConditional,
    which: np.ndarray,
    at: Callable[[np.ndarray], Any],
    seen: int,
) -> Cloud:
    """Corrected by what was found at the nodes, and at those points on which a variance depends most."""
    ratios = conditional.log_marginal - mode.height - points.heights[which]
    low, high = np.quantile(points.x[which], _INSIDE, axis=0)
    terms = polynomial(np.clip(points.x, low, high), 2)
    heights = points.heights + terms @ fitted_log_mean(terms[which], ratios)
    heavy = _heaviest(points.x, points.logs + heights - points.heights)
    hyper = mode.point + points.x @ mode.axes.T
    heights[heavy] = np.maximum(at(hyper[heavy]).log_marginal - mode.height, FLOOR)
    logs = points.logs + heights - points.heights
    volume = np.linalg.slogdet(mode.axes)[1]
    return Cloud(
        hyper,
        heights + mode.height,
        logs + mode.height + volume,
        conditional,
        which,
        ratios,
        mode,
        seen,
        np.zeros(len(logs)),
    )


def _heaviest(x: Float[np.ndarray, "P H"], logs: Float[np.ndarray, " P"]) -> Int[np.ndarray, " n"]:
    weights = _weights(logs)
    away = x - weights @ x
    covariance = (weights[:, None] * away).T @ away
    squares = np.sum(np.linalg.solve(covariance, away.T).T * away, axis=1)
    return np.argsort(-weights * squares)[:_HEAVY]
