"""Regressions of any size: the data, and the NumPyro model."""

from collections.abc import Callable

import numpy as np

NOISE_SD = 0.5

OUTCOMES = {
    "logistic": lambda rng, eta: (rng.random(eta.size) < 1 / (1 + np.exp(-eta))).astype(float),
    "linear": lambda rng, eta: rng.normal(eta, NOISE_SD),
    "Poisson": lambda rng, eta: rng.poisson(np.exp(eta)).astype(float),
}


def data(kind: str, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """n rows of d standard normal features, and outcomes of a linear predictor of variance near 1."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((n, d))
    weights = rng.standard_normal(d) / np.sqrt(d)
    return features, OUTCOMES[kind](rng, features @ weights)


def model(kind: str) -> Callable:
    """The NumPyro model: a standard normal prior for logistic regression, else a flat one."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    numpyro.enable_x64()
    likelihood = {
        "logistic": lambda eta: dist.Bernoulli(logits=eta),
        "linear": lambda eta: dist.Normal(eta, NOISE_SD),
        "Poisson": lambda eta: dist.Poisson(jnp.exp(eta)),
    }[kind]

    def prior(d):
        if kind == "logistic":
            return dist.Normal(0, 1).expand([d]).to_event(1)
        return dist.ImproperUniform(dist.constraints.real_vector, (), (d,))

    def regression(features, y):
        w = numpyro.sample("w", prior(features.shape[1]))
        with numpyro.plate("N", len(y)):
            numpyro.sample("y", likelihood(features @ w), obs=y)

    return regression
