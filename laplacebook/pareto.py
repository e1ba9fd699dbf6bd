"""How heavy is the tail of importance weights: Pareto k-hat, as ArviZ fits it."""

from math import inf, log10, nan

import numpy as np
from jaxtyping import Array, Float

__all__ = ["GOOD", "pareto_k", "usable_below"]

GOOD = 0.5  # below it the variance of the weights is finite
_USABLE = 0.7  # below it the error of a mean of them falls usefully as draws are added
_FEWEST = 25  # draws: of fewer, ArviZ has no tail of five


def pareto_k(log_weights: Float[Array, " S"]) -> float:
    """The shape k of the generalised Pareto distribution fitted to the largest weights.

    Moments of the weights of order above 1/k are infinite. By ArviZ's Pareto-smoothed importance
    sampling (Vehtari, Simpson, Gelman, Yao, Gabry 2024, Journal of Machine Learning Research 25,
    72).

    Args:
        log_weights: shape (S,); minus infinity is a weight of zero.

    Returns:
        k-hat; minus infinity where the largest weights are equal up to rounding, and so have no
        tail; NaN for fewer than 25 draws, or of weights that are NaN.
    """
    weights = np.asarray(log_weights)
    if weights.size < _FEWEST or np.isnan(weights).any():
        return nan
    tail = np.sort(weights)[-_tail_size(weights.size) :]
    equal = 10 * np.finfo(weights.dtype).eps * abs(tail[-1])
    if np.isneginf(tail[-1]) or tail[-1] - tail[0] <= equal:
        return -inf
    from arviz_stats.base.array import array_stats  # slow to import

    zero = np.min(weights, initial=0, where=np.isfinite(weights)) - 1000
    # ArviZ takes the log likelihoods of data left out, which are minus log weights.
    return float(array_stats.psislw(-np.maximum(weights, zero).astype(float))[1])


def usable_below(num_samples: int) -> float:
    """The k-hat above which a mean of S weights is not to be trusted: min(1 - 1/log10 S, 0.7).

    Vehtari et al. 2024, section 3.2.4: above 0.7 the number of draws that a small error takes is
    out of reach, and few draws cannot reveal a smaller k either.
    """
    return min(1 - 1 / log10(max(num_samples, 2)), _USABLE)


def _tail_size(number: int) -> int:
    """How many draws ArviZ takes for the tail."""
    return number // 5 if number <= 225 else int(3 * number**0.5)
