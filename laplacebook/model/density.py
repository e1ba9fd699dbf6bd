"""A NumPyro model and its arguments as one log joint on R^D.

NumPyro's handlers run a model here, in ``sites``, ``outcomes``, ``known_sites``, ``other_starts``,
``marginalize`` and ``numpyro_and_arviz``, and nowhere else.
"""

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.distributions.distribution import validation_enabled
from numpyro.infer.util import _unconstrain_reparam, compute_log_probs

from laplacebook.base.pytrees import STATIC, is_traced, loud, register_dataclass
from laplacebook.base.quick import jit_quickly
from laplacebook.model.arguments import Call, of_partial
from laplacebook.model.labels import Labels
from laplacebook.model.sharding import Placement
from laplacebook.model.sites import Site, find_sites
from laplacebook.model.start import (
    is_inside,
    prior_centre,
    prior_draw,
    refuse_outside,
    require_start,
    start_arrays,
)
from laplacebook.model.trace import (
    Terms,
    log_jacobian,
    refuse_complex,
    room,
    supported_data,
    type_of,
    valid_parameters,
    where_defined,
    with_integrals,
)
from laplacebook.model.working_precision import InWorkingPrecision

_STRUCTURES: dict[tuple, tuple[tuple[Site, ...], frozenset[str], Labels]] = {}
_KEPT = 200  # of them
Coordinates = (
    Float[Array, " D"] | Mapping[str, Any]
)  # a vector, or its parts as ``unravel`` has them


