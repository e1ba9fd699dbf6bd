"""The posterior mean of a function of the sites: by expansions about the mode, or by weighted draws."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from laplacebook.base.checks import require_key, require_number
from laplacebook.base.corrected import Corrected, digits_of
from laplacebook.base.errors import LaplaceError, UnsupportedModel
from laplacebook.base.estimate import Estimate
from laplacebook.base.namespace import Numbers, namespace
from laplacebook.base.pytrees import STATIC, from_host, is_traced, loud, on_host, register_dataclass
from laplacebook.base.quick import jit_quickly
from laplacebook.base.weights import defined
from laplacebook.beyond.expanded_mean import Terms, ratio_of_evidences, terms_of
from laplacebook.beyond.mean_over_draws import a_point, mean_over_draws, not_finite
from laplacebook.curvature.hessian import twice_differentiable
from laplacebook.evidence.corrected_evidence import evidences_about
from laplacebook.evidence.expansion import dense, others_of, why_not_expanded
from laplacebook.fit.approximation import Approximation
from laplacebook.fit.function_of_sites import call_of, numbers_at, shape_of, varies
from laplacebook.fit.require_fit import require_approximation
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.model.arguments import Call
from laplacebook.model.density import LikelihoodDensity

METHODS = ("delta", "tierney_kadane", "draws")
DIMENSIONS = 1000  # of an expansion, at most
LARGEST = 0.5  # posterior standard deviations of g that an expansion may leave out
ENOUGH = 0.01  # of them, where no method was asked for: the error of 10,000 draws
_ASKED = "asked for"
_ROUNDING = 1e3  # units in the last place of a value that count for nothing


@register_dataclass
@dataclass(frozen=True, repr=False)
class Expectation(Corrected):
    """A posterior mean, with the scale of what its expansion leaves out or the error of its draws.

    In the book: :prf:ref:`accuracy-outside` of :doc:`/book/accuracy`.

    Attributes:
        value: E g, of the shape of what g returns.
        correction: how far that is from g at the mode (the highest, of several by draws); NaN where there is none.
        truncation: the scale of what is left out; zero of draws, which leave out nothing.
        doubt: what is known against the approximation, a verdict of bad (not of draws, whose weights were looked at)
            or modes elsewhere; or None. It is printed.
        standard_error: of draws; None of an expansion, in which nothing is drawn.
        method: ``"delta"``, ``"tierney_kadane"`` or ``"draws"``.
        why: it was that one.
    """

    standard_error: Any = None
    method: str = field(default="", metadata=STATIC)
    why: str = field(default="", metadata=STATIC)

    def __repr__(self) -> str:
        known = not is_traced(self.value) and not np.ndim(self.value)
        if self.standard_error is not None:
            error = Estimate(self.value, self.standard_error)
            return (
                f"{error if known else repr(error)} by {self.method} ({self.why}){self._doubtful}"
            )
        if known:
            digits = digits_of(self.truncation)
            value = f"{self.value:.{digits}f}, leaves out about {self.truncation:.{digits}f},"
        else:
            value = f"Expectation(value={self.value}, truncation={self.truncation})"
        return f"{value} by {self.method} ({self.why}){self._doubtful}"


def expectation(
    approx: Approximation,
    g: Callable[[dict[str, Array]], Any],
    *,
    method: str | None = None,
    key: Key[Array, ""] | None = None,
    num_samples: int = 10_000,
    progress_bar: bool | None = None,
) -> Expectation:
    """E[g | D], the posterior mean of a function of the sites on the scale of the model.

    With S = A^-1, f the negative log joint and all derivatives at the mode in the coordinates u:

    ``"delta"`` is g + S_ij g_ij / 2 - S_ij S_kl f_ijk g_l / 2. What is left out is of the order
    1/N^2. It is d/ds log E exp(s g) at s = 0 with Laplace's method for E exp(s g), by which Tierney,
    Kass and Kadane (1989, Journal of the American Statistical Association 84, 710-716) extend the
    next one to functions that are not positive.

    ``"tierney_kadane"`` is the ratio of two evidences: with g as a factor of the density, and without
    it (Tierney and Kadane 1986, Journal of the American Statistical Association 81, 82-86, section
    2). For functions of one sign. The errors of both share their leading term, so that of the ratio
    is of the order 1/N^2.

    ``"draws"`` is the mean over draws from a Student-t distribution about the mode, weighted as in
    :func:`~laplacebook.importance_sampling`. For any function. Of an approximation that is no single Gaussian they
    are the draws, with the weights, that :func:`~laplacebook.resampled` takes.

    An expansion is about a mode: of a :func:`~laplacebook.mixture` about each, and their sum is weighted by
    :func:`~laplacebook.corrected_evidence`. What is left out of these weights counts in ``truncation``.

    The ``truncation`` of an expansion is how far its value is from the mean along 32 or more lines
    through the mode, by 16 points on each. So a kink counts, or a tail, that derivatives at the mode do
    not tell. An expansion works within ``jit``, ``vmap`` and ``grad``, where it is NaN instead of an error.

    In the book: :prf:ref:`accuracy-outside` and :prf:ref:`laplace-ratio` of :doc:`/book/accuracy`.

    Args:
        approx: any approximation: what :func:`~laplacebook.laplace`, :func:`~laplacebook.nested` or another of the
            family returned.
        g: takes a dict of site -> value, as ``approx.mode`` is one, and returns a number or an array of
            numbers, the mean of each of which is asked for; written with ``jax.numpy``.
        method: one of the three. By default the first that leaves out at most 1 % of a posterior
            standard deviation of g, which is the error of 10,000 draws; the result says why.
        key: for draws; a fixed one by default.
        num_samples: how many draws.
        progress_bar: as in :func:`~laplacebook.importance_sampling`.

    Returns:
        An :class:`Expectation`.

    Raises:
        TypeError: g is no function; ``approx`` is no approximation; ``key`` is no random key.
        ValueError: there is no such method; ``approx`` is a batch; numbers are not known yet (``jit``,
            ``vmap``, ``grad``) where there is no method, or draws.
        UnsupportedModel: g cannot be traced, or does not return real numbers; for an expansion g is
            flat at the mode, as an indicator is, or D is above 1,000, or the precision is not the whole
            Hessian, or ``approx`` is no sum of Gaussians; for ``"tierney_kadane"`` g has both signs; the
            fit is one of maximum likelihood.
        NonFinite: g or the log joint is NaN at a point, or g is infinite.
        LaplaceError: an expansion leaves out more than half a posterior standard deviation of g; the
            Pareto k-hat of the draws says that they do not tell; the fit failed.

    >>> import numpyro, numpyro.distributions as dist
    >>> from laplacebook import laplace
    >>> def coin(y):
    ...     theta = numpyro.sample("theta", dist.Beta(2, 2))
    ...     numpyro.sample("y", dist.Bernoulli(theta).expand([9]).to_event(1), obs=y)
    >>> approx = laplace(coin, jnp.array([1, 1, 1, 1, 1, 1, 1, 1, 0]))
    >>> mean = expectation(approx, lambda sites: sites["theta"])  # exactly 10/13 = 0.7692
    >>> print(f"{mean.value:.4f} by {mean.method}")
    0.7692 by delta
    >>> expectation(approx, lambda sites: sites["theta"] > 0.5)  # exactly 0.9807
    0.9804 ± 0.0009 by draws (<lambda> returns bool, which has no derivative)
    """
    if method not in (None, *METHODS):
        raise ValueError(f"method is one of {', '.join(METHODS)}, or None, not {method!r}")
    require_number("num_samples", num_samples)
    if key is not None:
        require_key(key)
    require_approximation(approx)
    density = approx.density
    if isinstance(density, LikelihoodDensity):
        raise UnsupportedModel(
            "A fit of maximum likelihood has no posterior, over which a mean could be taken.",
            remedy="fit with laplace.",
        )
    if method in (None, "draws") and is_traced(approx):
        raise ValueError(
            "expectation looks at numbers, which are not known yet within jit, vmap or grad: name one of "
            "the methods delta and tierney_kadane there."
        )
    call = call_of(g, density)
    form = shape_of(density, call, a_point(approx))
    by_draws = partial(_by_draws, approx, call, form, key, num_samples, progress_bar)
    if method == "draws":
        return by_draws(_ASKED)
    found = _terms(approx, call, form)
    if not isinstance(found, str):
        return _by_expansion(approx, call, form, found, method, by_draws)
    if method is None:
        return by_draws(found)
    raise UnsupportedModel(
        f"There is no expansion of the mean of {call.name}, since {found}.",
        remedy="use method='draws'.",
    )


class _Shares(NamedTuple):
    """Of the modes in the evidence, shape (K, 1), and what is left out of the logarithms of these."""

    shares: Array
    left_out: Array


def _terms(
    approx: Approximation, g: Call, form: jax.ShapeDtypeStruct
) -> tuple[list[Terms], _Shares | None] | str:
    """What there is to expand about each mode; or why there is nothing, in words that go on after "since"."""
    fits = approx.gaussians
    if not fits:
        return f"{type(approx).__name__} is no sum of Gaussians"
    found = []
    for one in fits:
        terms = _terms_about(one, fits, g, form)
        if isinstance(terms, str):
            return terms
        found.append(terms)
    if len(fits) == 1:
        return found, None
    try:
        evidences = evidences_about(fits)
    except LaplaceError:
        return "the evidences about the modes, by which they are weighted, have none"
    values = jnp.array([[one.value] for one in evidences])
    left_out = jnp.array([[one.truncation] for one in evidences])
    return found, _Shares(jax.nn.softmax(values, axis=0), left_out)


def _terms_about(
    one: LaplaceApproximation,
    fits: Sequence[LaplaceApproximation],
    g: Call,
    form: jax.ShapeDtypeStruct,
) -> Terms | str:
    density, mode = one.density, one.mode_vector
    why_not = why_not_expanded(one, DIMENSIONS)
    if why_not is not None:
        return why_not
    if not jnp.issubdtype(form.dtype, jnp.floating):
        return f"{g.name} returns {form.dtype}, which has no derivative"
    with twice_differentiable("three times"):
        others = others_of(one, fits)
        terms = on_host(terms_of(density, g, mode, dense(one.precision), others))
    defined(terms.ratios, density.name, "points on lines through the mode")
    flat = terms.flat.any() & varies(density, g, mode)
    if is_traced(flat):
        terms = terms._replace(at=terms.at * loud(~flat, mode.dtype))
    elif flat:
        return f"the first two derivatives of {g.name} at the mode are zero, as of an indicator"
    _require_finite(g, terms)
    return terms


class _Mean(NamedTuple):
    """A mean of C numbers by an expansion, the scale of what it leaves out, and whether it holds."""

    value: Numbers
    at: Numbers
    truncation: Numbers
    spread: Numbers
    sound: Numbers


def _mean_about(one: LaplaceApproximation, g: Call, terms: Terms, method: str) -> _Mean:
    value, sound = terms.at + terms.delta, np.array(True)
    if method == "tierney_kadane":
        fit = one.density, one.mode_vector, dense(one.precision)
        value, found = on_host(ratio_of_evidences(fit[0], g, *fit[1:], terms.at))
        sound = (found & terms.one_sign).all()
    apart = terms.at + terms.told - value
    truncation = namespace(apart).hypot(apart, terms.noise)
    return _Mean(value, terms.at, truncation, terms.spread, sound)


def _sum_of(means: list[_Mean], weights: _Shares) -> _Mean:
    """The mean over all modes; what is left out of the shares moves it by as much as means differ from it."""
    values, at, truncations, spreads, sound = (jnp.stack(x) for x in zip(*means, strict=True))
    shares = weights.shares
    value = jnp.sum(shares * values, axis=0)
    away = jnp.abs(values - value)
    truncation = jnp.sum(shares * (truncations + away * weights.left_out), axis=0)
    spread = jnp.sqrt(jnp.sum(shares * (spreads**2 + away**2), axis=0))
    return _Mean(value, jnp.sum(shares * at, axis=0), truncation, spread, sound.all())


def _by_expansion(
    approx: Approximation,
    g: Call,
    form: jax.ShapeDtypeStruct,
    found: tuple[list[Terms], _Shares | None],
    method: str | None,
    by_draws: Callable[[str], Expectation],
) -> Expectation:
    """By the method that was asked for, or by the first that leaves out little."""
    most, said = ENOUGH if method is None else LARGEST, list[str]()
    each, shares = found
    for used in METHODS[:2] if method is None else (method,):
        known = not is_traced(each)
        if used == "tierney_kadane" and known and not all(x.one_sign.all() for x in each):
            if method is None:
                said.append("g is not of one sign")
                break
            raise _both_signs(g)
        pairs = zip(approx.gaussians, each, strict=True)
        means = [_mean_about(one, g, terms, used) for one, terms in pairs]
        mean = means[0] if shares is None else _sum_of(means, shares)
        value, truncation = mean.value, mean.truncation
        share = _left_out(mean)
        said.append(f"{used} leaves out {_share(share)}")
        if is_traced(share) or share <= most:
            factor = loud(share <= most, value.dtype)
            value, correction, truncation = (
                from_host((x * factor).reshape(form.shape))
                for x in (value, value - mean.at, truncation)
            )
            why = "; ".join(said) if method is None else _ASKED
            doubt = approx.known_doubt
            return Expectation(value, correction, truncation, method=used, why=why, doubt=doubt)
        if method is not None:
            raise _not_small(g, said[0])
    return by_draws("; ".join(said))


@np.errstate(all="ignore")
def _left_out(mean: _Mean) -> Any:
    """What is left out, in posterior standard deviations of g; infinite where the expansion does not hold."""
    xp, value = namespace(mean.value), mean.value
    kind = xp.finfo(value.dtype)
    rounding = _ROUNDING * kind.eps * abs(value) + kind.tiny  # of a constant of zero 0/0
    share = xp.max(mean.truncation / (mean.spread + rounding), initial=0)
    return xp.where(mean.sound, share, xp.inf)


def _by_draws(
    approx: Approximation,
    g: Call,
    form: jax.ShapeDtypeStruct,
    key: Key[Array, ""] | None,
    number: int,
    progress_bar: bool | None,
    why: str,
) -> Expectation:
    to_draw = jax.random.key(0) if key is None else key
    mean, error = mean_over_draws(approx, g, to_draw, number, progress_bar)
    at = np.asarray(_numbers(approx.density, g, a_point(approx)), float)
    away = mean - at if approx.gaussians else np.full_like(mean, np.nan)
    kind = jnp.result_type(float)
    value, correction, standard_error, nothing = (
        from_host(np.asarray(x.reshape(form.shape), kind))
        for x in (mean, away, error, np.zeros_like(mean))
    )
    of_draws = standard_error, "draws", why
    return Expectation(value, correction, nothing, *of_draws, doubt=approx.unseen)


_numbers = jit_quickly(numbers_at)


def _share(share: Any) -> str:
    return "" if is_traced(share) else f"{float(share):.1g} posterior standard deviations of g"


def _both_signs(g: Call) -> UnsupportedModel:
    return UnsupportedModel(
        f"{g.name} is not of one sign where the posterior has its mass, and has no logarithm.",
        remedy="use method='delta': it is what Tierney, Kass and Kadane take for such a function, the "
        "derivative of log E exp(s g) at s = 0.",
    )


def _require_finite(g: Call, terms: Terms) -> None:
    seen = (terms.at, terms.delta, terms.told)
    if not is_traced(seen) and not np.isfinite(np.stack(seen)).all():
        raise not_finite(f"{g.name}, or a derivative of it, is NaN or infinite near the mode.")


def _not_small(g: Call, said: str) -> LaplaceError:
    return LaplaceError(
        f"Of the mean of {g.name} {said}: the expansion says nothing here.",
        causes=[
            "a function that bends much within a posterior standard deviation",
            "a kink or a step, which derivatives at the mode do not tell",
            "a posterior far from a Gaussian: see diagnose(approx)",
        ],
        remedy="use method='draws'.",
    )
