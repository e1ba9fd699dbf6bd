"""The posterior mean of a function of the sites: by expansions about the mode, or by weighted draws."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from laplacebook.base.checks import require_key, require_number
from laplacebook.base.corrected import Corrected, digits_of
from laplacebook.base.errors import LaplaceError, NonFinite, UnsupportedModel
from laplacebook.base.estimate import FEWEST, Estimate
from laplacebook.base.keys import split
from laplacebook.base.many_points import at_many
from laplacebook.base.pytrees import STATIC, is_traced, loud
from laplacebook.base.quick import jit_quickly
from laplacebook.base.weights import defined, pareto_k, usable_below
from laplacebook.beyond.expanded_mean import Terms, ratio_of_evidences, terms_of
from laplacebook.curvature.hessian import twice_differentiable
from laplacebook.evidence.expansion import why_not_expanded
from laplacebook.evidence.importance import proposal_of, weighted_draw
from laplacebook.fit.function_of_sites import call_of, numbers_at, shape_of, varies
from laplacebook.fit.require_fit import require_fit
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.gaussian.precision import Precision
from laplacebook.model.arguments import Call
from laplacebook.model.density import LikelihoodDensity, ModelDensity

METHODS = ("delta", "tierney_kadane", "draws")
DIMENSIONS = 1000  # of an expansion, at most
LARGEST = 0.5  # posterior standard deviations of g that an expansion may leave out
ENOUGH = 0.01  # of them, where no method was asked for: the error of 10,000 draws
_ASKED = "asked for"
_ROUNDING = 1e3  # units in the last place of a value that count for nothing
_HEAVY = 5.0  # degrees of freedom of the draws, as of importance_sampling


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class Expectation(Corrected):
    """A posterior mean, with the scale of what its expansion leaves out or the error of its draws.

    In the book: :prf:ref:`accuracy-outside` of :doc:`/book/accuracy`.

    Attributes:
        value: E g, of the shape of what g returns.
        correction: how far that is from g at the mode.
        truncation: the scale of what is left out; zero of draws, which leave out nothing.
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
            return f"{error if known else repr(error)} by {self.method} ({self.why})"
        if known:
            digits = digits_of(self.truncation)
            value = f"{self.value:.{digits}f}, leaves out about {self.truncation:.{digits}f},"
        else:
            value = f"Expectation(value={self.value}, truncation={self.truncation})"
        return f"{value} by {self.method} ({self.why})"


