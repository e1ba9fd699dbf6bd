"""The log marginal of four to eight hyperparameters between few points: right, or left to a grid or to NUTS."""

import functools

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
from laplacebook.beyond.interpolated import _Look, _weighted, interpolated
from laplacebook.beyond.known_points import KnownPoints
from laplacebook.beyond.outer_mode import outer_mode
from laplacebook.beyond.surface import _CENTRES, Points, Surface
from laplacebook.model.density import ModelDensity

KEY = jax.random.key(0)
MIXING = np.random.default_rng(0).normal(size=(6, 6)) + 2 * np.eye(6)
MIXING_OF_MANY = np.random.default_rng(1).normal(size=(10, 10)) + 4 * np.eye(10)
SHAPES = np.array([0.8, 1.5, 3.0, 8.0, 2.0, 5.0, 0.9, 4.0, 2.5, 6.0])


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
    mixing, shapes = (MIXING if size <= 6 else MIXING_OF_MANY)[:size, :size], SHAPES[:size]

    def log_marginal(x):
        z = x @ mixing.T
        with np.errstate(over="ignore"):
            return (shapes * z - np.exp(z)).sum(axis=1)

    return log_marginal, mixing, shapes


@functools.cache
def of_log_gammas(size):
    return of(log_gammas(size)[0], size)


@pytest.mark.parametrize("size", [4, 5, 6])
def test_skew_laws_against_their_moments(size):
    _, mixing, shapes = log_gammas(size)
    cloud = of_log_gammas(size)
    assert isinstance(cloud, Cloud) and cloud.seen < {4: 2000, 5: 2500, 6: 3000}[size]
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


def test_many_hyperparameters_have_points_with_weights():
    _, mixing, shapes = log_gammas(7)
    cloud = of_log_gammas(7)
    assert isinstance(cloud, Cloud) and cloud.is_weighted and cloud.seen < 8000
    evidence = gammaln(shapes).sum() - np.linalg.slogdet(mixing)[1]
    assert abs(cloud.log_evidence - evidence) < 3 * cloud.error and cloud.error < 0.032
    points, volume = cloud.points, np.linalg.slogdet(mixing)[1]
    z = points.points @ mixing.T
    exact = (shapes * z - np.exp(z) - gammaln(shapes)).sum(axis=1) + volume
    np.testing.assert_allclose(points.log_density - exact, evidence - cloud.log_evidence, atol=1e-9)
    for weights, at, within in (
        (points.weights, points.points, 1),
        (np.exp(cloud.log_weights), cloud.conditional.hyper, 2),
    ):
        weights, z = weights / weights.sum(), at @ mixing.T
        mean, sd = weights @ z, np.sqrt(polygamma(1, shapes))
        assert np.all(abs(mean - digamma(shapes)) < 0.08 * within * sd)
        np.testing.assert_allclose(np.sqrt(weights @ (z - mean) ** 2), sd, rtol=0.08 * within)


def test_the_mode_is_held_where_no_point_lies_beside_it():
    cloud = of(lambda x: -(x**2).sum(axis=1) / 2, 7, 0.3)
    cloud = cloud._replace(hyper=cloud.hyper + 50)
    assert cloud.holds(cloud.mode.point) and not cloud.holds(cloud.mode.point + 100)


def narrow():
    """What is known of a normal law, and points, where a surface was learned that is half as wide."""
    known = Known(lambda x: -(x**2).sum(axis=1) / 2, 7)
    look = _Look(known, outer_mode(known.heights, np.full(7, 0.3)))
    x = np.random.default_rng(0).normal(size=(400, 7)) / 2
    look.learn(x, -2 * (x**2).sum(axis=1))
    return look, Points(x, look.y, np.zeros(400))


def test_weights_that_say_that_tails_are_missed_are_not_used():
    look, points = narrow()
    assert _weighted(look, points, 0) is None
    assert look.seen > 2000


def bent(x):
    return -(np.delete(x, 1, axis=1) ** 2).sum(axis=1) / 2 - 2 * (x[:, 1] - 0.6 * x[:, 0] ** 2) ** 2


def test_far_tails_of_many_hyperparameters_are_left_to_nuts():
    """The points are worth 62 % of what they would be by a right surface."""
    assert of(bent, 7) is None


def test_where_a_surface_is_followed_too_unevenly_few_points_are_looked_at(monkeypatch):
    """Those of its highest: it may rise where nothing is known."""
    look, points = narrow()
    monkeypatch.setattr("laplacebook.beyond.interpolated._WORTH", 10_000)
    assert _weighted(look, points, 0) is None
    assert len(look.x) == 400 + 3 * 192 and look.seen == 3 * 192


def test_the_nodes_stand_for_the_points():
    _, mixing, shapes = log_gammas(4)
    cloud = of_log_gammas(4)
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


OF_FOUR = [(law, 4) for law in (two_modes, half_a_law, endless, rough)]


@pytest.mark.parametrize(("law", "size"), [*OF_FOUR, (half_a_law, 7), (endless, 7), (rough, 7)])
def test_what_so_few_points_do_not_tell_is_left_to_others(law, size):
    assert of(law, size) is None


