"""Modes of the effects given the hyperparameters, beside those that are followed over a grid."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key
from scipy.special import expit

from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.dense_conditional import AnyConditional
from laplacebook.beyond.other_outer_modes import draws_given
from laplacebook.beyond.sparse_effects import SparseEffects
from laplacebook.model.density import ModelDensity

SHARE = 0.01  # of the mass at a point: with less a mode does not matter
_WIDE = 10.0  # conditional standard deviations about the mode, where the prior says little
_SAME = 0.1  # standard deviations: nearer points are one mode
_CLEAR = 3.0  # conditional standard deviations of an effect that has moved on its own
_LOOKED = 256  # effects that have, of which the log joint is looked at, for each search
_SINGLES = 16  # searches from where one effect has moved


class InnerModes(NamedTuple):
    """What other modes the effects have at a point of the hyperparameters.

    Attributes:
        share: of the mass at that point, that they hold, by the Laplace approximation of each.
        effect: the coordinate, among those of the effects, that lies farthest from the mode that is known.
        away: how far that is in the highest of them, in conditional standard deviations.
    """

    share: float
    effect: int
    away: float

    def told(self, effects: Effects) -> str:
        """In words."""
        name = effects.density.coordinate_names()[effects.places[1][self.effect]]
        return (
            f"the others given {' and '.join(effects.over)} have other modes, which hold {self.share:.0%} of their "
            f"mass and are not counted: in one {name} is {self.away:.0f} conditional standard deviations off"
        )


def other_inner_modes(
    effects: Effects,
    nodes: AnyConditional,
    middle: Float[np.ndarray, " d"],
    key: Key[Array, ""],
    searches: int,
) -> InnerModes | None:
    """Modes of the effects that hold more than a hundredth of the mass beside the one that is known.

    One search begins at the image of the known mode in the middle of the prior, where a change of all signs has its
    mode; the others in turn at a draw of the prior given the hyperparameters, and at one that is ten conditional
    standard deviations about the mode. Of many effects that have two modes each a search ends at a mixture of these,
    which holds little: then each effect alone is moved to where it ended, the others following with their conditional
    means, and searches begin where the log joint is highest.

    Args:
        effects: the log joint.
        nodes: the modes that are known, one for each search, shape (K, ...).
        middle: of the prior of the effects, shape (d,).
        key: of the draws.
        searches: K.
    """
    starts = _starts(effects, nodes, middle, key)
    found = effects.given(nodes.hyper, starts)
    index = np.arange(searches)
    gain = _gain(effects, nodes, index, found)
    best = max(index, key=lambda k: gain[k])
    if _share(gain[best]) > SHARE:
        return _told(nodes, best, found.mode[best], _share(gain[best]))
    return _of_single_effects(effects, nodes, found, np.flatnonzero(gain > -np.inf))


def inner_modes_at(
    density: ModelDensity, values: Mapping[str, Array], key: Key[Array, ""], searches: int
) -> str | None:
    """Such modes of the effects that a marginal model integrates out, in words.

    Args:
        density: of the marginal model.
        values: of its sites.
        key: of the draws.
        searches: how many, one or more.
    """
    marginal: Any = density.model
    args, kwargs = density.arguments
    whole = ModelDensity.of(marginal.model, args, kwargs)
    kind = SparseEffects if marginal.structure == "sparse" else Effects
    effects = kind(whole, tuple(values))
    mode = marginal.given(values, *args, **kwargs).mode
    of_hyper, of_effects = effects.places
    known, middle = (
        np.asarray(whole.start(at), float) for at in ({**values, **mode}, dict(values))
    )
    nodes = effects.given(
        np.tile(known[of_hyper], (searches, 1)), np.tile(known[of_effects], (searches, 1))
    )
    if not np.isfinite(nodes.log_marginal).all():
        return None
    found = other_inner_modes(effects, nodes, middle[of_effects], key, searches)
    return None if found is None else found.told(effects)


def _starts(
    effects: Effects, nodes: AnyConditional, middle: np.ndarray, key: Key[Array, ""]
) -> Float[np.ndarray, "K d"]:
    """Where to search from; the known mode itself in the place of what has no density."""
    number, size = nodes.mode.shape
    given = effects.joined(nodes.hyper, np.full((number, size), np.nan))
    draws = draws_given(effects.density, key, given, effects.names)
    normal = np.random.default_rng(np.asarray(jax.random.key_data(key))).normal(size=(number, size))
    index = np.arange(number)
    wide = nodes.mode + _WIDE * nodes.offsets(index, normal)
    starts = np.where((index % 2 == 1)[:, None], draws, wide)
    starts[0] = 2 * middle - nodes.mode[0]
    heights = effects.log_joint(nodes.hyper, starts[:, None])[:, 0]
    return np.where(np.isfinite(heights)[:, None], starts, nodes.mode)


def _gain(
    effects: Effects, nodes: AnyConditional, index: Int[np.ndarray, " n"], found: AnyConditional
) -> Float[np.ndarray, " n"]:
    """The log mass of each mode that was found less that of the known one; minus infinity where it is no other."""
    gain = np.full(len(index), -np.inf)
    for k in np.flatnonzero(np.isfinite(found.log_marginal)):
        node = index[k : k + 1]
        apart = nodes.squares(node, found.mode[k : k + 1] - nodes.mode[node])[0] > _SAME**2
        if apart and effects.falls(found.at(slice(k, k + 1))):
            gain[k] = found.log_marginal[k] - nodes.log_marginal[node[0]]
    return gain


def _of_single_effects(
    effects: Effects, nodes: AnyConditional, found: AnyConditional, ends: Int[np.ndarray, " E"]
) -> InnerModes | None:
    """Those at the first node at which a single effect is where searches for all have ended."""
    mode, deviations = nodes.mode[0], nodes.deviations[0]
    start: dict[
        int, tuple[float, np.ndarray]
    ] = {}  # of each effect the mass there, about, and the point
    for k in ends:
        away = found.mode[k] - nodes.mode[k]
        order = np.argsort(-abs(away) / nodes.deviations[k])[:_LOOKED]
        which = order[abs(away[order]) > _CLEAR * nodes.deviations[k][order]]
        points = mode + nodes.ways(0, which) * (away / deviations)[which, None]
        heights = effects.log_joint(nodes.hyper[:1], np.concatenate([mode[None], points])[None])[0]
        widths = found.deviations[k][which] / deviations[which]
        for effect, gain, point in zip(
            which, heights[1:] - heights[0] + np.log(widths), points, strict=True
        ):
            if gain > start.get(effect, (np.log(SHARE / _LOOKED), point))[0]:
                start[effect] = gain, point
    best = sorted(start.values(), key=lambda one: -one[0])[:_SINGLES]
    points = np.array([point for _, point in best]).reshape(-1, mode.size)
    index = np.zeros(len(best), int)
    ended = effects.given(nodes.hyper[index], points)
    gain = _gain(effects, nodes, index, ended)
    kept = _distinct(nodes, index, ended, gain)
    share = _share(np.logaddexp.reduce(gain[kept], initial=-np.inf))
    return _told(nodes, 0, ended.mode[kept[0]], share) if share > SHARE else None


def _distinct(
    nodes: AnyConditional, index: np.ndarray, ended: AnyConditional, gain: np.ndarray
) -> list[int]:
    """The modes among them, each once, by falling mass."""
    kept: list[int] = []
    for i in np.argsort(-gain):
        apart = [nodes.squares(index[:1], (ended.mode[i] - ended.mode[j])[None])[0] for j in kept]
        if np.isfinite(gain[i]) and all(one > _SAME**2 for one in apart):
            kept.append(int(i))
    return kept


def _told(nodes: AnyConditional, k: int | np.integer, mode: np.ndarray, share: float) -> InnerModes:
    away = (mode - nodes.mode[k]) / nodes.deviations[k]
    effect = int(np.argmax(abs(away)))
    return InnerModes(share, effect, float(abs(away[effect])))


def _share(gain: float) -> float:
    return float(expit(gain))
