"""Where a Taylor series does not exist, and what is no argument of one: the errors say so."""

import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax.scipy import special
from scipy.special import factorial, iv

from laplacebook.taylor import taylor_coefficients, taylor_polynomial
from tests.thresholds import Refused, check, sides

KINKS = {
    "abs": jnp.abs,
    "maximum": lambda x: jnp.maximum(x, -x),
    "minimum": lambda x: jnp.minimum(x, 2 * x),
    "sign": lambda x: x * jnp.sign(x),
    "sqrt": jnp.sqrt,
    "rectifier": jax.nn.relu,
    "rectifier of a smooth function": lambda x: jax.nn.relu(jnp.sin(3 * x)),
    "capped": jax.nn.relu6,
    "largest": lambda x: jnp.max(jnp.stack([x, -x, x - 1])),
    "smallest": lambda x: jnp.stack([x, 2 * x]).min(),
    "floor": lambda x: x + jnp.floor(x),
    "ceil": jnp.ceil,
    "round": lambda x: x + jnp.round(x - 0.5),
    "remainder": lambda x: jnp.fmod(x + 1, 1.0),
    "a scaled Bessel function": lambda x: 1 - special.i0e(x),
}
SMOOTH = {  # with a derivative rule of their own, and where they would be tied
    "the largest of two that differ": (lambda x: jnp.max(jnp.stack([x, x - 1])), [0, 1, 0, 0]),
    "a remainder": (lambda x: jnp.fmod(x, 1.0), [0, 1, 0, 0]),
    "softplus": (jax.nn.softplus, [np.log(2), 1 / 2, 1 / 8, 0]),
    "steep": (lambda x: jax.nn.softplus(1e3 * x), [np.log(2), 500, 1e6 / 8, 0]),
    "swish": (jax.nn.silu, [0, 1 / 2, 1 / 4, 0]),
}


BESSEL = {  # I_0 and I_1: the derivatives are sums of others, at -1, 0, 1e-3, 2
    "i0": (special.i0, 0),
    "i1": (special.i1, 1),
    "i0 of a square": (lambda x: special.i0(2 * x) ** 2, None),
}


def of_bessel(order, x):
    """The first seven coefficients of I_n: I_n' = (I_{n-1} + I_{n+1}) / 2."""
    k = np.arange(7)
    sums = [[math.comb(m, j) * iv(order - m + 2 * j, x) for j in range(m + 1)] for m in k]
    return [sum(s) / 2**m / math.factorial(m) for m, s in zip(k, sums, strict=True)]


@pytest.mark.parametrize("name", BESSEL)
@pytest.mark.parametrize("x0", [-1.0, 0.0, 1e-3, 2.0])
def test_bessel_functions(name, x0):
    f, order = BESSEL[name]
    if order is None:
        inner = of_bessel(0, 2 * x0) * 2.0 ** np.arange(7)
        expected = np.convolve(inner, inner)[:7]
    else:
        expected = of_bessel(order, x0)
    np.testing.assert_allclose(taylor_coefficients(f, x0, 6), expected, rtol=1e-12, atol=1e-14)


def test_scaled_bessel_functions():
    for scaled, order in ((special.i0e, 0), (special.i1e, 1)):
        signs = (-1.0) ** np.arange(7) / factorial(np.arange(7))
        expected = np.convolve(of_bessel(order, 0.1), np.exp(-0.1) * signs)[:7]
        np.testing.assert_allclose(taylor_coefficients(scaled, 0.1, 6), expected, rtol=1e-12)
    np.testing.assert_allclose(taylor_coefficients(special.i1e, 0.0, 1), [0, 0.5])
    with pytest.raises(ValueError, match="its derivative of order 2"):
        taylor_coefficients(special.i1e, 0.0, 2)
    with pytest.raises(ValueError, match="its derivative of order 1"):
        taylor_coefficients(special.i1e, 701.0, 2)


