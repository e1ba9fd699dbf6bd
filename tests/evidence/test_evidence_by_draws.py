"""The evidence by draws, against evidences that are known exactly."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy import integrate, stats
from scipy.special import betaln, gammaln

import laplacebook as lb
from laplacebook.base.checks import require_number
from laplacebook.fit.require_fit import require_fit
from tests.models import coin, line, single_precision

HEADS = np.repeat([1.0, 0.0], [8, 1])
COUNTS = np.array([3.0, 0.0, 2.0, 5.0, 1.0])
PRIOR = np.array([2.0, 1.0])  # of a rate
FEATURES = np.random.default_rng(0).normal(size=(30, 3))
TARGETS = FEATURES @ [1.0, -2.0, 0.5] + 0.5 * np.random.default_rng(1).normal(size=30)


def poisson(y, shape, rate):
    rate = numpyro.sample("rate", dist.Gamma(shape, rate))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Poisson(rate), obs=y)


def mean(y, sd=1.0):
    centre = numpyro.sample("centre", dist.Normal(0, 2))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(centre, sd), obs=y)


def uniform(y):
    end = numpyro.sample("end", dist.Pareto(1.0, 2.0))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Uniform(0, end), obs=y)


def evidence_of_counts(y, a, b):
    total, n = y.sum(), len(y)
    return (
        gammaln(a + total)
        - gammaln(a)
        + a * np.log(b)
        - (a + total) * np.log(b + n)
        - gammaln(y + 1).sum()
    )


def evidence_of_line(features, y, prior_sd=2.0, noise_sd=0.5):
    covariance = prior_sd**2 * features @ features.T + noise_sd**2 * np.eye(len(y))
    return stats.multivariate_normal(cov=covariance).logpdf(y)


EXACT = {
    "Beta-Bernoulli": (coin, (HEADS,), betaln(10, 3) - betaln(2, 2)),
    "Gamma-Poisson": (poisson, (COUNTS, *PRIOR), evidence_of_counts(COUNTS, *PRIOR)),
    "linear regression": (
        line,
        (FEATURES, TARGETS, 2.0, 2.0),
        evidence_of_line(FEATURES, TARGETS, 2.0, 2.0),
    ),
}


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("Gamma-Poisson", "prior"),
        ("Beta-Bernoulli", "gaussian"),
        ("linear regression", "student_t"),
    ],
)
def test_exact_evidences(name, method):
    model, data, exact = EXACT[name]
    key = jax.random.key(1)
    if method == "prior":
        estimate = lb.prior_sampling(model, *data, key=key, num_samples=30_000)
    else:
        approx = lb.laplace(model, *data)
        estimate = lb.importance_sampling(approx, key, 20_000, proposal=method)
    assert abs(estimate.value - exact) < 4 * estimate.standard_error + 1e-10
    assert estimate.standard_error < (0.02 if method != "prior" else 0.2)


def test_the_space_of_the_approximation_does_not_matter():
    model, data, exact = EXACT["Gamma-Poisson"]
    approx = lb.laplace(model, *data, space="constrained")
    drawn = lb.importance_sampling(approx, jax.random.key(0), 20_000, proposal="student_t")
    assert abs(drawn.value - exact) < 4 * drawn.standard_error < 0.04
    how = {"key": jax.random.key(0), "num_samples": 30_000}
    assert lb.prior_sampling(approx, **how) == lb.prior_sampling(model, *data, **how)


def test_a_gaussian_target_has_no_variance():
    """log p(D, u) - log q(u) is one number: the evidence, exactly, draw by draw."""
    model, data, exact = EXACT["linear regression"]
    for number in [10, 1000]:
        approx = lb.laplace(model, *data)
        estimate = lb.importance_sampling(approx, jax.random.key(0), number, proposal="gaussian")
        np.testing.assert_allclose(estimate.value, exact, rtol=1e-12)
        assert estimate.standard_error < 1e-12


def test_a_support_that_depends_on_the_parameter():
    """NumPyro's Uniform has a density beyond its end unless its data are checked."""
    y = jnp.array([0.3, 2.1, 1.4])
    exact, _ = integrate.quad(lambda end: end**-3.0 * 2 * end**-3.0, 2.1, np.inf)
    estimate = lb.prior_sampling(uniform, y, key=jax.random.key(0))
    assert abs(estimate.value - np.log(exact)) < 4 * estimate.standard_error < 0.1


