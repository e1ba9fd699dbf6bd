"""The evidence by draws from the approximation."""

from math import lgamma, log
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from laplacebook.base.checks import require_number
from laplacebook.base.estimate import Estimate
from laplacebook.base.keys import split
from laplacebook.base.many_points import at_many
from laplacebook.base.namespace import Numbers
from laplacebook.base.weights import defined, estimate_of
from laplacebook.fit.log_joints import log_joints, searches_together
from laplacebook.fit.require_fit import require_fit, require_proper, warn_of_modes
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.gaussian.precision import Precision
from laplacebook.model.density import ModelDensity

_NORMAL = 1000  # degrees of freedom


def importance_sampling(
    approx: LaplaceApproximation,
    key: Key[Array, ""],
    num_samples: int = 10_000,
    *,
    proposal: str = "student_t",
    degrees_of_freedom: float = 5.0,
    progress_bar: bool | None = None,
) -> Estimate:
    """The log evidence by importance sampling, with the approximation as proposal.

    log p(D) = log E[p(D, u) / r(u)], u from a proposal r about the mode. By default r is a
    Student-t distribution, whose tails cover those of nearly every posterior: in 300 runs each with
    1,000 and with 10,000 draws, of Student, gamma-like and Gaussian posteriors in 1 to 20
    dimensions, 93 to 97 % of the estimates were within two of their errors. Where r is q itself the
    estimate is exact for a Gaussian posterior. For one with heavier tails the variance of the
    weights may be infinite, and the runs that missed the tail look best: of Student posteriors with
    five degrees of freedom the estimates were too low, and within two errors in 30 to 60 %, of
    gamma-like ones in 77 to 94 %. What no draw reaches is not in the estimate, nor in its
    error: of several modes far apart it sees one.

    In the book: :eq:`sigmoid-coin-importance` and :prf:ref:`sigmoid-coin-variance` of
    :doc:`/book/sigmoid-coin`.

    Args:
        approx: the approximation q = N(u_MAP, A^-1).
        key: a JAX random key.
        num_samples: S, how many draws.
        proposal: ``"student_t"``, the multivariate Student-t distribution about u_MAP with the
            scale matrix A^-1; or ``"gaussian"``, q itself.
        degrees_of_freedom: of the Student-t distribution, between 1 and 1,000; smaller is heavier.
        progress_bar: shown after two seconds; by default where standard error is a terminal.

    Returns:
        An :class:`Estimate` of log p(D). Its error is infinite where fewer than ten effective draws
        carry the sum, or where Pareto k-hat of the weights says that no error can be told from them
        (above 0.7, or less for few draws; not looked at for fewer than 25 draws, nor within a
        compiled program). For k-hat above 0.5 their variance is infinite, and the error is S^(k-hat - 1/2) times what
        their spread tells, as such a mean converges (Vehtari et al. 2024). Of few draws a finite error, too, tends to
        be too small.

    Raises:
        ValueError: ``num_samples`` is not a positive integer, there is no such proposal, or
            ``degrees_of_freedom`` is none; ``approx`` is a batch.
        TypeError: ``key`` is no random key.
        UnsupportedModel: a prior is improper, or left out (``maximum_likelihood``).
        NonFinite: the log joint is NaN at a draw.
        LaplaceError: the fit failed.

    Warns:
        DoubtfulFit: other modes of it are known, by several starts or a diagnosis, with more than 1 % of the evidence.

    >>> import numpyro, numpyro.distributions as dist
    >>> from laplacebook import laplace
    >>> def coin(y):
    ...     theta = numpyro.sample("theta", dist.Beta(2, 2))
    ...     numpyro.sample("y", dist.Bernoulli(theta).expand([9]).to_event(1), obs=y)
    >>> approx = laplace(coin, jnp.array([1, 1, 1, 1, 1, 1, 1, 1, 0]))
    >>> importance_sampling(approx, jax.random.key(0))  # exactly log(1/110) = -4.7005
    -4.701 ± 0.002
    """
    if proposal not in ("gaussian", "student_t"):
        raise ValueError(f'proposal is "gaussian" or "student_t", not {proposal!r}')
    if not (isinstance(degrees_of_freedom, Real) and 1 <= degrees_of_freedom <= _NORMAL):
        raise ValueError(
            f"degrees_of_freedom must be a number between 1 and {_NORMAL}, not "
            f"{degrees_of_freedom!r}; with more of them a Student-t distribution is the Gaussian"
        )
    require_fit(approx)
    require_proper(approx.density)
    warn_of_modes(approx, "draws")
    heavy = degrees_of_freedom if proposal == "student_t" else None
    weights = importance_weights(approx, key, num_samples, heavy, progress_bar)
    return estimate_of(weights)


