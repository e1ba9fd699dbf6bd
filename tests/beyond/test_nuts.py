"""NumPyro's sampler, begun where an approximation has its mass."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import laplacebook as lb
from laplacebook.beyond import nuts as verb

KEY = jax.random.key(0)


def line(x, y=None):
    """Sites of which the order in the model is not that of the alphabet."""
    z = numpyro.sample("z", dist.Normal(0, 3))
    a = numpyro.sample("a", dist.HalfNormal(2))
    numpyro.sample("y", dist.Normal(z + 40 * x, a), obs=y)


def pair(x):
    """A narrow ridge: standard deviations of a hundred and of one."""
    return -((x[0] / 100) ** 2) / 2 - (x[1] - x[0]) ** 2 / 2


@pytest.fixture(scope="module")
def ridge():
    return lb.laplace_of_density(pair, jnp.zeros(2))


def test_chains_begin_at_draws_with_the_covariance_as_metric(ridge, monkeypatch):
    seen = {}

    class Stop(Exception):
        pass

    class Spy:
        def __init__(self, kernel, **named):
            seen["metric"] = np.asarray(kernel._inverse_mass_matrix)
            seen["dense"] = kernel._dense_mass

        def run(self, key, init_params, extra_fields):
            seen["starts"] = np.asarray(init_params)
            raise Stop

    monkeypatch.setattr(verb, "MCMC", Spy)
    with pytest.raises(Stop):
        lb.nuts(ridge, KEY, num_chains=64)
    np.testing.assert_allclose(seen["metric"], ridge.covariance)
    assert seen["dense"]
    assert seen["starts"].shape == (64, 2)
    assert seen["starts"][:, 0].std() == pytest.approx(100, rel=0.3)


def test_sites_come_on_the_scale_of_the_model_with_the_data():
    x = np.linspace(0, 1, 30)
    y = 1 + 40 * x + np.random.default_rng(0).normal(0, 0.5, 30)
    found = lb.nuts(lb.laplace(line, x, y), KEY, 400, num_warmup=200, num_chains=2)
    assert not np.asarray(found.sample_stats["diverging"]).any()
    assert np.asarray(found.sample_stats["n_steps"]).mean() < 10
    z, a = (np.asarray(found.posterior[name]) for name in "za")
    assert z.shape == a.shape == (2, 400)
    assert a.min() > 0
    assert z.mean() == pytest.approx(np.mean(y - 40 * x), abs=0.05)
    assert a.mean() == pytest.approx(np.std(y - 40 * x), rel=0.1)
    np.testing.assert_array_equal(found.observed_data["y"], y)
    exact = stats.norm(0, 3).logpdf(z) + stats.halfnorm(scale=2).logpdf(a) + np.log(a)
    exact += stats.norm(z[..., None] + 40 * x, a[..., None]).logpdf(y).sum(axis=-1)
    np.testing.assert_allclose(np.asarray(found.sample_stats["lp"]), exact, atol=1e-6)
    alone = lb.nuts(lb.laplace(line, x, y), KEY, 50, num_warmup=50, num_chains=1)
    assert alone.posterior["z"].shape == (1, 50)


@pytest.mark.usefixtures("types_unchecked")
def test_what_is_no_start_is_refused(ridge):
    with pytest.raises(ValueError, match="num_chains must be"):
        lb.nuts(ridge, KEY, num_chains=0)
    with pytest.raises(TypeError, match="takes what laplace"):
        lb.nuts(1.0, KEY)
    constrained = lb.laplace(line, np.zeros(3), np.arange(3.0), space="constrained")
    with pytest.raises(lb.UnsupportedModel, match="constrained space"):
        lb.nuts(constrained, KEY)


def test_a_mixture_starts_chains_too():
    """Two modes eight standard deviations apart, of shares 1/2: the chains begin in both."""

    def two(x):
        return jnp.logaddexp(-((x - 4) ** 2) / 2, -((x + 4) ** 2) / 2)

    approx = lb.mixture([lb.laplace_of_density(two, jnp.array(s)) for s in (-4.0, 4.0)])
    starts = np.asarray(approx.sample_vector(KEY, (16,)))
    assert np.ptp(starts) > 6
    assert verb._covariance(approx)[0, 0] == pytest.approx(17, rel=0.05)


def test_a_start_where_there_is_no_density_is_refused():
    """Half of the draws of the Gaussian about 0.1 lie below zero."""
    fit = lb.laplace_of_density(
        lambda x: jnp.where(x > 0, -((x - 0.1) ** 2) / 2, -jnp.inf), jnp.array(0.1)
    )
    with pytest.raises(lb.NonFinite, match="where a chain"):
        lb.nuts(fit, KEY, num_chains=16)


@pytest.mark.parametrize("name", ["chain", "draw"])
def test_a_site_with_the_name_of_an_axis_is_refused_before_the_sampling(name, monkeypatch):
    monkeypatch.setattr(verb, "MCMC", None)
    fit = lb.laplace(lambda: numpyro.sample(name, dist.Normal(0, 1)))
    with pytest.raises(lb.UnsupportedModel, match=f"A site is called '{name}'"):
        lb.nuts(fit, KEY)
