"""Draws by which an approximation is checked and put right: their density is known, and so are their weights."""

from dataclasses import replace
from math import inf, log
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from laplacebook.base.estimate import Estimate, effective_sample_size, log_mean
from laplacebook.base.keys import split_into
from laplacebook.base.namespace import logsumexp
from laplacebook.base.one_thread import by_one_thread
from laplacebook.base.quick import in_full_precision
from laplacebook.base.weights import (
    defined,
    mean_of_weights,
    of_heavy_tail,
    pareto_k,
    pareto_smoothed,
)
from laplacebook.beyond.chains import Chains
from laplacebook.beyond.grid import Grid
from laplacebook.beyond.known_points import between_nodes
from laplacebook.beyond.mixture import MixtureApproximation, log_gaussians
from laplacebook.beyond.nested_approximation import NestedApproximation
from laplacebook.beyond.skewed import SkewedApproximation
from laplacebook.evidence.importance import log_student_constant
from laplacebook.fit.approximation import Approximation
from laplacebook.fit.log_joints import log_joints
from laplacebook.fit.result import LaplaceApproximation

TOGETHER = 8  # draws of the effects for the same hyperparameters
_HEAVY = 5.0  # degrees of freedom of the draws that reach into the tails
_ALIKE = 1e-6  # nats, by which weights may differ that are one
_EVEN = 0.99  # of the draws, that they are worth: means by them and without weights are within 0.1 sd of each other


class WeightedDraws(NamedTuple):
    """Draws with importance weights, under which they are the posterior's.

    Attributes:
        u: in the coordinates of the fit, shape (S, D).
        log_weights: the log joint less the log density of each, shape (S,).
        together: so many after each other depend on one another; S is a multiple of it.
        rounding: of the log joint; of draws by NUTS with the error of the integral by which their density is divided.
        bounded: whether the weights are, because the hyperparameters are not drawn and the effects given these are
            Gaussian, or have shorter tails.
    """

    u: np.ndarray
    log_weights: np.ndarray
    together: int
    rounding: float
    bounded: bool = False

    @property
    def pareto_k(self) -> float:
        """Pareto k-hat of the weights.

        Minus infinity where they are bounded and so even that their largest say nothing of a tail. Draws of effects
        that are exactly Gaussian given the same hyperparameters have one weight, which counts once.
        """
        even = effective_sample_size(self.log_weights) >= _EVEN * len(self.log_weights)
        if self.bounded and even:
            return -inf
        weights = self.log_weights.reshape(-1, self.together)
        alike = np.allclose(weights, weights[:, :1], rtol=0, atol=_ALIKE)
        return pareto_k(self._groups if alike else self.log_weights)

    @property
    def smoothed(self) -> Float[np.ndarray, " S"]:
        """The log weights, the largest smoothed where they have a tail; the exponentials sum to one."""
        if self.pareto_k > -inf:
            return pareto_smoothed(self.log_weights)[0]
        return self.log_weights - logsumexp(self.log_weights)

    def log_evidence(self, k: float) -> Estimate:
        """The log evidence by the weights, with their error and that of rounding.

        Args:
            k: Pareto k-hat of the weights.
        """
        mean = mean_of_weights(self.log_weights, k)
        of_groups = float(log_mean(self._groups).standard_error) * of_heavy_tail(k, len(self.u))
        error = max(float(mean.standard_error), of_groups)
        return Estimate(mean.value, float(np.hypot(error, self.rounding)))

    @property
    def effective_groups(self) -> float:
        """How many independent draws from the posterior they are worth."""
        return float(effective_sample_size(self._groups))

    @property
    def _groups(self) -> Float[np.ndarray, " G"]:
        return logsumexp(self.log_weights.reshape(-1, self.together)) - log(self.together)


