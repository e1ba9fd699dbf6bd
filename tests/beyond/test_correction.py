"""The log marginal of hyperparameters, corrected by mean ratios, beside filters that know it."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import laplacebook as lb
from laplacebook.beyond.fitted_log_mean import fitted_log_mean, moved, polynomial, standardized


def test_the_fit_finds_the_logarithm_of_a_mean():
    """Of ratios with a relative spread of 1, whose logarithm has a mean that is lower by 0.58 nats."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(20_000, 2))
    terms = polynomial(x, 3)
    right = rng.normal(size=10) / 2 + np.eye(10)[0]
    found = fitted_log_mean(terms, terms @ right + np.log(rng.exponential(size=len(x))))
    assert abs(terms @ (found - right)).mean() < 0.03
    assert np.log(rng.exponential(size=len(x))).mean() == pytest.approx(-0.577, abs=0.02)


def test_terms_that_are_one_another_change_nothing():
    x = np.repeat([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]], 50, axis=0)
    logs = np.where(np.arange(len(x)) % 2, -np.inf, x[:, 0])
    found = polynomial(x, 2) @ fitted_log_mean(polynomial(x, 2), logs)
    np.testing.assert_allclose(found, np.log((np.exp(x[:, 0]) + 0.01) / 2), atol=1e-5)


def test_how_far_weights_move_a_mean_or_a_deviation():
    rng = np.random.default_rng(1)
    hyper = rng.normal(size=(4000, 2)) @ [[3.0, 1.0], [0.0, 0.2]]
    points = standardized(hyper, np.zeros(len(hyper)))
    assert moved(points, np.zeros(len(hyper))) == pytest.approx(0, abs=1e-12)
    assert moved(points, points[:, 0] / 2) == pytest.approx(0.5, abs=0.05)
    assert moved(points, -1.5 * points[:, 1] ** 2) == pytest.approx(0.5, abs=0.05)


def trend(y):
    step = numpyro.sample("step", dist.HalfNormal(1))
    noise = numpyro.sample("noise", dist.HalfNormal(1))
    level = numpyro.sample("level", dist.GaussianRandomWalk(step, num_steps=len(y)))
    numpyro.sample("y", dist.StudentT(4, level, noise).to_event(1), obs=y)


def observed(seed):
    rng = np.random.default_rng(seed)
    return np.cumsum(0.3 * rng.standard_t(3, size=30)) + 0.5 * rng.normal(size=30)


def log_likelihood(y, step, noise):
    """By a filter of 400 levels or more."""
    low, high = y.min() - 4 * noise - 2 * step, y.max() + 4 * noise + 2 * step
    levels = np.linspace(low, high, max(400, int((high - low) / step * 4)))
    cell = levels[1] - levels[0]
    away = np.arange(-int(7 * step / cell), int(7 * step / cell) + 1) * cell
    kernel = np.exp(-((away / step) ** 2) / 2)
    density, total = stats.norm.pdf(levels, 0, step), 0.0
    for t, value in enumerate(y):
        if t:
            whole = np.convolve(density, kernel / kernel.sum())
            density = whole[len(away) // 2 :][: len(levels)]
        density = density * stats.t.pdf((value - levels) / noise, 4) / noise
        mass = density.sum() * cell
        density, total = density / mass, total + np.log(mass)
    return total


def exact(fit, y):
    """Means and standard deviations of step and noise, with the likelihood by the filter at the points of the grid."""
    values = np.exp(fit.grid.conditional.hyper)
    prior = stats.halfnorm.logpdf(values) + np.log(values)
    logs = prior.sum(axis=1) + [log_likelihood(y, *value) for value in values]
    weights = np.exp(logs - logs.max())
    mean = np.average(values, axis=0, weights=weights)
    return mean, np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weights))


def test_a_correction_that_leads_away_is_right_where_it_leads():
    """Where ratios at the first pairs alone would leave the deviation of the steps too small by a quarter."""
    y = observed(6)
    fit = lb.nested(trend, y)
    assert fit.doubt is None and fit.pareto_k > 0.7
    mean, deviation = exact(fit, y)
    found = [
        np.array([float(part[name]) for name in fit.over])
        for part in (fit.mean, fit.standard_deviation)
    ]
    assert np.all(abs(found[0] - mean) < 0.1 * deviation)
    assert np.all(abs(np.log(found[1] / deviation)) < 0.1)
    uneven = replace(
        fit.skewed
    )  # as of items of a test: so far a mean was off by three quarters of a deviation
    vars(uneven)["pareto_k"] = 0.78
    assert "correction by mean ratios" in replace(fit, skewed=uneven).doubt


def test_a_correction_that_leads_far_is_doubtful():
    """That of these data is off by a fifth of a standard deviation, and Pareto k-hat below 0.7 does not say so."""
    fit = lb.nested(trend, jnp.asarray(observed(4)))
    assert fit.pareto_k < 0.7
    assert "correction by mean ratios moves step and noise by 0." in fit.doubt
    assert "not corrected" not in repr(fit)
