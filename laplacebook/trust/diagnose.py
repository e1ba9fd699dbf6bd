"""Can I trust it? An approximation, compared with the density that it approximates."""

from dataclasses import replace
from typing import TYPE_CHECKING, overload

import jax
import numpy as np
from jaxtyping import Array, Key

from laplacebook.base.checks import require_number, require_numbers
from laplacebook.base.estimate import effective_sample_size
from laplacebook.base.keys import split_into
from laplacebook.base.pytrees import from_host, on_host
from laplacebook.base.weights import mean_of_weights, pareto_k
from laplacebook.beyond.by_draws import ByDraws
from laplacebook.beyond.known_points import KnownPoints
from laplacebook.beyond.nested_approximation import NestedApproximation
from laplacebook.beyond.other_inner_modes import inner_modes_at
from laplacebook.beyond.other_outer_modes import mass_beside, other_modes
from laplacebook.beyond.resampled import ResampledApproximation
from laplacebook.beyond.weighted_draws import components_of, weighted_draws
from laplacebook.evidence.importance import importance_weights
from laplacebook.fit.laplace import by_height, distinct, search_again
from laplacebook.fit.maximum_likelihood import Highest, maximum_log_likelihood
from laplacebook.fit.require_fit import require_fit
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.fit.summary import elementwise
from laplacebook.model.density import ModelDensity
from laplacebook.model.hierarchy import is_marginal
from laplacebook.model.plain_function import is_plain
from laplacebook.trust.diagnosis import Diagnosis
from laplacebook.trust.marginals import marginals
from laplacebook.trust.moments_diagnosis import MomentsDiagnosis, NestedDiagnosis
from laplacebook.trust.remedies import tried
from laplacebook.trust.shifts import shifts
from laplacebook.trust.slices import Number, principal_slices

if TYPE_CHECKING:
    from laplacebook.beyond.checked_integral import Integral

_FEWEST = 100  # draws, below which a k-hat of 0.5 says nothing
_AXES = 20  # at most