@in_full_precision
def weighted_draws(
    approx: Approximation,
    key: Key[Array, ""],
    number: int,
    progress_bar: bool | None = None,
) -> WeightedDraws:
    """Draws from an approximation, and from one with heavier tails.

    Half of them are the approximation's own, and half are Student-t with five degrees of freedom about
    each mode, with the same scale matrices; each is weighted by the mixture of the two laws. So the weights are
    at least half as even as those of the better one, and bounded where the posterior has no heavier tails than the
    second.

    Of a nested approximation the hyperparameters are drawn between the points of the grid, and the effects given
    them from fits of their own: every other draw is Gaussian, and every other one has the skew marginals. The
    Gaussian is where copulas of skew marginals leave a narrow ridge, such as a sum that is known.

    Args:
        approx: the approximation.
        key: a JAX random key.
        number: how many draws, about.
        progress_bar: shown after two seconds; by default where standard error is a terminal.

    Raises:
        LaplaceError: at a draw of the hyperparameters the effects have no mode.
        NonFinite: the log joint is NaN at a draw.
    """
    if isinstance(approx, NestedApproximation):
        return _nested(approx, key, number)
    components, shares = components_of(approx)
    half = -(-number // 2)
    to_own, to_heavy, to_index, to_scale = split_into(key, 4)
    own = np.asarray(approx.sample_vector(to_own, (half,)), float)
    normal = np.asarray(jax.random.normal(to_heavy, own.shape), float)
    scale = np.asarray(jax.random.chisquare(to_scale, _HEAVY, shape=(half, 1)), float) / _HEAVY
    logs = jnp.log(jnp.asarray(shares))
    index = np.asarray(jax.random.categorical(to_index, logs, shape=(half,)))
    heavy = MixtureApproximation(components).points(index, normal / np.sqrt(scale))
    u = np.concatenate([own, heavy])
    gaussians = log_gaussians(components, u)
    constants = np.array([float(one.precision.log_volume()) for one in components])[:, None]
    tails = _log_student(-2 * (gaussians + constants), u.shape[1]) - constants
    log_q = np.logaddexp(
        _own_log_density(approx, u, gaussians, shares), _mixed(tails, shares)
    ) - log(2)
    heights = log_joints(approx.density, u, progress_bar)
    weights = defined(heights - log_q, approx.density.name, "draws")
    return WeightedDraws(u, weights, 1, _rounding(heights, weights))


def components_of(
    approx: Approximation,
) -> tuple[tuple[LaplaceApproximation, ...], Float[np.ndarray, " K"]]:
    """The Gaussians of which an approximation is made, and their shares.

    Args:
        approx: what laplace, skewed or mixture returned.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(approx, MixtureApproximation):
        return approx.components, approx.shares
    if isinstance(approx, SkewedApproximation):
        return (approx.gaussian,), np.ones(1)
    if isinstance(approx, LaplaceApproximation):
        return (approx,), np.ones(1)
    raise TypeError(
        f"An approximation of type {type(approx).__name__} tells no density of its draws."
    )


def _own_log_density(
    approx: Approximation,
    u: Float[np.ndarray, "S D"],
    gaussians: Float[np.ndarray, "K S"],
    shares: Float[np.ndarray, " K"],
) -> Float[np.ndarray, " S"]:
    if isinstance(approx, SkewedApproximation):
        return approx.log_densities(u - np.asarray(approx.gaussian.mode_vector), gaussians[0])
    return _mixed(gaussians, shares)


def _mixed(logs: Float[np.ndarray, "K S"], shares: Float[np.ndarray, " K"]) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return logsumexp((logs + np.log(shares)[:, None]).T)


def _log_student(squares: Float[np.ndarray, "K S"], size: int) -> np.ndarray:
    """The log density of a Student-t vector, times the square root of the determinant of its scale matrix.

    And times (2 pi)^(D/2), as for a Gaussian of which the log volume is subtracted.
    """
    return log_student_constant(size, _HEAVY) - (_HEAVY + size) / 2 * np.log1p(squares / _HEAVY)


@by_one_thread
def _nested(fit: NestedApproximation, key: Key[Array, ""], number: int) -> WeightedDraws:
    groups = -(-number // TOGETHER)
    to_hyper, to_effects = split_into(key)
    points, skewed = fit._points, fit.skewed
    chosen = points.drawn(float(jax.random.uniform(to_hyper)), groups)
    given = between_nodes(fit.effects, fit.grid, fit.start, points.points[chosen])
    index = np.repeat(np.arange(groups), TOGETHER)
    shape = (len(index), given.mode.shape[1])
    normal = np.asarray(jax.random.normal(to_effects, shape), float)
    gaussian, skew = (
        one.draws_given(given, index, normal) for one in (replace(skewed, image=None), skewed)
    )
    u = np.where(np.arange(len(index))[:, None] % 2, skew, gaussian)
    effects = u[:, fit.effects.places[1]]
    log_joint = fit.effects.log_joint(given.hyper, effects.reshape(groups, TOGETHER, -1)).ravel()
    log_q = skewed.log_densities(given, index, effects - given.mode[index])
    log_q = np.logaddexp.reduce(log_q) - np.log(len(log_q)) + points.log_density[chosen][index]
    weights = defined(log_joint - log_q, fit.density.name, "draws")
    of_density = 0.0 if isinstance(fit.grid, Grid) else fit.grid.error
    rounding = float(np.hypot(_rounding(log_joint, weights), of_density))
    bounded = not isinstance(fit.grid, Chains) and fit.pareto_k <= 0
    return WeightedDraws(u, weights, TOGETHER, rounding, bounded)


def _rounding(heights: Float[np.ndarray, " S"], log_weights: Float[np.ndarray, " S"]) -> float:
    """Of the log joint at the draws that carry the weights: that of others counts as little as they do."""
    eps = float(jnp.finfo(jnp.result_type(float)).eps)
    carrying = log_weights > np.max(log_weights) + log(eps)
    return eps * float(np.max(abs(heights[carrying]), initial=0))
