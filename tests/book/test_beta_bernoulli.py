"""The coin with a Beta prior, where everything is known in closed form, in both spaces."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro.infer import SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoLaplaceApproximation
from scipy import stats
from scipy.special import betaln, expit, logit

import laplacebook as lb
from tests.models import coin

#: (alpha, beta, heads, tails); the first is the coin of the book
CASES = [
    (2, 2, 8, 1),
    (1, 1, 3, 2),
    (0.5, 0.5, 7, 4),
    (5, 2, 0, 4),
    (2, 2, 900, 100),
    (30, 60, 1, 1),
]


def data(heads, tails):
    return np.repeat([1.0, 0.0], [heads, tails])


@pytest.mark.parametrize(("alpha", "beta", "heads", "tails"), CASES)
def test_unconstrained_space(alpha, beta, heads, tails):
    approx = lb.laplace(coin, data(heads, tails), float(alpha), float(beta))
    a, b = (
        alpha + heads,
        beta + tails,
    )  # the posterior is Beta(a, b); in the logit it peaks at a/(a+b)
    p = a / (a + b)
    assert approx.mode["theta"] == pytest.approx(p, rel=1e-8)
    assert approx.mode_vector[0] == pytest.approx(logit(p), abs=1e-7)
    assert approx.precision.matrix[0, 0] == pytest.approx(a * b / (a + b), rel=1e-7)
    assert approx.covariance[0, 0] == pytest.approx((a + b) / (a * b), rel=1e-7)
    log_jacobian = np.log(p * (1 - p))
    log_likelihood = heads * np.log(p) + tails * np.log1p(-p)
    log_prior = stats.beta(alpha, beta).logpdf(p) + log_jacobian
    assert_parts(approx, log_likelihood, log_prior, (a + b) / (a * b))


@pytest.mark.parametrize(("alpha", "beta", "heads", "tails"), CASES)
def test_constrained_space(alpha, beta, heads, tails):
    approx = lb.laplace(coin, data(heads, tails), float(alpha), float(beta), space="constrained")
    a, b = alpha + heads - 1, beta + tails - 1
    m = a / (a + b)
    variance = m * (1 - m) / (a + b)
    assert approx.mode["theta"] == pytest.approx(m, rel=1e-8)
    assert approx.mode_vector[0] == approx.mode["theta"]
    assert approx.covariance[0, 0] == pytest.approx(variance, rel=1e-7)
    log_likelihood = heads * np.log(m) + tails * np.log1p(-m)
    assert_parts(approx, log_likelihood, stats.beta(alpha, beta).logpdf(m), variance)


def assert_parts(approx, log_likelihood, log_prior, variance):
    log_occam_factor = log_prior + np.log(2 * np.pi) / 2 + np.log(variance) / 2
    assert approx.log_likelihood == pytest.approx(log_likelihood, rel=1e-8)
    assert approx.log_prior == pytest.approx(log_prior, abs=1e-7)
    assert approx.log_occam_factor == pytest.approx(log_occam_factor, abs=1e-7)
    assert approx.log_evidence == pytest.approx(log_likelihood + log_occam_factor, abs=1e-7)


def test_the_evidence_comes_near_the_exact_one_as_tosses_accumulate():
    def error(n):
        exact = betaln(2 + 8 * n, 2 + n) - betaln(2, 2)
        return abs(float(lb.laplace(coin, data(8 * n, n)).log_evidence) - exact)

    errors = [error(n) for n in (10, 100, 1000)]
    ratios = np.divide(errors[:-1], errors[1:])
    np.testing.assert_allclose(ratios, 10, rtol=0.2)  # the error falls as 1/N


@pytest.mark.parametrize(("alpha", "beta", "heads", "tails"), [CASES[0], CASES[2]])
def test_equals_numpyros_posterior_at_the_exact_mode(alpha, beta, heads, tails):
    """NumPyro differentiates its own ELBO at a mode known in closed form; all cases stand above."""
    y, prior = data(heads, tails), (float(alpha), float(beta))
    theirs = AutoLaplaceApproximation(coin)
    with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.block():
        theirs(y, *prior)
    at_mode = {"auto_loc": jnp.array([logit((alpha + heads) / (alpha + beta + heads + tails))])}
    posterior = theirs.get_posterior(at_mode)
    ours = lb.laplace(coin, y, *prior)
    np.testing.assert_allclose(ours.mode_vector, posterior.mean, atol=1e-7)
    np.testing.assert_allclose(ours.covariance, posterior.covariance_matrix, rtol=1e-7)
    np.testing.assert_allclose(
        ours.guide.get_posterior(ours.params).covariance_matrix,
        posterior.covariance_matrix,
        rtol=1e-7,
    )


def test_equals_numpyros_own_fit():
    y = data(8, 1)
    guide = AutoLaplaceApproximation(coin)
    svi = SVI(coin, guide, numpyro.optim.Minimize(), Trace_ELBO())
    params = svi.run(jax.random.key(0), 1, y, progress_bar=False).params
    posterior, ours = guide.get_posterior(params), lb.laplace(coin, y)
    np.testing.assert_allclose(ours.mode_vector, posterior.mean, atol=1e-4)  # BFGS stops early
    np.testing.assert_allclose(ours.covariance, posterior.covariance_matrix, rtol=1e-4)


def test_predictive_through_the_guide_has_the_posterior_spread():
    """With NumPyro's own guide every draw is the mode."""
    approx = lb.laplace(coin, data(8, 1))
    predict = Predictive(
        coin, guide=approx.guide, params=approx.params, num_samples=4000, return_sites=["theta"]
    )
    draws = logit(np.asarray(predict(jax.random.key(0), data(8, 1))["theta"]))
    assert draws.shape == (4000,)
    assert draws.mean() == pytest.approx(logit(10 / 13), abs=4 * np.sqrt(13 / 30 / 4000))
    assert draws.var() == pytest.approx(13 / 30, rel=4 * np.sqrt(2 / 4000))


def test_samples_are_on_the_models_scale():
    approx = lb.laplace(coin, data(8, 1))
    draws = approx.sample(jax.random.key(1), (50, 40))["theta"]
    assert draws.shape == (50, 40)
    u = logit(np.asarray(draws)).ravel()
    assert stats.kstest(u, stats.norm(logit(10 / 13), np.sqrt(13 / 30)).cdf).pvalue > 0.001
    assert approx.sample(jax.random.key(1))["theta"].shape == ()


def test_start_may_be_anywhere_inside():
    near = lb.laplace(coin, data(8, 1), start={"theta": 0.999})
    assert near.mode["theta"] == pytest.approx(10 / 13, rel=1e-8)


def test_a_start_at_the_mode_is_looked_at_twice():
    at_mode = lb.laplace(coin, data(8, 1), start={"theta": 10 / 13})
    assert at_mode.certificate.converged
    assert at_mode.mode["theta"] == pytest.approx(expit(logit(10 / 13)), rel=1e-12)
