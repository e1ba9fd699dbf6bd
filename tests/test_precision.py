"""Dense precision matrices, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from laplacebook.precision import DensePrecision


@pytest.fixture(params=[1, 3, 20])
def matrix(request):
    rng = np.random.default_rng(request.param)
    root = rng.normal(size=(request.param, request.param + 2))
    return root @ root.T


def test_against_numpy(matrix):
    precision, v = DensePrecision.of(jnp.asarray(matrix)), jnp.arange(1.0, len(matrix) + 1)
    np.testing.assert_allclose(precision.matvec(v), matrix @ v)
    np.testing.assert_allclose(precision.solve(v), np.linalg.solve(matrix, v), rtol=1e-8)
    np.testing.assert_allclose(precision.log_determinant(), np.linalg.slogdet(matrix)[1])
    inverse = np.linalg.inv(matrix)
    np.testing.assert_allclose(precision.diagonal_of_inverse(), np.diag(inverse), rtol=1e-8)


def test_samples_have_the_inverse_as_covariance():
    matrix = jnp.array([[2.0, 1.2], [1.2, 1.0]])
    draws = DensePrecision.of(matrix).sample(jax.random.key(0), (400, 500))
    assert draws.shape == (400, 500, 2)
    covariance, inverse = np.cov(draws.reshape(-1, 2).T), np.linalg.inv(matrix)
    scale = np.sqrt(np.outer(np.diag(inverse), np.diag(inverse)))
    assert np.abs((covariance - inverse) / scale).max() < 5 * np.sqrt(2 / 200_000)


def test_not_positive_definite_is_nan_in_everything():
    precision = DensePrecision.of(jnp.array([[1.0, 2.0], [2.0, 1.0]]))
    numbers = [precision.log_determinant(), precision.solve(jnp.ones(2))]
    numbers += [precision.diagonal_of_inverse(), precision.sample(jax.random.key(0))]
    assert all(np.isnan(x).any() for x in numbers)
