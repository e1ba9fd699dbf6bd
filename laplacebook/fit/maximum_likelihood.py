"""The maximum-likelihood estimate of a NumPyro model: the prior left out."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jaxtyping import Array, Float

from laplacebook.base.namespace import namespace
from laplacebook.base.pytrees import from_host, on_host
from laplacebook.base.quick import jit_quickly
from laplacebook.fit.laplace import approximate
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.model.density import LikelihoodDensity
from laplacebook.search.certificate import Certificate
from laplacebook.search.search import search


def maximum_likelihood(
    model: Callable,
    *args: Any,
    space: str = "unconstrained",
    start: Mapping[str, Any] | None = None,
    throw: bool = True,
    **kwargs: Any,
) -> LaplaceApproximation:
    """The maximum-likelihood estimate of the latent sites of a NumPyro model, with its curvature.

    The priors serve as supports, and for the point where the search begins; their densities and
    the log Jacobian are left out. Sites that the likelihood does not depend on given the others
    (the scale of a hierarchical prior) have no such estimate. Compiles and transforms as
    :func:`~laplacebook.laplace` does.

    In the book: :eq:`model-comparison-bic-definition` of :doc:`/book/model-comparison`.

    Args:
        model: any NumPyro model with continuous latent sites, called as ``model(*args, **kwargs)``.
        args: its positional arguments.
        space: the estimate is the same in both, standard errors are not: those of textbooks are
            of the parameters as the model writes them, ``"constrained"``. They agree for sites on
            the whole real line.
        start: values of latent sites from which the search begins; the others begin at their prior
            means.
        throw: raise if there is no maximum, as in :func:`~laplacebook.laplace`.
        kwargs: the model's keyword arguments.

    Returns:
        A :class:`~laplacebook.LaplaceApproximation` about the maximum: ``mode`` is the estimate,
        ``log_likelihood`` the maximised log likelihood, ``precision`` the observed information,
        ``covariance`` its inverse, ``log_prior`` zero. Without a prior the log evidence is defined
        only up to a constant.

    Raises:
        ValueError: ``space`` has no such value, or ``start`` does not fit the latent sites.
        UnsupportedModel: no latent site, a discrete one, a plate that subsamples, random numbers.
        NonFinite: the log likelihood is not finite where the search begins.
        NotConverged: the maximum is not attained: it is at the edge of the support or at infinity.
        NotPositiveDefinite: the data do not determine all latent sites.

    >>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist
    >>> def coin(y):
    ...     theta = numpyro.sample("theta", dist.Beta(2, 2))
    ...     numpyro.sample("y", dist.Bernoulli(theta).expand([9]).to_event(1), obs=y)
    >>> y = jnp.array([1, 1, 1, 1, 1, 1, 1, 1, 0])
    >>> fit = maximum_likelihood(coin, y, space="constrained")
    >>> print(f"{fit.mode['theta']:.4f} ± {fit.standard_deviation['theta']:.4f}")  # 8/9
    0.8889 ± 0.1048
    """
    return approximate(LikelihoodDensity.of(model, args, kwargs, space), start, throw=throw)


class Highest(NamedTuple):
    """The highest log likelihood that a search found, and whether it is a maximum.

    Attributes:
        log_likelihood: the value; without a certificate there may be higher ones.
        certificate: of the point where it is attained.
    """

    log_likelihood: Float[Array, ""]
    certificate: Certificate


def maximum_log_likelihood(approx: LaplaceApproximation) -> Highest:
    """The log likelihood, maximised from the mode of an approximation; nothing is raised.

    Under a proper prior no evidence can exceed it: the evidence is the prior mean of the
    likelihood.

    Args:
        approx: the approximation of a posterior.

    Returns:
        The :class:`Highest` value, which is at least that at the mode; NaN for a failed fit.
    """
    density = LikelihoodDensity(approx.density.call, approx.space)
    found = search(density, approx.mode_vector)
    last = _log_likelihood_at(density, found.last)
    # fmax, since a search without a maximum may have stopped where the likelihood is NaN.
    known = on_host((last, approx.log_likelihood))
    return Highest(from_host(namespace(*known).fmax(*known)), found.certificate)


@jit_quickly
def _log_likelihood_at(density: LikelihoodDensity, u: Array) -> Array:
    return density.terms(u).log_likelihood
