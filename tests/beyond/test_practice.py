"""The models of practice: data as their sources have them, and references that are of these models."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels.api as sm
from jax.flatten_util import ravel_pytree
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import init_to_uniform
from numpyro.infer.util import log_density
from scipy import stats

from tests.beyond import practice
from tests.beyond.practice import MODELS
from tests.beyond.reference import FILE

RESULTS = json.loads(FILE.read_text())
#: those that are written out, and one whose sites NumPyro standardises
REWRITTEN = [
    "autoregression",
    "icar",
    "gp_classification",
    "correlated_slopes",
    "horseshoe",
    "eight_schools",
]


def test_schools():
    """Gelman et al., Bayesian Data Analysis, section 5.5: the pooled effect is 7.7, with variance 16.6."""
    y, error = practice.SCHOOLS
    weight = error**-2
    assert (weight * y).sum() / weight.sum() == pytest.approx(7.7, abs=0.05)
    assert 1 / weight.sum() == pytest.approx(16.6, abs=0.05)


def test_seeds():
    """Logistic regression as in Breslow and Clayton (1993), JASA 88, 9-25, and germinated of each kind."""
    r, n, kind, root = practice.SEEDS
    x = np.stack([np.ones(21), kind, root, kind * root], 1)
    assert [r[:5].sum(), r[5:11].sum(), r[11:16].sum(), r[16:].sum()] == [99, 201, 49, 75]
    assert [n[:5].sum(), n[5:11].sum(), n[11:16].sum(), n[16:].sum()] == [272, 295, 123, 141]
    fit = sm.GLM(np.stack([r, n - r], 1), x, family=sm.families.Binomial()).fit()
    np.testing.assert_allclose(fit.params, [-0.558, 0.146, 1.318, -0.778], atol=6e-4)
    np.testing.assert_allclose(fit.bse, [0.126, 0.223, 0.177, 0.306], atol=6e-4)
    assert fit.deviance == pytest.approx(33.28, abs=6e-3)


def test_pumps():
    """Failures per thousand hours, as printed with Pumps of BUGS."""
    failures, hours = practice.PUMPS
    rates = [0.053, 0.064, 0.080, 0.111, 0.573, 0.605, 0.952, 0.952, 1.905, 2.095]
    np.testing.assert_allclose(failures / hours, rates, atol=6e-4)
    assert (failures.sum(), hours.sum()) == (75, pytest.approx(350.24))


def test_rats():
    """The population's line, by least squares; Rats of BUGS has 106.6 at birth and 6.186 a day."""
    day, weight = practice.RATS
    assert weight.shape == (30, 5)
    assert (weight.sum(), (weight**2).sum()) == (36398, 9433080)
    slope, at_birth = np.polyfit(day, weight.mean(0), 1)
    assert slope == pytest.approx(6.186, abs=1e-3)
    assert at_birth == pytest.approx(106.6, abs=0.05)
    # The posterior mean of Rats of BUGS, whose priors are vaguer: 6.09.
    assert RESULTS["rats"]["sites"]["sigma"]["mean"] == pytest.approx(6.09, abs=0.03)


def test_radon():
    """Against Gelman and Hill (2007), section 12.6, by lmer."""
    printed = {"intercept": 1.47, "of_floor": -0.67, "of_uranium": 0.72, "sigma": 0.76}
    for name, value in printed.items():
        assert RESULTS["radon"]["sites"][name]["mean"] == pytest.approx(value, abs=0.01)


def test_epil():
    """The Poisson regression of Venables and Ripley, Modern Applied Statistics with S, section 7.5."""
    treated, base, age, y = MODELS["epil"].args
    log_base, log_age = np.log(base / 4), np.log(age)
    log_base, log_age = log_base - log_base.mean(), log_age - log_age.mean()
    columns = [np.ones(59), log_base, treated, log_age, log_base * treated]
    x = np.column_stack([np.repeat(columns, 4, axis=1).T, np.tile([0, 0, 0, 1], 59)])
    fit = sm.GLM(y.ravel(), x, family=sm.families.Poisson()).fit()
    printed = [1.89791, 0.94862, -0.34588, 0.88760, 0.56154, -0.15977]
    np.testing.assert_allclose(fit.params, printed, atol=6e-6)
    assert fit.deviance == pytest.approx(869.07, abs=6e-3)


