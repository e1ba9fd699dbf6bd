"""What a ``NestedApproximation`` gives, and the forms of models and of data that ``nested`` takes."""

import copy
import pickle
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.handlers import mask
from scipy import stats

import laplacebook as lb
from laplacebook.beyond.along_lines import nearest
from tests.beyond.exact import LEVELS, Linear, exact, groups
from tests.models import single_precision

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
Y = RNG.normal(size=(5, 1)) + RNG.normal(size=(5, 3))
HALF = stats.halfnorm(scale=2)


def hierarchy(y):
    tau = numpyro.sample("tau", dist.HalfNormal(2))
    with numpyro.plate("groups", y.shape[0], dim=-2):
        z = numpyro.sample("z", dist.Normal(0, tau))
        with numpyro.plate("rows", y.shape[1]):
            numpyro.sample("y", dist.Normal(z, 1), obs=y)


@pytest.fixture(scope="module")
def fit():
    return lb.nested(hierarchy, Y)


def test_rounding_does_not_decide_which_of_two_points_is_nearest():
    points, halfway = np.array([[0.3], [-0.1], [0.7]]), np.array([[0.1], [0.5], [0.6]])
    for rounding in (-1e-12, 0, 1e-12):
        assert nearest(points, halfway + rounding).tolist() == [0, 0, 2]


@pytest.fixture(scope="module")
def draws(fit):
    return fit.sample(KEY, (4000,))


def test_draws_have_the_moments(fit, draws):
    for name, x in draws.items():
        sd = fit.standard_deviation[name]
        np.testing.assert_allclose((x.mean(0) - fit.mean[name]) / sd, 0, atol=0.06)
        np.testing.assert_allclose(x.std(0) / sd, 1, atol=0.06)
        below = [np.mean(x < q, axis=0) for q in fit.quantiles(LEVELS)[name]]
        np.testing.assert_allclose(below[0], LEVELS[0], atol=0.02)
        np.testing.assert_allclose(below[1], LEVELS[1], atol=0.02)


def test_draws_are_joint(draws):
    """Given tau each effect is normal around its shrunken mean."""
    precision = 1 / np.asarray(draws["tau"]) ** 2 + Y.shape[1]
    scores = np.asarray(draws["z"])[..., 0] * np.sqrt(precision)[:, None]
    scores = scores - Y.sum(axis=1) / np.sqrt(precision)[:, None]
    assert stats.kstest(scores.ravel(), "norm").pvalue > 1e-3


def test_a_key_decides_and_shapes_lead(fit):
    one, same, other = (fit.sample(jax.random.key(k), (2, 3)) for k in (1, 1, 2))
    for name, shape in {"tau": (), "z": (5, 1)}.items():
        assert one[name].shape == (2, 3, *shape)
        assert fit.sample(KEY)[name].shape == shape
        np.testing.assert_array_equal(one[name], same[name])
        assert not np.allclose(one[name], other[name])
    assert fit.sample(KEY, (0,))["z"].shape == (0, 5, 1)


def test_the_summary_has_every_number(fit):
    table = fit.summary(0.5)
    assert list(table.columns) == ["site", "mean", "sd", "25 %", "75 %"]
    assert table.columns["site"] == ["tau", *(f"z[{i}, 0]" for i in range(5))]
    assert "tau on a grid of" in repr(fit)
    assert "exactly Gaussian" in repr(fit)
    assert "<table" in fit._repr_html_()


def test_points_without_mass_are_not_counted(fit):
    """Whether effects have a mode there is a matter of rounding, which differs between processors."""
    heights = fit.grid.conditional.log_marginal
    low = heights.argmin()
    heights = np.where(np.arange(heights.size) == low, heights.max() - 25, heights)
    grid = fit.grid._replace(conditional=fit.grid.conditional._replace(log_marginal=heights))
    assert f"{np.sum(heights.max() - heights < 20)} points" in grid.told()
    assert f"{len(grid.place)} points" not in grid.told()


