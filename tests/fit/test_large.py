"""A million rows, and the invariance of the answer under changes of units."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import laplacebook as lb
from tests.models import logistic


def test_a_million_rows():
    """The mode solves the score equations; the precision is 1 + X' diag(p (1 - p)) X (Bishop 4.143)."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(1_000_000, 4))
    y = rng.random(1_000_000) < 1 / (1 + np.exp(-features @ np.linspace(-1, 1, 4)))
    approx = lb.laplace(logistic, features, y)
    w = np.asarray(approx.mode["w"])
    p = 1 / (1 + np.exp(-features @ w))
    precision = np.eye(4) + features.T @ (features * (p * (1 - p))[:, None])
    score = features.T @ (y - p) - w
    np.testing.assert_allclose(approx.precision.matrix, precision, rtol=1e-9, atol=1e-6)
    assert np.sqrt(score @ np.linalg.solve(precision, score)) < 1e-7
    log_joint = y @ np.log(p) + (~y) @ np.log1p(-p) - w @ w / 2 - 2 * np.log(2 * np.pi)
    exact = log_joint + 2 * np.log(2 * np.pi) - np.linalg.slogdet(precision)[1] / 2
    assert approx.log_evidence == pytest.approx(exact, rel=1e-9)


def poisson(features, y, scale, shift):
    x = numpyro.sample("x", dist.Normal(-shift / scale, 1 / scale).to_event(1))
    rate = jnp.exp(features @ (scale * x + shift))
    numpyro.sample("y", dist.Poisson(rate).to_event(1), obs=y)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(-5, 5), st.integers(-5, 5), st.floats(-3, 3))
def test_an_affine_change_of_coordinates_changes_nothing_else(seed, a, b, shift):
    """theta = scale * x + shift: the mode moves with it, the evidence stays."""
    rng = np.random.default_rng(seed)
    scale = 10.0 ** np.array([a, b])
    features, y = rng.normal(size=(30, 2)), rng.poisson(2, 30)
    plain = lb.laplace(poisson, features, y, np.ones(2), np.zeros(2))
    moved = lb.laplace(poisson, features, y, scale, np.full(2, shift))
    deviations = np.sqrt(np.diag(plain.covariance))
    back = scale * moved.mode["x"] + shift
    np.testing.assert_allclose((back - plain.mode["x"]) / deviations, 0, atol=1e-6)
    assert moved.log_evidence == pytest.approx(float(plain.log_evidence), abs=1e-7)
