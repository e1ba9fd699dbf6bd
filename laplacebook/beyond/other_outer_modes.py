"""Modes of the hyperparameters that a grid does not hold."""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from laplacebook.base.keys import split_into
from laplacebook.base.pytrees import own_copy
from laplacebook.base.quick import jit_quickly
from laplacebook.beyond.chains import Chains
from laplacebook.beyond.cloud import Cloud
from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.grid import Grid
from laplacebook.beyond.known_points import KnownPoints
from laplacebook.beyond.outer_mode import Heights, OuterMode, outer_mode
from laplacebook.model.density import ModelDensity

_DRAWS = 16  # of the prior, at once
_FEW = 500  # coordinates
_ROUNDS = 15  # of each search
_BETWEEN = np.array([0.25, 0.5, 0.75])  # of the way from where a search may begin to the mode
_PEAKS = 4
_LOWER = 0.01  # nats: by more another mode of the effects is none of equals
_SHARE = 0.01  # of the mass: with less a mode does not matter
_NEARLY = 5.0  # nats below a mode, where its mirror image may lie near another
_NARROW = 0.8  # of the standard deviations of another: a grid about that is too coarse


class Alone(NamedTuple):
    """A mode by itself, in the place of a grid about it."""

    mode: OuterMode

    @property
    def log_evidence(self) -> float:
        """By Laplace's method."""
        return self.mode.log_mass

    @property
    def is_fine(self) -> bool:
        """Whether it tells where the mass is."""
        return True

    def holds(self, hyper: Float[np.ndarray, " H"]) -> bool:
        """Whether h lies near it."""
        return self.mode.is_near(hyper)


Seen = Grid | Cloud | Chains | Alone


def prior_draws(
    effects: Effects, key: Key[Array, ""], number: int = _DRAWS
) -> Float[np.ndarray, "M H"]:
    """Draws of the hyperparameters, less those that are not finite.

    Args:
        effects: the log joint, and which sites the hyperparameters are.
        key: of the draws.
        number: of them.
    """
    unknown = np.full((number, effects.density.dimension), np.nan)
    draws = draws_given(effects.density, key, unknown, effects.over)
    return draws[np.isfinite(draws).all(axis=1)]


