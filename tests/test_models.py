"""The shared models, against scikit-learn and their own equations."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from beartype import beartype
from scipy.special import expit

import laplacebook as lb
from laplacebook import models
from laplacebook.models import logistic_regression

N, D = 60, 3
RNG = np.random.default_rng(0)
FEATURES = np.column_stack([np.ones(N), RNG.normal(size=(N, D - 1))])
TARGETS = (RNG.random(N) < expit(FEATURES @ [0.3, 1.0, -0.5])).astype(float)
M0 = np.array([0.5, -1.0, 2.0])
HALF = RNG.normal(size=(D, D + 2))
S0 = HALF @ HALF.T


ZERO, EYE = np.zeros(D), np.eye(D)


def fit(features=FEATURES, targets=TARGETS, mean=ZERO, covariance=EYE):
    """Always with arrays for m0 and S0, and so one compiled program for one shape."""
    return lb.laplace(logistic_regression, features, targets, mean, covariance)


def test_mode_and_precision_satisfy_their_equations():
    """Bishop 4.142 and 4.143, for any m0 and S0."""
    approx = fit(mean=M0, covariance=S0)
    w, y = approx.mode_vector, expit(FEATURES @ approx.mode_vector)
    gradient = np.linalg.solve(S0, w - M0) + FEATURES.T @ (y - TARGETS)
    precision = np.linalg.inv(S0) + FEATURES.T * (y * (1 - y)) @ FEATURES
    np.testing.assert_allclose(gradient, 0, atol=1e-7)
    np.testing.assert_allclose(approx.precision.matrix, precision, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(approx.mode["w"], w)


def test_the_mode_is_that_of_scikit_learn():
    from sklearn.linear_model import LogisticRegression

    theirs = LogisticRegression(solver="newton-cholesky", C=1.0, fit_intercept=False, tol=1e-10)
    theirs.fit(FEATURES, TARGETS)
    np.testing.assert_allclose(fit().mode_vector, theirs.coef_[0], atol=1e-7)
    ours = lb.predict(fit(), FEATURES[:5], method="plug_in")
    np.testing.assert_allclose(ours, theirs.predict_proba(FEATURES[:5])[:, 1], atol=1e-7)


def test_an_empty_class_has_a_mode_and_a_prediction_on_its_side():
    approx = fit(targets=np.zeros(N))
    np.testing.assert_allclose(fit(targets=np.ones(N)).mode_vector, -approx.mode_vector, atol=1e-9)
    assert np.mean(lb.predict(approx, FEATURES)) < 0.2


HARD = {
    "separable": np.column_stack([np.ones(N), np.where(TARGETS, 1.0, -1.0), RNG.normal(size=N)]),
    "collinear": np.column_stack([FEATURES[:, :2], FEATURES[:, 1]]),
    "constant": np.ones((N, D)),
    "huge": FEATURES * [1.0, 1e6, 1e6],
}


@pytest.mark.parametrize("what", HARD)
def test_hard_features_have_a_mode_and_the_right_precision(what):
    features = HARD[what]
    approx = fit(features)
    y = expit(features @ np.asarray(approx.mode_vector))
    precision = np.eye(D) + features.T * (y * (1 - y)) @ features
    gradient = approx.mode_vector + features.T @ (y - TARGETS)
    step = np.linalg.solve(precision, gradient)  # to the mode, whose distance is in units of sd
    assert approx.certificate.converged and step @ precision @ step < 1e-8
    np.testing.assert_allclose(approx.precision.matrix, precision, rtol=1e-7, atol=1e-10)
    assert np.all(np.isfinite(lb.predict(approx, features)))


@pytest.mark.parametrize(
    ("features", "targets", "words"),
    [
        (FEATURES[0], TARGETS[:1], r"features must have shape \(N, D\), not \(3,\)"),
        (FEATURES, TARGETS[:, None], r"targets must have shape \(60,\)"),
        (FEATURES, TARGETS[:1], r"targets must have shape \(60,\)"),
        (FEATURES, 1.0, r"targets must have shape \(60,\)"),
    ],
)
def test_other_shapes_are_refused(features, targets, words):
    with pytest.raises(ValueError, match=words):
        fit(features, targets)


def test_targets_that_are_no_classes_are_refused():
    with pytest.raises(lb.LaplaceError, match="'t'"):
        fit(targets=2 * TARGETS - 1)


def test_integers_and_booleans_are_numbers_and_the_prior_has_defaults():
    whole = np.round(3 * FEATURES)
    same = lb.laplace(logistic_regression, jnp.asarray(whole, int), TARGETS.astype(bool))
    np.testing.assert_allclose(same.mode_vector, fit(whole).mode_vector, atol=1e-9)


@pytest.mark.parametrize(
    ("model", "targets", "options"),
    [
        ("logistic_regression", TARGETS, {}),
        ("logistic_regression", None, {"prior_mean": jnp.array(M0), "prior_covariance": S0}),
        ("bayesian_mlp", None, {"widths": (2, 2), "prior_mean": [0, 0.5, 1], "prior_precision": 2}),
        ("bayesian_mlp", np.c_[TARGETS, TARGETS], {"outputs": 2, "noise_precision": [1.0, 2.0]}),
        ("bayesian_mlp", TARGETS, {"likelihood": "bernoulli", "activation": jnp.sin}),
        ("bayesian_mlp", TARGETS.astype(int), {"likelihood": "categorical", "outputs": 3}),
    ],
)
def test_annotations_are_exact(monkeypatch, model, targets, options):
    """Those of a model, which the hook in conftest.py leaves out, and of the functions it calls."""
    for name, function in list(vars(models).items()):
        if isinstance(function, types.FunctionType) and function.__module__ == models.__name__:
            monkeypatch.setattr(models, name, beartype(function))

    def run():  # traced, which compiles nothing
        with numpyro.handlers.seed(rng_seed=0):
            getattr(models, model)(FEATURES, targets, **options)

    jax.eval_shape(run)
