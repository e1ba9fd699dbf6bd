"""The axes of an approximation of so many coordinates that their correlations are not all computed."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.trust import slices
from laplacebook.trust.slices import principal_slices

COUNTS = np.random.default_rng(0).poisson(3.0, 120)
COUNTS[17] = 0


def walk(y):
    z = numpyro.sample("z", dist.GaussianRandomWalk(0.3, y.size))
    numpyro.sample("y", dist.Poisson(np.e * jax.numpy.exp(z)).to_event(1), obs=y)


def apart(y):
    numpyro.sample("b", dist.Normal(0, 1))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([y.size]).to_event(1))
    numpyro.sample("y", dist.Poisson(jax.numpy.exp(1 + z)).to_event(1), obs=y)


@pytest.fixture(scope="module")
def fit_of_apart():
    return lb.laplace(apart, COUNTS, structure="sparse")


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(slices, "DENSE", 50)


def test_the_longest_are_those_of_all_correlations(few, monkeypatch):
    fit = lb.laplace(walk, COUNTS, structure="sparse")
    found = principal_slices(fit, 8)
    monkeypatch.setattr(slices, "DENSE", 500)
    expected = principal_slices(fit, 8)
    assert len(found) == 8
    for one, other in zip(found[:4], expected[:4], strict=True):
        np.testing.assert_allclose(one.density, other.density, atol=1e-3)
        assert one.axis[:6] == other.axis[:6]


def test_the_least_known_coordinates_are_among_them(few, fit_of_apart):
    """All correlations are zero: there is one axis of Lanczos, along which nothing is skewed."""
    found = {one.axis: one for one in principal_slices(fit_of_apart, 8)}
    least = int(np.argmax(fit_of_apart.standard_deviation["z"]))
    assert COUNTS[least] == 0
    assert {f"z[{least}]", "b"} <= found.keys()
    assert found[f"z[{least}]"].skewness < -0.3
    assert found["b"].skewness == pytest.approx(0, abs=1e-6)
    assert all(np.isfinite(one.density).all() for one in found.values())
    assert 3 <= len(found) <= 6


def test_a_diagnosis_says_that_they_are_some(few, fit_of_apart, monkeypatch):
    from laplacebook.trust import diagnosis

    monkeypatch.setattr(diagnosis, "DENSE", 50)
    said = repr(lb.diagnose(fit_of_apart, jax.random.key(0), num_samples=200, starts=1))
    assert " of 121 axes" in said and "longest" not in said
