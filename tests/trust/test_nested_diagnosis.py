"""What ``diagnose`` says of a nested approximation: of right ones, of wrong ones, and by which numbers."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import laplacebook as lb
from laplacebook.base.estimate import Estimate
from laplacebook.base.weights import pareto_k
from laplacebook.beyond.known_points import between_nodes
from laplacebook.beyond.weighted_draws import weighted_draws
from tests.beyond.practice import MODELS
from tests.models import single_precision

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def seeds():
    """Of counts: a short model of practice."""
    return lb.nested(MODELS["seeds"].model, *MODELS["seeds"].args)


@pytest.fixture
def counts(seeds):
    """The same fit without the verdict of another test."""
    return replace(seeds)


def with_nodes(fit, **parts):
    """The same with other numbers at the points of its grid, as a bug might leave them."""
    nodes = fit.grid.conditional._replace(**parts)
    skewed = replace(fit.skewed, nodes=nodes)
    return replace(fit, grid=fit.grid._replace(conditional=nodes), skewed=skewed)


def tilted(fit, sd):
    """The log marginal of the first hyperparameter with a slope that moves its mean by about so many sds."""
    nodes = fit.grid.conditional
    weights = np.exp(nodes.log_marginal - nodes.log_marginal.max())
    h = nodes.hyper[:, 0]
    mean = np.average(h, weights=weights)
    spread = np.sqrt(np.average((h - mean) ** 2, weights=weights))
    return with_nodes(fit, log_marginal=nodes.log_marginal + sd * (h - mean) / spread)


def narrowed(fit, factor):
    return with_nodes(fit, root=factor * fit.grid.conditional.root)


def moved(fit, sd):
    nodes = fit.grid.conditional
    return with_nodes(fit, mode=nodes.mode + sd * nodes.deviations)


#: what is done to a fit, and what is to be said of it
BROKEN = {
    "a slope": (lambda fit: tilted(fit, 0.8), "bad", "the mean of"),
    "a small slope": (lambda fit: tilted(fit, 0.2), "usable", "the mean of"),
    "half of the variance": (lambda fit: narrowed(fit, 0.5**0.5), "bad", "the sd of"),
    "a narrower conditional": (lambda fit: narrowed(fit, 0.85), "usable", "the sd of"),
    "modes beside the mode": (lambda fit: moved(fit, 0.6), "bad", "the mean of"),
    "the evidence": (
        lambda fit: with_nodes(fit, log_marginal=fit.grid.conditional.log_marginal + 0.8),
        "bad",
        "the log evidence is off by",
    ),
}


@pytest.mark.parametrize(
    ("case", "of"), [*((case, "counts") for case in BROKEN), ("half of the variance", "gaussian")]
)
def test_what_is_wrong_is_not_good(case, of, request):
    """Counts; and effects that are exactly Gaussian, of which nothing is corrected."""
    break_it, level, words = BROKEN[case]
    broken = break_it(request.getfixturevalue(of))
    found = lb.diagnose(broken, KEY)
    assert found.level == level, found
    assert words in found.verdict
    assert (broken.doubt is not None) == (level == "bad")


def groups(y, n, scale):
    mu = numpyro.sample("mu", dist.Normal(0, 2))
    tau = numpyro.sample("tau", dist.HalfNormal(scale))
    with numpyro.plate("groups", len(y)):
        b = numpyro.sample("b", dist.Normal(0, tau))
        numpyro.sample("y", dist.Binomial(n, logits=mu + b), obs=y)


@pytest.mark.parametrize(("n", "scale"), [(1, np.float64(1)), (2, np.float64(3))])
def test_groups_of_few_binary_data_are_not_good(n, scale):
    """There Laplace's method of the effects is off, and what was corrected of it is not enough."""
    rng = np.random.default_rng(0)
    y = rng.binomial(n, 1 / (1 + np.exp(-2 * rng.normal(size=40))))
    assert lb.diagnose(lb.nested(groups, y, np.full(40, n), scale), KEY).level != "good"


def test_a_bad_verdict_travels_with_the_fit(counts):
    fit = tilted(counts, 1.2)
    assert fit.doubt is None
    found = lb.diagnose(fit, KEY)
    assert fit.doubt == f"diagnosed {found.verdict}"
    assert f"doubtful: diagnosed bad: {found.verdict[5:20]}" in repr(fit)
    assert any("doubtful" in line for line in lb.compare({"a": fit}).footer)
    assert lb.diagnose(fit, KEY).verdict == found.verdict  # a verdict is no reason for itself
    counts.remember("bad: by other draws")
    assert lb.diagnose(counts, KEY).level == "good"
    assert counts.doubt is None


