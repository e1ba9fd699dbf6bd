"""Adaptive Gauss-Hermite quadrature: Laplace at one point, the truth at more."""

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats
from scipy.special import betaln, expit

import laplacebook as lb
from tests.models import coin, line

HEADS = np.repeat([1.0, 0.0], [8, 1])
TOSSES = np.repeat([1.0, 0.0], [7, 2])
WEIGHTS = np.array([2.3, 0.4, 1.9, 3.1])


def centre_and_scale(y):
    centre = numpyro.sample("centre", dist.Normal(0, 3))
    scale = numpyro.sample("scale", dist.Gamma(2, 1))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(centre, scale), obs=y)


def log_normal_density(x, centre, scale):
    return -(((x - centre) / scale) ** 2) / 2 - np.log(scale * np.sqrt(2 * np.pi))


def sigmoid_coin_by_quad():
    def joint(theta):
        h = expit(theta)
        return h**7 * (1 - h) ** 2 * np.exp(log_normal_density(theta, -2, 1))

    return np.log(integrate.quad(joint, -9, 9, epsabs=0, epsrel=1e-12)[0])


def centre_and_scale_by_quad():
    def joint(centre, scale):
        prior = log_normal_density(centre, 0, 3) + np.log(scale) - scale
        return np.exp(prior + log_normal_density(WEIGHTS, centre, scale).sum())

    return np.log(integrate.dblquad(joint, 0.1, 20, -12, 12, epsabs=0, epsrel=1e-8)[0])


def beta_binomial():
    return betaln(10, 3) - betaln(2, 2)


CASES = {
    "coin": (coin, (HEADS,), beta_binomial, 60, 1e-8),
    "centre and scale": (centre_and_scale, (WEIGHTS,), centre_and_scale_by_quad, 100, 1e-6),
}


@pytest.mark.parametrize("name", CASES)
def test_it_starts_at_laplace_and_converges_to_scipy_quadrature(name):
    model, data, evidence, number, tolerance = CASES[name]
    exact, approx = evidence(), lb.laplace(model, *data)
    np.testing.assert_allclose(lb.gauss_hermite(approx, 1), approx.log_evidence, rtol=1e-12)
    np.testing.assert_allclose(lb.gauss_hermite(approx, number), exact, atol=tolerance)
    errors = [abs(lb.gauss_hermite(approx, k) - exact) for k in (1, 4, 16)]
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("number", [1, 2, 7])
def test_a_gaussian_needs_one_point(number):
    rng = np.random.default_rng(0)
    features, y = rng.normal(size=(20, 5)), rng.normal(size=20)
    covariance = 4 * features @ features.T + 0.25 * np.eye(20)
    exact = stats.multivariate_normal(cov=covariance).logpdf(y)
    np.testing.assert_allclose(lb.gauss_hermite(lb.laplace(line, features, y), number), exact)


def test_three_points_are_exact_for_a_polynomial_of_degree_five():
    """exp(-z^2 / 2) (1 + a z^4), whose mode and curvature at 0 are those of the Gaussian."""
    approx = lb.laplace_of_density(lambda z: -(z**2) / 2 + jnp.log1p(0.01 * z**4), 0.1)
    exact = np.log(np.sqrt(2 * np.pi) * (1 + 0.01 * 3))
    np.testing.assert_allclose(lb.gauss_hermite(approx, 3), exact, rtol=1e-9)
    assert abs(lb.gauss_hermite(approx, 2) - exact) > 1e-3


@pytest.mark.parametrize("space", ["unconstrained", "constrained"])
def test_beyond_the_support_there_is_nothing(space):
    """Nodes at probabilities above one have density zero."""
    approx = lb.laplace(coin, HEADS, space=space)
    told = pytest.warns(lb.DoubtfulFit) if space == "constrained" else nullcontext()
    with told:
        found = lb.gauss_hermite(approx, 150)
    np.testing.assert_allclose(found, beta_binomial(), atol=2e-3)


def shifted_coin(centre, y):
    theta = numpyro.sample("theta", dist.Normal(centre, 1))
    numpyro.sample("y", dist.Bernoulli(logits=theta).expand([9]).to_event(1), obs=y)


def test_it_goes_through_jit_vmap_and_grad():
    def log_evidence(centre):
        return lb.gauss_hermite(lb.laplace(shifted_coin, centre, TOSSES), 15)

    centres = jnp.array([-2.0, -2.0001, -1.9999])
    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(log_evidence)))(centres)
    np.testing.assert_allclose(values[0], sigmoid_coin_by_quad(), atol=1e-8)
    difference = (values[2] - values[1]) / (centres[2] - centres[1])
    np.testing.assert_allclose(slopes[0], difference, rtol=1e-6)


def test_too_many_dimensions_are_refused_with_their_price():
    rng = np.random.default_rng(0)
    approx = lb.laplace(line, rng.normal(size=(20, 8)), rng.normal(size=20))
    with pytest.raises(ValueError, match=r"20 points in each of 8 dimensions are 20\^8 eval"):
        lb.gauss_hermite(approx)
    five = lb.laplace(line, rng.normal(size=(20, 5)), rng.normal(size=20))
    with pytest.raises(ValueError, match=r"50 points in each of 5 dimensions are 50\^5 eval"):
        lb.gauss_hermite(five, 50)
    with pytest.raises(ValueError, match=r"\^5 eval"):
        lb.gauss_hermite(five, 10**400)


@pytest.mark.parametrize("number", [0, -1, 201])
def test_numbers_of_points_without_meaning_are_refused(number):
    with pytest.raises(ValueError, match="num_points"):
        lb.gauss_hermite(lb.laplace(coin, HEADS), number)


def test_a_density_that_is_undefined_at_a_node_is_refused():
    approx = lb.laplace_of_density(lambda z: 10 * jnp.log(z) - z, 8.0)  # NaN below zero
    with pytest.raises(lb.NonFinite, match="NaN or infinite at 6 of 20 points"):
        lb.gauss_hermite(approx, 20)


@pytest.mark.usefixtures("types_unchecked")
def test_it_can_be_looked_into():
    """Without compilation, as users look for a mistake in a density."""
    approx = lb.laplace_of_density(lambda z: -(z**2) / 2 - z**4, 0.1)
    compiled = lb.gauss_hermite(approx, 2)
    with jax.disable_jit():
        assert lb.gauss_hermite(approx, 2) == pytest.approx(float(compiled), rel=1e-13)


def rate(y):
    r = numpyro.sample("r", dist.Exponential(1.0))
    numpyro.sample("y", dist.Poisson(r), obs=y)


def test_an_edge_within_reach_is_told():
    """A sixth of q lies below zero: the rule is off by 0.03 at 20 points, where log Z = -log 4."""
    across = lb.laplace(rate, jnp.array(1.0), space="constrained")
    with pytest.warns(lb.DoubtfulFit, match=r"24% of the weight is at points without density"):
        off = lb.gauss_hermite(across, 20) + np.log(4)
    assert 0.02 < abs(off) < 0.04
    assert lb.gauss_hermite(across, 1) == pytest.approx(float(across.log_evidence))  # says nothing
    assert lb.gauss_hermite(lb.laplace(rate, jnp.array(1.0)), 40) == pytest.approx(-np.log(4))


def test_an_edge_beyond_reach_is_not():
    far = lb.laplace(rate, jnp.array(40.0), space="constrained")  # six standard deviations
    exact = -41 * np.log(2)
    assert lb.gauss_hermite(far, 20) == pytest.approx(exact, abs=1e-4)