@register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class ModelDensity:
    """log p(D, theta) of ``model(*args, **kwargs)`` as a function of a vector u in R^D, or of its parts.

    Attributes:
        call: the model, whose latent sites are continuous, and its arguments.
        space: ``"unconstrained"``: u is the latents through NumPyro's bijections to R^D, and the
            log joint includes the log Jacobian; ``"constrained"``: u is the latents themselves,
            and the log joint is minus infinity outside their support.
    """

    call: Call
    space: str = field(metadata=STATIC)

    method = "Laplace approximation"  # what is made of this density, in words
    function = "log joint"  # what its value is, in words
    without_prior = "improper"  # why a prior is none, in words
    has_data = True  # so that its value can be computed

    @classmethod
    def of(
        cls,
        model: Callable,
        args: tuple = (),
        kwargs: Mapping | None = None,
        space: str = "unconstrained",
    ) -> "ModelDensity":
        """The log joint of a NumPyro model and its arguments.

        Raises:
            ValueError: ``space`` has no such value.
            UnsupportedModel: the data do not fit into JAX's precision, or it is called within handlers.
        """
        if space not in ("unconstrained", "constrained"):
            raise ValueError(f'space is "unconstrained" or "constrained", not {space!r}')
        model, args, kwargs = of_partial(model, args, kwargs or {})
        if hasattr(model, "prepare"):
            model = model.prepare(args, kwargs)
        return cls(Call.of(model, args, kwargs), space)

    @property
    def model(self) -> Callable:
        """The NumPyro model."""
        return self.call.function

    @property
    def name(self) -> str:
        """What the model is called."""
        return self.call.name

    @property
    def placement(self) -> Placement | None:
        """How the rows of the data are spread over devices; None if they are not."""
        return self.call.placement

    @property
    def arguments(self) -> tuple[tuple, dict]:
        """The model's positional and keyword arguments."""
        return self.call.arguments

    def on_one_device(self) -> "ModelDensity":
        """The same density, taken as one whose data are not spread over devices."""
        return replace(self, call=self.call.on_one_device())

    @property
    def program(self) -> tuple:
        """What two densities have in common that a compiled program serves: the model, and the shapes of its data."""
        leaves, structure = jax.tree.flatten(self)
        return structure, *((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)

    @functools.cached_property
    def _structure(self) -> tuple[tuple[Site, ...], frozenset[str], Labels]:
        """The latent sites, the names of all sites that the model itself has, and the labels in its data.

        Found once for all programs of a model and shapes of data: by a trace, in which a model that
        asks for the numbers in its data is refused.
        """
        key = self.program
        if key in _STRUCTURES:
            return _STRUCTURES[key]
        with self.call.arrays_blamed():
            found = find_sites(self.call, self.space)
        while len(_STRUCTURES) >= _KEPT:
            del _STRUCTURES[next(iter(_STRUCTURES))]
        _STRUCTURES[key] = found
        return found

    @property
    def sites(self) -> tuple[Site, ...]:
        """The latent sites in the order of the model, which is the order of the coordinates.

        Raises:
            UnsupportedModel: the model has no density on R^D.
        """
        return self._structure[0]

    @property
    def names(self) -> frozenset[str]:
        """The names of all sites that the model itself has."""
        return self._structure[1]

    @property
    def labels(self) -> Labels:
        """The indices that the data decide."""
        return self._structure[2]

    @property
    def improper(self) -> tuple[str, ...]:
        """The latent sites with a flat or masked prior: the evidence is known up to a constant."""
        return tuple(site.name for site in self.sites if site.improper)

    @property
    def dimension(self) -> int:
        """D, the number of coordinates."""
        return sum(site.size for site in self.sites)

    @property
    def only_gradients(self) -> bool:
        """Whether JAX can differentiate it once and no more: with an integral by a sparse precision."""
        structure = getattr(self.call.fixed_function.as_given, "structure", "dense")
        return (
            isinstance(structure, str) and structure == "sparse"
        )  # a network has a PyTreeDef there

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
        parts = [jnp.ravel(jnp.asarray(values[site.name], float)) for site in self.sites]
        return jnp.concatenate(parts)

    def start(self, values: Mapping[str, Any] | None = None) -> Float[Array, " D"]:
        """Where the search begins: at ``values`` of latent sites, the others in the middle of their priors.

        Raises:
            TypeError, ValueError: they are not of the latent sites, of their shapes and in their supports.
        """
        if values is None:
            sites = self.sites  # first: a model that has none is refused with a reason
            trace = self._run(handlers.substitute(self.model, substitute_fn=prior_centre))
            return jax.lax.stop_gradient(self.ravel(self._coordinates(trace, sites)))
        arrays = start_arrays(values)
        u, inside = self._begin(arrays)
        if not is_traced(inside) and not inside:
            refuse_outside(*self._begin_at(arrays))
        return jax.lax.stop_gradient(u)

    @jit_quickly
    def _begin(self, values: dict[str, Array]) -> tuple[Float[Array, " D"], Bool[Array, ""]]:
        """Values of the latent sites as coordinates, and whether they have any: compiled."""
        trace, points = self._begin_at(values)
        inside = [is_inside(trace[name], points[name]) for name in values]
        return self.ravel(points), jnp.all(jnp.stack(inside))

    def _begin_at(self, values: dict[str, Array]) -> tuple[dict, dict[str, Array]]:
        require_start(values, self.sites)
        centred = handlers.substitute(self.model, substitute_fn=prior_centre)
        trace = self._run(handlers.substitute(centred, data=values))
        return trace, self._coordinates(trace, self.sites)

    def draw_start(
        self,
        key: Key[Array, ""],
        given: Float[Array, " D"] | None = None,
        names: Collection[str] | None = None,
    ) -> Float[Array, " d"]:
        """Where another search may begin: a draw from the prior.

        Args:
            key: of the draw.
            given: coordinates in the unconstrained space that are not drawn, NaN where they are; by default all are.
            names: of the sites whose coordinates are returned, in the order of the sites; by default all.
        """
        known = {} if given is None else self.unravel(given)
        draw = functools.partial(prior_draw, given=known)
        model = handlers.substitute(handlers.seed(self.model, key), substitute_fn=draw)
        sites = tuple(site for site in self.sites if names is None or site.name in names)
        drawn = self._coordinates(self._run(model), sites)
        return jnp.concatenate([jnp.ravel(jnp.asarray(drawn[s.name], float)) for s in sites])

    def _coordinates(self, trace: Mapping[str, dict], sites: tuple[Site, ...]) -> dict[str, Array]:
        """The latent sites of a trace as coordinates of R^D."""
        values = {site.name: trace[site.name]["value"] for site in sites}
        if self.space == "constrained":
            return values
        return {n: biject_to(trace[n]["fn"].support).inv(v) for n, v in values.items()}

    def values(self, u: Float[Array, " D"]) -> dict[str, Array]:
        """The latent sites at u, on the scale on which the user wrote the model: without any log density."""
        trace = self.run(u)
        return {site.name: trace[site.name]["value"] for site in self.sites}

    def run(self, u: Coordinates) -> dict:
        """The trace of the model with its latent sites at u, but for integrals over what was marginalised."""
        return self._run(self._at(u))

    def terms(self, u: Coordinates) -> Terms:
        """Log likelihood, log prior and latent values at u."""
        return self._terms(*self.trace(u), u)

    def _terms(self, trace: dict, log_probs: dict[str, Array], u: Coordinates) -> Terms:
        refuse_complex(log_probs)
        observed, names = self.observed(trace), self.names
        others = [n for n in log_probs if n not in observed]
        prior = [log_probs[n] if n in names else log_jacobian(trace[n]) for n in others]
        zero, space = jnp.zeros((), type_of(u)), self._room(trace, u)
        prior.append(jnp.where(jnp.all(space >= 0), 0, -jnp.inf))
        return Terms(
            sum((log_probs[n] for n in observed), start=zero),
            sum(prior, start=zero),
            {site.name: trace[site.name]["value"] for site in self.sites},
            space,
        )

    def room(self, u: Float[Array, " D"]) -> Float[Array, " D"]:
        """How far each coordinate is from the end of its interval; infinite if unconstrained."""
        return self._room(self.run(u), u)

    def _room(self, trace: dict, u: Coordinates) -> Float[Array, " D"]:
        if self.space == "unconstrained":
            return jnp.full(self.dimension, jnp.inf, type_of(u))
        return jnp.concatenate([room(trace[site.name], type_of(u)) for site in self.sites])

    def observed(self, trace: dict) -> list[str]:
        """The model's observed sites: NumPyro records a log Jacobian as one more, of its own."""
        names = self.names
        sites = ((n, s) for n, s in trace.items() if s["type"] == "sample")
        return [n for n, site in sites if site["is_observed"] and n in names]

    def loss(self, u: Coordinates) -> tuple[Float[Array, ""], Terms]:
        """f(u) = -log p(D, theta), the function whose minimum is the mode, and its terms."""
        terms = self.terms(u)
        return -(terms.log_likelihood + terms.log_prior), terms

    def loss_and_validity(
        self, u: Coordinates
    ) -> tuple[Float[Array, ""], tuple[Terms, Bool[Array, ""]]]:
        """f(u), its terms, and whether u is :meth:`valid`, by one run of the model."""
        trace, log_probs = self.trace(u)
        terms = self._terms(trace, log_probs, u)
        valid = valid_parameters(trace) & supported_data(trace)
        return -(terms.log_likelihood + terms.log_prior), (terms, valid)

    def parts(self) -> Iterator["ModelDensity"]:
        """Densities whose losses add up to that of this one."""
        yield self

    def valid(self, u: Float[Array, " D"]) -> Bool[Array, ""]:
        """Whether at u all parameters of all distributions are valid, and support their data."""
        trace = self._run(self._at(u), whole=True)
        return valid_parameters(trace) & supported_data(trace)

    def log_joint(self, u: Coordinates) -> Float[Array, ""]:
        """log p(D, theta) wherever u is, as an integral over R^D needs it.

        Minus infinity where the prior or the data have no support, or no value at its very end, as of a rate of 0;
        NaN where a parameter of a distribution is not valid: the model says nothing about such a point.
        """
        trace, log_probs = self.trace(u)
        terms = self._terms(trace, log_probs, u)
        outside = jnp.isneginf(terms.log_prior) | jnp.any(terms.room < 0)
        value = where_defined(trace, terms.log_likelihood) + terms.log_prior
        outside |= jnp.any(terms.room == 0) & jnp.isnan(value)
        return jnp.where(outside, -jnp.inf, value)

    def draw_log_likelihood(self, key: Key[Array, ""]) -> Float[Array, ""]:
        """log p(D | theta) at a draw of theta from the prior; the mean of p(D | theta) is p(D).

        Minus infinity and NaN as in :meth:`log_joint`. A latent site that a handler scales by s is
        drawn from its distribution p and weighted by p^(s-1).
        """
        trace, log_probs = self._log_probs(handlers.seed(self.model, key))
        scaled = [s.name for s in self.sites if trace[s.name]["scale"] is not None]
        parts = [log_probs[n] - jnp.sum(trace[n]["fn"].log_prob(trace[n]["value"])) for n in scaled]
        parts += [log_probs[n] for n in self.observed(trace)]
        return where_defined(trace, sum(parts, start=jnp.zeros(())))

    def draw(self, key: Key[Array, ""]) -> dict[str, Array]:
        """The latent sites at a draw from the prior."""
        trace = self._run(handlers.seed(self.model, key))
        return {site.name: trace[site.name]["value"] for site in self.sites}

    def trace(self, u: Coordinates) -> tuple[dict, dict[str, Array]]:
        """The model run with its latent sites at u.

        Returns the trace, and the log density of each site.
        """
        return self._log_probs(self._at(u))

    def _log_probs(self, model: Callable) -> tuple[dict, dict[str, Array]]:
        args, kwargs = self.arguments
        with validation_enabled(False), InWorkingPrecision(), self.call.arrays_blamed():
            log_probs, trace = compute_log_probs(model, args, kwargs, {})
        if self.labels.indices or self.labels.loops:
            fit = self.labels.fit(self.call.arrays)
            log_probs = {n: x * loud(fit, jnp.result_type(float)) for n, x in log_probs.items()}
        return trace, log_probs

    def _at(self, u: Coordinates) -> Callable:
        """The model with its latent sites at u."""
        latent = dict(u) if isinstance(u, Mapping) else self.unravel(u)
        if self.space == "constrained":
            return handlers.substitute(self.model, data=latent)
        at = functools.partial(_unconstrain_reparam, latent)
        return handlers.substitute(self.model, substitute_fn=at)

    def _run(self, model: Callable, whole: bool = False) -> dict:
        args, kwargs = self.arguments
        # What lies outside a support has density zero here; NumPyro would warn.
        blamed = self.call.arrays_blamed()
        with validation_enabled(False), InWorkingPrecision(), blamed, with_integrals(whole):
            return handlers.trace(model).get_trace(*args, **kwargs)


@register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class LikelihoodDensity(ModelDensity):
    """log p(D | theta) as a function of u: the prior and the log Jacobian are left out.

    In the constrained space it is minus infinity outside the support of the priors.
    """

    method = "Maximum likelihood fit"
    function = "log likelihood"
    without_prior = "left out"

    @property
    def improper(self) -> tuple[str, ...]:
        """All latent sites: none has a prior."""
        return tuple(site.name for site in self.sites)

    def _terms(self, trace: dict, log_probs: dict[str, Array], u: Coordinates) -> Terms:
        """Log likelihood, a log prior of zero within the support, and latent values at u."""
        terms = super()._terms(trace, log_probs, u)
        outside = jnp.any(terms.room < 0)
        return terms._replace(log_prior=jnp.where(outside, -jnp.inf, 0).astype(type_of(u)))