def unchecked(found):
    """The same diagnosis, if the weights of its draws were of no use."""
    return replace(found, pareto_k=0.9, importance_log_evidence=Estimate(0.0, np.inf))


def test_draws_that_cannot_check_say_so(counts):
    """Then only what the fit knows itself is left; what was found of it before is no reason."""
    fit = tilted(counts, 1.2)
    found = lb.diagnose(fit, KEY)
    assert found.level == "bad"
    assert fit.doubt is not None
    useless = unchecked(found)
    assert useless.level == "usable"
    assert "cannot check" in useless.verdict
    assert "mean of" not in useless.verdict
    assert "not to be relied on" in repr(useless)


def test_the_doubt_of_the_fit_counts(counts):
    """Of weights of the effects that have no mean: usable where draws find nothing wrong, else bad."""
    fit = counts
    heavy = 3 * stats.expon.ppf((np.arange(4096) + 0.5) / 4096)
    fit = replace(fit, skewed=replace(fit.skewed, log_ratios=heavy))
    assert "far from Gaussian" in fit.doubt
    found = lb.diagnose(fit, KEY)
    for one, level in ((found, "usable"), (unchecked(found), "bad")):
        assert one.level == level
        assert "far from Gaussian" in one.verdict
    assert "far from Gaussian" in fit.doubt  # only a good verdict takes it away


def test_the_error_of_the_grid_counts(counts):
    found = lb.diagnose(counts, KEY)
    grid = found.approx.grid._replace(place=2 * found.approx.grid.place)
    coarse = replace(found, approx=replace(found.approx, grid=grid))
    assert grid.error > 0.1
    assert coarse.level != "good"
    assert "error of the grid" in coarse.verdict


def effects(y):
    tau = numpyro.sample("tau", dist.HalfNormal(2))
    with numpyro.plate("groups", y.size):
        z = numpyro.sample("z", dist.Normal(0, tau))
        numpyro.sample("y", dist.Normal(z, 1), obs=y)


@pytest.fixture(scope="module")
def gaussian():
    """A fit of which the effects are exactly Gaussian."""
    return lb.nested(effects, np.array([2.0, -1.0, 0.5, -3.0]))


def test_weighted_draws_have_the_evidence_and_the_moments_of_an_exact_posterior(gaussian):
    """Of a normal hierarchy; and of its Gaussian effects the mean weight is that of each draw alone."""
    y = np.array([2.0, -1.0, 0.5, -3.0])
    tau = np.exp(u := np.linspace(-15, 3, 2001))
    logs = stats.norm(0, np.sqrt(1 + tau**2)).logpdf(y[:, None]).sum(axis=0)
    logs += stats.halfnorm(scale=2).logpdf(tau) + u
    evidence = np.log(np.exp(logs).sum() * (u[1] - u[0]))
    u, log_weights, *_ = weighted_draws(gaussian, KEY, 8000)
    assert u.shape == (8000, 5)
    assert np.log(np.mean(np.exp(log_weights))) == pytest.approx(evidence, abs=5e-3)
    assert np.std(log_weights) < 0.1
    given = y[0] * tau**2 / (1 + tau**2)
    mean = np.average(given, weights=np.exp(logs))
    assert np.average(u[:, 1], weights=np.exp(log_weights)) == pytest.approx(mean, abs=0.03)


def test_even_weights_of_exactly_gaussian_effects_have_no_tail(gaussian):
    """Eight draws have one weight, and what is left is the spline: a Pareto law of these has any k-hat, such as 4.4."""
    for number in range(3):
        found = lb.diagnose(gaussian, jax.random.key(number), starts=1)
        assert found.level == "good" and found.pareto_k == -np.inf, found
        assert found.importance_log_evidence.standard_error < 0.001
    again = lb.resampled(gaussian, KEY)
    assert lb.diagnose(again, KEY, starts=1).level == "good"
    np.testing.assert_allclose(again.mean["z"], gaussian.mean["z"], atol=0.05)