@pytest.mark.parametrize("name", SMOOTH)
def test_a_derivative_rule_of_its_own_is_no_kink(name):
    f, expected = SMOOTH[name]
    np.testing.assert_allclose(taylor_coefficients(f, 0.0, 3), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("f", "x0"),
    [
        (jnp.tan, np.pi / 2),
        (lambda x: 1 / jnp.cos(x), -np.pi / 2),
        (lambda x: jnp.tan(x * np.pi / 2), 1.0),
    ],
)
def test_the_rounding_of_a_pole_is_no_point_of_expansion(f, x0):
    with pytest.raises(ValueError, match="as beside a pole"):
        taylor_coefficients(f, x0, 3)
    near = taylor_coefficients(f, x0 - 1e-9, 3)
    assert float(near[1] / near[0]) == pytest.approx(1e9, rel=0.6)


CANCELLED = {  # a difference of nearly equal numbers beside 0; and how far from it that is harmless
    "the same by hand": (lambda x: jnp.sin(x) / x, -1e-3, 1.0, lambda x: mpmath.sin(x) / x),
    "expm1(x) / x": (lambda x: jnp.expm1(x) / x, 1e-3, 1.0, lambda x: mpmath.expm1(x) / x),
    "cosine": (lambda x: (1 - jnp.cos(x)) / x**2, 1e-3, 2.0, lambda x: (1 - mpmath.cos(x)) / x**2),
}
if jax.__version_info__ < (0, 12):  # from then on all its derivatives are right
    CANCELLED["sinc"] = (jnp.sinc, 1e-3, 0.5, mpmath.sincpi)


@pytest.mark.parametrize(("f", "lost", "kept", "exact"), CANCELLED.values(), ids=CANCELLED)
def test_digits_that_cancel_are_no_coefficients(f, lost, kept, exact):
    """Beside 0 the sixth derivative of sinc was 33 for -0.19, and nothing said so."""
    with pytest.raises(ValueError, match=r"nearly equal numbers"):
        taylor_coefficients(f, lost, 6)
    right = [float(c) for c in mpmath.taylor(exact, kept, 6)]
    np.testing.assert_allclose(taylor_coefficients(f, kept, 6), right, rtol=1e-6, atol=1e-9)


def test_a_derivative_that_jax_has_wrong_at_one_point():
    """That of Spence's function at 1, where it is -1."""
    with pytest.raises(ValueError, match="special function is wrong there"):
        taylor_coefficients(special.spence, 1.0, 3)


def test_a_choice_at_the_point_itself_is_none_of_that():
    """On one of its sides the coefficients are others."""
    found = taylor_coefficients(lambda x: jnp.where(x <= 1, x, x**2), 1.0, 2)
    np.testing.assert_allclose(found, [1, 1, 0])


@pytest.mark.parametrize("f", KINKS.values(), ids=KINKS)
def test_where_a_derivative_does_not_exist(f):
    with pytest.raises(ValueError, match=r"degree 2 at x0 = 0.0: its derivative of order 1"):
        taylor_coefficients(f, 0.0, 2)


@pytest.mark.parametrize(
    "name", ["abs", "sqrt", "largest", "rectifier", "a scaled Bessel function"]
)
def test_where_a_derivative_does_not_exist_under_jit(name):
    """One of each way by which it is seen; and along a line in several variables."""
    f = KINKS[name]
    for expand in (taylor_coefficients, taylor_polynomial):
        with pytest.raises(ValueError, match=r"at x0 = \[0. 0.\]: its derivative of order 1"):
            expand(lambda x: f(x[0]) + x[1], jnp.zeros(2), 2)
    coefficients = jax.jit(lambda x0: taylor_coefficients(f, x0, 2))(0.0)
    np.testing.assert_array_equal(
        jnp.isnan(coefficients), [False, True, True] if f(0.0) == 0 else 3
    )
    _, several = jax.jit(lambda x0: taylor_coefficients(lambda x: f(x[1]), x0, 1))(jnp.zeros(2))
    np.testing.assert_array_equal(jnp.isnan(several), [False, True, True])
    value = jax.jit(lambda x0: taylor_polynomial(lambda x: f(x[1]), x0, 1)(x0))(jnp.zeros(2))
    assert jnp.isnan(value)


