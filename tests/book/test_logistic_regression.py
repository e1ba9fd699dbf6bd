"""The claims of the chapter on logistic regression, each computed in another way than there."""

import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels.api as sm
from scipy import integrate, optimize, stats
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
    """The posterior of the slope and the risk at 31 F by adaptive quadrature in two dimensions."""
    features, targets = o_rings()

    def joint(slope, intercept, power=0, cold=False):
        logits = features @ np.array([intercept, slope])
        log_likelihood = targets @ logits - np.logaddexp(0, logits).sum()
        value = np.exp(log_likelihood - (slope**2 + intercept**2) / 2 + 14) * slope**power
        return value * expit(1.5 * intercept - 3.9 * slope) if cold else value

    def integral(*options, to=3.0):
        return integrate.dblquad(joint, -4, 3, -6, to, args=options, epsabs=1e-8, epsrel=1e-6)[0]

    Z = integral()
    assert round(integral(1) / Z, 2) == -1.36
    assert round(integral(0, True) / Z, 3) == 0.931
    assert round(integral(to=0.0) / Z, 3) == 0.989
    assert round(1 - integral(to=0.0) / Z, 4) == 0.0107

    below = [integral(to=-np.log(odds)) / Z for odds in (1.212, 13.90)]
    np.testing.assert_allclose(below, [0.975, 0.025], atol=2e-4)
    sd = 0.6012
    ends = [integral(to=-1.2648 + z * sd) / Z for z in (-1.96, 1.96)]
    assert round(ends[1] - ends[0], 3) == 0.939


def test_newton_without_halving_jumps_between_two_points():
    """As on the page: m_0 = (0, 3) and S_0 = 100 I. The minimum is that of SciPy's BFGS."""
    features, targets = o_rings()
    features = features / [1.5, 1.0]
    m_0 = np.array([0.0, 3.0])

    def loss(w):
        logits = features @ w
        prior = np.sum((w - m_0) ** 2) / 200
        return prior + np.logaddexp(0, logits).sum() - targets @ logits

    w, path = m_0, []
    for _ in range(12):
        y = expit(features @ w)
        gradient = (w - m_0) / 100 + features.T @ (y - targets)
        hessian = np.eye(2) / 100 + (features.T * y * (1 - y)) @ features
        w = w - np.linalg.solve(hessian, gradient)
        path.append(w)
    np.testing.assert_allclose(path[8], [700, -437], atol=1e-6)
    np.testing.assert_allclose(path[9], [-1600, -337], atol=1e-6)
    np.testing.assert_allclose(path[10:], path[8:10], atol=1e-6)
    lowest = optimize.minimize(loss, np.zeros(2), method="BFGS", options={"gtol": 1e-8})
    np.testing.assert_allclose(lowest.x, [-1.1922, -2.2587], atol=5e-5)


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


def split(seed):
    """Features in units of the prior's standard deviation, and outcomes: to train on, and held out."""
    tumours = lb.datasets.breast_cancer()
    order = np.random.default_rng(seed).permutation(569)
    x = tumours.measurements - tumours.measurements[order[:60]].mean(0)
    features = 2.5 * np.column_stack([np.ones(569), x / x[order[:60]].std(0)])[order]
    targets = tumours.malignant[order]
    return features[:60], targets[:60], features[60:], targets[60:]


def test_tumours_along_a_ray():
    features, targets = split(0)[:2]
    features = features[:, [0, 2, 8]]  # texture and concave points
    mode = mode_by_scikit_learn(features, targets)
    S_N = covariance(features, mode)
    assert np.round(2.5 * mode, 2).tolist() == [-0.73, 1.88, 3.75]
    v = np.array([0.0, -1.0, 1.0])
    assert round(ndtr(v @ mode / np.sqrt(v @ S_N @ v)), 4) == 0.9594


def test_tumours_held_out():
    """The means of the log scores over 25 splits."""
    z = np.linspace(-8, 8, 2001)
    density = stats.norm.pdf(z) * (z[1] - z[0])
    scores = []
    for seed in range(25):
        features, targets, new, new_targets = split(seed)
        mode = mode_by_scikit_learn(features, targets)
        S_N = covariance(features, mode)
        sign = 2 * new_targets - 1
        mean, sd = sign * (new @ mode), np.sqrt(((new @ S_N) * new).sum(1))
        averages = expit(mean[:, None] + sd[:, None] * z) @ density
        scores.append([np.log(expit(mean)).mean(), np.log(averages).mean()])
    plug_in, averaged = np.transpose(scores)
    assert round(plug_in.mean(), 3) == -0.199
    assert round(averaged.mean(), 3) == -0.194
    assert sum(averaged > plug_in) == 14