def test_uneven_weights_have_a_tail_and_equal_ones_of_a_group_count_once(gaussian):
    key_of_tail, key_of_draws = jax.random.split(KEY)
    heavy = np.asarray(jax.random.pareto(key_of_tail, 1.0, (500,)))
    draws = weighted_draws(gaussian, key_of_draws, 4000)
    assert draws.bounded and draws.pareto_k == -np.inf
    uneven = draws._replace(log_weights=np.repeat(np.log(heavy), 8))
    assert uneven.pareto_k == pytest.approx(pareto_k(np.log(heavy)))
    assert uneven.pareto_k > 0.7
    np.testing.assert_allclose(np.exp(draws.smoothed).sum(), 1)


def test_the_skew_marginals_have_the_density_that_is_said(counts):
    """The mean of the ratio of two densities, over draws from the one below, is one."""
    fit = counts
    assert fit.skewed.image is not None
    nodes = fit.grid.conditional
    last = len(nodes.mode) - 1
    index = np.full(40_000, last)
    normal = np.random.default_rng(0).standard_normal((len(index), nodes.mode.shape[1]))
    of_effects = fit.effects.places[1]
    plain = replace(fit.skewed, image=None)
    offsets = [
        one.draws_given(nodes, index, normal)[:, of_effects] - nodes.mode[last]
        for one in (plain, fit.skewed)
    ]
    gaussian, skewed = fit.skewed.log_densities(nodes, index, offsets[1])
    assert np.mean(np.exp(gaussian - skewed)) == pytest.approx(1, abs=0.02)
    assert np.std(gaussian - skewed) > 0.1
    gaussian, skewed = fit.skewed.log_densities(nodes, index, offsets[0])
    assert np.mean(np.exp(skewed - gaussian)) == pytest.approx(1, abs=0.02)
    exactly = stats.multivariate_normal(cov=nodes.root[last].T @ nodes.root[last])
    np.testing.assert_allclose(gaussian[:9], exactly.logpdf(offsets[0][:9]), rtol=1e-9)


def test_the_density_of_the_hyperparameters_is_that_of_their_points(gaussian):
    """Where it is no approximation but for the spline: the log marginal less the log evidence."""
    fit = gaussian
    points, _, log_density = (part[::80] for part in fit._points)
    given = between_nodes(fit.effects, fit.grid, fit.start, points)
    off = log_density - (given.log_marginal - fit.log_evidence)
    assert np.std(given.log_marginal) > 0.5
    assert np.quantile(abs(off), 0.9) < 0.02


def test_it_prints_and_lists_every_number(counts):
    found = lb.diagnose(counts, KEY, 1000)
    table = found.sites
    assert table["site"] == counts.summary()["site"]
    assert all(error > 0 for error in table["its error"] + table["error of that"])
    assert repr(found).startswith("good: Pareto k-hat")
    assert "nested Laplace approximation of seeds, D = 26, sigma on a grid of" in repr(found)
    assert "<table" in found._repr_html_()
    assert found.num_samples == 1000
    assert 900 < found.effective_sample_size == 1000 * found.effective_fraction


def test_constants_are_left_out_and_unknown_moments_dashes():
    """Of a correlation matrix the diagonal is one to rounding: it is computed from a factor."""

    def model(y):
        numpyro.sample("unseen", dist.HalfCauchy(1))
        numpyro.sample("correlation", dist.LKJ(2, 2))
        with numpyro.plate("groups", y.size):
            z = numpyro.sample("z", dist.Normal(0, 1))
            numpyro.sample("y", dist.Normal(z, 1), obs=y)

    over = ["unseen", "correlation"]
    found = lb.diagnose(lb.nested(model, jnp.array([1.0, -2.0, 3.0]), over=over), KEY)
    rows = {row["site"]: row for row in found.sites.rows()}
    of_matrix = ["correlation[0, 1]", "correlation[1, 0]"]
    assert list(rows) == ["unseen", *of_matrix, "z[0]", "z[1]", "z[2]"]
    assert rows["unseen"]["mean off"] is None
    assert rows["unseen"]["sd off"] is None
    assert abs(rows["z[0]"]["mean off"]) < 0.1
    assert found.level == "good", found


def test_in_single_precision():
    """About their mean effects lose digits where their scale is small, and chance decides k-hat."""
    case = MODELS["eight_schools"]
    with single_precision():
        fit = lb.nested(case.for_nuts, *(x.astype("float32") for x in case.args))
        found = lb.diagnose(fit, KEY)
    assert found.level == "good", found


@pytest.mark.parametrize(("number", "words"), [(99, "100 or more"), (1.5, "whole number")])
@pytest.mark.usefixtures("types_unchecked")
def test_refused(counts, number, words):
    with pytest.raises(ValueError, match=words):
        lb.diagnose(counts, KEY, number)
