"""Posterior means of functions of the sites, against integrals that are known."""

import re
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import integrate, special, stats

import laplacebook as lb
from laplacebook.beyond import expectation as module
from tests.models import coin, line, logistic, single_precision

TOSSES = np.repeat([1.0, 0.0], [8, 1])
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(60, 3))
LABELS = (FEATURES @ [1.0, -1.0, 0.5] + RNG.logistic(size=60) > 0).astype(float)
NEW = np.array([[1.0, 0.5, 0.0], [-1.0, 2.0, 1.0]])


def theta(sites):
    return sites["theta"]


def square(sites):
    return sites["theta"] ** 2


def logarithm(sites):
    return jnp.log(sites["theta"])


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
    logarithm: special.digamma(10) - special.digamma(13),
    negative: -10 / 13,
    cube: POSTERIOR.expect(lambda x: (x - 0.5) ** 3) - 0.02,
    odds: 10 / 2,
    step: POSTERIOR.sf(0.5),
    likely: POSTERIOR.sf(0.5),
    distance: POSTERIOR.expect(lambda x: abs(x - 0.75)),
}


@cache
def tossed(times=1):
    return lb.laplace(coin, np.repeat(TOSSES, times))


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
        (step, "draws", "two derivatives of step at the mode are zero"),
        (likely, "draws", "likely returns bool, which has no derivative"),
    ],
)
def test_what_was_used_and_why(g, method, why):
    found = of_coin(g)
    assert found.method == method
    assert why in found.why
    assert f"by {method} (" in repr(found)
    assert found.why in repr(found)


def beta(heads, tails):
    numpyro.sample("theta", dist.Beta(heads, tails))


@pytest.mark.parametrize("method", ["delta", "tierney_kadane"])
@pytest.mark.parametrize(
    ("g", "mean"),
    [
        (square, lambda a, b: a * (a + 1) / ((a + b) * (a + b + 1))),
        (logarithm, lambda a, b: special.digamma(a) - special.digamma(a + b)),
    ],
)
def test_the_error_falls_with_the_square_of_the_number_of_data(g, mean, method):
    """Four times the tosses divide it by sixteen, and that of g at the mode by four."""

    def error(heads, tails):
        found = lb.expectation(lb.laplace(beta, heads, tails), g, method=method)
        exact = mean(heads, tails)
        return abs(found.value - exact), abs(found.value - found.correction - exact)

    few, many = error(40.0, 30.0), error(160.0, 120.0)
    assert few[0] / many[0] == pytest.approx(16, rel=0.1)
    assert few[1] / many[1] == pytest.approx(4, rel=0.1)


def test_the_delta_method_is_the_derivative_of_the_generating_function():
    """Of log E exp(s g) by Laplace's method, at s = 0, by differences of two evidences."""

    def evidence(s):
        return lb.laplace_of_density(
            lambda x: (
                10 * jax.nn.log_sigmoid(x)
                + 3 * jax.nn.log_sigmoid(-x)
                + s * contrast({"theta": jax.nn.sigmoid(x)})
            ),
            1.0,
        ).log_evidence

    difference = (evidence(1e-3) - evidence(-1e-3)) / 2e-3
    found = lb.expectation(tossed(), contrast, method="delta")
    assert found.value == pytest.approx(float(difference), abs=1e-7)


def test_tierney_and_kadane_divide_two_evidences():
    """The Beta functions of the coin, each by Laplace's method in the logit."""

    def laplace(a, b):
        s = a / (a + b)
        return s**a * (1 - s) ** b * np.sqrt(2 * np.pi * (a + b) / (a * b))

    found = lb.expectation(tossed(), odds, method="tierney_kadane")
    assert found.value == pytest.approx(laplace(11, 2) / laplace(10, 3), rel=1e-6)
    assert lb.expectation(tossed(), negative, method="tierney_kadane").value < 0


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


@pytest.mark.parametrize("method", ["delta", "tierney_kadane", "draws", None])
def test_several_numbers_of_several_variables(method):
    w, mass = weights_on_a_grid()
    exact = mass @ (1 / (1 + np.exp(-w @ NEW.T)))
    found = lb.expectation(flights(), chances, method=method, num_samples=20_000)
    assert found.value.shape == found.truncation.shape == (2,)
    error = np.abs(found.value - exact)
    scale = found.truncation if found.standard_error is None else 3 * found.standard_error
    assert (error <= 1.5 * scale).all()
    assert (scale < 0.01).all()


def test_a_second_mode_is_sought_where_the_first_leaves_out_more():
    found = lb.expectation(flights(), chances)
    assert found.method == "tierney_kadane"
    assert re.match(r"delta leaves out 0\.02 .*; tierney_kadane leaves out 0\.005 ", found.why)


def test_the_mean_of_weights_is_shifted_by_third_derivatives():
    w, mass = weights_on_a_grid()
    found = lb.expectation(flights(), lambda s: s["w"], method="delta")
    assert found.value == pytest.approx(mass @ w, abs=1e-3)
    assert abs(found.correction).max() > 0.02


COUNTS = np.array([3.0, 0.0, 2.0, 5.0, 1.0])