def importance_weights(
    approx: LaplaceApproximation,
    key: Key[Array, ""],
    num_samples: int,
    degrees_of_freedom: float | None = None,
    progress_bar: bool | None = None,
) -> Float[Numbers, " S"]:
    """log p(D, u) - log q(u) at draws u from q: what :func:`importance_sampling` averages.

    Args:
        approx: the approximation.
        key: a JAX random key.
        num_samples: S.
        degrees_of_freedom: of a Student-t proposal; None for the Gaussian one.
        progress_bar: as in :func:`importance_sampling`.

    Returns:
        The log weights, shape (S,).
    """
    require_number("num_samples", num_samples)
    require_fit(approx)
    density, proposal = approx.density, proposal_of(approx, degrees_of_freedom)
    keys = split(key, num_samples)
    if searches_together(density):
        drawn = np.asarray(at_many(_drawn, proposal, keys, progress_bar=False), float)
        weights = log_joints(density, drawn[:, :-1], progress_bar) - drawn[:, -1]
    else:
        weights = at_many(_importance_weight, (density, *proposal), keys, progress_bar)
    return defined(weights, approx.density.name, "draws from the approximation")


def proposal_of(
    approx: LaplaceApproximation, degrees_of_freedom: float | None
) -> tuple[Array, Precision, Any]:
    """What :func:`weighted_draw` takes of an approximation.

    Args:
        approx: the approximation.
        degrees_of_freedom: of a Student-t proposal; None for the Gaussian one.
    """
    heaviness = None
    if degrees_of_freedom is not None:
        constant = log_student_constant(approx.mode_vector.size, float(degrees_of_freedom))
        heaviness = np.asarray([degrees_of_freedom, constant], approx.mode_vector.dtype)
    return approx.mode_vector, approx.precision, heaviness


def weighted_draw(
    density: ModelDensity, mode: Array, precision: Precision, heaviness: Any, key: Array
) -> tuple[Float[Array, " D"], Float[Array, ""]]:
    """A draw of u from a proposal, and its log weight."""
    u, log_q = _draw(mode, precision, heaviness, key)
    return u, density.log_joint(u) - log_q


def _draw(
    mode: Array, precision: Precision, heaviness: Any, key: Array
) -> tuple[Float[Array, " D"], Float[Array, ""]]:
    """A draw of u from a proposal, and the log density of that there."""
    to_normal, to_scale = jax.random.split(key)
    z = jax.random.normal(to_normal, mode.shape, mode.dtype)
    if heaviness is None:
        return mode + precision.whitened(z), -precision.log_volume() - z @ z / 2
    nu, constant = heaviness
    t = z / jnp.sqrt(jax.random.chisquare(to_scale, nu, dtype=mode.dtype) / nu)
    log_q = constant - precision.log_volume() - (nu + mode.size) / 2 * jnp.log1p(t @ t / nu)
    return mode + precision.whitened(t), log_q


def _drawn(mode: Array, precision: Precision, heaviness: Any, key: Array) -> Float[Array, " D1"]:
    u, log_q = _draw(mode, precision, heaviness, key)
    return jnp.append(u, log_q)


def _importance_weight(
    density: ModelDensity, mode: Array, precision: Precision, heaviness: Any, key: Array
) -> Array:
    return weighted_draw(density, mode, precision, heaviness, key)[1]


def log_student_constant(dimension: int, nu: float) -> float:
    """Of the density of a Student-t vector of unit scale, over (2 pi)^(-D/2); in full precision.

    Args:
        dimension: D.
        nu: its degrees of freedom.
    """
    return lgamma((nu + dimension) / 2) - lgamma(nu / 2) - dimension / 2 * log(nu / 2)