@overload
def diagnose(
    approx: LaplaceApproximation,
    key: Key[Array, ""],
    num_samples: int = ...,
    starts: int = ...,
    *,
    remedies: bool = ...,
    progress_bar: bool | None = ...,
) -> Diagnosis: ...
@overload
def diagnose(
    approx: NestedApproximation,
    key: Key[Array, ""],
    num_samples: int = ...,
    starts: int = ...,
    *,
    progress_bar: bool | None = ...,
) -> NestedDiagnosis: ...
@overload
def diagnose(
    approx: ByDraws,
    key: Key[Array, ""],
    num_samples: int = ...,
    starts: int = ...,
    *,
    progress_bar: bool | None = ...,
) -> MomentsDiagnosis: ...
def diagnose(
    approx: LaplaceApproximation | ByDraws,
    key: Key[Array, ""],
    num_samples: int = 4_000,
    starts: int = 8,
    *,
    remedies: bool = False,
    progress_bar: bool | None = None,
) -> Diagnosis | MomentsDiagnosis:
    """Whether an approximation q can be trusted, and why.

    The worst of these decides the level of the verdict:

    ===================================== ================ ============== ===================
    fact                                  good             usable         bad
    ===================================== ================ ============== ===================
    Pareto k-hat                          up to 0.5        up to 0.7      above
    effective sample size                 80 % and above   below          never
    draws where there is no density       up to 1 %        up to 10 %     above
    error of the log evidence             up to 0.1        up to log 2    above, or unknown
    skewness along an axis                up to 0.5        up to 1        above
    90 % interval of a site               holds 85 %       holds 75 %     less
    its width is off by                   up to 20 %       up to 20 %     above
    the median is off by                  up to 0.3 sd     up to 0.3 sd   above
    its standard deviation is off by      up to 20 %       above          never
    mean moved by skewness                up to 0.25 sd    up to 0.5 sd   above
    evidence in other modes               up to 1 %        up to 1 %      above
    evidence above the maximum likelihood no               up to 0.1      above
    integral of a marginal model, its log up to 0.1        up to log 2    above
    ===================================== ================ ============== ===================

    *Good*: use q as it is. *Usable*: weight its draws by p(D, u) / q(u), and take the log evidence
    of importance sampling. *Bad*: something is wrong that a reader would see, or it cannot be told; what is
    printed last says which other line to try, and the sampler answers where none does.

    - k-hat says how much heavier the tails of the posterior are than those of q. Below 0.5 the weights behave
      as if they had a variance; above 0.7 no affordable number of draws makes up for the tail
      (Yao, Vehtari, Simpson, Gelman 2018, "Yes, but did it work?", ICML; Vehtari, Simpson, Gelman,
      Yao, Gabry 2024, Journal of Machine Learning Research 25, 72; fewer than 2,200 draws need
      less). It is of all coordinates together: in a hundred of them small errors add up, and
      single ones may be good where it is bad.
    - The effective sample size falls, too, where q is wider than the posterior, which k-hat cannot
      see. A fraction r of the draws bounds the chi-squared divergence by 1/r - 1, so posterior
      means are within sqrt(1/r - 1) standard deviations of those of q: 0.5 at 80 %.
    - A log evidence that is off by 0.1 changes a Bayes factor by a factor of 1.1, by log 2 of 2;
      one class of Kass and Raftery's scale (1995) is a factor of 3 wide, or more. Two standard
      errors of importance sampling are subtracted first, 0.2 at most. With an error above 0.2 the fit is usable at
      best, and above log 2 nothing is known.
    - The skewness is that of the exact density along a principal axis of q, cut at six standard
      deviations. Up to 0.5 a distribution is fairly symmetrical, above 1 highly skewed (Bulmer
      1979, Principles of Statistics).
    - The marginal of each number of each site, the others integrated out by Laplace's method around
      their own mode (Tierney and Kadane 1986), says which of them q tells and which not:
      ``Diagnosis.sites``. A median that is off by more than 0.3 standard deviations, or a 90 % interval whose
      width is by more than 20 %, is bad. Where these are right and the standard deviation is not, the marginal has
      a long tail, which weights put right. Of a simplex, an ordered vector or a correlation matrix, whose numbers
      depend on several coordinates, each number is judged by 10,000 weighted draws, if these tell it. Looked at for
      up to 64 coordinates, and not too many data.
    - Of a fit by a sparse Hessian that is not so small, third derivatives at the mode tell by how much skewness moves
      the mean of each coordinate, to first order: ``Diagnosis.shifts``. Of a thousand states, each off by a few
      hundredths of its standard deviation, draws of all together are worth next to nothing, and the line for each
      site says that single numbers are near. It sees no tail and no other mode, and mends no verdict.
    - Draws from q do not reach far modes: ``starts`` searches look for them. That none is found
      proves nothing; more starts are a better search. A mode that is higher than that of q, but
      holds no evidence, makes q usable at best.
    - The draws of a fit of a :func:`~laplacebook.marginalize` model do not see how far its integral is off. At the
      mode 4,096 pairs of draws of what it integrates out tell it, if their k-hat is at most 0.7; above it the fit is
      usable at best. Of sparse effects it is not looked at.
    - Under a proper prior the evidence is a mean of the likelihood, and cannot exceed its maximum.
      If that maximum is not certified, an excess makes q usable at best.

    What :func:`~laplacebook.nested`, :func:`~laplacebook.skewed`, :func:`~laplacebook.mixture` or
    :func:`~laplacebook.resampled` return is compared with weighted draws of the posterior: half of them its own, half
    Student-t with five degrees of freedom about its modes, and the weights are p(D, u) over the density of
    that mixture. Of a nested approximation the hyperparameters have the density that the grid and its spline tell,
    and the effects, given these, a Gaussian or the skew marginals, half of each, from fits of their own:

    ================================== ============== ============== ==============
    fact                               good           usable         bad
    ================================== ============== ============== ==============
    Pareto k-hat of the weights        up to 0.7      above, nested  above, others
    a mean, off by posterior sds       up to 0.1      up to 0.3      above
    a standard deviation, off by       up to 10 %     up to 30 %     above
    error of the log evidence          up to 0.1      up to log 2    above
    error of the grid, if nested       up to 0.1      up to log 2    above
    evidence in other modes            up to 1 %      up to 1 %      above
    and of the effects given           up to 1 %      up to 1 %      above
    ``doubt`` of the approximation     none           some           k-hat above, too
    ================================== ============== ============== ==============

    Where the effects given hyperparameters that are not drawn are exactly Gaussian, or have shorter tails, and the
    draws are worth 99 % of their number, the weights have no tail, and k-hat is minus infinity.

    *Good*: its means, standard deviations and evidence may be used as they are. *Usable*: they are off by more
    than that; or the draws cannot tell of a nested approximation, since a mean of the weights is not reliable
    (k-hat above 0.7), and then only the error of the grid and ``doubt``, with k-hat of the effects given the
    hyperparameters, are looked at. *Bad*: sample the posterior. A moment is bad if it is off by so much beyond
    what chance may do to any of them. Draws of ``sample`` are not judged as joint draws; no draw reaches what
    lies beyond the grid, which its error counts, nor a far mode. ``starts`` searches look for modes that are not held:
    of the hyperparameters and of the effects given these, of a nested approximation, and of all sites, of the
    others; of a fit of a marginal model, of what it integrates out given the mode, too.

    In the book: :doc:`/book/trust`, :prf:ref:`sigmoid-coin-variance` of :doc:`/book/sigmoid-coin` and
    :eq:`sigmoid-coin-pareto` of :doc:`/book/computing-evidence`.

    Args:
        approx: what :func:`~laplacebook.laplace`, :func:`~laplacebook.laplace_of_density`,
            :func:`~laplacebook.nested`, :func:`~laplacebook.skewed`, :func:`~laplacebook.mixture` or
            :func:`~laplacebook.resampled` returned.
        key: a JAX random key, for the draws and the searches.
        num_samples: S, how many draws from q, 100 or more; of a nested approximation a multiple of 8, or as
            many more as make one.
        starts: how many searches for modes, that of ``approx`` included; with 1 only the modes
            that ``approx`` knows count.
        remedies: whether to try what might help, each line that makes an approximation, and tell what it gives.
        progress_bar: shown after two seconds; by default where standard error is a terminal. Of a nested
            approximation there is none.

    A verdict of bad travels with the fit: it prints below it, below a comparison with others, below what is made of
    it and does not mend it, and beside a mean or an evidence by an expansion; a prediction from it warns, and so does
    an evidence by draws or quadrature about its mode if the verdict is of other modes.

    Returns:
        A :class:`Diagnosis`: the facts, ``level``, ``verdict``, ``remedies`` (what to do next, by what it costs,
        each as a line of code) and ``plot()``; of a nested approximation a
        :class:`NestedDiagnosis`, of the others a :class:`MomentsDiagnosis`.

    Raises:
        ValueError: ``num_samples`` or ``starts`` is no such number; ``approx`` is a batch; within a
            compiled program.
        TypeError: ``approx`` is none of these; ``key`` is no random key.
        LaplaceError: the fit failed; at a draw of the hyperparameters the effects have no mode.
        NonFinite: the log joint is NaN at a draw, or on a principal axis.

    >>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist
    >>> from laplacebook import laplace
    >>> def coin(y):
    ...     theta = numpyro.sample("theta", dist.Beta(2, 2))
    ...     numpyro.sample("y", dist.Bernoulli(theta).expand([9]).to_event(1), obs=y)
    >>> approx = laplace(coin, jnp.array([1, 1, 1, 1, 1, 1, 1, 1, 0]))
    >>> diagnose(approx, jax.random.key(0))
    usable: Pareto k-hat 0.52 (0.5 to 0.7).
      axis   skewness     sd
      theta     0.398  1.074
      density on the principal axes, sd in those of q (a Gaussian: skewness 0, sd 1)
      Pareto k-hat 0.52, effective sample size 3,701 of 4,000 draws
      log evidence -4.7301 (Laplace), -4.703 ± 0.005 (importance sampling)
      Laplace approximation of coin, unconstrained space, D = 1, 8 starts
      next: lb.skewed(approx): moves means and quantiles towards the longer tail
      next: lb.resampled(approx, key): weights put all of it right, if their k-hat allows
      next: lb.nuts(approx, key): samples the posterior, begun at draws of the fit
    """
    if not isinstance(approx, ByDraws):
        require_fit(approx, mappable=False)
    require_number("starts", starts)
    require_number("num_samples", num_samples)
    if num_samples < _FEWEST:
        raise ValueError(f"num_samples must be {_FEWEST} or more to tell a tail, not {num_samples}")
    require_numbers("diagnose", (approx, key))
    if isinstance(approx, ByDraws):
        return _by_moments(approx, key, num_samples, starts, progress_bar)
    to_draw, to_search = split_into(key)
    weights = importance_weights(approx, to_draw, num_samples, progress_bar=progress_bar)
    k = pareto_k(weights)
    modes = [*approx.other_modes, *search_again(approx, to_search, starts - 1, progress_bar)]
    other_modes = tuple(distinct([approx, *by_height(modes)])[1:])
    of_marginal = is_marginal(approx.density)
    of_each = marginals(approx, progress_bar)
    diagnosis = Diagnosis(
        approx=approx,
        num_samples=num_samples,
        pareto_k=k,
        effective_sample_size=float(effective_sample_size(weights)),
        outside=float(np.mean(np.isneginf(weights))),
        importance_log_evidence=mean_of_weights(weights, k),
        slices=principal_slices(approx, _AXES, progress_bar),
        marginals=of_each,
        shifts=None if of_each is not None else shifts(approx),
        other_modes=other_modes,
        starts=starts,
        maximum_log_likelihood=_bound(approx, other_modes),
        inner_modes=inner_modes_at(approx.density, approx.mode, to_search, starts)
        if of_marginal
        else None,
        integral=_integral(approx) if of_marginal else None,
        numbers={} if of_each is None else _numbers(approx, to_draw, progress_bar),
    )
    verdict = diagnosis.verdict if diagnosis.level == "bad" else ""
    approx.remember(verdict, diagnosis.of_shape, other_modes, diagnosis.inner_modes)
    if not (remedies and diagnosis.remedies):
        return diagnosis

    def judge(remedied: ByDraws) -> tuple[str, float]:
        found = diagnose(remedied, to_search, num_samples, starts, progress_bar=progress_bar)
        return found.level, float(remedied.log_evidence)

    return replace(diagnosis, tried=tried(diagnosis.remedies, to_draw, judge))


