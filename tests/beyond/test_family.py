"""What every approximation answers, asked of each of them, beside quadrature on a grid."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import laplacebook as lb

KEY = jax.random.key(0)
X = np.array([-1.5, -1.0, -0.4, 0.1, 0.5, 1.2, 1.6])
Y = np.array([0, 1, 0, 2, 1, 4, 5])
_GRID = np.meshgrid(np.linspace(-3, 3, 121), np.linspace(-2, 4, 121), indexing="ij")
POINTS = np.stack(_GRID, -1).reshape(-1, 2)
CELL = (6 / 120) ** 2


def counts(x, y=None):
    a = numpyro.sample("a", dist.Normal(0, 2))
    b = numpyro.sample("b", dist.Normal(0, 2))
    numpyro.deterministic("rate", jnp.exp(a + b))
    with numpyro.plate("rows", x.size):
        numpyro.sample("y", dist.Poisson(jnp.exp(a + b * x)), obs=y)


def log_joint(points):
    a, b = points.T[:, :, None]
    prior = stats.norm(0, 2).logpdf(a) + stats.norm(0, 2).logpdf(b)
    return (prior + stats.poisson(np.exp(a + b * X)).logpmf(Y).sum(axis=1, keepdims=True))[:, 0]


@pytest.fixture(scope="module")
def truth():
    """Log evidence, means, standard deviations and 5, 50, 95 % quantiles of a and b, by quadrature."""
    logs = log_joint(POINTS)
    weights = np.exp(logs - logs.max())
    evidence = float(np.log(weights.sum() * CELL) + logs.max())
    weights /= weights.sum()
    mean = weights @ POINTS
    deviation = np.sqrt(weights @ (POINTS - mean) ** 2)
    quantiles = np.stack(
        [
            np.interp([0.05, 0.5, 0.95], np.cumsum(p) - p / 2, axis)
            for p, axis in [
                (weights.reshape(121, 121).sum(axis=1), np.linspace(-3, 3, 121)),
                (weights.reshape(121, 121).sum(axis=0), np.linspace(-2, 4, 121)),
            ]
        ],
        axis=1,
    )
    return evidence, mean, deviation, quantiles


NAMES = ["laplace", "skewed", "mixture", "resampled", "nested"]
#: how far each may be from quadrature: means in standard deviations, these as a fraction, log evidence
ALLOWED = {
    "laplace": (0.3, 0.1, 0.05),
    "skewed": (0.1, 0.1, 0.05),
    "mixture": (0.3, 0.1, 0.05),
    "resampled": (0.04, 0.04, 0.02),
    "nested": (0.04, 0.04, 0.02),
}


@pytest.fixture(scope="module")
def family():
    gaussian = lb.laplace(counts, X, Y)
    skewed = lb.skewed(gaussian)
    return {
        "laplace": gaussian,
        "skewed": skewed,
        "mixture": lb.mixture(gaussian),
        "resampled": lb.resampled(skewed, KEY),
        "nested": lb.nested(counts, X, Y, over="b"),
    }


@pytest.fixture(params=NAMES)
def member(request, family):
    return request.param, family[request.param]


@pytest.fixture(scope="module")
def all_draws(family):
    """12,000 of each."""
    return {name: approx.sample(KEY, (12_000,)) for name, approx in family.items()}


@pytest.fixture
def draws(member, all_draws):
    return all_draws[member[0]]


def test_its_draws_have_its_moments(member, draws):
    """Their mean is within five standard errors, of 12,000 draws, of that which it tells."""
    _, approx = member
    assert isinstance(approx, lb.Approximation)
    for name in "ab":
        mean = (
            approx.mode[name] if isinstance(approx, lb.LaplaceApproximation) else approx.mean[name]
        )
        deviation = float(approx.standard_deviation[name])
        assert abs(float(draws[name].mean()) - float(mean)) < 0.05 * deviation
        assert abs(float(draws[name].std()) / deviation - 1) < 0.05


def test_it_is_near_quadrature(member, draws, truth):
    name, approx = member
    evidence, mean, deviation, quantiles = truth
    allowed = ALLOWED[name]
    assert abs(float(approx.log_evidence) - evidence) < allowed[2]
    for i, site in enumerate("ab"):
        assert abs(float(draws[site].mean()) - mean[i]) < (allowed[0] + 0.03) * deviation[i]
        assert abs(float(approx.standard_deviation[site]) / deviation[i] - 1) < allowed[1]
        ends = np.asarray(approx.quantiles([0.05, 0.5, 0.95])[site])
        assert np.all(abs(ends - quantiles[:, i]) < (1.7 * allowed[0] + 0.05) * deviation[i])


def test_its_quantiles_are_those_of_its_draws(member, draws):
    _, approx = member
    levels = [0.05, 0.5, 0.95]
    for name, ends in approx.quantiles(levels).items():
        held = [float(np.mean(np.asarray(draws[name]) < end)) for end in np.asarray(ends)]
        assert held == pytest.approx(levels, abs=0.015)


@pytest.mark.parametrize("name", ["laplace", "skewed", "mixture"])
def test_its_density_is_that_of_its_draws(name, family):
    """Normalised, and with the moments of the draws, up to four standard errors."""
    approx = family[name]
    density = np.exp(np.asarray(jax.vmap(approx.log_density)(jnp.asarray(POINTS)))) * CELL
    assert density.sum() == pytest.approx(1, abs=1e-3)
    u = np.asarray(approx.sample_vector(KEY, (12_000,)))
    features = [lambda x: x, lambda x: x**2, lambda x: x**3, lambda x: x[:, ::-1] * x]
    for feature in features:
        seen = feature(u)
        allowed = 4 * seen.std(axis=0) / len(u) ** 0.5
        assert np.all(abs(seen.mean(axis=0) - density @ feature(POINTS)) < allowed)


def test_a_file_gives_it_back(member, tmp_path):
    _, approx = member
    approx.save(tmp_path / "fit.npz")
    loaded = lb.load(tmp_path / "fit.npz", counts, X, Y)
    assert type(loaded) is type(approx)
    assert repr(loaded) == repr(approx)
    np.testing.assert_array_equal(loaded.sample(KEY, (3,))["a"], approx.sample(KEY, (3,))["a"])
    with pytest.raises(lb.LaplaceError, match="another model or of other data"):
        lb.load(tmp_path / "fit.npz", counts, X, Y + 1)


def test_it_predicts(member, truth):
    _, approx = member
    if isinstance(approx, lb.LaplaceApproximation):
        found = lb.predict(approx, X[-2:], method="monte_carlo", key=KEY)
    else:
        found = lb.predict(approx, X[-2:], key=KEY)
    logs = log_joint(POINTS)
    weights = np.exp(logs - logs.max())
    exact = weights @ np.exp(POINTS[:, :1] + POINTS[:, 1:] * X[-2:]) / weights.sum()
    np.testing.assert_allclose(found.mean, exact, rtol=0.08)


def test_functions_of_the_sites_and_deterministic_values_have_rows(member, draws):
    _, approx = member
    rate = approx.summary(of="rate").rows()[0]
    both = approx.summary(
        0.5, of={"rate": lambda sites: sites["rate"], "two": lambda s: jnp.stack([s["a"], -s["b"]])}
    )
    assert [row["site"] for row in both.rows()] == ["rate", "two[0]", "two[1]"]
    exact = np.exp(np.asarray(draws["a"] + draws["b"]))
    assert rate["mean"] == pytest.approx(exact.mean(), rel=0.03)
    assert rate["sd"] == pytest.approx(exact.std(), rel=0.1)
    assert rate["95 %"] == pytest.approx(np.quantile(exact, 0.95), rel=0.05)
    assert both.rows()[0]["25 %"] == pytest.approx(np.quantile(exact, 0.25), rel=0.03)
    assert both.rows()[2]["mean"] == pytest.approx(-float(np.mean(draws["b"])), abs=0.03)


def test_functions_that_are_none_are_refused(member):
    _, approx = member
    with pytest.raises(ValueError, match="no site 'rates'; it has a, b, rate"):
        approx.summary(of="rates")
    with pytest.raises(lb.UnsupportedModel, match="name returns what is no number"):
        approx.summary(of={"name": lambda sites: "a"})
    with pytest.raises(ValueError, match="probability must be between 0 and 1"):
        approx.summary(1.5, of="rate")


@pytest.mark.parametrize("name", ["laplace", "nested"])
def test_arviz_has_what_belongs_to_its_draws(name, family):
    approx = family[name]
    found = approx.to_arviz(num_samples=50, log_likelihood=True, posterior_predictive=True)
    a, b = (np.asarray(found.posterior[name])[0, :, None] for name in "ab")
    exact = stats.poisson(np.exp(a + b * X)).logpmf(Y)
    np.testing.assert_allclose(np.asarray(found.log_likelihood["y"])[0], exact, rtol=1e-6)
    drawn = np.asarray(found.posterior_predictive["y"])[0]
    assert drawn.shape == (50, 7)
    assert drawn[:, -1].mean() > drawn[:, 0].mean() + 1
    np.testing.assert_array_equal(found.observed_data["y"], Y)
    assert "log_likelihood" not in approx.to_arviz(num_samples=50)


def test_a_diagnosis_judges_it(member):
    """Of one Gaussian the mean of a is off by .27 standard deviations."""
    name, approx = member
    found = lb.diagnose(approx, jax.random.key(1), starts=2)
    assert found.level == ("usable" if name == "mixture" else "good"), found
    assert float(found.evidence_difference.value) == pytest.approx(
        float(approx.log_evidence) + 12.280, abs=0.03
    )


def test_they_are_compared(family, truth):
    table = lb.compare({name: family[name] for name in NAMES})
    assert {row["model"] for row in table.rows()} == set(NAMES)
    assert all(abs(row["log evidence"] - truth[0]) < 0.05 for row in table.rows())


def rate(sites):
    return jnp.exp(sites["a"] + sites["b"])


def several(sites):
    a, b = sites["a"], sites["b"]
    return jnp.stack([rate(sites), a * b, 1.0 * (b > 1.01), a, b])


def mean_by_draws(approx):
    return lb.expectation(approx, several, method="draws", key=KEY, num_samples=8_000)


@pytest.fixture(scope="module")
def mean_of_nested(family):
    return mean_by_draws(family["nested"])


@pytest.mark.parametrize("name", ["skewed", "mixture", "resampled", "nested"])
def test_a_mean_by_draws_is_that_of_the_posterior(name, family, mean_of_nested):
    """Not that of the approximation: one Gaussian is off by .27 standard deviations in a."""
    logs, (a, b) = log_joint(POINTS), POINTS.T
    weights = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    exact = np.stack([np.exp(a + b), a * b, b > 1.01, a, b]) @ weights
    found = mean_of_nested if name == "nested" else mean_by_draws(family[name])
    assert found.method == "draws"
    assert np.all(abs(found.value - exact) < 3.5 * found.standard_error)
    assert np.all(found.standard_error < 0.15 / 3.5)
    assert np.all(np.isfinite(found.correction) == (name == "mixture"))


def test_a_mean_by_what_has_no_mode_has_draws_alone(family):
    found = lb.expectation(family["skewed"], several, key=KEY, num_samples=8_000)
    assert found.why == "SkewedApproximation is no sum of Gaussians"
    assert "by draws (SkewedApproximation is no sum of Gaussians)" in repr(found)
    with pytest.raises(lb.UnsupportedModel, match=r"(?s)no\s+sum\s+of\s+Gaussians.*method='draws'"):
        lb.expectation(family["nested"], rate, method="delta")


def test_a_mean_by_a_mixture_of_one_is_that_of_the_fit(family):
    fit, mixture = (lb.expectation(family[name], rate) for name in ("laplace", "mixture"))
    assert (mixture.method, mixture.why) == (fit.method, fit.why)
    assert mixture.value == pytest.approx(float(fit.value), rel=1e-12)
    assert mixture.truncation == pytest.approx(float(fit.truncation), rel=1e-9)


def test_a_mean_of_what_depends_in_groups_has_the_error_of_groups(family, mean_of_nested):
    """Eight draws of a nested fit share their hyperparameter b, and know its mean no better than one."""
    spread = [float(family["nested"].standard_deviation[name]) for name in "ab"]
    a, b = mean_of_nested.standard_error[-2:] / np.array(spread)
    assert b == pytest.approx(8_000**-0.5 * 8**0.5, rel=0.15)
    assert a < 0.9 * b
