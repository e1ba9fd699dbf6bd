"""The NumPyro models that chapters share."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, ArrayLike

__all__ = ["logistic_regression"]


def logistic_regression(
    features: ArrayLike,
    targets: ArrayLike | None = None,
    prior_mean: ArrayLike = 0.0,
    prior_covariance: ArrayLike | None = None,
) -> None:
    """Bayesian logistic regression: w ~ N(m0, S0), t_n ~ Bernoulli(sigma(w' phi_n)).

    Bishop (2006), section 4.5. A column of ones among the features is the intercept.

    Args:
        features: phi_n in the rows, shape (N, D).
        targets: t_n, zero or one, shape (N,); None to predict them.
        prior_mean: m0, shape (D,), or one number for all.
        prior_covariance: S0, shape (D, D); the identity by default.

    Raises:
        ValueError: the features are no matrix, or the targets not one for each of its rows.

    Example:
        >>> import numpy as np
        >>> from laplacebook import laplace
        >>> features = np.column_stack([np.ones(4), [-2.0, -1.0, 1.0, 2.0]])
        >>> approx = laplace(logistic_regression, features, np.array([0.0, 0.0, 1.0, 1.0]))
        >>> print(f"{approx.mode['w'][1]:.3f}")
        1.007
    """
    features = jnp.asarray(features)
    if features.ndim != 2:
        raise ValueError(f"features must have shape (N, D), not {features.shape}")
    N, D = features.shape
    if targets is not None and jnp.shape(targets) != (N,):
        raise ValueError(
            f"targets must have shape ({N},), as features have, not {jnp.shape(targets)}"
        )
    covariance = jnp.eye(D) if prior_covariance is None else jnp.asarray(prior_covariance)
    mean = jnp.broadcast_to(jnp.asarray(prior_mean, float), (D,))
    w: Array = numpyro.sample("w", dist.MultivariateNormal(mean, covariance))
    with numpyro.plate("N", N):
        numpyro.sample("t", dist.Bernoulli(logits=features @ w), obs=targets)
