"""Posterior means of functions of the sites, against integrals that are known."""

import re
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import optimize, special, stats

import laplacebook as lb
from tests.models import line, logistic, single_precision

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(60, 3))
LABELS = (FEATURES @ [1.0, -1.0, 0.5] + RNG.logistic(size=60) > 0).astype(float)
NEW = np.array([[1.0, 0.5, 0.0], [-1.0, 2.0, 1.0]])


def theta(sites):
    return sites["theta"]


def negative(sites):
    return -sites["theta"]


def contrast(sites):
    return sites["theta"] - 0.75


def cube(sites):
    return (sites["theta"] - 0.5) ** 3 - 0.02


def odds(sites):
    return sites["theta"] / (1 - sites["theta"])


def step(sites):
    return jnp.where(sites["theta"] > 0.5, 1.0, 0.0)


def likely(sites):
    return sites["theta"] > 0.5


def distance(sites):
    return jnp.abs(sites["theta"] - 0.75)


POSTERIOR = stats.beta(10, 3)
MEANS = {
    theta: 10 / 13,
    odds: 10 / 2,
    cube: POSTERIOR.expect(lambda x: (x - 0.5) ** 3) - 0.02,
}


def beta(heads, tails):
    numpyro.sample("theta", dist.Beta(heads, tails))


@cache
def tossed():
    return lb.laplace(beta, 10.0, 3.0)


@cache
def of_coin(g):
    return lb.expectation(tossed(), g)


@cache
def flights():
    """Logistic regression with three weights."""
    return lb.laplace(logistic, FEATURES, LABELS)


@pytest.mark.parametrize("g", MEANS)
def test_what_is_returned_is_as_near_as_it_says(g):
    found = of_coin(g)
    error = abs(found.value - MEANS[g])
    if found.method == "draws":
        assert error < 3 * found.standard_error < 0.15
        assert found.truncation == 0
    else:
        assert error <= 1.1 * found.truncation < 0.002
        assert found.standard_error is None


@pytest.mark.parametrize(
    ("g", "method", "why"),
    [
        (theta, "delta", "delta leaves out 4e-06 posterior standard deviations of g"),
        (odds, "draws", "tierney_kadane leaves out 0.01"),
        (cube, "draws", "g is not of one sign"),
    ],
)
def test_what_was_used_and_why(g, method, why):
    found = of_coin(g)
    assert found.method == method
    assert why in found.why
    assert f"by {method} (" in repr(found)
    assert found.why in repr(found)


def square_and_logarithm(sites):
    return jnp.stack([sites["theta"] ** 2, jnp.log(sites["theta"])])


@pytest.mark.parametrize("method", ["delta", "tierney_kadane"])
def test_the_error_falls_with_the_square_of_the_number_of_data(method):
    """Four times the tosses divide it by sixteen, and that of g at the mode by four."""

    def errors(a, b):
        found = lb.expectation(lb.laplace(beta, a, b), square_and_logarithm, method=method)
        logarithm = special.digamma(a) - special.digamma(a + b)
        exact = np.array([a * (a + 1) / ((a + b) * (a + b + 1)), logarithm])
        return abs(found.value - exact), abs(found.value - found.correction - exact)

    few, many = errors(40.0, 30.0), errors(160.0, 120.0)
    np.testing.assert_allclose(few[0] / many[0], 16, rtol=0.1)
    np.testing.assert_allclose(few[1] / many[1], 4, rtol=0.1)


def test_the_delta_method_is_the_derivative_of_the_generating_function():
    """Of log E exp(s g) by Laplace's method, at s = 0, by differences of two evidences."""

    def evidence(s):
        def slope(x):
            p = special.expit(x)
            return 10 - 13 * p + s * p * (1 - p)

        p = special.expit(optimize.brentq(slope, -5, 5, xtol=1e-14))
        bend = p * (1 - p) * (13 - s * (1 - 2 * p))
        return 10 * np.log(p) + 3 * np.log1p(-p) + s * (p - 0.75) - np.log(bend) / 2

    difference = (evidence(1e-3) - evidence(-1e-3)) / 2e-3
    found = lb.expectation(tossed(), contrast, method="delta")
    assert found.value == pytest.approx(difference, abs=1e-7)


