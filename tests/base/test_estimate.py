"""Estimates: the error on the log scale, and how it prints."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from laplacebook.base.estimate import Estimate, effective_sample_size, log_mean


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (-4.7012, 0.0034, "-4.701 ± 0.003"),
        (-4.7012, 0.0096, "-4.70 ± 0.01"),
        (-1234.56, 23.0, "-1235 ± 20"),
        (-1.5, 0.95, "-1.5 ± 0.9"),
        (2.0, 0.0, "2.000000 ± 0"),
        (1e-9, 0.0, "1e-09 ± 0"),
        (1.0, jnp.array(-5.0), "1 ± -5"),
        (-4.7012, jnp.inf, "-4.701 ± inf"),
        (-jnp.inf, jnp.inf, "-inf ± inf"),
        (-3.0, 1e300, "-3 ± 1e+300"),
        (1e300, 1.0, "1e+300 ± 1"),
        (1.0, jnp.nan, "1 ± nan"),
        (jnp.nan, jnp.nan, "nan ± nan"),
        (jnp.array(3.14159), jnp.array(0.02), "3.14 ± 0.02"),
    ],
)
def test_an_estimate_prints_the_digits_that_its_error_leaves(value, error, text):
    assert repr(Estimate(value, error)) == text


def test_a_negative_error_is_refused():
    for error in (-5.0, np.float32(-1), np.array([1.0, -1.0])):
        with pytest.raises(ValueError, match="0 or more"):
            Estimate(1.0, error)


def test_errors_add_in_squares():
    total = Estimate(1.0, 0.3) - Estimate(2.0, 0.4)
    assert total.value == -1.0
    np.testing.assert_allclose(total.standard_error, 0.5, rtol=1e-6)
    assert (1 + Estimate(1.0, 0.3)).value == 2
    assert (1 - Estimate(3.0, 0.3)).value == -2
    assert (1 - Estimate(3.0, 0.3)).standard_error == Estimate(3.0, 0.3).standard_error


def test_log_mean_is_the_logarithm_of_the_mean_with_its_error():
    weights = np.random.default_rng(0).gamma(2.0, size=500)
    estimate = log_mean(jnp.log(weights) - 1000)
    np.testing.assert_allclose(estimate.value, np.log(weights.mean()) - 1000, rtol=1e-6)
    error = weights.std(ddof=1) / weights.mean() / np.sqrt(500)
    np.testing.assert_allclose(estimate.standard_error, error, rtol=2e-4)


NOTHING, FIRST = jnp.full(100, -jnp.inf), jnp.arange(1000) == 0
#: log weights; value, error and effective sample size that they give
EDGES = {
    "equal": (jnp.full(100, -3.25), -3.25, 0, 100),
    "one alone": (jnp.where(FIRST, 0, -jnp.inf), -np.log(1000), np.inf, 1),
    "one dominates": (jnp.where(FIRST, 20.0, 0), np.log((999 + np.exp(20)) / 1000), np.inf, 1),
    "all zero": (NOTHING, -np.inf, np.inf, 0),
    "no number": (jnp.zeros(100).at[3].set(jnp.nan), np.nan, np.nan, np.nan),
    "one draw": (jnp.zeros(1), 0, np.inf, 1),
}


@pytest.mark.parametrize("name", EDGES)
def test_weights_that_tell_no_error_say_so(name):
    weights, value, error, size = EDGES[name]
    estimate = log_mean(weights)
    np.testing.assert_allclose(estimate.value, value, rtol=1e-6)
    np.testing.assert_allclose(estimate.standard_error, error, atol=1e-6)
    np.testing.assert_allclose(effective_sample_size(weights), size, rtol=1e-3)


def test_estimates_go_through_vmap():
    weights = jnp.log(jnp.arange(1.0, 41).reshape(2, 20))
    together = jax.vmap(log_mean)(weights)
    np.testing.assert_allclose(together.value, np.log([10.5, 30.5]), rtol=1e-6)
    assert together.standard_error.shape == (2,)
    assert "standard_error=" in repr(together)