def expectation(
    approx: LaplaceApproximation,
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
    :func:`~laplacebook.importance_sampling`. For any function.

    The ``truncation`` of an expansion is how far its value is from the mean along 32 or more lines
    through the mode, by 16 points on each. So a kink counts, or a tail, that derivatives at the mode do
    not tell. An expansion works within ``jit``, ``vmap`` and ``grad``, where it is NaN instead of an error.

    In the book: :prf:ref:`accuracy-outside` of :doc:`/book/accuracy`.

    Args:
        approx: what :func:`~laplacebook.laplace` or :func:`~laplacebook.laplace_of_density` returned.
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
        TypeError: g is no function; ``approx`` is no fit; ``key`` is no random key.
        ValueError: there is no such method; ``approx`` is a batch; numbers are not known yet (``jit``,
            ``vmap``, ``grad``) where there is no method, or draws.
        UnsupportedModel: g cannot be traced, or does not return real numbers; for an expansion g is
            flat at the mode, as an indicator is, or D is above 1,000, or the precision is not the whole
            Hessian; for ``"tierney_kadane"`` g has both signs; the fit is one of maximum likelihood.
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
    require_fit(approx)
    density, mode = approx.density, approx.mode_vector
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
    form = shape_of(density, call, mode)
    by_draws = partial(_by_draws, approx, call, form, key, num_samples, progress_bar)
    if method == "draws":
        return by_draws(_ASKED)
    why_not = why_not_expanded(approx, DIMENSIONS)
    if why_not is None and not jnp.issubdtype(form.dtype, jnp.floating):
        why_not = f"{call.name} returns {form.dtype}, which has no derivative"
    if why_not is None:
        with twice_differentiable("three times"):
            terms = terms_of(density, call, mode, approx.precision)
        defined(terms.ratios, density.name, "points on lines through the mode")
        flat = terms.flat.any() & varies(density, call, mode)
        if is_traced(flat):
            terms = terms._replace(at=terms.at * loud(~flat, mode.dtype))
        elif flat:
            why_not = (
                f"the first two derivatives of {call.name} at the mode are zero, as of an indicator"
            )
    if why_not is not None:
        if method is None:
            return by_draws(why_not)
        raise UnsupportedModel(
            f"There is no expansion of the mean of {call.name}, since {why_not}.",
            remedy="use method='draws'.",
        )
    _require_finite(call, terms)
    return _by_expansion(approx, call, form, terms, method, by_draws)


def _by_expansion(
    approx: LaplaceApproximation,
    g: Call,
    form: jax.ShapeDtypeStruct,
    terms: Terms,
    method: str | None,
    by_draws: Callable[[str], Expectation],
) -> Expectation:
    """By the method that was asked for, or by the first that leaves out little."""
    most, said = ENOUGH if method is None else LARGEST, list[str]()
    for used in METHODS[:2] if method is None else (method,):
        value, sound = terms.at + terms.delta, jnp.array(True)
        if used == "tierney_kadane":
            if not is_traced(terms) and not terms.one_sign.all():
                if method is None:
                    said.append("g is not of one sign")
                    break
                raise _both_signs(g)
            fit = approx.density, approx.mode_vector, approx.precision
            value, found = ratio_of_evidences(fit[0], g, *fit[1:], terms.at)
            sound = jnp.all(found & terms.one_sign)
        truncation = jnp.hypot(terms.at + terms.told - value, terms.noise)
        rounding = _ROUNDING * jnp.finfo(value.dtype).eps * jnp.abs(value)
        share = jnp.max(truncation / (terms.spread + rounding), initial=0)
        share = jnp.where(sound, share, jnp.inf)
        said.append(f"{used} leaves out {_share(share)}")
        if is_traced(share) or share <= most:
            factor = loud(share <= most, value.dtype)
            value, correction, truncation = (
                (x * factor).reshape(form.shape) for x in (value, value - terms.at, truncation)
            )
            why = "; ".join(said) if method is None else _ASKED
            return Expectation(value, correction, truncation, method=used, why=why)
        if method is not None:
            raise _not_small(g, said[0])
    return by_draws("; ".join(said))


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
        raise _not_finite(f"{g.name}, or a derivative of it, is NaN or infinite near the mode.")


def _not_finite(what: str) -> NonFinite:
    return NonFinite(
        what,
        causes=["a logarithm, a root or a quotient beyond where it is defined", "an overflow"],
        remedy="make g finite wherever the sites can be, such as by jnp.where on both sides of its edge.",
    )


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


def _by_draws(
    approx: LaplaceApproximation,
    g: Call,
    form: jax.ShapeDtypeStruct,
    key: Key[Array, ""] | None,
    number: int,
    progress_bar: bool | None,
    why: str,
) -> Expectation:
    density = approx.density
    keys = split(jax.random.key(0) if key is None else key, number)
    operands = (density, *proposal_of(approx, _HEAVY), g)
    rows = np.asarray(at_many(_weighted_numbers, operands, keys, progress_bar), float)
    log_weights = defined(rows[:, 0], density.name, "draws from the approximation")
    values = np.where(np.isneginf(rows[:, :1]), 0, rows[:, 1:])
    bad = np.count_nonzero(~np.isfinite(values.sum(axis=1)))
    if bad:
        raise _not_finite(f"{g.name} is NaN or infinite at {bad:,} of {number:,} draws.")
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    mean = weights @ values
    away = np.abs(values - mean)
    with np.errstate(divide="ignore"):
        tails = [log_weights, *(log_weights[:, None] + np.log(away)).T]
    k = max(pareto_k(tail) for tail in tails)
    if k > usable_below(number):
        raise LaplaceError(
            f"{number:,} draws do not tell the mean of {g.name}: the Pareto k-hat of their weights is "
            f"{k:.2f}, above {usable_below(number):.2f}.",
            causes=["a posterior far from its Gaussian", "a mean that does not exist"],
            remedy="more draws if they are few; else sample the posterior by NUTS, and see diagnose(approx).",
        )
    parts = weights[:, None] * away
    squares = np.sum(parts**2, axis=0)
    error = np.sqrt(squares * number / max(number - 1, 1))
    told = (parts.sum(axis=0) ** 2 >= FEWEST * squares) & (squares > 0)
    if varies(density, g, approx.mode_vector):
        error = np.where(told, error, np.inf)
    at = np.asarray(_numbers(density, g, approx.mode_vector), float)
    dtype = approx.mode_vector.dtype
    value, correction, error = (
        jnp.asarray(x.reshape(form.shape), dtype) for x in (mean, mean - at, error)
    )
    nothing = jnp.zeros_like(value)
    return Expectation(value, correction, nothing, error, "draws", why)


_numbers = jit_quickly(numbers_at)


def _weighted_numbers(
    density: ModelDensity, mode: Array, precision: Precision, heaviness: Any, g: Call, key: Array
) -> Float[Array, " C1"]:
    """The log weight of a draw, and what g returns there."""
    u, log_weight = weighted_draw(density, mode, precision, heaviness, key)
    return jnp.append(log_weight, numbers_at(density, g, u))
