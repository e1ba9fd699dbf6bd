"""A log density at many points: none is NaN, and what the mean of draws of it is worth."""

from math import inf, log10, nan

import numpy as np
from jaxtyping import Float

from laplacebook.base.errors import NonFinite, or_in_double
from laplacebook.base.estimate import Estimate, log_mean
from laplacebook.base.namespace import Numbers, logsumexp, namespace
from laplacebook.base.pareto import fitted_pareto, pareto_quantiles
from laplacebook.base.pytrees import from_host, is_traced, on_host


def defined(values: Float[Numbers, " S"], name: str, where: str) -> Float[Numbers, " S"]:
    """The values, none of which is NaN or plus infinity.

    Args:
        values: of the log joint or log likelihood, or what is made of them.
        name: of the model whose they are.
        where: they were computed, in words.

    Raises:
        NonFinite: one of them is. Not within a compiled program.
    """
    seen = on_host(values)
    xp = namespace(seen)
    bad = xp.isnan(seen) | xp.isposinf(seen)
    if is_traced(bad) or not bad.any():
        return values
    raise NonFinite(
        f"The log density of {name} is NaN or infinite at {int(bad.sum()):,} of "
        f"{bad.size:,} {where}.",
        causes=[
            "a parameter of a distribution that is not valid there, such as a scale a + b*x below 0",
            "an overflow far from the data, such as exp(u) in a rate, under a vague prior",
        ],
        remedy="keep parameters valid everywhere (softplus or exp of a linear function, clipped "
        "before it overflows), or make the prior say where they can be." + or_in_double(seen),
    )


def mean_of_weights(weights: Float[Numbers, " S"], k: float) -> Estimate:
    """The logarithm of the mean of importance weights, with the error that their tail allows.

    Args:
        weights: log weights, shape (S,).
        k: their Pareto k-hat; NaN where it is not known.

    Returns:
        The :class:`Estimate`, with an infinite error where k says that none can be told.
    """
    estimate = log_mean(weights)
    if k > usable_below(weights.size):
        return Estimate(estimate.value, from_host(np.full(np.shape(estimate.value), np.inf)))
    wider = of_heavy_tail(k, weights.size)
    if wider == 1:
        return estimate
    return Estimate(estimate.value, from_host(wider * on_host(estimate.standard_error)))


def of_heavy_tail(k: float, num_samples: int) -> float:
    """By how much the spread of S weights understates the error of their mean: S^(k - 1/2), for k above 1/2.

    There their variance is infinite, and the error falls as S^(k - 1), not as S^(-1/2) (Vehtari et al. 2024, section
    3.2.3): the draws that would tell the spread are mostly not among the S.

    Args:
        k: Pareto k-hat of the weights; NaN where it is not known, and nothing is added. From 1 on there is no mean.
        num_samples: S.
    """
    if k >= 1:
        return inf
    return float(num_samples ** (k - GOOD)) if k > GOOD else 1.0


def estimate_of(weights: Float[Numbers, " S"]) -> Estimate:
    """The same with the k of the weights, which is not looked at within a compiled program.

    Args:
        weights: log weights, shape (S,).
    """
    compiled = is_traced(weights)
    return mean_of_weights(weights, nan if compiled else pareto_k(weights))


GOOD = 0.5  # below it the variance of the weights is finite
USABLE = 0.7  # below it the error of a mean of them falls usefully as draws are added
_LUMP = 0.01  # of the weights: above equal ones, what is less does not matter
FEW = 25  # draws: of fewer, ArviZ has no tail of five


def pareto_k(log_weights: Float[Numbers, " S"]) -> float:
    """The shape k of the generalised Pareto distribution fitted to the largest weights.

    Moments of the weights of order above 1/k are infinite. By ArviZ's Pareto-smoothed importance
    sampling (Vehtari, Simpson, Gelman, Yao, Gabry 2024, Journal of Machine Learning Research 25,
    72).

    In the book: :eq:`sigmoid-coin-pareto` of :doc:`/book/computing-evidence`.

    Args:
        log_weights: shape (S,); minus infinity is a weight of zero.

    Returns:
        k-hat; where the largest weights but a few are equal up to rounding, and so have no tail,
        minus infinity, or infinity if those few are larger by 1 % or more, or infinite; NaN for
        fewer than 25 draws, or of weights that are NaN.
    """
    weights = np.asarray(log_weights)
    weights = weights.astype(np.result_type(weights, np.float16), copy=False)
    if weights.size < FEW or np.isnan(weights).any():
        return nan
    if np.isposinf(weights).any():
        return inf
    size = _tail_size(weights.size)
    below, *tail = np.sort(weights)[-size - 1 :]
    rounding = 10 * np.finfo(weights.dtype).eps * max(1, abs(tail[-1]))
    if np.isneginf(tail[-1]) or tail[-1] - tail[0] <= rounding:
        return -inf
    # The fit divides by how far the first quarter of the tail reaches.
    quarter = tail[int(size / 4 + 0.5) - 1]
    reach = np.exp(float(quarter - tail[-1])) - np.exp(float(below - tail[-1]))
    if reach <= np.finfo(float).tiny or quarter - below <= rounding:
        return inf if tail[-1] - below > max(_LUMP, rounding) else -inf
    return _smoothed(weights)[1]


def pareto_smoothed(
    log_weights: Float[np.ndarray, " S"],
) -> tuple[Float[np.ndarray, " S"], float]:
    """The weights with the largest replaced by quantiles of the Pareto distribution fitted to them, and its k-hat.

    Vehtari, Simpson, Gelman, Yao, Gabry 2024, Journal of Machine Learning Research 25, 72, section 3.

    Args:
        log_weights: shape (S,), of 25 draws or more; minus infinity is a weight of zero.

    Returns:
        Their logarithms, of which the exponentials sum to one, and k-hat. Where the largest weights are equal, or no
        distribution fits, the weights as they are, and a k-hat that says so.
    """
    k = pareto_k(log_weights)
    smooth = _smoothed(log_weights)[0] if np.isfinite(k) else np.asarray(log_weights, float)
    smooth = np.where(np.isneginf(log_weights), -np.inf, smooth)
    return smooth - logsumexp(smooth), k


def _smoothed(weights: np.ndarray) -> tuple[np.ndarray, float]:
    zero = np.min(weights, initial=0, where=np.isfinite(weights)) - 1000
    smooth = np.maximum(weights, zero).astype(float)
    smooth -= smooth.max()
    size = _tail_size(weights.size)
    order = np.argsort(smooth)
    tail, threshold = order[-size:], np.exp(smooth[order[-size - 1]])
    k, scale = fitted_pareto(np.exp(smooth[tail]) - threshold)
    if np.isfinite(k):
        levels = np.arange(0.5, size) / size
        quantiles = np.log(threshold + pareto_quantiles(levels, k, scale))
        smooth[tail] = np.minimum(quantiles, smooth[tail[-1]])
    return smooth - logsumexp(smooth), float(k)


def usable_below(num_samples: int) -> float:
    """The k-hat above which a mean of S weights is not to be trusted: min(1 - 1/log10 S, 0.7).

    Vehtari et al. 2024, section 3.2.4: above 0.7 the number of draws that a small error takes is
    out of reach, and few draws cannot reveal a smaller k either.
    """
    return min(1 - 1 / log10(max(num_samples, 2)), USABLE)


def _tail_size(number: int) -> int:
    """How many draws the tail has, as in ArviZ."""
    return number // 5 if number <= 225 else int(3 * number**0.5)
