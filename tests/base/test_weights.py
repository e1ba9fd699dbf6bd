"""Pareto k-hat is ArviZ's."""

import arviz
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base.array import array_stats

import laplacebook as lb
from laplacebook.base.weights import defined, mean_of_weights, of_heavy_tail, pareto_k, usable_below


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("number", [25, 200, 4000])
def test_it_is_that_of_arviz_old_and_new(number, spread):
    weights = spread * np.random.default_rng(number).normal(size=number) - 1000
    found, known = pareto_k(jnp.asarray(weights)), array_stats.psislw(-weights)[1]
    assert found == known or (number == 25 and np.isnan(known))  # which 1.3 has of so few no more
    if hasattr(arviz, "psislw"):  # before its 1.0
        np.testing.assert_allclose(found, arviz.psislw(weights)[1], atol=0.02)


@pytest.mark.parametrize("shape", [0.2, 0.6, 1.2])
def test_it_finds_the_shape_of_a_pareto_tail(shape):
    draws = np.random.default_rng(1).pareto(1 / shape, size=100_000) + 1
    np.testing.assert_allclose(pareto_k(jnp.log(draws)), shape, atol=0.1)


def test_a_lump_of_equal_weights_below_a_few():
    """ArviZ would divide by zero; far modes make such weights."""
    weights = np.zeros(4_000)
    weights[:5] = [0.1, 0.2, 0.3, 0.4, 0.5]
    assert pareto_k(jnp.asarray(weights)) == np.inf
    assert pareto_k(jnp.asarray(1e-4 * weights)) == -np.inf


def test_equal_weights_have_no_tail():
    assert pareto_k(jnp.full(1000, -4000.5)) == -np.inf
    assert pareto_k(jnp.where(jnp.arange(1000) < 900, 1.0, 0.0)) == -np.inf


def test_weights_of_zero_are_counted():
    weights = np.random.default_rng(2).normal(size=2000)
    half = np.where(np.arange(2000) < 1000, -np.inf, weights)
    low = np.where(np.isinf(half), -500.0, half)
    np.testing.assert_allclose(pareto_k(jnp.asarray(half)), pareto_k(jnp.asarray(low)), rtol=1e-6)
    assert pareto_k(jnp.full(100, -jnp.inf)) == -np.inf


def test_it_is_nan_where_it_cannot_be_told():
    assert np.isnan(pareto_k(jnp.arange(24.0)))
    assert np.isnan(pareto_k(jnp.arange(100.0).at[3].set(jnp.nan)))


@pytest.mark.usefixtures("types_unchecked")
def test_whole_numbers_are_weights_too():
    whole = np.random.default_rng(0).geometric(0.2, 1000)
    assert pareto_k(whole) == pareto_k(whole.astype(float))


def test_few_draws_are_trusted_less():
    assert usable_below(10**6) == 0.7
    np.testing.assert_allclose(usable_below(100), 0.5)
    assert usable_below(1) < 0


def test_an_infinite_weight_is_a_tail_without_end():
    assert pareto_k(np.r_[np.zeros(50), np.inf]) == np.inf


@pytest.mark.parametrize(("kind", "told"), [(np.float32, True), (np.float64, False)])
def test_an_overflow_in_single_precision_recommends_double(kind, told):
    with pytest.raises(lb.NonFinite, match="NaN or infinite at 1 of 2 points") as refused:
        defined(np.array([0, np.nan], kind), "rates", "points")
    assert ("numpyro.enable_x64()" in str(refused.value)) == told


def test_the_error_of_a_mean_without_variance_holds_the_truth():
    """Weights of a Pareto law whose mean is known: of those runs whose k-hat passes, that missed the tail."""
    rng, k, number = np.random.default_rng(0), 0.65, 4000
    off = []
    for _ in range(150):
        weights = -k * np.log(rng.random(number))
        found = mean_of_weights(weights, pareto_k(weights))
        if np.isfinite(found.standard_error):
            off.append((found.value + np.log(1 - k)) / found.standard_error)
    assert 75 < len(off) < 120
    assert np.mean(np.abs(off) < 2) > 0.82  # by the spread alone 0.75
    assert of_heavy_tail(0.5, number) == of_heavy_tail(-np.inf, number) == 1
    assert of_heavy_tail(np.nan, number) == 1
    assert of_heavy_tail(0.6, 10_000) == pytest.approx(10**0.4)
    assert of_heavy_tail(84.6, 10_000) == of_heavy_tail(np.inf, 10_000) == np.inf
