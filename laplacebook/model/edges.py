"""Densities at the edge of their support, where NumPyro's formulas have no value or no slope.

At 0 the density of ``Gamma(1, r)`` is r, and its logarithm contains 0 log 0. Where a power of 0 is
left, the density is zero or infinite there. So it is with counts of what cannot happen: none are seen.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool
from numpyro import distributions as dist
from numpyro.distributions import Distribution, constraints

from laplacebook.model.distributions import innermost, unwrapped
from laplacebook.model.gamma_ratios import EXACT, IN_SINGLE


def right_at_edges(fn: Distribution) -> Distribution:
    """The same distribution, with a right log density, and slope, for data at the edge of its support.

    Or of ratios of gamma functions.

    Args:
        fn: the distribution of an observed site; what it wraps or mixes is exchanged too.
    """
    if not any(map(_has_edge, jax.tree.leaves(fn, is_leaf=_has_edge))):
        return fn
    return jax.tree.map(_exchanged, fn, is_leaf=_has_edge)


def at_edge(fn: Distribution, value: Any) -> Bool[Array, "..."]:
    """Which data lie at an end of the interval that supports them; of a simplex, which parts are zero."""
    support, value = innermost(unwrapped(fn).support), jnp.asarray(value)
    if support is constraints.simplex:
        return value == 0
    ends = [getattr(support, name, jnp.nan) for name in ("lower_bound", "upper_bound")]
    return (value == ends[0]) | (value == ends[1])


def _has_edge(part: Any) -> bool:
    return type(part) in _EXACT or (
        type(part) in IN_SINGLE and jnp.result_type(float) == jnp.float32
    )


def _exchanged(part: Any) -> Any:
    if not _has_edge(part):
        return part
    new: Any = object.__new__((_EXACT | IN_SINGLE)[type(part)])
    vars(new).update(vars(part))
    return new


def _log_power_of_zero(power: Any) -> Array:
    return jnp.where(power == 0, 0.0, jnp.where(power > 0, -jnp.inf, jnp.inf))


class _Gamma(Distribution):
    def log_prob(self, value: Any, intermediates: Any = None) -> Array:
        edge = jnp.asarray(value) == 0
        inside = super().log_prob(jnp.where(edge, 1, value))
        at_edge = self.concentration * jnp.log(self.rate) - gammaln(self.concentration)
        return jnp.where(edge, at_edge + _log_power_of_zero(self.concentration - 1), inside)


class Gamma(_Gamma, dist.Gamma):
    """With data at 0."""


class Chi2(_Gamma, dist.Chi2):
    """With data at 0."""


class Weibull(dist.Weibull):
    """With data at 0."""

    def log_prob(self, value: Any) -> Array:
        """The log density; at 0 that of an exponential, or infinite."""
        edge = jnp.asarray(value) == 0
        inside = super().log_prob(jnp.where(edge, 1, value))
        at_edge = jnp.log(self.concentration) - self.concentration * jnp.log(self.scale)
        return jnp.where(edge, at_edge + _log_power_of_zero(self.concentration - 1), inside)


class Kumaraswamy(dist.Kumaraswamy):
    """With data at 1."""

    def log_prob(self, value: Any) -> Array:
        """The log density; NumPyro takes a 1 for a number a little less."""
        at_edge = _log_power_of_zero(self.concentration0 - 1)
        return super().log_prob(value) + jnp.where(jnp.asarray(value) == 1, at_edge, 0)


class _Beta(Distribution):
    def log_prob(self, value: Any, intermediates: Any = None) -> Array:
        one, zero, value = self.concentration1, self.concentration0, jnp.asarray(value)
        edge = (value == 0) | (value == 1)
        inside = super().log_prob(jnp.where(edge, 0.5, value))
        at_edge = gammaln(one + zero) - gammaln(one) - gammaln(zero)
        power = jnp.where(value == 0, one, zero) - 1
        return jnp.where(edge, at_edge + _log_power_of_zero(power), inside)


class Beta(_Beta, dist.Beta):
    """With data at 0 and 1."""


class BetaProportion(_Beta, dist.BetaProportion):
    """With data at 0 and 1."""


class Dirichlet(dist.Dirichlet):
    """With parts that are 0."""

    def log_prob(self, value: Any) -> Array:
        """The log density."""
        powers, value = self.concentration - 1, jnp.asarray(value)
        edge = value == 0
        inside = powers * jnp.log(jnp.where(edge, 1, value))
        parts = jnp.where(edge, _log_power_of_zero(powers), inside)
        constant = gammaln(jnp.sum(self.concentration, -1)) - gammaln(self.concentration).sum(-1)
        return parts.sum(-1) + constant


class Poisson(dist.Poisson):
    """Without events where the rate is 0, as an exposure of 0 makes it."""

    def log_prob(self, value: Any) -> Array:
        """The log probability."""
        never = self.rate == 0
        log_rate = jnp.log(jnp.where(never, 1, self.rate))
        seen = value * log_rate - gammaln(value + 1.0) - self.rate
        return jnp.where(never & (value > 0), -jnp.inf, seen)


class MultinomialProbs(dist.MultinomialProbs):
    """Without outcomes of a class of probability 0."""

    def log_prob(self, value: Any) -> Array:
        """The log probability."""
        never = self.probs == 0
        parts = value * jnp.log(jnp.where(never, 1, self.probs)) - gammaln(value + 1.0)
        parts = jnp.where(never & (value > 0), -jnp.inf, parts)
        return gammaln(self.total_count + 1.0) + parts.sum(-1)


_EXACT = {
    dist.Gamma: Gamma,
    dist.Chi2: Chi2,
    dist.Weibull: Weibull,
    dist.Beta: Beta,
    dist.BetaProportion: BetaProportion,
    dist.Dirichlet: Dirichlet,
    dist.Kumaraswamy: Kumaraswamy,
    dist.Poisson: Poisson,
    dist.MultinomialProbs: MultinomialProbs,
    **EXACT,
}
