"""The verb ``resampled(approx, key)``: draws of the posterior, by weights whose tail was looked at."""

from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from os import PathLike

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from laplacebook.base.checks import (
    require_number,
    require_numbers,
)
from laplacebook.base.errors import LaplaceError
from laplacebook.base.estimate import Estimate, effective_sample_size
from laplacebook.base.quick import in_full_precision
from laplacebook.base.weights import usable_below
from laplacebook.beyond.by_draws import ByDraws
from laplacebook.beyond.weighted_draws import weighted_draws
from laplacebook.fit.approximation import Approximation
from laplacebook.fit.require_fit import require_approximation, require_posterior
from laplacebook.fit.saved_file import Archive, add
from laplacebook.fit.summary import improper_evidence
from laplacebook.model.density import ModelDensity

KIND = "resampled"  # in the header of a file
U, _LOG_WEIGHTS = "resampled/u", "resampled/log_weights"
_FEWEST = 100  # draws: of fewer no tail can be told
_WORTH = 400  # effective draws, of which a mean has a standard error of a twentieth of a standard deviation


@in_full_precision
def resampled(
    approx: Approximation,
    key: Key[Array, ""],
    num_samples: int = 10_000,
    *,
    progress_bar: bool | None = None,
) -> "ResampledApproximation":
    """Draws of the posterior: those of an approximation, weighted, and drawn again by their weights.

    Half of S draws u (an even number) are the approximation's own and half Student-t with five degrees of freedom about
    its modes; r is the mixture of the two. Of a nested approximation half are Gaussian given the hyperparameters, and
    half have skew marginals. The largest of the weights p(D, u) / r(u) are replaced by quantiles of the Pareto
    distribution fitted to them, whose shape k-hat tells whether a mean of them can be trusted: up to 0.7 its error
    falls usefully as draws are added (Vehtari, Simpson, Gelman, Yao, Gabry 2024, Journal of Machine Learning Research
    25, 72; Yao, Vehtari, Simpson, Gelman 2018, "Yes, but did it work?", ICML). What no draw reaches, such as a mode far
    away, is neither in the result nor in its error.

    In the book: :doc:`/book/trust`, and :eq:`sigmoid-coin-pareto` of :doc:`/book/computing-evidence`.

    Args:
        approx: any approximation whose draws have a known density: of :func:`~laplacebook.laplace`,
            :func:`~laplacebook.skewed`, :func:`~laplacebook.mixture` or :func:`~laplacebook.nested`.
        key: a JAX random key.
        num_samples: S, 100 or more.
        progress_bar: shown after two seconds; by default where standard error is a terminal.

    Returns:
        A :class:`ResampledApproximation`.

    Raises:
        TypeError: ``approx`` is no such approximation; ``key`` is no random key.
        ValueError: ``num_samples`` is no such number; ``approx`` is a batch; within a compiled program.
        UnsupportedModel: it is a maximum likelihood fit.
        LaplaceError: Pareto k-hat of the weights is above 0.7 (less for fewer than 2,200 draws), or a few draws
            carry them; the fit failed.
        NonFinite: the log joint is NaN at a draw.

    >>> import numpyro, numpyro.distributions as dist
    >>> from laplacebook import laplace
    >>> def coin(y):
    ...     theta = numpyro.sample("theta", dist.Beta(2, 2))
    ...     numpyro.sample("y", dist.Bernoulli(theta).expand([9]).to_event(1), obs=y)
    >>> approx = laplace(coin, np.array([1, 1, 1, 1, 1, 1, 1, 1, 0]))
    >>> resampled(approx, jax.random.key(0))  # exactly 0.7692, 0.1126, 0.5619, 0.9281, and -4.7005
    Resampled draws of coin, D = 1
      site     mean      sd     5 %    95 %
      theta  0.7702  0.1123  0.5643  0.9276
      Pareto k-hat -1.21, effective sample size 9,624 of 10,000 draws
      log evidence -4.699 ± 0.002
    """
    require_number("num_samples", num_samples)
    if num_samples < _FEWEST:
        raise ValueError(f"num_samples must be {_FEWEST} or more to tell a tail, not {num_samples}")
    require_approximation(approx, mappable=False)
    require_posterior(approx.density)
    require_numbers("resampled", (approx, key))
    if isinstance(approx, ResampledApproximation):
        raise TypeError(
            "These draws are resampled already; pass the approximation that they came from."
        )
    draws = weighted_draws(approx, key, num_samples, progress_bar)
    k, allowed = draws.pareto_k, usable_below(len(draws.u))
    evidence = draws.log_evidence(k)
    few = draws.effective_groups < _WORTH / 10 or not isfinite(float(evidence.standard_error))
    if not k <= allowed or few:
        worth = float(effective_sample_size(draws.log_weights))
        tail = f"Pareto k-hat of the weights is {k:.2f}, above {allowed:.2g}"
        carried = f"of {len(draws.u):,} draws about {worth:.0f} carry the weights"
        raise LaplaceError(
            f"The draws from {approx.density.name} cannot be put right by weights: "
            f"{carried if k <= allowed else tail}.",
            causes=[
                "a posterior far from the approximation, such as effects with an unknown scale",
                "many coordinates, in each of which the approximation is a little off",
                "another mode, which a stray draw has reached: starts=8 looks for it, and lb.mixture joins both",
                "a fit in the constrained space, few of whose draws are inside of the support",
            ],
            remedy="integrate the hyperparameters of a hierarchy, lb.nested(model, ...); or sample, "
            "lb.nuts(approx, key).",
        )
    worth = draws.effective_groups
    return ResampledApproximation(approx, draws.u, draws.smoothed, k, evidence, worth)


