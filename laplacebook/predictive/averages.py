"""Averages over draws, of what a model says of new data."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import erfc
from jaxtyping import Array, Bool, Float, Key, Real

from laplacebook.base.namespace import Numbers
from laplacebook.base.quick import jit_quickly, numbers_in
from laplacebook.base.weights import USABLE, pareto_k
from laplacebook.model.arguments import Call
from laplacebook.model.density import ModelDensity
from laplacebook.predictive.outcomes import outcome_at


def _numbers(density: ModelDensity, new: Call, draws: Array, *_: Any) -> int:
    return len(draws) * (numbers_in(new) + draws.shape[1])


class Averages(NamedTuple):
    """Over draws of the latent sites, of an outcome's mean and variance given them.

    Attributes:
        mean: of the mean, shape (*N); of an angle the direction of the mean of exp(i y).
        epistemic: the variance of the mean; of an angle what 1 - |E exp(i y)| is above the noise.
        noise: the mean of the variance.
        spread: the variance of one draw of which ``mean`` is an average, for its standard error.
        heaviest: of the mean and of the variance, each draw's value where one draw weighs most,
            shape (S, R).
    """

    mean: Any
    epistemic: Any
    noise: Any
    spread: Any
    heaviest: tuple[Any, Any]


@partial(jit_quickly, work=_numbers, static_argnames=["site"])
def outcome_over_draws(
    density: ModelDensity,
    new: Call,
    draws: Float[Array, "S D"],
    site: str | None,
    key: Key[Array, ""] | None = None,
) -> Averages:
    """Averages over draws of the outcome's mean and of its variance.

    Args:
        density: the model and the arguments that it was fitted to.
        new: a call of the same model with the new arguments.
        draws: of the latent sites, shape (S, D).
        site: the observed site; needed if there are several.
        key: for the new entries of larger plates, of each draw its own; without one there may be none.
    """
    kind = jax.eval_shape(partial(outcome_at, site=site), density, new, draws[0], key=key).kind

    def at(number: Array) -> tuple[Any, Array]:
        of_draw = None if key is None else jax.random.fold_in(key, number)
        outcome = outcome_at(density, new, draws[number], site, of_draw)
        if kind != "angle":
            return outcome.mean, outcome.variance
        length = 1 - outcome.variance
        cosine, sine = length * jnp.cos(outcome.mean), length * jnp.sin(outcome.mean)
        return (cosine, sine, cosine + sine), outcome.variance

    numbers = jnp.arange(len(draws))
    found = _moments(at, numbers)
    (mean, noise), (spread, _) = found.mean, found.variance
    if kind == "angle":
        return _of_angles(mean, spread, noise)
    return Averages(mean, spread, noise, spread, _heaviest(at, numbers, found))


def _of_angles(mean: tuple, spread: tuple, noise: Array) -> Averages:
    """From moments of cosine, sine and their sum."""
    (cosine, sine, _), (of_cosine, of_sine, of_sum) = mean, spread
    length = jnp.hypot(cosine, sine)
    along, across = cosine / length, sine / length
    covariance = (of_sum - of_cosine - of_sine) / 2
    sideways = across**2 * of_cosine + along**2 * of_sine - 2 * along * across * covariance
    seen = length > 8 * jnp.finfo(length.dtype).eps
    direction = jnp.where(seen, jnp.arctan2(sine, cosine), jnp.nan)
    epistemic, nothing = jnp.maximum(1 - noise - length, 0), jnp.zeros((1, 0))
    error = jnp.maximum(sideways, 0) / length**2
    return Averages(direction, epistemic, noise, error, (nothing, nothing))


_DEAR = 4  # A normal number is drawn, and its probability computed, in as long as so many others.
_KEPT = 2**22  # values of all draws in memory; of more, some are computed again
_LOOKED_AT = 4  # numbers of an outcome, of which the tails over the draws are looked at


def _heaviest(at: Callable[[Array], Any], draws: Array, found: "_Moments") -> Any:
    """Each draw's value of the numbers that a single draw moves most, in standard deviations."""

    def most(far: Array, variance: Array) -> Array:
        score = jnp.where(variance > 0, far / jnp.sqrt(variance), 0)
        score = jnp.ravel(jnp.where(jnp.isfinite(variance), score, jnp.inf))
        return jax.lax.top_k(score, min(_LOOKED_AT, score.size))[1]

    index = jax.tree.map(most, found.farthest, found.variance)

    def some(values: Any) -> Any:
        return jax.tree.map(lambda x, i: jnp.ravel(x)[i], values, index)

    if found.values is not None:
        return jax.vmap(some)(found.values)
    return jax.lax.map(lambda u: some(at(u)), draws)


def told_below(num_samples: int) -> float:
    """The k-hat up to which draws tell an average; of few, k-hat is itself known to 0.3 or worse.

    Args:
        num_samples: how many draws.
    """
    return USABLE if num_samples >= 500 else 1.0


def tail_over_draws(values: Float[Numbers, "S R"]) -> float:
    """The largest Pareto k-hat of several averages.

    Args:
        values: of each draw, around whose medians the tails are looked at.

    Returns:
        k-hat; minus infinity where no draw has a fiftieth of the variance, and there is no tail.
    """
    eps = np.finfo(np.asarray(values).dtype).eps
    values = np.asarray(values, float)
    values = values[:, np.isfinite(values).all(axis=0)]  # what is infinite is so as an average
    apart = abs(values - np.median(values, axis=0))
    farthest = apart.max(axis=0, initial=0)
    apart = apart[:, farthest > 1e3 * eps * abs(values).max(axis=0, initial=0)]
    relative = apart / apart.max(axis=0, initial=0)
    heavy = np.sum(relative**2, axis=0) < 50
    with np.errstate(divide="ignore"):
        found = [pareto_k(np.log(column)) for column in apart.T[heavy]]
    return max(found, default=-np.inf)


