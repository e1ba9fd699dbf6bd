"""Bridge sampling against evidences that are known exactly."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import betaln

import laplacebook as lb
from tests.models import coin, single_precision

HEADS = np.repeat([1.0, 0.0], [8, 1])
EXACT = betaln(10, 3) - betaln(2, 2)
APPROX = lb.laplace(coin, HEADS)
KEY = jax.random.key(0)


def beta(number, seed=0):
    return {"theta": stats.beta(10, 3).rvs(number, random_state=seed)}


@pytest.fixture(scope="module")
def constrained():
    return lb.laplace(coin, HEADS, space="constrained")


def test_the_exact_evidence_in_the_constrained_space(constrained):
    estimate = lb.bridge_sampling(constrained, beta(20_000), KEY)
    assert abs(estimate.value - EXACT) < 4 * estimate.standard_error < 0.02


def test_a_gaussian_posterior_leaves_no_error():
    draws = {"z": np.random.default_rng(0).normal(size=(3000, 1))}
    estimate = lb.bridge_sampling(NORMAL, draws, KEY)
    np.testing.assert_allclose(estimate.value, np.log(2 * np.pi) / 2)
    assert estimate.standard_error < 1e-10


def test_draws_by_chain_with_what_else_a_sampler_returns():
    draws = beta(20_000)["theta"]
    by_chain = {"theta": draws.reshape(2, -1), "half": np.full((2, 10_000), 0.5)}
    estimate = lb.bridge_sampling(APPROX, by_chain, KEY)
    assert abs(estimate.value - EXACT) < 4 * estimate.standard_error < 0.01
    assert estimate.value == lb.bridge_sampling(APPROX, {"theta": draws}, KEY).value


@pytest.mark.parametrize("number", [2, 9])
def test_few_posterior_draws_tell_no_error(number):
    assert lb.bridge_sampling(APPROX, beta(number), KEY).standard_error == np.inf


def test_nor_do_they_where_each_is_many_in_a_short_chain():
    draws = {"theta": np.repeat(beta(5)["theta"], 60)}
    assert lb.bridge_sampling(APPROX, draws, KEY).standard_error == np.inf


def test_single_precision_settles():
    with single_precision():
        approx = lb.laplace(coin, HEADS.astype(np.float32))
        for i in range(5):
            estimate = lb.bridge_sampling(approx, beta(1000, i), jax.random.key(i))
            assert abs(estimate.value - EXACT) < 4 * estimate.standard_error < 0.05


def test_draws_that_repeat_each_other_count_less():
    draws = beta(1000)["theta"]
    once = lb.bridge_sampling(APPROX, {"theta": draws}, KEY, 100_000)
    often = lb.bridge_sampling(APPROX, {"theta": np.repeat(draws, 10)}, KEY, 100_000)
    assert 0.8 < often.standard_error / once.standard_error < 1.6  # not 1 / sqrt(10)


def simplex(y):
    share = numpyro.sample("share", dist.Dirichlet(jnp.array([2.0, 3.0, 4.0])))
    numpyro.sample("y", dist.Multinomial(6, share), obs=y)


def test_a_simplex_of_which_the_posterior_is_known():
    y = np.array([1.0, 2.0, 3.0])
    posterior = stats.dirichlet([3.0, 5.0, 7.0])
    exact = stats.dirichlet_multinomial([2.0, 3.0, 4.0], 6).logpmf([1, 2, 3])
    draws = {"share": posterior.rvs(4000, random_state=0)}
    estimate = lb.bridge_sampling(lb.laplace(simplex, y), draws, KEY)
    assert abs(estimate.value - exact) < 4 * estimate.standard_error < 0.05


def two_hills(z):
    return jnp.logaddexp(-((z - 50) ** 2) / 2, -((z + 50) ** 2) / 8)


def test_posterior_draws_show_a_mode_that_the_approximation_does_not_know():
    """Integral: sqrt(2 pi) (1 + 2). Importance sampling sees a third of it, and is sure of that."""
    approx = lb.laplace_of_density(two_hills, 49.0)
    rng = np.random.default_rng(0)
    low = rng.random(4000) < 2 / 3
    draws = np.where(low, -50 + 2 * rng.normal(size=4000), 50 + rng.normal(size=4000))
    exact = np.log(np.sqrt(2 * np.pi) * 3)
    estimate = lb.bridge_sampling(approx, {"z": draws}, KEY)
    assert abs(estimate.value - exact) < 4 * estimate.standard_error < 0.2
    missed = lb.importance_sampling(approx, KEY, proposal="gaussian")
    np.testing.assert_allclose(missed.value, exact - np.log(3), atol=1e-9)


NORMAL = lb.laplace_of_density(lambda z: -jnp.sum(z**2) / 2, jnp.full(1, 0.1))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("apart", "told"), [(-5.0, True), (4.0, True), (5.0, True), (6.0, False), (-6.0, False)]
)
def test_normals_that_are_five_standard_deviations_apart_still_meet(apart, told, seed):
    """Of 3,000 draws of each. Six apart, the means are those of a few draws."""
    q = replace(NORMAL, mode_vector=jnp.full(1, apart))
    draws = {"z": np.random.default_rng(seed).normal(size=(3000, 1))}
    estimate = lb.bridge_sampling(q, draws, jax.random.key(seed))
    if told:
        assert abs(estimate.value - np.log(2 * np.pi) / 2) < 3 * estimate.standard_error < 0.7
    else:
        assert estimate.standard_error == np.inf


def chain(correlation, number, rng):
    """An autoregressive chain whose stationary distribution is the posterior of the coin."""
    z = rng.normal(size=number) * np.sqrt(1 - correlation**2)
    z[0] /= np.sqrt(1 - correlation**2)
    for i in range(1, number):
        z[i] += correlation * z[i - 1]
    return {"theta": stats.beta(10, 3).ppf(stats.norm.cdf(z))}


def test_a_95_percent_interval_covers_95_times_in_a_hundred():
    """Of draws of a chain, which are worth a twentieth of their number."""
    rng, covered = np.random.default_rng(2), 0
    for i in range(150):
        draws = chain(0.9, 400, rng)
        estimate = lb.bridge_sampling(APPROX, draws, jax.random.key(i))
        covered += abs(estimate.value - EXACT) < 1.96 * estimate.standard_error
    assert 136 <= covered <= 149


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ({}, "lacks the latent sites"),
        ({"theta": np.full((10, 2, 3), 0.5)}, "one S for all sites"),
        ({"theta": 0.5}, "one S for all sites"),
        ({"theta": np.full(1, 0.5)}, "two draws or more"),
        ({"theta": np.full(100, 0.5)}, "All posterior draws are the same"),
        ({"theta": np.array([0.5, 1.5])}, "inside the support"),
        ({"theta": np.array([0.5, np.nan])}, "inside the support"),
    ],
)
def test_what_is_no_posterior_draw_is_refused(samples, message):
    with pytest.raises(ValueError, match=message):
        lb.bridge_sampling(APPROX, samples, KEY)


def test_batches_and_compiled_programs_are_refused():
    draws = {"theta": np.array([0.5, 0.6])}
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), APPROX)
    with pytest.raises(ValueError, match=r"batch.*on one at a time, jax\.tree\.map"):
        lb.bridge_sampling(batch, draws, KEY)
    with pytest.raises(ValueError, match="bridge_sampling looks at numbers.*cannot be compiled"):
        jax.vmap(lambda approx: lb.bridge_sampling(approx, draws, KEY).value)(batch)
    with pytest.raises(ValueError, match="bridge_sampling looks at numbers.*cannot be compiled"):
        jax.jit(lambda draws: lb.bridge_sampling(APPROX, draws, KEY).value)(draws)


def test_a_draw_outside_the_constrained_support_is_refused(constrained):
    with pytest.raises(ValueError, match="density zero"):
        lb.bridge_sampling(constrained, {"theta": np.array([0.5, 1.5])}, KEY)


def test_sites_that_differ_in_their_number_of_draws_are_refused():
    approx = lb.laplace(lambda y: (coin(y), numpyro.sample("b", dist.Normal(0, 1))), HEADS)
    with pytest.raises(ValueError, match="one S for all sites"):
        lb.bridge_sampling(approx, {"theta": np.full(5, 0.5), "b": np.zeros(6)}, KEY)
