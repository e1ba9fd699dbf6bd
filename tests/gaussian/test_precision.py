"""Precision matrices of every structure, against NumPy and the dense one; and shapes that they refuse."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import laplacebook as lb
from laplacebook.gaussian.as_arrays import from_arrays, to_arrays
from laplacebook.gaussian.kronecker import Eigenbasis
from tests.models import coin

D, KEY = 10, jax.random.key(0)

RNG = np.random.default_rng(0)

ROOT = RNG.normal(size=(D, D + 2))

TURN = np.linalg.qr(RNG.normal(size=(3, 3)))[0]

SINGULAR = TURN @ np.diag([3.0, 2.0, -4e-15]) @ TURN.T  # but for rounding

POSITIVE = np.linspace(0.5, 3.0, D)

VECTORS = np.column_stack([RNG.normal(size=(D, 2)), np.ones(D), 2 * np.ones(D)])


def kronecker(left, right, prior_precision, matrix):
    return lb.KroneckerPrecision.of((lb.KroneckerBlock(left, right, prior_precision), matrix))


def blocks(*matrices):
    return lb.BlockPrecision.of(matrices)


def block_diagonal(*matrices):
    starts = np.cumsum([0, *map(len, matrices)])
    whole = np.zeros((starts[-1], starts[-1]))
    for start, matrix in zip(starts, matrices, strict=False):
        whole[start : start + len(matrix), start : start + len(matrix)] = matrix
    return whole


def kronecker_matrix(left, right, prior_precision, matrix):
    product = np.kron(left, right)
    return block_diagonal(product + prior_precision * np.eye(len(product)), matrix)


# How it is made, of what, and the same as a matrix.
STRUCTURES = {
    "dense": (lb.DensePrecision.of, [ROOT @ ROOT.T], lambda a: a),
    "diagonal": (lb.DiagonalPrecision, [POSITIVE], np.diag),
    "block": (blocks, [ROOT[:2] @ ROOT[:2].T, ROOT[2:] @ ROOT[2:].T], block_diagonal),
    "kronecker": (
        kronecker,
        [ROOT[:3] @ ROOT[:3].T, SINGULAR, np.array(0.7), np.array([[2.0]])],
        kronecker_matrix,
    ),
    "equal eigenvalues": (
        kronecker,
        [2 * np.eye(3), np.eye(3), np.array(0.7), np.array([[2.0]])],
        kronecker_matrix,
    ),
    "low rank": (
        lb.LowRankPrecision.of,
        [POSITIVE, VECTORS, np.array([1.0, 5.0, 2.0, 0.3])],
        lambda p, V, s: np.diag(p) + V * s @ V.T,
    ),
    "equal singular values": (
        lb.LowRankPrecision.of,
        [np.full(D, 2.0), np.eye(D)[:, 1:], np.full(D - 1, 3.0)],
        lambda p, V, s: np.diag(p) + V * s @ V.T,
    ),
}


def in_single_too(*names):
    cases = [(name, np.float64) for name in STRUCTURES] + [(name, np.float32) for name in names]
    return pytest.mark.parametrize(("name", "dtype"), cases)


DISTINCT = ["dense", "diagonal", "block", "kronecker", "low rank"]


def made(name, dtype=float):
    of, parts, matrix = STRUCTURES[name]
    return of(*(jnp.asarray(part, dtype) for part in parts)), matrix(*parts)


@jax.jit
def all_of(precision, v, vectors, jacobian, identity):  # no constant: XLA takes 0 / NaN for 0
    return {
        "matrix": precision.matrix,
        "matvec": precision.matvec(v),
        "log_determinant": precision.log_determinant(),
        "log_volume": precision.log_volume(),
        "solve": precision.solve(v),
        "solve_many": precision.solve(vectors),
        "inverse": precision.inverse(),
        "diagonal_of_matrix": precision.diagonal_of_matrix(),
        "diagonal_of_inverse": precision.diagonal_of_inverse(),
        "variances": precision.covariance_of(jacobian),
        "each_variance": jax.vmap(lambda row: precision.covariance_of(row[None]))(jacobian),
        "whitened": precision.whitened(identity),
        "half_solve": precision.half_solve(identity),
        "sample": precision.sample(KEY, (100, 200)),
    }


OPERANDS = V, MANY, JACOBIAN, _ = ROOT[:, 0], ROOT.reshape(D, -1, 1), ROOT[:3, :D], np.eye(D)


@in_single_too("kronecker", "low rank")
def test_against_numpy(name, dtype):
    precision, matrix = made(name, dtype)
    assert precision.size == D and precision.shape == (D,)
    found = all_of(precision, *(x.astype(dtype) for x in OPERANDS))
    inverse = np.linalg.inv(matrix)
    variances = JACOBIAN @ inverse @ JACOBIAN.T
    whitened, half = np.asarray(found["whitened"], float), np.asarray(found["half_solve"], float)
    expected = {
        "matrix": matrix,
        "matvec": matrix @ V,
        "log_determinant": np.linalg.slogdet(matrix)[1],
        "log_volume": np.linalg.slogdet(2 * np.pi * inverse)[1] / 2,
        "solve": inverse @ V,
        "solve_many": np.einsum("ij,jkl->ikl", inverse, MANY),
        "inverse": inverse,
        "diagonal_of_matrix": np.diag(matrix),
        "diagonal_of_inverse": np.diag(inverse),
        "variances": variances,
        "each_variance": np.diag(variances)[:, None, None],
        "whitened": inverse @ np.linalg.inv(whitened.T),  # that is, whitened whitened' = A^-1
        "half_solve": whitened.T,
    }
    tolerance = 1e-10 if dtype == np.float64 else 1e-4
    for method, value in expected.items():
        assert found[method].dtype == dtype
        np.testing.assert_allclose(found[method], value, tolerance, tolerance, err_msg=method)
    np.testing.assert_allclose(whitened @ half, inverse, tolerance, tolerance)
    covariance = np.cov(found["sample"].reshape(-1, D).T)
    scale = np.sqrt(np.outer(np.diag(inverse), np.diag(inverse)))
    assert np.abs((covariance - inverse) / scale).max() < 5 * np.sqrt(2 / 20_000)


@jax.jit
def dense_numbers(a):
    return [a.matrix, a.inverse(), a.diagonal_of_inverse(), a.log_determinant()]


@pytest.mark.parametrize("name", DISTINCT)
def test_a_batch_has_leading_axes(name):
    of, parts, _ = STRUCTURES[name]
    scaled = jax.jit(jax.vmap(jax.vmap(lambda c: of(*(c * part for part in parts)))))
    batch = scaled(np.array([[1.0], [2.0]]))
    assert batch.shape == (2, 1, D)
    one = jax.tree.map(lambda leaf: leaf[1, 0], batch)
    for mine, other in zip(dense_numbers(batch), dense_numbers(one), strict=True):
        assert mine.shape == (2, 1, *other.shape)
        np.testing.assert_allclose(mine[1, 0], other, rtol=1e-10, atol=1e-12)


NOT_POSITIVE_DEFINITE = {
    "dense": ("dense", 0, -np.eye(D)),
    "zero on the diagonal": ("diagonal", 0, np.where(np.arange(D) == 1, 0, POSITIVE)),
    "one block of two": ("block", 1, np.diag([1.0, -1.0] + [1.0] * (D - 4))),
    "a negative factor": ("kronecker", 0, -np.eye(3)),
    "an indefinite factor": ("kronecker", 1, np.diag([1.0, 1.0, -1e-13])),
    "a product with all eigenvalues at zero": ("equal eigenvalues", 2, np.array(-2.0)),
    "a negative prior": ("kronecker", 2, np.array(-1.0)),
    "a block that is no product": ("kronecker", 3, np.array([[0.0]])),
    "zero in p": ("low rank", 0, np.where(np.arange(D) == 1, 0, POSITIVE)),
    "negative in p": ("low rank", 0, np.where(np.arange(D) == 1, -1, POSITIVE)),
    "negative in s": ("low rank", 2, np.array([1.0, -1e-9, 1.0, 1.0])),
}


@pytest.mark.parametrize(("name", "place", "value"), NOT_POSITIVE_DEFINITE.values())
def test_not_positive_definite_is_nan_in_everything(name, place, value):
    of, parts, matrix = STRUCTURES[name]
    parts = [value if i == place else part for i, part in enumerate(parts)]
    found = all_of(of(*map(jnp.asarray, parts)), *OPERANDS)
    np.testing.assert_allclose(found.pop("matrix"), matrix(*parts), atol=1e-12)
    np.testing.assert_allclose(found.pop("matvec"), matrix(*parts) @ V, atol=1e-12)
    diagonal = np.diag(matrix(*parts))
    np.testing.assert_allclose(found.pop("diagonal_of_matrix"), diagonal, atol=1e-12)
    assert [n for n, x in found.items() if not np.isnan(x).all()] == []


@pytest.mark.parametrize(("p", "log_determinant"), [([2.0, 0.5], 0), ([2.0, -1.0], np.nan)])
def test_no_direction_is_a_diagonal(p, log_determinant):
    precision = lb.LowRankPrecision.of(jnp.array(p), jnp.zeros((2, 0)), jnp.zeros(0))
    np.testing.assert_allclose(precision.log_determinant(), log_determinant, atol=1e-12)


@in_single_too("equal eigenvalues", "equal singular values")
def test_gradient_of_the_log_determinant(name, dtype):
    """Along any change of what it is made of; finite differences leave the structure's own cone."""
    of, parts, matrix = STRUCTURES[name]
    changes = [np.random.default_rng(i).normal(size=np.shape(part)) for i, part in enumerate(parts)]
    square = [part.ndim == 2 and part.shape[0] == part.shape[1] for part in parts]
    changes = [c + c.T if s else c for c, s in zip(changes, square, strict=True)]

    def log_determinant(h):
        moved = [part + h * change for part, change in zip(parts, changes, strict=True)]
        return np.linalg.slogdet(matrix(*moved))[1]

    expected = (log_determinant(1e-5) - log_determinant(-1e-5)) / 2e-5
    given = [jnp.asarray(part, dtype) for part in parts]
    slopes = jax.jit(jax.grad(lambda given: of(*given).log_determinant()))(given)
    found = sum(np.sum(np.asarray(g, float) * c) for g, c in zip(slopes, changes, strict=True))
    assert found == pytest.approx(expected, rel=1e-7 if dtype == np.float64 else 1e-4)


