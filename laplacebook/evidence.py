"""The evidence by draws: from the prior, or from the approximation."""

from collections.abc import Callable
from math import lgamma, log, nan
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from laplacebook.batches import at_many
from laplacebook.checks import require_number
from laplacebook.density import ModelDensity
from laplacebook.errors import NonFinite, UnsupportedModel
from laplacebook.estimate import Estimate, log_mean
from laplacebook.pareto import pareto_k, usable_below
from laplacebook.precision import Precision
from laplacebook.program import name_of
from laplacebook.requirements import require_fit, require_proper
from laplacebook.result import LaplaceApproximation

__all__ = [
    "defined",
    "importance_sampling",
    "importance_weights",
    "mean_of_weights",
    "prior_sampling",
]

_NORMAL = 1000  # degrees of freedom


def prior_sampling(
    target: Callable | LaplaceApproximation,
    *args: Any,
    key: Key[Array, ""],
    num_samples: int = 100_000,
    progress_bar: bool | None = None,
    **kwargs: Any,
) -> Estimate:
    """The log evidence as the mean of the likelihood over draws from the prior.

    log p(D) = log E[p(D | theta)], theta from the prior. Unbiased on the scale of the evidence, and
    in need of many draws where the posterior is much narrower than the prior.

    In the book: :eq:`sigmoid-coin-mc` and :eq:`sigmoid-coin-standard-error` of
    :doc:`/book/sigmoid-coin`.

    Args:
        target: a NumPyro model, or an approximation of one.
        args: the model's positional arguments; none for an approximation.
        key: a JAX random key.
        num_samples: S, how many draws.
        progress_bar: shown after two seconds; by default where standard error is a terminal.
        kwargs: the model's keyword arguments; none for an approximation. One that is named like an
            option of this function goes through ``functools.partial``.

    Returns:
        An :class:`Estimate` of log p(D). Its error is infinite where fewer than ten effective draws
        hit the posterior, or where Pareto k-hat of the likelihoods says that no error can be told
        from them, as in :func:`~laplacebook.importance_sampling`.

    Raises:
        ValueError: ``num_samples`` is not a positive integer.
        TypeError: arguments for a model are given beside an approximation.
        UnsupportedModel: a prior is improper, or ``target`` a plain density: nothing to draw from;
            or the model brings a seed of its own.
        NonFinite: the likelihood is NaN at a draw.

    >>> import numpyro, numpyro.distributions as dist
    >>> def coin(y):
    ...     theta = numpyro.sample("theta", dist.Beta(2, 2))
    ...     numpyro.sample("y", dist.Bernoulli(theta).expand([9]).to_event(1), obs=y)
    >>> y = jnp.array([1, 1, 1, 1, 1, 1, 1, 1, 0])
    >>> prior_sampling(coin, y, key=jax.random.key(0))  # exactly log(1/110) = -4.7005
    -4.699 ± 0.004
    """
    require_number("num_samples", num_samples)
    if isinstance(target, LaplaceApproximation):
        if args or kwargs:
            raise TypeError("An approximation knows the arguments of its model: give it key= only.")
        density = target.density
    else:
        density = ModelDensity(target, args, kwargs)
    require_proper(density)
    keys = jax.random.split(key, num_samples)
    try:
        moves = _moves(density, key)
        weights = at_many(_draw_log_likelihood, (density,), keys, progress_bar)
    except NotImplementedError as error:
        raise _no_sampler(density) from error
    weights = jnp.where(moves, defined(weights, density, "draws from the prior"), jnp.nan)
    return _mean_of_checked(weights)


def _draw_log_likelihood(density: ModelDensity, key: Array) -> Array:
    return density.draw_log_likelihood(key)


