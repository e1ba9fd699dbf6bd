"""A fit with a sparse Hessian in a file, and what its failures say."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.search import newton_step

RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(3.0, 120)
REAL = dist.constraints.real


def walk(y):
    z = numpyro.sample("z", dist.GaussianRandomWalk(0.3, y.size))
    c = z - z.mean()
    numpyro.sample("y", dist.Poisson(jnp.exp(1 + c)).to_event(1), obs=y)


def two_fields(y):
    """Of which the data know the sum alone."""
    z = numpyro.sample("z", dist.ImproperUniform(REAL, (), (y.size,)))
    w = numpyro.sample("w", dist.ImproperUniform(REAL, (), (y.size,)))
    numpyro.factor("smooth", dist.Normal(0, 1).log_prob(z[1:] - z[:-1]).sum())
    numpyro.sample("y", dist.Normal(z + w, 1).to_event(1), obs=y)


def saddle(y):
    z = numpyro.sample("z", dist.ImproperUniform(REAL, (), (y.size,)))
    numpyro.factor("up", jnp.sum(z[0] ** 2 - 0.01 * z[0] ** 4))
    numpyro.sample("y", dist.Normal(z[1:], 1).to_event(1), obs=y[1:])


@pytest.fixture(scope="module")
def fit():
    return lb.laplace(walk, COUNTS, structure="sparse")


def test_a_file_keeps_what_is_sparse(fit, tmp_path):
    fit.save(tmp_path / "fit.npz")
    loaded = lb.load(tmp_path / "fit.npz", walk, COUNTS)
    assert isinstance(loaded.precision, lb.SparsePrecision)
    assert loaded.log_evidence == fit.log_evidence
    key = jax.random.key(0)
    np.testing.assert_array_equal(loaded.sample(key, (5,))["z"], fit.sample(key, (5,))["z"])


def test_functions_of_the_coordinates(fit):
    jacobian = RNG.normal(size=(4, COUNTS.size))
    covariance = np.asarray(fit.covariance)
    np.testing.assert_allclose(
        fit.precision.covariance_of(jnp.asarray(jacobian)),
        jacobian @ covariance @ jacobian.T,
        rtol=1e-10,
    )
    np.testing.assert_allclose(
        covariance, np.linalg.inv(fit.precision.matrix), rtol=1e-9, atol=1e-12
    )


def test_it_says_that_it_is_sparse(fit):
    assert "hessian curvature, sparse" in repr(fit)


def test_a_flat_direction_of_many_coordinates_is_named(monkeypatch):
    monkeypatch.setattr(newton_step, "MAX_ITERATIONS", 100)  # all of which they take
    y = RNG.normal(size=1_600)
    with pytest.raises(lb.NotPositiveDefinite) as error:
        lb.laplace(two_fields, y, structure="sparse")
    said = re.sub(r"\s+", " ", str(error.value))
    assert re.search(r"is flat along [-+][\d.]+ z\[\d+\]", said), said
    assert "as far as rounding can tell" in said


def test_a_direction_that_curves_upwards_is_left():
    """The start is a saddle; there is a mode on either side of it."""
    found = lb.laplace(saddle, np.zeros(40), structure="sparse")
    assert abs(found.mode["z"][0]) == pytest.approx(50**0.5)