def _numbers(
    approx: LaplaceApproximation, key: Key[Array, ""], progress_bar: bool | None
) -> dict[str, tuple[Number, ...]]:
    if len(elementwise(approx.density)) == len(approx.density.sites):
        return {}
    from laplacebook.trust.numbers_by_draws import numbers_by_draws  # of few models alone

    return numbers_by_draws(approx, key, progress_bar)


def _integral(approx: LaplaceApproximation) -> "Integral | None":
    from laplacebook.beyond.checked_integral import checked_integral  # of marginal models alone

    return checked_integral(approx.density, approx.mode)


def _by_moments(
    approx: ByDraws, key: Key[Array, ""], number: int, starts: int, progress_bar: bool | None
) -> MomentsDiagnosis:
    proposal = approx.proposal if isinstance(approx, ResampledApproximation) else approx
    if isinstance(proposal, NestedApproximation):
        draws = weighted_draws(proposal, key, number, progress_bar)
        kind = NestedDiagnosis if proposal is approx else MomentsDiagnosis
        found = kind.of(approx, draws, starts=starts)
        found = replace(
            found,
            share_beside=_share_beside(proposal, key, starts - 1),
            inner_modes=_inner_modes(proposal, key, starts - 1),
        )
    else:
        to_draw, to_search = split_into(key)
        draws = weighted_draws(proposal, to_draw, number, progress_bar)
        known = components_of(proposal)[0]
        again = search_again(known[0], to_search, starts - 1, progress_bar)
        modes = distinct([*known, *by_height([*known[0].other_modes, *again])])
        found = MomentsDiagnosis.of(
            approx, draws, tuple(modes[: len(known)]), tuple(modes[len(known) :]), starts
        )
        if is_marginal(known[0].density):
            found = replace(found, integral=_integral(known[0]))
    approx.remember({"bad": found.verdict, "usable": None, "good": ""}[found.level], found.unseen)
    return found


