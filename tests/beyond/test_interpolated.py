"""The log marginal of four to six hyperparameters between few points: right, or left to a grid."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import digamma, gammaln, polygamma

import laplacebook as lb
from laplacebook.beyond.cloud import Cloud
from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.dense_conditional import Conditional
from laplacebook.beyond.grid import Grid
from laplacebook.beyond.interpolated import _CENTRES, _Points, _Surface, interpolated
from laplacebook.beyond.known_points import KnownPoints
from laplacebook.beyond.outer_mode import outer_mode
from laplacebook.model.density import ModelDensity

KEY = jax.random.key(0)
MIXING = np.random.default_rng(0).normal(size=(6, 6)) + 2 * np.eye(6)
SHAPES = np.array([0.8, 1.5, 3.0, 8.0, 2.0, 5.0])


def apart(y):
    """As many standard deviations as effects, of which nothing but its own outcome tells one."""
    s = numpyro.sample("s", dist.HalfNormal(1).expand([y.size]).to_event(1))
    w = numpyro.sample("w", dist.Normal(0, s).to_event(1))
    numpyro.sample("y", dist.Normal(w, 1).to_event(1), obs=y)


class Known(KnownPoints):
    """A log marginal that is written down, with one effect that is standard normal."""

    def __init__(self, log_marginal, size):
        density = ModelDensity.of(apart, (np.ones(size),), {})
        super().__init__(Effects(density, ("s",)), np.zeros(size))
        self.log_marginal = log_marginal

    def heights(self, hyper, scale):
        return self.log_marginal(hyper)

    def conditional(self, hyper, scale):
        number = len(hyper)
        heights = self.heights(hyper, scale)
        return Conditional(hyper, heights, np.zeros((number, 1)), np.ones((number, 1, 1)))


def of(log_marginal, size, start=0.0):
    known = Known(log_marginal, size)
    mode = outer_mode(known.heights, np.full(size, start))
    assert mode.found
    ways = np.concatenate([mode.axes.T, -mode.axes.T])
    far = mode.point + np.multiply.outer([5.0, 8.0, 12.0, 18.0], ways).reshape(-1, size)
    return interpolated(known, mode, np.array([mode.point, *far]))


def log_gammas(size):
    """Logarithms of independent gamma variables, in coordinates that mix them."""
    mixing, shapes = MIXING[:size, :size], SHAPES[:size]

    def log_marginal(x):
        z = x @ mixing.T
        with np.errstate(over="ignore"):
            return (shapes * z - np.exp(z)).sum(axis=1)

    return log_marginal, mixing, shapes


@pytest.mark.parametrize("size", [4, 5, 6])
def test_skew_laws_against_their_moments(size):
    log_marginal, mixing, shapes = log_gammas(size)
    cloud = of(log_marginal, size)
    assert isinstance(cloud, Cloud) and cloud.seen < {4: 1500, 5: 2000, 6: 3000}[size]
    evidence = gammaln(shapes).sum() - np.linalg.slogdet(mixing)[1]
    assert abs(cloud.log_evidence - evidence) < 0.02 + 3 * cloud.error
    assert cloud.error < 0.03
    points = cloud.points
    z = points.points @ mixing.T
    mean, sd = digamma(shapes), np.sqrt(polygamma(1, shapes))
    found = points.weights @ z
    assert np.all(abs(found - mean) < 0.05 * sd)
    np.testing.assert_allclose(np.sqrt(points.weights @ (z - found) ** 2), sd, rtol=0.08)
    exact = (shapes * z - np.exp(z)).sum(axis=1) - evidence
    off = np.minimum(np.expm1(np.minimum(points.log_density - exact, 9)), 3)
    assert np.sqrt(points.weights @ off**2) < {4: 0.15, 5: 0.2, 6: 0.25}[size]


def test_the_nodes_stand_for_the_points():
    log_marginal, mixing, shapes = log_gammas(4)
    cloud = of(log_marginal, 4)
    z, weights = cloud.conditional.hyper @ mixing.T, np.exp(cloud.log_weights)
    off = weights @ z / weights.sum() - digamma(shapes)
    assert np.all(abs(off) < 0.1 * np.sqrt(polygamma(1, shapes)))
    np.testing.assert_array_equal(cloud.conditional.hyper, cloud.hyper[cloud.which])
    np.testing.assert_array_equal(cloud.log_weights, cloud.ratios)  # by what was not foreseen
    assert 0.01 < cloud.ratios.std() < 0.2
    assert cloud.holds(cloud.mode.point) and not cloud.holds(cloud.mode.point + 100)


def two_modes(x):
    one, other = (-((x - place) ** 2).sum(axis=1) / 2 for place in (0, 4))
    return np.logaddexp(one, other)


def half_a_law(x):
    return np.where(x[:, 0] > -1.5, -(x**2).sum(axis=1) / 2, -np.inf)


def endless(x):
    return -(x[:, 1:] ** 2).sum(axis=1) / 2 - np.log1p(x[:, 0] ** 2) / 2


def rough(x):
    return -(x**2).sum(axis=1) / 2 + np.cos(7 * x).sum(axis=1)


@pytest.mark.parametrize("law", [two_modes, half_a_law, endless, rough])
def test_what_so_few_points_do_not_tell_is_left_to_a_grid(law):
    assert of(law, 4) is None


def test_beyond_its_points_a_surface_falls():
    x = np.random.default_rng(0).normal(size=(60, 4))
    surface = _Surface(x, x.sum(axis=1), 2.0)
    np.testing.assert_allclose(surface(x), x.sum(axis=1), atol=1e-5)
    far = np.arange(3, 40, 3.0)[:, None] * np.ones(4)
    assert np.all(np.diff(surface(far)) < 0)


def test_points_follow_a_surface_from_where_they_are():
    """From about the wrong place, to a mean that is known."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 4)) * 2
    surface = _Surface(x, -((x - 1) ** 2).sum(axis=1) / 2, 4.0)
    points = _Points(x[:_CENTRES], np.zeros(_CENTRES), np.zeros(_CENTRES))
    for part in range(3):
        points = points.spread(surface, 2048, part)
    weights = np.exp(points.logs)
    np.testing.assert_allclose(weights @ points.x / weights.sum(), 1, atol=0.05)
    assert abs(np.log(weights.mean()) - 2 * np.log(2 * np.pi)) < 0.05


