"""Draws that are put right by weights, where their tail allows it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import laplacebook as lb
from laplacebook.base.weights import pareto_smoothed
from laplacebook.beyond.weighted_draws import weighted_draws

KEY = jax.random.key(0)


def coin(y):
    theta = numpyro.sample("theta", dist.Beta(2, 2))
    numpyro.sample("y", dist.Binomial(9, theta), obs=y)


@pytest.fixture(scope="module")
def gaussian():
    return lb.laplace(coin, 8)


def test_the_coin_is_exact_but_for_chance(gaussian):
    """Beta(10, 3), over ten keys: each within four standard errors, and these as they are told."""
    exact = stats.beta(10, 3)
    off = []
    for k in range(10):
        approx = lb.resampled(gaussian, jax.random.key(k), 4_000)
        error = exact.std() / approx.effective_sample_size**0.5
        off.append((float(approx.mean["theta"]) - exact.mean()) / error)
        ends = np.asarray(approx.quantiles([0.05, 0.95])["theta"])
        assert exact.cdf(ends) == pytest.approx([0.05, 0.95], abs=0.015)
    assert np.max(np.abs(off)) < 4
    assert 0.4 < np.std(off) < 1.6


def test_the_evidence_has_its_error(gaussian):
    found = lb.resampled(gaussian, KEY, 4_000).importance_log_evidence
    assert abs(float(found.value) - np.log(9 / 110)) < 4 * float(found.standard_error)


def test_draws_come_by_their_weights(gaussian):
    approx = lb.resampled(gaussian, KEY, 4_000)
    draws = np.asarray(approx.sample(jax.random.key(1), (20_000,))["theta"])
    assert draws.mean() == pytest.approx(float(approx.mean["theta"]), abs=0.005)
    assert np.isin(draws, np.asarray(approx._weighted["theta"][0])).all()


def test_weights_are_the_density_over_that_of_the_draws(gaussian):
    """Half of the Gaussian and half of a Student-t, by SciPy."""
    draws = weighted_draws(gaussian, KEY, 100)
    mode = float(gaussian.mode_vector[0])
    scale = float(gaussian.precision.matrix[0, 0]) ** -0.5
    u = draws.u[:, 0]
    law = (stats.norm(mode, scale).pdf(u) + stats.t(5, mode, scale).pdf(u)) / 2
    heights = np.asarray(jax.jit(jax.vmap(gaussian.density.log_joint))(draws.u))
    np.testing.assert_allclose(draws.log_weights, heights - np.log(law), rtol=1e-9)


def heavy(x):
    """A Cauchy distribution, of which no weights of Student-t draws with five degrees have a mean square."""
    return -jnp.log1p(x**2)


def test_a_tail_that_draws_do_not_reach_is_refused():
    fit = lb.laplace_of_density(heavy, jnp.array(0.1))
    with pytest.raises(
        lb.LaplaceError, match=r"(?s)k-hat of the\s+weights is .*above 0\.7.*lb\.nuts"
    ):
        lb.resampled(fit, KEY, 10_000)


def test_few_draws_that_carry_all_are_refused():
    """Twenty numbers of another spread than their Gaussian has; k-hat is that of a bounded weight."""
    fit = lb.laplace_of_density(lambda x: -jnp.sum(x**4) - x @ x / 200, jnp.zeros(20))
    with pytest.raises(lb.LaplaceError, match="cannot be put right"):
        lb.resampled(fit, KEY, 400)


def test_arguments_that_are_none_are_refused(gaussian):
    with pytest.raises(ValueError, match="num_samples must be 100 or more"):
        lb.resampled(gaussian, KEY, 99)
    assert len(lb.resampled(gaussian, KEY, 100).u) == 100
    with pytest.raises(TypeError, match="resampled already"):
        lb.resampled(lb.resampled(gaussian, KEY, 100), KEY)
    with pytest.raises(ValueError, match="cannot be compiled"):
        jax.jit(lambda key: lb.resampled(gaussian, key).log_evidence)(KEY)


def test_smoothed_weights_are_those_of_the_fitted_tail():
    """Of a Pareto distribution of shape 1/2: the order stays, the tail is its quantiles, k-hat near 1/2."""
    rng = np.random.default_rng(0)
    raw = np.log(rng.pareto(2, 100_000) + 1)
    smooth, k = pareto_smoothed(raw)
    assert k == pytest.approx(0.5, abs=0.1)
    assert np.exp(smooth).sum() == pytest.approx(1)
    assert (np.argsort(smooth, kind="stable") == np.argsort(raw, kind="stable")).all()
    below = raw < np.quantile(raw, 0.9)
    assert np.ptp((smooth - raw)[below]) < 1e-9
    assert np.ptp((smooth - raw)[~below]) > 1e-3
    equal, k = pareto_smoothed(np.zeros(100))
    assert k == -np.inf
    assert equal == pytest.approx(-np.log(100))


def test_a_draw_without_weight_has_no_rounding():
    """Beside a scale of zero the log joint is -1e30, or lower: the error of the evidence is not that of such a draw."""

    def extremes(y):
        m = numpyro.sample("m", dist.Normal(0, 100))
        s = numpyro.sample("s", dist.HalfCauchy(10))
        numpyro.sample("y", dist.Gumbel(m, s).expand([8]).to_event(1), obs=y)

    y = np.array([30.0, 42, 55, 38, 61, 90, 33, 47])
    fit = lb.laplace(extremes, y, space="constrained")
    found = lb.resampled(fit, jax.random.key(1), 4_000).importance_log_evidence
    assert found.standard_error < 0.1
    assert abs(found.value + 37.9275) < 4 * found.standard_error  # by a grid