def _share_beside(approx: NestedApproximation, key: Key[Array, ""], searches: int) -> float:
    """What modes of the hyperparameters beside the grid hold of its mass."""
    points = KnownPoints.of_grid(approx.effects, approx.grid, approx.start)
    modes = other_modes(points, approx.grid, jax.random.fold_in(key, 1), searches)
    return mass_beside(modes, approx.grid)


def _inner_modes(approx: NestedApproximation, key: Key[Array, ""], searches: int) -> str | None:
    """What other modes the effects have given the hyperparameters, in words: those that it knows, or finds."""
    found = approx.inner_modes
    if found is None and searches:
        found = approx.search_inner_modes(jax.random.fold_in(key, 2), searches)
    return None if found is None else found.told(approx.effects)


def _bound(
    approx: LaplaceApproximation, other_modes: tuple[LaplaceApproximation, ...]
) -> Highest | None:
    """The maximum log likelihood, if the log evidence might exceed it."""
    if float(approx.log_occam_factor) <= 0 or not _is_mean_of_likelihood(approx):
        return None
    highest = maximum_log_likelihood(approx)
    known = [highest.log_likelihood, *(mode.log_likelihood for mode in other_modes)]
    return highest._replace(log_likelihood=from_host(np.max(on_host(known))))


def _is_mean_of_likelihood(approx: LaplaceApproximation) -> bool:
    """Whether all priors are distributions: not improper, not raised to a power by a handler."""
    density = approx.density
    if density.improper or is_plain(density):
        return False
    scaled: list[bool] = []

    def run(density: ModelDensity, u: Array) -> None:
        trace, _ = density.trace(u)
        scaled.extend(trace[site.name].get("scale") is not None for site in density.sites)

    jax.eval_shape(run, density, approx.mode_vector)
    return not any(scaled)
