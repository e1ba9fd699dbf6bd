"""Predictions with more coordinates than are taken by columns, of outcomes that have no rows to take."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.base import progress
from laplacebook.gaussian import sparse
from laplacebook.predictive import linearized
from laplacebook.predictive.linearized import MOST_BY_COLUMNS

RNG = np.random.default_rng(0)
KEY = jax.random.key(0)
D = MOST_BY_COLUMNS + 1


def design(rows, D):
    return RNG.normal(size=(rows, D)) / np.sqrt(D)


def scalar(x, y=None):
    """One outcome, of shape ()."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.size]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ w, 0.5), obs=y)


def transposed(x, y=None):
    """A row of the design for each coordinate, a column for each outcome: shape (D, N)."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([len(x)]).to_event(1))
    with numpyro.plate("N", x.shape[1]):
        numpyro.sample("y", dist.Normal(w @ x, 0.5), obs=y)


def transposed_coins(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([len(x)]).to_event(1))
    with numpyro.plate("N", x.shape[1]):
        numpyro.sample("y", dist.Bernoulli(logits=w @ x), obs=y)


@pytest.mark.parametrize(
    ("model", "shape", "new"),
    [
        (transposed, lambda D: design(6, D).T, lambda D: design(4, D).T),
        (transposed, lambda D: design(6, D).T, lambda D: design(D, D).T),
        (scalar, lambda D: design(1, D)[0], lambda D: design(1, D)[0]),
    ],
    ids=["transposed", "a square: which axis?", "scalar"],
)
def test_the_moments_are_those_of_linear_algebra(model, shape, new):
    x, there = shape(D), new(D)
    y = np.zeros(()) + 0.7 if x.ndim == 1 else RNG.normal(size=6)
    approx = lb.laplace(model, x, y)
    found = lb.predict(approx, there)
    g = there.T if model is transposed else there
    covariance = np.linalg.inv(np.asarray(approx.precision.matrix))
    variance = np.einsum("...i,ij,...j->...", g, covariance, g)
    assert found.mean.shape == found.epistemic.shape == g.shape[:-1]
    np.testing.assert_allclose(found.mean, g @ np.asarray(approx.mode["w"]), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found.epistemic, variance, rtol=1e-8)
    np.testing.assert_allclose(found.noise, np.full(g.shape[:-1], 0.25))


def test_probabilities_too():
    x, there = design(6, D).T, design(4, D).T
    approx = lb.laplace(transposed_coins, x, np.array([0, 1, 1, 0, 1, 1]))
    found = lb.predict(approx, there)
    g = there.T
    sd = np.sqrt(np.einsum("...i,ij,...j->...", g, np.linalg.inv(approx.precision.matrix), g))
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    logits = np.asarray(g @ np.asarray(approx.mode["w"]))[..., None] + sd[..., None] * nodes
    expected = (1 / (1 + np.exp(-logits))) @ weights / weights.sum()
    assert found.shape == g.shape[:-1]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    drawn = lb.predict(approx, there, method="monte_carlo", key=KEY, num_samples=2000)
    assert np.all(np.abs(jnp.asarray(drawn.value) - expected) < 5 * drawn.standard_error)


def series(t, y=None):
    z = numpyro.sample("z", dist.Normal(0, 1).expand([300]).to_event(1))
    numpyro.sample("y", dist.Normal(z[t], 1).to_event(1), obs=y)


TIMES = np.arange(300)


@pytest.fixture(scope="module")
def sparse_fit():
    return lb.laplace(series, TIMES, np.sin(TIMES), structure="sparse")


def test_rows_of_a_sparse_fit_move_a_bar(sparse_fit, capsys, monkeypatch):
    """Each batch of them is a solve on the host, of many coordinates a tenth of a second."""
    monkeypatch.setattr(progress, "PATIENCE", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(linearized, "_AT_ONCE", 2**12)
    found = lb.predict(sparse_fit, TIMES[:100])
    np.testing.assert_allclose(found.mean, np.sin(TIMES[:100]) / 2, atol=1e-8)
    assert "/100 " in capsys.readouterr().err


def test_draws_of_a_sparse_fit_move_a_bar(sparse_fit, capsys, monkeypatch):
    """Each is a solve on the host; they are those that are made all at once."""
    monkeypatch.setattr(progress, "PATIENCE", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    whole = sparse_fit.sample_vector(KEY, (50,))
    normal = jax.random.normal(KEY, (50, 300))
    expected = sparse_fit.precision.whitened(normal.T).T
    np.testing.assert_allclose(whole - sparse_fit.mode_vector, expected)
    capsys.readouterr()
    monkeypatch.setattr(sparse, "_AT_ONCE", 2**12)
    np.testing.assert_array_equal(sparse_fit.sample_vector(KEY, (50,)), whole)
    lb.predict(sparse_fit, TIMES[:10], method="monte_carlo", key=KEY, num_samples=50)
    assert "/50 " in capsys.readouterr().err