def test_dyes():
    """The analysis of variance of Davies (1947), also in Box and Tiao (1973), table 5.1.2."""
    y = practice.DYES
    of_batch = y.mean(1, keepdims=True)
    assert 5 * ((of_batch - y.mean()) ** 2).sum() == pytest.approx(56357.5)
    assert ((y - of_batch) ** 2).sum() == pytest.approx(58830)


def test_scotland():
    """Poisson regression as in Breslow and Clayton (1993), JASA 88, 9-25; and a map of one piece."""
    observed, expected, outdoors, i, j = MODELS["icar"].args
    x = np.stack([np.ones(56), outdoors / 10], 1)
    poisson = sm.GLM(observed, x, offset=np.log(expected), family=sm.families.Poisson()).fit()
    np.testing.assert_allclose(poisson.params, [-0.542, 0.737], atol=6e-4)
    assert poisson.deviance == pytest.approx(238.62, abs=6e-3)
    assert (observed.sum(), len(i)) == (536, 132)
    edges = np.eye(56)[i] - np.eye(56)[j]
    assert np.linalg.matrix_rank(edges.T @ edges) == 55
    with (FILE.parent / "data" / "scotland.csv").open() as file:
        listed = [row.strip().split(",")[-1].split() for row in file][1:]
    both = {(a, int(b) - 1) for a, row in enumerate(listed) for b in row}
    assert both == {(b, a) for a, b in both}
    assert len(both) == 264


SIMULATED = {
    "autoregression": ([100], 433),
    "gp_classification": ([50, 50], 279.325242),
    "correlated_slopes": ([300, 300, 300], 2966.971884),
    "horseshoe": ([600, 60], -20.996979),
}


@pytest.mark.parametrize("name", SIMULATED)
def test_simulated_data_are_those_of_the_references(name):
    """A generator of random numbers may change between versions of NumPy."""
    sizes, total = SIMULATED[name]
    args = MODELS[name].args
    assert [x.size for x in args] == sizes
    assert sum(x.sum() for x in args) == pytest.approx(total, abs=1e-4)


def values_of(model, args, key):
    """The latent and the deterministic sites, somewhere."""
    started = substitute(seed(model, key), substitute_fn=init_to_uniform)
    found = trace(started).get_trace(*args).values()
    latent = [x for x in found if x["type"] == "sample" and not x["is_observed"]]
    other = [x for x in found if x["type"] == "deterministic"]
    return [{x["name"]: x["value"] for x in sites} for sites in (latent, other)]


def log_ratio(case, key):
    """Of the density for NUTS to that of the model, at one place and in the same coordinates."""
    own = values_of(case.model, case.args, key)[0]
    latent, other = values_of(case.for_nuts, case.args, key)
    moved = [name for name in own if name in other]
    vector, unravel = ravel_pytree({name: x for name, x in latent.items() if name not in own})

    def effects(vector):
        data = {**latent, **unravel(vector)}
        found = trace(substitute(case.for_nuts, data)).get_trace(*case.args)
        return ravel_pytree([found[name]["value"] for name in moved])[0]

    there = {name: {**latent, **other}[name] for name in own}
    log_det = jnp.linalg.slogdet(jax.jacfwd(effects)(vector))[1]
    of_model = log_density(case.model, case.args, {}, there)[0]
    return log_density(case.for_nuts, case.args, {}, latent)[0] - log_det - of_model


