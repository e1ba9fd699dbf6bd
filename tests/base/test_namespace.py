"""The same numbers from NumPy's arrays as from JAX's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import solve_triangular

from laplacebook.base.namespace import (
    between,
    branch,
    cholesky,
    eigh,
    larger,
    lazily,
    left_svd,
    logsumexp,
    namespace,
    once,
    put,
    repeat,
    repeat_while,
    select,
    solve_lower,
)

INF = np.inf
MATRIX = np.array([[4.0, 2.0], [2.0, 3.0]])


def test_numpy_for_arrays_of_numpy_alone():
    assert namespace(np.zeros(2), np.float32(1)) is np
    assert namespace(np.zeros(2), jnp.zeros(2)) is jnp
    assert namespace(1.0) is jnp


@pytest.mark.parametrize(
    "x",
    [
        [1.0, 2.0],
        [-1e4, -1e4],
        [-INF, 0.0],
        [-INF, -INF],
        [INF, 0.0],
        [np.nan, 0.0],
        [[1, 2], [3, 800.0]],
    ],
    ids=str,
)
def test_logsumexp(x):
    x = np.array(x)
    found = logsumexp(x)
    assert isinstance(found, np.ndarray | np.generic)
    np.testing.assert_allclose(found, jax.scipy.special.logsumexp(x, axis=-1), rtol=1e-14)


def test_many_small_numbers_add_up_in_single_precision():
    x = np.zeros(10**6, np.float32)
    assert logsumexp(x) == pytest.approx(np.log(1e6), rel=1e-6)
    assert logsumexp(x).dtype == np.float32


NUMBERS = np.array([-INF, -1.0, 0.5, 2.0, INF, np.nan])


@pytest.mark.parametrize("x", NUMBERS)
def test_the_larger_of_two_and_what_is_between(x):
    for y in NUMBERS:
        assert np.array_equal(larger(x, y), jnp.maximum(x, y), equal_nan=True)
        assert np.array_equal(larger(jnp.asarray(x), y), np.maximum(x, y), equal_nan=True)
    for found in (between(0.0, x, 1.0), between(0.0, jnp.asarray(x), 1.0)):
        assert np.array_equal(found, np.clip(x, 0, 1), equal_nan=True)


def test_what_is_not_chosen_is_not_computed_where_the_condition_is_known():
    def never():
        raise AssertionError

    for yes in (np.True_, True, np.array(True)):
        assert lazily(yes, lambda: 1, never) == 1
        assert lazily(~np.asarray(yes), never, lambda: 2) == 2
    assert jax.jit(lambda c: lazily(c, lambda: 1, lambda: 2))(np.False_) == 2


@pytest.mark.parametrize(
    "matrix", [MATRIX, -MATRIX, np.full((2, 2), np.nan)], ids=["positive", "negative", "nan"]
)
def test_cholesky(matrix):
    np.testing.assert_allclose(cholesky(matrix), cholesky(jnp.asarray(matrix)), rtol=1e-14)


@pytest.mark.parametrize("entry", [1.0, np.nan])
@pytest.mark.parametrize("shape", [(3, 2), (2, 3)])
def test_left_svd(shape, entry):
    matrix = np.arange(6.0).reshape(shape)
    matrix[0, 0] = entry
    for found, by_jax in zip(left_svd(matrix), left_svd(jnp.asarray(matrix)), strict=True):
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(abs(found), abs(by_jax), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("trans", ["N", "T"])
def test_solve_lower(trans):
    lower, columns = np.linalg.cholesky(MATRIX), np.arange(6.0).reshape(2, 3)
    exact = np.linalg.solve(lower if trans == "N" else lower.T, columns)
    for of in (np.asarray, jnp.asarray):
        np.testing.assert_allclose(solve_lower(of(lower), of(columns), trans), exact, rtol=1e-14)
    assert isinstance(solve_lower(lower, jnp.asarray(columns), trans), jax.Array)


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("of", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
def test_select_and_branch(condition, of):
    trees = ({"a": of(1.0)}, {"a": of(2.0)})
    assert select(of(condition), *trees)["a"] == 2 - condition
    assert branch(of(condition), *(lambda t=t: t["a"] for t in trees)) == 2 - condition


@pytest.mark.parametrize("of", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
def test_rows_are_put_over_and_over(of):
    """The fourth has no place."""
    rows = repeat(4, lambda i, rows: put(rows, i, (i + 1) * of([1.0, 10.0])), of(np.zeros((3, 2))))
    assert namespace(rows) is namespace(of([1.0]))
    np.testing.assert_array_equal(rows, [[1, 10], [2, 20], [3, 30]])


@pytest.mark.parametrize("matrix", [MATRIX, np.full((2, 2), np.nan)], ids=["finite", "nan"])
def test_eigh(matrix):
    values, vectors = eigh(matrix)
    assert isinstance(values, np.ndarray)
    np.testing.assert_allclose(values, eigh(jnp.asarray(matrix))[0], rtol=1e-14)
    np.testing.assert_allclose(vectors @ np.diag(values) @ vectors.T, matrix, rtol=1e-14)


@pytest.mark.parametrize("kind", [np.float64, jnp.float64], ids=["numpy", "jax"])
def test_as_long_as_a_condition_holds(kind):
    steps = []

    def double(x):
        steps.append(x)
        return 2 * x

    assert repeat_while(lambda x: x < 100, double, kind(3.0)) == 192
    assert repeat_while(lambda x: x < 1, double, kind(3.0)) == 3
    assert len(steps) == 6 or kind is jnp.float64  # which is traced


@pytest.mark.parametrize(
    ("dtype", "other"), [("f4", "f4"), ("f8", "f8"), ("f8", "f4"), ("f4", "f8")]
)
@pytest.mark.parametrize("trans", ["N", "T"])
def test_solve_lower_by_rows_and_by_columns_is_scipys(trans, dtype, other):
    lower = np.array([[2.0, 7.0], [1.0, 3.0]], dtype)  # of which the upper number is not read
    for given in (lower, np.asfortranarray(lower)):
        for columns in (np.array([[1.0, 2.0], [3.0, 5.0]], other), np.ones((2, 0), other)):
            exact = solve_triangular(lower, columns, trans, lower=True)
            np.testing.assert_array_equal(solve_lower(given, columns, trans), exact)


def test_solve_lower_refuses_a_zero():
    with pytest.raises(np.linalg.LinAlgError, match="row 2"):
        solve_lower(np.diag([1.0, 0.0]), np.ones((2, 1)), "N")


class Counted:
    def __init__(self, x):
        self.x, self.calls = x, 0

    @once
    def twice(self):
        self.calls += 1
        return 2 * self.x


def test_what_is_numpys_is_computed_once_and_what_may_be_traced_each_time():
    for x, calls in ((np.ones(2), 1), (jnp.ones(2), 2)):
        counted = Counted(x)
        np.testing.assert_array_equal([counted.twice(), counted.twice()], np.full((2, 2), 2))
        assert counted.calls == calls
