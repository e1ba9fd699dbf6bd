"""Marginals, conditionals, the linear-Gaussian theorem and divergences of multivariate normals.

Every function takes and returns :class:`numpyro.distributions.MultivariateNormal`, made from a
covariance, a precision or a Cholesky factor, with any batch shape, and works on the Cholesky factors
alone: no matrix is inverted. All can be differentiated, and used under ``jit`` and ``vmap``, where
what would raise gives NaN.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpyro.distributions import MultivariateNormal

from laplacebook.base.pytrees import register_dataclass
from laplacebook.base.quick import in_full_precision
from laplacebook.gaussian import normal_by_factors as factors
from laplacebook.gaussian.normal_checks import (
    Numbers,
    floats,
    mean_and_factor,
    require_batches,
    require_shape,
    result,
    split_indices,
)

Indices = int | Sequence[int] | Int[np.ndarray, " K"]


@in_full_precision
def marginal(p: MultivariateNormal, indices: Indices) -> MultivariateNormal:
    """The distribution of some of the coordinates.

    In the book: :prf:ref:`linear-gaussian-marginal` of :doc:`/book/linear-gaussian`.

    Args:
        p: a normal distribution of D variables.
        indices: K of the coordinates, in the order wanted; -1 is the last, as in NumPy.

    Returns:
        The normal distribution of ``x[..., indices]``, with the batch shape of ``p``.

    Raises:
        TypeError: ``p`` is no multivariate normal, or an index no integer.
        IndexError: an index is out of range.
        ValueError: an index is repeated, or there is none; the matrix of ``p`` is not symmetric.
        NotPositiveDefinite: it is not positive definite.

    Example:
        >>> from jax import numpy as jnp
        >>> from numpyro import distributions as dist
        >>> p = dist.MultivariateNormal(jnp.zeros(2), jnp.array([[2.0, 1.0], [1.0, 1.0]]))
        >>> print(marginal(p, [0]).covariance_matrix.round(4))
        [[2.]]
    """
    mean, factor = mean_and_factor("p", p)
    chosen, _ = split_indices(indices, mean.shape[-1])
    if not chosen.size:
        raise ValueError("No index is given, and a distribution has one variable or more.")
    return result("the marginal", factors.marginal(mean, factor, chosen))


@in_full_precision
def condition(p: MultivariateNormal, indices: Indices, values: Numbers) -> MultivariateNormal:
    """The distribution of the other coordinates where some are known.

    With a the coordinates that are known, b the others and S the covariance, the mean is
    m_b + S_ba S_aa^-1 (x_a - m_a) and the covariance the Schur complement S_bb - S_ba S_aa^-1 S_ab.
    The Cholesky factor of the covariance, its rows ordered (a, b), holds both: with its blocks they
    are m_b + L_ba L_aa^-1 (x_a - m_a) and L_bb L_bb'.

    In the book: :prf:ref:`linear-gaussian-conditional` and :prf:ref:`linear-gaussian-cholesky` of
    :doc:`/book/linear-gaussian`.

    Args:
        p: a normal distribution of D variables.
        indices: the K coordinates that are known; -1 is the last, as in NumPy.
        values: theirs, of shape (K,), or ``(*batch, K)``.

    Returns:
        The normal distribution of the D - K others, in the order that they have in ``p``. Its batch
        shape is that of ``p`` and ``values`` together.

    Raises:
        TypeError: ``p`` is no multivariate normal, or an index no integer.
        IndexError: an index is out of range.
        ValueError: an index is repeated, or none is left; ``values`` do not fit, or are not finite;
            the matrix of ``p`` is not symmetric.
        NotPositiveDefinite: it is not positive definite.

    Example:
        >>> from jax import numpy as jnp
        >>> from numpyro import distributions as dist
        >>> p = dist.MultivariateNormal(jnp.zeros(2), jnp.array([[2.0, 1.0], [1.0, 1.0]]))
        >>> known = condition(p, [1], [3.0])
        >>> print(known.mean.round(4), known.covariance_matrix.round(4))
        [3.] [[1.]]
    """
    mean, factor = mean_and_factor("p", p)
    known, others = split_indices(indices, mean.shape[-1])
    if not others.size:
        raise ValueError(f"All {known.size} coordinates are given: none is left to describe.")
    values = jnp.atleast_1d(floats("values", values))
    require_shape("values", values, (known.size,), "one for each index")
    require_batches(p=p.batch_shape, values=values.shape[:-1])
    return result("the conditional", factors.conditional(mean, factor, known, others, values))


@register_dataclass
@dataclass(frozen=True)
class LinearGaussian:
    """The three distributions of the linear-Gaussian theorem: what :func:`linear_gaussian` returns.

    In the book: :prf:ref:`linear-gaussian-theorem` of :doc:`/book/linear-gaussian`.

    Attributes:
        joint: p(x, y), of the N inputs and then the M outputs.
        marginal: p(y) = N(A m + b, A S A' + R).
    """

    joint: MultivariateNormal
    marginal: MultivariateNormal
    _posterior_factor: Any  # L root, with the prior's S = L L' and (I + W'W)^-1 = root root'
    _gain: Any  # W root, with W = R^-1/2 A L

    @in_full_precision
    def posterior(self, y: Numbers) -> MultivariateNormal:
        """p(x | y) = N(m + S_N A' R^-1 (y - A m - b), S_N).

        Args:
            y: the outputs that were observed, of shape (M,), or ``(*batch, M)``.

        Returns:
            The normal distribution of the N inputs; its covariance S_N does not depend on ``y``.

        Raises:
            ValueError: the shape of ``y`` or of its batch does not fit, or it is not finite.
        """
        y, joint = jnp.atleast_1d(floats("y", y)), self.joint
        require_shape("y", y, self.marginal.event_shape, "one for each output")
        require_batches(y=y.shape[:-1], joint=joint.batch_shape)
        p = factors.posterior(joint.loc, joint.scale_tril, y, self._posterior_factor, self._gain)
        return result("the posterior", p)


@in_full_precision
def linear_gaussian(
    prior: MultivariateNormal, A: Numbers, b: Numbers, noise: MultivariateNormal
) -> LinearGaussian:
    """The theorem: x ~ N(m, S) and y | x ~ N(A x + b, R) make all of x and y normal.

    p(y) = N(A m + b, A S A' + R), and p(x | y) = N(S_N [A' R^-1 (y - b) + S^-1 m], S_N) with
    S_N = (S^-1 + A' R^-1 A)^-1: Bishop (2006), 2.3.3.

    With S = L L' and W = R^-1/2 A L the posterior precision of L^-1 (x - m) is I + W'W.

    In the book: :prf:ref:`linear-gaussian-theorem` of :doc:`/book/linear-gaussian`.

    Args:
        prior: p(x), of N inputs.
        A: the matrix, of shape (M, N), or ``(*batch, M, N)``.
        b: the offset, of shape (M,), or ``(*batch, M)``, or a number for all outputs.
        noise: the distribution of y - A x - b, of M outputs; its mean is added to ``b``.

    Returns:
        The joint and the marginal distribution, and the posterior as a method of the outputs.

    Raises:
        TypeError: ``prior`` or ``noise`` is no multivariate normal.
        ValueError: shapes do not fit; a number is not finite; a matrix is not symmetric.
        NotPositiveDefinite: the matrix of ``prior`` or of ``noise`` is not positive definite.

    Example:
        >>> from jax import numpy as jnp
        >>> from numpyro import distributions as dist
        >>> prior = dist.MultivariateNormal(jnp.zeros(1), jnp.eye(1))
        >>> noise = dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2))
        >>> posterior = linear_gaussian(prior, jnp.ones((2, 1)), 0.0, noise).posterior([1.0, 2.0])
        >>> print(posterior.mean.round(4), posterior.variance.round(4))
        [1.] [0.3333]
    """
    mean, factor = mean_and_factor("prior", prior)
    noise_mean, noise_factor = mean_and_factor("noise", noise)
    A, b, N, M = floats("A", A), floats("b", b), mean.shape[-1], noise_mean.shape[-1]
    require_shape("A", A, (M, N), f"`noise` has {M} variables and `prior` has {N}")
    if b.ndim:
        require_shape("b", b, (M,), "one for each output")
    batches = {"prior": prior.batch_shape, "noise": noise.batch_shape}
    require_batches(**batches, A=A.shape[:-2], b=b.shape[:-1])
    given = vars(noise).get("covariance_matrix")  # never asked for: its product is costly
    joint, of_outputs, posterior_factor, gain = factors.theorem(
        mean, factor, A, b + noise_mean, noise_factor, given
    )
    return LinearGaussian(
        joint=result("the joint distribution", joint),
        marginal=result("the marginal of y", of_outputs),
        _posterior_factor=posterior_factor,
        _gain=gain,
    )


@in_full_precision
def kl_divergence(p: MultivariateNormal, q: MultivariateNormal) -> Float[Array, "*batch"]:
    """``KL(p || q) = [log |S_q|/|S_p| - D + tr(S_q^-1 S_p) + (m_q - m_p)' S_q^-1 (m_q - m_p)]/2``.

    With T = L_q^-1 L_p it is the sum of terms
    none of which is negative: (t - 1)^2/2 + t - 1 - log t for t = T_ii, T_ij^2/2 below the diagonal,
    and half the squared distance of the means: near equality they are small by themselves.

    In the book: :prf:ref:`kl-divergence-gaussians` and :eq:`kl-divergence-terms` of
    :doc:`/book/kl-divergence`.

    Args:
        p: the distribution that the expectation is over, of D variables.
        q: the other, of D variables.

    Returns:
        The divergence in nats, 0 or more, with the batch shape of both together.

    Raises:
        TypeError: ``p`` or ``q`` is no multivariate normal.
        ValueError: they differ in D, or their batches do not broadcast; a matrix is not symmetric.
        NotPositiveDefinite: the matrix of ``p`` or of ``q`` is not positive definite.

    Example:
        >>> from jax import numpy as jnp
        >>> from numpyro import distributions as dist
        >>> p = dist.MultivariateNormal(jnp.zeros(1), jnp.eye(1))
        >>> q = dist.MultivariateNormal(jnp.ones(1), 4 * jnp.eye(1))
        >>> print(f"{kl_divergence(p, q):.4f} {kl_divergence(q, p):.4f}")
        0.4431 1.3069
    """
    (mean, factor), (other_mean, other_factor) = mean_and_factor("p", p), mean_and_factor("q", q)
    require_shape("q", other_mean, mean.shape[-1:], "as many variables as `p` has")
    require_batches(p=p.batch_shape, q=q.batch_shape)
    return factors.divergence(mean, factor, other_mean, other_factor)


@in_full_precision
def expected_quadratic_form(p: MultivariateNormal, A: Numbers) -> Float[Array, "*batch"]:
    """E[x' A x] = m' A m + tr(A S), for x ~ N(m, S) and for any other x of this mean and covariance.

    In the book: :prf:ref:`kl-divergence-quadratic-form` of :doc:`/book/kl-divergence`.

    Args:
        p: a normal distribution of D variables.
        A: any matrix of shape (D, D), or ``(*batch, D, D)``; it need not be symmetric.

    Returns:
        The expectation, with the batch shape of both together.

    Raises:
        TypeError: ``p`` is no multivariate normal.
        ValueError: ``A`` does not fit, or is not finite; the matrix of ``p`` is not symmetric.
        NotPositiveDefinite: it is not positive definite.

    Example:
        >>> from jax import numpy as jnp
        >>> from numpyro import distributions as dist
        >>> p = dist.MultivariateNormal(jnp.ones(2), 3 * jnp.eye(2))
        >>> print(f"{expected_quadratic_form(p, jnp.eye(2)):.4f}")
        8.0000
    """
    mean, factor = mean_and_factor("p", p)
    A, D = floats("A", A), mean.shape[-1]
    require_shape("A", A, (D, D), f"`p` has {D} variables")
    require_batches(p=p.batch_shape, A=A.shape[:-2])
    return factors.quadratic_form(mean, factor, A)
