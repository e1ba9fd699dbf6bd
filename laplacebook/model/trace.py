"""What to read off the trace of a NumPyro model."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from laplacebook.base.errors import UnsupportedModel
from laplacebook.model.distributions import holds, innermost, parameters, supports_data

_WANTED = ContextVar("integrals wanted", default=True)


class Terms(NamedTuple):
    """The log joint at one point, in its parts.

    ``log_prior`` includes the log Jacobian in the unconstrained space; ``values`` are the latent
    sites on the scale on which the user wrote the model; ``room`` is how far each coordinate is
    from the nearest end of its interval, infinite in the unconstrained space.
    """

    log_likelihood: Float[Array, ""]
    log_prior: Float[Array, ""]
    values: dict[str, Array]
    room: Float[Array, " D"]


def type_of(u: Any) -> Any:
    """Of the numbers of a vector, or of its parts."""
    return jnp.result_type(*jax.tree.leaves(u))


def valid_parameters(trace: Mapping[str, dict]) -> Bool[Array, ""]:
    """Whether all parameters of all distributions of a trace of a model are valid, and no scale is negative."""
    checks = [p.valid for site in _samples(trace) for p in parameters(site["fn"])]
    checks += [~_turned_over(site) for site in _samples(trace)]
    return reduce(jnp.logical_and, map(holds, checks), jnp.ones((), bool))


def _turned_over(site: dict) -> Bool[Array, "..."]:
    """Where a handler scales the log density of a site by a negative number: the likely is unlikely there."""
    return jnp.asarray(1.0 if site["scale"] is None else site["scale"]) < 0


def supported_data(trace: Mapping[str, dict]) -> Bool[Array, ""]:
    """Whether all data of a trace of a model lie in the supports of their distributions."""
    observed = (site for site in _samples(trace) if site["is_observed"])
    return reduce(jnp.logical_and, map(supports_data, observed), jnp.ones((), bool))


def _samples(trace: Mapping[str, dict]) -> Iterator[dict]:
    return (site for site in trace.values() if site["type"] == "sample")


def where_defined(trace: dict, log_likelihood: Array) -> Array:
    """The log likelihood; minus infinity beside the support, NaN where parameters are not valid."""
    supported = jnp.where(supported_data(trace), log_likelihood, -jnp.inf)
    return jnp.where(valid_parameters(trace), supported, jnp.nan)


def room(site: dict, dtype: Any) -> Float[Array, " size"]:
    """How far each element of a latent site is from the nearest end of its interval."""
    base, value = innermost(site["fn"].support), site["value"]
    lower, upper = getattr(base, "lower_bound", -jnp.inf), getattr(base, "upper_bound", jnp.inf)
    return jnp.ravel(jnp.minimum(value - lower, upper - value)).astype(dtype)


def log_jacobian(site: dict) -> Array:
    """What NumPyro records of a bijection: whole, whatever handler scales or masks the site."""
    fn = site["fn"]
    return jnp.sum(fn.base_dist.log_factor if hasattr(fn, "base_dist") else fn.log_factor)


def refuse_complex(log_probs: Mapping[str, Array]) -> None:
    """Refuse log densities that are no real numbers.

    Raises:
        UnsupportedModel: one of them is complex.
    """
    for name, log_prob in log_probs.items():
        if jnp.iscomplexobj(log_prob):
            raise UnsupportedModel(
                f"The log density of site '{name}' is a complex number.",
                causes=["complex data: NumPyro's distributions are of real numbers"],
                remedy="observe the real and the imaginary part as two sites.",
            )


@contextmanager
def with_integrals(wanted: bool) -> Iterator[None]:
    """Where they are wanted, or not: as where only the values of sites are asked for, and no log density."""
    token = _WANTED.set(wanted)
    try:
        yield
    finally:
        _WANTED.reset(token)


def integrals_are_wanted() -> bool:
    """Whether a marginal model is to add its integral; else zero stands in its place."""
    return _WANTED.get()