def _moves(density: ModelDensity, key: Array) -> Array:
    """Whether draws depend on the key: not so in a model that brings a seed of its own.

    Raises:
        UnsupportedModel: they do not. Not within a compiled program.
    """
    draws = {n: v for n, v in _draws(density, jax.random.split(key, 8)).items() if v.size}
    moves = {name: jnp.any(values != values[:1]) for name, values in draws.items()}
    for name, does in moves.items():
        if not isinstance(does, jax.core.Tracer) and not does:
            raise UnsupportedModel(
                f"All draws of '{name}' from the prior are the same, whatever the key.",
                causes=[
                    "the model is wrapped in numpyro.handlers.seed, which decides its draws",
                    "a prior so narrow, or so near to its edge, that its draws round to one number",
                ],
                remedy="pass the model itself; the key does what a seed would do.",
            )
    return jnp.all(jnp.stack([*moves.values()]))


@jax.jit
def _draws(density: ModelDensity, keys: Array) -> dict[str, Array]:
    return jax.vmap(density.draw)(keys)


def _no_sampler(density: ModelDensity) -> UnsupportedModel:
    return UnsupportedModel(
        f"{name_of(density.model)} has no prior to draw from: a latent site has no sampler.",
        causes=["a plain density", "a distribution that NumPyro can evaluate but not draw from"],
        remedy="use importance_sampling, which draws from the approximation.",
    )


def importance_sampling(
    approx: LaplaceApproximation,
    key: Key[Array, ""],
    num_samples: int = 10_000,
    *,
    proposal: str = "gaussian",
    degrees_of_freedom: float = 5.0,
    progress_bar: bool | None = None,
) -> Estimate:
    """The log evidence by importance sampling, with the approximation as proposal.

    log p(D) = log E[p(D, u) / q(u)], u from q. Where the posterior is q the weights are equal, and
    the estimate is exact. Where the posterior has heavier tails than q the
    variance of the weights may be infinite: then a Student-t proposal is safer, and
    :func:`~laplacebook.diagnose` says so. What no draw reaches is not in the estimate, nor in its
    error: of several modes far apart it sees one.

    In the book: :eq:`sigmoid-coin-importance` and :prf:ref:`sigmoid-coin-variance` of
    :doc:`/book/sigmoid-coin`.

    Args:
        approx: the approximation q = N(u_MAP, A^-1).
        key: a JAX random key.
        num_samples: S, how many draws.
        proposal: ``"gaussian"``, q itself; or ``"student_t"``, the multivariate Student-t
            distribution about u_MAP with the scale matrix A^-1.
        degrees_of_freedom: of the Student-t distribution, between 1 and 1,000; smaller is heavier.
        progress_bar: shown after two seconds; by default where standard error is a terminal.

    Returns:
        An :class:`Estimate` of log p(D). Its error is infinite where fewer than ten effective draws
        carry the sum, or where Pareto k-hat of the weights says that no error can be told from them
        (above 0.7, or less for few draws; not looked at for fewer than 25 draws, nor within a
        compiled program). Of few draws a finite error, too, tends to be too small.

    Raises:
        ValueError: ``num_samples`` is not a positive integer, there is no such proposal, or
            ``degrees_of_freedom`` is none; ``approx`` is a batch.
        UnsupportedModel: a prior is improper, or left out (``maximum_likelihood``).
        NonFinite: the log joint is NaN at a draw.
        LaplaceError: the fit failed.

    >>> import numpyro, numpyro.distributions as dist
    >>> from laplacebook import laplace
    >>> def coin(y):
    ...     theta = numpyro.sample("theta", dist.Beta(2, 2))
    ...     numpyro.sample("y", dist.Bernoulli(theta).expand([9]).to_event(1), obs=y)
    >>> approx = laplace(coin, jnp.array([1, 1, 1, 1, 1, 1, 1, 1, 0]))
    >>> importance_sampling(approx, jax.random.key(0))  # exactly log(1/110) = -4.7005
        -4.699 ± 0.004
    """
    if proposal not in ("gaussian", "student_t"):
        raise ValueError(f'proposal is "gaussian" or "student_t", not {proposal!r}')
    if not (isinstance(degrees_of_freedom, Real) and 1 <= degrees_of_freedom <= _NORMAL):
        raise ValueError(
            f"degrees_of_freedom must be a number between 1 and {_NORMAL}, not "
            f"{degrees_of_freedom!r}; with more of them a Student-t distribution is the Gaussian"
        )
    require_fit(approx)
    require_proper(approx.density)
    heavy = degrees_of_freedom if proposal == "student_t" else None
    weights = importance_weights(approx, key, num_samples, heavy, progress_bar)
    return _mean_of_checked(weights)


