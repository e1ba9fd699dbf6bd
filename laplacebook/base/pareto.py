"""The generalised Pareto distribution of what lies far out: its fit, and its quantiles.

As ArviZ has it, whose import takes half a second.
"""

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

_PRIOR_OF_SCALE = 3
_PRIOR_SIZE, _PRIOR_MEAN = 10, 0.5  # of k: as many further numbers with this shape
_COARSEST = (
    30  # points at which the likelihood is looked at, and the root of how many numbers there are
)
_NEGLIGIBLE = 10 * np.finfo(float).eps


def fitted_pareto(excess: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """The shape k and the scale of the distribution fitted to rising positive numbers.

    The posterior mean of Zhang and Stephens 2009, Technometrics 51, 316, with the weak prior for k of Vehtari et al.
    2024, Journal of Machine Learning Research 25, 72, appendix C.

    Args:
        excess: by how much each exceeds the threshold, shape (n,).
    """
    n = excess.size
    number = _COARSEST + int(n**0.5)
    b = 1 - np.sqrt(number / (np.arange(1, number + 1, dtype=float) - 0.5))
    b /= _PRIOR_OF_SCALE * excess[int(n / 4 + 0.5) - 1]
    b += 1 / excess[-1]
    k = np.mean(np.log1p(-b[:, None] * excess), axis=1)
    height = n * (np.log(-b / k) - k - 1)
    weights = np.exp(height - logsumexp(height))
    counted = weights >= _NEGLIGIBLE
    b, weights = b[counted], weights[counted]
    mean = np.sum(b * (weights / weights.sum()))
    shape = np.mean(np.log1p(-mean * excess))
    return (n * shape + _PRIOR_SIZE * _PRIOR_MEAN) / (n + _PRIOR_SIZE), -shape / mean


def pareto_quantiles(
    levels: Float[np.ndarray, " P"], k: float, scale: float
) -> Float[np.ndarray, " P"]:
    """By how much the quantiles exceed the threshold; NaN without a positive scale.

    Args:
        levels: probabilities, shape (P,).
        k: the shape.
        scale: of the distribution.
    """
    if scale <= 0:
        return np.full_like(levels, np.nan)
    if k == 0:
        return -scale * np.log1p(-levels)
    return scale * np.expm1(-k * np.log1p(-levels)) / k
