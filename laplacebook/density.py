"""A NumPyro model and its arguments as one log joint on R^D.

With :mod:`laplacebook.sites` the only file that touches NumPyro's handlers.
"""

import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import Array, Float
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.distributions.distribution import validation_enabled
from numpyro.infer.util import _unconstrain_reparam, compute_log_probs, unconstrain_fn

from laplacebook.errors import UnsupportedModel
from laplacebook.program import Fixed, is_data
from laplacebook.sites import Site, find_sites

__all__ = ["ModelDensity", "Terms", "supports_data"]


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
        if numpyro.primitives._PYRO_STACK:
            raise UnsupportedModel(
                "laplace was called within NumPyro handlers, which the fit would not see again.",
                remedy="wrap the model instead: laplace(numpyro.handlers.scale(model, ...), ...).",
            )
        leaves, structure = jax.tree.flatten((_in_order(args), _in_order(kwargs or {})))
        # A copy: the result goes on describing the data of the fit.
        self._data = [jnp.array(leaf) if is_data(leaf) else None for leaf in leaves]
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
    def _structure(self) -> tuple[tuple[Site, ...], frozenset[str]]:
        """The latent sites, and the names of all sites that the model itself has."""
        return find_sites(self.model, *self.arguments, self.space)

    @property
    def sites(self) -> tuple[Site, ...]:
        """The latent sites in the order of the model, which is the order of the coordinates.

        Raises:
            UnsupportedModel: the model has no density on R^D.
        """
        return self._structure[0]

    @property
    def dimension(self) -> int:
        """D, the number of coordinates."""
        return sum(site.size for site in self.sites)

    def coordinate_names(self) -> list[str]:
        """One name a coordinate, such as ``"w[2]"``."""
        return [name for site in self.sites for name in site.coordinate_names()]

    def print_by_coordinate(self, values: Mapping[str, Array]) -> list[str]:
        """Values of the sites, one a coordinate; empty where a site has fewer coordinates."""
        printed: list[str] = []
        for site in self.sites:
            same = site.shape == site.value_shape
            elements = [f"{x:.4g}" for x in np.ravel(values[site.name])]
            printed += elements if same else [""] * site.size
        return printed

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
        shapes = {site.name: site.value_shape for site in self.sites}
        if set(values) != set(shapes):
            raise ValueError(f"start must name the latent sites {list(shapes)}, not {list(values)}")
        values = {name: jnp.asarray(value, float) for name, value in values.items()}
        for name, value in values.items():
            if value.shape != shapes[name]:
                raise ValueError(f"start['{name}'] has shape {value.shape}, not {shapes[name]}")
        if unconstrained:
            with validation_enabled(False):
                values = unconstrain_fn(self.model, *self.arguments, values)
        return self.ravel(values)

    def terms(self, u: Float[Array, " D"]) -> Terms:
        """Log likelihood, log prior and latent values at u."""
        trace, log_probs = self.trace(u)
        latent, (_, names) = [site.name for site in self.sites], self._structure
        # NumPyro records a log Jacobian as an observed site of its own, which the model has not.
        observed = [n for n in log_probs if trace[n]["is_observed"] and n in names]
        prior = [log_probs[n] for n in log_probs if n not in observed]
        zero = jnp.zeros((), u.dtype)
        log_likelihood = sum((log_probs[n] for n in observed), start=zero)
        valid = jnp.all(jnp.stack([supports_data(trace[n]) for n in observed] + [jnp.array(True)]))
        room = jnp.full(u.shape, jnp.inf)
        if self.space == "constrained":
            room = jnp.concatenate([_room(trace[n], u.dtype) for n in latent])
            prior.append(jnp.where(jnp.all(room >= 0), 0, -jnp.inf))
        return Terms(
            jnp.where(valid, log_likelihood, jnp.nan),
            sum(prior, start=zero),
            {n: trace[n]["value"] for n in latent},
            room,
        )

    def loss(self, u: Float[Array, " D"]) -> tuple[Float[Array, ""], Terms]:
        """f(u) = -log p(D, theta), the function whose minimum is the mode, and its terms."""
        terms = self.terms(u)
        return -(terms.log_likelihood + terms.log_prior), terms

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


def supports_data(site: dict) -> Array:
    """Whether the data of an observed site lie in the support of its distribution."""
    inside, mask = site["fn"].support(site["value"]), getattr(site["fn"], "_mask", True)
    return jnp.all(inside | ~jnp.asarray(mask))


def _room(site: dict, dtype: Any) -> Float[Array, " size"]:
    """How far each element of a latent site is from the nearest end of its interval."""
    base = site["fn"].support
    while isinstance(base, constraints.independent):
        base = base.base_constraint
    value = site["value"]
    lower, upper = getattr(base, "lower_bound", -jnp.inf), getattr(base, "upper_bound", jnp.inf)
    return jnp.ravel(jnp.minimum(value - lower, upper - value)).astype(dtype)


def _in_order(tree: Any) -> Any:
    """The same arguments with dicts that keep their order, in which JAX would sort the keys."""
    if type(tree) is dict:
        return OrderedDict((key, _in_order(value)) for key, value in tree.items())
    if type(tree) in (list, tuple):
        return type(tree)(_in_order(value) for value in tree)
    return tree