def test_the_order_that_fails_is_named():
    with pytest.raises(
        ValueError, match="its derivative of order 3 does not exist or is not finite"
    ):
        taylor_coefficients(lambda x: x**2.5, 0.0, 5)
    np.testing.assert_array_equal(taylor_coefficients(lambda x: x**2.5, 0.0, 2), [0, 0, 0])
    with pytest.raises(ValueError, match="its value there is not finite"):
        taylor_coefficients(jnp.log, 0.0, 1)
    with pytest.raises(ValueError, match="its value there is not finite"):
        taylor_polynomial(jnp.sin, jnp.nan, 1)


MISTAKES = {
    "vector value": (ValueError, r"not an array of shape \(2,\)", lambda x: x, np.ones(2), 1),
    "vector of one": (ValueError, r"an array of shape \(1,\)", lambda x: x[None], 0.0, 1),
    "tuple value": (TypeError, "one number, not a tuple", lambda x: (x, x), 0.0, 1),
    "complex value": (TypeError, "not one of type complex128", lambda x: 1j * x, 0.0, 1),
    "integer value": (TypeError, "not one of type int64", lambda x: jnp.argmax(x), np.ones(2), 1),
    "negative degree": (ValueError, "degree must be 0 or more, not -1", jnp.sin, 0.0, -1),
    "float degree": (TypeError, "degree", jnp.sin, 0.0, 2.0),
    "bool degree": (TypeError, "must be an integer, such as 2, not True", jnp.sin, 0.0, True),
    "integer x0": (TypeError, "x0 must be floating point, such as 0.0, not", jnp.sin, 0, 1),
    "bool x0": (TypeError, "not of type bool", jnp.sin, True, 1),
    "complex x0": (TypeError, "not of type complex128", jnp.sin, 1j, 1),
    "NumPy's function": (TypeError, r"no derivative: take jnp\.sin", np.sin, 0.0, 1),
    "matrix x0": (ValueError, r"x0 must have shape \(\) or \(D,\)", jnp.sum, np.ones((2, 2)), 1),
}


@pytest.mark.parametrize(("error", "message", "f", "x0", "degree"), MISTAKES.values(), ids=MISTAKES)
@pytest.mark.parametrize("expand", [taylor_coefficients, taylor_polynomial])
def test_mistakes_are_named(expand, error, message, f, x0, degree):
    with pytest.raises(error, match=message):
        expand(f, x0, degree)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3)])
def test_polynomial_refuses_points_of_another_dimension(shape):
    with pytest.raises(ValueError, match="the last axis of x must be 2 long"):
        taylor_polynomial(jnp.sum, jnp.zeros(2), 2)(jnp.ones(shape))


def pole(distance):
    """1 / (1 + x) so many units in the last place of x = 1 away from a pole, and its inverse there."""
    f = taylor_coefficients(lambda x: 1 / ((x - 1) + distance * EPS), 1.0, 2)
    return float(f[0]) * distance * EPS, float(f[1]) * (distance * EPS) ** 2


def rectified(distance):
    """So many steps beside the kink of a rectifier, of those with which its slope is looked at."""
    return taylor_coefficients(jax.nn.relu, distance * EPS**0.5 / 64, 2).tolist()[1:]


@jax.custom_jvp
def bent(x, jump):
    return jnp.where(x > 0, (1 + jump) * x, x)


bent.defjvp(
    lambda primals, tangents: (
        bent(*primals),
        jnp.where(primals[0] > 0, 1 + primals[1], 1) * tangents[0],
    )
)


def jump(size):
    """Of a slope of one, so much of the root of the precision."""
    return taylor_coefficients(lambda x: bent(x, size * EPS**0.5), 0.0, 1).tolist()


