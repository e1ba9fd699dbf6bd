"""The latent sites of a NumPyro model as coordinates of R^D, or why the model has none."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import Array
from numpyro import handlers
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.distribution import validation_enabled
from numpyro.infer.initialization import init_to_feasible

from laplacebook.errors import UnsupportedModel

__all__ = ["Site", "find_sites"]


@dataclass(frozen=True)
class Site:
    """A latent site: its name, its shape as coordinates of R^D, and that of its value."""

    name: str
    shape: tuple[int, ...]
    value_shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many coordinates of R^D the site takes."""
        return prod(self.shape)

    def coordinate_names(self) -> list[str]:
        """``["w[0, 0]", "w[0, 1]", ...]``, or ``["theta"]`` for a scalar."""
        return [f"{self.name}{list(index) if index else ''}" for index in np.ndindex(self.shape)]


def find_sites(
    model: Callable, args: tuple, kwargs: dict, space: str
) -> tuple[tuple[Site, ...], frozenset[str]]:
    """Run a model once, abstractly, and look at its sites.

    Args:
        model: a NumPyro model.
        args: its positional arguments.
        kwargs: its keyword arguments.
        space: ``"unconstrained"`` or ``"constrained"``.

    Returns:
        The latent sites in the order of the model, and the names of all its sites.

    Raises:
        UnsupportedModel: the model has no density on R^D.
    """
    latent: list[Site] = []
    names: set[str] = set()

    def run_model() -> None:
        seeded = handlers.seed(_no_randomness(model), jax.random.key(0))
        started = handlers.substitute(seeded, substitute_fn=_feasible)
        with validation_enabled(False):
            trace = handlers.trace(started).get_trace(*args, **kwargs)
        latent.extend(_latent_sites(trace, space))
        names.update(trace)

    jax.eval_shape(run_model)
    return tuple(latent), frozenset(names)


def _feasible(site: dict) -> Array | None:
    return init_to_feasible(site) if site["type"] == "sample" else None


class _no_randomness(numpyro.primitives.Messenger):
    def process_message(self, message: dict) -> None:
        if message["type"] == "prng_key":
            raise UnsupportedModel(
                "The model draws random numbers of its own (numpyro.prng_key), so it has no one log joint.",
                causes=["dropout or another stochastic layer", "data simulated within the model"],
                remedy="switch the randomness off, or make each random number a latent site (numpyro.sample).",
            )


def _latent_sites(trace: dict, space: str) -> list[Site]:
    for site in trace.values():
        if (
            site["type"] == "plate"
            and site["args"][1] is not None
            and site["args"][1] < site["args"][0]
        ):
            raise UnsupportedModel(
                f"The plate '{site['name']}' takes {site['args'][1]} of its {site['args'][0]} elements at random.",
                causes=["subsample_size= was meant for stochastic variational inference"],
                remedy="leave subsample_size out: the Laplace approximation needs all data at once.",
            )
        if site["type"] in ("param", "mutable"):
            raise UnsupportedModel(
                f"'{site['name']}' is a numpyro.{site['type']}: it has no prior.",
                remedy="make it a latent site (numpyro.sample), or write its value into the model.",
            )
    latent = [s for s in trace.values() if s["type"] == "sample" and not s["is_observed"]]
    if not latent:
        raise UnsupportedModel(
            "The model has no latent site: there is nothing to approximate.",
            causes=["every sample site has obs=", "the function is not a NumPyro model"],
            remedy="leave out obs= for the quantities to be inferred.",
        )
    return [
        Site(site["name"], _coordinates_shape(site, space), jnp.shape(site["value"]))
        for site in latent
    ]


def _coordinates_shape(site: dict, space: str) -> tuple[int, ...]:
    name, support = site["name"], site["fn"].support
    if support.is_discrete:
        raise UnsupportedModel(
            f"The latent site '{name}' is discrete ({type(site['fn']).__name__}): it has no curvature.",
            causes=[
                "a mixture's labels, a change point or a count was left as a latent site",
                "obs= was forgotten",
            ],
            remedy="sum it out (numpyro.distributions.MixtureSameFamily does so for mixtures), or observe it.",
        )
    shape = jnp.shape(site["value"])
    if space == "constrained":
        base = support
        while isinstance(base, constraints.independent):
            base = base.base_constraint
        if base.event_dim:
            raise UnsupportedModel(
                f"The support of '{name}', {support}, is not a product of intervals, so its coordinates are not free.",
                remedy='use space="unconstrained".',
            )
        return shape
    try:
        return tuple(biject_to(support).inverse_shape(shape))
    except NotImplementedError as error:
        raise UnsupportedModel(
            f"NumPyro has no bijection from R^D to the support of '{name}', {support}.",
            remedy="write the site as a transform of sites that have one.",
        ) from error