WRONG = {
    "probability": (lambda fit: fit.summary(1.0), "between 0 and 1"),
    "quantile": (lambda fit: fit.quantiles([0.5, 1.0]), "between 0 and 1"),
    "no vector": (lambda fit: fit.quantiles(0.5), "must be a vector"),
    "shape": (lambda fit: fit.sample(KEY, (-1,)), "sample_shape"),
    "number": (lambda fit: fit.to_arviz(num_samples=0), "num_samples"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.usefixtures("types_unchecked")
def test_refused(fit, case):
    act, words = WRONG[case]
    with pytest.raises(ValueError, match=words):
        act(fit)


def test_it_can_be_copied_and_pickled(fit):
    for other in (copy.deepcopy(fit), pickle.loads(pickle.dumps(fit))):
        np.testing.assert_array_equal(other.mean["z"], fit.mean["z"])
        np.testing.assert_array_equal(other.sample(KEY)["z"], fit.sample(KEY)["z"])


def test_missing_outcomes_of_a_series():
    """A masked NaN says nothing: as if the row were not there."""
    y = np.where(np.arange(8) % 3 == 1, np.nan, np.cumsum(RNG.normal(size=8)))
    seen = ~np.isnan(y)

    def model(y):
        tau = numpyro.sample("tau", dist.HalfNormal(2))
        z = numpyro.sample("z", dist.GaussianRandomWalk(tau, 8))
        with numpyro.plate("rows", 8), mask(mask=~jnp.isnan(y)):
            numpyro.sample("y", dist.Normal(z, 0.5), obs=y)

    fit = lb.nested(model, y)
    steps = np.minimum.outer(np.arange(1, 9), np.arange(1, 9))
    design = np.eye(8)[seen]

    def linear(tau):
        prior = tau[:, None, None] ** 2 * steps
        return Linear(
            np.broadcast_to(design, (len(tau), *design.shape)), prior, np.eye(seen.sum()) / 4
        )

    truth = exact(y[seen], [np.linspace(-12, 3, 601)], HALF.logpdf, linear)
    assert fit.log_evidence == pytest.approx(truth.log_evidence, abs=2e-3)
    mean = np.r_[fit.mean["tau"], fit.mean["z"]]
    np.testing.assert_allclose((mean - truth.mean) / truth.sd, 0, atol=0.02)
    sd = np.r_[fit.standard_deviation["tau"], fit.standard_deviation["z"]]
    np.testing.assert_allclose(sd / truth.sd, 1, atol=0.02)


def beta_effects(y, n):
    mean = numpyro.sample("mean", dist.Beta(2, 2))
    with numpyro.plate("groups", len(y)):
        p = numpyro.sample("p", dist.Beta(8 * mean, 8 * (1 - mean)))
        numpyro.sample("y", dist.Binomial(n, p), obs=y)


def test_effects_on_an_interval():
    """Beta effects of binomial data can be integrated out exactly."""
    y, n = np.array([3, 5, 2, 8, 1, 9]), np.full(6, 10)
    fit = lb.nested(beta_effects, y, n)
    assert fit.over == ("mean",)
    m = np.linspace(0.0005, 0.9995, 1000)
    each = stats.betabinom(n[:, None], 8 * m, 8 * (1 - m)).logpmf(y[:, None])
    weights = np.exp(each.sum(axis=0)) * stats.beta(2, 2).pdf(m)
    assert fit.log_evidence == pytest.approx(np.log(weights.mean() * 0.999), abs=0.03)
    mean = np.average(m, weights=weights)
    sd = np.sqrt(np.average((m - mean) ** 2, weights=weights))
    assert float(fit.mean["mean"]) == pytest.approx(mean, abs=0.03 * sd)
    assert float(fit.standard_deviation["mean"]) == pytest.approx(sd, rel=0.03)
    law = stats.beta(8 * m + y[:, None], 8 * (1 - m) + (n - y)[:, None])
    of_p = np.average(law.mean(), axis=1, weights=weights)
    squares = np.average(law.var() + law.mean() ** 2, axis=1, weights=weights)
    sd = np.sqrt(squares - of_p**2)
    np.testing.assert_allclose((fit.mean["p"] - of_p) / sd, 0, atol=0.05)
    np.testing.assert_allclose(fit.standard_deviation["p"] / sd, 1, atol=0.06)


def test_a_simplex_of_hyperparameters():
    """Shares of a variance, which two coordinates of the unconstrained space have together."""
    y = 2 * RNG.normal(size=(3, 4))

    def model(y):
        share = numpyro.sample("share", dist.Dirichlet(jnp.array([2.0, 2.0, 2.0])))
        with numpyro.plate("rows", 4), numpyro.plate("kinds", 3, dim=-2):
            z = numpyro.sample("z", dist.Normal(0, 5 * share[:, None]))
            numpyro.sample("y", dist.Normal(z, 1), obs=y)

    fit = lb.nested(model, y)
    assert fit.over == ("share",)
    a, b = np.meshgrid(*[(np.arange(300) + 0.5) / 300] * 2, indexing="ij")
    inside = a + b < 1
    w = np.stack([a[inside], b[inside], 1 - a[inside] - b[inside]], axis=1)
    logs = stats.norm(0, np.sqrt(1 + 25 * w[..., None] ** 2)).logpdf(y).sum(axis=(1, 2))
    weights = np.exp(logs) * 120 * w.prod(axis=1)  # gamma(6) / gamma(2)^3
    assert fit.log_evidence == pytest.approx(np.log(weights.sum() / 300**2), abs=0.02)
    mean = weights @ w / weights.sum()
    np.testing.assert_allclose(fit.mean["share"], mean, atol=0.01)
    sd = np.sqrt(weights @ (w - mean) ** 2 / weights.sum())
    np.testing.assert_allclose(fit.standard_deviation["share"], sd, rtol=0.03)


def test_many_groups():
    y = 2 * np.random.default_rng(200).normal(size=(200, 1))
    fit = lb.nested(hierarchy, y)
    tau = np.exp(u := np.linspace(-15, 3, 1001))
    logs = stats.norm(0, np.sqrt(1 + tau**2)).logpdf(y).sum(axis=0) + HALF.logpdf(tau) + u
    weights = np.exp(logs - logs.max())
    evidence = np.log(weights.sum() * (u[1] - u[0])) + logs.max()
    assert fit.log_evidence == pytest.approx(evidence, abs=2e-3)
    mean = np.average(tau, weights=weights)
    sd = np.sqrt(np.average((tau - mean) ** 2, weights=weights))
    assert float(fit.mean["tau"]) == pytest.approx(mean, abs=0.02 * sd)
    assert float(fit.standard_deviation["tau"]) == pytest.approx(sd, rel=0.02)


def test_in_single_precision():
    with single_precision():
        fit = lb.nested(hierarchy, Y.astype("float32"))
        means, sds, draws = fit.mean, fit.standard_deviation, fit.sample(KEY, (3,))
    truth = exact(Y, [np.linspace(-12, 3, 601)], HALF.logpdf, without_mean)
    assert fit.log_evidence == pytest.approx(truth.log_evidence, abs=5e-3)
    assert draws["z"].dtype == "float32"
    for found, exactly in ((means, truth.mean), (sds, truth.sd)):
        values = np.r_[found["tau"], np.ravel(found["z"])]
        np.testing.assert_allclose((values - exactly) / truth.sd, 0, atol=0.02)


def without_mean(tau):
    whole = groups(Y.shape, 1.0)(tau)
    prior = tau[:, None, None] ** 2 * np.eye(5)
    return Linear(whole.design[..., 1:], prior, whole.noise)


def test_moments_that_are_infinite_are_not_known():
    """Of a half-Cauchy on which the data say nothing; its quantiles are those of the prior."""

    def model(y):
        numpyro.sample("unseen", dist.HalfCauchy(1))
        hierarchy(y)

    fit = lb.nested(model, Y)
    assert np.isnan(fit.mean["unseen"])
    assert np.isnan(fit.standard_deviation["unseen"])
    assert np.isfinite(fit.standard_deviation["tau"])
    exactly = stats.halfcauchy.ppf(LEVELS)
    np.testing.assert_allclose(fit.quantiles(LEVELS)["unseen"], exactly, rtol=0.03)


def test_a_new_group_has_no_deviation_where_that_of_the_groups_has_no_mean_square():
    def one_group(y):
        tau = numpyro.sample("tau", dist.HalfCauchy(1.0))
        z = numpyro.sample("z", dist.Normal(0, tau))
        numpyro.sample("new", dist.Normal(0, tau))
        numpyro.sample("y", dist.Normal(z, 1), obs=y)

    fit = lb.nested(one_group, np.array(2.0))
    assert np.isnan([fit.standard_deviation[name] for name in ("tau", "new")]).all()
    assert np.isfinite(fit.standard_deviation["z"]) and np.isfinite(fit.mean["new"])
    with pytest.raises(ValueError, match="The quantile at 0.0001 lies beyond the draws"):
        fit.quantiles([1e-4])


def test_a_bound_is_seen_where_the_mode_is_zero():
    """Of a symmetric prior about zero, whose values and coordinates there are both zero."""

    def within(y):
        s = numpyro.sample("s", dist.HalfNormal(1))
        z = numpyro.sample("z", dist.Uniform(-1, 1))
        numpyro.sample("y", dist.Normal(jnp.where(z > 2, z, 0.0), s).expand([2]).to_event(1), obs=y)

    fit = lb.nested(within, np.array([1.0, 2.0]), over="s")
    at = fit.grid.conditional
    exactly = at._replace(mode=0 * at.mode)  # which rounding leaves at 1e-17
    grid = fit.grid._replace(conditional=exactly)
    assert replace(fit, grid=grid).standard_deviation["z"] == pytest.approx(3**-0.5, rel=0.02)
