"""The sparse precision, against dense matrices of NumPy's and against what is known exactly."""

import sys
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import laplacebook as lb
from laplacebook.gaussian.sparse_layout import SparseLayout

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
D = 24


def path(size):
    """The Laplacian of a path: its rows add to zero."""
    differences = np.diff(np.eye(size), axis=0)
    return differences.T @ differences


def both(one, other):
    """Two blocks on the diagonal."""
    whole = np.zeros((len(one) + len(other),) * 2)
    whole[: len(one), : len(one)] = one
    whole[len(one) :, len(one) :] = other
    return whole


def arrow():
    whole = np.diag(np.linspace(3.0, 5.0, D))
    whole[0] = whole[:, 0] = 0.5
    whole[0, 0] = 9.0
    return whole


def crossed():
    """Two sets of effects, and 40 observations of pairs of them."""
    rows = np.zeros((40, D))
    rows[np.arange(40), RNG.integers(0, 16, 40)] = 1
    rows[np.arange(40), RNG.integers(16, D, 40)] = 1
    return rows.T @ rows + np.diag(np.linspace(0.2, 1.0, D))


def wishart(size):
    root = RNG.normal(size=(size, size + 3))
    return root @ root.T


SECOND = np.diff(np.eye(D), 2, axis=0)
MATRICES = {
    "diagonal": np.diag(np.linspace(0.5, 2.0, D)),
    "banded": SECOND.T @ SECOND + np.diag(np.linspace(0.1, 0.4, D)),
    "block diagonal": both(both(wishart(5), wishart(1)), wishart(D - 6)),
    "arrow": arrow(),
    "crossed": crossed(),
    "grid": np.kron(path(4), np.eye(6)) + np.kron(np.eye(4), path(6)) + 0.3 * np.eye(D),
    "dense": wishart(D),
}
LEFT = np.column_stack([np.ones(D), RNG.normal(size=(D, 2))])
TURN = np.linalg.qr(RNG.normal(size=(3, 3)))[0]
LOW_RANK = {
    "alone": (None, None),
    "positive": (LEFT, wishart(3)),
    "indefinite": (LEFT, (TURN * [2.0, 0.5, -1e-3]) @ TURN.T),
    "singular": (LEFT, (TURN * [3.0, 0.0, 0.0]) @ TURN.T),
    "negative": (LEFT, -1e-3 * np.eye(3)),
    "more than D": (np.tile(LEFT, (1, 10)), np.diag(np.linspace(0, 1, 30))),
}
COMPONENTS = np.repeat(np.eye(2), [10, D - 10], axis=0)
# S singular, and what makes A positive definite
GROUNDED = {
    "two paths": (both(path(10), path(D - 10)), COMPONENTS, np.diag([0.5, 2.0])),
    "weights": (both(3.3 * path(10), 0.7 * path(D - 10)), COMPONENTS, np.diag([10.0, 0.1])),
    "two null vectors of one component": (
        SECOND.T @ SECOND,
        np.column_stack([np.ones(D), np.linspace(-1, 1, D)]),
        np.eye(2),
    ),
    "one of two is regular": (both(path(10), path(D - 10) + np.eye(D - 10)), LEFT, wishart(3)),
    "an indefinite K": (both(path(10), wishart(D - 10)), LEFT, np.diag([2.0, 1.0, -1e-4])),
    "nothing but low rank": (np.zeros((D, D)), np.eye(D), wishart(D)),
}
CASES = {f"{a}, {b}": (MATRICES[a], *LOW_RANK[b]) for a in MATRICES for b in LOW_RANK}
CASES |= {f"grounded: {name}": case for name, case in GROUNDED.items()}


def layout_of(matrix):
    return SparseLayout.of(len(matrix), *np.nonzero(matrix))


def made(matrix, left=None, middle=None, to=np.asarray):
    layout = layout_of(matrix)
    parts = [matrix[layout.rows, layout.cols], left, middle]
    return lb.SparsePrecision.of(layout, *(x if x is None else to(x) for x in parts))


