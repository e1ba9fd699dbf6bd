"""A Monte Carlo estimate of a logarithm, which never travels without its error."""

from dataclasses import dataclass
from math import floor, log, log10
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from laplacebook.base.namespace import Numbers, logsumexp, namespace
from laplacebook.base.pytrees import from_host, is_traced, on_host, register_dataclass

FEWEST = 10  # effective draws: with fewer the spread of the weights says nothing about the error
LARGE = 1e15  # of which a float has no digit behind the point
SMALL = 1e-3  # a value without an error, of which six decimals tell too little


@register_dataclass
@dataclass(frozen=True, repr=False)
class Estimate:
    """A number, such as a log evidence, with the standard error of its Monte Carlo estimate.

    Sums and differences of estimates take their errors to be independent.

    In the book: :eq:`sigmoid-coin-standard-error` and :eq:`sigmoid-coin-delta` of
    :doc:`/book/sigmoid-coin`.

    Attributes:
        value: the estimate.
        standard_error: its standard error, 0 or more, on the same scale; infinite where the draws
            do not tell it.

    Raises:
        ValueError: the standard error is a number of Python or NumPy, and negative.

    >>> one, other = Estimate(-4.7012, 0.0034), Estimate(-6.02, 0.04)
    >>> one
    -4.701 ± 0.003
    >>> one - other
    1.32 ± 0.04
    """

    value: Any
    standard_error: Any

    def __post_init__(self) -> None:
        error = self.standard_error  # of JAX it may be on its way, or stand for another thing
        if isinstance(error, (int, float, np.generic, np.ndarray)) and np.any(
            np.asarray(error) < 0
        ):
            raise ValueError(f"A standard error is 0 or more, not {error}.")

    def __add__(self, other: Any) -> "Estimate":
        other = _as_estimate(other)
        values, errors = on_host(
            ((self.value, other.value), (self.standard_error, other.standard_error))
        )
        traced_or_spread = any(isinstance(error, jax.Array) for error in errors)
        hypot = jnp.hypot if traced_or_spread else np.hypot
        return Estimate(sum(values), hypot(*errors))

    __radd__ = __add__

    def __neg__(self) -> "Estimate":
        return Estimate(from_host(-on_host(self.value)), self.standard_error)

    def __sub__(self, other: Any) -> "Estimate":
        return self + -_as_estimate(other)

    def __rsub__(self, other: Any) -> "Estimate":
        return _as_estimate(other) - self

    def __repr__(self) -> str:
        if is_traced(self.value) or jnp.ndim(self.value):
            return f"Estimate(value={self.value}, standard_error={self.standard_error})"
        return _printed(float(self.value), float(self.standard_error))


def log_mean(log_weights: Float[Numbers, "*B S"]) -> Estimate:
    """log of the mean of exp(log_weights), with its standard error by the delta method.

    The error of the mean of w over S independent draws is sd(w) / sqrt(S), that of its logarithm
    sd(w) / (sqrt(S) mean(w)), and no less than the rounding of the result. It is infinite where
    the effective sample size is below ten: there a few draws carry the whole sum, and their spread
    says nothing about the draws that are missing.

    Args:
        log_weights: shape (S,), or a batch of them; minus infinity is a weight of zero.

    Returns:
        The :class:`Estimate`; minus infinity, with an infinite error, if all weights are zero.
    """
    log_weights = on_host(log_weights)
    xp, number = namespace(log_weights), log_weights.shape[-1]
    value = logsumexp(log_weights) - log(number)
    ratios = xp.exp(log_weights - xp.where(xp.isfinite(value), value, 0)[..., None])
    # Around a mean of one, so that equal weights have a spread of rounding, not of a difference.
    spread = xp.sqrt(xp.sum((ratios - 1) ** 2, axis=-1) / max(number - 1, 1) / number)
    spread = xp.maximum(spread, jnp.finfo(value.dtype).eps * xp.abs(value))
    enough = effective_sample_size(log_weights) >= 0.999 * FEWEST  # ten equal weights round
    error = xp.where(enough, spread, xp.where(xp.isnan(value), value, xp.inf))
    return Estimate(from_host(value), from_host(error.astype(value.dtype)))


def effective_sample_size(log_weights: Float[Numbers, "*B S"]) -> Float[Numbers, "*B"]:
    """(sum w)^2 / sum w^2: how many equally weighted draws would be worth as much; 0 if all w are 0.

    Args:
        log_weights: log w, shape (S,), or a batch of them.
    """
    log_weights = on_host(log_weights)
    xp = namespace(log_weights)
    nothing = xp.all(xp.isneginf(log_weights), axis=-1)
    known = xp.where(nothing[..., None], 0, log_weights)
    with np.errstate(over="ignore"):  # a weight of e^(-10^38) counts as zero
        size = xp.exp(2 * logsumexp(known) - logsumexp(2 * known))
    return xp.where(nothing, 0, size)


def _as_estimate(other: Any) -> Estimate:
    return other if isinstance(other, Estimate) else Estimate(other, 0.0)


def _printed(value: float, error: float) -> str:
    """The error to one digit, and the value to the digit that the error leaves."""
    if not (abs(value) < LARGE and 0 <= error < LARGE):
        return f"{value:.4g} ± {error:.4g}"
    if error < 1e-12 * max(1.0, abs(value)):
        return f"{value:.7g} ± 0" if 0 < abs(value) < SMALL else f"{value:.6f} ± 0"
    rounded = float(f"{error:.0e}")
    digits = max(0, -floor(log10(rounded)))
    return f"{value:.{digits}f} ± {rounded:.{digits}f}"