def test_tierney_and_kadane_divide_two_evidences():
    """The Beta functions of the coin, each by Laplace's method in the logit."""

    def laplace(a, b):
        s = a / (a + b)
        return s**a * (1 - s) ** b * np.sqrt(2 * np.pi * (a + b) / (a * b))

    found = lb.expectation(tossed(), odds, method="tierney_kadane")
    assert found.value == pytest.approx(laplace(11, 2) / laplace(10, 3), rel=1e-6)
    below = lb.expectation(tossed(), negative, method="tierney_kadane")
    assert below.value == pytest.approx(-laplace(11, 3) / laplace(10, 3), rel=1e-6)


def test_moments_of_a_gaussian_are_exact():
    """Of a linear and a quadratic function, also where the mode says nothing."""
    approx = lb.laplace(line, FEATURES, FEATURES @ [1.0, 2.0, 3.0])

    def moments(sites):
        return jnp.concatenate([sites["w"], (sites["w"] - approx.mode_vector) ** 2])

    found = lb.expectation(approx, moments, method="delta")
    expected = np.concatenate([approx.mode_vector, np.diag(approx.covariance)])
    assert found.value == pytest.approx(expected, rel=1e-8)
    assert found.truncation == pytest.approx(np.zeros(6), abs=1e-10)


@cache
def weights_on_a_grid():
    """Points of three weights and their posterior probabilities, by Gauss and Hermite about the mode."""
    nodes, mass = np.polynomial.hermite_e.hermegauss(24)
    z = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 3)
    approx = flights()
    root = np.linalg.cholesky(approx.covariance)
    w = np.asarray(approx.mode_vector) + z @ root.T
    logits = w @ FEATURES.T
    logs = logits @ LABELS - np.logaddexp(0, logits).sum(axis=1) - np.sum(w**2, axis=1) / 2
    weights = np.exp(logs - logs.max() + np.sum(z**2, axis=1) / 2)
    weights *= np.einsum("i,j,k->ijk", mass, mass, mass).ravel()
    return w, weights / weights.sum()


def chances(sites):
    return jax.nn.sigmoid(NEW @ sites["w"])


@pytest.mark.parametrize("method", ["delta", "tierney_kadane"])
def test_several_numbers_of_several_variables(method):
    w, mass = weights_on_a_grid()
    exact = mass @ (1 / (1 + np.exp(-w @ NEW.T)))
    found = lb.expectation(flights(), chances, method=method)
    assert found.value.shape == found.truncation.shape == (2,)
    error = np.abs(found.value - exact)
    assert (error <= 1.5 * found.truncation).all()
    assert (found.truncation < 0.01).all()


def test_a_second_mode_is_sought_where_the_first_leaves_out_more():
    found = lb.expectation(flights(), chances)
    assert found.method == "tierney_kadane"
    assert re.match(r"delta leaves out 0\.02 .*; tierney_kadane leaves out 0\.005 ", found.why)


def test_the_mean_of_weights_is_shifted_by_third_derivatives():
    w, mass = weights_on_a_grid()
    found = lb.expectation(flights(), lambda s: s["w"], method="delta")
    assert found.value == pytest.approx(mass @ w, abs=1e-3)
    assert abs(found.correction).max() > 0.02


def test_the_mean_of_a_gamma_distribution_in_the_constrained_space():
    """The mode is shifted to the mean exactly, as the book has it."""
    approx = lb.laplace(lambda: numpyro.sample("rate", dist.Gamma(12.0, 2.0)), space="constrained")
    assert lb.expectation(approx, lambda s: s["rate"], method="delta").value == pytest.approx(6)