def whole(matrix, left=None, middle=None):
    return matrix if left is None else matrix + left @ middle @ left.T


def all_of(precision, v, many, jacobian, identity):
    return {
        "matrix": precision.matrix,
        "matvec": precision.matvec(v),
        "log_determinant": precision.log_determinant(),
        "log_volume": precision.log_volume(),
        "solve": precision.solve(v),
        "solve_many": precision.solve(many),
        "inverse": precision.inverse(),
        "diagonal_of_matrix": precision.diagonal_of_matrix(),
        "diagonal_of_inverse": precision.diagonal_of_inverse(),
        "inverse_at_entries": precision.inverse_at_entries(),
        "covariance_of": precision.covariance_of(jacobian),
        "whitened": precision.whitened(identity),
        "half_solve": precision.half_solve(identity),
        "sample": precision.sample(KEY, (3, 2)),
    }


OPERANDS = V, MANY, JACOBIAN, _ = (
    RNG.normal(size=D),
    RNG.normal(size=(D, 2, 3)),
    RNG.normal(size=(3, D)),
    np.eye(D),
)
KNOWN = {"matrix", "matvec", "diagonal_of_matrix"}  # whatever the matrix is


def expected(matrix, found, layout):
    inverse = np.linalg.inv(matrix)
    return {
        "matrix": matrix,
        "matvec": matrix @ V,
        "log_determinant": np.linalg.slogdet(matrix)[1],
        "log_volume": np.linalg.slogdet(2 * np.pi * inverse)[1] / 2,
        "solve": inverse @ V,
        "solve_many": np.einsum("ij,jkl->ikl", inverse, MANY),
        "inverse": inverse,
        "diagonal_of_matrix": np.diag(matrix),
        "diagonal_of_inverse": np.diag(inverse),
        "inverse_at_entries": inverse[layout.rows, layout.cols],
        "covariance_of": JACOBIAN @ inverse @ JACOBIAN.T,
        "whitened": inverse @ np.linalg.inv(found["whitened"].T),
        "half_solve": np.asarray(found["whitened"]).T,
    }


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_against_numpy(case):
    precision, matrix = made(*case), whole(*case)
    found = all_of(precision, *OPERANDS)
    assert precision.shape == (D,) and precision.size == D
    for method, value in expected(matrix, found, precision.layout).items():
        np.testing.assert_allclose(found[method], value, 1e-10, 1e-10, err_msg=method)
    dense = lb.DensePrecision.of(jnp.asarray(matrix))
    assert precision.log_determinant() == pytest.approx(float(dense.log_determinant()), abs=1e-10)


@pytest.mark.parametrize("name", ["crossed, indefinite", "grounded: two paths"])
def test_arrays_of_jax_and_programs_of_it_say_the_same(name):
    plain = made(*CASES[name])
    precision = made(*CASES[name], to=jnp.asarray)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(precision))
    want = all_of(plain, *OPERANDS)
    of_jax = {"matrix", "inverse", "sample"}  # within vmap, or of a key of JAX's
    assert {n for n, x in want.items() if isinstance(x, jax.Array)} <= of_jax
    for found in (all_of(precision, *OPERANDS), jax.jit(all_of)(precision, *OPERANDS)):
        for method, value in want.items():
            assert isinstance(found[method], jax.Array)
            np.testing.assert_allclose(found[method], value, 1e-11, 1e-11, err_msg=method)


@pytest.mark.parametrize("method", ["solve", "whitened", "half_solve"])
def test_a_map_over_vectors_is_one_call_of_many_columns(method, monkeypatch):
    precision, calls = made(*CASES["crossed, positive"], to=jnp.asarray), []
    steps = sys.modules["laplacebook.gaussian.sparse"]._steps

    def counted(*args):
        calls.append(args[-1].shape)
        return steps(*args)

    vectors = RNG.normal(size=(4, 5, D))
    want = np.moveaxis(getattr(precision, method)(np.moveaxis(vectors, -1, 0)), 0, -1)
    monkeypatch.setattr("laplacebook.gaussian.sparse._steps", counted)
    over = jax.vmap(jax.vmap(lambda v: getattr(precision, method)(v)))
    np.testing.assert_allclose(jax.jit(over)(vectors), want, 1e-12, 1e-12)
    assert calls == [(D, 20)]
    each = jax.jit(lambda v: jax.lax.map(over, v))(vectors[:, None])
    np.testing.assert_allclose(each[:, 0], want, 1e-12, 1e-12)


