"""A surface between points at which a log density is known, and weighted points that stand for it."""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri

from laplacebook.base.namespace import logsumexp
from laplacebook.beyond.smooth_points import evenly

_CLIFF = 15.0  # nats: a surface through what lies deeper would swing beside it
_RISE = 6.0  # nats above the nearest point, at most
FEW = 2048  # points of a cloud that shows where to look
_CENTRES = 256  # from which one spreads
FLATTER = 0.6, 0.5  # powers of its weights, for centres, and for half of a batch
_WIDER = 3.0  # times the width of the kernel, for one point of eight
EVEN = 0.15, 0.3  # effective number of a cloud in its own: the least, and enough
TRIES = 4


class Surface:
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
        """The heights at points x, in standard deviations."""
        smooth, tree = self._parts
        away, nearest = tree.query(x)
        highest = np.minimum(self.y[nearest] + _RISE, self.y.max() + 1)
        return np.minimum(smooth(x), highest) - np.maximum(0, away - self.reach) ** 2


class Points(NamedTuple):
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
        return float(1 / np.sum(weights_of(self.logs) ** 2) / len(self.logs))

    def drawn(self, logs: np.ndarray, number: int, uniform: float) -> Int[np.ndarray, " S"]:
        """So many of them by these log weights, spread out over where they lie.

        The weights are truncated: a surface may rise far from all points.

        Args:
            logs: log weights, shape (P,).
            number: S.
            uniform: a number between 0 and 1.
        """
        from scipy.spatial import KDTree  # slow to import

        order = KDTree(self.x, leafsize=1).indices
        places = (np.arange(number) + uniform) / number
        mass = np.cumsum(weights_of(truncated(logs))[order])
        return order[np.minimum(np.searchsorted(mass, places), len(order) - 1)]

    def spread(self, surface: Surface, number: int, begin: int) -> "Points":
        """Others, from normal kernels about some of them (West 1993, adaptive mixture importance sampling).

        Args:
            surface: for which they stand.
            number: P.
            begin: of the sequence that fills a cube evenly, which part.
        """
        size = self.x.shape[1]
        centres = self.x[self.drawn(FLATTER[0] * self.logs, _CENTRES, 0.5)]
        width = (4 / (_CENTRES * (size + 2))) ** (1 / (size + 4))  # Silverman's
        covariance = np.cov(centres.T) + 1e-4 * np.eye(size)
        root = 1.1 * width * np.linalg.cholesky(covariance)
        uniform = evenly(size + 1, number, begin)
        which = np.minimum((uniform[:, 0] * _CENTRES).astype(int), _CENTRES - 1)
        wide = np.where(np.arange(number) % 8 == 7, _WIDER, 1)[:, None]
        x = centres[which] + wide * ndtri(uniform[:, 1:]) @ root.T
        heights = surface(x)
        return Points(x, heights, heights - _log_kernels(x, centres, root))


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


def weights_of(logs: Float[np.ndarray, " P"]) -> Float[np.ndarray, " P"]:
    """Weights that sum to one."""
    return np.exp(logs - logsumexp(logs))


def truncated(logs: Float[np.ndarray, " P"]) -> Float[np.ndarray, " P"]:
    """Log weights of which none is larger than the mean times the root of their number (Ionides 2008)."""
    return np.minimum(logs, logsumexp(logs) - np.log(len(logs)) / 2)


def in_cells(x: Float[np.ndarray, "n H"], y: Float[np.ndarray, " n"], spacing: float) -> Points:
    """Points in the cells of a lattice, by the heights of their middles.

    Args:
        x: the middles.
        y: the heights there.
        spacing: of the lattice.
    """
    mass, uniform = np.cumsum(weights_of(y)), evenly(x.shape[1] + 1, FEW, 0)
    cells = np.minimum(np.searchsorted(mass, uniform[:, 0]), len(y) - 1)
    within = x[cells] + spacing * (uniform[:, 1:] - 0.5)
    return Points(within, y[cells], np.zeros(FEW))


def settled(points: Points, surface: Surface, number: int, begin: int) -> Points:
    """Points that follow the surface, and stand for it evenly if a few tries make them do so.

    Args:
        points: from which they spread.
        surface: that they follow.
        number: of them, P.
        begin: of the sequence that fills a cube evenly, which part is the first.
    """
    for i in range(TRIES):
        few = points.evenness < EVEN[1] and i < TRIES - 1
        points = points.spread(surface, FEW if few else number, begin + i)
        if points.evenness > EVEN[1] and len(points.x) == number:
            break
    return points
