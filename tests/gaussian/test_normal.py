"""The Gaussian toolbox against exact arithmetic, SciPy, NumPyro and itself."""

import itertools

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from laplacebook.gaussian.normal import (
    condition,
    expected_quadratic_form,
    kl_divergence,
    linear_gaussian,
    marginal,
)

D, M, KNOWN, OTHERS = 4, 3, [3, 1], [0, 2]
few = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32 - 1)


def root(rng, size, cond=10.0):
    """A factor whose square has the condition number asked for."""
    basis = np.linalg.qr(rng.normal(size=(size, size)))[0]
    return np.linalg.cholesky((basis * np.geomspace(1, 1 / cond, size)) @ basis.T)


def problem(seed, cond=10.0):
    """Means and factors of p, q and the noise, and A, b, y, values."""
    rng = np.random.default_rng(seed)
    normals = [(rng.normal(size=n), root(rng, n, cond)) for n in (D, D, M)]
    shapes = (M, D), M, M, 2
    return *normals, *(rng.normal(size=shape) for shape in shapes)


def made(mean, factor, source="scale_tril", dtype=float):
    matrix = {
        "scale_tril": lambda: factor,
        "covariance_matrix": lambda: factor @ factor.T,
        "precision_matrix": lambda: np.linalg.inv(factor @ factor.T),
    }[source]()
    mean, matrix = (jnp.asarray(array, dtype) for array in (mean, matrix))
    if source != "scale_tril":
        matrix = (matrix + matrix.T) / 2
    return dist.MultivariateNormal(mean, **{source: matrix})


def moments(p):
    return p.mean, p.scale_tril @ jnp.swapaxes(p.scale_tril, -1, -2)


def answers(p, q, noise, A, b, y, values):
    theorem, square = linear_gaussian(p, A, b, noise), jnp.asarray(A)
    square = jnp.swapaxes(square, -1, -2) @ square
    return {
        "marginal": moments(marginal(p, KNOWN)),
        "conditional": moments(condition(p, KNOWN, values)),
        "joint": moments(theorem.joint),
        "marginal of y": moments(theorem.marginal),
        "posterior": moments(theorem.posterior(y)),
        "divergence": (kl_divergence(p, q),),
        "quadratic form": (expected_quadratic_form(p, square),),
    }


def exact(p, q, noise, A, b, y, values):
    """The same by dense formulas in 60 digits, from the matrices that the distributions hold."""

    def number(array):
        return mp.matrix(np.asarray(array, float).tolist())

    def covariance(r):
        if "precision_matrix" in vars(r):
            return number(r.precision_matrix) ** -1
        if "covariance_matrix" in vars(r):
            return number(r.covariance_matrix)
        return number(r.scale_tril) * number(r.scale_tril).T

    def block(matrix, rows, columns=(0,)):
        return mp.matrix([[matrix[i, j] for j in columns] for i in rows])

    with mp.workdps(60):
        m, S, R, e = number(p.loc), covariance(p), covariance(noise), number(noise.loc)
        m_q, S_q, A, b, y, x = number(q.loc), covariance(q), *map(number, (A, b, y, values))
        gain = block(S, OTHERS, KNOWN) * block(S, KNOWN, KNOWN) ** -1
        m_y, S_y = A * m + b + e, A * S * A.T + R
        S_N = (S**-1 + A.T * R**-1 * A) ** -1
        ratio, away = S_q**-1 * S, m_q - m
        trace = sum(ratio[i, i] for i in range(D)) - mp.log(mp.det(ratio)) - D
        product = A.T * A * S
        joint = mp.matrix(D + M, D + M)
        joint[:D, :D], joint[D:, :D], joint[:D, D:], joint[D:, D:] = S, A * S, S * A.T, S_y
        found = {
            "marginal": (block(m, KNOWN), block(S, KNOWN, KNOWN)),
            "conditional": (
                block(m, OTHERS) + gain * (x - block(m, KNOWN)),
                block(S, OTHERS, OTHERS) - gain * block(S, KNOWN, OTHERS),
            ),
            "joint": (mp.matrix(list(m) + list(m_y)), joint),
            "marginal of y": (m_y, S_y),
            "posterior": (m + S_N * A.T * R**-1 * (y - m_y), S_N),
            "divergence": ((trace + (away.T * S_q**-1 * away)[0]) / 2,),
            "quadratic form": ((m.T * A.T * A * m)[0] + sum(product[i, i] for i in range(D)),),
        }
        return {name: [as_numpy(value) for value in values] for name, values in found.items()}


def as_numpy(value):
    if not isinstance(value, mp.matrix):
        return np.array(float(value))
    array = np.array(value.tolist(), float)
    return array[:, 0] if value.cols == 1 else array


