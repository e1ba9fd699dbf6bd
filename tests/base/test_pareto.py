import numpy as np
import pytest
from arviz_stats.base.array import array_stats

from laplacebook.base.pareto import pareto_quantiles
from laplacebook.base.weights import pareto_smoothed


@pytest.mark.parametrize("spread", [0.1, 3.0])
@pytest.mark.parametrize("number", [25, 226, 4000])
def test_smoothed_weights_are_those_of_arviz(number, spread):
    weights = spread * np.random.default_rng(number).normal(size=number) - 1000
    smooth, k = array_stats.psislw(-weights)
    ours, ours_k = pareto_smoothed(weights)
    if number == 25 and np.isnan(k):
        pytest.skip("ArviZ 1.3 smooths no tail of so few")
    assert ours_k == pytest.approx(k, rel=1e-13)
    np.testing.assert_allclose(ours, smooth, rtol=1e-13)


def test_quantiles_of_shapes_about_zero_and_of_none():
    levels = np.array([0.1, 0.5, 0.99])
    exponential = pareto_quantiles(levels, 0.0, 2.0)
    np.testing.assert_allclose(exponential, -2 * np.log1p(-levels))
    np.testing.assert_allclose(pareto_quantiles(levels, 1e-9, 2.0), exponential, rtol=1e-7)
    assert np.isnan(pareto_quantiles(levels, 0.5, 0.0)).all()
