"""The data of models of practice that nobody measured."""

import numpy as np


def counts():
    """Poisson counts around a latent AR(1) with phi = 0.8, sigma = 0.4 and mean 1.5."""
    rng = np.random.default_rng(1)
    z = np.empty(100)
    z[0] = rng.normal(0, 0.4 / 0.6)
    for t in range(1, 100):
        z[t] = 0.8 * z[t - 1] + rng.normal(0, 0.4)
    return rng.poisson(np.exp(1.5 + z))


def classes():
    """Fifty places on a line, and a class at each, by a smooth curve in the logits."""
    rng = np.random.default_rng(2)
    x = np.sort(rng.uniform(0, 10, 50))
    return x, rng.binomial(1, 1 / (1 + np.exp(-2.5 * np.sin(x))))


def slopes():
    """Twenty groups of fifteen; intercepts of sd 1 and slopes of sd 0.7, correlated by 0.5."""
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(20), 15)
    of_group = rng.multivariate_normal([-0.5, 1], [[1, 0.35], [0.35, 0.49]], 20, method="cholesky")
    x = rng.normal(size=300)
    logits = of_group[group, 0] + of_group[group, 1] * x
    return group, x, rng.binomial(1, 1 / (1 + np.exp(-logits)))


def sparse():
    """Sixty rows and ten covariates, of which the first three have an effect."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(60, 10))
    return x, x[:, :3] @ [2, -1, 0.5] + rng.normal(size=60)
