"""Taylor series against mpmath's, the order of the remainder, the transformations."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax.scipy import special

from laplacebook.taylor import taylor_coefficients, taylor_polynomial


def thrice(x):
    return jax.lax.fori_loop(0, 3, lambda i, y: jnp.sin(y), x)


def branch(x):
    return jax.lax.cond(x > 0, jnp.exp, jnp.cos, x)


def entropy(x):
    """A log density's usual ingredients: two xlogy and a clip."""
    p = jnp.clip(x, 0.0, 1.0)
    return special.xlogy(3.0, p) + special.xlog1py(2.0, -p)


def smooth(of, erf):
    """A sum of functions, as JAX or mpmath has them: a wrong derivative of one is one of the sum."""

    def f(x):
        found = of.exp(x) + of.log(x) + of.log1p(x) + of.expm1(x) + erf(x)
        return found + of.sinh(x) + of.cosh(x) + of.tanh(x) + of.sqrt(x) + of.sqrt(x) ** -1

    return f


def logistic(x):
    return 1 / (1 + mpmath.exp(-x))


def softplus(x):
    return mpmath.log(1 + mpmath.exp(x))


# name: function, the same in mpmath, point of expansion, highest degree
SERIES = {
    "sin": (lambda x: jnp.sin(1 + x), lambda x: mpmath.sin(1 + x), 0.0, 20),
    "by the rules of jet": (smooth(jnp, jax.lax.erf), smooth(mpmath, mpmath.erf), 0.5, 12),
    "by velocities": (
        lambda x: jnp.arctan(x) + jnp.arcsinh(x - 3) + jax.lax.erfc(x + 2) + jnp.cbrt(x),
        lambda x: mpmath.atan(x) + mpmath.asinh(x - 3) + mpmath.erfc(x + 2) + mpmath.cbrt(x),
        0.5,
        12,
    ),
    "runge": (lambda x: 1 / (1 + 25 * x**2), lambda x: 1 / (1 + 25 * x**2), 0.0, 12),
    "sigmoid": (jax.nn.sigmoid, logistic, 0.7, 12),
    "softplus at 0": (jax.nn.softplus, softplus, 0.0, 6),
    "erf_inv": (jax.lax.erf_inv, mpmath.erfinv, 0.4, 6),
    "lgamma": (special.gammaln, mpmath.loggamma, 1.5, 6),
    "log Phi": (special.log_ndtr, lambda x: mpmath.log(mpmath.ncdf(x)), 0.5, 6),
    "square at -1": (lambda x: x**2.0, lambda x: x**2, -1.0, 4),
    "cube at 0": (lambda x: x**3.0, lambda x: x**3, 0.0, 5),
    "cube by jnp.power at 0": (lambda x: jnp.power(x, 3), lambda x: x**3, 0.0, 5),
    "one": (lambda x: x**0.0 + x, lambda x: 1 + x, 0.0, 3),
    "power": (lambda x: x**2.5, lambda x: x ** mpmath.mpf("2.5"), 1.5, 12),
    "negative power": (lambda x: x**-3, lambda x: x**-3, 1.5, 12),
    "moving power": (lambda x: x**x, lambda x: x**x, 1.5, 12),
    "exponential": (lambda x: 2.0**x, lambda x: mpmath.mpf(2) ** x, 1.5, 12),
    "abs": (lambda x: jnp.abs(x) ** 3, lambda x: -(x**3), -1.0, 5),
    "where": (lambda x: jnp.where(x > 0, jnp.exp(x), jnp.cos(x)), mpmath.cos, -1.0, 12),
    "integer": (lambda x: x.astype(int) * x, lambda x: 2 * x, 2.5, 3),
    "sinc at 0": (jnp.sinc, mpmath.sincpi, 0.0, 6),
    "entropy": (entropy, lambda x: 3 * mpmath.log(x) + 2 * mpmath.log(1 - x), 0.3, 6),
    "logsumexp": (
        lambda x: special.logsumexp(jnp.stack([x, 2 * x, jnp.zeros_like(x)])),
        lambda x: mpmath.log(mpmath.exp(x) + mpmath.exp(2 * x) + 1),
        0.0,
        6,
    ),
    "log determinant": (
        lambda x: jnp.linalg.slogdet(jnp.eye(2, dtype=x.dtype) + x)[1],
        lambda x: mpmath.log(1 + 2 * x),
        0.3,
        4,
    ),
    "loop": (thrice, lambda x: mpmath.sin(mpmath.sin(mpmath.sin(x))), 0.3, 4),
    "branch": (branch, mpmath.cos, -1.0, 4),
    "constant": (lambda x: 1.0, lambda x: mpmath.mpf(1), 0.3, 3),
}


