"""A NumPyro model and its arguments as one log joint on R^D.

The only file that touches NumPyro's handlers.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import Array, Float
from numpyro import handlers
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.distribution import validation_enabled
from numpyro.infer.initialization import init_to_feasible
from numpyro.infer.util import _unconstrain_reparam, compute_log_probs, unconstrain_fn

from laplacebook.errors import UnsupportedModel
from laplacebook.program import Fixed, is_data

__all__ = ["ModelDensity", "Site", "Terms"]

_FAR = 13.8  # logit of 1e-6 from the edge


class Terms(NamedTuple):
    """The log joint at one point, in its parts.

    ``log_prior`` includes the log Jacobian in the unconstrained space; ``values`` are the latent
    sites on the scale on which the user wrote the model.
    """

    log_likelihood: Float[Array, ""]
    log_prior: Float[Array, ""]
    values: dict[str, Array]


@dataclass(frozen=True)
class Site:
    """A latent site: its name and its shape as coordinates of R^D."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many coordinates of R^D the site takes."""
        return prod(self.shape)

    def coordinate_names(self) -> list[str]:
        """``["w[0, 0]", "w[0, 1]", ...]``, or ``["theta"]`` for a scalar."""
        return [f"{self.name}{list(index) if index else ''}" for index in np.ndindex(self.shape)]


