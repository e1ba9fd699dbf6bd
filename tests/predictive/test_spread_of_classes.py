"""Probabilities of classes with their spread over the posterior: by quadrature."""

from functools import partial
from itertools import product

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.integrate import quad
from scipy.special import expit, softmax
from scipy.stats import norm

import laplacebook as lb
from laplacebook.models import logistic_regression

KEY = jax.random.key(0)
S = 4000
METHODS = ["output_monte_carlo", "monte_carlo"]
RNG = np.random.default_rng(0)
X = RNG.normal(size=60)
FEATURES = np.column_stack([np.ones(60), X])
LABELS = RNG.integers(3, size=60)
NEW = np.array([[1.0, -2.0], [1.0, 0.0], [1.0, 1.0], [1.0, 4.0]])


def classes(features, y=None):
    w = numpyro.sample("w", dist.Normal(0, 2).expand([2, 3]).to_event(2))
    numpyro.sample("y", dist.Categorical(logits=features @ w), obs=y)


@pytest.fixture(scope="module")
def softmax_fit():
    return lb.laplace(classes, FEATURES, LABELS)


@pytest.fixture(scope="module")
def binary_fit():
    return lb.laplace(logistic_regression, FEATURES, (LABELS > 0).astype(float))


def within_errors(found, mean, variance, fourth, noise, noise_variance):
    """By four standard errors of each average over the draws; ``fourth`` is the fourth central moment."""
    errors = [variance, fourth - variance**2, noise_variance]
    found = [found.mean, found.epistemic, found.noise]
    for one, exact, spread in zip(found, [mean, variance, noise], errors, strict=True):
        assert np.all(np.abs(one - exact) < 4 * np.sqrt(spread / S))


def test_spread_of_three_classes_by_quadrature(softmax_fit):
    """Three logits of a row are normal under q: a product rule of Gauss and Hermite."""
    points, weights = np.polynomial.hermite_e.hermegauss(30)
    z = np.array(list(product(points, repeat=3)))
    w = np.array(list(product(weights / weights.sum(), repeat=3))).prod(axis=1)
    jacobian = np.einsum("nd,ce->ncde", NEW, np.eye(3)).reshape(4, 3, 6)
    covariance = jacobian @ np.linalg.inv(softmax_fit.precision.matrix) @ jacobian.swapaxes(1, 2)
    roots = np.linalg.cholesky(covariance)
    p = softmax(NEW @ softmax_fit.mode["w"] + np.einsum("nck,sk->snc", roots, z), axis=-1)

    def average(values):
        return np.einsum("s,snc->nc", w, values)

    mean, noise = average(p), average(p * (1 - p))
    variance, fourth = average((p - mean) ** 2), average((p - mean) ** 4)
    of_noise = average((p * (1 - p) - noise) ** 2)
    drawn = lb.predict(softmax_fit, NEW, key=KEY, num_samples=S, with_spread=True)
    assert drawn.mean.shape == drawn.epistemic.shape == (4, 3)
    within_errors(drawn, mean, variance, fourth, noise, of_noise)
    assert np.sqrt(variance).min() > 0.03 > np.sqrt(variance.max() / S) * 4  # it was a test


def test_spread_of_a_binary_outcome_by_quadrature(binary_fit):
    mean = NEW @ binary_fit.mode["w"]
    covariance = np.linalg.inv(binary_fit.precision.matrix)
    sd = np.sqrt(np.einsum("nd,de,ne->n", NEW, covariance, NEW))

    def average(feature):
        return np.array(
            [
                quad(lambda z, m=m, s=s: feature(expit(m + s * z)) * norm.pdf(z), -12, 12)[0]
                for m, s in zip(mean, sd, strict=True)
            ]
        )

    powers = np.array([average(lambda p, k=k: p**k) for k in range(1, 5)])
    m, second, third, last = powers
    fourth = last - 4 * m * third + 6 * m**2 * second - 3 * m**4
    noise, of_noise = m - second, second - 2 * third + last - (m - second) ** 2
    how = {"method": "monte_carlo", "key": KEY, "num_samples": S}
    drawn = lb.predict(binary_fit, NEW, **how, with_spread=True)
    within_errors(drawn, m, second - m**2, fourth, noise, of_noise)


