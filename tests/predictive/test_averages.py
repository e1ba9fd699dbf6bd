"""The mean of a sigmoid under a normal, against arithmetic of twenty digits."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from scipy.special import expit

from laplacebook.predictive import averages
from laplacebook.predictive.averages import probit_approximation, sigmoid_mean

MEANS = [-40.0, -7.0, -0.5, 0.0, 1.0, 12.0, 40.0]
VARIANCES = [0.0, 1e-12, 1e-4, 0.1, 1.0, 2.2, 2.3, 5.0, 100.0, 1e4, 1e8]


def sigmoid(a):
    return 1 / (1 + mp.exp(-a))


def exact(mean, variance):
    """By the trapezoidal rule in mpmath, over a if it is narrow, else over a logistic threshold."""
    mean, sd = mp.mpf(mean), mp.sqrt(mp.mpf(variance))
    if sd < 1.2:
        points = [mp.mpf(i) / 4 for i in range(-48, 49)]
        return sum(sigmoid(mean + sd * z) * mp.npdf(z) for z in points) / 4
    points = [mp.mpf(i) / 3 for i in range(-180, 181)]
    return sum(mp.ncdf((mean - t) / sd) * sigmoid(t) * sigmoid(-t) for t in points) / 3


@pytest.fixture(scope="module")
def truth():
    with mp.workdps(20):
        return np.array([[float(exact(m, v)) for m in MEANS] for v in VARIANCES])


def grid(dtype=float):
    return [jnp.asarray(part, dtype) for part in np.meshgrid(MEANS, VARIANCES)]


@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float64, 1e-14), (jnp.float32, 5e-7)])
def test_the_mean_is_exact_to_rounding(truth, dtype, tolerance):
    found = sigmoid_mean(*grid(dtype))
    whole = sigmoid_mean(np.array([3], np.uint8), np.array([200], np.uint8))
    np.testing.assert_allclose(whole, sigmoid_mean(np.array([3.0]), np.array([200.0])))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, truth, rtol=0, atol=tolerance)


def test_small_probabilities_are_right_relative_to_their_size(truth):
    np.testing.assert_allclose(sigmoid_mean(*grid()), truth, rtol=2e-4)


def test_probit_is_within_its_bound(truth):
    assert np.abs(probit_approximation(*grid()) - truth).max() < 0.02
    fine = [jnp.asarray(a) for a in np.meshgrid(np.linspace(0, 40, 201), np.geomspace(1e-3, 1e8))]
    apart = np.abs(probit_approximation(*fine) - sigmoid_mean(*fine))
    assert 0.015 < apart.max() < 0.02


def test_both_tails_sum_to_one():
    means, variances = grid()
    np.testing.assert_allclose(sigmoid_mean(means, variances) + sigmoid_mean(-means, variances), 1)


def test_in_the_limits_it_is_the_sigmoid_a_half_and_one():
    means = jnp.asarray(MEANS)
    np.testing.assert_allclose(sigmoid_mean(means, jnp.zeros(7)), expit(means), atol=1e-15)
    assert sigmoid_mean(jnp.array(3.0), jnp.array(jnp.inf)) == 0.5
    assert sigmoid_mean(jnp.array(jnp.inf), jnp.array(1.0)) == 1


@pytest.mark.parametrize(("mean", "variance"), [(1.0, -1e-3), (1.0, jnp.nan), (jnp.nan, 1.0)])
def test_what_is_no_normal_gives_nan_in_its_place_alone(mean, variance):
    found = sigmoid_mean(jnp.array([mean, 1.0]), jnp.array([variance, 1.0]))
    assert np.isnan(found).tolist() == [True, False]


@pytest.mark.parametrize("variance", [0.0, 1e-300, 1e-8, 1.0, 2.25, 1e4])
def test_gradients_are_those_of_smoothing(variance):
    """d/dm E[sigma] = E[sigma'] and d/dv E[sigma] = E[sigma'']/2, also at zero variance."""
    mean, variance = jnp.array(1.0), jnp.array(variance)
    by_mean, by_variance = jax.grad(sigmoid_mean, (0, 1))(mean, variance)
    h = float(1e-3 * (1 + variance) ** 0.5)
    below, here, above = np.asarray(
        sigmoid_mean(1 + h * jnp.arange(-1.0, 2), variance + jnp.zeros(3))
    )
    assert float(by_mean) == pytest.approx((above - below) / (2 * h), rel=1e-6)
    assert float(by_variance) == pytest.approx((above - 2 * here + below) / h**2 / 2, rel=1e-4)


def test_jit_and_vmap_change_nothing():
    means, variances = grid()
    here = sigmoid_mean(means, variances)
    np.testing.assert_allclose(jax.jit(sigmoid_mean)(means, variances), here, rtol=1e-15)
    np.testing.assert_allclose(jax.vmap(sigmoid_mean)(means, variances), here, rtol=1e-15)


def test_a_second_call_traces_nothing(monkeypatch):
    means, variances = grid()
    sigmoid_mean(means, variances)
    monkeypatch.setattr(averages, "erfc", None)
    sigmoid_mean(means + 1, variances)