def check(found, wanted, tolerance):
    """Each within a share of its largest element."""
    for name, expected in wanted.items():
        for one, other in zip(found[name], expected, strict=True):
            error = np.abs(np.asarray(one) - other).max() / np.abs(other).max()
            assert error < tolerance, (name, error)


@pytest.mark.parametrize(
    ("source", "dtype", "cond"),
    [
        *itertools.product(
            ["scale_tril", "covariance_matrix", "precision_matrix"], ["float64"], [10.0, 1e10]
        ),
        ("covariance_matrix", "float32", 1e3),
    ],
)
def test_every_answer_is_that_of_exact_arithmetic(source, dtype, cond):
    p, q, noise, *arrays = problem(int(cond), cond)
    arrays = [jnp.asarray(array, dtype) for array in arrays]
    given = [made(*pair, source, dtype) for pair in (p, q, noise)] + arrays
    found = answers(*given)
    assert {part.dtype for parts in found.values() for part in parts} == {jnp.dtype(dtype)}
    # A factor has the square root of the condition number, and no answer may square it.
    sensitivity = cond if source != "scale_tril" else cond**0.5
    check(found, exact(*given), 30 * float(jnp.finfo(dtype).eps) * sensitivity)


def test_the_densities_of_scipy_obey_the_product_rule():
    p, _, noise, A, b, y, values = problem(1)
    theorem = linear_gaussian(made(*p), A, b, made(*noise))
    x = p[0] + 0.3

    def density(p, at):
        return stats.multivariate_normal(*map(np.asarray, moments(p))).logpdf(at)

    product = stats.multivariate_normal(p[0], p[1] @ p[1].T).logpdf(x)
    product += stats.multivariate_normal(A @ x + b + noise[0], noise[1] @ noise[1].T).logpdf(y)
    assert density(theorem.joint, np.concatenate([x, y])) == pytest.approx(product, rel=1e-11)
    parts = density(theorem.marginal, y) + density(theorem.posterior(y), x)
    assert parts == pytest.approx(product, rel=1e-11)
    both = np.zeros(D)
    both[KNOWN], both[OTHERS] = values, x[OTHERS]
    parts = density(marginal(made(*p), KNOWN), values)
    parts += density(condition(made(*p), KNOWN, values), x[OTHERS])
    assert parts == pytest.approx(density(made(*p), both), rel=1e-11)


@few
@given(seeds)
def test_divergence_is_positive_that_of_numpyro_and_the_same_in_other_coordinates(seed):
    p, q, _, A, *_ = problem(seed, 100.0)
    value = kl_divergence(made(*p), made(*q))
    assert value > 0
    assert 0 <= kl_divergence(made(*p), made(*p)) < 1e-25
    theirs = dist.kl.kl_divergence(made(*p), made(*q))
    assert value == pytest.approx(float(theirs), rel=1e-9)
    map_, shift = np.vstack([A, A[0] + 1]) + 3 * np.eye(D), A[0]
    moved = [(map_ @ m + shift, np.linalg.qr((map_ @ L).T)[1].T) for m, L in (p, q)]
    moved = [made(m, L * np.sign(np.diag(L))) for m, L in moved]
    tolerance = 1e-12 * np.linalg.cond(map_)
    assert kl_divergence(*moved) == pytest.approx(float(value), rel=tolerance)


@few
@given(seeds, st.sampled_from([1e-4, 1e-7]))
def test_divergence_near_equality_is_its_quadratic_expansion(seed, size):
    (m, L), *_ = problem(seed)
    rng = np.random.default_rng(seed)
    change, step = np.tril(rng.normal(size=(D, D))), rng.normal(size=D)
    value = kl_divergence(made(m + size * L @ step, L @ (np.eye(D) + size * change)), made(m, L))
    expansion = size**2 * ((change**2).sum() + (np.diag(change) ** 2).sum() + step @ step)
    assert value == pytest.approx(expansion / 2, rel=100 * size + 1e-7)


@few
@given(seeds)
def test_in_two_steps_and_from_the_joint_as_at_once(seed):
    for one, other in two_ways(*problem(seed)):
        for found, wanted in zip(one, other, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)


@jax.jit
def two_ways(p, q, noise, A, b, y, values):
    p, noise = (dist.MultivariateNormal(m, scale_tril=L) for m, L in (p, noise))
    once = condition(p, [0, 1], values)
    twice = condition(condition(p, [0], values[:1]), [0], values[1:])
    theorem = linear_gaussian(p, A, b, noise)
    outputs = range(D, D + M)
    pairs = [
        (twice, once),
        (condition(theorem.joint, outputs, y), theorem.posterior(y)),
        (marginal(theorem.joint, outputs), theorem.marginal),
        (marginal(theorem.joint, range(D)), p),
    ]
    return [(moments(one), moments(other)) for one, other in pairs]
