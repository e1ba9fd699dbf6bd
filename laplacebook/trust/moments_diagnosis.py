"""What ``diagnose`` finds by moments: those of an approximation beside those of weighted draws."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import expm1, inf, isfinite, isnan
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from laplacebook.base.estimate import Estimate, effective_sample_size
from laplacebook.base.table import Table
from laplacebook.beyond.by_draws import ByDraws
from laplacebook.beyond.chains import Chains
from laplacebook.beyond.cloud import Cloud
from laplacebook.beyond.nested_approximation import NestedApproximation
from laplacebook.beyond.weighted_draws import WeightedDraws
from laplacebook.fit.laplace import log_joint
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.fit.summary import improper_evidence
from laplacebook.trust.judged import Judged
from laplacebook.trust.moments import Moments, moments
from laplacebook.trust.verdict import (
    Finding,
    of_chains,
    of_evidence,
    of_grid,
    of_inner_modes,
    of_integral,
    of_means,
    of_modes,
    of_other_grids,
    of_spreads,
    of_weights,
)

if TYPE_CHECKING:
    from laplacebook.beyond.checked_integral import Integral

_ROWS = 6  # of a printed diagnosis, the numbers that are off most
_CHANCE = 0.01  # that a right approximation has a number which is off by more than chance


@dataclass(frozen=True, repr=False)
class MomentsDiagnosis(Judged):
    """What :func:`diagnose` found about an approximation that is more than one Gaussian, and what to make of it.

    In the book: :doc:`/book/trust`, and :eq:`sigmoid-coin-pareto` of :doc:`/book/computing-evidence`.

    Attributes:
        approx: the approximation.
        num_samples: S, the weighted draws.
        pareto_k: Pareto k-hat of their weights; minus infinity where these have no tail.
        effective_sample_size: how many draws from the posterior they are worth.
        importance_log_evidence: the log evidence, by the same weights.
        moments: of each number of each site that is no constant, in the order of the model; NaN where
            the approximation does not know them.
        components: the Gaussians at the modes that it holds; empty where it is nested.
        other_modes: those that were found beside them, by falling log joint.
        starts: how many searches for modes there were.
        share_beside: of a nested approximation, what modes of the hyperparameters beside its grid hold of the mass
            that is on it.
        inner_modes: what other modes its effects have given the hyperparameters, in words; None if none was found.
        integral: of draws from a fit of a marginal model, how far that of its other sites is off at the mode.
    """

    approx: ByDraws
    num_samples: int
    pareto_k: float
    effective_sample_size: float
    importance_log_evidence: Estimate
    moments: tuple[Moments, ...]

    components: tuple[LaplaceApproximation, ...] = ()
    other_modes: tuple[LaplaceApproximation, ...] = ()
    starts: int = 1
    share_beside: float = 0.0
    inner_modes: str | None = None
    integral: "Integral | None" = None

    @classmethod
    def of(
        cls,
        approx: ByDraws,
        draws: WeightedDraws,
        components: tuple[LaplaceApproximation, ...] = (),
        other_modes: tuple[LaplaceApproximation, ...] = (),
        starts: int = 1,
    ) -> "MomentsDiagnosis":
        """By weighted draws.

        Args:
            approx: the approximation.
            draws: weighted, of the posterior.
            components: the Gaussians at the modes that it holds.
            other_modes: those that it does not.
            starts: how many searches for modes there were.
        """
        k = draws.pareto_k
        return cls(
            approx,
            len(draws.u),
            k,
            float(effective_sample_size(draws.log_weights)),
            draws.log_evidence(k),
            moments(approx, draws),
            components,
            other_modes,
            starts,
        )

    @property
    def share_elsewhere(self) -> float:
        """The share in the evidence of the modes that it does not hold, by the Laplace approximation of each."""
        if not self.components:
            return self.share_beside / (1 + self.share_beside)
        if not self.other_modes:
            return 0.0
        evidences = [
            np.logaddexp.reduce([float(one.log_evidence) for one in modes])
            for modes in (self.components, self.other_modes)
        ]
        return float(np.exp(evidences[1] - np.logaddexp(*evidences)))

    @property
    def is_checked(self) -> bool:
        """Whether the weights are so even that the draws tell how far the approximation is off."""
        return isfinite(self.importance_log_evidence.standard_error)

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
            of_weights(self.pareto_k, self.num_samples, size, self.is_checked, self._unchecked),
            *self._more(),
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
        return [*findings, of_evidence(self.evidence_difference, "the", self._unchecked)]

    def _more(self) -> list[Finding]:
        """What else is looked at."""
        return [*self._elsewhere, *of_integral(self.integral)]

    @property
    def _elsewhere(self) -> list[Finding]:
        if not self.components:
            return [
                of_other_grids(self.share_elsewhere, self.starts - 1),
                *of_inner_modes(self.inner_modes),
            ]
        heights = [log_joint(one) for one in self.other_modes]
        rise = max(heights, default=-inf) - max(log_joint(one) for one in self.components)
        return [of_modes(len(heights), self.share_elsewhere, rise, self.starts)]

    @property
    def _unchecked(self) -> str:
        """The level of what weighted draws cannot check."""
        return "bad"

    @property
    def _about(self) -> str:
        """What was looked at, in words."""
        title, density = self.approx.title, self.approx.density
        return f"{title[0].lower()}{title[1:]} of {density.name}, D = {density.dimension}"

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
            f"log evidence {approx.log_evidence:.4f} ({approx.title.split()[0].lower()}), {evidence} "
            "(importance sampling)",
            *improper_evidence(approx.density),
            self._about,
        )
        table = self._table(sorted(self.moments, key=most))
        return replace(table, title=self.verdict, footer=lines).head(_ROWS)


@dataclass(frozen=True, repr=False)
class NestedDiagnosis(MomentsDiagnosis):
    """What :func:`diagnose` found about a nested approximation, and what to make of it.

    In the book: :eq:`hierarchical-marginal` of :doc:`/book/hierarchical`.

    Attributes: those of :class:`MomentsDiagnosis`.
    """

    approx: NestedApproximation

    @property
    def _unchecked(self) -> str:
        return "usable"

    def _more(self) -> list[Finding]:
        grid = self.approx.grid
        if isinstance(grid, Chains):
            return [of_chains(grid.worth, grid.divergences, grid.error), *self._elsewhere]
        of = grid.by if isinstance(grid, Cloud) else "grid"
        return [of_grid(grid.error, of), *self._elsewhere]

    @property
    def _about(self) -> str:
        over = " and ".join(self.approx.over)
        return f"{super()._about}, {over} {self.approx.grid.told()}"
