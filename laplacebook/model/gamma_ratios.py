"""Distributions whose formulas are ratios of gamma functions, by what keeps digits and derivatives.

NumPyro takes differences of log gamma functions, of which at large arguments no digit is left; and JAX's
``betaln`` orders its arguments, so that its second derivatives are wrong where both are equal.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, xlog1py, xlogy
from jaxtyping import Array
from numpyro import distributions as dist
from numpyro.distributions import Distribution
from numpyro.distributions.util import clamp_probs
from scipy import special

from laplacebook.base.namespace import Numbers

#: what is known before a program is traced, which need not compute with it
_KNOWN = float | int | np.generic | np.ndarray
_FEW = 1000  # numbers
_LARGE = 8.0
#: of 1 / x, 1 / x^3, ...: the first term that is left out is 1e-15 at 8
_STIRLING = (1/12, -1/360, 1/1260, -1/1680, 1/1188, -691/360360, 1/156)  # fmt: skip


def log_rising(x: Any, step: Any) -> Array:
    """log Gamma(x + step) - log Gamma(x), for x and x + step above zero: of the rising factorial.

    By Stirling's series, of which the parts that are large are subtracted by hand.
    """
    if all(isinstance(one, _KNOWN) and np.size(one) <= _FEW for one in (x, step)):
        with np.errstate(all="ignore"):
            found = _log_rising(np.asarray(x, float), np.asarray(step, float), np)
        return jnp.asarray(found, float)
    return _log_rising(jnp.asarray(x, float), jnp.asarray(step, float), jnp)


def _log_rising(x: Numbers, step: Numbers, xp: Any) -> Numbers:
    there = x + step
    main = (there - 0.5) * xp.log1p(step / x) + step * xp.log(x) - step
    return main + _beside_stirling(there, xp) - _beside_stirling(x, xp)


def _beside_stirling(x: Numbers, xp: Any) -> Numbers:
    """log Gamma(x) - [(x - 1/2) log x - x + log(2 pi) / 2]."""
    large = x >= _LARGE
    far, near = xp.where(large, x, _LARGE), xp.where(large, 1.0, x)
    series = xp.zeros_like(x)
    for term in reversed(_STIRLING):
        series = series / far**2 + term
    log_gamma = special.gammaln(near) if xp is np else gammaln(near)
    direct = log_gamma - (near - 0.5) * xp.log(near) + near - np.log(2 * np.pi) / 2
    return xp.where(large, series / far, direct)


class StudentT(dist.StudentT):
    """Of any degrees of freedom."""

    def log_prob(self, value: Any) -> Array:
        """The log density."""
        z = (value - self.loc) / self.scale
        half = self.df / 2
        constant = log_rising(half, 0.5) - (jnp.log(self.df) + np.log(np.pi)) / 2
        return constant - jnp.log(self.scale) - (half + 0.5) * jnp.log1p(z**2 / self.df)


class BetaBinomial(dist.BetaBinomial):
    """Of any concentrations, equal ones too."""

    def log_prob(self, value: Any) -> Array:
        """The log probability."""
        one, zero, rest = self.concentration1, self.concentration0, self.total_count - value
        ways = log_rising(rest + 1.0, value) - gammaln(value + 1.0)
        hits = log_rising(one, value) + log_rising(zero, rest)
        return ways + hits - log_rising(one + zero, self.total_count)


class BetaNegativeBinomial(dist.BetaNegativeBinomial):
    """Of any concentrations."""

    def log_prob(self, value: Any) -> Array:
        """The log probability."""
        one, zero = self.concentration1, self.concentration0
        ways = log_rising(self.n, value) - gammaln(value + 1.0)
        hits = log_rising(one, value) + log_rising(zero, self.n)
        return ways + hits - log_rising(one + zero, self.n + value)


class _GammaPoisson(Distribution):
    def log_prob(self, value: Any, intermediates: Any = None) -> Array:
        size, rate = self.concentration, self.rate
        ways = log_rising(size, value) - gammaln(value + 1.0)
        return ways - size * jnp.log1p(1 / rate) - xlog1py(value + 0.0, rate)


class GammaPoisson(_GammaPoisson, dist.GammaPoisson):
    """Of any concentration."""


class NegativeBinomial2(_GammaPoisson, dist.NegativeBinomial2):
    """Of any concentration."""


class NegativeBinomialProbs(_GammaPoisson, dist.NegativeBinomialProbs):
    """Of any number of successes."""


class NegativeBinomialLogits(dist.NegativeBinomialLogits):
    """Of any number of successes."""

    def log_prob(self, value: Any) -> Array:
        """The log probability."""
        size, log_odds = self.total_count, self.logits
        ways = log_rising(size, value) - gammaln(value + 1.0)
        return ways - size * jax.nn.softplus(log_odds) - value * jax.nn.softplus(-log_odds)


class DirichletMultinomial(dist.DirichletMultinomial):
    """Of any concentrations."""

    def log_prob(self, value: Any) -> Array:
        """The log probability."""
        each = log_rising(self.concentration, value) - gammaln(value + 1.0)
        total = jnp.sum(value, -1)
        sizes = jnp.sum(self.concentration, -1)
        return each.sum(-1) + gammaln(total + 1.0) - log_rising(sizes, total)


class _Binomial(Distribution):
    def _ways(self, value: Any) -> Array:
        fewer = jnp.minimum(value, self.total_count - value)
        return log_rising(self.total_count - fewer + 1.0, fewer) - gammaln(fewer + 1.0)


class BinomialProbs(_Binomial, dist.BinomialProbs):
    """Of any total."""

    def log_prob(self, value: Any) -> Array:
        """The log probability."""
        hits = xlogy(value + 0.0, clamp_probs(self.probs))
        return (
            self._ways(value)
            + hits
            + xlog1py(self.total_count - value + 0.0, -clamp_probs(self.probs))
        )


class BinomialLogits(_Binomial, dist.BinomialLogits):
    """Of any total."""

    def log_prob(self, value: Any) -> Array:
        """The log probability."""
        rest = self.total_count - value
        hits = value * jax.nn.softplus(-self.logits) + rest * jax.nn.softplus(self.logits)
        return self._ways(value) - hits


#: what in double precision has digits enough as NumPyro has it, and is compiled sooner
IN_SINGLE = {dist.BinomialProbs: BinomialProbs, dist.BinomialLogits: BinomialLogits}

EXACT = {
    dist.StudentT: StudentT,
    dist.BetaBinomial: BetaBinomial,
    dist.BetaNegativeBinomial: BetaNegativeBinomial,
    dist.GammaPoisson: GammaPoisson,
    dist.NegativeBinomial2: NegativeBinomial2,
    dist.NegativeBinomialProbs: NegativeBinomialProbs,
    dist.NegativeBinomialLogits: NegativeBinomialLogits,
    dist.DirichletMultinomial: DirichletMultinomial,
}
