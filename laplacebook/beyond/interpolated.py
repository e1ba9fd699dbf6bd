"""The log marginal of several hyperparameters between few points: interpolated, and looked at where it has its mass."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from laplacebook.base.namespace import logsumexp
from laplacebook.beyond.along_lines import FLOOR
from laplacebook.beyond.cloud import Cloud
from laplacebook.beyond.dense_conditional import AnyConditional
from laplacebook.beyond.fitted_log_mean import fitted_log_mean, polynomial
from laplacebook.beyond.grid import DEPTH, WITHOUT_NUTS, Grid, explore
from laplacebook.beyond.known_points import KnownPoints
from laplacebook.beyond.outer_mode import OuterMode
from laplacebook.beyond.smooth_points import POINTS
from laplacebook.beyond.surface import (
    EVEN,
    FEW,
    FLATTER,
    TRIES,
    Points,
    Surface,
    in_cells,
    settled,
    truncated,
    weights_of,
)

# Standard deviations at the mode between the points of the lattice that is explored, by the number of hyperparameters.
COARSE = {4: 2.0, 5: 2.5} | dict.fromkeys(range(6, WITHOUT_NUTS + 1), 3.0)
_MOST = 2000  # of its points
_SHALLOW = 5.0  # nats below the highest, of many hyperparameters
_APART = 3.0  # nats below the highest: where a second peak is as high, no lattice so coarse tells the modes
_BATCH = 192  # points that are looked at in a round
_ROUNDS = 10
_RISK = 1e-3  # of the mass, beside points at which the effects have no mode
# Root mean square, of the fractions by which the density at new points was not foreseen.
_CLOSE = {4: 0.15, 5: 0.15, 6: 0.2} | dict.fromkeys(range(7, WITHOUT_NUTS + 1), 0.3)
_FEW_COORDINATES = 6  # of which that is enough; of more it is for a surface to draw points from
_USELESS, _SOME = 0.6, 4  # likewise, after some rounds
_ATTEMPTS = 3  # to follow it
# Of the diagonal of a cell, of many hyperparameters and of few: beyond it a surface falls.
_REACH = 0.35, 0.6
_NODES, _FEWEST_NODES = 512, 128  # at which the effects are known
_HEAVY = 64  # points
_POOL = 2**14  # points of a surface
_LOOKED, _WORTH = 3000, 600  # of which so many are looked at, and what they must be worth
_TEMPERED = 0.8  # power of the surface by which they are drawn, so that tails are, too
_ALIKE = 0.9  # of what they would be worth if the surface were right
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


def interpolated(
    known: KnownPoints, mode: OuterMode, seeds: Float[np.ndarray, "M H"]
) -> Cloud | None:
    """Points of the hyperparameters by interpolation, and the effects at some of them.

    The lattice about the mode is a coarse one. What is interpolated between its points is looked at where it has its
    mass, and rounds of new points are added. Of four to six coordinates that is until it has foreseen the density at a
    round of them, and at the points at which the effects are kept, to 15 % in root mean square (of six 20 %). Of more,
    and where it does not become so good, points are drawn from it, and weighted by the log marginal there.

    Args:
        known: the log marginal.
        mode: of the hyperparameters, of which there are four to eight.
        seeds: points from which the lattice is explored, the mode among them.

    Returns:
        None where so few points do not tell the log marginal: it has several modes, or none at some of the points; it
        does not fall on all sides; the points of the lattice do not tell a quadratic function; or what is
        interpolated is too far from it even to draw points from: these are worth fewer than 600 of equal weight, or
        than nine tenths of what they would be worth if it were right.
    """
    size = mode.point.size
    look = _Look(known, mode)
    is_few = size <= _FEW_COORDINATES
    lattice = explore(look.at, mode, COARSE[size], seeds, _MOST, DEPTH if is_few else _SHALLOW)
    if not lattice.ends or lattice.is_full or lattice.at_risk > _RISK or _has_tops(lattice):
        return None
    look.learn(COARSE[size] * lattice.place, lattice.conditional.log_marginal - mode.height)
    points = in_cells(look.x, look.y, COARSE[size])
    if not is_few:  # of which a lattice so shallow may not tell a quadratic function
        look.learn(points.x[:_BATCH], look.heights(points.x[:_BATCH]))
    if np.linalg.matrix_rank(polynomial(look.x, 2)) < (size + 1) * (size + 2) // 2:
        return None
    is_last = False
    for part in range(0, _ROUNDS * TRIES, TRIES):
        points = settled(points, look.surface, POINTS if is_last else FEW, part)
        rows = points.drawn(points.logs, look.nodes if is_last else _BATCH // 2, 0.5)
        foreseen = len(rows)
        if not is_last:
            flat = points.logs - (1 - FLATTER[1]) * points.heights
            rows = np.append(rows, points.drawn(flat, _BATCH // 2, 0.5))
        x = points.x[rows]
        found = look.conditional(x) if is_last else look.at(look.hyper(x))
        heights = found.log_marginal - mode.height
        if not np.isfinite(heights[:foreseen]).all():
            return None
        ratios = np.expm1((heights - points.heights[rows])[:foreseen])
        off = np.sqrt(np.mean(ratios**2))
        is_even = points.evenness > EVEN[0]
        is_close = bool(off < _CLOSE[size] and is_even)
        if is_last and is_close:
            return _interpolated(look, points, found, rows)
        fresh, first = np.unique(rows, return_index=True)
        look.learn(points.x[fresh], heights[first])
        is_useless = off > _USELESS and is_even and part >= _SOME * TRIES
        if is_useless if is_few else is_close:
            break
        is_last = is_close
    return _weighted(look, points, part + TRIES)


class _Look:
    """What is known of the log marginal, in standard deviations at the mode, and what is asked of it.

    Attributes:
        known: the log marginal.
        mode: of the hyperparameters.
        scale: of each coordinate of h, shape (H,).
        nodes: number of points at which the effects are kept.
        x: points, shape (n, H).
        y: the log marginal there, below that of the mode, shape (n,).
        seen: at how many points it was asked.
    """

    def __init__(self, known: KnownPoints, mode: OuterMode) -> None:
        self.known, self.mode = known, mode
        self.scale = np.linalg.norm(mode.axes, axis=1)
        self.nodes = int(np.clip(_NUMBERS // known.effects.held, _FEWEST_NODES, _NODES))
        self.x, self.y = np.empty((0, mode.point.size)), np.empty(0)
        self.seen = 0

    def learn(self, x: Float[np.ndarray, "K H"], y: Float[np.ndarray, " K"]) -> None:
        """Keep what is finite of heights y at points x."""
        sound = np.isfinite(y)
        self.x, self.y = np.concatenate([self.x, x[sound]]), np.append(self.y, y[sound])

    @property
    def surface(self) -> Surface:
        """Through all that is known."""
        size = self.mode.point.size
        reach = _REACH[size <= _FEW_COORDINATES] * COARSE[size] * size**0.5
        return Surface(self.x, self.y, reach)

    def at(self, hyper: Float[np.ndarray, "K H"]) -> Any:
        """The log marginal at h, as a lattice takes it."""
        self.seen += len(hyper)
        return _Heights(hyper, self.known.heights(hyper, self.scale))

    def conditional(self, x: Float[np.ndarray, "K H"]) -> AnyConditional:
        """The effects at points x."""
        self.seen += len(x)
        return self.known.conditional(self.hyper(x), self.scale)

    def hyper(self, x: Float[np.ndarray, "K H"]) -> Float[np.ndarray, "K H"]:
        """Of points in standard deviations, h."""
        return self.mode.point + x @ self.mode.axes.T

    def heights(self, x: Float[np.ndarray, "K H"]) -> Float[np.ndarray, " K"]:
        """The log marginal at such points, below that of the mode."""
        return self.at(self.hyper(x)).log_marginal - self.mode.height

    def cloud(
        self,
        x: Float[np.ndarray, "P H"],
        heights: Float[np.ndarray, " P"],
        logs: Float[np.ndarray, " P"],
        conditional: AnyConditional,
        which: Int[np.ndarray, " K"],
        ratios: Float[np.ndarray, " K"],
        is_weighted: bool,
    ) -> Cloud:
        """What is known, in the coordinates of h; the arguments are those of :class:`Cloud`."""
        top, volume = self.mode.height, np.linalg.slogdet(self.mode.axes)[1]
        at, none = (self.hyper(x), heights + top, logs + top + volume), np.zeros(len(logs))
        return Cloud(*at, conditional, which, ratios, self.mode, self.seen, none, is_weighted)


def _has_tops(lattice: Grid) -> bool:
    """Whether two points of about the height of the highest are higher than all their neighbours."""
    heights = lattice.conditional.log_marginal
    high = heights > heights.max() - _APART
    away = abs(lattice.place[high][:, None] - lattice.place).max(axis=2)
    is_top = ~((away <= 1) & (heights > heights[high][:, None])).any(axis=1)
    return int(is_top.sum()) > 1


def _weighted(look: _Look, points: Points, begin: int) -> Cloud | None:
    """Points of a surface, weighted by the log marginal there, if they are worth enough.

    Where it cannot be followed evenly, its highest points are learned first: it may rise where nothing is known.
    """
    for again in range(_ATTEMPTS):
        pool = settled(points, look.surface, _POOL, begin + TRIES * again)
        flat = pool.logs - (1 - _TEMPERED) * pool.heights
        rows, times = np.unique(pool.drawn(flat, _LOOKED, 0.5), return_counts=True)
        drawn = truncated(flat)
        most = _worth(pool.logs[rows] - drawn[rows] + np.log(times))
        if most >= _WORTH:
            break
        rows = rows[np.argsort(-pool.logs[rows])[:_BATCH]]
        look.learn(pool.x[rows], look.heights(pool.x[rows]))
    else:
        return None
    heights = look.heights(pool.x[rows])
    sound = np.isfinite(heights)
    if times[~sound].sum() > _RISK * _LOOKED:
        return None
    rows, times, heights = rows[sound], times[sound], heights[sound]
    x, logs = pool.x[rows], heights - pool.heights[rows] + (pool.logs - drawn)[rows]
    logs += np.log(times) + logsumexp(drawn) - np.log(_POOL)
    # Surfaces that had missed half of a funnel left them worth up to 84 %, and no weight told.
    if _worth(logs) < max(_WORTH, _ALIKE * most):
        return None
    nodes = Points(x, heights, logs).drawn(logs, look.nodes, 0.5)
    found = look.conditional(x[nodes])
    # Of one number of points, with weights of zero, what is computed of them is one program.
    all_of = np.append(np.arange(len(rows)), np.zeros(_LOOKED - len(rows), int))
    ratios = (logs - truncated(logs))[nodes]
    logs = np.append(logs, np.full(_LOOKED - len(rows), -np.inf))
    return look.cloud(x[all_of], heights[all_of], logs, found, nodes, ratios, True)


def _worth(logs: Float[np.ndarray, " P"]) -> float:
    """How many points of equal weight these are worth."""
    return float(1 / np.sum(weights_of(logs) ** 2))


def _interpolated(
    look: _Look, points: Points, conditional: AnyConditional, which: np.ndarray
) -> Cloud:
    """Corrected by what was found at the nodes, and at those points on which a variance depends most."""
    ratios = conditional.log_marginal - look.mode.height - points.heights[which]
    low, high = np.quantile(points.x[which], _INSIDE, axis=0)
    terms = polynomial(np.clip(points.x, low, high), 2)
    heights = points.heights + terms @ fitted_log_mean(terms[which], ratios)
    heavy = _heaviest(points.x, points.logs + heights - points.heights)
    heights[heavy] = np.maximum(look.heights(points.x[heavy]), FLOOR)
    logs = points.logs + heights - points.heights
    return look.cloud(points.x, heights, logs, conditional, which, ratios, False)


def _heaviest(x: Float[np.ndarray, "P H"], logs: Float[np.ndarray, " P"]) -> Int[np.ndarray, " n"]:
    weights = weights_of(logs)
    away = x - weights @ x
    covariance = (weights[:, None] * away).T @ away
    squares = np.sum(np.linalg.solve(covariance, away.T).T * away, axis=1)
    return np.argsort(-weights * squares)[:_HEAVY]
