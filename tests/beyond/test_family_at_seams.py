"""Where members of the family were silently wrong, or failed without a word: each is right now, or says why not."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import laplacebook as lb
from laplacebook.beyond.weighted_draws import WeightedDraws
from laplacebook.fit.numpyro_and_arviz import to_arviz
from laplacebook.model.density import ModelDensity

KEY = jax.random.key(0)


def root(y):
    x = numpyro.sample("x", dist.Normal(0, 3))
    numpyro.sample("y", dist.Normal(x**2, 1), obs=y)


def number(law):
    numpyro.sample("z", law)


@pytest.fixture(scope="module")
def normal():
    return lb.laplace(number, dist.Normal(0, 1))


def test_a_stray_draw_in_another_mode_is_refused():
    """By some keys one draw of 10,000 reaches it, and carries all: the log evidence was -0.49 for -2.90."""
    fit = lb.laplace(root, 4.0, start={"x": 2.0})
    with pytest.raises(lb.LaplaceError, match=r"(?s)about\s+1\s+carry.*lb\.mixture"):
        lb.resampled(fit, jax.random.key(6))


def bumps(x, less):
    return jnp.logaddexp(-((x - 6) ** 2) / 2, -((x + 6) ** 2) / 2 - less)


def test_a_mixture_has_draws_by_its_shares():
    """So that the means of one that holds nearly all are as exact as its own."""
    one, two = (
        lb.mixture([lb.laplace_of_density(bumps, jnp.array(at), less) for at in (6.0, -6.0)])
        for less in (5.0, 0.0)
    )
    assert one.moment_error == pytest.approx(8192**-0.5, rel=0.02)
    assert two.moment_error == pytest.approx(8192**-0.5, rel=0.02)
    assert one._pairs.min() == 64


def test_the_moments_of_a_long_tail_are_not_told():
    """Of exp(3 z) the standard deviation is 8102.6; a few of 16,384 draws gave 1526."""
    fit = lb.laplace(number, dist.LogNormal(0, 3))
    assert float(fit.standard_deviation["z"]) == pytest.approx(8102.6, rel=1e-4)
    assert np.isnan(lb.skewed(fit).standard_deviation["z"])
    assert np.isnan(lb.mixture(fit).standard_deviation["z"])
    assert np.isnan(fit.summary(of={"z": lambda s: s["z"]}).rows()[0]["sd"])
    short = lb.laplace(number, dist.LogNormal(0, 0.5))
    assert float(lb.skewed(short).standard_deviation["z"]) == pytest.approx(
        float(short.standard_deviation["z"]), rel=0.05
    )


def test_draws_outside_of_the_support_are_no_posterior():
    fit = lb.laplace(number, dist.Gamma(2, 1).expand([60]).to_event(1), space="constrained")
    with pytest.raises(lb.LaplaceError, match=r"inside\s+of\s+the\s+support"):
        lb.resampled(fit, KEY, 200)


def test_a_quantile_beyond_the_draws_is_refused(normal):
    approx = lb.skewed(normal)
    with pytest.raises(ValueError, match=r"1e-07 lies beyond the draws"):
        approx.quantiles([0.5, 1e-7])
    assert float(approx.quantiles([0.001])["z"][0]) == pytest.approx(-3.09, abs=0.15)
    with pytest.raises(ValueError, match="beyond the draws"):
        normal.summary(0.99999, of={"z": lambda s: s["z"]})


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize(
    ("of", "error", "words"),
    [
        ({"a": lambda s: jnp.log(s["z"])}, lb.NonFinite, r"at \d\d\.\d\d% of the draws"),
        ({"a": lambda s: s["z"] * 1j}, lb.UnsupportedModel, "a returns complex numbers"),
        ({"a": lambda s: s["q"]}, lb.UnsupportedModel, "a takes a site 'q' .* it has 'z'"),
        ({"a": lambda s: float(s["z"])}, lb.UnsupportedModel, "asks for numbers"),
        ({"a": lambda s: np.exp(s["z"])}, lb.UnsupportedModel, "asks for numbers"),
        ({"a": 3}, TypeError, "not an object of type int"),
        (lambda s: s["z"], TypeError, "by the names of their rows"),
        ({}, ValueError, "names no function"),
    ],
)
def test_functions_that_are_none_say_what_they_are(of, error, words, normal):
    with pytest.raises(error, match=words):
        normal.summary(of=of)


@pytest.mark.parametrize("make", [lb.skewed, lb.mixture, lambda fit: lb.resampled(fit, KEY, 400)])
def test_no_draws_and_compiled_draws(make, normal):
    approx = make(normal)
    assert approx.sample(KEY, (0,))["z"].shape == (0,)
    with pytest.raises(ValueError, match="cannot be compiled"):
        jax.jit(lambda key: approx.sample(key))(KEY)


@pytest.mark.usefixtures("types_unchecked")
def test_a_mixture_of_what_is_no_fit_says_so(normal):
    with pytest.raises(TypeError, match="NoneType"):
        lb.mixture(None)
    with pytest.raises(TypeError, match="SkewedApproximation"):
        lb.mixture(lb.skewed(normal))


def test_a_likelihood_has_no_draws():
    def coin(y):
        theta = numpyro.sample("theta", dist.Beta(2, 2))
        numpyro.sample("y", dist.Binomial(9, theta), obs=y)

    fit = lb.maximum_likelihood(coin, 8)
    for verb in (
        lb.skewed,
        lb.mixture,
        lambda fit: lb.resampled(fit, KEY),
        lambda fit: lb.nuts(fit, KEY),
    ):
        with pytest.raises(
            lb.UnsupportedModel, match=r"without\s+priors\s+there\s+is\s+no\s+posterior"
        ):
            verb(fit)
    with pytest.raises(lb.UnsupportedModel, match="maximum likelihood has no posterior"):
        lb.expectation(fit, lambda s: s["theta"])


def test_a_batch_is_told_to_be_taken_apart(normal):
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), normal)
    for verb in (lb.resampled, lb.nuts):
        with pytest.raises(ValueError, match="call the function on one at a time"):
            verb(batch, KEY)


def test_draws_that_belong_together_count_together():
    """Eight that have one weight are worth as many draws as there are groups."""
    logs = np.random.default_rng(0).normal(size=100)
    draws = WeightedDraws(np.zeros((800, 1)), np.repeat(logs, 8), together=8, rounding=0.0)
    weights = np.exp(logs)
    assert draws.effective_groups == pytest.approx(weights.sum() ** 2 / np.sum(weights**2))


U = 0.1 * np.random.default_rng(0).normal(size=(1000, 1))


def drawn(model, *data, log_likelihood=False, predictive=False, **kwargs):
    """What belongs to draws of one number, whatever its posterior is."""
    return to_arviz(
        ModelDensity.of(model, data, kwargs), jnp.asarray(U), KEY, log_likelihood, predictive
    )


def test_log_likelihoods_that_are_not_of_each_datum_are_refused():
    def model(y, factor=False, scale=1.0, mask=True):
        m = numpyro.sample("m", dist.Normal(0, 1))
        with numpyro.handlers.scale(scale=scale):
            numpyro.sample("y", dist.Normal(m, 1).expand([3]).mask(mask), obs=y)
        if factor:
            numpyro.factor("censored", -(m**2))

    y = jnp.array([1.0, 2.0, 3.0])
    with pytest.raises(lb.UnsupportedModel, match="factor for no datum, 'censored'"):
        drawn(model, y, log_likelihood=True, factor=True)
    with pytest.raises(lb.UnsupportedModel, match="scales the likelihood of data, 'y'"):
        drawn(model, y, log_likelihood=True, scale=100.0)
    mask = jnp.array([True, False, True])
    found = drawn(model, y, log_likelihood=True, mask=mask).log_likelihood["y"]
    np.testing.assert_array_equal(np.isnan(found)[0, :3], [[False, True, False]] * 3)


def test_a_log_jacobian_is_no_factor_of_the_model():
    """NumPyro records one for each latent site that is not on the whole real line."""

    def model(y):
        s = numpyro.sample("s", dist.HalfNormal(1))
        numpyro.sample("y", dist.Normal(0, s).expand([3]), obs=y)

    y = jnp.array([1.0, 2.0, 3.0])
    found = drawn(model, y, log_likelihood=True)
    scale = np.asarray(found.posterior["s"])[0, :, None]
    exact = stats.norm(0, scale).logpdf(y)
    np.testing.assert_allclose(np.asarray(found.log_likelihood["y"])[0], exact, rtol=1e-5)


def test_as_many_data_are_drawn_as_one_law_without_a_plate_observes():
    def model(y, pairs):
        s = numpyro.sample("s", dist.HalfNormal(1))
        numpyro.sample("y", dist.Normal(0, s), obs=y)
        numpyro.sample("pairs", dist.MultivariateNormal(jnp.zeros(2), s**2 * jnp.eye(2)), obs=pairs)

    y, pairs = jnp.array([1.0, -2.0, 3.0]), jnp.ones((4, 2))
    found = drawn(model, y, pairs, predictive=True).posterior_predictive
    assert found["y"].shape == (1, 1000, 3) and found["pairs"].shape == (1, 1000, 4, 2)
    scale = np.std(found["y"], axis=(0, 1))
    assert np.unique(scale).size == 3  # drawn each
    np.testing.assert_allclose(np.std(found["pairs"], axis=(0, 1)), scale.mean(), rtol=0.2)


def test_a_site_with_the_name_of_an_axis_and_likelihoods_of_no_data_are_refused():
    def model():
        numpyro.sample("chain", dist.Normal(0, 1))

    with pytest.raises(lb.UnsupportedModel, match="called 'chain'"):
        drawn(model)
    with pytest.raises(lb.UnsupportedModel, match="observes no data"):
        drawn(model, log_likelihood=True)


def test_deterministic_values_need_the_data():
    """Of a fit of chunks they were those of a few rows."""

    def model(x, y=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.deterministic("m", w * x.mean())
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(w * x, 1), obs=y)

    x = np.arange(20.0)
    fit = lb.laplace_of_chunks(model, lb.Chunks(x, 0.1 * x, size=5))
    with pytest.raises(lb.LaplaceError, match="holds none of them"):
        fit.summary(of="m")
    assert fit.summary(of={"w": lambda s: s["w"]}).rows()[0]["mean"] == pytest.approx(0.1, abs=0.01)