@pytest.mark.parametrize("name", REWRITTEN)
def test_the_form_for_nuts_is_the_same_law(name):
    """Up to a constant, which an improper prior may bring."""
    of_key = jax.jit(partial(log_ratio, MODELS[name]))
    one, other = (float(of_key(jax.random.key(number))) for number in range(2))
    assert one == pytest.approx(other, abs=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_references_are_good(name):
    case, result = MODELS[name], RESULTS[name]
    of_key = partial(values_of, case.model, case.args)
    latent, other = jax.eval_shape(of_key, jax.random.key(0))
    assert {key: np.shape(site["mean"]) for key, site in result["sites"].items()} == {
        key: x.shape for key, x in {**latent, **other}.items()
    }
    assert result["r_hat"] < 1.01
    assert result["divergences"] <= 1e-4 * result["draws"]
    for site in case.over:
        known = [x for x in np.ravel(result["sites"][site]["ess"]) if x is not None]
        assert min(known) > 4000


def on_grid(name, site, values, log_density):
    """A site of the references against its exact posterior, on a grid that is even in its logarithm."""
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    found = RESULTS[name]["sites"][site]
    mean = (weights * values).sum()
    sd = np.sqrt((weights * (values - mean) ** 2).sum())
    assert found["mean"] == pytest.approx(mean, abs=5 * found["error"])
    assert found["sd"] == pytest.approx(sd, rel=0.02)
    for level in (0.05, 0.95):
        below = weights[values < found["quantiles"][str(level)]].sum()
        assert below == pytest.approx(level, abs=5 * np.sqrt(0.05 / found["ess_tail"]) + 1e-3)


def test_the_schools_are_the_exact_ones():
    y, error = practice.SCHOOLS
    u = np.linspace(-12, 7, 20_001)
    tau = np.exp(u)
    variance = error**2 + tau[:, None] ** 2
    precision, linear = (1 / variance).sum(1) + 1 / 25, (y / variance).sum(1)
    value = (linear**2 / precision - (y**2 / variance).sum(1) - np.log(variance).sum(1)) / 2
    value += stats.halfcauchy(0, 5).logpdf(tau) + u - np.log(precision) / 2
    on_grid("eight_schools", "tau", tau, value)


def test_the_schools_are_those_of_posteriordb():
    """Means of eight_schools-eight_schools_noncentered, each with an error of 0.03 to 0.06."""
    sites = RESULTS["eight_schools"]["sites"]
    theta = [6.1505, 4.9396, 3.9059, 4.7960, 3.6144, 4.0511, 6.3172, 4.8840]
    np.testing.assert_allclose(sites["theta"]["mean"], theta, atol=0.15)
    assert sites["mu"]["mean"] == pytest.approx(4.4105, abs=0.1)
    assert sites["tau"]["mean"] == pytest.approx(3.6021, abs=0.1)


def test_the_pumps_are_the_exact_ones():
    x, t = practice.PUMPS
    u, v = np.meshgrid(np.linspace(-5, 3, 801), np.linspace(-9, 4, 801), indexing="ij")
    alpha, beta = np.exp(u), np.exp(v)
    value = stats.expon.logpdf(alpha) + stats.gamma(0.1).logpdf(beta) + u + v
    for failures, hours in zip(x, t, strict=True):
        value += stats.nbinom(alpha, beta / (beta + hours)).logpmf(failures)
    on_grid("pumps", "alpha", alpha, value)
    on_grid("pumps", "beta", beta, value)


def test_the_dyes_are_the_exact_ones():
    y = practice.DYES
    u, v = np.meshgrid(np.linspace(-9, 7, 1601), np.linspace(2, 6, 801), indexing="ij")
    batch_sd, sigma = np.exp(u), np.exp(v)
    of_mean = sigma**2 + 5 * batch_sd**2
    of_all = of_mean + 30 * 100**2
    value = stats.halfnorm(0, 100).logpdf(batch_sd) + stats.halfnorm(0, 100).logpdf(sigma) + u + v
    value -= (58830 / sigma**2 + 24 * np.log(sigma**2)) / 2
    value -= (56357.5 / of_mean + 5 * np.log(of_mean)) / 2
    value -= (30 * (y.mean() - 1500) ** 2 / of_all + np.log(of_all)) / 2
    on_grid("dyes", "batch_sd", batch_sd, value)
    on_grid("dyes", "sigma", sigma, value)