def test_a_batch_has_leading_axes():
    layout = layout_of(MATRICES["grid"])
    entries = MATRICES["grid"][layout.rows, layout.cols]
    scales = np.arange(1.0, 7.0).reshape(2, 3)
    all_at = [
        lb.SparsePrecision.of(layout, entries * scale, LEFT, scale * np.eye(3))
        for scale in scales.ravel()
    ]
    batch = jax.tree.map(lambda *x: jnp.stack(x).reshape(2, 3, *x[0].shape), *all_at)
    assert batch.shape == (2, 3, D)
    numbers = ["log_determinant", "diagonal_of_inverse", "diagonal_of_matrix", "inverse"]
    for name in [*numbers, "inverse_at_entries"]:
        want = getattr(all_at[5], name)()
        for compiled in (False, True):
            call = lambda a, name=name: getattr(a, name)()  # noqa: E731
            found = (jax.jit(call) if compiled else call)(batch)
            assert found.shape == (2, 3, *want.shape)
            np.testing.assert_allclose(found[1, 2], want, 1e-11, 1e-11)
    vectors = RNG.normal(size=(2, 3, D))
    found = jax.vmap(jax.vmap(lambda a, v: a.solve(v)))(batch, vectors)
    np.testing.assert_allclose(found[1, 2], all_at[5].solve(vectors[1, 2]), 1e-11, 1e-11)
    one_v = jax.vmap(jax.vmap(lambda a: a.whitened(V)))(batch)
    np.testing.assert_allclose(one_v[1, 2], all_at[5].whitened(V), 1e-11, 1e-11)


MIDDLE = np.diag([1.0, 1.0, 1.0])
NOT_POSITIVE_DEFINITE = {
    "a negative pivot": (MATRICES["grid"] - 0.4 * np.eye(D),),
    "a negative diagonal": (-MATRICES["grid"],),
    "a zero on the diagonal": (np.diag(np.arange(D) * 1.0),),
    "zero": (np.zeros((D, D)),),
    "a zero pivot": (path(D),),
    "NaN in S": (np.where(np.eye(D, k=1) + np.eye(D, k=-1) > 0, np.nan, np.eye(D)),),
    "infinite": (np.diag(np.where(np.arange(D) == 3, np.inf, 1.0)),),
    "NaN in W": (np.eye(D), np.where(LEFT[3, 1] == LEFT, np.nan, LEFT), MIDDLE),
    "NaN in K": (np.eye(D), LEFT, np.nan * MIDDLE),
    "K takes more than there is": (MATRICES["grid"], LEFT, np.diag([1.0, 1.0, -2.0])),
    "K takes all there is": (np.eye(D), np.eye(D)[:, :1], -np.eye(1)),
    "S indefinite": (MATRICES["grid"] - 0.4 * np.eye(D), LEFT, 100 * MIDDLE),
    "a component that nothing holds": (
        both(path(10), path(D - 10)),
        COMPONENTS[:, :1],
        np.eye(1),
    ),
    "sums to zero that hold but the sum": (both(path(10), path(D - 10)), LEFT[:, :1], np.eye(1)),
    "K is zero": (path(D), LEFT[:, :1], np.zeros((1, 1))),
}


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # infinity times 0, in A v
@pytest.mark.parametrize("case", NOT_POSITIVE_DEFINITE.values(), ids=NOT_POSITIVE_DEFINITE)
def test_not_positive_definite_is_nan_in_everything(case):
    for to in (np.asarray, jnp.asarray):
        precision = made(*case, to=to)
        found = all_of(precision, *OPERANDS)
        compiled = jax.jit(all_of)(precision, *OPERANDS)
        for each in (found, compiled):
            assert [n for n, x in each.items() if n not in KNOWN and not np.isnan(x).all()] == []
        unit = np.eye(D)[0]
        np.testing.assert_allclose(precision.matvec(unit), whole(*case) @ unit, atol=1e-12)
        diagonal = np.diag(whole(*case))
        np.testing.assert_allclose(found["diagonal_of_matrix"], diagonal, atol=1e-12)