def reference(g, x0, degree):
    with mpmath.workdps(60):
        return np.array([float(c) for c in mpmath.taylor(g, mpmath.mpf(float(x0)), degree)])


def wave(x):
    return jnp.sin(1 + x.sum())


def close(dtype):
    return {"rtol": 500 * jnp.finfo(dtype).eps, "atol": 100 * jnp.finfo(dtype).eps}


def check_series(name, dtype, degree):
    f, g, x0, _ = SERIES[name]
    coefficients = taylor_coefficients(f, jnp.array(x0, dtype), degree)
    expected = reference(g, np.array(x0, dtype), degree)
    scale = np.maximum(np.abs(expected), np.abs(expected).max() / 1e3 or 1.0)
    np.testing.assert_allclose(coefficients / scale, expected / scale, **close(dtype))
    assert name == "constant" or coefficients.dtype == dtype


@pytest.mark.parametrize("name", SERIES)
def test_coefficients_are_those_of_mpmath(name):
    check_series(name, jnp.float64, SERIES[name][-1])


@pytest.mark.parametrize(
    "name", ["sin", "lgamma", "softplus at 0", "cube by jnp.power at 0", "loop"]
)
def test_curves_of_few_terms(name):
    """One of each rule for an operation; in single precision all that is done for a curve is done by order 2."""
    for degree in (0, 1):
        check_series(name, jnp.float64, degree)
    check_series(name, jnp.float32, 2)


@pytest.mark.parametrize("degree", [0, 1, 2, 7])
def test_remainder_has_order_degree_plus_one(degree):
    polynomial = taylor_polynomial(lambda x: jnp.sin(1 + x), 0.0, degree)
    distance = np.geomspace(0.2, 0.05, 5)  # nearer, rounding takes over
    error = np.abs(polynomial(distance) - np.sin(1 + distance))
    slope = np.polyfit(np.log(distance), np.log(error), 1)[0]
    assert slope == pytest.approx(degree + 1, abs=0.1)


def test_polynomial_maps_arrays_elementwise():
    x = jnp.linspace(-1, 1, 6).reshape(2, 3)
    h = x - 0.5
    expected = jnp.exp(0.5) * (1 + h + h**2 / 2 + h**3 / 6)
    np.testing.assert_allclose(taylor_polynomial(jnp.exp, 0.5, 3)(x), expected, rtol=1e-14)


def test_sine_of_a_sum():
    exponents, coefficients = taylor_coefficients(wave, jnp.zeros(2), 3)
    s, c = np.sin(1), np.cos(1)
    by_hand = {
        (0, 0): s,
        **dict.fromkeys([(1, 0), (0, 1)], c),
        **{(2, 0): -s / 2, (1, 1): -s, (0, 2): -s / 2},
        **{(3, 0): -c / 6, (2, 1): -c / 2, (1, 2): -c / 2, (0, 3): -c / 6},
    }
    assert list(map(tuple, exponents.tolist())) == list(by_hand)
    np.testing.assert_allclose(coefficients, list(by_hand.values()), rtol=1e-14)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64], ids=["float32", "float64"])
