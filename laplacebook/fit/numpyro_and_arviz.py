"""Hand an approximation to the rest of NumPyro, as the guide that it already knows."""

from collections.abc import Iterable, Mapping
from functools import partial
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float, Key
from numpyro import handlers
from numpyro.distributions import MaskedDistribution, biject_to
from numpyro.infer import Predictive
from numpyro.infer.autoguide import AutoLaplaceApproximation
from numpyro.infer.initialization import init_to_value
from numpyro.primitives import Messenger

from laplacebook.base.checks import require_numbers
from laplacebook.base.errors import UnsupportedModel, failed_fit
from laplacebook.base.quick import jit_quickly
from laplacebook.fit.summary import values_at
from laplacebook.model.density import ModelDensity
from laplacebook.model.distributions import wrapped
from laplacebook.model.observations import observed_data, observed_sites, scaled_sites


class _LaplaceGuide(AutoLaplaceApproximation):
    """NumPyro's own, but a draw of it is a draw of the Gaussian.

    During SVI NumPyro's guide is a point mass at ``auto_loc``, and ``Predictive(model, guide=guide)``
    draws from that point mass: every draw is the mode. Here the fit is over.
    """

    def _get_posterior(self) -> dist.MultivariateNormal:
        location = numpyro.param(f"{self.prefix}_loc", self._init_latent)
        return self.get_posterior({f"{self.prefix}_loc": location})


class _AsManyAsData(Messenger):
    """One law for each datum, where a model observes many by one law without a plate."""

    def process_message(self, msg: dict) -> None:
        if msg["type"] != "sample" or not msg["is_observed"] or not np.size(msg["value"]):
            return
        fn = msg["fn"]
        shape = np.broadcast_shapes(fn.shape(), np.shape(msg["value"]))
        msg["fn"] = fn.expand(shape[: len(shape) - fn.event_dim])


def laplace_guide(
    density: ModelDensity,
    mode: Mapping[str, Array],
    mode_vector: Float[Array, " D"],
    precision: Float[Array, "D D"],
) -> AutoLaplaceApproximation:
    """NumPyro's guide with the curvature already computed handed over through its ``hessian_fn``."""
    if density.space != "unconstrained":
        raise UnsupportedModel(
            "NumPyro's guide is Gaussian in the unconstrained space; this approximation is not.",
            remedy='fit with space="unconstrained", or use sample().',
        )
    there = "use sample() there, or make the guide outside of compiled programs."
    require_numbers("NumPyro's guide", mode_vector, there)
    if not np.all(np.isfinite(mode_vector)):
        raise failed_fit("This fit", "there is no guide")
    guide = _LaplaceGuide(
        density.model, init_loc_fn=init_to_value(values=mode), hessian_fn=lambda loss, u: precision
    )
    args, kwargs = density.arguments
    with handlers.block(), handlers.seed(rng_seed=jax.random.key(0)):
        guide(*args, **kwargs)
    elsewhere = mode_vector + 1
    coordinates = density.unravel(elsewhere)
    for name, value in density.values(elsewhere).items():
        bijection = biject_to(guide.prototype_trace[name]["fn"].support)
        if not jnp.allclose(bijection(coordinates[name]), value):
            raise UnsupportedModel(
                f"The support of '{name}' depends on other latent sites; NumPyro's guide fixes it.",
                remedy="use sample(), which follows it.",
            )
    return guide


