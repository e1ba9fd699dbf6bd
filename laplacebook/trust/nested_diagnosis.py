"""What ``diagnose`` finds about a nested approximation: its moments beside those of weighted draws."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import expm1, isfinite, isnan
from textwrap import fill

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from scipy.special import ndtri

from laplacebook.base.estimate import Estimate, effective_sample_size
from laplacebook.base.table import Table
from laplacebook.base.weights import mean_of_weights, pareto_k
from laplacebook.beyond.nested_approximation import NestedApproximation
from laplacebook.beyond.weighted_draws import TOGETHER, weighted_draws
from laplacebook.fit.summary import improper_evidence, summary_table, values_at
from laplacebook.trust.verdict import (
    Finding,
    of_evidence,
    of_grid,
    of_means,
    of_spreads,
    of_weights,
    sentence,
    worst,
)

_ROWS = 6  # of a printed diagnosis, the numbers that are off most
_WIDTH = 96  # characters of a printed line
_OWN = 8192**-0.5  # standard deviations: the error of the approximation's own draws
_COLUMNS = ("reach", "mean", "error of the mean", "sd", "error of the sd")
_CHANCE = 0.01  # that a right approximation has a number which is off by more than chance


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


@dataclass(frozen=True, repr=False)
class NestedDiagnosis:
    """What :func:`diagnose` found about a nested approximation, and what to make of it.

    In the book: :eq:`hierarchical-marginal` of :doc:`/book/hierarchical`.

    Attributes:
        approx: the approximation.
        num_samples: S, the weighted draws.
        pareto_k: Pareto k-hat of their weights.
        effective_sample_size: how many draws from the posterior they are worth.
        importance_log_evidence: the log evidence, by the same weights.
        moments: of each number of each site that is no constant, in the order of the model; NaN where
            the approximation does not know them.
    """

    approx: NestedApproximation
    num_samples: int
    pareto_k: float
    effective_sample_size: float
    importance_log_evidence: Estimate
    moments: tuple[Moments, ...]

    @classmethod
    def of(cls, approx: NestedApproximation, key: Key[Array, ""], number: int) -> "NestedDiagnosis":
        """By weighted draws.

        Args:
            approx: the approximation.
            key: a JAX random key.
            number: of draws, about.
        """
        draws = weighted_draws(approx, key, number)
        k = pareto_k(draws.log_weights)
        return cls(
            approx,
            len(draws.u),
            k,
            float(effective_sample_size(draws.log_weights)),
            mean_of_weights(draws.log_weights, k),
            _moments(approx, draws.u, draws.log_weights),
        )

    @property
    def effective_fraction(self) -> float:
        """The effective sample size as a fraction of the weighted draws."""
        return self.effective_sample_size / self.num_samples

    @property
    def evidence_difference(self) -> Estimate:
        """The log evidence of the approximation less that by importance sampling."""
        return self.approx.log_evidence - self.importance_log_evidence

    @property
    def is_checked(self) -> bool:
        """Whether the weights are so even that the draws tell how far the approximation is off."""
        return isfinite(self.importance_log_evidence.standard_error)

    @property
    def level(self) -> str:
        """``"good"``, ``"usable"`` or ``"bad"``, by the thresholds of :func:`diagnose`."""
        return worst(self._findings)

    @property
    def verdict(self) -> str:
        """The level, and the reasons for it, in one sentence."""
        return sentence(self._findings)

    @property
    def sites(self) -> Table:
        """How far the mean and the standard deviation of each number of each site are off.

        The columns are ``site``; ``mean off``, in posterior standard deviations; ``sd off``, as a fraction of
        them; and after each its standard error. Where the approximation knows no moment there is a dash.
        """
        return self._table(self.moments)

    def _table(self, moments: Sequence[Moments]) -> Table:
        def known(x: float) -> float | None:
            return None if isnan(x) else x

        columns: dict[str, list] = {
            "site": [one.name for one in moments],
            "mean off": [known(one.mean.value) for one in moments],
            "its error": [known(one.mean.standard_error) for one in moments],
            "sd off": [known(expm1(one.standard_deviation.value)) for one in moments],
            "error of that": [known(one.standard_deviation.standard_error) for one in moments],
        }
        decimals = dict.fromkeys(list(columns)[1:], 3)
        return Table(f"Moments of {self.approx.density.name}", columns, (), decimals)

    @cached_property
    def _findings(self) -> list[Finding]:
        size, doubt = self.approx.density.dimension, self.approx.doubt_at_a_glance
        findings = [
            of_weights(self.pareto_k, self.num_samples, size, self.is_checked),
            of_grid(self.approx.grid.error),
        ]
        if doubt is not None:
            findings.append(Finding("usable" if self.is_checked else "bad", doubt))
        if not self.is_checked:
            return findings
        means = {one.name: one.mean for one in self.moments if not isnan(one.mean.value)}
        spreads = {one.name: one.standard_deviation for one in self.moments}
        spreads = {name: x for name, x in spreads.items() if not isnan(x.value)}
        errors = float(-ndtri(_CHANCE / 2 / max(len(means) + len(spreads), 1)))
        findings += of_means(means, errors) + of_spreads(spreads, errors)
        return [*findings, of_evidence(self.evidence_difference, "the")]

    def __repr__(self) -> str:
        report = self._report()
        return repr(replace(report, title=fill(report.title, _WIDTH, subsequent_indent="  ")))

    def _repr_html_(self) -> str:
        return self._report()._repr_html_()

    def _report(self) -> Table:
        def most(one: Moments) -> float:
            off = abs(one.mean.value), abs(one.standard_deviation.value)
            return -max(x for x in (0.0, *off) if not isnan(x))

        approx, evidence = self.approx, self.importance_log_evidence
        checked = "" if self.is_checked else ", not to be relied on"
        lines = (
            "mean off in posterior standard deviations, sd off as a fraction, by weighted draws"
            + checked,
            f"Pareto k-hat {self.pareto_k:.2f}, effective sample size "
            f"{self.effective_sample_size:,.0f} of {self.num_samples:,} weighted draws",
            f"log evidence {approx.log_evidence:.4f} (nested), {evidence} (importance sampling)",
            *improper_evidence(approx.density),
            f"nested Laplace approximation of {approx.density.name}, D = {approx.density.dimension}, "
            f"{' and '.join(approx.over)} on a grid of {len(approx.grid.place)} points",
        )
        table = self._table(sorted(self.moments, key=most))
        return replace(table, title=self.verdict, footer=lines).head(_ROWS)


@np.errstate(all="ignore")  # a moment may be infinite, or unknown
def _moments(
    approx: NestedApproximation, u: Float[np.ndarray, "S D"], log_weights: Float[np.ndarray, " S"]
) -> tuple[Moments, ...]:
    """How far each number is off that is no constant."""
    density, weights = approx.density, np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    draws = jax.device_get(values_at(density, jnp.asarray(u, float)))
    means, spreads = approx.mean, approx.standard_deviation

    def error(x: np.ndarray) -> np.ndarray:
        """Of the weighted mean of x, which is zero: draws for the same hyperparameters count together."""
        together = (weights[:, None] * x).reshape(-1, TOGETHER, x.shape[1]).sum(axis=1)
        return np.sqrt(np.sum(together**2, axis=0))

    columns: dict[str, dict[str, np.ndarray]] = {name: {} for name in _COLUMNS}
    for name, values in draws.items():
        values = values.reshape(len(values), -1).astype(float)
        mean = weights @ values
        spread = np.sqrt(weights @ (values - mean) ** 2)
        x = (values - mean) / spread
        found = (
            np.ptp(values, axis=0),
            (np.ravel(means[name]) - mean) / spread,
            np.hypot(error(x), _OWN),
            np.log(np.ravel(spreads[name]) / spread),
            np.hypot(error(x**2 - 1) / 2, _OWN),
        )
        for column, numbers in zip(_COLUMNS, found, strict=True):
            columns[column][name] = numbers
    rows = summary_table(density, columns).rows()
    return tuple(
        Moments(site, Estimate(mean, its_error), Estimate(spread, error_of_that))
        for site, reach, mean, its_error, spread, error_of_that in (row.values() for row in rows)
        if reach > 0
    )
