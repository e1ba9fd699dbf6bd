"""``nested`` against exact posteriors of normal hierarchies; what it takes and what it refuses."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import laplacebook as lb
from tests.beyond.exact import LEVELS, Exact, exact, groups

RNG = np.random.default_rng(0)
Y = RNG.normal(size=(6, 1)) + RNG.normal(size=(6, 3))


def effects(y, mu, tau, sigma):
    with numpyro.plate("groups", y.shape[0], dim=-2):
        z = numpyro.sample("z", dist.Normal(mu, tau))
        with numpyro.plate("rows", y.shape[1]):
            numpyro.sample("y", dist.Normal(z, sigma), obs=y)


def known_noise(y, tau_prior):
    mu = numpyro.sample("mu", dist.Normal(0, 3))
    effects(y, mu, numpyro.sample("tau", tau_prior), 1.0)


def not_centred(y, unit):
    mu = numpyro.sample("mu", dist.Normal(0, 3 * unit))
    tau = numpyro.sample("tau", dist.HalfNormal(2 * unit))
    with numpyro.plate("groups", y.shape[0], dim=-2):
        z = numpyro.sample("z", dist.Normal(0, 1))
        with numpyro.plate("rows", y.shape[1]):
            numpyro.sample("y", dist.Normal(mu + tau * z, unit), obs=y)


def two_scales(y, mu_sd):
    mu = numpyro.sample("mu", dist.Normal(0, mu_sd))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(1))
    effects(y, mu, numpyro.sample("tau", dist.HalfCauchy(1)), sigma)


def flat(by_site, fit):
    """Hyperparameters first, as in the exact answers; a leading axis is kept."""
    names = [*fit.over, *(s.name for s in fit.density.sites if s.name not in fit.over)]
    leading = np.ndim(by_site[names[0]]) - np.ndim(fit.mean[names[0]])
    shape = np.shape(by_site[names[0]])[:leading]
    return np.concatenate([np.reshape(by_site[name], (*shape, -1)) for name in names], axis=-1)


def agree(fit, truth, evidence=2e-3, mean=0.02, sd=0.02, quantile=0.06):
    assert fit.log_evidence == pytest.approx(truth.log_evidence, abs=evidence)
    found = [flat(fit.mean, fit), flat(fit.standard_deviation, fit)]
    quantiles = flat(fit.quantiles(LEVELS), fit)
    off, wider = abs(found[0] - truth.mean) / truth.sd, abs(np.log(found[1] / truth.sd))
    assert np.max(off) < mean
    assert np.max(wider) < sd
    assert max(np.max(off[-6:]), np.max(wider[-6:])) < 3e-3
    off = abs(quantiles - truth.quantiles) / truth.sd
    assert np.max(off) < quantile
    assert np.max(off[:, -6:]) < 0.01  # of effects: no draw tells them


HALF = stats.halfnorm(scale=2)
PRIORS = {
    "inverse gamma": (dist.InverseGamma(2, 1), stats.invgamma(2), [-4, 9]),
    "long log-normal": (dist.LogNormal(0, 3), stats.lognorm(3), [-16, 8]),
}


def test_a_hierarchy_that_is_not_centred_with_a_known_noise_in_all_units():
    truth = exact(Y, [np.linspace(-12, 3, 601)], HALF.logpdf, groups(Y.shape, 3, False))
    for unit in np.array([1, 1e-6, 1e6]):
        fit = lb.nested(not_centred, Y * unit, unit)
        assert fit.over == ("tau",)
        assert fit.pareto_k == -np.inf
        units = np.r_[unit, unit, np.ones(Y.shape[0])]  # of tau, mu and the effects
        scaled = [units * part for part in (truth.mean, truth.sd, truth.quantiles)]
        agree(fit, Exact(truth.log_evidence - Y.size * np.log(unit), *scaled))


@pytest.mark.parametrize(("unit", "sd"), [(1.0, 0.02), (1e3, 0.1)])
def test_a_hierarchy_with_an_unknown_noise(unit, sd):
    """Of a thousand the start is as many times too small: there the log marginal falls by millions in a unit."""
    y, log_unit, linear = unit * Y, np.log(unit), groups(Y.shape, 3 * unit)
    fit = lb.nested(two_scales, y, np.float64(3 * unit))
    assert fit.over == ("sigma", "tau")
    axes = [np.linspace(-1.5, 1.5, 61) + log_unit, np.linspace(-16, 16, 401)]
    log_prior = lambda *scales: stats.halfcauchy.logpdf(scales).sum(axis=0)  # noqa: E731
    truth = exact(y, axes, log_prior, lambda sigma, tau: linear(tau, sigma))
    agree(fit, truth, sd=sd)  # a tail is cut off at a thousandth


@pytest.mark.parametrize("name", PRIORS)
def test_priors_of_a_scale(name):
    prior, law, ends = PRIORS[name]
    fit = lb.nested(known_noise, Y, prior)
    axis = np.linspace(*ends, 1001)
    agree(fit, exact(Y, [axis], law.logpdf, groups(Y.shape, 3)))


def level(y, unit):
    mu = numpyro.sample("mu", dist.Normal(0, unit))
    with numpyro.plate("groups", 5):
        z = numpyro.sample("z", dist.Normal(mu, unit))
        numpyro.sample("y", dist.Normal(z, unit), obs=y)


def test_units_of_a_level_do_not_matter():
    """Differences on the scale of one would read rounding where the level is in the thousands."""
    y = np.array([2.0, -0.5, 0.3, 1.0, 3.0])
    law = stats.multivariate_normal(np.zeros(5), 1 + 2 * np.eye(5))
    for unit in np.array([1e-4, 1e7]):
        fit = lb.nested(level, unit * y, unit, over="mu")
        assert fit.log_evidence == pytest.approx(law.logpdf(y) - 5 * np.log(unit), abs=1e-9)
        assert fit.mean["mu"] / unit == pytest.approx(y.sum() / 7, abs=1e-9)
        assert fit.standard_deviation["mu"] / unit == pytest.approx(np.sqrt(2 / 7), abs=1e-9)


def test_effects_begin_beside_a_logit_of_zero():
    """There NumPyro's slope is wrong, and every group without a success would stay where it is."""

    def tosses(k, start):
        sigma = numpyro.sample("sigma", dist.HalfNormal(2))
        with numpyro.plate("groups", len(k)):
            b = numpyro.sample("b", dist.Normal(0, sigma))
            numpyro.sample("k", dist.Binomial(2, logits=b + start), obs=k)

    k = np.repeat([0, 1, 2], 6)
    at_zero, beside = (lb.nested(tosses, k, start) for start in np.array([0.0, 1e-6]))
    assert at_zero.log_evidence == pytest.approx(beside.log_evidence, abs=1e-4)
    sigma, x = np.linspace(0.01, 8, 400), np.linspace(-8, 8, 801)
    heads = stats.binom(2, 1 / (1 + np.exp(-sigma[:, None, None] * x))).pmf(np.arange(3)[:, None])
    weights = np.prod(heads @ stats.norm.pdf(x), axis=1) ** 6 * stats.norm.pdf(sigma / 2)
    assert at_zero.mean["sigma"] == pytest.approx(np.average(sigma, weights=weights), abs=0.1)