def test_points_that_tell_no_quadratic_function_are_left_to_others(monkeypatch):
    """A shallow lattice has none off the axes, which is why others are looked at, too."""
    monkeypatch.setattr("laplacebook.beyond.interpolated._SHALLOW", 1.0)
    monkeypatch.setattr("laplacebook.beyond.interpolated._BATCH", 0)
    assert of(lambda x: (2 * x - np.exp(x)).sum(axis=1), 8) is None


def test_beyond_its_points_a_surface_falls():
    x = np.random.default_rng(0).normal(size=(60, 4))
    surface = Surface(x, x.sum(axis=1), 2.0)
    np.testing.assert_allclose(surface(x), x.sum(axis=1), atol=1e-5)
    far = np.arange(3, 40, 3.0)[:, None] * np.ones(4)
    assert np.all(np.diff(surface(far)) < 0)


def test_points_follow_a_surface_from_where_they_are():
    """From about the wrong place, to a mean that is known."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 4)) * 2
    surface = Surface(x, -((x - 1) ** 2).sum(axis=1) / 2, 4.0)
    points = Points(x[:_CENTRES], np.zeros(_CENTRES), np.zeros(_CENTRES))
    for part in range(3):
        points = points.spread(surface, 2048, part)
    weights = np.exp(points.logs)
    np.testing.assert_allclose(weights @ points.x / weights.sum(), 1, atol=0.05)
    assert abs(np.log(weights.mean()) - 2 * np.log(2 * np.pi)) < 0.05


FOUR, SEVEN = np.linspace(0.5, 3, 4), np.linspace(0.5, 3, 7)


@pytest.fixture(scope="module")
def fit():
    return lb.nested(apart, FOUR)


@pytest.fixture(scope="module")
def weighted():
    return lb.nested(apart, SEVEN)


@pytest.mark.parametrize(("name", "y"), [("fit", FOUR), ("weighted", SEVEN)])
def test_posteriors_beside_quadrature_of_each_hyperparameter(name, y, request):
    """Nothing but its own outcome tells of one."""
    approx = request.getfixturevalue(name)
    assert approx.grid.is_weighted == (name == "weighted") and approx.doubt is None
    s = np.linspace(1e-4, 8, 4000)
    density = np.exp(-(y[:, None] ** 2) / (2 + 2 * s**2) - s**2 / 2) / np.sqrt(1 + s**2) / np.pi
    mass = np.trapezoid(density, s)
    mean = np.trapezoid(s * density, s) / mass
    sd = np.sqrt(np.trapezoid(s**2 * density, s) / mass - mean**2)
    off, error = approx.log_evidence - np.log(mass).sum(), approx.grid.error
    within, errors = (0.1, 3) if approx.grid.is_weighted else (0.05, 2)
    assert abs(off) < errors * error and error < 0.03
    assert np.all(abs(approx.mean["s"] - mean) < within * sd)
    np.testing.assert_allclose(approx.standard_deviation["s"], sd, rtol=within)
    # w given s has the mean y s^2/(1+s^2).
    of_w = y * np.trapezoid(s**2 / (1 + s**2) * density, s) / mass
    assert np.all(abs(approx.mean["w"] - of_w) < 0.1 * approx.standard_deviation["w"])


def test_nested_says_how(fit):
    assert isinstance(fit.grid, Cloud)
    told = repr(fit)
    assert f"s interpolated between {fit.grid.seen:,} points" in told
    assert f"log evidence {fit.grid.evidence} (interpolation)" in told
    assert fit.grid.seen < 4500  # one round more or less is a matter of rounding


def test_draws_and_a_diagnosis_agree_with_it(fit):
    draws = fit.sample(KEY, (2000,))
    off = (draws["s"].mean(axis=0) - fit.mean["s"]) / fit.standard_deviation["s"]
    assert np.all(abs(off) < 0.1)
    found = lb.diagnose(fit, KEY)
    assert found.level != "bad" and "s interpolated between" in repr(found), found


def test_a_file_gives_it_back(fit, tmp_path):
    fit.save(tmp_path / "fit.npz")
    again = lb.load(tmp_path / "fit.npz", apart, FOUR)
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


def test_it_says_that_its_points_have_weights(weighted):
    grid = weighted.grid
    number = np.isfinite(grid.logs).sum()
    told = (
        f"s at {number:,} weighted points of {grid.seen:,}, the others given each exactly Gaussian"
    )
    assert told in " ".join(repr(weighted).split())
    assert f"log evidence {grid.evidence} (importance sampling)" in repr(weighted)
    found = lb.diagnose(weighted, KEY)
    assert found.level != "bad" and "error of the importance sampling 0.0" in found.verdict, found


def test_a_file_gives_weighted_points_back(weighted, tmp_path):
    weighted.save(tmp_path / "fit.npz")
    again = lb.load(tmp_path / "fit.npz", apart, SEVEN)
    assert again.grid.is_weighted is True and again.log_evidence == weighted.log_evidence
    assert repr(again) == repr(weighted)
