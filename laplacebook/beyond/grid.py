"""A grid over the hyperparameters that goes on wherever their posterior does."""

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from laplacebook.beyond.dense_conditional import AnyConditional
from laplacebook.beyond.outer_mode import OuterMode

# Standard deviations at the mode, by the number of hyperparameters.
SPACING = {1: 0.75, 2: 1.0, 3: 1.25, 4: 1.5, 5: 1.5, 6: 1.75}
WITHOUT_NUTS = 8  # hyperparameters: of more points with weights have missed tails
DEPTH = 7.0  # nats below the highest: what lies deeper holds little, mostly, and half of it is kept
MOST = 50_000  # points: some seconds
# Nats below that a point is not counted: it has 2e-9 of the highest density, and whether the effects have a mode there
# is a matter of rounding.
_NOTHING = 13.0
# Nats, of the log evidence with half of the points: with all of them it is far nearer. A cliff beside a long
# tail moves quantiles more, and along one line more points cost little.
_SAME, _SAME_ON_A_LINE = 0.02, 0.005
_SLOWEST = 0.9  # of the mass in a layer of one nat, beside that in the layer above
_TOGETHER = 32  # points at least that are asked for at once
_WIDEST = 60  # standard deviations from the mode, and from a seed that is farther

At = Callable[[np.ndarray], AnyConditional]


class Grid(NamedTuple):
    """Points of a lattice, and the log marginal there.

    Attributes:
        place: of each point, whole numbers, shape (K, H).
        conditional: the effects there.
        spacing: of the lattice, in the axes of ``mode``.
        mode: the mode of the hyperparameters.
        failed: the points at which the effects have no mode, shape (F, H).
        at_risk: the share of the mass beside these points.
        ends: whether the log marginal falls by the depth on all sides.
        is_full: whether it has as many points as a grid may have, and would need more.
        depth: in nats below the highest.
    """

    place: np.ndarray
    conditional: AnyConditional
    spacing: float
    mode: OuterMode
    failed: np.ndarray
    at_risk: float
    ends: bool
    is_full: bool
    depth: float

    @property
    def log_evidence(self) -> float:
        """By the trapezoidal rule, whose error falls exponentially in 1/spacing^2 for a smooth density."""
        return _log_sum(self.conditional.log_marginal) + self._log_cell

    @property
    def log_weights(self) -> Float[np.ndarray, " K"]:
        """Of its points, each of which stands for a cell of the same volume."""
        return self.conditional.log_marginal

    def corrected(self, skewed: Any) -> "Grid":
        """With the log marginal put right for what the effects given h differ from a Gaussian.

        Args:
            skewed: how they differ, a ``SkewedEffects``.
        """
        heights = self.conditional.log_marginal + skewed.correction(self.place)
        return self._replace(conditional=self.conditional._replace(log_marginal=heights))

    def told(self) -> str:
        """What it is, in words."""
        heights = self.conditional.log_marginal
        counted = np.sum(heights >= heights.max() - self.depth - _NOTHING)
        return f"on a grid of {counted} points"

    def checks(self, of_draws: float) -> list[str]:
        """How good it is, in words.

        Args:
            of_draws: the standard error of the log evidence by the draws that correct it.
        """
        by_draws = f", of the draws that correct it {of_draws:.0e}" if of_draws else ""
        error = f"error of the grid about {self.error:.0e}{by_draws}"
        return [f"log evidence {self.log_evidence:.4f} ({error})"]

    def holds(self, hyper: Float[np.ndarray, " H"]) -> bool:
        """Whether one of its points is the nearest of the lattice to h."""
        return bool((self.place == _places(hyper, self.mode, self.spacing)).all(axis=1).any())

    @property
    def error(self) -> float:
        """Of the log evidence, in nats, about: of the spacing, and of the mass beyond the grid."""
        return self.roughness + self.beyond

    @property
    def roughness(self) -> float:
        """The log evidence less that of every other point, in nats."""
        even = self.place.sum(axis=1) % 2 == 0
        half = _log_sum(self.conditional.log_marginal[even]) + self._log_cell + np.log(2)
        return float(abs(self.log_evidence - half))

    @property
    def beyond(self) -> float:
        """The share of the mass that lies deeper than the grid, if it goes on falling as it did before."""
        heights = self.conditional.log_marginal
        below, density = heights.max() - heights, np.exp(heights - heights.max())
        inner, outer = (
            density[(below > self.depth - k) & (below <= self.depth - k + 1)].sum() for k in (2, 1)
        )
        ratio = min(outer / inner, _SLOWEST) if inner else 0.0
        return float(outer * ratio / (1 - ratio) / density.sum())

    @property
    def is_fine(self) -> bool:
        """Whether half of the points tell the same log evidence."""
        return self.roughness <= (_SAME_ON_A_LINE if self.place.shape[1] == 1 else _SAME)

    @property
    def _log_cell(self) -> float:
        size = self.place.shape[1]
        return float(size * np.log(self.spacing) + np.linalg.slogdet(self.mode.axes)[1])

    @property
    def peaks(self) -> Int[np.ndarray, " M"]:
        """The points that are higher than all their neighbours, the highest first."""
        heights = self.conditional.log_marginal
        low, shape = self.place.min(axis=0) - 1, tuple(np.ptp(self.place, axis=0) + 3)
        number = np.ravel_multi_index(tuple((self.place - low).T), shape)
        order = np.argsort(number)
        top = np.arange(len(heights))
        for way in product((-1, 0, 1), repeat=self.place.shape[1]):
            there = np.ravel_multi_index(tuple((self.place[top] + way - low).T), shape)
            beside = order[np.searchsorted(number, there, sorter=order).clip(max=len(order) - 1)]
            known = (number[beside] == there) & any(way)
            top = top[~known | (heights[beside] < heights[top])]
        return top[np.argsort(-heights[top])]