@pytest.mark.parametrize(
    ("which", "method"), [("softmax_fit", "monte_carlo"), ("binary_fit", "output_monte_carlo")]
)
def test_it_is_the_estimate_with_its_spread(which, method, request):
    approx = request.getfixturevalue(which)
    ask = partial(lb.predict, approx, NEW, method=method, key=KEY, num_samples=50)
    plain, found = ask(), ask(with_spread=True)
    assert isinstance(plain, lb.Estimate) and isinstance(found, lb.Prediction)
    np.testing.assert_array_equal(found.mean, plain.value)
    np.testing.assert_array_equal(found.standard_error, plain.standard_error)
    np.testing.assert_allclose(found.epistemic, 50 * plain.standard_error**2, rtol=1e-12)
    # p (1 - p) is the variance of an outcome, of which the draws tell both parts
    unbiased = found.mean * (1 - found.mean) + found.epistemic / 50
    np.testing.assert_allclose(found.variance, unbiased, rtol=1e-12)
    np.testing.assert_allclose(jax.jit(lambda: ask(with_spread=True))().epistemic, found.epistemic)


def test_one_draw_tells_no_spread(softmax_fit):
    for method in METHODS:
        ask = partial(lb.predict, softmax_fit, NEW, method=method, key=KEY, num_samples=1)
        found = ask(with_spread=True)
        assert np.isnan(found.epistemic).all() and np.isinf(found.standard_error).all()
        np.testing.assert_allclose(found.noise, found.mean * (1 - found.mean), rtol=1e-12)


def test_at_the_mode_there_is_none(softmax_fit):
    found = lb.predict(softmax_fit, NEW, method="plug_in", with_spread=True)
    p = softmax(NEW @ softmax_fit.mode["w"], axis=1)
    np.testing.assert_allclose(found.mean, p, rtol=1e-12)
    np.testing.assert_allclose(found.noise, p * (1 - p), rtol=1e-12)
    assert not found.epistemic.any() and not found.standard_error.any()


def test_a_prediction_of_numbers_is_what_it_was():
    def line(x, y=None):
        numpyro.sample("y", dist.Normal(numpyro.sample("w", dist.Normal(0, 1)) * x, 1.0), obs=y)

    fit = lb.laplace(line, np.ones(3), np.array([0.5, 1.0, 1.5]))
    plain, found = lb.predict(fit, np.ones(2)), lb.predict(fit, np.ones(2), with_spread=True)
    jax.tree.map(np.testing.assert_array_equal, plain, found)


def test_of_what_is_more_than_one_gaussian(binary_fit):
    fit = lb.skewed(binary_fit)
    ask = partial(lb.predict, fit, NEW, key=KEY, num_samples=S)
    found = ask(with_spread=True)
    p = expit(np.asarray(fit.sample(jax.random.key(1), (S,))["w"]) @ NEW.T)
    np.testing.assert_allclose(np.sqrt(found.epistemic), p.std(axis=0), rtol=0.08)
    np.testing.assert_array_equal(found.mean, ask().value)


def test_what_has_no_spread_is_refused(softmax_fit, binary_fit):
    ways = "there are output_monte_carlo, monte_carlo, plug_in"
    for fit, method in (
        (softmax_fit, "probit"),
        (binary_fit, "probit"),
        (binary_fit, "quadrature"),
    ):
        with pytest.raises(ValueError, match=rf"'{method}' .*, with_spread\); {ways}"):
            lb.predict(fit, NEW, method=method, with_spread=True)
    with pytest.raises(ValueError, match='"output_monte_carlo" needs a random key'):
        lb.predict(softmax_fit, NEW, with_spread=True)
