"""Angles have a direction and a circular variance, on both sides of the cut between pi and -pi."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import ive
from scipy.stats import circstd, circvar, vonmises

import laplacebook as lb

LENGTH = ive(1, 4) / ive(0, 4)  # of E exp(i y) for a concentration of 4


def wind(x, y=None, concentration=4.0):
    """Its directions turn with x."""
    start = numpyro.sample("start", dist.Normal(3.0, 0.5))
    turn = numpyro.sample("turn", dist.Normal(0, 1))
    numpyro.sample("y", dist.VonMises(start + turn * x, concentration).to_event(1), obs=y)


X = np.linspace(-1, 1, 12)
Y = np.angle(np.exp(1j * (3.14 + 0.2 * X + vonmises(4).ppf((np.argsort(X * 7 % 1) + 0.5) / 12))))
NEW = np.array([-1.0, 0.0, 0.5, 30.0])


@pytest.fixture(scope="module")
def approx():
    return lb.laplace(wind, X, Y)


def exact(approx):
    """Direction, and 1 - |E exp(i y)| given the parameters and without, for normal angles."""
    rows = np.column_stack([np.ones(4), NEW])
    mean = rows @ approx.mode_vector
    variance = np.sum(rows @ approx.covariance * rows, axis=1)
    return mean, 1 - LENGTH, 1 - LENGTH * np.exp(-variance / 2)


def apart(a, b):
    return np.angle(np.exp(1j * (np.asarray(a) - np.asarray(b))))


def test_the_data_cross_the_cut(approx):
    assert Y.min() < -2.5 and Y.max() > 2.5
    assert abs(np.mean(Y)) < 1 < 3 < approx.mode["start"]


def test_direction_and_circular_variances(approx):
    mean, noise, total = exact(approx)
    found = lb.predict(approx, NEW, key=jax.random.key(0), num_samples=20_000)
    z = apart(found.mean, mean)[:3] / found.standard_error[:3]
    assert abs(z).max() < 4 and found.standard_error[:3].max() < 0.01
    assert abs(found.mean).max() <= np.pi
    np.testing.assert_allclose(found.noise, noise, rtol=1e-12)
    np.testing.assert_allclose(found.variance, total, atol=0.01)
    np.testing.assert_allclose(found.epistemic, total - noise, atol=0.01)
    assert np.all(found.variance <= 1) and np.all(found.epistemic >= 0)


def test_the_same_of_draws_of_the_outcome(approx):
    found = lb.predict(approx, NEW, key=jax.random.key(1), num_samples=20_000)
    draws = approx.sample(jax.random.key(2), (20_000,))
    y = numpyro.infer.Predictive(wind, draws)(jax.random.key(3), NEW)["y"]
    np.testing.assert_allclose(found.variance, circvar(y, axis=0), atol=0.015)
    np.testing.assert_allclose(found.standard_deviation[:3], circstd(y, axis=0)[:3], rtol=0.02)


def test_the_error_bar_is_calibrated(approx):
    mean = exact(approx)[0]
    keys = jax.random.split(jax.random.key(4), 60)
    found = [lb.predict(approx, NEW, key=key, num_samples=200) for key in keys]
    z = [apart(f.mean, mean)[:3] / f.standard_error[:3] for f in found]
    assert 0.8 < np.std(z) < 1.2


def test_plug_in(approx):
    mean, noise, _ = exact(approx)
    found = lb.predict(approx, NEW, method="plug_in")
    np.testing.assert_allclose(apart(found.mean, mean), 0, atol=1e-10)
    np.testing.assert_allclose(found.noise, noise, rtol=1e-12)
    assert not found.epistemic.any() and "angle" not in repr(found)
    np.testing.assert_allclose(found.standard_deviation, np.sqrt(-2 * np.log(LENGTH)))


def test_it_has_no_other_method(approx):
    with pytest.raises(ValueError, match=r"\(angle\); there are monte_carlo, plug_in"):
        lb.predict(approx, NEW, method="linearized")


@pytest.mark.parametrize("method", ["monte_carlo", "plug_in"])
def test_a_uniform_angle_has_no_direction(approx, method):
    with pytest.raises(lb.NonFinite, match="angle\\s+that is uniform"):
        lb.predict(approx, NEW, concentration=0.0, method=method, key=jax.random.key(0))
    assert np.all(np.isfinite(lb.predict(approx, NEW, concentration=1e-3, method="plug_in").mean))


def torsion(mean):
    return dist.SineBivariateVonMises(mean, mean, 4.0, 4.0, correlation=0.5)


def two_winds(mean):
    parts = dist.VonMises(jnp.stack([mean, mean + 1]), 4.0)
    return dist.MixtureSameFamily(dist.Categorical(probs=jnp.array([0.5, 0.5])), parts)


def compass(mean):
    return dist.ProjectedNormal(3 * jnp.stack([jnp.cos(mean), jnp.sin(mean)]))


@pytest.mark.parametrize("distribution", [torsion, two_winds, compass])
def test_other_directions_are_refused(distribution):
    def model(y=None):
        mean = numpyro.sample("mean", dist.Normal(3, 1))
        numpyro.sample("y", distribution(mean), obs=y)

    y = {compass: np.array([-1.0, 0.0]), two_winds: np.array(3.1)}
    fit = lb.laplace(model, y.get(distribution, np.array([3.1, -3.1])))
    for method in ("monte_carlo", "plug_in"):
        with pytest.raises(lb.UnsupportedModel, match="direction, which has no mean") as caught:
            lb.predict(fit, method=method, key=jax.random.key(0))
        assert "numpyro.infer.Predictive(model" in " ".join(str(caught.value).split())
