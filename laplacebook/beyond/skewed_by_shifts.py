"""How many effects given the hyperparameters differ from a Gaussian: their means are known to first order."""

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float, Int

from laplacebook.base.weights import USABLE
from laplacebook.beyond.along_lines import FINE, Lines, image_of
from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.dense_conditional import AnyConditional
from laplacebook.beyond.expansion_at_mode import expansion
from laplacebook.beyond.skewed_effects import (
    FEWEST,
    LINES,
    MOST,
    PAIRS,
    ROUNDING,
    TOGETHER,
    SkewedEffects,
    ratios_of,
    systematic,
)
from laplacebook.beyond.sparse_conditional import SparseConditional
from laplacebook.beyond.sparse_effects import SparseEffects
from laplacebook.beyond.tilts import has_fallen

_NUMBERS = 2**23  # of draws, at one time
_CUBES = 8  # draws for the cubic terms at each point


def skewed_by_shifts(
    effects: Effects, nodes: AnyConditional, log_weights: Float[np.ndarray, " K"]
) -> SkewedEffects:
    """As ``SkewedEffects.of``, with the slope of each marginal from the mean that is known to first order.

    Of more than 4,096 effects no lines are looked at: each marginal is Gaussian, about that mean.

    Args:
        effects: the log joint.
        nodes: the approximations at the points of a grid, or at draws.
        log_weights: of the nodes, shape (K,).
    """
    assert isinstance(effects, SparseEffects) and isinstance(nodes, SparseConditional)
    order, size = np.lexsort(nodes.hyper.T), nodes.mode.shape[1]
    picked = order[systematic(log_weights[order], PAIRS // TOGETHER)]
    ratios, odd = _pairs(effects, nodes, picked, 0)
    index = np.repeat(picked, TOGETHER)
    if max(abs(ratios).max(), abs(odd).max()) < ROUNDING:
        return SkewedEffects(effects, nodes, index[:0], None, index, np.zeros(PAIRS))
    number = int(np.clip(LINES // size, FEWEST, MOST)) if size <= LINES else MOST
    chosen = np.unique(order[systematic(log_weights[order], number)])
    parts = [_image_at(effects, nodes.at([k])) for k in chosen]
    images, bounded = (np.stack(part) for part in zip(*parts, strict=True))
    outside = float(has_fallen(ratios, odd).mean()) if bounded.any() else 0.0
    found = SkewedEffects(effects, nodes, chosen, images, index, ratios, outside=outside)
    even = ratios - np.logaddexp(odd, -odd) + np.log(2)
    if found.pareto_k <= USABLE or not np.isfinite(even).all():
        return found.led_on(log_weights, lambda picked: _pairs(effects, nodes, picked, 1)[0])
    where, back = np.unique(picked, return_inverse=True)
    cubic = np.array([_expanded(effects, nodes.at([k]))[1] for k in where])
    return replace(found, expansion=even + np.repeat(cubic[back], TOGETHER))


def _expanded(
    effects: SparseEffects, node: SparseConditional
) -> tuple[Float[np.ndarray, " d"], float]:
    """At one point, the means of the effects and what cubic terms add to the log marginal, with the same draws."""
    normal = np.random.default_rng(2).standard_normal((node.mode.shape[1], _CUBES, 2))
    return expansion(effects.integral, effects.density_given(node.hyper[0]), node.mode[0], normal)


def _pairs(
    effects: SparseEffects, nodes: SparseConditional, picked: Int[np.ndarray, " n"], seed: int
) -> tuple[Float[np.ndarray, " P"], Float[np.ndarray, " P"]]:
    """Of each pair of draws the logarithm of the mean ratio of p to q, and half of the difference of log p."""
    size, rng = nodes.mode.shape[1], np.random.default_rng(seed)
    parts = []
    for some in np.array_split(picked, -(-2 * PAIRS * size // _NUMBERS)):
        index = np.repeat(some, TOGETHER)
        normal = rng.standard_normal((len(index), size))
        away = nodes.offsets(index, normal).reshape(len(some), TOGETHER, -1)
        middle = nodes.mode[some][:, None]
        points = np.concatenate([middle + away, middle - away], axis=1)
        heights = effects.log_joint(nodes.hyper[some], points)
        parts.append(ratios_of(nodes, index, np.sum(normal**2, axis=1), heights))
    ratios, odd = (np.concatenate(part) for part in zip(*parts, strict=True))
    return ratios, odd


def _image_at(
    effects: SparseEffects, node: SparseConditional
) -> tuple[Float[np.ndarray, "d G"], Bool[np.ndarray, " d"]]:
    """Of normal numbers, at one point, and whether the line of each effect meets a bound."""
    shift = _expanded(effects, node)[0] / node.deviations[0]
    if len(shift) > LINES:
        image = np.stack([FINE[0] + shift, FINE[-1] + shift], axis=1)
        return image, np.zeros(len(shift), bool)
    residuals, bounded = (part[0] for part in Lines.of(effects, node))
    weights = np.exp(-(FINE**2) / 2)
    slope = shift - residuals @ (FINE * weights) / weights.sum()
    return image_of(residuals, np.where(bounded, 0, slope)), bounded