def log_gamma(x, n):
    return n * x - jnp.exp(x)


def number(sites):
    return jnp.exp(sites["x"])


def test_within_transformations():
    """Of two means the sum, whose slope is that of both."""

    def means(n):
        approx = lb.laplace_of_density(log_gamma, 0.1, n, throw=False)
        both = [lb.expectation(approx, number, method=m) for m in ("delta", "tierney_kadane")]
        values = jnp.stack([found.value for found in both])
        return values.sum(), (values, jnp.stack([found.truncation for found in both]))

    of_each = jax.jit(jax.vmap(jax.value_and_grad(means, has_aux=True)))
    (sums, (values, truncations)), slopes = of_each(jnp.array([4.0, 9.0, jnp.nan, 4.001, 3.999]))
    np.testing.assert_allclose(values[:2], [[4, 4], [9, 9]], rtol=0.01)
    assert np.isnan([values[2], truncations[2]]).all()
    assert slopes[0] == pytest.approx(float(sums[3] - sums[4]) / 0.002, rel=1e-5)


def test_within_a_compiled_program_a_refusal_is_nan():
    @jax.jit
    def means(approx):
        asked = (contrast, "delta"), (contrast, "tierney_kadane"), (step, "delta")
        return [lb.expectation(approx, g, method=method).value for g, method in asked]

    found, *refused = means(tossed())
    assert found == pytest.approx(float(lb.expectation(tossed(), contrast, method="delta").value))
    assert np.isnan(refused).all()
    for method in (None, "draws"):
        with pytest.raises(ValueError, match="name one of the methods delta and tierney_kadane"):
            jax.jit(lambda approx, by=method: lb.expectation(approx, theta, method=by))(tossed())


def test_single_precision():
    with single_precision():
        approx = lb.laplace(beta, 10.0, 3.0)
        found = lb.expectation(approx, theta).value
    assert found.dtype == np.float32
    assert found == pytest.approx(10 / 13, abs=1e-4)


def test_a_constant_is_its_mean():
    found = lb.expectation(tossed(), lambda _: 3.0, method="delta")
    assert found.value == pytest.approx(3, rel=1e-12)
    assert found.truncation < 1e-12
    drawn = lb.expectation(tossed(), lambda _: 0.0, method="draws")
    assert float(drawn.value) == float(drawn.standard_error) == 0
    nothing = lb.expectation(tossed(), lambda _: 0.0, method="delta")
    assert float(nothing.value) == float(nothing.truncation) == 0


@pytest.mark.parametrize(
    ("g", "method", "words"),
    [
        (step, "delta", "derivatives of step at the mode are zero, as of an indicator"),
        (lambda s: jnp.where(s["theta"] < 1e-6, 1.0, 0.0), "delta", "derivatives of <lambda>"),
        (likely, "tierney_kadane", "likely returns bool, which has no derivative"),
        (contrast, "tierney_kadane", "not of one sign .* method='delta'"),
        (lambda s: s["phi"], None, "takes a site 'phi' that beta does not have; it has 'theta'"),
        (lambda s: np.log(s["theta"]), None, "asks for numbers .* with jax.numpy"),
        (lambda s: 1.0 if s["theta"] > 0.5 else 0.0, None, "asks for numbers .* jnp.where"),
        (lambda s: s, None, "returns a dict, not an array of real numbers"),
        (lambda s: s["theta"] + 1j, None, "returns complex numbers"),
    ],
)
def test_a_function_that_does_not_serve_is_refused(g, method, words):
    with pytest.raises(lb.UnsupportedModel) as error:
        lb.expectation(tossed(), g, method=method)
    assert re.search(words, " ".join(str(error.value).split()))


def test_an_expansion_that_says_nothing_is_refused():
    """A kink within half of a standard deviation of the mode."""
    with pytest.raises(
        lb.LaplaceError, match=r"the\s+expansion\s+says\s+nothing(.|\n)*method='draws'"
    ):
        lb.expectation(tossed(), distance, method="delta")