def test_second_order_is_gradient_and_hessian(dtype):
    def f(x):
        return jnp.exp(x[0]) * jnp.cos(x[1]) + x[2] ** 3 * x[0]

    x0, x = np.array([0.3, 0.5, 2.5], dtype), np.array([[0.1, 0.7, 2.0], [1.0, 0.0, 3.0]], dtype)
    a, b, c = x0
    cosine, sine, d = np.exp(a) * np.cos(b), np.exp(a) * np.sin(b), x - x0
    gradient = np.array([cosine + c**3, -sine, 3 * c**2 * a])
    hessian = [[cosine, -sine, 3 * c**2], [-sine, -cosine, 0], [3 * c**2, 0, 6 * c * a]]
    by_hand = cosine + c**3 * a + d @ gradient + np.sum(d @ np.array(hessian) * d, axis=1) / 2
    polynomial = taylor_polynomial(f, x0, 2)
    np.testing.assert_allclose(polynomial(x), by_hand, **close(dtype))
    assert polynomial(x).dtype == dtype


def test_directional_and_multi_index_forms_agree_at_high_degree():
    x0, x = jnp.array([0.2, -0.4]), jnp.array([0.5, 0.3])
    exponents, coefficients = taylor_coefficients(wave, x0, 4)
    by_terms = np.prod((x - x0) ** exponents, axis=1) @ coefficients
    np.testing.assert_allclose(taylor_polynomial(wave, x0, 4)(x), by_terms, rtol=1e-13)
    np.testing.assert_allclose(taylor_polynomial(wave, x0, 20)(x), wave(x), rtol=1e-14)


@pytest.mark.parametrize("f", [jnp.sin, special.gammaln])
def test_coefficients_under_transformations(f):
    def coefficients(x0):
        return taylor_coefficients(f, x0, 2)

    points = jnp.array([0.5, 1.5])
    eager = jnp.stack([coefficients(x0) for x0 in points])
    np.testing.assert_allclose(jax.jit(coefficients)(points[0]), eager[0], rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(coefficients)(points), eager, rtol=1e-12)
    # d/dx0 of f⁽ᵏ⁾(x0)/k! is (k + 1) times the next coefficient.
    expected = taylor_coefficients(f, points[0], 3)[1:] * np.arange(1, 4)
    for jacobian in (jax.jacfwd, jax.jacrev):
        found = jax.jit(jacobian(coefficients))(points[0])
        np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_polynomials_under_transformations():
    def value(x0, x):
        return taylor_polynomial(wave, x0, 2)(x)

    x0, x = jnp.array([[0.1, 0.2], [0.3, -0.4]]), jnp.array([0.5, 0.6])
    eager = jnp.stack([value(point, x) for point in x0])
    np.testing.assert_allclose(jax.jit(value)(x0[0], x), eager[0], rtol=1e-14)
    np.testing.assert_allclose(jax.vmap(value, (0, None))(x0, x), eager, rtol=1e-14)
    np.testing.assert_allclose(taylor_polynomial(wave, x0[0], 2)(x0), value(x0[0], x0), rtol=1e-14)
    in_x = jax.jit(jax.grad(value, 1))(x0[0], x)
    s, c = np.sin(1.3), np.cos(1.3)  # of the wave at x0
    np.testing.assert_allclose(in_x, np.full(2, c - s * 0.8), rtol=1e-13)


def test_closures_over_traced_data():
    data = jnp.array([0.5, 1.0, 2.0])
    coefficients = jax.vmap(lambda y: taylor_coefficients(lambda x: jnp.exp(y * x), 0.0, 2))(data)
    expected = jnp.stack([jnp.ones(3), data, data**2 / 2], axis=1)
    np.testing.assert_allclose(coefficients, expected, rtol=1e-14)


def test_a_functions_own_derivative_rule_is_used():
    @jax.custom_jvp
    def f(x):
        return jnp.abs(x) * x

    f.defjvp(lambda primals, tangents: (f(*primals), 7.0 * tangents[0]))
    np.testing.assert_array_equal(taylor_coefficients(f, 0.0, np.int64(2)), [0.0, 7.0, 0.0])


def test_a_function_of_no_variable_is_its_value():
    exponents, coefficients = taylor_coefficients(lambda x: x.sum() + 3, jnp.zeros(0), 2)
    assert (exponents.shape, coefficients.tolist()) == ((1, 0), [3.0])
    assert taylor_polynomial(lambda x: x.sum() + 3, jnp.zeros(0), 2)(
        jnp.zeros((2, 0))
    ).tolist() == [3.0, 3.0]
