"""The verb ``nuts(approx, key)``: NumPyro's sampler, begun where an approximation has its mass."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from numpyro.infer import MCMC, NUTS

from laplacebook.base.checks import require_number, require_numbers
from laplacebook.base.errors import NonFinite, UnsupportedModel
from laplacebook.base.keys import split_into
from laplacebook.base.progress import is_shown
from laplacebook.base.quick import jit_quickly
from laplacebook.fit.approximation import Approximation
from laplacebook.fit.numpyro_and_arviz import arviz_for, inference_data
from laplacebook.fit.require_fit import require_approximation, require_posterior
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.fit.summary import values_at
from laplacebook.model.density import ModelDensity
from laplacebook.model.observations import observed_data

_DENSE = 256  # coordinates: up to so many the metric is a whole matrix
_DRAWS = 2048  # by which the covariance is known of what has no precision
_STATISTICS = {
    "diverging": "diverging",
    "accept_prob": "acceptance_rate",
    "num_steps": "n_steps",
    "energy": "energy",
    "potential_energy": "lp",
}


def nuts(
    approx: Approximation,
    key: Key[Array, ""],
    num_samples: int = 1000,
    *,
    num_warmup: int = 500,
    num_chains: int = 4,
    progress_bar: bool | None = None,
) -> Any:
    """Draws of the posterior by NumPyro's NUTS, whose chains begin at draws of an approximation.

    The No-U-Turn sampler of Hoffman and Gelman (2014, Journal of Machine Learning Research 15, 1593-1623) on the
    log joint in the unconstrained space. The metric begins as the covariance of the approximation, and is adapted
    from there during the warm-up, with the step size: less of it is needed than from NumPyro's defaults, a
    unit metric and starts about zero. The chains run at once, in one program.

    It is the truth to compare an approximation with, where ArviZ finds nothing against it: chains that agree
    (``arviz.summary``: ``r_hat`` up to 1.01), and no divergences. Chains that all begin at one mode
    may not leave it.

    In the book: :doc:`/book/trust`.

    Args:
        approx: any approximation.
        key: a JAX random key.
        num_samples: of each chain, after the warm-up.
        num_warmup: of each chain.
        num_chains: how many.
        progress_bar: NumPyro's; by default where standard error is a terminal.

    Returns:
        ``arviz.InferenceData`` or, from ArviZ 1, ``xarray.DataTree``, as ``approx.to_arviz()`` returns it, with the
        groups ``posterior`` (sites on the scale of the model), ``sample_stats`` (``diverging``,
        ``acceptance_rate``, ``n_steps``, ``energy``, ``lp``) and, where there are data, ``observed_data``.

    Raises:
        TypeError: ``approx`` is no approximation; ``key`` is no random key.
        ValueError: a number is none; ``approx`` is a batch; within a compiled program.
        UnsupportedModel: the fit is in the constrained space, or one of maximum likelihood; a site is called
            ``chain`` or ``draw``.
        ImportError: ArviZ is not installed.
        NonFinite: the log joint is not finite where a chain would begin.
        LaplaceError: the fit failed.

    >>> import numpyro, numpyro.distributions as dist
    >>> from laplacebook import laplace
    >>> def coin(y):
    ...     theta = numpyro.sample("theta", dist.Beta(2, 2))
    ...     numpyro.sample("y", dist.Bernoulli(theta).expand([9]).to_event(1), obs=y)
    >>> approx = laplace(coin, jnp.array([1, 1, 1, 1, 1, 1, 1, 1, 0]))
    >>> draws = nuts(approx, jax.random.key(0))
    >>> round(float(draws.posterior["theta"].mean()), 2)  # exactly 10/13
    0.77
    """
    for name, number in {
        "num_samples": num_samples,
        "num_warmup": num_warmup,
        "num_chains": num_chains,
    }.items():
        require_number(name, number)
    require_approximation(approx, mappable=False)
    require_numbers("nuts", (approx, key))
    density = approx.density
    require_posterior(density)
    if density.space != "unconstrained":
        raise UnsupportedModel(
            "This fit is in the constrained space, whose edges stop the sampler.",
            remedy='fit with space="unconstrained", the default.',
        )
    arviz_for(site.name for site in density.sites)  # before the sampling, whose draws it is to hold
    to_start, to_run = split_into(key)
    starts = approx.sample_vector(to_start, (num_chains,))
    if not np.isfinite([_log_joint(density, u) for u in starts]).all():
        raise NonFinite(
            f"The log joint of {density.name} is not finite at a draw of the approximation, where a chain would begin.",
            causes=["an approximation that is wide where the model is not defined"],
            remedy="try another key; or make the model finite everywhere, or its prior say where it is.",
        )
    covariance = _covariance(approx)
    kernel = _Kernel(
        potential_fn=_Potential(density),
        inverse_mass_matrix=jnp.asarray(covariance, starts.dtype),
        dense_mass=covariance.ndim == 2,
    )
    shown = is_shown(progress_bar)
    sampler = MCMC(
        kernel,
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=num_chains,
        chain_method="vectorized",
        progress_bar=shown,
    )
    begin = starts if num_chains > 1 else starts[0]  # as NumPyro takes them
    sampler.run(to_run, init_params=begin, extra_fields=tuple(_STATISTICS))
    u = sampler.get_samples(group_by_chain=True)
    values = jax.device_get(values_at(density, u.reshape(-1, u.shape[-1])))
    posterior = {name: v.reshape(num_chains, -1, *v.shape[1:]) for name, v in values.items()}
    told = sampler.get_extra_fields(group_by_chain=True)
    statistics = {name: np.asarray(told[field]) for field, name in _STATISTICS.items()}
    statistics["lp"] = -statistics["lp"]
    data = jax.device_get(observed_data(density, starts[0]))
    return inference_data(posterior, sample_stats=statistics, observed_data=data)


class _Kernel(NUTS):
    """NumPyro's, whose start, otherwise run op by op with a program for each, is one program."""

    def init(
        self, rng_key: Array, num_warmup: int, init_params: Any, *args: Any, **kwargs: Any
    ) -> Any:
        def init(keys: Array, starts: Array) -> Any:
            return super(_Kernel, self).init(keys, num_warmup, starts, *args, **kwargs)

        return jit_quickly(init)(rng_key, init_params)


_log_joint: Any = jit_quickly(ModelDensity.log_joint)


class _Potential:
    """The negative log joint, as NumPyro's kernels take it; one object, so that they compile it once."""

    def __init__(self, density: ModelDensity) -> None:
        self.density = density

    def __call__(self, u: Float[Array, " D"]) -> Float[Array, ""]:
        return -self.density.log_joint(u)


def _covariance(approx: Approximation) -> Float[np.ndarray, "..."]:
    """The covariance of the approximation, or where it is large its diagonal."""
    size = approx.density.dimension
    if isinstance(approx, LaplaceApproximation):
        precision = approx.precision
        return np.asarray(
            precision.inverse() if size <= _DENSE else precision.diagonal_of_inverse()
        )
    draws = np.asarray(approx.sample_vector(jax.random.key(0), (_DRAWS,)))
    return np.cov(draws.T).reshape(size, size) if size <= _DENSE else draws.var(axis=0)