def explore(
    at: At,
    mode: OuterMode,
    spacing: float,
    seeds: Float[np.ndarray, "M H"],
    most: int,
    depth: float,
) -> Grid:
    """All points of the lattice that are connected with a seed and not more than a depth below the highest.

    Their neighbours are looked at, too, and kept.

    Args:
        at: the effects at points of shape (K, H).
        mode: where the lattice is centred, and its axes.
        spacing: of the lattice, in these axes.
        seeds: points from which it is explored, the mode among them.
        most: points, about: with more it is full.
        depth: in nats.
    """
    size = mode.point.size
    unit = np.concatenate([np.eye(size, dtype=int), -np.eye(size, dtype=int)])
    first = np.unique(_places(seeds, mode, spacing), axis=0)
    farthest = abs(first).max()
    widest = _WIDEST / spacing + (farthest if farthest > _WIDEST / spacing else 0)
    heights: dict[tuple[int, ...], float] = {}
    parts: list[AnyConditional] = []
    order: list[tuple[int, ...]] = []
    wave = [tuple(point) for point in first.tolist()]
    while wave and len(heights) <= most:
        index = np.array(wave)
        found = at(mode.point + spacing * index @ mode.axes.T)
        sound = np.isfinite(found.log_marginal)
        heights.update(zip(wave, np.where(sound, found.log_marginal, np.nan), strict=True))
        parts.append(found if sound.all() else found.at(sound))  # of which at makes a copy
        order.extend(point for point, fine in zip(wave, sound, strict=True) if fine)
        wave = _next_wave(heights, unit, widest, depth)
    kind: Any = type(parts[0])
    conditional = kind.joined(parts)
    index = np.array(order).reshape(-1, size)
    kept = conditional.log_marginal
    failed = [point for point, height in heights.items() if np.isnan(height)]
    outermost = abs(index).max(axis=1) >= widest
    ends = not (kept >= kept.max() - depth)[outermost].any()
    return Grid(
        index,
        conditional,
        spacing,
        mode,
        mode.point + spacing * np.array(failed, float).reshape(-1, size) @ mode.axes.T,
        _beside(failed, heights, unit),
        ends,
        bool(wave),
        depth,
    )


def _places(
    hyper: Float[np.ndarray, "*K H"], mode: OuterMode, spacing: float
) -> Int[np.ndarray, "*K H"]:
    """The points of the lattice that are nearest to h."""
    inverse = np.linalg.inv(mode.axes)
    return np.rint((hyper - mode.point) @ inverse.T / spacing).astype(int)


def _next_wave(
    heights: dict[tuple[int, ...], float], unit: np.ndarray, widest: float, depth: float
) -> list[tuple[int, ...]]:
    values = np.array(list(heights.values()))
    index = np.array(list(heights))
    with np.errstate(invalid="ignore"):
        some = np.isfinite(values).any()
        high = index[values >= np.nanmax(values) - depth] if some else index[:0]
    beside = (high[:, None] + unit).reshape(-1, index.shape[1]).tolist()
    known = np.array([tuple(point) in heights for point in beside], bool)
    high = high[~known.reshape(-1, len(unit)).all(axis=1)]
    # Few at a time cost as much as many: so a short wave goes further out.
    steps = np.arange(1, 2 + _TOGETHER // max(1, len(high) * len(unit)))[:, None, None]
    around = (high[:, None, None] + steps * unit).reshape(-1, index.shape[1])
    around = around[abs(around).max(axis=1) <= widest]
    return [point for point in dict.fromkeys(map(tuple, around.tolist())) if point not in heights]


def _beside(
    failed: list[tuple[int, ...]], heights: dict[tuple[int, ...], float], unit: np.ndarray
) -> float:
    """The share of the mass that points without a mode would have if they were as high as a neighbour."""
    if not failed:
        return 0.0
    around = [[heights.get(tuple(np.add(point, way)), np.nan) for way in unit] for point in failed]
    highest = np.nanmax(np.array(around), axis=1, initial=-np.inf)
    known = np.array([height for height in heights.values() if np.isfinite(height)])
    return float(np.exp(_log_sum(highest) - _log_sum(known)))


def _log_sum(logs: np.ndarray) -> float:
    top = logs.max()
    return float(top + np.log(np.sum(np.exp(logs - top)))) if np.isfinite(top) else -np.inf
