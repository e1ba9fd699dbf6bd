"""Ratios of gamma functions: digits and derivatives at any arguments, against arithmetic of fifty digits."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import laplacebook as lb
from laplacebook.model.edges import right_at_edges
from laplacebook.model.gamma_ratios import log_rising
from tests.models import single_precision

STEPS = [
    (1e-8, 3.0),
    (0.3, 0.0),
    (0.3, 0.5),
    (7.99, 0.02),
    (8.0, -0.5),
    (5.0, 100.0),
    (100.0, -99.5),
]
STEPS += [(5.0, 5.0), (8.0, 8.0), (1e4, 1e4), (1e10, 3.0), (1e16, 0.5)]


@pytest.mark.parametrize(("x", "step"), STEPS)
def test_a_rising_factorial_and_its_derivatives(x, step):
    with mp.workdps(50):
        there, here = mp.mpf(x) + mp.mpf(step), mp.mpf(x)
        functions = [mp.loggamma, mp.digamma, lambda v: mp.psi(1, v)]
        expected = [float(f(there) - f(here)) for f in functions]
    ours = [jax.jit(log_rising), jax.grad(log_rising), jax.grad(jax.grad(log_rising))]
    found = [float(f(x, step)) for f in ours]
    np.testing.assert_allclose(found, expected, rtol=3e-14, atol=1e-14)
    np.testing.assert_allclose(log_rising(x, step), expected[0], rtol=3e-14, atol=1e-14)


def test_of_known_numbers_a_program_computes_none():
    def density(x):
        return right_at_edges(dist.StudentT(4.0, 0.0, 1.0)).log_prob(x).sum()

    x = np.linspace(-3, 3, 7)
    assert "lgamma" not in str(jax.make_jaxpr(density)(x))
    np.testing.assert_allclose(density(x), stats.t(4).logpdf(x).sum(), rtol=1e-14)
    with single_precision():
        assert log_rising(4.0, np.arange(3)).dtype == np.float32
        assert log_rising(np.float32(4.0), 0.5).dtype == np.float32


def negative_binomial(mean, size, k):
    p = size / (size + mean)
    ways = mp.loggamma(size + k) - mp.loggamma(size) - mp.loggamma(k + 1)
    return ways + size * mp.log(p) + k * mp.log(1 - p)


def log_beta(a, b):
    return mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b)


def betas(a, b, n, k):
    ways = mp.loggamma(n + 1) - mp.loggamma(k + 1) - mp.loggamma(n - k + 1)
    return ways + log_beta(k + a, n - k + b) - log_beta(a, b)


def student(df, x):
    df = mp.mpf(df)
    constant = mp.loggamma((df + 1) / 2) - mp.loggamma(df / 2) - mp.log(df * mp.pi) / 2
    return constant - (df + 1) / 2 * mp.log1p(mp.mpf(x) ** 2 / df)


def pair(a, b):
    return jnp.array([a, b])


LARGE = [0.5, 1e4, 1e14]
KINDS = {
    "StudentT": lambda s: (dist.StudentT(s, 0.0, 1.0), 2.0, student(s, 2.0)),
    "GammaPoisson": lambda s: (dist.GammaPoisson(s, s / 5), 7, negative_binomial(5, mp.mpf(s), 7)),
    "mean and concentration": lambda s: (dist.NegativeBinomial2(5.0, s), 7, negative_binomial(5, mp.mpf(s), 7)),
    "logits": lambda s: (dist.NegativeBinomialLogits(s, np.log(5 / s)), 7, negative_binomial(5, mp.mpf(s), 7)),
    "probs": lambda s: (dist.NegativeBinomialProbs(s, 0.25), 7, negative_binomial(mp.mpf(s) / 3, mp.mpf(s), 7)),
    "BetaBinomial": lambda s: (dist.BetaBinomial(3 * s, 7 * s, 10), 4, betas(3 * mp.mpf(s), 7 * mp.mpf(s), 10, 4)),
    "equal concentrations": lambda s: (dist.BetaBinomial(s, s, 10), 5, betas(mp.mpf(s), mp.mpf(s), 10, 5)),
    "DirichletMultinomial": lambda s: (
        dist.DirichletMultinomial(pair(3 * s, 7 * s), 10),
        np.array([4, 6]),
        betas(3 * mp.mpf(s), 7 * mp.mpf(s), 10, 4),
    ),
    "BetaNegativeBinomial": lambda s: (
        dist.BetaNegativeBinomial(3 * s, 7 * s, 4.0),
        2,
        betas(7 * mp.mpf(s), 3 * mp.mpf(s), 6, 4) + mp.log(mp.binomial(5, 2)) - mp.log(mp.binomial(6, 2)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", LARGE)
def test_log_densities_at_any_size(kind, size):
    with mp.workdps(50):
        fn, value, expected = KINDS[kind](size)
        expected = float(expected)
    # logits and a large number of successes have these numbers rounded.
    rounded = 4e-16 * size if kind in ("probs", "logits") else 0
    found = float(right_at_edges(fn).log_prob(value))
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-12 + 40 * rounded)


def shares(y, size, slope, total):
    z = slope * numpyro.sample("z", dist.Normal(0, 1))
    one, zero = size * jax.nn.sigmoid(z), size * jax.nn.sigmoid(-z)
    numpyro.sample("y", dist.BetaBinomial(one, zero, total), obs=y)


def fit_of_shares(y, *numbers):
    """With all numbers as data: one program."""
    return lb.laplace(shares, y, *map(np.float64, numbers))


def test_a_mode_where_both_concentrations_are_equal():
    """There JAX's second derivative of betaln is wrong, and the fit was refused."""
    y = np.array([5, 3, 7, 4, 6])

    def height(z):
        fn = stats.betabinom(10, 10 * special.expit(z), 10 * special.expit(-z))
        return fn.logpmf(y).sum() + stats.norm.logpdf(z)

    step = 1e-3
    bend = -(height(step) - 2 * height(0.0) + height(-step)) / step**2
    fit = fit_of_shares(y, 10, 1, 10)
    assert abs(fit.mode["z"]) < 1e-8
    np.testing.assert_allclose(fit.covariance, [[1 / bend]], rtol=1e-6)


