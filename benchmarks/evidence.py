"""The evidence by draws, beside the same sums written by hand in NumPy."""

import numpy as np

from benchmarks.clock import repeated, timed
from benchmarks.problems import data, model
from benchmarks.runner import Call, Row

TITLE = "The evidence by Monte Carlo"
TOSSES = np.repeat([1.0, 0.0], [7, 2])


def sigmoid_coin(y):
    import numpyro
    import numpyro.distributions as dist

    theta = numpyro.sample("theta", dist.Normal(-2, 1))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=theta), obs=y)


def prior_draws(number: int) -> dict[str, float]:
    """Draws from the prior of a coin, by this package."""
    import jax
    import numpyro

    import laplacebook as lb

    numpyro.enable_x64()

    def estimate(seed):
        key = jax.random.key(seed)
        return lb.prior_sampling(sigmoid_coin, TOSSES, key=key, num_samples=number)

    first, found = timed(lambda: estimate(0))
    return {"first": first, "next": repeated(lambda: estimate(1)), "value": float(found.value)}


def prior_draws_by_hand(number: int) -> dict[str, float]:
    """The same in NumPy: a vector of draws, and the likelihood in closed form."""

    def estimate():
        theta = np.random.default_rng(0).normal(-2, 1, number)
        likelihood = np.exp(7 * theta - 9 * np.logaddexp(0, theta))
        return np.log(likelihood.mean())

    return {"next": repeated(estimate), "value": float(estimate())}


def importance_draws(number: int, n: int, d: int) -> dict[str, float]:
    """Draws from the approximation of a logistic regression, by this package."""
    import jax

    import laplacebook as lb

    regression = model("logistic")
    features, y = map(jax.numpy.asarray, data("logistic", n, d))
    approx = lb.laplace(regression, features, y)

    def estimate(seed):
        return lb.importance_sampling(approx, jax.random.key(seed), number, proposal="gaussian")

    first, found = timed(lambda: estimate(0))
    following = repeated(lambda: estimate(1), times=3)
    return {"first": first, "next": following, "value": float(found.value)}


def importance_draws_by_hand(number: int, n: int, d: int) -> dict[str, float]:
    """The same in NumPy, a thousand draws at a time; the proposal is that of this package."""
    import laplacebook as lb

    features, y = data("logistic", n, d)
    approx = lb.laplace(model("logistic"), features, y)
    root, mode = np.linalg.cholesky(np.asarray(approx.covariance)), np.asarray(approx.mode_vector)
    # log p(w) - log q(w) without what depends on w
    constant = np.log(np.diag(root)).sum() - np.log(number)

    def estimate():
        rng, weights = np.random.default_rng(0), []
        for _ in range(number // 1000):
            z = rng.standard_normal((1000, d))
            w = mode + z @ root.T
            eta = w @ features.T
            log_joint = eta @ y - np.logaddexp(0, eta).sum(axis=1) - (w**2).sum(axis=1) / 2
            weights.append(log_joint + (z**2).sum(axis=1) / 2)
        return np.logaddexp.reduce(np.concatenate(weights)) + constant

    return {"next": repeated(estimate, times=3), "value": float(estimate())}


def rows(quick: bool) -> list[Row]:
    """The comparisons."""
    draws, fewer = (100_000, 2_000) if quick else (1_000_000, 100_000)
    size = (fewer, 10_000, 20)
    by_hand = "the same by hand in NumPy"
    return [
        Row(
            f"{draws:,} prior draws of a coin",
            Call(prior_draws, (draws,)),
            Call(prior_draws_by_hand, (draws,)),
            by_hand,
            "next",
        ),
        Row(
            f"{fewer:,} importance draws, logistic regression, n = 10,000, d = 20",
            Call(importance_draws, size),
            Call(importance_draws_by_hand, size),
            by_hand,
            "next",
        ),
    ]