@dataclass(frozen=True, repr=False)
class ResampledApproximation(ByDraws):
    """Weighted draws that stand for the posterior: what :func:`resampled` returns.

    Moments and quantiles are those of all draws with their smoothed weights; their standard error is that of as many
    draws of the posterior as :attr:`effective_sample_size` says. :meth:`sample` draws from them with replacement:
    one that was drawn before may come again.

    In the book: :doc:`/book/trust`, and :eq:`sigmoid-coin-pareto` of :doc:`/book/computing-evidence`.

    Attributes:
        proposal: the approximation that the draws came from.
        u: the draws in its coordinates, shape (S, D).
        log_weights: smoothed, so that their exponentials sum to one, shape (S,).
        pareto_k: Pareto k-hat of the weights.
        importance_log_evidence: the log evidence, by the weights as they were.
        effective_sample_size: how many draws of the posterior they are worth.
    """

    proposal: Approximation
    u: Float[np.ndarray, "S D"]
    log_weights: Float[np.ndarray, " S"]
    pareto_k: float
    importance_log_evidence: Estimate
    effective_sample_size: float

    @property
    def title(self) -> str:
        """What it is, in words."""
        return "Resampled draws"

    @property
    def density(self) -> ModelDensity:
        """The log joint that is approximated."""
        return self.proposal.density

    @property
    def log_evidence(self) -> float:
        """The log evidence, by the weights; ``importance_log_evidence`` has its standard error."""
        return float(self.importance_log_evidence.value)

    @property
    def moment_error(self) -> float:
        """The standard error of its means, in standard deviations."""
        return self.effective_sample_size**-0.5

    def _draw(self, key: Key[Array, ""], number: int) -> Float[np.ndarray, "S D"]:
        below = np.cumsum(self._joint[1])  # the time of a draw does not grow with their number
        at = np.asarray(jax.random.uniform(key, (number,)), float)
        return self.u[np.searchsorted(below / below[-1], at, side="right")]

    @property
    def unseen(self) -> str | None:
        """What is known of modes elsewhere, by a diagnosis of it or of the approximation drawn from; or None."""
        return self._unseen or self.proposal.unseen

    @property
    def doubt_at_a_glance(self) -> str | None:
        """What :attr:`doubt` says where no diagnosis was asked for, that the draws are worth fewer than 400.

        Or that the fit knows other modes, with more than 1 % of the evidence.
        """
        worth, others = self.effective_sample_size, self.unseen
        if others is not None or worth >= _WORTH:
            return others
        return f"its {len(self.u):,} draws are worth {worth:.0f} of the posterior; take more"

    def save(self, path: str | PathLike) -> None:
        """Write the draws to a file that :func:`~laplacebook.load` reads.

        Args:
            path: of the file, which is a NumPy ``.npz`` archive without pickled objects. The model
                and its data are not in it.

        Raises:
            UnsupportedModel: it is of a plain density.
        """
        self.proposal.save(path)
        evidence = self.importance_log_evidence
        numbers = {
            "pareto_k": self.pareto_k,
            "log_evidence": float(evidence.value),
            "standard_error": float(evidence.standard_error),
            "effective_sample_size": self.effective_sample_size,
            **self._judged,
        }
        add(path, {KIND: numbers}, {U: self.u, _LOG_WEIGHTS: self.log_weights})

    @classmethod
    def in_archive(cls, archive: Archive, proposal: Approximation) -> "ResampledApproximation":
        """Out of a file.

        Args:
            archive: the file.
            proposal: the approximation in it.

        Raises:
            LookupError, TypeError, ValueError: its numbers are none.
        """
        u, log_weights, numbers = (
            archive.arrays[U],
            archive.arrays[_LOG_WEIGHTS],
            archive.header[KIND],
        )
        if u.shape != (*log_weights.shape, proposal.density.dimension):
            raise ValueError("its draws are of another dimension")
        evidence = Estimate(numbers["log_evidence"], numbers["standard_error"])
        worth = numbers["effective_sample_size"]
        found = cls(proposal, u, log_weights, numbers["pareto_k"], evidence, worth)
        found._recall(numbers)
        return found

    def _lines(self) -> list[str]:
        return [
            f"Pareto k-hat {self.pareto_k:.2f}, effective sample size {self.effective_sample_size:,.0f} of "
            f"{len(self.u):,} draws",
            f"log evidence {self.importance_log_evidence}",
            *improper_evidence(self.density),
        ]

    @cached_property
    def _joint(self) -> tuple[np.ndarray, np.ndarray]:
        return self.u, np.exp(self.log_weights)
