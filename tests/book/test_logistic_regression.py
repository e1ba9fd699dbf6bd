"""The claims of the chapter on logistic regression, each computed in another way than there."""

import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels.api as sm
from scipy import integrate, stats
from scipy.special import expit, ndtr
from sklearn.linear_model import LogisticRegression

import laplacebook as lb
from laplacebook.predictive.averages import probit_approximation, sigmoid_mean


def o_rings():
    """Features and outcomes, with the weights in units of their prior standard deviations."""
    flights = lb.datasets.o_rings()
    features = np.column_stack([np.ones(23), (flights.temperature - 70) / 10])
    return features * [1.5, 1.0], flights.distress


def mode_by_scikit_learn(features, targets):
    """scikit-learn penalises |w|^2 / (2 C) as a standard normal prior does with C = 1."""
    fit = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10, max_iter=1000)
    return fit.fit(features, targets).coef_[0]


def covariance(features, weights):
    """The inverse of prior precision and information; no formula of the chapter but the model's."""
    model = sm.GLM(np.zeros(len(features)), features, family=sm.families.Binomial())
    return np.linalg.inv(np.eye(len(weights)) - model.hessian(weights, observed=False))


def normal_mean_of_sigmoid(mean, variance):
    total = integrate.quad(
        lambda z: expit(mean + np.sqrt(variance) * z) * stats.norm.pdf(z), -12, 12, limit=200
    )
    return total[0]


def test_o_rings():
    features, targets = o_rings()
    scale = np.array([1.5, 1.0])
    mode = mode_by_scikit_learn(features, targets)
    S_N = covariance(features, mode) * np.outer(scale, scale)
    assert np.round(mode * scale, 3).tolist() == [-0.901, -1.265]
    assert np.round(np.sqrt(np.diag(S_N)), 3).tolist() == [0.469, 0.601]

    fit = lb.laplace(
        lb.models.logistic_regression, features / scale, targets, prior_covariance=np.diag(scale**2)
    )
    np.testing.assert_allclose(fit.mode["w"], mode * scale, atol=1e-6)
    np.testing.assert_allclose(fit.covariance, S_N, rtol=1e-5)

    cold = np.array([1.0, -3.9])
    predicted = normal_mean_of_sigmoid(cold @ (mode * scale), cold @ S_N @ cold)
    assert round(expit(cold @ (mode * scale)), 3) == 0.983
    assert round(predicted, 3) == 0.917
    np.testing.assert_allclose(lb.predict(fit, cold[None]), predicted, atol=1e-6)


def test_o_rings_exactly():
    """Mean of the slope and the prediction at 31 F by adaptive quadrature in two dimensions."""
    features, targets = o_rings()

    def joint(slope, intercept, power=0, cold=False):
        logits = features @ np.array([intercept, slope])
        log_likelihood = targets @ logits - np.logaddexp(0, logits).sum()
        value = np.exp(log_likelihood - (slope**2 + intercept**2) / 2 + 14) * slope**power
        return value * expit(1.5 * intercept - 3.9 * slope) if cold else value

    def integral(*options):
        return integrate.dblquad(joint, -4, 3, -6, 3, args=options, epsabs=1e-8, epsrel=1e-6)[0]

    Z = integral()
    assert round(integral(1) / Z, 2) == -1.36
    assert round(integral(0, True) / Z, 3) == 0.931


@pytest.mark.parametrize("mean", [-3.0, 0.5, 8.0])
@pytest.mark.parametrize("variance", [0.3, 4.0, 60.0])
def test_averaging_moves_towards_one_half(mean, variance):
    average = normal_mean_of_sigmoid(mean, variance)
    assert 0 < (average - 0.5) / (expit(mean) - 0.5) < 1
    logit = jnp.array(mean), jnp.array(variance)
    np.testing.assert_allclose(sigmoid_mean(*logit), average, atol=1e-8)
    probit = probit_approximation(*logit)
    assert abs(probit - average) < 0.018


def test_the_largest_error_of_probit_in_the_limit():
    c = np.linspace(0, 6, 6001)
    assert round(abs(expit(np.sqrt(8 / np.pi) * c) - ndtr(c)).max(), 4) == 0.0177


def test_the_mean_of_a_probit():
    z, weights = np.polynomial.hermite_e.hermegauss(80)
    average = ndtr(0.6 * (1.3 + 0.9 * z)) @ weights / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(average, ndtr(1.3 / np.hypot(1 / 0.6, 0.9)), rtol=1e-12)


def test_irises_along_a_ray():
    flowers = lb.datasets.iris()
    petals = flowers.measurements[50:, 2:]
    x = (petals - petals.mean(0)) / petals.std(0)
    features = 2.5 * np.column_stack([np.ones(100), x])
    mode = mode_by_scikit_learn(features, flowers.species[50:] == 2)
    S_N = covariance(features, mode)
    assert np.round(2.5 * mode, 3).tolist() == [0.319, 3.364, 3.393]
    v = np.array([0.0, -1.0, 1.0])
    assert round(ndtr(v @ mode / np.sqrt(v @ S_N @ v)), 4) == 0.5070


def test_tumours():
    tumours = lb.datasets.breast_cancer()
    order = np.random.default_rng(0).permutation(569)
    train, held = order[:60], order[60:]
    x = tumours.measurements - tumours.measurements[train].mean(0)
    features = 2.5 * np.column_stack([np.ones(569), x / x[train].std(0)])
    mode = mode_by_scikit_learn(features[train], tumours.malignant[train])
    S_N = covariance(features[train], mode)
    sign = 2 * tumours.malignant[held] - 1
    mean = sign * (features[held] @ mode)
    variance = ((features[held] @ S_N) * features[held]).sum(1)
    averages = [normal_mean_of_sigmoid(*row) for row in zip(mean, variance, strict=True)]
    assert round(-np.logaddexp(0, -mean).mean(), 3) == -0.158
    assert round(np.log(averages).mean(), 3) == -0.168
