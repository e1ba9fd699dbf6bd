"""The claims of the chapter on linear-Gaussian models, each computed in another way than there."""

from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import laplacebook as lb

SIGMA, M_0, PRIOR_VARIANCES = 300.0, (3000.0, 185.0), (300.0**2 / 0.06, 300.0**2 / 6)


def pine():
    data = lb.datasets.radiata_pine("friel_wyse")
    return data.strength, data.density - data.density.mean()


def one_after_the_other(y, d):
    """Posterior and log evidence of the line, one specimen at a time; no matrix is inverted."""
    mean, covariance, log_evidence = np.array(M_0), np.diag(PRIOR_VARIANCES), 0.0
    for strength, density in zip(y, d, strict=True):
        a = np.array([1.0, density])
        variance = a @ covariance @ a + SIGMA**2
        log_evidence += stats.norm(a @ mean, np.sqrt(variance)).logpdf(strength)
        gain = covariance @ a / variance
        mean = mean + gain * (strength - a @ mean)
        covariance = covariance - variance * np.outer(gain, gain)
    return mean, covariance, log_evidence


def test_pines():
    mean, covariance, log_evidence = one_after_the_other(*pine())
    assert np.round(mean, 2).tolist() == [3004.04, 184.16]
    assert np.round(np.sqrt(np.diag(covariance)), 2).tolist() == [46.26, 10.27]
    assert round(log_evidence, 4) == -309.0355


def test_pines_each_from_the_others():
    y, d = pine()
    inside = 0
    for n in range(len(y)):
        mean, covariance, _ = one_after_the_other(np.delete(y, n), np.delete(d, n))
        a = np.array([1.0, d[n]])
        z = (y[n] - a @ mean) / np.sqrt(a @ covariance @ a + SIGMA**2)
        inside += abs(z) < stats.norm.ppf(0.95)
    assert inside == 36


def test_conditional_of_three_variables_in_fractions():
    S = [[Fraction(x, 10) for x in row] for row in ((20, 8, 4), (8, 10, 3), (4, 3, 5))]
    gain = [S[0][1] / S[1][1], S[2][1] / S[1][1]]
    mean = [1 + gain[0], Fraction(1, 2) + gain[1]]
    C = [[S[i][j] - S[i][1] * S[1][j] / S[1][1] for j in (0, 2)] for i in (0, 2)]
    p = dist.MultivariateNormal(jnp.array([1.0, -1.0, 0.5]), jnp.array(np.array(S, float)))
    known = lb.condition(p, [1], [0.0])
    np.testing.assert_allclose(known.mean, np.array(mean, float), rtol=1e-12)
    np.testing.assert_allclose(known.covariance_matrix, np.array(C, float), rtol=1e-12)


@pytest.mark.parametrize("M", [1, 3])
def test_laplace_is_exact(M):
    rng = np.random.default_rng(M)
    A, b, y = rng.normal(size=(M, 2)), rng.normal(size=M), rng.normal(size=M)
    factor, noise_factor = (np.tril(rng.normal(size=(k, k))) + 3 * np.eye(k) for k in (2, M))
    S, R, m = factor @ factor.T, noise_factor @ noise_factor.T, rng.normal(size=2)

    def model(y):
        x = numpyro.sample("x", dist.MultivariateNormal(m, S))
        numpyro.sample("y", dist.MultivariateNormal(A @ x + b, R), obs=y)

    approx = lb.laplace(model, y)
    gain = S @ A.T @ np.linalg.inv(A @ S @ A.T + R)
    np.testing.assert_allclose(approx.mode["x"], m + gain @ (y - A @ m - b), atol=1e-10)
    np.testing.assert_allclose(approx.covariance, S - gain @ A @ S, atol=1e-10)
    exact = stats.multivariate_normal(A @ m + b, A @ S @ A.T + R).logpdf(y)
    np.testing.assert_allclose(approx.log_evidence, exact, atol=1e-10)