def test_a_soft_sum_to_zero_is_exact_where_a_dense_factor_is_not():
    """The eigenvalues of a path are known, and a sum adds one; of a dense factor 7 digits are left."""
    size, strength = 1000, 100.0
    layout = SparseLayout.of(size, np.arange(1, size), np.arange(size - 1))
    entries = np.where(layout.rows == layout.cols, 2.0, -1.0)
    entries[[0, -1]] = 1
    precision = lb.SparsePrecision.of(layout, entries, np.ones((size, 1)), np.array([[strength]]))
    log_determinant = np.log(size) + np.log(strength * size)  # by Kirchhoff: one spanning tree
    assert precision.log_determinant() == pytest.approx(log_determinant, abs=1e-11)
    k = np.arange(1, size)
    waves = np.cos(np.pi * np.outer(np.arange(size) + 0.5, k) / size) ** 2 * 2 / size
    variances = waves @ (1 / (2 - 2 * np.cos(np.pi * k / size))) + 1 / (strength * size**2)
    np.testing.assert_allclose(precision.diagonal_of_inverse(), variances, rtol=1e-10)


@pytest.mark.parametrize("seed", range(10))
def test_a_pivot_that_rounding_left_is_grounded(seed):
    """Beside its inverse, 1e16 or minus that, the variances would be rounding."""
    weights = np.random.default_rng(seed).uniform(0.1, 3.0, 40)
    differences = np.diff(np.eye(41), axis=0)
    matrix, left = differences.T * weights @ differences, np.ones((41, 1))
    precision = made(matrix, left, np.eye(1))
    log_determinant = np.log(weights).sum() + 2 * np.log(41)  # one spanning tree, and a sum
    assert precision.log_determinant() == pytest.approx(log_determinant, abs=1e-11)
    variances = np.diag(np.linalg.pinv(matrix, rcond=1e-12)) + 1 / 41**2
    np.testing.assert_allclose(precision.diagonal_of_inverse(), variances, rtol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_what_rounding_made_of_zero_in_a_large_K_is_zero(seed):
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))[0]
    found = made(MATRICES["grid"], LEFT, 1e15 * np.outer(turn[:, 0], turn[:, 0]))
    alone = made(MATRICES["grid"], LEFT @ turn[:, :1], np.array([[1e15]]))
    assert found.log_determinant() == pytest.approx(alone.log_determinant(), abs=1e-10)
    variances = alone.diagonal_of_inverse()
    np.testing.assert_allclose(found.diagonal_of_inverse(), variances, rtol=1e-10)


@pytest.mark.parametrize(("components", "sound"), [(32, True), (33, False)])
def test_as_many_pivots_are_grounded_as_is_said(components, sound):
    matrix = np.kron(np.eye(components), path(3))
    left = np.kron(np.eye(components), np.ones((3, 1)))
    found = made(matrix, left, np.eye(components)).log_determinant()
    assert np.isnan(found) == (not sound)
    if sound:
        assert found == pytest.approx(components * np.log(9), rel=1e-12)


def test_what_is_told_of_two_scales_is_not_lost():
    """Of one small matrix of K+ and the identity the small eigenvalues would be rounding."""
    case = MATRICES["grid"], LEFT, np.diag([1e14, 1e14, 1.0])
    q, _ = np.linalg.qr(LEFT[:, :2])
    inverse = np.linalg.inv(whole(case[0], LEFT[:, 2:], np.eye(1)))
    held = inverse @ LEFT[:, :2]  # the limit of an infinite K on the first two, exact to 1e-14
    inverse = inverse - held @ np.linalg.solve(LEFT[:, :2].T @ held, held.T)
    np.testing.assert_allclose(made(*case).diagonal_of_inverse(), np.diag(inverse), rtol=1e-9)


