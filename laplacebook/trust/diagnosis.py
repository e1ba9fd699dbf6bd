"""What ``diagnose`` returns: facts about an approximation, and a verdict."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from laplacebook.base.estimate import Estimate
from laplacebook.base.namespace import logsumexp
from laplacebook.base.table import Table
from laplacebook.fit.laplace import log_joint
from laplacebook.fit.maximum_likelihood import Highest
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.fit.summary import improper_evidence, modes_found
from laplacebook.model.hierarchy import integrate_out, scales_of_effects
from laplacebook.trust.judged import Judged
from laplacebook.trust.remedies import Remedy, remedies
from laplacebook.trust.shifts import Shifts
from laplacebook.trust.slices import DENSE, Number, Slice
from laplacebook.trust.verdict import (
    LEVELS,
    Finding,
    of_bound,
    of_evidence,
    of_inner_modes,
    of_integral,
    of_modes,
    of_sample_size,
    of_shifts,
    of_site,
    of_sites,
    of_skewness,
    of_support,
    of_tail,
    sentence,
    worst,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from laplacebook.beyond.checked_integral import Integral


_ROWS = 6  # of a printed diagnosis, the most skewed axes


@dataclass(frozen=True, repr=False)
class Diagnosis(Judged):
    """What :func:`diagnose` found about an approximation q, and what to make of it.

    In the book: :doc:`/book/trust`, and :eq:`sigmoid-coin-pareto` of :doc:`/book/computing-evidence`.

    Attributes:
        approx: the approximation.
        num_samples: S, the draws from q.
        pareto_k: Pareto k-hat of their importance weights p(D, u) / q(u); minus infinity where the
            largest are equal.
        effective_sample_size: how many draws from the posterior the weighted draws are worth.
        importance_log_evidence: the log evidence by importance sampling with the same weights.
        slices: the exact density along the principal axes of q, the longest first, 20 at most.
        marginals: the density of each coordinate of u with the others integrated out by Laplace's
            method around their own mode (Tierney and Kadane 1986), in standard deviations of q from
            the mode; NaN where they have none. Where the log joint factorises matrices, as that of a
            Gaussian process does, of each site the four that look least Gaussian. None for a fit that is
            not small: above 64 coordinates, or with many data.
        other_modes: all modes that differ from that of q, by falling log joint.
        starts: how many searches for modes there were, that of q included.
        maximum_log_likelihood: the highest log likelihood that was found, and its certificate; None
            where the log evidence is below that at the mode anyway, or a prior is improper.
        numbers: of each site of which no number is a function of one coordinate alone (a simplex, an ordered vector, a
            correlation matrix), how far q is off of each, by weighted draws. Empty where their weights do not
            tell it; then its coordinates are judged.
        shifts: of each site, by how many standard deviations of q skewness moves the mean of each coordinate from the
            mode, to first order in third derivatives, shape (n,); None where the precision is not the sparse
            Hessian, or ``marginals`` tell it.
        inner_modes: what other modes the sites have that a marginal model integrates out, given those at the mode, in
            words; None if none was found.
        integral: of a fit of a marginal model, how far the integral over its other sites is off at the mode; None of
            other models, and of sparse effects.
        outside: the share of the draws at which the joint density is zero, as beyond a bound that is a ``factor``.
    """

    approx: LaplaceApproximation
    num_samples: int
    pareto_k: float
    effective_sample_size: float
    importance_log_evidence: Estimate
    slices: tuple[Slice, ...]
    marginals: tuple[Slice, ...] | None
    other_modes: tuple[LaplaceApproximation, ...]
    starts: int
    maximum_log_likelihood: Highest | None
    tried: Table | None = None
    shifts: Shifts | None = None
    inner_modes: str | None = None
    integral: "Integral | None" = None
    numbers: Mapping[str, tuple[Number, ...]] = field(default_factory=dict)
    outside: float = 0.0

    @cached_property
    def remedies(self) -> tuple[Remedy, ...]:
        """What to do next, by what it costs, each with a ``line`` of code and a ``reason``; none where it is good."""
        return remedies(self)

    @property
    def share_elsewhere(self) -> float:
        """The share of the other modes in the evidence, by the Laplace approximation of each."""
        evidence = np.array([mode.log_evidence for mode in (self.approx, *self.other_modes)])
        return float(-np.expm1(evidence[0] - logsumexp(evidence)))

    @property
    def rise(self) -> float:
        """How much higher than at the mode of q the log joint is at the highest other mode.

        Zero where they differ by rounding; minus infinity if there is no other.
        """
        if not self.other_modes:
            return -inf
        own = log_joint(self.approx)
        rise = log_joint(self.other_modes[0]) - own
        return rise if abs(rise) > _rounding(own) else 0.0

    @property
    def excess(self) -> float:
        """The log evidence less the maximum log likelihood; minus infinity where there is no bound.

        Above zero it is impossible, since under a proper prior the evidence is a mean of the
        likelihood: the log evidence is wrong by as much, or more. Zero where they differ by rounding.
        """
        if self.maximum_log_likelihood is None:
            return -inf
        bound = float(self.maximum_log_likelihood.log_likelihood)
        excess = float(self.approx.log_evidence) - bound
        return excess if abs(excess) > _rounding(bound) else 0.0

    @property
    def sites(self) -> Table:
        """Whether q as it is, without weights, tells each number of each site.

        The columns are ``site`` and ``verdict``; ``90 % holds``, the share of its marginal that the central
        90 % interval of q holds, good from 85 % and usable from 75 %; ``median off``, by how many standard
        deviations that of q is, and ``width``, of that interval over the exact one: bad beyond 0.3, and 20 %
        off; ``spread``, the standard deviation of q over the exact one, usable beyond 20 % off; these three on the
        scale of the site where the coordinate alone decides its number, or weighted draws tell it (:attr:`numbers`);
        ``mean`` and ``sd`` of the marginal of a coordinate, in standard deviations of q from the mode (0 and 1 if q
        is right). Where the others
        are far from Gaussian even at a given value, as effects with an unknown scale are, it tells what
        is wrong, and not by how much. Empty for a fit that is not small.
        """
        found = self.judged_of_sites
        known = [one if one.is_known else None for one in found]
        slices = [one if isinstance(one, Slice) else None for one in known]
        columns: dict[str, list] = {
            "site": [one.axis for one in found],
            "verdict": [one and of_site(one).level or "not known" for one in known],
            "90 % holds": [one and one.held for one in known],
            "median off": [one and one.median_off for one in known],
            "width": [one and one.width_ratio for one in known],
            "spread": [one and one.spread_ratio for one in known],
            "mean": [one and one.mean for one in slices],
            "sd": [one and one.standard_deviation for one in slices],
        }
        return Table(f"Marginals under {self.approx.density.name}", columns, self._few_looked_at())

    @cached_property
    def judged_of_sites(self) -> tuple[Slice | Number, ...]:
        """What is judged of each site, its numbers by draws where these are known, or else its coordinates."""
        found: list[Slice | Number] = []
        for site in self.approx.density.sites:
            names = set(site.coordinate_names())
            of_site = [one for one in self.marginals or () if one.axis in names]
            found += self.numbers.get(site.name, of_site)
        return tuple(found)

    @cached_property
    def _findings(self) -> list[Finding]:
        dimension = self.approx.mode_vector.size
        findings = [
            of_tail(self.pareto_k, self.num_samples, dimension),
            of_sample_size(self.effective_fraction),
            *of_support(self.outside),
            of_evidence(self.evidence_difference),
            of_skewness(self.slices),
            *of_sites(self.judged_of_sites),
            *of_shifts(self._shift_of_each),
            *of_integral(self.integral),
            *self._elsewhere,
        ]
        bound = self.maximum_log_likelihood
        return findings + of_bound(
            self.excess, bound is not None and bool(bound.certificate.converged)
        )

    @property
    def _elsewhere(self) -> list[Finding]:
        modes = of_modes(len(self.other_modes), self.share_elsewhere, self.rise, self.starts)
        return [modes, *of_inner_modes(self.inner_modes)]

    @property
    def of_shape(self) -> str:
        """What is bad about q at its own mode, other modes aside; empty if nothing is."""
        near = [one for one in self._findings if one not in self._elsewhere]
        return sentence(near) if worst(near) == "bad" else ""

    def plot(self, site: str | None = None) -> "Figure":
        """The density along the longest principal axes, six at most, and the approximation to it.

        Args:
            site: the name of one whose coordinates are drawn instead: the marginal density of each, as in
                :attr:`marginals`, and the Gaussian's.

        Returns:
            The Matplotlib figure: the last value of a notebook's cell shows it, and its ``savefig``
            writes it to a file.

        Raises:
            ValueError: there is no such site, or the fit is not small, so that its marginals were not looked at.
        """
        from laplacebook.trust.picture import plot_slices

        if site is None:
            return plot_slices(self.slices)
        drawn = self._marginals_of(site)
        return plot_slices(drawn, len(drawn))

    def _marginals_of(self, site: str) -> tuple[Slice, ...]:
        ends, end = {}, 0
        for one in self.approx.density.sites:
            ends[one.name] = (end, end := end + one.size)
        if site not in ends:
            raise ValueError(
                f"site is the name of a latent site, not {site!r}; there are {', '.join(map(repr, ends))}."
            )
        if self.marginals is None:
            raise ValueError(
                "Of a fit of more than 64 coordinates, or of many data, marginals are not looked at: plot() without a "
                "name draws the density along the longest axes."
            )
        names = self.approx.density.coordinate_names()[slice(*ends[site])]
        return tuple(one for one in self.marginals if one.axis in names)

    def _report(self) -> Table:
        rows = sorted(self.slices, key=lambda one: -abs(one.skewness))
        columns: dict[str, list] = {
            "axis": [one.axis for one in rows],
            "skewness": [one.skewness for one in rows],
            "sd": [one.standard_deviation for one in rows],
        }
        decimals = {"skewness": 3, "sd": 3}
        return Table(self.verdict, columns, tuple(self._lines()), decimals).head(_ROWS)

    def _lines(self) -> list[str]:
        approx, evidence = self.approx, self.importance_log_evidence
        size = approx.mode_vector.size
        shown = f"the {len(self.slices)} longest" if size <= DENSE else f"{len(self.slices)}"
        more = f", {shown} of {size} axes" if len(self.slices) < size else ""
        others = [mode.log_evidence for mode in self.other_modes]
        bound = self.maximum_log_likelihood
        return [
            f"density on the principal axes, sd in those of q (a Gaussian: skewness 0, sd 1){more}",
            f"Pareto k-hat {self.pareto_k:.2f}, effective sample size "
            f"{self.effective_sample_size:,.0f} of {self.num_samples:,} draws",
            f"log evidence {approx.log_evidence:.4f} (Laplace), {evidence} (importance sampling)",
            *([] if bound is None else [f"maximum log likelihood {bound.log_likelihood:.4f}"]),
            *self._sites_told(),
            *self._shifts_told(),
            *improper_evidence(approx.density),
            *modes_found(approx.log_evidence, others),
            f"{approx.density.method} of {approx.density.name}, {approx.space} space, "
            f"D = {size}, {self.starts} start{'s' if self.starts > 1 else ''}",
            *([integrate_out(approx.density).strip()] if self._is_joint_mode else []),
            *(f"next: {one.line}: {one.reason}" for one in self.remedies),
            *(repr(self.tried).splitlines() if self.tried is not None else []),
        ]

    @property
    def _is_joint_mode(self) -> bool:
        """Whether it is bad, and of effects together with their scales."""
        return self.level == "bad" and bool(scales_of_effects(self.approx.density))

    def _few_looked_at(self) -> tuple[str, ...]:
        """A line if the marginals of some or of all coordinates were not looked at."""
        size = self.approx.mode_vector.size
        if self.marginals is None:
            return ("not looked at: more than 64 coordinates, or many data",)
        if len(self.marginals) == size:
            return ()
        return (
            f"marginals looked at: {len(self.marginals)} of {size}, of each site those least Gaussian at draws "
            "(the log joint factorises matrices)",
        )

    def _sites_told(self) -> list[str]:
        """A line for each level below good: which numbers of which sites it is of."""
        rows = self.sites.rows()
        lines = []
        for level in (*LEVELS[1:], "not known"):
            held = {row["site"]: row["90 % holds"] for row in rows if row["verdict"] == level}
            if held:
                some = sorted(held, key=lambda site: held[site] or 0)[:_ROWS]
                listed = ", ".join(
                    site + (f" {held[site]:.0%}" if held[site] is not None else "") for site in some
                )
                more = f" and {len(held) - len(some)} more" if len(held) > len(some) else ""
                lines.append(f"marginals {level}, by what the 90% interval holds: {listed}{more}")
        return lines + list(self._few_looked_at() if self.marginals else ())

    @property
    def _shift_of_each(self) -> dict[str, float]:
        if self.shifts is None:
            return {}
        names = self.approx.density.coordinate_names()
        return dict(zip(names, np.concatenate(list(self.shifts.values())).tolist(), strict=True))

    def _shifts_told(self) -> list[str]:
        """A line for each site, those whose means are moved farthest first."""
        if self.shifts is None:
            return []
        names = {s.name: s.coordinate_names() for s in self.approx.density.sites}
        lines = []
        for site, moved in sorted(self.shifts.items(), key=lambda one: -abs(one[1]).max()):
            i = int(np.argmax(abs(moved)))
            many = (
                f", rms {np.sqrt(np.mean(moved**2)):.2g} of {moved.size:,}"
                if moved.size > 1
                else ""
            )
            lines.append(f"{names[site][i]} {moved[i]:+z.2g}{many}")
        more = [f"... and {len(lines) - _ROWS} sites more"] if len(lines) > _ROWS else []
        return [
            "of each number alone, skewness moves the mean by so many sd, to first order (a tail or another mode is "
            "not seen):",
            *(f"  {one}" for one in lines[:_ROWS] + more),
        ]


def _rounding(value: Any) -> float:
    """What two computations of a log density may differ by."""
    return float(np.sqrt(np.finfo(jnp.result_type(float)).eps)) * max(1.0, abs(float(value)))