@pytest.mark.parametrize("method", ["delta", "draws"])
def test_a_function_that_is_not_finite_is_refused(method):
    with pytest.raises(lb.NonFinite, match="NaN or infinite"):
        lb.expectation(tossed(), lambda s: jnp.log(s["theta"] - 0.5), method=method)


def test_draws_that_do_not_tell_are_refused():
    """A Cauchy density has no mean; of an event that no draw sees the error is infinite."""
    cauchy = lb.laplace_of_density(lambda x: -jnp.log1p(x**2), 0.1)
    with pytest.raises(lb.LaplaceError, match=r"Pareto k-hat of their\s+weights is"):
        lb.expectation(cauchy, lambda s: s["x"], method="draws")
    rare = lb.expectation(lb.laplace(beta, 82.0, 12.0), lambda s: s["theta"] < 0.01)
    assert rare.value < 1e-20
    assert rare.standard_error == np.inf


def test_draws_have_the_error_that_they_tell():
    found = [
        lb.expectation(tossed(), theta, method="draws", key=key, num_samples=500)
        for key in jax.random.split(jax.random.key(1), 40)
    ]
    z = np.array([(one.value - MEANS[theta]) / one.standard_error for one in found])
    assert 0.75 < z.std() < 1.25
    assert abs(z.mean()) < 0.4


def test_another_precision_than_the_whole_hessian_leaves_draws():
    approx = lb.laplace(logistic, FEATURES, LABELS, structure="diagonal")
    with pytest.raises(lb.UnsupportedModel, match=r"not\s+the\s+whole\s+Hessian(.|\n)*'draws'"):
        lb.expectation(approx, chances, method="delta")
    found = lb.expectation(approx, chances)
    assert found.method == "draws"
    w, mass = weights_on_a_grid()
    exact = mass @ (1 / (1 + np.exp(-w @ NEW.T)))
    assert (np.abs(found.value - exact) < 3 * found.standard_error).all()


def test_what_is_no_function_is_refused(types_unchecked):
    with pytest.raises(
        TypeError, match=r"the dict of latent sites, such as lambda s: s\['theta'\]"
    ):
        lb.expectation(tossed(), 3)


def test_what_is_no_fit_is_refused():
    with pytest.raises(ValueError, match="method is one of delta, tierney_kadane, draws, or None"):
        lb.expectation(tossed(), theta, method="laplace")
    with pytest.raises(ValueError, match="num_samples must be a whole number"):
        lb.expectation(tossed(), theta, num_samples=0)
    with pytest.raises(lb.LaplaceError, match="The fit failed"):
        lb.expectation(lb.laplace(beta, np.nan, 3.0, throw=False), theta)


@pytest.mark.parametrize(
    ("g", "exact"),
    [
        (lambda s: s["theta"] < 0.42, POSTERIOR.cdf(0.42)),
        (lambda s: s["theta"] >= 0.42, POSTERIOR.sf(0.42)),
        (
            lambda s: jnp.maximum(0.45 - s["theta"], 0),
            POSTERIOR.expect(lambda x: np.maximum(0.45 - x, 0), lb=0, ub=0.45),
        ),
    ],
    ids=["an event", "all but it", "how far"],
)
def test_what_few_draws_hit_is_told_with_its_error(g, exact):
    """Of all draws these are a lump, and no tail."""
    away = []
    for i in range(4):
        found = lb.expectation(tossed(), g, method="draws", key=jax.random.key(i))
        assert 0 < found.standard_error < 0.2 * min(exact, 1 - exact)
        away.append((found.value - exact) / found.standard_error)
    assert np.max(np.abs(away)) < 4


def test_a_long_tail_of_what_few_draws_hit_is_refused():
    with pytest.raises(lb.LaplaceError, match="do not tell the mean"):
        lb.expectation(tossed(), lambda s: jnp.where(s["theta"] < 0.42, s["theta"] ** -60.0, 0))
