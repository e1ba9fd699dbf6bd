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


def test_equal_weights_have_no_error():
    estimate = log_mean(jnp.full(100, -3.25))
    np.testing.assert_allclose(estimate.value, -3.25, rtol=1e-6)
    assert estimate.standard_error < 1e-6


@pytest.mark.parametrize("largest", [0.0, 20.0])
def test_one_weight_that_dominates_has_an_infinite_error(largest):
    weights = jnp.full(1000, -jnp.inf if largest == 0 else 0.0).at[7].set(largest)
    assert jnp.isposinf(log_mean(weights).standard_error)
    np.testing.assert_allclose(effective_sample_size(weights), 1, rtol=1e-3)


def test_weights_that_are_all_zero_give_minus_infinity_and_an_infinite_error():
    estimate = log_mean(jnp.full(100, -jnp.inf))
    assert jnp.isneginf(estimate.value) and jnp.isposinf(estimate.standard_error)
    assert effective_sample_size(jnp.full(100, -jnp.inf)) == 0


def test_a_weight_that_is_no_number_is_not_hidden():
    estimate = log_mean(jnp.zeros(100).at[3].set(jnp.nan))
    assert jnp.isnan(estimate.value) and jnp.isnan(estimate.standard_error)


def test_a_draw_too_few_has_an_infinite_error():
    assert jnp.isposinf(log_mean(jnp.array([0.0])).standard_error)


def test_estimates_go_through_vmap():
    weights = jnp.log(jnp.arange(1.0, 41).reshape(2, 20))
    together = jax.vmap(log_mean)(weights)
    np.testing.assert_allclose(together.value, np.log([10.5, 30.5]), rtol=1e-6)
    assert together.standard_error.shape == (2,)
    assert "standard_error=" in repr(together)
