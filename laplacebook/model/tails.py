"""Truncated and censored distributions in their tails, where NumPyro's formulas lose their digits.

A probability near one is subtracted from one there, or clipped. Here the logarithm of the smaller
tail is computed from the start; the distributions are the same.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaincc, log_ndtr
from jaxtyping import Array
from numpyro import distributions as dist
from numpyro.distributions import Distribution, censored, truncated

from laplacebook.model.distributions import unwrapped

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_NEGLIGIBLE = 40.0  # exp(-40) of the largest density


def right_in_tails(fn: Distribution) -> Distribution:
    """The same distribution, with what is truncated or censored in it computed by its smaller tail.

    Args:
        fn: a distribution; what it wraps or mixes is exchanged too.
    """
    if not any(map(_is_inexact, jax.tree.leaves(fn, is_leaf=_is_inexact))):
        return fn
    return jax.tree.map(_exchanged, fn, is_leaf=_is_inexact)


def _is_inexact(part: Any) -> bool:
    return type(part) in _EXACT


def _exchanged(part: Any) -> Any:
    if not _is_inexact(part):
        return part
    new: Any = object.__new__(_EXACT[type(part)])
    vars(new).update(vars(part))
    if hasattr(part, "base_dist"):
        new.base_dist = right_in_tails(part.base_dist)
    return new


class _Truncated(Distribution):
    """A symmetric distribution between two bounds, of which one may be infinite."""

    def _bounds(self) -> tuple[Any, Any]:
        return getattr(self, "low", -jnp.inf), getattr(self, "high", jnp.inf)

    def log_prob(self, value: Any, intermediates: Any = None) -> Array:
        base, (low, high) = self.base_dist, self._bounds()
        if not hasattr(self, "low"):
            inside = log_below(base, high)
        elif not hasattr(self, "high"):
            inside = log_above(base, low)
        else:
            inside = _log_between(base, low, high, jnp.asarray(low + high > 2 * base.loc))
        return base.log_prob(value) - inside

    @property
    def mean(self) -> Array:
        return self._moments()[0] if self._is_normal() else super().mean

    @property
    def variance(self) -> Array:
        return self._moments()[1] if self._is_normal() else super().variance

    def _is_normal(self) -> bool:
        return isinstance(self.base_dist, dist.Normal)

    def _moments(self) -> tuple[Array, Array]:
        """Mean and variance, by Gauss-Legendre quadrature where the density is not negligible.

        The closed formulas are differences of large numbers. Here distances are from the point
        nearest to the mean of the normal, where its density is largest.
        """
        loc, scale, (low, high) = self.base_dist.loc, self.base_dist.scale, self._bounds()
        start, end = jnp.asarray(low - loc) / scale, jnp.asarray(high - loc) / scale
        nearest = jnp.clip(jnp.zeros_like(start + end), start, end)
        reach = 2 * _NEGLIGIBLE / (jnp.sqrt(nearest**2 + 2 * _NEGLIGIBLE) + abs(nearest))
        left, right = jnp.maximum(start - nearest, -reach), jnp.minimum(end - nearest, reach)
        nodes = jnp.asarray(_NODES, nearest.dtype).reshape(-1, *[1] * nearest.ndim)
        apart = (left + right) / 2 + (right - left) / 2 * nodes
        weights = jnp.asarray(_WEIGHTS, nearest.dtype).reshape(nodes.shape)
        weights = weights * jnp.exp(-apart * (nearest + apart / 2))
        weights = weights / weights.sum(0)
        mean = jnp.sum(weights * apart, 0)
        variance = scale**2 * jnp.sum(weights * (apart - mean) ** 2, 0)
        return jnp.clip(loc + scale * (nearest + mean), low, high), variance


class LeftTruncatedDistribution(_Truncated, truncated.LeftTruncatedDistribution):
    """Above a bound."""


class RightTruncatedDistribution(_Truncated, truncated.RightTruncatedDistribution):
    """Below a bound."""


class TwoSidedTruncatedDistribution(_Truncated, truncated.TwoSidedTruncatedDistribution):
    """Between two bounds."""


class LeftCensoredDistribution(censored.LeftCensoredDistribution):
    """Of some data it is known that they are below the value."""

    def log_prob(self, value: Any) -> Array:
        """The log density of what is observed, the log probability of what is censored."""
        below = log_below(self.base_dist, value)
        return jnp.where(self.censored, below, self.base_dist.log_prob(value))


class RightCensoredDistribution(censored.RightCensoredDistribution):
    """Of some data it is known that they are above the value."""

    def log_prob(self, value: Any) -> Array:
        """The log density of what is observed, the log probability of what is censored."""
        above = log_above(self.base_dist, value)
        return jnp.where(self.censored, above, self.base_dist.log_prob(value))


class IntervalCensoredDistribution(censored.IntervalCensoredDistribution):
    """Of the data it is known that they are between two values, or below or above one."""

    def log_prob(self, value: Any) -> Array:
        """The log probability of where a datum is known to be; the log density of a point."""
        base, known = self.base_dist, self.support.feasible_like(value[..., 0])
        left, right, within, outside, point = self._get_censoring_masks(value)
        low = jnp.where(left, known, value[..., 0])  # of the known, any value does
        high = jnp.where(right, known, value[..., 1])
        upper = log_above(base, low) < log_below(base, low)
        inside = _log_between(base, low, high, upper)
        beside = jnp.logaddexp(log_below(base, low), log_above(base, high))
        cases = [left, right, within, point, outside]
        values = [log_below(base, high), log_above(base, low), inside, base.log_prob(low), beside]
        return jnp.select(cases, values)


class OrderedLogistic(dist.OrderedLogistic):
    """Classes between cut points, in either tail."""

    def log_prob(self, value: Any) -> Array:
        """The log probability: of sigma(b) - sigma(a) = sigma(b) sigma(-a) (1 - exp(a - b))."""
        infinite = jnp.full_like(self.cutpoints[..., :1], jnp.inf)
        ends = jnp.concatenate([-infinite, self.cutpoints, infinite], axis=-1)
        value, predictor = jnp.asarray(value), jnp.asarray(self.predictor)
        shape = jnp.broadcast_shapes(value.shape, predictor.shape, ends.shape[:-1])
        ends = jnp.broadcast_to(ends, (*shape, ends.shape[-1]))
        places = jnp.broadcast_to(value, shape)[..., None]
        low, high = (jnp.take_along_axis(ends, places + i, axis=-1)[..., 0] for i in (0, 1))
        inside = jax.nn.log_sigmoid(high - predictor) + jax.nn.log_sigmoid(predictor - low)
        return inside + jnp.log(-jnp.expm1(low - high))


_EXACT = {
    dist.OrderedLogistic: OrderedLogistic,
    truncated.LeftTruncatedDistribution: LeftTruncatedDistribution,
    truncated.RightTruncatedDistribution: RightTruncatedDistribution,
    truncated.TwoSidedTruncatedDistribution: TwoSidedTruncatedDistribution,
    censored.LeftCensoredDistribution: LeftCensoredDistribution,
    censored.RightCensoredDistribution: RightCensoredDistribution,
    censored.IntervalCensoredDistribution: IntervalCensoredDistribution,
}


def log_below(fn: Distribution, x: Any) -> Array:
    """log P(X <= x); NaN where the probability is too small for its logarithm.

    Args:
        fn: a distribution of a number, with a ``cdf``.
        x: shape (*N).
    """
    base, x = unwrapped(fn), jnp.asarray(x)
    if (known := _of(base, _SYMMETRIC)) is not None:
        return known(base, (x - base.loc) / base.scale)
    if (known := _of(base, _BELOW)) is not None:
        return known(base, x)
    return _log(fn.cdf(x))


def log_above(fn: Distribution, x: Any) -> Array:
    """log P(X > x); NaN where the probability is too small for its logarithm.

    Args:
        fn: a distribution of a number, with a ``cdf``.
        x: shape (*N).
    """
    base, x = unwrapped(fn), jnp.asarray(x)
    if (known := _of(base, _SYMMETRIC)) is not None:
        return known(base, (base.loc - x) / base.scale)
    if (known := _of(base, _ABOVE)) is not None:
        return known(base, x)
    p = fn.cdf(x)
    lost = 1 - p <= 1e5 * jnp.finfo(p.dtype).eps  # of its digits five or fewer are left
    return jnp.where(lost, jnp.nan, jnp.log1p(-jnp.where(lost, 0, p)))


def _log_between(fn: Distribution, low: Any, high: Any, upper: Array) -> Array:
    """log P(low < X <= high), from the upper tail where it is told to."""
    above, below = (
        (log_above(fn, low), log_above(fn, high)),
        (log_below(fn, high), log_below(fn, low)),
    )
    more, less = (jnp.where(upper, a, b) for a, b in zip(above, below, strict=True))
    apart = less < more
    ratio = jnp.where(apart, less - more, -1)
    return jnp.where(apart, more + jnp.log(-jnp.expm1(ratio)), jnp.nan)


def _log(p: Array) -> Array:
    lost = p < 100 * jnp.finfo(p.dtype).tiny
    return jnp.where(lost, jnp.nan, jnp.log(jnp.where(lost, 1, p)))


def _laplace(_: Any, z: Array) -> Array:
    return jnp.where(z < 0, z - np.log(2), jnp.log1p(-jnp.exp(-jnp.maximum(z, 0)) / 2))


def _soft_laplace(_: Any, z: Array) -> Array:
    near = jnp.log(jnp.arctan(jnp.exp(jnp.clip(z, -20, 40))))
    return np.log(2 / np.pi) + jnp.where(z < -20, z, near)


def _gumbel_above(fn: Distribution, x: Array) -> Array:
    z = (x - fn.loc) / fn.scale
    return jnp.where(z > 40, -z, jnp.log(-jnp.expm1(-jnp.exp(-jnp.minimum(z, 40)))))


def _of(fn: Distribution, table: dict) -> Any:
    return next((table[cls] for cls in type(fn).__mro__ if cls in table), None)


#: log P(Z <= z) of the standard distribution; that of Z > z is the same of -z
_SYMMETRIC = {
    dist.Normal: lambda fn, z: log_ndtr(z),
    dist.Logistic: lambda fn, z: jax.nn.log_sigmoid(z),
    dist.Laplace: _laplace,
    dist.SoftLaplace: _soft_laplace,
    dist.Cauchy: lambda fn, z: jnp.log(jnp.arctan2(1, -z) / np.pi),
    dist.StudentT: lambda fn, z: _log(fn.cdf(fn.loc + fn.scale * z)),
}
_BELOW = {
    dist.Gumbel: lambda fn, x: -jnp.exp(-(x - fn.loc) / fn.scale),
    dist.LogNormal: lambda fn, x: log_ndtr((jnp.log(x) - fn.loc) / fn.scale),
}
_ABOVE = {
    dist.Gumbel: _gumbel_above,
    dist.LogNormal: lambda fn, x: log_ndtr((fn.loc - jnp.log(x)) / fn.scale),
    dist.Exponential: lambda fn, x: -fn.rate * x,
    dist.Weibull: lambda fn, x: -((x / fn.scale) ** fn.concentration),
    dist.Gompertz: lambda fn, x: -fn.concentration * jnp.expm1(fn.rate * x),
    dist.Gamma: lambda fn, x: _log(gammaincc(fn.concentration, fn.rate * x)),
    dist.Pareto: lambda fn, x: fn.alpha * jnp.log(fn.scale / x),
    dist.HalfNormal: lambda fn, x: np.log(2) + log_ndtr(-x / fn.scale),
    dist.HalfCauchy: lambda fn, x: jnp.log(2 / np.pi * jnp.arctan2(fn.scale, x)),
}