def regression(features, y=None):
    """Ten coordinates, of which one is the logarithm of a number."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([D - 1]).to_event(1))
    sd = numpyro.sample("sd", dist.LogNormal(0, 1))
    with numpyro.plate("N", len(features)):
        numpyro.sample("y", dist.Normal(features @ w, sd), obs=y)


FEATURES, Y = ROOT.T[:, :-1], ROOT.T[:, -1]


@pytest.fixture(scope="module")
def fitted():
    return lb.laplace(regression, FEATURES, Y)


@pytest.mark.parametrize("name", ["kronecker", "low rank"])
def test_an_approximation_works_with_any(fitted, name, tmp_path):
    precision, matrix = made(name)
    approx = replace(fitted, precision=precision)
    mean, covariance = np.asarray(fitted.mode_vector), np.linalg.inv(matrix)
    q, deviations = stats.multivariate_normal(mean, covariance), np.sqrt(np.diag(covariance))
    assert approx.log_density(jnp.ones(D)) == pytest.approx(q.logpdf(np.ones(D)), rel=1e-10)
    log_joint = float(fitted.log_likelihood + fitted.log_prior)
    assert approx.log_evidence == pytest.approx(log_joint - q.logpdf(mean), rel=1e-10)
    np.testing.assert_allclose(approx.covariance, covariance, rtol=1e-10, atol=1e-12)
    log_normal = stats.lognorm(deviations[-1], scale=np.exp(mean[-1]))
    summary = approx.summary()
    np.testing.assert_allclose(summary["sd"], [*deviations[:-1], log_normal.std()], rtol=1e-8)
    assert summary["95 %"][-1] == pytest.approx(log_normal.ppf(0.95), rel=1e-8)
    epistemic = lb.predict(approx, FEATURES).epistemic
    expected = np.einsum("ni,ij,nj->n", FEATURES, covariance[:-1, :-1], FEATURES)
    np.testing.assert_allclose(epistemic, expected, rtol=1e-9)
    approx.save(tmp_path / "saved")
    loaded = lb.load(tmp_path / "saved", regression, FEATURES, Y)
    assert jax.tree.structure(loaded) == jax.tree.structure(approx)
    draws, again = (a.sample(KEY, (7,)) for a in (approx, loaded))
    np.testing.assert_allclose(again["sd"], draws["sd"], rtol=1e-10)
    assert repr(loaded) == repr(approx)
    with pytest.raises(lb.LaplaceError, match="curvature differs"):
        lb.load(tmp_path / "saved", regression, 1.01 * FEATURES, Y)


@pytest.mark.parametrize("name", DISTINCT)
def test_as_arrays_and_back_it_is_the_same(name):
    precision, _ = made(name)
    again = from_arrays(to_arrays(precision))
    assert jax.tree.structure(again) == jax.tree.structure(precision)
    for mine, other in zip(jax.tree.leaves(again), jax.tree.leaves(precision), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-12)


def test_a_structure_of_another_kind_is_not_saved():
    class Mine(lb.DiagonalPrecision):
        pass

    with pytest.raises(lb.LaplaceError, match="precision of type Mine"):
        to_arrays(Mine(jnp.ones(D)))


def test_shapes_that_do_not_fit_together_are_refused():
    with pytest.raises(ValueError, match="not an array of shape"):
        Eigenbasis.of(lb.KroneckerBlock(jnp.eye(2), jnp.eye(2), jnp.ones(2)))


def test_draws_do_not_depend_on_which_eigenvectors_are_found():
    """Signs, and the basis where eigenvalues are equal, differ between processors."""
    left = jnp.array(TURN @ np.diag([3.0, 2.0, 2.0]) @ TURN.T)
    one = Eigenbasis.of(lb.KroneckerBlock(left, jnp.array(SINGULAR), jnp.array(1.0)))
    equal = np.isclose(np.linalg.eigvalsh(left), 2.0)
    turn = np.diag([-1.0, -1.0, -1.0])
    turn[np.ix_(equal, equal)] = [[0.6, -0.8], [0.8, 0.6]]
    other = replace(
        one,
        left_vectors=one.left_vectors @ turn,
        right_vectors=one.right_vectors * jnp.array([1.0, -1.0, -1.0]),
    )
    for act in (lambda a: a.sample(KEY, (3,)), lambda a: a.half_solve(jnp.arange(9.0))):
        np.testing.assert_allclose(act(one), act(other), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("columns", [(), (3,)], ids=["a vector", "columns"])
def test_large_kronecker_factors_turn_as_small_ones_do(columns, monkeypatch):
    """Where they are large NumPy takes another product of matrices."""
    rng = np.random.default_rng(0)
    left, right = (x @ x.T for x in (rng.normal(size=(4, 4)), rng.normal(size=(3, 3))))
    precision = lb.KroneckerPrecision.of((lb.KroneckerBlock(left, right, np.float64(0.5)),))
    v = rng.normal(size=(12, *columns))
    small = precision.whitened(v), precision.half_solve(v)
    monkeypatch.setattr("laplacebook.gaussian.kronecker._LARGE", 0)
    np.testing.assert_allclose((precision.whitened(v), precision.half_solve(v)), small, 1e-12)


AS_A_READER = pytest.mark.usefixtures("types_unchecked")


@AS_A_READER
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


@AS_A_READER
@pytest.mark.parametrize("name", DISTINCT)
def test_what_is_no_array_of_numbers_is_refused(name):
    precision, _ = made(name)
    for method in (precision.matvec, precision.solve, precision.whitened, precision.half_solve):
        for wrong in ([0.0] * D, None, "u", np.array(["a"] * D), {"w": np.zeros(D)}):
            with pytest.raises(TypeError, match=r"must be an array of numbers of shape \(10,\)"):
                method(wrong)


@AS_A_READER
@pytest.mark.parametrize("make", [lambda fit: fit, lb.skewed, lb.mixture])
def test_the_point_of_a_log_density_is_named(make):
    approx = make(lb.laplace(coin, np.repeat([1.0, 0.0], [8, 1])))
    for wrong, found in (([0.0], "a list"), ({"theta": 0.5}, "a dict"), (["a"], "a list")):
        with pytest.raises(TypeError, match=f"u must be an array of numbers .* not {found}"):
            approx.log_density(wrong)
    with pytest.raises(ValueError, match=r"u has shape \(2,\)"):
        approx.log_density(np.zeros(2))


@AS_A_READER
@pytest.mark.parametrize(
    ("matrix", "words"),
    [([[2.0, 1.0], [0.0, 2.0]], r"\[0, 1\] is 1, element \[1, 0\] 0"), (np.ones((2, 3)), "square")],
)
def test_what_is_no_symmetric_matrix_is_refused(matrix, words):
    for of in (lb.DensePrecision.of, lambda a: lb.BlockPrecision.of((a,))):
        with pytest.raises(ValueError, match=words):
            of(jnp.array(matrix))


@AS_A_READER
def test_unknown_entries_stand_for_their_symmetric_part():
    matrix = np.array([[2.0, 1.0], [0.0, 2.0]])
    found = jax.jit(lambda a: lb.DensePrecision.of(a))(matrix)
    np.testing.assert_allclose(found.matrix, (matrix + matrix.T) / 2)
    np.testing.assert_allclose(found.cholesky @ found.cholesky.T, found.matrix)


@AS_A_READER
def test_a_group_of_no_coordinates():
    empty = lb.KroneckerBlock(jnp.zeros((0, 0)), jnp.eye(2), 1.0)
    precision = lb.KroneckerPrecision.of((empty, jnp.zeros((0, 0)), jnp.eye(2) * 4))
    np.testing.assert_allclose(precision.solve(jnp.ones((2, 1))), np.full((2, 1), 0.25))
    assert precision.log_determinant() == pytest.approx(np.log(16))


@AS_A_READER
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
