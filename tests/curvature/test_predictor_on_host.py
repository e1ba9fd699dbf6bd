"""The log joint with its derivatives by turns of BLAS and JAX: those of JAX alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from laplacebook.curvature import linear_predictor
from laplacebook.curvature.predictor_on_host import PredictorOnHost, features_of
from laplacebook.curvature.rows_on_host import Rows
from laplacebook.model.density import ModelDensity
from tests.curvature.test_linear_predictor import X, horseshoe, intercept, row_vector


def intercept_among_the_features(x):
    intercept(jnp.column_stack([x, jnp.ones(len(x))])[:, :-1])


@pytest.fixture(autouse=True)
def all_sizes(monkeypatch):
    monkeypatch.setattr(linear_predictor, "LARGE", X.size)


@pytest.mark.parametrize("model", [intercept, horseshoe], ids=lambda m: m.__name__)
def test_they_are_those_of_jax(model):
    density = ModelDensity.of(model, (X,))
    features = features_of(density, 200)
    assert np.shares_memory(features, np.asarray(density.call.data[0]))
    u = np.random.default_rng(1).normal(size=density.dimension) / 5
    with Rows(features) as rows:
        on_host = PredictorOnHost(density, rows)
        on_host.hessian(u + 0.1)
        value, slope = on_host.value_and_slope(u)
        hessian = on_host.hessian(u)

    def loss(u):
        return density.loss(u)[0]

    exact = jax.jit(lambda u: (loss(u), jax.grad(loss)(u), jax.hessian(loss)(u)))(u)
    for found, expected in zip((value, slope, hessian), exact, strict=True):
        assert np.allclose(found, expected, rtol=1e-12, atol=1e-12 * np.max(abs(expected)))
    assert np.array_equal(hessian, hessian.T)


@pytest.mark.parametrize("model", [row_vector, intercept_among_the_features])
def test_what_is_computed_from_the_data_is_left_to_jax(model):
    """It would be computed anew at every look."""
    assert features_of(ModelDensity.of(model, (X,)), 200) is None


def test_so_are_fewer_data_more_coordinates_and_data_that_are_not_known():
    density = ModelDensity.of(intercept, (X,))
    assert features_of(ModelDensity.of(intercept, (X[1:],)), 200) is None
    assert features_of(density, density.dimension - 1) is None
    found = []
    jax.eval_shape(lambda density: found.append(features_of(density, 200)), density)
    assert found == [None]
