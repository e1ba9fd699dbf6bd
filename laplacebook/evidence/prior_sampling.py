"""The evidence by draws from the prior."""

import functools
import operator
from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, Key

from laplacebook.base.checks import require_number
from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.estimate import Estimate
from laplacebook.base.keys import split
from laplacebook.base.many_points import at_many
from laplacebook.base.namespace import Numbers
from laplacebook.base.pytrees import is_traced, loud, on_host
from laplacebook.base.quick import jit_quickly
from laplacebook.base.weights import defined, estimate_of
from laplacebook.fit.require_fit import require_proper
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.model.density import ModelDensity
from laplacebook.model.not_finite import require_entries


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
        TypeError: arguments for a model are given beside an approximation; ``key`` is no random key.
        UnsupportedModel: a prior is improper, or ``target`` a plain density: nothing to draw from;
            or the model brings a seed of its own.
        NonFinite: the likelihood is NaN at a draw.

    >>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist
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
        density = ModelDensity.of(target, args, kwargs)
        require_entries(density)
    require_proper(density)
    keys = split(key, num_samples)
    try:
        moves = _moves(density, key)
        weights = at_many(_draw_log_likelihood, (density,), keys, progress_bar)
    except NotImplementedError as error:
        raise _no_sampler(density) from error
    weights = defined(weights, density.name, "draws from the prior")
    return estimate_of(weights * loud(moves, weights.dtype))


def _draw_log_likelihood(density: ModelDensity, key: Array) -> Array:
    return density.draw_log_likelihood(key)


def _moves(density: ModelDensity, key: Array) -> Numbers:
    """Whether draws depend on the key: not so in a model that brings a seed of its own.

    Raises:
        UnsupportedModel: they do not. Not within a compiled program.
    """
    draws = {n: v for n, v in _draws(density, split(key, 8)).items() if v.size}
    moves = {name: (values != values[:1]).any() for name, values in on_host(draws).items()}
    for name, does in moves.items():
        if not is_traced(does) and not does:
            raise UnsupportedModel(
                f"All draws of '{name}' from the prior are the same, whatever the key.",
                causes=[
                    "the model is wrapped in numpyro.handlers.seed, which decides its draws",
                    "a prior so narrow, or so near to its edge, that its draws round to one number",
                ],
                remedy="pass the model itself; the key does what a seed would do.",
            )
    return functools.reduce(operator.and_, moves.values())


@jit_quickly
def _draws(density: ModelDensity, keys: Array) -> dict[str, Array]:
    return jax.vmap(density.draw)(keys)


def _no_sampler(density: ModelDensity) -> UnsupportedModel:
    return UnsupportedModel(
        f"{density.name} has no prior to draw from: a latent site has no sampler.",
        causes=["a plain density", "a distribution that NumPyro can evaluate but not draw from"],
        remedy="use importance_sampling, which draws from the approximation.",
    )
