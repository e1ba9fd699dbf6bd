"""Hand an approximation to the rest of NumPyro, as the guide that it already knows."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer.autoguide import AutoLaplaceApproximation
from numpyro.infer.initialization import init_to_value

from laplacebook.base.checks import require_numbers
from laplacebook.base.errors import UnsupportedModel, failed_fit
from laplacebook.model.density import ModelDensity


class _LaplaceGuide(AutoLaplaceApproximation):
    """NumPyro's own, but a draw of it is a draw of the Gaussian.

    During SVI NumPyro's guide is a point mass at ``auto_loc``, and ``Predictive(model, guide=guide)``
    draws from that point mass: every draw is the mode. Here the fit is over.
    """

    def _get_posterior(self) -> dist.MultivariateNormal:
        location = numpyro.param(f"{self.prefix}_loc", self._init_latent)
        return self.get_posterior({f"{self.prefix}_loc": location})


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
    for name, value in density.terms(elsewhere).values.items():
        bijection = biject_to(guide.prototype_trace[name]["fn"].support)
        if not jnp.allclose(bijection(coordinates[name]), value):
            raise UnsupportedModel(
                f"The support of '{name}' depends on other latent sites; NumPyro's guide fixes it.",
                remedy="use sample(), which follows it.",
            )
    return guide


def inference_data(posterior: Mapping[str, Array], observed_data: Mapping[str, Array]) -> Any:
    """One chain of draws, and the data, in ArviZ's container.

    Args:
        posterior: site -> draws, shape (S, *site shape).
        observed_data: site -> data.

    Returns:
        An ``arviz.InferenceData`` (ArviZ 0.x) or an ``xarray.DataTree`` (ArviZ 1.x), with the groups
        ``posterior`` (dimensions chain, draw, ...) and, where there are data, ``observed_data``.

    Raises:
        ImportError: ArviZ is not installed.
    """
    try:
        import arviz
    except ImportError as error:
        raise ImportError("to_arviz() needs ArviZ: pip install arviz") from error
    groups: dict[str, Any] = {"posterior": {name: draws[None] for name, draws in posterior.items()}}
    if observed_data:
        groups["observed_data"] = dict(observed_data)
    if "posterior" in signature(arviz.from_dict).parameters:  # ArviZ 0.x
        return arviz.from_dict(**groups)
    return arviz.from_dict(groups)
