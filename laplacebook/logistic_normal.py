"""The mean of the logistic sigmoid of a normal variable: what a Bayesian classifier predicts."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import erfc
from jaxtyping import Array, Float

__all__ = ["probit_approximation", "sigmoid_mean"]


def _rule() -> tuple[np.ndarray, np.ndarray]:
    """Variances and weights of the normals whose mixture is the logistic density, to rounding.

    Kolmogorov's density p(k) = 8 k sum_n (-1)^(n+1) n^2 exp(-2 n^2 k^2) of half their standard
    deviation, by the trapezoidal rule in log k, which it leaves at both ends faster than any
    exponential.
    """
    k, n = np.exp(0.12 * np.arange(-15, 14)), np.arange(1, 60)[:, None]
    density = 8 * k * np.sum((-1.0) ** (n + 1) * n**2 * np.exp(-2 * n**2 * k**2), axis=0)
    return 4 * k**2, density * k / np.sum(density * k)


_VARIANCES, _WEIGHTS = _rule()


@jax.jit
def sigmoid_mean(mean: Float[Array, "*N"], variance: Float[Array, "*N"]) -> Float[Array, "*N"]:
    """E[sigma(a)] for a ~ N(mean, variance), to rounding: the absolute error is below 1e-14.

    The logistic distribution is a mixture of the normals N(0, 4 k^2), with k of Kolmogorov's
    distribution (Andrews and Mallows 1974, J. R. Stat. Soc. B 36, 99-102), so that E[sigma(a)] is
    the mean of Phi(mean / sqrt(4 k^2 + variance)) over k. The trapezoidal rule in log k converges
    geometrically (Trefethen and Weideman 2014, SIAM Review 56, 385-458): 29 points serve for every
    mean and variance, where Gauss-Hermite quadrature needs ever more as the variance grows.

    Args:
        mean: of a, shape (*N,).
        variance: of a, zero or more, of the same shape.

    Returns:
        Probabilities, shape (*N,); NaN where the variance is negative.
    """
    variance = jnp.where(variance >= 0, variance, jnp.nan)
    dtype = jnp.result_type(mean, variance)

    def term(of_normal: Array, weight: Array) -> Array:
        return weight / 2 * erfc(-mean / jnp.sqrt(2 * (of_normal + variance)))

    def add(total: Array, normal_and_weight: tuple) -> tuple[Array, None]:
        return total + term(*normal_and_weight), None

    pairs = jnp.asarray(_VARIANCES, dtype), jnp.asarray(_WEIGHTS, dtype)
    first = term(*(part[0] for part in pairs))
    return jax.lax.scan(add, first, tuple(part[1:] for part in pairs), unroll=4)[0]


def probit_approximation(
    mean: Float[Array, "*N"], variance: Float[Array, "*N"]
) -> Float[Array, "*N"]:
    """sigma(kappa mean) with kappa = (1 + pi variance / 8)^(-1/2), which stands for E[sigma(a)].

    MacKay (1992); Bishop (2006), equations 4.153 and 4.154. The error is below 0.02 everywhere.

    Args:
        mean: of a, shape (*N,).
        variance: of a, of the same shape.

    Returns:
        Probabilities, shape (*N,).
    """
    return jax.nn.sigmoid(mean / jnp.sqrt(1 + np.pi / 8 * variance))
