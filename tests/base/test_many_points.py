"""Very many evaluations in bounded memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from laplacebook.base import many_points, progress
from laplacebook.base.jaxprs import array_sizes, linear_algebra
from laplacebook.base.many_points import NUMBERS, at_many
from laplacebook.base.one_thread import blas_threads


def square(offset, point):
    return (point + offset) ** 2


def pair(offset, point):
    return jnp.stack([point, offset])


def wide(row, point):
    return jnp.sum(jnp.sin(row * point))


def kernel(row, point):
    """An intermediate far larger than the data."""

    def program(x):
        return jnp.linalg.cholesky(jnp.exp(-((x[:, None] - x) ** 2)) * point + jnp.eye(x.size))

    return jnp.sum(jax.jit(program)(row))


@pytest.mark.parametrize("number", [1, 2, 7, 1000, 2**17 + 3, 10**6])
def test_every_point_once_and_in_order(number):
    points = jnp.arange(number, dtype=float)
    np.testing.assert_array_equal(
        at_many(square, (jnp.array(2.0),), points), (np.arange(number) + 2.0) ** 2
    )


def test_values_may_be_arrays():
    values = at_many(pair, (jnp.array(5.0),), jnp.arange(3.0))
    np.testing.assert_array_equal(values, [[0, 5], [1, 5], [2, 5]])


def test_it_goes_through_jit_and_vmap():
    points = jnp.arange(2000.0)
    compiled = jax.jit(lambda offset: at_many(square, (offset,), points))
    np.testing.assert_allclose(compiled(jnp.array(1.0)), (points + 1) ** 2, rtol=1e-6)
    many = jax.vmap(lambda offset: at_many(square, (offset,), points).sum())(jnp.arange(2.0))
    np.testing.assert_allclose(many, [(points**2).sum(), ((points + 1) ** 2).sum()], rtol=1e-6)


@pytest.mark.parametrize(
    ("function", "rows", "numbers"), [(wide, 100_000, 100_000), (kernel, 300, 300**2)]
)
def test_memory_does_not_grow_with_the_number_of_points(function, rows, numbers):
    row, points = jnp.linspace(0, 1, rows), jnp.zeros(10**5)

    def program(points):
        return at_many(function, (row,), points)

    largest = max(array_sizes(jax.make_jaxpr(program)(points).jaxpr))
    assert numbers < largest <= 2 * NUMBERS  # a batch was seen
    memory = jax.jit(program).lower(points).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 40 * NUMBERS * row.dtype.itemsize


def test_one_program_serves_numbers_of_points_of_a_size():
    evaluate = many_points._evaluate.for_work(
        1024
    )  # the function itself is traced once, whatever is compiled
    before = evaluate._cache_size()
    for number in [900, 1000, 1024]:
        at_many(square, (jnp.array(3.0),), jnp.zeros(number))
    assert evaluate._cache_size() <= before + 1


@pytest.mark.parametrize(("asked", "shown"), [(True, True), (None, False), (False, False)])
def test_a_progress_bar_shows_on_request_and_never_in_a_file(monkeypatch, capsys, asked, shown):
    monkeypatch.setattr(progress, "PATIENCE", 0)
    at_many(square, (jnp.array(2.0),), jnp.zeros(2**20), asked)
    assert ("%" in capsys.readouterr().err) == shown


def third_derivative(point):
    """Of a log density with factorised matrices, which hung a machine with two cores in batches."""

    def height(t):
        covariance = (
            jnp.exp(-((jnp.arange(40.0)[:, None] - jnp.arange(40.0)) ** 2) / 2) * (1 + t) ** 2
        )
        root = jnp.linalg.cholesky(covariance + (1 + point) * jnp.eye(40))
        whitened = jax.scipy.linalg.solve_triangular(root, jnp.ones(40), lower=True)
        return jnp.sum(jnp.log(jnp.diag(root))) + whitened @ whitened

    def slope(function):
        return lambda t: jax.jvp(function, (t,), (jnp.ones_like(t),))[1]

    return slope(slope(slope(height)))(jnp.zeros_like(point))


def test_factorised_matrices_come_back():
    points = jnp.linspace(0, 1, 64)
    one_by_one = [jax.jit(third_derivative)(point) for point in points[::21]]
    np.testing.assert_allclose(at_many(third_derivative, (), points)[::21], one_by_one, rtol=1e-5)


def threads_within(point):
    kind = jax.ShapeDtypeStruct((), jnp.result_type(int))
    number = jax.pure_callback(
        lambda _: np.asarray(blas_threads(), kind.dtype), kind, point, vmap_method="sequential"
    )
    return number + 0 * jnp.linalg.cholesky(point * jnp.eye(3))[0, 0]


def test_factorisations_have_one_thread_and_callers_as_many_as_before():
    with threadpool_limits(2, user_api="blas"):
        np.testing.assert_array_equal(at_many(threads_within, (), np.ones(3)), np.ones(3))
        assert blas_threads() == 2


def test_linear_algebra_is_counted():
    program = jax.make_jaxpr(jax.vmap(jnp.linalg.inv))(jnp.ones((5, 3, 3)))
    assert max(linear_algebra(program.jaxpr)) == 5 * 27
    assert not list(linear_algebra(jax.make_jaxpr(jnp.sin)(1.0).jaxpr))
