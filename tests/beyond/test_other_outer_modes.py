"""``nested`` where the posterior of the hyperparameters has modes far from each other, beside quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.base.errors import NotConverged
from laplacebook.beyond import nested as module
from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.known_points import KnownPoints
from laplacebook.beyond.other_outer_modes import Alone, other_modes
from laplacebook.beyond.outer_mode import outer_mode
from laplacebook.model.density import ModelDensity

FLAT = dist.ImproperUniform(dist.constraints.real, (), ())


def squared(y, spread):
    """The square of x is measured: x and -x do nearly as well. With z exactly Gaussian given x."""
    x = numpyro.sample("x", dist.Normal(0.4, spread))
    z = numpyro.sample("z", dist.Normal(0, 0.6))
    numpyro.sample("y", dist.Normal(x**2 + z, 0.8), obs=y)


def two_widths(log_odds, width, wide=(-6.0, 1.0), narrow=6.0, prior=FLAT):
    """Normal distributions about -6 and 6, the second one of this width and, by mass, so likely."""
    x = numpyro.sample("x", prior)
    numpyro.sample("z", dist.Normal(0, 1))
    one, other = dist.Normal(*wide).log_prob(x), dist.Normal(narrow, width).log_prob(x)
    numpyro.factor("two", jnp.logaddexp(one, log_odds + other))


def quadrature(log_density, low, high):
    """Log evidence, mean and 5, 30, 95 % quantiles on a fine grid."""
    x = np.linspace(low, high, 400_001)
    logs = log_density(x)
    density = np.exp(logs - logs.max())
    cumulated = np.cumsum(density) / density.sum()
    evidence = logs.max() + np.log(density.sum() * (x[1] - x[0]))
    return evidence, x @ density / density.sum(), np.interp([0.05, 0.3, 0.95], cumulated, x)


def beside_quadrature(fit, log_density, low, high):
    evidence, mean, quantiles = quadrature(log_density, low, high)
    assert float(fit.log_evidence) == pytest.approx(evidence, abs=5e-3)
    assert float(fit.mean["x"]) == pytest.approx(mean, abs=0.02)
    np.testing.assert_allclose(fit.quantiles([0.05, 0.3, 0.95])["x"], quantiles, atol=0.02)


def normal(x, mean, sd):
    return -(((x - mean) / sd) ** 2) / 2 - np.log(sd * np.sqrt(2 * np.pi))


@pytest.mark.parametrize("y", [4.0, 16.0, 400.0])
def test_a_second_mode_however_far_is_on_the_grid(y):
    """20 and -20 are 1,600 standard deviations apart."""
    fit = lb.nested(squared, jnp.array(y), np.float64(20), over="x")
    beside_quadrature(
        fit, lambda x: normal(x, 0.4, 20) + normal(y, x**2, 1), -np.sqrt(y) - 3, np.sqrt(y) + 3
    )
    assert "2 modes on the grid, all counted" in repr(fit)


@pytest.mark.parametrize("width", [0.1, 0.5, 4.0], ids=str)
@pytest.mark.parametrize("log_odds", [-2.0, 1.0], ids=str)
def test_modes_of_different_widths(width, log_odds):
    fit = lb.nested(two_widths, *np.array([log_odds, width]), over="x")
    beside_quadrature(
        fit,
        lambda x: np.logaddexp(normal(x, -6, 1), log_odds + normal(x, 6, width)),
        -12,
        6 + 12 * max(width, 1),
    )


def test_widths_too_different_for_one_grid_are_refused():
    with pytest.raises(NotConverged, match=r"'x'\s+has\s+2\s+modes,\s+whose\s+widths") as refused:
        lb.nested(
            two_widths,
            0.0,
            1e-3,
            over="x",
            wide=(-600.0, 100.0),
            narrow=0.0,
            prior=dist.Normal(0, 300),
        )
    assert "marginalize(two_widths, ['z'])" in str(refused.value)


def test_the_density_of_far_modes_is_as_narrow_as_they_are():
    """Drawn at the width of all together, both would be smeared over what lies between them."""
    (marginal,) = lb.nested(squared, jnp.array(16.0), np.float64(3), over="x").marginals
    within = (abs(abs(marginal.u) - 4) < 0.5).astype(float)
    mass = np.trapezoid(marginal.density, marginal.u)
    assert mass == pytest.approx(1, abs=0.02)
    assert np.trapezoid(marginal.density * within, marginal.u) / mass > 0.99


def test_diagnose_tells_of_a_mode_that_was_missed(monkeypatch):
    with monkeypatch.context() as blind:
        blind.setattr(module, "other_modes", lambda *args: [])
        fit = lb.nested(squared, jnp.array(16.0), np.float64(3), over="x")
    assert abs(fit.mean["x"]) > 3.9
    found = lb.diagnose(fit, jax.random.key(0))
    assert found.level == "bad"
    exact = quadrature(lambda x: normal(x, 0.4, 3) + normal(16, x**2, 1), -6, 6)[0]
    assert found.share_elsewhere == pytest.approx(-np.expm1(fit.log_evidence - exact), abs=5e-3)
    assert "modes beside the grid hold" in found.verdict
    assert lb.diagnose(fit, jax.random.key(0), starts=1).share_elsewhere == 0
    resampled = lb.resampled(fit, jax.random.key(1))
    assert lb.diagnose(resampled, jax.random.key(0)).level == "bad"


def test_a_right_one_is_good():
    fit = lb.nested(squared, jnp.array(16.0), np.float64(3), over="x")
    found = lb.diagnose(fit, jax.random.key(0), starts=20)
    assert found.level == "good"
    assert "no other mode of the hyperparameters from 19 searches" in found.verdict


def ridges(y, number):
    """Of a sum the first is in it by its square: two modes, each a ridge in its own direction."""
    x = numpyro.sample("x", dist.Normal(0, 1).expand([number]).to_event(1))
    z = numpyro.sample("z", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(z + x[0] ** 2 + x[1:].sum(), 0.1), obs=y)


def test_a_grid_is_fine_enough_for_a_mode_that_lies_across_it():
    """The axes of one ridge are no measure for the other, whose evidence it would miss by a tenth."""
    fit = lb.nested(ridges, 4.0, 3, over="x")
    sd = np.sqrt(3.01)
    density = lambda x: normal(x, 0, 1) + normal(4, x**2, sd)  # noqa: E731
    evidence, mean, _ = quadrature(density, -6, 6)
    assert float(fit.log_evidence) == pytest.approx(evidence, abs=1e-3)
    assert float(fit.mean["x"][0]) == pytest.approx(mean, abs=1e-3)


def test_ridges_that_no_grid_holds_are_refused():
    with pytest.raises(NotConverged, match="ridges in other directions"):
        lb.nested(ridges, 4.0, 4, over="x")


def loadings(y):
    """Of one factor, whose signs may all change."""
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    a = numpyro.sample("a", dist.Normal(0, 1).expand([y.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(y)):
        t = numpyro.sample("t", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(t[:, None] * a, scale).to_event(2), obs=y)


def test_the_mirror_image_of_a_mode_is_a_start():
    """Of many loadings next to no draw of the prior lies where all have the other sign."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=(40, 1)) * np.linspace(0.8, 1.2, 8) + 0.5 * rng.normal(size=(40, 8))
    density = ModelDensity.of(loadings, (y,))
    points = KnownPoints(Effects(density, ("scale", "a")), np.zeros(40))
    mode = outer_mode(points.heights, np.r_[np.log(0.5), np.ones(8)], 15)
    (found,) = other_modes(points, Alone(mode), jax.random.key(0), 1)
    np.testing.assert_allclose(found.point[1:], -mode.point[1:], atol=1e-3)
    assert found.point[0] == pytest.approx(mode.point[0], abs=1e-3)