def _mean_of_checked(weights: Float[Array, " S"]) -> Estimate:
    compiled = isinstance(weights, jax.core.Tracer)
    return mean_of_weights(weights, nan if compiled else pareto_k(weights))


def mean_of_weights(weights: Float[Array, " S"], k: float) -> Estimate:
    """The logarithm of the mean of importance weights, with the error that their tail allows.

    Args:
        weights: log weights, shape (S,).
        k: their Pareto k-hat; NaN where it is not known.

    Returns:
        The :class:`Estimate`, with an infinite error where k says that none can be told.
    """
    estimate = log_mean(weights)
    if k > usable_below(weights.size):
        return Estimate(estimate.value, jnp.full_like(estimate.value, jnp.inf))
    return estimate


def importance_weights(
    approx: LaplaceApproximation,
    key: Key[Array, ""],
    num_samples: int,
    degrees_of_freedom: float | None = None,
    progress_bar: bool | None = None,
) -> Float[Array, " S"]:
    """log p(D, u) - log q(u) at draws u from q: what :func:`importance_sampling` averages.

    Args:
        approx: the approximation.
        key: a JAX random key.
        num_samples: S.
        degrees_of_freedom: of a Student-t proposal; None for the Gaussian one.
        progress_bar: as in :func:`importance_sampling`.

    Returns:
        The log weights, shape (S,).
    """
    require_number("num_samples", num_samples)
    require_fit(approx)
    heaviness = None
    if degrees_of_freedom is not None:
        constant = _log_constant(approx.mode_vector.size, float(degrees_of_freedom))
        heaviness = jnp.asarray([degrees_of_freedom, constant], approx.mode_vector.dtype)
    proposal = (approx.density, approx.mode_vector, approx.precision, heaviness)
    keys = jax.random.split(key, num_samples)
    weights = at_many(_importance_weight, proposal, keys, progress_bar)
    return defined(weights, approx.density, "draws from the approximation")


def _importance_weight(
    density: ModelDensity, mode: Array, precision: Precision, heaviness: Any, key: Array
) -> Array:
    to_normal, to_scale = jax.random.split(key)
    z = jax.random.normal(to_normal, mode.shape, mode.dtype)
    if heaviness is None:
        return density.log_joint(mode + precision.whitened(z)) + precision.log_volume() + z @ z / 2
    nu, constant = heaviness
    t = z / jnp.sqrt(jax.random.chisquare(to_scale, nu, dtype=mode.dtype) / nu)
    log_q = constant - precision.log_volume() - (nu + mode.size) / 2 * jnp.log1p(t @ t / nu)
    return density.log_joint(mode + precision.whitened(t)) - log_q


def _log_constant(dimension: int, nu: float) -> float:
    """Of the density of a Student-t vector of unit scale, over (2 pi)^(-D/2); in full precision."""
    return lgamma((nu + dimension) / 2) - lgamma(nu / 2) - dimension / 2 * log(nu / 2)


def defined(values: Float[Array, " S"], density: ModelDensity, where: str) -> Float[Array, " S"]:
    """The values, none of which is NaN or plus infinity.

    Args:
        values: of the log joint or log likelihood, or what is made of them.
        density: whose they are.
        where: they were computed, in words.

    Raises:
        NonFinite: one of them is. Not within a compiled program.
    """
    bad = jnp.isnan(values) | jnp.isposinf(values)
    if isinstance(bad, jax.core.Tracer) or not bad.any():
        return values
    raise NonFinite(
        f"The log density of {name_of(density.model)} is NaN or infinite at {int(bad.sum()):,} of "
        f"{bad.size:,} {where}.",
        causes=[
            "a parameter of a distribution that is not valid there, such as a scale a + b*x below 0",
            "an overflow far from the data, such as exp(u) in a rate, under a vague prior",
        ],
        remedy="keep parameters valid everywhere (softplus or exp of a linear function, clipped "
        "before it overflows), or make the prior say where they can be.",
    )