def to_arviz(
    density: ModelDensity,
    u: Float[Array, "S D"],
    key: Key[Array, ""],
    log_likelihood: bool,
    posterior_predictive: bool,
) -> Any:
    """One chain of draws, and what belongs to it, in ArviZ's container.

    Args:
        density: the model and its data.
        u: draws, shape (S, D).
        key: of what is drawn beside them.
        log_likelihood: whether to add that of each datum at each draw.
        posterior_predictive: whether to draw data at each draw.

    Raises:
        ImportError: ArviZ is not installed.
        UnsupportedModel: either is asked of a model that observes no data.
    """
    observed = observed_data(density, density.start())
    groups: dict[str, dict[str, Any]] = {"observed_data": observed}
    if (log_likelihood or posterior_predictive) and not observed:
        raise UnsupportedModel(
            f"{density.name} observes no data, so there is no log likelihood of each, and none to draw.",
            causes=["data in a numpyro.factor", "effects integrated out, with their data"],
            remedy="observe the data with obs= in a numpyro.sample statement.",
        )
    draws = values_at(density, u)
    if log_likelihood:
        _require_each(density, observed)
        groups["log_likelihood"] = _log_likelihoods(density, u, tuple(observed))
    if posterior_predictive:
        args, kwargs = density.arguments
        model = handlers.uncondition(_AsManyAsData(density.model))
        predictive = Predictive(model, draws, return_sites=tuple(observed))
        groups["posterior_predictive"] = predictive(key, *args, **kwargs)
    one_chain = {
        group: {name: x if group == "observed_data" else x[None] for name, x in sites.items()}
        for group, sites in {"posterior": draws, **groups}.items()
    }
    return inference_data(**one_chain)


def _require_each(density: ModelDensity, observed: Mapping[str, Array]) -> None:
    """Refuse a model whose likelihood is not that of each datum.

    Raises:
        UnsupportedModel: some of it is in a factor, or a power.
    """
    u = density.start()
    trace, _ = density.trace(u)
    factors = [n for n in density.observed(trace) if n not in observed]
    scaled = [name for name in scaled_sites(density, u) if name in observed]
    told = ((factors, "adds a factor for no datum"), (scaled, "scales the likelihood of data"))
    for sites, what in told:
        if sites:
            raise UnsupportedModel(
                f"{density.name} {what}, {', '.join(map(repr, sites))}: the log likelihoods of its data one by one "
                "are not its likelihood.",
                remedy="observe all data with obs= in numpyro.sample statements, unscaled.",
            )


@partial(jit_quickly, static_argnames="names")
def _log_likelihoods(
    density: ModelDensity, u: Float[Array, "S D"], names: tuple[str, ...]
) -> dict[str, Array]:
    """Of each datum at each draw, by observed site, shape (S, *shape of the data without events)."""

    def at(u: Array) -> dict[str, Array]:
        sites = observed_sites(density, u)
        return {name: _log_probs(sites[name]) for name in names}

    return jax.lax.map(at, u)


def _log_probs(site: dict) -> Array:
    """Of each datum of an observed site; NaN where a mask hides it."""
    fn, logs = site["fn"], site["fn"].log_prob(site["value"])
    for layer in wrapped(fn):
        if isinstance(layer, MaskedDistribution) and layer.batch_shape == fn.batch_shape:
            logs = jnp.where(jnp.asarray(layer._mask), logs, jnp.nan)
    return logs


def inference_data(posterior: Mapping[str, Any], **groups: Mapping[str, Any]) -> Any:
    """Draws, and what belongs to them, in ArviZ's container.

    Args:
        posterior: site -> draws, shape (chains, S, *site shape).
        groups: further groups by their names in ArviZ; empty ones are left out.

    Returns:
        An ``arviz.InferenceData`` (ArviZ 0.x) or an ``xarray.DataTree`` (ArviZ 1.x).

    Raises:
        ImportError: ArviZ is not installed.
        UnsupportedModel: a site has the name of one of ArviZ's axes.
    """
    arviz = arviz_for(posterior)
    filled: dict[str, Any] = {
        "posterior": dict(posterior),
        **{name: dict(x) for name, x in groups.items() if x},
    }
    if "posterior" in signature(arviz.from_dict).parameters:  # ArviZ 0.x
        return arviz.from_dict(**filled)
    return arviz.from_dict(filled)


def arviz_for(names: Iterable[str]) -> Any:
    """ArviZ, where its container can hold draws of such sites.

    Args:
        names: of the sites.

    Raises:
        ImportError: ArviZ is not installed.
        UnsupportedModel: a site has the name of one of ArviZ's axes.
    """
    taken = [name for name in names if name in ("chain", "draw")]
    if taken:
        raise UnsupportedModel(
            f"A site is called {taken[0]!r}, as ArviZ calls the axis of its draws.",
            remedy="give the site another name.",
        )
    try:
        import arviz
    except ImportError as error:
        raise ImportError("to_arviz() needs ArviZ: pip install arviz") from error
    return arviz
