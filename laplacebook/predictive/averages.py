"""Averages over draws, of what a model says of new data."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import erfc
from jaxtyping import Array, Float, Key

from laplacebook.base.quick import jit_quickly, numbers_in
from laplacebook.model.arguments import Call
from laplacebook.model.density import ModelDensity
from laplacebook.predictive.outcomes import outcome_at


def _numbers(density: ModelDensity, new: Call, draws: Array, site: str | None) -> int:
    return len(draws) * (numbers_in(new) + draws.shape[1])


@partial(jit_quickly, work=_numbers, static_argnames=["site"])
def outcome_over_draws(
    density: ModelDensity, new: Call, draws: Float[Array, "S D"], site: str | None
) -> tuple[Any, Any]:
    """Mean and variance over draws of the outcome's mean and of its variance.

    Args:
        density: the model and the arguments that it was fitted to.
        new: a call of the same model with the new arguments.
        draws: of the latent sites, shape (S, D).
        site: the observed site; needed if there are several.

    Returns:
        Two pairs: the means, and the variances, of the outcome's mean and of its variance.
    """

    def at(u: Array) -> tuple[Array, Array]:
        outcome = outcome_at(density, new, u, site)
        return outcome.mean, outcome.variance

    return _moments(at, draws)


@partial(jit_quickly, work=lambda logits, _, __, keys: logits.size * len(keys))
def outputs_over_draws(
    logits: Float[Array, "*N"],
    variance: Float[Array, "*N"],
    covariance: Float[Array, "*M C C"] | None,
    keys: Key[Array, " S"],
) -> tuple[Array, Array]:
    """Mean and variance of the probabilities over draws of the logits; of classes with covariance.

    Args:
        logits: their means, shape (*N), or (*N, C) of classes.
        variance: of the same shape.
        covariance: of the classes of a row, shape (*N, C, C); None for two classes.
        keys: one a draw.

    Returns:
        Mean and variance, of the shape of the logits.
    """
    deviation = jnp.sqrt(variance)

    def bernoulli(normal: Array) -> Array:
        return jax.nn.sigmoid(logits + deviation * normal)

    def categorical(root: Array, normal: Array) -> Array:
        return jax.nn.softmax(logits + jnp.einsum("...ck,...k->...c", root, normal))

    link = bernoulli
    if covariance is not None:  # by singular values, since it may have no inverse
        left, singular, _ = jnp.linalg.svd(covariance)
        link = partial(categorical, left * jnp.sqrt(singular)[..., None, :])
    return _moments(lambda key: link(jax.random.normal(key, logits.shape, logits.dtype)), keys)


def _moments(at: Callable[[Array], Any], draws: Array) -> tuple[Any, Any]:
    """Mean and variance over draws of each array that a function of one returns (Welford)."""

    def add(sums: tuple, numbered: tuple) -> tuple:
        (mean, square), (number, draw) = sums, numbered
        value = at(draw)
        after = jax.tree.map(lambda x, m: m + (x - m) / number, value, mean)
        square = jax.tree.map(lambda s, x, m, a: s + (x - m) * (x - a), square, value, mean, after)
        return (after, square), None

    numbers = jnp.arange(1, len(draws) + 1)
    start = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(at, draws[0]))
    (mean, squares), _ = jax.lax.scan(add, (start, start), (numbers, draws))
    return mean, jax.tree.map(lambda s: s / (len(draws) - 1), squares)


def standard_error(spread: Float[Array, "*N"], number: int) -> Float[Array, "*N"]:
    """The standard error of a mean of so many draws with this variance; infinite for one."""
    return jnp.sqrt(spread / number) if number > 1 else jnp.full_like(spread, jnp.inf)


def _rule() -> tuple[np.ndarray, np.ndarray]:
    """Variances and weights of the normals whose mixture is the logistic density, to rounding.

    Kolmogorov's density p(k) = 8 k sum_n (-1)^(n+1) n^2 exp(-2 n^2 k^2) of half their standard
    deviation, by the trapezoidal rule in log k, which it leaves at both ends faster than any
    exponential.
    """
    k, n = np.exp(0.12 * np.arange(-15, 14)), np.arange(1, 60)[:, None]
    density = 8 * k * np.sum((-1.0) ** (n + 1) * n**2 * np.exp(-2 * n**2 * k**2), axis=0)
    return 4 * k**2, density * k / np.sum(density * k)


_VARIANCES, _WEIGHTS = _rule()


@jit_quickly
def sigmoid_mean(mean: Float[Array, "*N"], variance: Float[Array, "*N"]) -> Float[Array, "*N"]:
    """E[sigma(a)] for a ~ N(mean, variance), to rounding: the absolute error is below 1e-14.

    The logistic distribution is a mixture of the normals N(0, 4 k^2), with k of Kolmogorov's
    distribution (Andrews and Mallows 1974, J. R. Stat. Soc. B 36, 99-102), so that E[sigma(a)] is
    the mean of Phi(mean / sqrt(4 k^2 + variance)) over k. The trapezoidal rule in log k converges
    geometrically (Trefethen and Weideman 2014, SIAM Review 56, 385-458): 29 points serve for every
    mean and variance, where Gauss-Hermite quadrature needs ever more as the variance grows.

    In the book: :eq:`logistic-regression-one-dimension` of :doc:`/book/logistic-regression`.

    Args:
        mean: of a, shape (N,) or any other.
        variance: of a, zero or more, of the same shape.

    Returns:
        Probabilities, of that shape; NaN where the variance is negative.
    """
    variance = jnp.where(variance >= 0, variance, jnp.nan)
    dtype = jnp.result_type(mean, variance)

    def term(of_normal: Array, weight: Array) -> Array:
        return weight / 2 * erfc(-mean / jnp.sqrt(2 * (of_normal + variance)))

    def add(total: Array, normal_and_weight: tuple) -> tuple[Array, None]:
        return total + term(*normal_and_weight), None

    pairs = jnp.asarray(_VARIANCES, dtype), jnp.asarray(_WEIGHTS, dtype)
    first = term(*(part[0] for part in pairs))
    return jax.lax.scan(add, first, tuple(part[1:] for part in pairs), unroll=4)[0]


def probit_approximation(
    mean: Float[Array, "*N"], variance: Float[Array, "*N"]
) -> Float[Array, "*N"]:
    """sigma(kappa mean) with kappa = (1 + pi variance / 8)^(-1/2), which stands for E[sigma(a)].

    MacKay (1992); Bishop (2006), equations 4.153 and 4.154. The error is below 0.02 everywhere.

    In the book: :eq:`logistic-regression-kappa` of :doc:`/book/logistic-regression`.

    Args:
        mean: of a, shape (N,) or any other.
        variance: of a, of the same shape.

    Returns:
        Probabilities, of that shape.
    """
    return jax.nn.sigmoid(mean / jnp.sqrt(1 + np.pi / 8 * variance))
