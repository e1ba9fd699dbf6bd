"""What is said of each number of a fit by a sparse Hessian, of which all together are worth little."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy import stats

import laplacebook as lb

KEY = jax.random.key(0)
COUNTS = np.random.default_rng(0).poisson(np.exp(1 + np.random.default_rng(1).normal(size=300)))


def apart(y, level, sd):
    with numpyro.plate("groups", y.size):
        z = numpyro.sample("z", dist.Normal(0, sd))
        numpyro.sample("y", dist.Poisson(jnp.exp(level + z)), obs=y)


def exact_mean(y, level):
    """Of each effect, by quadrature."""
    x, weights = hermegauss(100)
    heights = stats.poisson.logpmf(y[:, None], np.exp(level + x))
    weights = weights * np.exp(heights - heights.max(axis=1, keepdims=True))
    return weights @ x / weights.sum(axis=1)


@pytest.fixture(scope="module")
def fit():
    return lb.laplace(apart, COUNTS, 1.0, 1.0, structure="sparse")


@pytest.fixture(scope="module")
def diagnosis(fit):
    return lb.diagnose(fit, KEY, num_samples=200, starts=1)


def test_they_are_the_distances_of_the_means(fit, diagnosis):
    """But for terms of second order, where the first is a quarter of a standard deviation."""
    exact = (exact_mean(COUNTS, 1.0) - fit.mode["z"]) / fit.standard_deviation["z"]
    (found,) = diagnosis.shifts.values()
    assert np.sqrt(np.mean((found - exact) ** 2)) < 0.1 * np.sqrt(np.mean(exact**2))


def test_the_print_tells_the_largest_of_each_site_and_the_doubt_leads_there(fit, diagnosis):
    (moved,) = diagnosis.shifts.values()
    i = int(np.argmax(abs(moved)))
    rms = np.sqrt(np.mean(moved**2))
    assert f"z[{i}] {moved[i]:+.2g}, rms {rms:.2g} of 300" in repr(diagnosis)
    assert "of all 300 numbers together; lb.diagnose tells" in fit.doubt or "diagnosed" in fit.doubt
    again = lb.laplace(apart, COUNTS, 1.0, 1.0, structure="sparse")
    assert "of all 300 numbers together; lb.diagnose tells" in again.doubt


def test_all_together_stay_bad(diagnosis):
    assert diagnosis.level == "bad" and "k-hat" in diagnosis.verdict


def test_a_mean_that_is_far_is_named_in_the_verdict():
    """No counts at all: each effect is a wide Gaussian cut by an exponential."""
    fit = lb.laplace(apart, 0 * COUNTS, 2.0, 5.0, structure="sparse")
    found = lb.diagnose(fit, KEY, num_samples=200, starts=1)
    assert max(abs(found.shifts["z"])) > 0.5
    assert re.search(
        r"skewness moves the mean of z\[\d+\] by -\d.\d\d sd \(beyond 0.5\)", found.verdict
    )


def test_of_a_small_fit_the_marginals_tell():
    fit = lb.laplace(apart, COUNTS[:5], 1.0, 1.0, structure="sparse")
    found = lb.diagnose(fit, KEY, num_samples=200, starts=1)
    assert found.shifts is None and found.marginals is not None