def test_a_scaled_model_is_integrated_as_it_is_scaled():
    likelihood, prior = stats.norm.logpdf, stats.norm(scale=2).logpdf
    power, _ = integrate.quad(lambda m: np.exp((likelihood(COUNTS, m).sum() + prior(m)) / 2), -9, 9)
    scaled = handlers.scale(mean, 0.5)
    for estimate in [
        lb.prior_sampling(scaled, COUNTS, key=jax.random.key(0)),
        lb.importance_sampling(lb.laplace(scaled, COUNTS), jax.random.key(0)),
    ]:
        assert abs(estimate.value - np.log(power)) < 4 * estimate.standard_error < 0.1


APPROX = lb.laplace(coin, HEADS)


def test_a_95_percent_interval_covers_the_exact_evidence_95_times_in_a_hundred():
    def estimate(key):
        return lb.prior_sampling(mean, COUNTS, key=key, num_samples=1000)

    found = jax.jit(jax.vmap(estimate))(jax.random.split(jax.random.key(2), 200))
    exact = stats.multivariate_normal(cov=np.eye(5) + 4).logpdf(COUNTS)
    covered = jnp.abs(found.value - exact) < 1.96 * found.standard_error
    assert 180 <= covered.sum() <= 198


def tailed(z, tail):
    """The density of a Student distribution, of the logarithm of a gamma variable or a Gaussian."""
    return jnp.stack([-3 * jnp.log1p(z**2 / 5), 2 * z - jnp.exp(z), -(z**2) / 2])[tail]


TAILS = {  # the evidence
    "Student": gammaln(2.5) - gammaln(3) + np.log(5 * np.pi) / 2,
    "gamma": 0.0,
    "Gaussian": np.log(2 * np.pi) / 2,
}


@jax.jit
def many_estimates(approx, keys):
    return jax.lax.map(lambda key: lb.importance_sampling(approx, key, 400), keys)


@pytest.mark.parametrize("name", TAILS)
def test_the_default_errors_hold_whatever_the_tail(name):
    approx = lb.laplace_of_density(tailed, 0.1, np.array(list(TAILS).index(name)))
    found = many_estimates(approx, jax.random.split(jax.random.key(3), 200))
    z = (found.value - TAILS[name]) / found.standard_error
    assert 180 <= jnp.sum(jnp.abs(z) < 1.96) <= 198
    assert abs(jnp.mean(z)) < 0.25


def test_draws_that_miss_the_posterior_have_an_infinite_error():
    """A prior draw in 10^5 comes within 50 standard deviations of this posterior."""
    y = 1000 + np.random.default_rng(0).normal(size=50)
    model = partial(mean, sd=0.1)
    estimate = lb.prior_sampling(model, y, key=jax.random.key(0), num_samples=10_000)
    assert jnp.isposinf(estimate.standard_error)


def test_draws_that_all_lie_outside_the_support_give_no_number():
    estimate = lb.prior_sampling(uniform, jnp.array([1e9]), key=jax.random.key(0), num_samples=1000)
    assert jnp.isneginf(estimate.value) and jnp.isposinf(estimate.standard_error)


def test_a_tail_heavier_than_the_proposal_has_an_infinite_error():
    """A Cauchy density: the weights of a Gaussian proposal have no variance, nor a mean to see."""
    approx = lb.laplace_of_density(lambda z: -jnp.log1p(z**2), 0.1)
    gaussian = lb.importance_sampling(approx, jax.random.key(0), 10_000, proposal="gaussian")
    assert jnp.isposinf(gaussian.standard_error)
    heavy = partial(lb.importance_sampling, proposal="student_t", degrees_of_freedom=1.0)
    estimate = heavy(approx, jax.random.key(0), 10_000)
    assert abs(estimate.value - np.log(np.pi)) < 4 * estimate.standard_error < 0.1


def test_likelihoods_without_a_variance_under_the_prior_have_an_infinite_error():
    def model():
        theta = numpyro.sample("theta", dist.Normal(0, 1))
        numpyro.factor("grows", 0.45 * theta**2)  # squared, it outgrows the prior

    estimate = lb.prior_sampling(model, key=jax.random.key(0), num_samples=10_000)
    assert jnp.isposinf(estimate.standard_error)