@pytest.fixture(scope="module")
def fit():
    return lb.nested(apart, np.linspace(0.5, 3, 4))


def test_nested_says_how(fit):
    assert isinstance(fit.grid, Cloud)
    told = repr(fit)
    assert f"s interpolated between {fit.grid.seen:,} points" in told
    assert f"log evidence {fit.grid.evidence} (interpolation)" in told
    assert fit.doubt is None and fit.grid.seen < 3000


def test_draws_and_a_diagnosis_agree_with_it(fit):
    draws = fit.sample(KEY, (2000,))
    off = (draws["s"].mean(axis=0) - fit.mean["s"]) / fit.standard_deviation["s"]
    assert np.all(abs(off) < 0.1)
    found = lb.diagnose(fit, KEY)
    assert found.level != "bad" and "error of the interpolation 0.0" in found.verdict, found


def test_a_file_gives_it_back(fit, tmp_path):
    fit.save(tmp_path / "fit.npz")
    again = lb.load(tmp_path / "fit.npz", apart, np.linspace(0.5, 3, 4))
    assert isinstance(again.grid, Cloud) and again.log_evidence == fit.log_evidence
    np.testing.assert_array_equal(again.quantiles([0.1])["w"], fit.quantiles([0.1])["w"])


def test_two_modes_are_on_a_grid():
    """To both signs of the first, of which its square alone is known."""

    def mirrored(y):
        s = numpyro.sample("s", dist.Normal(0, 1).expand([4]).to_event(1))
        w = numpyro.sample("w", dist.Normal(s[1:].sum(), 1))
        numpyro.sample("y", dist.Normal(jnp.stack([w, s[0] ** 2]), 0.5).to_event(1), obs=y)

    fit = lb.nested(mirrored, np.array([1.0, 2.0]), over="s")
    assert isinstance(fit.grid, Grid) and abs(fit.mean["s"][0]) < 0.02
    np.testing.assert_allclose(fit.mean["s"][1:], 1 / 4.25, atol=0.02)
