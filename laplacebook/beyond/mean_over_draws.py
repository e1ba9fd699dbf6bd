"""The posterior mean of some numbers over weighted draws, and the error of it."""

from math import inf, isnan, log
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from laplacebook.base.errors import LaplaceError, NonFinite
from laplacebook.base.estimate import FEWEST
from laplacebook.base.keys import split
from laplacebook.base.many_points import at_many
from laplacebook.base.namespace import logsumexp
from laplacebook.base.weights import FEW, defined, of_heavy_tail, pareto_k, usable_below
from laplacebook.beyond.nested_approximation import NestedApproximation
from laplacebook.beyond.resampled import ResampledApproximation
from laplacebook.beyond.weighted_draws import TOGETHER, weighted_draws
from laplacebook.evidence.importance import proposal_of, weighted_draw
from laplacebook.fit.approximation import Approximation
from laplacebook.fit.function_of_sites import numbers_at, varies
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.gaussian.precision import Precision
from laplacebook.model.arguments import Call
from laplacebook.model.density import ModelDensity

_LITTLE = 0.005  # of a sum: the largest part of a tail with a k-hat of 0.7 has ten times as much
_RARE = 0.5  # of the draws
_HEAVY = 5.0  # degrees of freedom of the draws, as of importance_sampling


class Drawn(NamedTuple):
    """What g returns at weighted draws.

    Attributes:
        log_weights: shape (S,).
        values: shape (S, C).
        together: so many after each other depend on one another.
    """

    log_weights: np.ndarray
    values: np.ndarray
    together: int


def mean_over_draws(
    approx: Approximation, g: Call, key: Key[Array, ""], number: int, progress_bar: bool | None
) -> tuple[Float[np.ndarray, " C"], Float[np.ndarray, " C"]]:
    """The mean of each number of g, and its standard error; infinite where the draws do not tell it.

    Args:
        approx: any approximation.
        g: a function of the sites.
        key: a JAX random key.
        number: how many draws.
        progress_bar: as in :func:`~laplacebook.importance_sampling`.

    Raises:
        NonFinite: g or the log joint is NaN at a draw, or g is infinite.
        LaplaceError: the Pareto k-hat of the draws says that they do not tell.
    """
    density = approx.density
    drawn = _draws(approx, g, key, number, progress_bar)
    log_weights = defined(drawn.log_weights, density.name, "draws from the approximation")
    number = len(log_weights)
    values = np.where(np.isneginf(log_weights[:, None]), 0, drawn.values)
    bad = np.count_nonzero(~np.isfinite(values.sum(axis=1)))
    if bad:
        raise not_finite(f"{g.name} is NaN or infinite at {bad:,} of {number:,} draws.")
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    mean = weights @ values
    away = values - mean
    pairs = zip(values.T, away.T, strict=True)
    tails = [log_weights, *(_contributions(*pair, log_weights) for pair in pairs)]
    judged = [(_tail(logs), usable_below(len(logs))) for logs in tails]
    of_weights, *of_each = (k for k, _ in judged)
    wider = np.array([of_heavy_tail(max(of_weights, k), number) for k in of_each])
    k, allowed = max(judged, key=lambda pair: pair[0] - pair[1])
    if k > allowed:
        raise LaplaceError(
            f"{number:,} draws do not tell the mean of {g.name}: the Pareto k-hat of their weights is "
            f"{k:.2f}, above {allowed:.2f}.",
            causes=["a posterior far from its Gaussian", "a mean that does not exist"],
            remedy="more draws if they are few; else sample the posterior by NUTS, and see diagnose(approx).",
        )
    groups = (weights[:, None] * away).reshape(-1, drawn.together, values.shape[1])
    parts = np.abs(groups.sum(axis=1))
    squares = np.sum(parts**2, axis=0)
    error = wider * np.sqrt(squares * len(parts) / max(len(parts) - 1, 1))
    told = (parts.sum(axis=0) ** 2 >= FEWEST * squares) & (squares > 0)
    if varies(density, g, a_point(approx)):
        error = np.where(told, error, np.inf)
    return mean, error


def _contributions(
    values: Float[np.ndarray, " S"],
    away: Float[np.ndarray, " S"],
    log_weights: Float[np.ndarray, " S"],
) -> Float[np.ndarray, " s"]:
    """The logarithms of what draws add to a mean, of which the tail is looked at.

    Where most draws have one value, as of a rare event, of the others from it: with it they are no tail but a lump. Of
    an event that few draws hit the standard error is what says so.
    """
    usual = np.median(values)
    others = values != usual
    if np.mean(others) < _RARE:
        away, log_weights = (values - usual)[others], log_weights[others]
        if len(away) < FEW and len(np.unique(away)) <= 1:
            return log_weights[:0]
    with np.errstate(divide="ignore"):
        return log_weights + np.log(np.abs(away))


def _tail(logs: Float[np.ndarray, " S"]) -> float:
    """Pareto k-hat of the parts of a sum; minus infinity where the largest of them hardly counts.

    Values that two modes bound have two edges, of which the lower one looks like the beginning of a long tail.
    """
    if not logs.size or logs.max() <= log(_LITTLE) + logsumexp(logs):
        return -inf
    k = pareto_k(logs)
    return inf if isnan(k) else k


def a_point(approx: Approximation) -> Float[Array, " D"]:
    """The mode, the highest of several; or where there is none any point."""
    fits = approx.gaussians
    return fits[0].mode_vector if fits else jnp.asarray(np.zeros(approx.density.dimension), float)


def not_finite(what: str) -> NonFinite:
    """The error for a function that is NaN or infinite.

    Args:
        what: says where.
    """
    return NonFinite(
        what,
        causes=["a logarithm, a root or a quotient beyond where it is defined", "an overflow"],
        remedy="make g finite wherever the sites can be, such as by jnp.where on both sides of its edge.",
    )


def _draws(
    approx: Approximation, g: Call, key: Array, number: int, progress_bar: bool | None
) -> Drawn:
    density = approx.density
    if isinstance(approx, LaplaceApproximation):
        operands = (density, *proposal_of(approx, _HEAVY), g)
        rows = np.asarray(
            at_many(_weighted_numbers, operands, split(key, number), progress_bar), float
        )
        return Drawn(rows[:, 0], rows[:, 1:], 1)
    if isinstance(approx, ResampledApproximation):
        together = TOGETHER if isinstance(approx.proposal, NestedApproximation) else 1
        u, log_weights = approx.u, approx.log_weights
    else:
        draws = weighted_draws(approx, key, number, progress_bar)
        u, log_weights, together = draws.u, draws.log_weights, draws.together
    values = at_many(numbers_at, (density, g), jnp.asarray(u, float), progress_bar)
    return Drawn(log_weights, np.asarray(values, float), together)


def _weighted_numbers(
    density: ModelDensity, mode: Array, precision: Precision, heaviness: Any, g: Call, key: Array
) -> Float[Array, " C1"]:
    """The log weight of a draw, and what g returns there."""
    u, log_weight = weighted_draw(density, mode, precision, heaviness, key)
    return jnp.append(log_weight, numbers_at(density, g, u))