def test_a_prior_that_underflows_has_an_evidence():
    """Draws from Gamma(0.01, 0.01) round to zero, where its own density is infinite."""
    y = np.array([2.0, 1.0, 2.0, 1.0, 1.0])  # at rate zero NumPyro 0.19 has no density of a zero
    how = {"key": jax.random.key(0), "num_samples": 30_000}
    prior = np.array([0.01, 0.01])
    estimate = lb.prior_sampling(poisson, y, *prior, **how)
    exact = evidence_of_counts(y, *prior)
    assert abs(estimate.value - exact) < 4 * estimate.standard_error < 0.3


def test_a_model_with_a_seed_of_its_own_is_refused():
    with pytest.raises(lb.UnsupportedModel, match="All draws of 'centre' from the prior are the"):
        lb.prior_sampling(handlers.seed(mean, 1), COUNTS, key=jax.random.key(0))


@cache
def means_in_single_precision():
    """A fit, and its exact evidence."""
    y = np.random.default_rng(0).normal(size=1000)
    with single_precision():
        return lb.laplace(mean, y), stats.multivariate_normal(cov=np.eye(1000) + 4).logpdf(y)


@pytest.mark.parametrize("nu", [1.0, 30.0, 1000.0])
def test_the_proposal_is_normalised_in_single_precision_too(nu):
    approx, exact = means_in_single_precision()
    with single_precision():
        estimate = lb.importance_sampling(approx, jax.random.key(0), degrees_of_freedom=nu)
    assert abs(estimate.value - exact) < 4 * estimate.standard_error < 0.1


def test_the_error_is_no_less_than_the_rounding_of_the_result():
    approx, exact = means_in_single_precision()
    with single_precision():
        estimate = lb.importance_sampling(approx, jax.random.key(0), proposal="gaussian")
    assert abs(estimate.value - exact) < 4 * estimate.standard_error < 0.01


@pytest.mark.parametrize("number", [0, -3, True])
def test_a_count_is_a_positive_integer(number):
    with pytest.raises(ValueError, match="num_samples must be a whole number, 1 or more"):
        lb.importance_sampling(APPROX, jax.random.key(0), number)


@pytest.mark.parametrize("number", [2.5, None, "many"])
def test_a_count_is_a_whole_number(number):
    with pytest.raises(ValueError, match="points must be a whole number, 1 or more, not"):
        require_number("points", number)


def flat(y):
    centre = numpyro.sample("centre", dist.ImproperUniform(dist.constraints.real, (), ()))
    numpyro.sample("y", dist.Normal(centre, 1), obs=y)


def scale_below_zero(y):
    slope = numpyro.sample("slope", dist.Normal(1, 1))
    numpyro.sample("y", dist.Normal(0, slope), obs=y)


def test_what_has_no_prior_to_draw_from_is_refused():
    with pytest.raises(lb.UnsupportedModel, match="'centre' is improper"):
        lb.prior_sampling(flat, 1.0, key=jax.random.key(0))
    with pytest.raises(lb.UnsupportedModel, match="no prior to draw from"):
        lb.prior_sampling(lb.laplace_of_density(tailed, 0.1, np.array(0)), key=jax.random.key(0))


def test_a_likelihood_that_is_undefined_at_a_draw_is_refused():
    with pytest.raises(lb.NonFinite, match="scale_below_zero is NaN or infinite at .* of 1,000"):
        lb.prior_sampling(scale_below_zero, 1.0, key=jax.random.key(0), num_samples=1000)
    how = {"key": jax.random.key(0), "num_samples": 1000}
    compiled = jax.jit(lambda y: lb.prior_sampling(scale_below_zero, y, **how))
    assert jnp.isnan(compiled(1.0).value) and jnp.isnan(compiled(1.0).standard_error)


def test_what_is_no_approximation_is_refused():
    key = jax.random.key(0)
    with pytest.raises(lb.LaplaceError, match="The fit failed"):
        lb.importance_sampling(lb.laplace(coin, HEADS * np.nan, throw=False), key)
    with pytest.raises(ValueError, match="jax.vmap"):
        lb.importance_sampling(jax.vmap(lambda _: APPROX)(np.arange(2)), key)
    with pytest.raises(TypeError, match="knows the arguments"):
        lb.prior_sampling(APPROX, HEADS, key=key)
    with pytest.raises(TypeError, match="what laplace"):
        require_fit(coin)


@pytest.mark.parametrize(
    "option",
    [{"proposal": "cauchy"}, {"degrees_of_freedom": 0.0}, {"degrees_of_freedom": np.inf}],
)
def test_options_without_meaning_are_refused(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        lb.importance_sampling(APPROX, jax.random.key(0), **option)