@pytest.mark.parametrize(("apart", "together"), [(60, 40), (5, 70), (0, 64), (90, 31)])
def test_the_inverse_where_the_last_columns_of_the_factor_are_dense(apart, together):
    """A few of the first meet each other, as those of a path, and some of the last."""
    rng = np.random.default_rng(apart)
    matrix = both(path(apart), wishart(together)) if apart else wishart(together)
    rows = np.repeat(np.arange(apart), 3)
    cols = apart + rng.integers(0, together, rows.size)
    matrix[rows, cols] = matrix[cols, rows] = 0.1
    matrix += np.diag(np.abs(matrix).sum(axis=1))
    layout, precision = layout_of(matrix), made(matrix)
    inverse = np.linalg.inv(matrix)
    found = precision.inverse_at_entries()
    np.testing.assert_allclose(found, inverse[layout.rows, layout.cols], rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(precision.diagonal_of_inverse(), np.diag(inverse), rtol=1e-12)


def test_draws_have_the_covariance():
    for name in ("crossed, indefinite", "grounded: two paths"):
        draws = made(*CASES[name]).sample(KEY, (100, 200)).reshape(-1, D)
        inverse = np.linalg.inv(whole(*CASES[name]))
        scale = np.sqrt(np.outer(np.diag(inverse), np.diag(inverse)))
        assert np.abs((np.cov(draws.T) - inverse) / scale).max() < 5 * np.sqrt(2 / 20_000)


@pytest.mark.parametrize("to", [np.asarray, jnp.asarray], ids=["NumPy", "JAX"])
def test_single_precision_is_factorised_in_double(to):
    case = [to(np.asarray(x, np.float32)) for x in CASES["grid, indefinite"]]
    operands = [x.astype(np.float32) for x in OPERANDS]
    layout = layout_of(MATRICES["grid"])
    precision = lb.SparsePrecision.of(layout, case[0][layout.rows, layout.cols], *case[1:])
    matrix = whole(*(np.asarray(x, float) for x in case))
    for found in (all_of(precision, *operands), jax.jit(all_of)(precision, *operands)):
        for method, value in expected(matrix, found, layout).items():
            assert found[method].dtype == np.float32
            np.testing.assert_allclose(found[method], value, 2e-5, 2e-5, err_msg=method)


def test_it_is_a_pytree_that_programs_depend_on_by_content():
    traced = []

    @jax.jit
    def half(precision):
        traced.append(0)
        return precision.log_determinant()

    one, other = (made(*CASES["grid, positive"], to=jnp.asarray) for _ in range(2))
    assert one.layout is not other.layout and one.layout == other.layout
    assert half(one) == half(other) and len(traced) == 1
    assert np.isnan(jax.tree.map(lambda x: x * np.nan, one).solve(V)).all()
    again = jax.tree.map(lambda x: x * 1.0, jax.device_put(jax.device_get(one)))
    np.testing.assert_array_equal(again.solve(V), one.solve(V))
    assert isinstance(jax.device_get(one).solve(V), np.ndarray)


def test_memory_is_that_of_the_factor():
    size = 100_000
    layout = SparseLayout.of(size, np.arange(1, size), np.arange(size - 1))
    entries = np.where(layout.rows == layout.cols, 2.1, -1.0)
    assert layout.fill == size - 1 and layout.flops == 4 * (size - 1) + 1
    tracemalloc.start()
    precision = lb.SparsePrecision.of(layout, entries, np.ones((size, 1)), np.ones((1, 1)))
    variances = precision.diagonal_of_inverse()
    precision.inverse_at_entries()
    precision.solve(variances)
    precision.sample(KEY)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50 * size * 8
    decay = (2.1 - np.sqrt(2.1**2 - 4)) / 2  # an infinite series, far from its ends
    assert variances[size // 2] == pytest.approx(decay / (1 - decay**2), rel=1e-4)
