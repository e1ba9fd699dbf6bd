"""The moments of an approximation beside those of weighted draws."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from laplacebook.base.estimate import Estimate
from laplacebook.beyond.by_draws import ByDraws
from laplacebook.beyond.weighted_draws import WeightedDraws
from laplacebook.fit.summary import summary_table, values_at

_ROUNDING = 64  # units of it, within which the values of a constant lie: the diagonal of a correlation matrix
_COLUMNS = ("reach", "mean", "error of the mean", "sd", "error of the sd")


@dataclass(frozen=True)
class Moments:
    """One number of one site: how far the approximation is from the posterior, by weighted draws.

    Attributes:
        name: of the number.
        mean: by how many posterior standard deviations the mean is too high.
        standard_deviation: the logarithm of the factor by which the standard deviation is too large.
    """

    name: str
    mean: Estimate
    standard_deviation: Estimate


@np.errstate(all="ignore")  # a moment may be infinite, or unknown
def moments(approx: ByDraws, draws: WeightedDraws) -> tuple[Moments, ...]:
    """How far each number is off that is no constant.

    Args:
        approx: the approximation.
        draws: weighted, of the posterior.
    """
    weights = np.exp(draws.log_weights - draws.log_weights.max())
    weights /= weights.sum()
    values_of = jax.device_get(values_at(approx.density, jnp.asarray(draws.u, float)))
    means, spreads = approx.mean, approx.standard_deviation

    def error(x: Float[np.ndarray, "S n"]) -> np.ndarray:
        """Of the weighted mean of x, which is zero."""
        parts = (weights[:, None] * x).reshape(-1, draws.together, x.shape[1]).sum(axis=1)
        return np.sqrt(np.sum(parts**2, axis=0))

    columns: dict[str, dict[str, np.ndarray]] = {name: {} for name in _COLUMNS}
    for name, values in values_of.items():
        rounding = _ROUNDING * np.finfo(values.dtype).eps
        values = values.reshape(len(values), -1).astype(float)
        mean = weights @ values
        spread = np.sqrt(weights @ (values - mean) ** 2)
        x = (values - mean) / spread
        found = (
            np.ptp(values, axis=0) - rounding * np.max(np.abs(values), axis=0),
            (np.ravel(means[name]) - mean) / spread,
            np.hypot(error(x), approx.moment_error),
            np.log(np.ravel(spreads[name]) / spread),
            np.hypot(error(x**2 - 1) / 2, approx.moment_error),
        )
        for column, numbers in zip(_COLUMNS, found, strict=True):
            columns[column][name] = numbers
    rows = summary_table(approx.density, columns).rows()
    return tuple(
        Moments(site, Estimate(mean, its_error), Estimate(spread, error_of_that))
        for site, reach, mean, its_error, spread, error_of_that in (row.values() for row in rows)
        if reach > 0
    )
