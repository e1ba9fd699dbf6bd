"""The slope that tilts each marginal of the effects, as pairs of draws tell it."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Bool, Float, Int

from laplacebook.beyond.along_lines import FALLEN, FINE, interpolated
from laplacebook.beyond.dense_conditional import AnyConditional

_NOWHERE = -100.0  # nats below the highest, whatever the number of effects
_WIDER = 10  # times the distance of the highest ratios: no smooth law reaches so far down
_PAIRS = 4  # for each effect, at least, where a linear function of all is fitted
_KEPT = 2**21  # normal numbers, at most


@dataclass(frozen=True)
class NormalVectors:
    """Of which pairs of draws are made: the same at every call.

    Attributes:
        rows: shape (P, d).
    """

    rows: Float[np.ndarray, "P d"]

    @classmethod
    def of(cls, number: int, size: int, seed: int) -> "NormalVectors":
        """So many of so many effects; the last ones are kept, if they are not too many."""
        return (_kept if number * size <= _KEPT else _drawn)(number, size, seed)

    @cached_property
    def gram(self) -> Float[np.ndarray, "d d"]:
        """The products of the columns."""
        return self.rows.T @ self.rows


def _drawn(number: int, size: int, seed: int) -> NormalVectors:
    rows = np.random.default_rng(seed).standard_normal((number, size))
    rows.flags.writeable = False
    return NormalVectors(rows)


_kept = lru_cache(2)(_drawn)


def tilts(
    nodes: AnyConditional,
    deviations: Float[np.ndarray, "K d"],
    index: Int[np.ndarray, " P"],
    offset: Float[np.ndarray, "P d"],
    odd: Float[np.ndarray, " P"],
    residuals: Float[np.ndarray, "J d G"],
    near: Int[np.ndarray, " P"],
    normal: NormalVectors | None,
) -> tuple[Float[np.ndarray, " d"], float]:
    """The mean of x_i (s - r_i(x_i)), with s the odd part of the log joint and r_i that along the line of effect i.

    What has a known mean with every x_i is taken out of s first, and leaves less to chance: each r_j beside its slope,
    and a linear function of the normal vectors.

    Args:
        nodes: the Gaussian approximations at K points of the hyperparameters.
        deviations: of these, which are known already, shape (K, d).
        index: at which of them each pair is, shape (P,).
        offset: how far they are from the modes, shape (P, d); in standard deviations this is x.
        odd: s of each pair, shape (P,).
        residuals: of the lines, at J of the points, as :class:`~laplacebook.beyond.along_lines.Lines` has them.
        near: which of these is nearest to each pair, shape (P,).
        normal: of which the pairs were made, if these are all that were drawn: of such alone means are known.

    Returns:
        The slopes, shape (d,), and their standard error.
    """
    x = deviations[index]
    np.divide(offset, x, out=x)
    number, size = x.shape
    if not number:
        return np.zeros(size), 0.0
    of_lines = (residuals - residuals[..., ::-1]) / 2
    weights = np.exp(-(FINE**2) / 2)
    own = of_lines @ (FINE * weights) / weights.sum()
    left, told = odd.copy(), x if normal is not None else np.empty_like(x)
    for j in np.unique(near):
        rows = np.flatnonzero(near == j)
        along = interpolated(of_lines[j], x[rows])
        if normal is not None:
            left[rows] += x[rows] @ own[j] - along.sum(axis=1)
        else:
            told[rows] = x[rows] * (odd[rows, None] - along)
    if normal is None:
        return told.mean(axis=0), float(told.std(axis=0).max(initial=0) / number**0.5)
    linear = np.zeros(size)
    if _PAIRS * size <= number:
        linear = np.linalg.solve(normal.gram, normal.rows.T @ left)
        left = left - normal.rows @ linear
    where, often = np.unique(index, return_counts=True)
    known = nodes.offsets(where, np.tile(linear, (len(where), 1))) / deviations[where]
    slope = often @ known - np.bincount(near, minlength=len(own)) @ own + left @ x
    return slope / number, float(left.std() / number**0.5)


def has_fallen(
    ratios: Float[np.ndarray, " P"], odd: Float[np.ndarray, " P"]
) -> Bool[np.ndarray, "2 P"]:
    """Whether p over q is next to nothing at one or the other draw of each pair, as beyond a bound.

    Small ratios to many effects make a small one, too: so it is by more than those of the other draws differ.

    Args:
        ratios: of p over q at both draws of each pair, their mean, as a logarithm, shape (P,).
        odd: half of the difference of log p at both, shape (P,).
    """
    sides = ratios + np.log(2) - np.logaddexp(0, np.multiply.outer([-2, 2], odd))
    near = sides[sides > sides.max() + _NOWHERE]
    if not near.size:
        return np.ones(sides.shape, bool)
    high, highest = np.quantile(near, [0.9, 0.99])
    return sides < min(0, high) - _WIDER * (highest - high) + FALLEN
