"""What every diagnosis has: facts by weighted draws, a level, and a verdict."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from textwrap import fill
from typing import TYPE_CHECKING

from laplacebook.base.estimate import Estimate
from laplacebook.base.table import Table
from laplacebook.fit.approximation import Approximation
from laplacebook.trust.verdict import Finding, sentence, worst

_WIDTH = 96  # characters of a printed line


class Judged(ABC):
    """An approximation, what weighted draws say of it, and a verdict on that."""

    if TYPE_CHECKING:  # fields of who inherits

        @property
        def approx(self) -> Approximation:
            """The approximation."""

    num_samples: int
    effective_sample_size: float
    importance_log_evidence: Estimate

    @property
    @abstractmethod
    def _findings(self) -> Sequence[Finding]:
        """The facts, judged."""

    @property
    @abstractmethod
    def _elsewhere(self) -> Sequence[Finding]:
        """Those of them that are about other modes."""

    @property
    def unseen(self) -> str | None:
        """What is bad about other modes, in words, or None."""
        return "; ".join(words for level, words in self._elsewhere if level == "bad") or None

    @abstractmethod
    def _report(self) -> Table:
        """What is printed, with the verdict as its title."""

    @property
    def effective_fraction(self) -> float:
        """The effective sample size as a fraction of the weighted draws; 1 where their law is the posterior."""
        return self.effective_sample_size / self.num_samples

    @property
    def evidence_difference(self) -> Estimate:
        """The log evidence of the approximation less that by importance sampling."""
        return self.approx.log_evidence - self.importance_log_evidence

    @property
    def level(self) -> str:
        """``"good"``, ``"usable"`` or ``"bad"``, by the thresholds of :func:`diagnose`."""
        return worst(self._findings)

    @property
    def verdict(self) -> str:
        """The level, and the reasons for it, in one sentence."""
        return sentence(self._findings)

    def __repr__(self) -> str:
        report = self._report()
        return repr(replace(report, title=fill(report.title, _WIDTH, subsequent_indent="  ")))

    def _repr_html_(self) -> str:
        return self._report()._repr_html_()