EPS = np.finfo(float).eps
POLE, KINK = Refused(ValueError, "as beside a pole"), Refused(ValueError, "derivative of order 1")
THRESHOLDS = {
    "a pole": (pole, (1.01, (1.0, -1.0)), (0.99, POLE), (-1.01, (1.0, -1.0)), (-0.99, POLE)),
    "a kink nearby": (rectified, (1.1, [1.0, 0.0]), (-1.1, [0.0, 0.0]), (0.9, KINK), (-0.9, KINK)),
    "a slope that jumps": (jump, (1.9, [0.0, 1.0]), (2.1, KINK)),
    "a degree": (
        lambda degree: taylor_coefficients(jnp.exp, 0.0, degree).tolist(),
        (0, [1.0]),
        (-1, Refused(ValueError, "0 or more, not -1")),
    ),
}


@pytest.mark.parametrize(("act", "x", "result"), sides(THRESHOLDS))
def test_threshold(act, x, result):
    check(act, x, result)


CHOSEN_AT_0 = {  # and the first order at which the constant is no longer f
    "x log x": (lambda x: jnp.where(x == 0, 0, x * jnp.log(jnp.where(x == 0, 1, x))), 1),
    "relative entropy": (lambda x: special.rel_entr(x, 1.0), 1),
    "sin(x) / x": (lambda x: jnp.where(x == 0, 1.0, jnp.sin(x) / jnp.where(x == 0, 1, x)), 2),
    "x^2 log x": (lambda x: jnp.where(x == 0, 0, x**2 * jnp.log(jnp.where(x == 0, 1, x))), 2),
}


@pytest.mark.parametrize("name", CHOSEN_AT_0)
def test_what_is_chosen_at_0_alone(name):
    f, order = CHOSEN_AT_0[name]
    words = f"do not follow the coefficient of order {order}"
    if name == "relative entropy" and jax.__version_info__ >= (0, 12):
        words = "its derivative of order 1 does not exist or is not finite"
    with pytest.raises(ValueError, match=words):
        taylor_coefficients(f, 0.0, order)
    if name == "sin(x) / x":  # of a coordinate that is 0, the other is not
        with pytest.raises(ValueError, match=words):
            taylor_coefficients(lambda x: f(x[1]) + x[0] ** 2, jnp.array([0.3, 0.0]), order)
    below = [float(f(0.0)), *[0.0] * (order - 1)]
    np.testing.assert_allclose(taylor_coefficients(f, 0.0, order - 1), below, atol=1e-15)


BRANCHES = {  # the branch that is taken at 0 is f on one of its sides
    "above": (lambda x: jnp.where(x > 0, x, 0.0), [0, 0, 0, 0]),
    "below": (lambda x: jnp.where(x >= 0, jnp.sin(x), 7.0), [0, 1, 0, -1 / 6]),
    "interpolated": (lambda x: jnp.interp(x, jnp.arange(-1.0, 2), jnp.array([0.0, 1, 4])), [1, 3, 0, 0]),
    "steep": (lambda x: jnp.where(x >= 0, jnp.sin(1e6 * x), 7.0), [0, 1e6, 0, -1e18 / 6]),
    "at a great height": (lambda x: jnp.where(x >= 0, jnp.cos(x) + 1e9, 7.0), [1e9 + 1, 0, -1 / 2, 0]),
    "of great numbers": (lambda x: jnp.where(x >= 0, (x + 1e3) ** 3 - 1e9, 7.0), [0, 3e6, 3e3, 1]),
    "by a series": (lambda x: jnp.where(abs(x) < 1e-3, 1 + x**2 / 6, jnp.sinh(x) / x), [1, 0, 1 / 6, 0]),
}  # fmt: skip


@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_is_followed(name):
    f, expected = BRANCHES[name]
    np.testing.assert_allclose(taylor_coefficients(f, 0.0, 3), expected, rtol=1e-12, atol=1e-14)