@jax.tree_util.register_pytree_node_class
class ModelDensity:
    """log p(D, theta) of ``model(*args, **kwargs)`` as a function of a vector u in R^D.

    As a pytree its leaves are the arrays among the arguments (data); everything else (the model,
    Python numbers, strings, callables) is part of the program, and a new value compiles anew.

    Args:
        model: a NumPyro model whose latent sites are continuous.
        args: its positional arguments.
        kwargs: its keyword arguments.
        space: ``"unconstrained"``: u is the latents through NumPyro's bijections to R^D, and the
            log joint includes the log Jacobian; ``"constrained"``: u is the latents themselves,
            and the log joint is minus infinity outside their support.

    Raises:
        ValueError: ``space`` is neither.
    """

    def __init__(
        self,
        model: Callable,
        args: tuple = (),
        kwargs: Mapping | None = None,
        space: str = "unconstrained",
    ) -> None:
        if space not in ("unconstrained", "constrained"):
            raise ValueError(f'space is "unconstrained" or "constrained", not {space!r}')
        leaves, structure = jax.tree.flatten((tuple(args), dict(kwargs or {})))
        self._data = [leaf if is_data(leaf) else None for leaf in leaves]
        fixed = tuple(None if is_data(leaf) else Fixed(leaf) for leaf in leaves)
        self._program = (Fixed(model), structure, fixed, space)

    def tree_flatten(self) -> tuple[tuple[list], tuple]:
        """The data, and the program that they go into."""
        return (self._data,), self._program

    @classmethod
    def tree_unflatten(cls, program: tuple, children: tuple[list]) -> "ModelDensity":
        """The inverse of :meth:`tree_flatten`."""
        density = object.__new__(cls)
        (density._data,) = children
        density._program = program
        return density

    @property
    def model(self) -> Callable:
        """The NumPyro model."""
        return self._program[0].value

    @property
    def space(self) -> str:
        """The space of u, ``"unconstrained"`` or ``"constrained"``."""
        return self._program[3]

    @property
    def arguments(self) -> tuple[tuple, dict]:
        """The model's positional and keyword arguments."""
        _, structure, fixed, _ = self._program
        leaves = [d if f is None else f.value for d, f in zip(self._data, fixed, strict=True)]
        return jax.tree.unflatten(structure, leaves)

    @functools.cached_property
    def sites(self) -> tuple[Site, ...]:
        """The latent sites in the order of the model, which is the order of the coordinates.

        Raises:
            UnsupportedModel: the model has no density on R^D.
        """
        found: list[Site] = []

        def run_model() -> None:
            model = handlers.seed(_no_randomness(self.model), jax.random.key(0))
            model = handlers.substitute(model, substitute_fn=_feasible)
            args, kwargs = self.arguments
            with validation_enabled(False):
                trace = handlers.trace(model).get_trace(*args, **kwargs)
            found.extend(_latent_sites(trace, self.space))

        jax.eval_shape(run_model)
        return tuple(found)

    @property
    def dimension(self) -> int:
        """D, the number of coordinates."""
        return sum(site.size for site in self.sites)

    def coordinate_names(self) -> list[str]:
        """One name a coordinate, such as ``"w[2]"``."""
        return [name for site in self.sites for name in site.coordinate_names()]

    def unravel(self, u: Float[Array, " D"]) -> dict[str, Array]:
        """A vector of R^D as a dict of site -> array."""
        parts, offset = {}, 0
        for site in self.sites:
            parts[site.name] = jnp.reshape(u[offset : offset + site.size], site.shape)
            offset += site.size
        return parts

    def ravel(self, values: Mapping[str, Any]) -> Float[Array, " D"]:
        """The inverse of :meth:`unravel`."""
        return jnp.concatenate(
            [jnp.ravel(jnp.asarray(values[site.name], float)) for site in self.sites]
        )

    def start(self, values: Mapping[str, Any] | None = None) -> Float[Array, " D"]:
        """Where the search begins: ``values`` of the latent sites, by default the image of u = 0."""
        unconstrained = self.space == "unconstrained"
        if values is None:
            if unconstrained:
                return jnp.zeros(self.dimension, float)
            origin = ModelDensity(self.model, *self.arguments)
            return self.ravel(origin.terms(origin.start()).values)
        names = {site.name for site in self.sites}
        if set(values) != names:
            raise ValueError(
                f"start must name the latent sites {sorted(names)}, not {sorted(values)}"
            )
        values = {name: jnp.asarray(value, float) for name, value in values.items()}
        return self.ravel(
            unconstrain_fn(self.model, *self.arguments, values) if unconstrained else values
        )

    def terms(self, u: Float[Array, " D"]) -> Terms:
        """Log likelihood, log prior and latent values at u."""
        trace, log_probs = self.trace(u)
        latent = [site.name for site in self.sites]
        observed = [n for n in log_probs if trace[n]["is_observed"] and n not in _jacobians(latent)]
        log_likelihood = sum((log_probs[n] for n in observed), start=jnp.zeros((), u.dtype))
        prior = [log_probs[n] for n in log_probs if n not in observed]
        log_prior = sum(prior, start=jnp.zeros((), u.dtype))
        if self.space == "constrained":
            inside = [jnp.all(trace[n]["fn"].support(trace[n]["value"])) for n in latent]
            log_prior = jnp.where(jnp.all(jnp.stack(inside)), log_prior, -jnp.inf)
        return Terms(log_likelihood, log_prior, {n: trace[n]["value"] for n in latent})

    def loss(self, u: Float[Array, " D"]) -> tuple[Float[Array, ""], Terms]:
        """f(u) = -log p(D, theta), the function whose minimum is the mode, and its terms."""
        terms = self.terms(u)
        return -(terms.log_likelihood + terms.log_prior), terms

    def sites_at_edge(self, u: Float[Array, " D"]) -> list[str]:
        """The sites of which an element lies within a millionth of the edge of its support."""
        trace, _ = self.trace(u)
        edge = []
        for site in self.sites:
            support = trace[site.name]["fn"].support
            if support is not constraints.real and support is not constraints.real_vector:
                coordinates = biject_to(support).inv(trace[site.name]["value"])
                if not jnp.all(jnp.abs(coordinates) < _FAR):
                    edge.append(site.name)
        return edge

    def trace(self, u: Float[Array, " D"]) -> tuple[dict, dict[str, Array]]:
        """The model run with its latent sites at u: the trace, and the log density of each site."""
        latent = self.unravel(u)
        if self.space == "unconstrained":
            at = functools.partial(_unconstrain_reparam, latent)
            model = handlers.substitute(self.model, substitute_fn=at)
        else:
            model = handlers.substitute(self.model, data=latent)
        args, kwargs = self.arguments
        # What lies outside a support has density zero here; NumPyro would warn.
        with validation_enabled(False):
            log_probs, trace = compute_log_probs(model, args, kwargs, {})
        return trace, log_probs


def _feasible(site: dict) -> Array | None:
    return init_to_feasible(site) if site["type"] == "sample" else None


def _jacobians(latent: list[str]) -> set[str]:
    """The names under which NumPyro records the log Jacobian of a site."""
    return {f"_{name}_log_det" for name in latent}


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
                remedy="make it a latent site (numpyro.sample), or fix it with numpyro.handlers.substitute.",
            )
    latent = [s for s in trace.values() if s["type"] == "sample" and not s["is_observed"]]
    if not latent:
        raise UnsupportedModel(
            "The model has no latent site: there is nothing to approximate.",
            causes=["every sample site has obs=", "the function is not a NumPyro model"],
            remedy="leave out obs= for the quantities to be inferred.",
        )
    return [Site(site["name"], _coordinates_shape(site, space)) for site in latent]


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
