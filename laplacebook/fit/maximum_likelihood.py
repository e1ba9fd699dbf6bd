"""The maximum-likelihood estimate of a NumPyro model: the prior left out."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from laplacebook.base.errors import NotConverged, NotPositiveDefinite
from laplacebook.base.namespace import namespace
from laplacebook.base.pytrees import from_host, is_traced, on_host
from laplacebook.base.quick import jit_quickly
from laplacebook.fit.laplace import approximate
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.fit.summary import own_numbers
from laplacebook.model.density import LikelihoodDensity, ModelDensity
from laplacebook.search.certificate import Certificate
from laplacebook.search.search import search

_WIDE = 10.0  # of a logarithm: a number of which the likelihood does not know the power of ten
_DOWN = np.array([0.0, -3.0, -6.0])  # of it
# Of the logarithm of what is next to zero, up to any number.
_UP = np.arange(6.0, 49.0, 6.0)
_SMALL = 0.01  # relative, by which a number may miss the exponential of its coordinate, as next to zero it is
_LEVEL = 0.01  # nats
_MOST = 64  # numbers that are looked at


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
        NotConverged: the maximum is not attained: it is at the edge of the support, as of a scale of effects that are
            not there, or at infinity.
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
    density = LikelihoodDensity.of(model, args, kwargs, space)
    try:
        fit = approximate(density, start, throw=throw)
    except (NotConverged, NotPositiveDefinite) as refused:
        if refused.last is None:
            raise
        at_zero = _best_at_zero(density, refused.last, np.arange(density.dimension))
        if at_zero is None:
            raise
        raise at_zero from refused
    if throw and not is_traced(fit):
        wide = np.flatnonzero(np.asarray(fit.precision.diagonal_of_inverse()) > _WIDE**2)
        at_zero = _best_at_zero(density, fit.mode_vector, wide)
        if at_zero is not None:
            raise at_zero
    return fit


def _best_at_zero(
    density: ModelDensity, u: Float[Array, " D"], which: Int[np.ndarray, " n"]
) -> NotConverged | None:
    """The error for a number that fits best at zero, as a scale of effects that are not there; None if none is seen."""
    if density.space != "unconstrained":
        return None
    names, ways = density.coordinate_names(), _DOWN[:, None, None] * np.eye(density.dimension)
    for j in which[:_MOST].tolist():
        points = u + jnp.asarray(ways[:, j], u.dtype)
        numbers = np.asarray(own_numbers(density, points))[:, j]
        here, near, far = (float(_log_likelihood_at(density, point)) for point in points)
        falls = numbers[0] > 0 and np.allclose(
            numbers / numbers[0], np.exp(_DOWN), rtol=_SMALL, atol=0
        )
        rounding = float(jnp.finfo(u.dtype).eps) ** 0.5 * (1 + abs(here))
        level = far >= here - rounding and abs(far - near) <= rounding + _LEVEL
        if falls and level and _depends(density, u, j, here):
            return NotConverged(
                f"The likelihood is highest where '{names[j]}' is zero: from {numbers[0]:.2g} downwards it does not "
                "fall.",
                causes=[
                    "groups that differ no more than chance makes them (lme4 calls such a fit singular)",
                    "counts that are all zero",
                ],
                remedy=f"the maximum is that of the model in which {names[j]} is zero; how large it may be is told by "
                "laplace, or by nested of a hierarchy, with its prior.",
            )
    return None


def _depends(density: ModelDensity, u: Float[Array, " D"], j: int, here: float) -> bool:
    """Whether the likelihood depends on a number at all, far above where it is next to zero."""
    up = (float(_log_likelihood_at(density, u.at[j].add(step))) for step in _UP)
    return any(np.isfinite(x) and abs(x - here) > _LEVEL for x in up)


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
def _log_likelihood_at(density: ModelDensity, u: Array) -> Array:
    return density.terms(u).log_likelihood
