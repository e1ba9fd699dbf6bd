"""A bound that a factor sets on an effect: a cliff of the log joint, which a Gaussian does not see."""

import functools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import laplacebook as lb
from laplacebook.beyond.skewed_by_shifts import skewed_by_shifts
from laplacebook.beyond.sparse_effects import SparseEffects
from laplacebook.model.density import ModelDensity

Y = np.array([0.8, 0.4, 1.6, 0.2, 0.9, -0.1, 1.1, 0.3])
NOISE = 0.5


def bounded(y, least, depth):
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    middle = numpyro.sample("middle", dist.Normal(0, 2))
    with numpyro.plate("groups", len(y)):
        level = numpyro.sample("level", dist.Normal(middle, scale))
        numpyro.sample("y", dist.Normal(level, NOISE), obs=y)
    numpyro.factor("bound", jnp.where(level[0] > least, 0.0, -depth))


def exact(least):
    """Means and standard deviations of scale, middle and level[0], by quadrature over the first two."""
    s, m = np.meshgrid(np.linspace(1e-3, 4, 500), np.linspace(-3, 4, 501), indexing="ij")
    logs = norm.logpdf(s) + norm.logpdf(m, 0, 2)
    logs += sum(norm.logpdf(y, m, np.hypot(s, NOISE)) for y in Y)
    variance = 1 / (s**-2 + NOISE**-2)
    mean, sd = variance * (m / s**2 + Y[0] / NOISE**2), np.sqrt(variance)
    a = (least - mean) / sd
    logs += norm.logsf(a)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    hazard = np.exp(norm.logpdf(a) - norm.logsf(a))
    moments = [(s, s**2), (m, m**2)]
    truncated = mean + sd * hazard
    moments.append((truncated, sd**2 * (1 + a * hazard - hazard**2) + truncated**2))
    first, second = np.array([[np.sum(weights * x) for x in pair] for pair in moments]).T
    return first, np.sqrt(second - first**2)


@functools.cache
def fitted(least, depth):
    return lb.nested(bounded, Y, least, depth)


def test_a_bound_cuts_the_marginal_of_its_effect_and_is_told():
    mean, sd = exact(0.4)
    fit = fitted(0.4, 1e3)
    means = [np.ravel(fit.mean[name])[0] for name in ("scale", "middle", "level")]
    spread = [np.ravel(fit.standard_deviation[name])[0] for name in ("scale", "middle", "level")]
    assert (np.array(means) - mean) / sd == pytest.approx(0, abs=0.2)
    assert np.array(spread) == pytest.approx(sd, rel=0.15)
    assert "% of the draws given scale lie beyond a bound" in repr(fit)


def test_so_it_does_where_effects_are_sparse():
    """Given the scale the effects without the bound are normal, and the share of them beyond it is known."""
    scale = 0.5
    effects = SparseEffects(ModelDensity.of(bounded, (Y, 0.4, 1e3)), ("scale",))
    nodes = effects.given(np.log([[scale]]), np.zeros((1, 9)))
    found = skewed_by_shifts(effects, nodes, np.zeros(1))
    precision = np.diag(np.r_[0.25 + 8 / scale**2, np.full(8, scale**-2 + NOISE**-2)])
    precision[0, 1:] = precision[1:, 0] = -(scale**-2)
    covariance = np.linalg.inv(precision)
    level = norm((covariance[1, 1:] @ Y) / NOISE**2, np.sqrt(covariance[1, 1]))
    assert found.outside == pytest.approx(level.cdf(0.4), abs=0.03)
    draws = found.draws()[:, 2]
    truncated = functools.partial(level.expect, lb=0.4, conditional=True)
    sd = np.sqrt(truncated(lambda x: x**2) - truncated() ** 2)
    assert draws.mean() == pytest.approx(truncated(), abs=0.03)
    assert draws.std() == pytest.approx(sd, rel=0.1)


def test_a_bound_without_density_is_one_of_a_cliff(tmp_path):
    cliff, nothing = fitted(0.4, 1e3), fitted(0.4, np.inf)
    for name in ("scale", "middle", "level"):
        np.testing.assert_allclose(nothing.mean[name], cliff.mean[name], rtol=1e-6)
    nothing.save(tmp_path / "fit.npz")
    loaded = lb.load(tmp_path / "fit.npz", bounded, Y, 0.4, np.inf)
    assert "lie beyond a bound" in loaded.doubt == nothing.doubt


def test_a_bound_far_away_is_no_matter():
    near, far = fitted(-3.0, 1e3), fitted(-30.0, 1e3)
    assert near.doubt is None
    np.testing.assert_allclose(near.mean["level"], far.mean["level"], atol=1e-3)


EXPOSURE, EVENTS = np.array([100.0, 80, 50, 120, 60, 200]), np.array([0, 0, 1, 0, 3, 0])


def rare(exposure, y):
    middle = numpyro.sample("middle", dist.Normal(-4, 3))
    scale = numpyro.sample("scale", dist.HalfNormal(2.5))
    with numpyro.plate("groups", len(y)):
        log_rate = numpyro.sample("log_rate", dist.Normal(middle, scale))
        numpyro.sample("y", dist.Poisson(exposure * jnp.exp(log_rate)), obs=y)


def test_draws_without_density_tell_no_slope():
    """Given none or few events q has draws of a log rate at which p is nothing."""
    s, m = np.meshgrid(np.linspace(0.02, 12, 200), np.linspace(-18, 3, 201), indexing="ij")
    z, weights = np.polynomial.hermite_e.hermegauss(60)
    logs = norm.logpdf(s, 0, 2.5) + norm.logpdf(m, -4, 3)
    for exposure, y in zip(EXPOSURE, EVENTS, strict=True):
        log_rate = m[..., None] + s[..., None] * z
        terms = y * log_rate - exposure * np.exp(log_rate)
        logs += logsumexp(terms, b=weights, axis=-1)
    density = np.exp(logs - logs.max())
    density /= density.sum()
    mean = np.sum(density * m)
    sd = np.sqrt(np.sum(density * m**2) - mean**2)
    fit = lb.nested(rare, EXPOSURE, EVENTS)
    assert fit.mean["middle"] == pytest.approx(mean, abs=0.05 * sd)
    assert fit.standard_deviation["middle"] == pytest.approx(sd, rel=0.05)
    assert fit.doubt is None and set(fit.over) == {"middle", "scale"}
    given_the_scale = lb.nested(rare, EXPOSURE, EVENTS, over="scale")
    assert given_the_scale.mean["middle"] == pytest.approx(mean, abs=0.5 * sd)
    assert given_the_scale.doubt is not None
