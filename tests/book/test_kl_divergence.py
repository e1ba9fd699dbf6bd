"""The numbers of the chapter on the divergence between Gaussians, computed in another way."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import MultivariateNormal
from scipy import optimize, stats
from scipy.special import betaln, log_expit, roots_hermitenorm

import laplacebook as lb


def trapezoid_kl(log_p, log_q, x):
    """The trapezoidal rule, which converges geometrically where both ends vanish."""
    return np.trapezoid(np.exp(log_p) * (log_p - log_q), x)


def coin(heads, tails, log_prior):
    """The log posterior of the logit u, and its approximation by a root and differences."""
    step = 1e-4

    def log_joint(u):
        return heads * log_expit(u) + tails * log_expit(-u) + log_prior(u)

    def slope(u):
        return (log_joint(u + step) - log_joint(u - step)) / (2 * step)

    u = optimize.brentq(slope, -6, 6, xtol=1e-12)
    A = -(log_joint(u + step) - 2 * log_joint(u) + log_joint(u - step)) / step**2
    assert A > 0
    return log_joint, stats.norm(u, A**-0.5)


FIRST = (8, 1, lambda u: 2 * log_expit(u) + 2 * log_expit(-u))
SECOND = (7, 2, lambda u: -((u + 2) ** 2) / 2)


@pytest.mark.parametrize(
    ("data", "forward", "reverse"),
    [(FIRST, 0.03606, 0.02451), (SECOND, 0.00103, 0.00090)],
    ids=["first", "second"],
)
def test_coins_in_the_logit(data, forward, reverse):
    log_p, q = coin(*data)
    u = np.linspace(-12, 16, 4001)
    log_q = q.logpdf(u)
    normalised = log_p(u) - np.log(np.trapezoid(np.exp(log_p(u)), u))
    assert trapezoid_kl(normalised, log_q, u) == pytest.approx(forward, abs=5e-6)
    assert trapezoid_kl(log_q, normalised, u) == pytest.approx(reverse, abs=5e-6)


def test_first_coin_in_theta_by_draws():
    p, q = stats.beta(10, 3), stats.norm(9 / 11, (18 / 11**3) ** 0.5)
    theta = p.rvs(400_000, random_state=0)
    log_ratio = p.logpdf(theta) - q.logpdf(theta)
    error = log_ratio.std() / len(theta) ** 0.5
    assert abs(log_ratio.mean() - 0.14231) < 4 * error


@pytest.mark.parametrize("k", [64, 512])
@pytest.mark.parametrize(("data", "tolerance"), [(FIRST, 0.1), (SECOND, 0.05)])
def test_skewness_is_the_leading_term(k, data, tolerance):
    """5/24 of the squared third derivative, here by differences of the log joint."""
    log_p, q = coin(k * data[0], k * data[1], data[2])
    u, h = q.mean(), 0.05 * q.std()
    f = [-log_p(u + i * h) for i in (-2, -1, 1, 2)]
    third = (f[3] - 2 * f[2] + 2 * f[1] - f[0]) / (2 * h**3)
    grid = u + q.std() * np.linspace(-12, 12, 4001)
    exact = log_p(grid) - log_p(u)
    exact -= np.log(np.trapezoid(np.exp(exact), grid))
    leading = 5 / 24 * (third * q.std() ** 3) ** 2
    for kl in (
        trapezoid_kl(exact, q.logpdf(grid), grid),
        trapezoid_kl(q.logpdf(grid), exact, grid),
    ):
        assert kl == pytest.approx(leading, rel=tolerance)


def test_matching_moments_splits_the_forward_divergence():
    """D(p||q) = D(p||q*) + D(q*||q) for the first coin, D(q*||q) by `lb.kl_divergence`."""
    u = np.linspace(-12, 16, 8001)
    log_p = 10 * log_expit(u) + 3 * log_expit(-u) - betaln(10, 3)
    mean = np.trapezoid(np.exp(log_p) * u, u)
    variance = np.trapezoid(np.exp(log_p) * (u - mean) ** 2, u)
    best, other = stats.norm(mean, variance**0.5), stats.norm(0.7, 0.9)

    def gaussian(q):
        return MultivariateNormal(jnp.array([q.mean()]), scale_tril=jnp.array([[q.std()]]))

    rest = lb.kl_divergence(gaussian(best), gaussian(other))
    split = trapezoid_kl(log_p, best.logpdf(u), u) + rest
    np.testing.assert_allclose(trapezoid_kl(log_p, other.logpdf(u), u), split, rtol=1e-5)


def test_quadratic_form_by_gauss_hermite():
    """E[Y'AY] of the chapter, 5.4375, by a rule that is exact for polynomials."""
    m = np.array([1.0, -1.0, 0.5])
    L = np.array([[1.0, 0.0, 0.0], [0.5, 1.5, 0.0], [-0.5, 0.25, 0.75]])
    A = np.array([[2.0, 1.0, 0.0], [-1.0, 1.0, 0.5], [0.0, 2.0, -1.0]])
    z, w = roots_hermitenorm(3)
    w = w / w.sum()
    grid = np.stack(np.meshgrid(z, z, z, indexing="ij"), -1).reshape(-1, 3)
    weights = np.einsum("i,j,k->ijk", w, w, w).ravel()
    Y = m + grid @ L.T
    exact = weights @ np.einsum("si,ij,sj->s", Y, A, Y)
    assert exact == pytest.approx(5.4375)
    p = MultivariateNormal(jnp.asarray(m), scale_tril=jnp.asarray(L))
    np.testing.assert_allclose(lb.expected_quadratic_form(p, A), exact, rtol=1e-6)


def test_mass_outside_makes_the_reverse_divergence_infinite():
    q = stats.norm(9 / 11, (18 / 11**3) ** 0.5)
    assert q.cdf(0) + q.sf(1) == pytest.approx(0.0590, abs=5e-5)
    assert stats.beta(10, 3).pdf(1.01) == 0
