"""Shapes that a precision and an approximation refuse, without the type checks of the tests."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import laplacebook as lb
from tests.gaussian.test_precision import DISTINCT, D, made
from tests.models import coin

pytestmark = pytest.mark.usefixtures("types_unchecked")


@pytest.mark.parametrize("name", DISTINCT)
def test_vectors_of_another_length_are_refused(name):
    precision, _ = made(name)
    methods = (precision.matvec, precision.solve, precision.whitened, precision.half_solve)
    for method in methods:
        for wrong in (np.ones(1), np.ones(()), np.ones((2 * D, D)), np.ones((1, D))):
            with pytest.raises(ValueError, match=r"must have \(10,\)"):
                jax.eval_shape(method, wrong)
    with pytest.raises(ValueError, match="use jax.vmap"):
        jax.eval_shape(precision.matvec, np.ones((D, D)))
    batch = jax.tree.map(lambda leaf: leaf[None], precision)
    with pytest.raises(ValueError, match="within jax.vmap"):
        jax.eval_shape(batch.solve, np.ones(D))


@pytest.mark.parametrize("name", DISTINCT)
def test_what_is_no_array_of_numbers_is_refused(name):
    precision, _ = made(name)
    for method in (precision.matvec, precision.solve, precision.whitened, precision.half_solve):
        for wrong in ([0.0] * D, None, "u", np.array(["a"] * D), {"w": np.zeros(D)}):
            with pytest.raises(TypeError, match=r"must be an array of numbers of shape \(10,\)"):
                method(wrong)


@pytest.mark.parametrize("make", [lambda fit: fit, lb.skewed, lb.mixture])
def test_the_point_of_a_log_density_is_named(make):
    approx = make(lb.laplace(coin, np.repeat([1.0, 0.0], [8, 1])))
    for wrong, found in (([0.0], "a list"), ({"theta": 0.5}, "a dict"), (["a"], "a list")):
        with pytest.raises(TypeError, match=f"u must be an array of numbers .* not {found}"):
            approx.log_density(wrong)
    with pytest.raises(ValueError, match=r"u has shape \(2,\)"):
        approx.log_density(np.zeros(2))


@pytest.mark.parametrize(
    ("matrix", "words"),
    [([[2.0, 1.0], [0.0, 2.0]], r"\[0, 1\] is 1, element \[1, 0\] 0"), (np.ones((2, 3)), "square")],
)
def test_what_is_no_symmetric_matrix_is_refused(matrix, words):
    for of in (lb.DensePrecision.of, lambda a: lb.BlockPrecision.of((a,))):
        with pytest.raises(ValueError, match=words):
            of(jnp.array(matrix))


def test_unknown_entries_stand_for_their_symmetric_part():
    matrix = np.array([[2.0, 1.0], [0.0, 2.0]])
    found = jax.jit(lambda a: lb.DensePrecision.of(a))(matrix)
    np.testing.assert_allclose(found.matrix, (matrix + matrix.T) / 2)
    np.testing.assert_allclose(found.cholesky @ found.cholesky.T, found.matrix)


def test_a_group_of_no_coordinates():
    empty = lb.KroneckerBlock(jnp.zeros((0, 0)), jnp.eye(2), 1.0)
    precision = lb.KroneckerPrecision.of((empty, jnp.zeros((0, 0)), jnp.eye(2) * 4))
    np.testing.assert_allclose(precision.solve(jnp.ones((2, 1))), np.full((2, 1), 0.25))
    assert precision.log_determinant() == pytest.approx(np.log(16))


def test_an_approximation_refuses_other_shapes():
    approx, key = lb.laplace(coin, np.repeat([1.0, 0.0], [8, 1])), jax.random.key(0)
    for wrong in (jnp.array(0.0), jnp.zeros(2), jnp.zeros((1, 1))):
        with pytest.raises(ValueError, match=r"must have \(1,\)"):
            approx.log_density(wrong)
    for wrong in (10, (-1,), (2.0,)):
        with pytest.raises(ValueError, match=r"\(10,\) for ten draws, not"):
            approx.sample(key, wrong)
    with pytest.raises(ValueError, match="num_samples must be"):
        approx.to_arviz(num_samples=-1)