def apart(y):
    """Scales of one effect each, which do not know of one another: long tails in every direction."""
    s = numpyro.sample("s", dist.HalfNormal(1).expand([y.size]).to_event(1))
    w = numpyro.sample("w", dist.Normal(0, s).to_event(1))
    numpyro.sample("y", dist.Normal(w, 1).to_event(1), obs=y)


def test_three_hyperparameters_against_one_integral_each():
    """A deeper grid has their tails; of more :mod:`test_interpolated` has the same model."""
    y = np.linspace(0.5, 3, 3)
    approx = lb.nested(apart, y)
    s = np.linspace(1e-4, 8, 4000)
    density = stats.norm(0, np.sqrt(1 + s**2)).pdf(y[:, None]) * 2 * stats.norm.pdf(s)
    mass = np.trapezoid(density, s)
    mean = np.trapezoid(s * density, s) / mass
    deviation = np.sqrt(np.trapezoid(s**2 * density, s) / mass - mean**2)
    off = abs(approx.log_evidence - np.log(mass).sum())
    assert off < max(2 * approx.grid.error, 1e-3) and approx.grid.error < 0.05
    assert np.all(abs(approx.mean["s"] - mean) < 0.05 * deviation)
    np.testing.assert_allclose(approx.standard_deviation["s"], deviation, rtol=0.05)
    assert approx.doubt is None


def test_tails_that_are_cut_are_doubted(monkeypatch):
    """As where factors of so many effects would not fit into memory at more points."""
    monkeypatch.setattr("laplacebook.beyond.nested.MOST", 2000)
    monkeypatch.setattr("laplacebook.beyond.nested.COARSE", {})
    approx = lb.nested(apart, np.linspace(0.5, 3, 4))
    assert len(approx.grid.place) < 2000
    assert approx.doubt.startswith("about 5 % of the posterior of s lies beyond the grid of")
    assert "standard deviations may be too small" in approx.doubt
