"""``nested`` with more than eight hyperparameters, which NUTS draws: beside quadrature of one that factorises."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import laplacebook as lb
from laplacebook.beyond import nested, run_chains

KEY = jax.random.key(0)
Y = np.array([3, 5, 7, 10, 12, 15, 21, 30, 40, 60, 90])
PRIOR = (0.0, 0.5)  # of the logarithm of each scale


def counts(y):
    s = numpyro.sample("s", dist.LogNormal(*PRIOR).expand([len(y)]).to_event(1))
    with numpyro.plate("groups", len(y)):
        w = numpyro.sample("w", dist.Normal(0, s))
        numpyro.sample("y", dist.Poisson(10 * jnp.exp(w)), obs=y)


@pytest.fixture(scope="module")
def fit():
    return lb.nested(counts, Y)


@pytest.fixture(scope="module")
def truth():
    """The log evidence; and of s and of w the values, the weights of these and the moments, for each group."""
    u, w = np.linspace(-2.5, 2.5, 201), np.linspace(-5, 5, 1001)
    logs = stats.norm(*PRIOR).logpdf(u)[:, None] + stats.norm(0, np.exp(u)[:, None]).logpdf(w)
    joint = np.exp(logs + stats.poisson(10 * np.exp(w)).logpmf(Y[:, None, None]))
    mass = joint.sum(axis=(1, 2))
    evidence = np.log(mass * (u[1] - u[0]) * (w[1] - w[0])).sum()
    joint /= mass[:, None, None]
    return evidence, {"s": (np.exp(u), joint.sum(axis=2)), "w": (w, joint.sum(axis=1))}


def moments(values, weights):
    mean = weights @ values
    return mean, np.sqrt(np.sum(weights * (values - mean[:, None]) ** 2, axis=1))


def test_moments_and_quantiles_are_those_of_quadrature(fit, truth):
    """Within four standard errors, and a hundredth for the effects given their scales."""
    allowed = 4 * fit.moment_error + 0.01
    levels = [0.05, 0.5, 0.95]
    ends = fit.quantiles(levels)
    for site, (values, weights) in truth[1].items():
        mean, sd = moments(values, weights)
        assert np.all(abs(np.asarray(fit.mean[site]) - mean) < allowed * sd), site
        assert np.all(abs(np.asarray(fit.standard_deviation[site]) / sd - 1) < 1.5 * allowed), site
        below = np.cumsum(weights, axis=1) - weights / 2
        for i, one in enumerate(below):
            held = np.interp(np.asarray(ends[site])[:, i], values, one)
            np.testing.assert_allclose(held, levels, atol=allowed / 2)


def test_draws_are_of_the_joint_posterior(fit, truth):
    draws = fit.sample(KEY, (2000,))
    allowed = 4 * (fit.moment_error + 2000**-0.5)
    for site, (values, weights) in truth[1].items():
        mean, sd = moments(values, weights)
        assert np.all(abs(np.asarray(draws[site]).mean(axis=0) - mean) < allowed * sd), site
    # Far counts want large scales: both are drawn together.
    assert np.corrcoef(draws["s"][:, -1], draws["w"][:, -1])[0, 1] > 0.05


def test_the_log_evidence_is_that_of_quadrature(fit, truth):
    error = float(fit.grid.evidence.standard_error)
    assert 0.001 < error < 0.1
    assert abs(fit.log_evidence - truth[0]) < 4 * error


def test_weights_know_that_the_density_of_the_draws_is_an_estimate(fit):
    weighted = lb.resampled(fit, KEY, 1000).importance_log_evidence
    assert float(weighted.standard_error) > float(fit.grid.evidence.standard_error)


def test_a_correction_for_skewness_is_in_the_weights(fit):
    """Given the scales these counts are not exactly Gaussian."""
    assert 0 < fit.pareto_k < 0.7
    assert 0 < np.ptp(fit.grid.correction) < 0.5


def test_it_says_that_nuts_drew_them(fit):
    chains, number, _ = fit.grid.draws.shape
    told = repr(fit)
    assert f"s by NUTS, {chains} chains of {number} draws, the others given each by Laplace" in told
    assert f"r-hat up to {fit.grid.r_hat.max():.3f}" in told and "no divergences" in told
    assert f"effective sample size {fit.grid.worth:,.0f} or more" in told
    assert f"log evidence {fit.grid.evidence} (bridge sampling)" in told
    assert fit.doubt is None


def test_a_file_gives_it_back(fit, tmp_path):
    fit.save(tmp_path / "fit.npz")
    loaded = lb.load(tmp_path / "fit.npz", counts, Y)
    assert repr(loaded) == repr(fit)
    np.testing.assert_array_equal(loaded.sample(KEY, (3,))["w"], fit.sample(KEY, (3,))["w"])
    with pytest.raises(lb.LaplaceError, match="another model or of other data"):
        lb.load(tmp_path / "fit.npz", counts, Y + 1)


def test_a_diagnosis_looks_at_the_chains_too(fit):
    found = lb.diagnose(fit, jax.random.key(1), starts=2)
    assert found.level != "bad", found
    assert "s by NUTS, 8 chains of" in repr(found)


def test_divergences_make_it_doubtful(fit):
    diverged = replace(fit, grid=fit.grid._replace(divergences=3))
    number = diverged.grid.heights.size
    assert f"doubtful: 3 of {number:,} draws of NUTS have diverged" in repr(diverged)
    found = lb.diagnose(diverged, KEY, 500, starts=1)
    told = [one.words for one in found._findings]
    assert any("draws of NUTS worth" in one and "of which 3 diverged" in one for one in told)
    assert found.level != "good"


def test_an_evidence_that_is_not_known_is_no_number(fit):
    unknown = replace(fit, grid=fit.grid._replace(log_integral=np.nan, its_error=np.inf))
    with pytest.raises(lb.NotConverged, match="bridge sampling (.|\n)*did not settle"):
        float(unknown.log_evidence)
    assert "log evidence not known: bridge sampling did not settle" in repr(unknown)


def test_it_answers_what_the_family_does(fit, truth):
    mean, _ = moments(*truth[1]["w"])
    ratio = fit.summary(of={"ratio": lambda sites: sites["w"][6] - sites["w"][0]}).rows()[0]
    assert ratio["mean"] == pytest.approx(mean[6] - mean[0], abs=0.1)
    with pytest.raises(ValueError, match="lies beyond the draws"):
        fit.quantiles([1e-6])


def test_marginals_are_densities(fit, truth):
    values, weights = truth[1]["s"]
    assert [one.name for one in fit.marginals] == [f"s[{i}]" for i in range(11)]
    for one, exact in zip(fit.marginals, weights, strict=True):
        assert np.trapezoid(one.density, one.u) == pytest.approx(1, abs=0.02)
        mean = np.trapezoid(one.u * one.density, one.u)
        assert mean == pytest.approx(exact @ np.log(values), abs=0.1)


@pytest.fixture
def few_rounds(monkeypatch):
    monkeypatch.setattr(run_chains, "_ROUNDS", 1)
    monkeypatch.setattr(run_chains, "_ROUND", 12)
    monkeypatch.setattr(run_chains, "_SETTLING", 10)


def test_too_few_draws_are_refused(few_rounds, monkeypatch):
    """With the line to go on with; the same call draws the same."""
    runs = []
    run = nested.run_chains
    monkeypatch.setattr(nested, "run_chains", lambda *args: runs.append(run(*args)) or runs[-1])
    for _ in range(2):
        with pytest.raises(lb.NotConverged) as refused:
            lb.nested(counts, Y)
    np.testing.assert_array_equal(*(one.draws for one in runs))
    said = " ".join(str(refused.value).split())
    assert "NUTS on the posterior of 's'" in said and "of 8 chains of 12 draws r-hat of s[" in said
    assert "sample everything with NumPyro's NUTS." in said


FLAT = dist.ImproperUniform(dist.constraints.real, (), ())


def without_a_fall(y):
    log_s = numpyro.sample("log_s", dist.ImproperUniform(dist.constraints.real, (), (len(y),)))
    w = numpyro.sample("w", dist.Normal(0, jnp.exp(log_s)).to_event(1))
    numpyro.sample("y", dist.Normal(w, 1).to_event(1), obs=y)


def effect_in_part(y):
    """Where the first of them is below -1 nothing says what w is."""
    h = numpyro.sample("h", dist.Normal(0, 1).expand([11]).to_event(1))
    w = numpyro.sample("w", FLAT)
    numpyro.factor("w has a prior", jnp.where(h[0] > -1, -(w**2) / 2, 0))
    numpyro.sample("y", dist.Normal(h, 1).to_event(1), obs=y)


def test_a_posterior_that_does_not_fall_is_refused():
    with pytest.raises(lb.NotConverged, match="does not fall"):
        lb.nested(without_a_fall, 5 * np.ones(11))


def test_where_the_effects_have_no_mode_it_says_so(few_rounds):
    with pytest.raises(lb.NotPositiveDefinite, match="w cannot be integrated out where h = "):
        lb.nested(effect_in_part, np.zeros(11), over="h")