def test_the_certificate_of_counts_in_the_thousands():
    """Which the noise of differences of log gamma functions did not let it have."""

    y = 5000 + np.array([6, -7, 32, 5, -27])
    z = np.linspace(-8, 8, 4001)
    p = special.expit(0.01 * z)[:, None]
    heights = stats.betabinom(10_000, 1e4 * p, 1e4 * (1 - p)).logpmf(y).sum(1) + stats.norm.logpdf(
        z
    )
    exact = special.logsumexp(heights) + np.log(z[1] - z[0])
    np.testing.assert_allclose(fit_of_shares(y, 1e4, 0.01, 1e4).log_evidence, exact, atol=1e-4)


def test_single_precision_of_many_degrees_of_freedom():
    """Which a normal density is; NumPyro's was 0.08 off for each of the data."""

    def model(y):
        numpyro.sample("y", dist.StudentT(1e6, numpyro.sample("z", dist.Normal(0, 1)), 1.0), obs=y)

    y = np.array([0.3, -0.2, 1.1])
    exact = stats.multivariate_normal(np.zeros(3), np.ones((3, 3)) + np.eye(3)).logpdf(y)
    with single_precision():
        np.testing.assert_allclose(lb.laplace(model, y).log_evidence, exact, rtol=1e-4)


@pytest.mark.parametrize(
    "fn",
    [dist.NegativeBinomial2(jnp.zeros(()), 3.0), dist.NegativeBinomialProbs(3.0, jnp.zeros(()))],
    ids=["mean", "probability"],
)
def test_counts_of_what_cannot_happen_are_none(fn):
    np.testing.assert_array_equal(
        right_at_edges(fn).log_prob(jnp.array([0.0, 1.0])), [0.0, -np.inf]
    )


@pytest.mark.parametrize("by", ["probs", "logits"])
def test_single_precision_of_rare_events_among_many(by):
    """The differences of log factorials alone were off by several nats; of 0 and of all as ever."""
    k, n = np.array([0, 3, 300, 10_000_000 - 2, 5]), np.array([7, 10**6, 10**7, 10**7, 5])
    p = (k + 0.5) / (n + 1)
    with single_precision():
        fn = right_at_edges(dist.Binomial(n, **{by: p if by == "probs" else special.logit(p)}))
        found = fn.log_prob(k)
    kept = slice(0, 3) if by == "probs" else slice(None)  # 1 - 2e-7 has no digits
    np.testing.assert_allclose(found[kept], stats.binom(n, p).logpmf(k)[kept], rtol=1e-3, atol=1e-3)