def test_counts_with_a_normal_prior():
    def model(y):
        level = numpyro.sample("level", dist.Normal(0, 1))
        numpyro.sample("y", dist.Poisson(jnp.exp(level)).expand([5]).to_event(1), obs=y)

    def density(x):
        return np.exp(stats.norm.logpdf(x) + stats.poisson.logpmf(COUNTS, np.exp(x)).sum())

    mean = (
        integrate.quad(lambda x: np.exp(x) * density(x), -6, 6)[0]
        / integrate.quad(density, -6, 6)[0]
    )
    for method in ("delta", "tierney_kadane"):
        found = lb.expectation(
            lb.laplace(model, COUNTS), lambda s: jnp.exp(s["level"]), method=method
        )
        assert abs(found.value - mean) <= 1.1 * found.truncation < 0.02


def test_the_mean_of_a_gamma_distribution_in_the_constrained_space():
    """The mode is shifted to the mean exactly, as the book has it."""
    approx = lb.laplace(lambda: numpyro.sample("rate", dist.Gamma(12.0, 2.0)), space="constrained")
    assert lb.expectation(approx, lambda s: s["rate"], method="delta").value == pytest.approx(6)


def log_gamma(x, n):
    return n * x - jnp.exp(x)


def number(sites):
    return jnp.exp(sites["x"])


@pytest.mark.parametrize("method", ["delta", "tierney_kadane"])
def test_within_transformations(method):
    def mean(n):
        approx = lb.laplace_of_density(log_gamma, 0.1, n, throw=False)
        found = lb.expectation(approx, number, method=method)
        return found.value, found.truncation

    of_each = jax.jit(jax.vmap(jax.value_and_grad(mean, has_aux=True)))
    (values, truncations), slopes = of_each(jnp.array([4.0, 9.0, jnp.nan]))
    assert values[:2] == pytest.approx(np.array([4.0, 9.0]), rel=0.01)
    assert np.isnan([values[2], truncations[2]]).all()
    difference = (mean(4.001)[0] - mean(3.999)[0]) / 0.002
    assert slopes[0] == pytest.approx(float(difference), rel=1e-5)


def test_within_a_compiled_program_a_refusal_is_nan():
    @jax.jit
    def means(approx):
        refused = (step, "delta"), (contrast, "tierney_kadane"), (distance, "delta")
        return [lb.expectation(approx, g, method=method).value for g, method in refused]

    assert np.isnan(means(tossed())).all()
    for method in (None, "draws"):
        with pytest.raises(ValueError, match="name one of the methods delta and tierney_kadane"):
            jax.jit(lambda approx, by=method: lb.expectation(approx, theta, method=by))(tossed())


def test_single_precision():
    with single_precision():
        approx = lb.laplace(coin, TOSSES.astype(np.float32))
        found = [lb.expectation(approx, g).value for g in (theta, likely)]
    assert [x.dtype for x in found] == [np.float32] * 2
    assert found == [pytest.approx(10 / 13, abs=1e-4), pytest.approx(MEANS[likely], abs=0.003)]


def test_a_constant_is_its_mean():
    for method in module.METHODS:
        found = lb.expectation(tossed(), lambda _: 3.0, method=method)
        assert found.value == pytest.approx(3, rel=1e-12)
        assert found.truncation < 1e-12
        assert found.standard_error is None or found.standard_error < 1e-12  # rounding


@pytest.mark.parametrize(
    ("g", "method", "words"),
    [
        (step, "delta", "derivatives of step at the mode are zero, as of an indicator"),
        (lambda s: jnp.where(s["theta"] < 1e-6, 1.0, 0.0), "delta", "derivatives of <lambda>"),
        (likely, "tierney_kadane", "likely returns bool, which has no derivative"),
        (contrast, "tierney_kadane", "not of one sign .* method='delta'"),
        (lambda s: s["phi"], None, "takes a site 'phi' that coin does not have; it has 'theta'"),
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


@pytest.mark.parametrize("method", ["delta", "tierney_kadane"])
def test_an_expansion_that_says_nothing_is_refused(method):
    """A kink within half of a standard deviation of the mode."""
    with pytest.raises(
        lb.LaplaceError, match=r"the\s+expansion\s+says\s+nothing(.|\n)*method='draws'"
    ):
        lb.expectation(tossed(), distance, method=method)


@pytest.mark.parametrize("method", module.METHODS)
def test_a_function_that_is_not_finite_is_refused(method):
    with pytest.raises(lb.NonFinite, match="NaN or infinite"):
        lb.expectation(tossed(), lambda s: jnp.log(s["theta"] - 0.5), method=method)


def test_draws_that_do_not_tell_are_refused():
    """A Cauchy density has no mean; of an event that no draw sees the error is infinite."""
    cauchy = lb.laplace_of_density(lambda x: -jnp.log1p(x**2), 0.1)
    with pytest.raises(lb.LaplaceError, match=r"Pareto k-hat of their\s+weights is"):
        lb.expectation(cauchy, lambda s: s["x"], method="draws")
    rare = lb.expectation(tossed(10), lambda s: s["theta"] < 0.01)
    assert rare.value < 1e-20
    assert rare.standard_error == np.inf


def test_draws_have_the_error_that_they_tell():
    found = [
        lb.expectation(tossed(), square, method="draws", key=key, num_samples=500)
        for key in jax.random.split(jax.random.key(1), 40)
    ]
    z = np.array([(one.value - 10 * 11 / (13 * 14)) / one.standard_error for one in found])
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
        lb.expectation(lb.laplace(coin, TOSSES * np.nan, throw=False), theta)
    with pytest.raises(lb.UnsupportedModel, match="maximum likelihood has no posterior"):
        lb.expectation(lb.maximum_likelihood(coin, TOSSES), theta)