def draws_given(
    density: ModelDensity,
    key: Key[Array, ""],
    given: Float[np.ndarray, "M D"],
    names: tuple[str, ...],
) -> Float[np.ndarray, "M d"]:
    """Draws of some sites from the prior, given some of the coordinates.

    Args:
        density: the log joint.
        key: of the draws.
        given: the coordinates, NaN where they are drawn.
        names: of the sites, whose coordinates are returned.
    """
    number, parts = len(given), []
    # One program for the hyperparameters and for the effects, unless these are so many that it would take longer.
    few = density.dimension <= _FEW
    sites = tuple(site.name for site in density.sites) if few else names
    places = np.concatenate(
        [np.full(s.size, s.name in names) for s in density.sites if s.name in sites]
    )
    for i, one in enumerate(split_into(key, -(-number // _DRAWS))):
        rows = given[np.minimum(np.arange(_DRAWS) + i * _DRAWS, number - 1)]
        drawn = np.asarray(_draws(density, one, own_copy(rows, float), sites), float)
        parts.append(drawn[:, places])
    return np.concatenate(parts)[:number]


@partial(jit_quickly, static_argnames="names")
def _draws(
    density: ModelDensity, key: Key[Array, ""], given: Float[Array, "M D"], names: tuple[str, ...]
) -> Array:
    def draw(point: tuple[Array, Array]) -> Array:
        return density.draw_start(*point, names)

    return jax.lax.map(draw, (jax.random.split(key, _DRAWS), given))


def other_modes(
    points: KnownPoints, grid: Seen, key: Key[Array, ""], searches: int
) -> list[OuterMode]:
    """Modes with more than a hundredth of the mass of a grid beside it, by searches from draws of the prior.

    Or from the mirror images of the mode of the grid, in each site and in all. From where the log marginal rises all
    the way to the mode of the grid, there is no search. Where the grid is too rough, one of its points may be all that
    it saw of a narrow mode: they begin at its peaks, too. And where the effects have another mode at that of the grid,
    however little it holds there, one follows it: both may have moved together, as where two components of a mixture
    change places.

    Args:
        points: the log marginal, to which is added what led to other modes of the effects.
        grid: about the mode that is known; or draws, or this mode alone.
        key: of the draws.
        searches: how many.
    """
    if searches < 1:
        return []
    found: list[OuterMode] = []

    def known(point: np.ndarray) -> bool:
        on_it = grid.holds(point) if grid.is_fine else grid.mode.is_near(point)
        return on_it or any(one.is_near(point) for one in found)

    draws = prior_draws(points.effects, key, searches)
    candidates = np.concatenate([_mirrored(points, grid.mode), draws])
    starts = _across_a_valley(points.heights, candidates, grid.mode.point)
    peaks: Iterable[np.ndarray] = ()
    if isinstance(grid, Grid) and not grid.is_fine:
        peaks = grid.conditional.hyper[grid.peaks[:_PEAKS]]
    for start in (*peaks, *starts):
        mode = outer_mode(points.heights, start, _ROUNDS, known)
        if mode.found and mode.log_mass > grid.log_evidence + np.log(_SHARE):
            found.append(mode)
    for mode, branch in _along_other_effects(points, grid.mode, key, searches):
        # A grid may hold the place, with other effects there.
        (theirs,) = points.heights(mode.point[None], np.linalg.norm(mode.axes, axis=1))
        is_other = not known(mode.point) or mode.height > theirs + _LOWER
        if is_other and mode.log_mass > grid.log_evidence + np.log(_SHARE):
            found.append(mode)
            points.branches.append(branch)
    return found


def _mirrored(points: KnownPoints, mode: OuterMode) -> Float[np.ndarray, "m H"]:
    """Where a site, or all of them, has the other sign, if the log marginal is nearly as high there.

    Of many coordinates, as the loadings of a factor, next to no draw lies where all have the other sign.
    """
    density, over = points.effects.density, points.effects.over
    sizes = [site.size for site in density.sites if site.name in over]
    of_site = np.repeat(np.arange(len(sizes)), sizes)
    flips = [of_site == i for i in range(len(sizes))] + [of_site >= 0] * (len(sizes) > 1)
    mirrored = np.where(flips, -mode.point, mode.point)
    heights = points.heights(mirrored, np.linalg.norm(mode.axes, axis=1))
    return mirrored[heights > mode.height - _NEARLY]


def _along_other_effects(
    points: KnownPoints, mode: OuterMode, key: Key[Array, ""], searches: int
) -> list[tuple[OuterMode, KnownPoints]]:
    """Where searches end that follow other modes of the effects from one of the hyperparameters, and what they saw."""
    effects = points.effects
    hyper = np.tile(mode.point, (searches, 1))
    if effects.density.dimension > _FEW:
        return []
    unknown = np.full((searches, effects.dimensions[1]), np.nan)
    starts = draws_given(effects.density, key, effects.joined(hyper, unknown), effects.names)
    heights, modes = effects.heights(hyper, starts)
    # Of the same height are the mode itself and its images where signs may change.
    other = np.flatnonzero(heights < mode.height - _LOWER)
    _, first = np.unique(np.rint(heights[other] / _LOWER), return_index=True)
    ends = []
    for one in other[first[::-1][:_PEAKS]]:
        branch = KnownPoints(effects, modes[one])
        branch.hyper, branch.mode = hyper[:1], modes[one : one + 1]
        end = outer_mode(branch.heights, mode.point, _ROUNDS)
        if end.found:
            ends.append((end, branch))
    return ends


def modes_on(points: KnownPoints, grid: Grid) -> list[OuterMode]:
    """Other modes that a grid shows, in some direction so much narrower than its own that it is too coarse for them.

    Args:
        points: the log marginal.
        grid: about the mode that is known.
    """
    heights, found = grid.conditional.log_marginal, [grid.mode]
    for peak in grid.peaks[heights[grid.peaks] > heights.max() + np.log(_SHARE)]:
        start = grid.conditional.hyper[peak]
        if not any(one.is_near(start) for one in found):
            mode = outer_mode(points.heights, start, _ROUNDS)
            if mode.found and not any(one.is_near(mode.point) for one in found):
                found.append(mode)
    return [one for one in found[1:] if grid.mode.least_width(one) < _NARROW]


def mass_beside(modes: list[OuterMode], grid: Seen) -> float:
    """What modes beside a grid hold of the mass that is on it, by Laplace's method."""
    return float(np.sum(np.exp([one.log_mass - grid.log_evidence for one in modes])))


def _across_a_valley(
    heights: Heights, starts: np.ndarray, mode: np.ndarray
) -> Float[np.ndarray, "m H"]:
    """Those starts from which the log marginal falls somewhere on the way to the mode."""
    unit = np.ones(mode.size)
    first = heights(starts, unit)
    starts, first = starts[np.isfinite(first)], first[np.isfinite(first)]
    between = starts + np.multiply.outer(_BETWEEN, mode - starts)
    later = heights(between.reshape(-1, mode.size), unit).reshape(len(_BETWEEN), -1)
    return starts[(np.diff([first, *later], axis=0) < 0).any(axis=0)]