def are_told(*values: Array, limit: float) -> Bool[Array, " 2"]:
    """Whether draws tell averages, within a program: by a callback.

    Args:
        values: of each average, as :func:`tail_over_draws` has them.
        limit: of k-hat.
    """

    def look(*values: Any) -> np.ndarray:
        return np.array([tail_over_draws(np.asarray(x)) <= limit for x in values])

    shape = jax.ShapeDtypeStruct((len(values),), bool)
    return jax.pure_callback(look, shape, *values, vmap_method="sequential")


@partial(jit_quickly, work=lambda logits, _, __, keys: _DEAR * logits.size * len(keys))
def outputs_over_draws(
    logits: Float[Array, "*N"],
    variance: Float[Array, "*N"],
    covariance: Float[Array, "*M C C"] | None,
    keys: Key[Array, " S"],
) -> Averages:
    """Averages over draws of the logits of probabilities; of classes with covariance.

    Args:
        logits: their means, shape (*N), or (*N, C) of classes.
        variance: of the same shape.
        covariance: of the classes of a row, shape (*N, C, C); None for two classes.
        keys: one a draw.

    Returns:
        Averages of the shape of the logits; ``heaviest`` of none, since probabilities have no tail.
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
    found = _moments(lambda key: link(jax.random.normal(key, logits.shape, logits.dtype)), keys)
    mean, spread, nothing, S = found.mean, found.variance, jnp.zeros((1, 0)), len(keys)
    between = spread * (S - 1) / S if S > 1 else 0
    noise = jnp.maximum(mean * (1 - mean) - between, 0)  # the mean of p (1 - p)
    return Averages(mean, spread, noise, spread, (nothing, nothing))


class _Moments(NamedTuple):
    """Of each array that a function of a draw returns; every value too where they are few."""

    mean: Any
    variance: Any
    farthest: Any
    values: Any


def _moments(at: Callable[[Array], Any], draws: Array) -> _Moments:
    """Mean and variance over draws (Welford), and how far from the mean the farthest draw is."""
    shapes = jax.eval_shape(at, draws[0])
    few = len(draws) * sum(x.size for x in jax.tree.leaves(shapes)) <= _KEPT

    def add(sums: tuple, numbered: tuple) -> tuple:
        (mean, square, low, high), (number, draw) = sums, numbered
        value = at(draw)
        after = jax.tree.map(lambda x, m: m + (x - m) / number, value, mean)
        square = jax.tree.map(lambda s, x, m, a: s + (x - m) * (x - a), square, value, mean, after)
        low, high = jax.tree.map(jnp.minimum, low, value), jax.tree.map(jnp.maximum, high, value)
        return (after, square, low, high), value if few else None

    def filled(value: float) -> Any:
        return jax.tree.map(lambda x: jnp.full(x.shape, value, x.dtype), shapes)

    numbers = jnp.arange(1, len(draws) + 1)
    start = filled(0.0), filled(0.0), filled(jnp.inf), filled(-jnp.inf)
    values: Any  # None, if they are many
    sums, values = jax.lax.scan(add, start, (numbers, draws))
    mean, squares, low, high = sums
    mean = jax.tree.map(lambda m, x: jnp.where(jnp.isposinf(x), x, m), mean, high)
    farthest = jax.tree.map(lambda m, a, b: jnp.maximum(b - m, m - a), mean, low, high)
    variance = jax.tree.map(lambda s: s / (len(draws) - 1), squares)
    return _Moments(mean, variance, farthest, values)


@partial(jit_quickly, static_argnames="number")
def standard_error(spread: Float[Array, "*N"], number: float) -> Float[Array, "*N"]:
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
def sigmoid_mean(mean: Real[Array, "*N"], variance: Real[Array, "*N"]) -> Float[Array, "*N"]:
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
    mean, variance = (jnp.asarray(part, jnp.result_type(part, float)) for part in (mean, variance))
    variance = jnp.where(variance >= 0, variance, jnp.nan)
    dtype = jnp.result_type(mean, variance)

    def term(of_normal: Array, weight: Array) -> Array:
        return weight / 2 * erfc(-mean / jnp.sqrt(2 * (of_normal + variance)))

    def add(total: Array, normal_and_weight: tuple) -> tuple[Array, None]:
        return total + term(*normal_and_weight), None

    pairs = jnp.asarray(_VARIANCES, dtype), jnp.asarray(_WEIGHTS, dtype)
    first = term(*(part[0] for part in pairs))
    return jax.lax.scan(add, first, tuple(part[1:] for part in pairs), unroll=4)[0]


@jit_quickly
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


@jit_quickly
def probit_of_classes(
    mean: Float[Array, "*N C"], variance: Float[Array, "*N C"]
) -> Float[Array, "*N C"]:
    """The softmax of logits, each divided by (1 + pi variance / 8)^(1/2) (Gibbs 1997).

    Args:
        mean: of the logits.
        variance: of each.

    Returns:
        Probabilities, of that shape.
    """
    return jax.nn.softmax(mean / jnp.sqrt(1 + np.pi / 8 * variance))
