"""A zero among the data at which a function of the model has no derivative is named, and what is offered works."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.model.density import ModelDensity
from laplacebook.model.not_finite import not_finite

LO, HI = np.array([0.5, 0.0, 1.0, 2.0]), np.array([3.0, 1.0, 2.0, 4.0])


def intervals(lo, hi, below):
    mu = numpyro.sample("mu", dist.Normal(0, 2))
    numpyro.factor("seen", jnp.log(dist.LogNormal(mu, 1.0).cdf(hi) - below(mu, lo)).sum())


def plain(mu, lo):
    return dist.LogNormal(mu, 1.0).cdf(lo)


def as_offered(mu, lo):
    return jnp.where(lo > 0, dist.LogNormal(mu, 1.0).cdf(jnp.where(lo > 0, lo, 1.0)), 0.0)


def test_the_argument_and_the_row_are_named():
    with pytest.raises(lb.NonFinite, match=r"argument 'lo' is 0, first at\s+\[1\]") as caught:
        lb.laplace(intervals, LO, HI, plain)
    text = " ".join(str(caught.value).split())
    assert "a zero in lo a term" in text and "'hi'" not in text
    exact = lb.laplace(intervals, np.where(LO > 0, LO, 1e-9), HI, plain)
    approx = lb.laplace(intervals, LO, HI, as_offered)
    assert approx.log_evidence == pytest.approx(float(exact.log_evidence))


def test_a_random_key_is_no_number():
    def with_key(key, lo, hi):
        intervals(lo, hi, plain)
        numpyro.factor("none", 0 * jax.random.normal(key))

    with pytest.raises(lb.NonFinite, match="argument 'lo' is 0"):
        lb.laplace(with_key, jax.random.key(0), LO, HI)


def test_a_zero_that_does_no_harm_is_not():
    def root(x, lo):
        a = numpyro.sample("a", dist.Normal(0, 1))
        numpyro.factor("f", -jnp.sqrt(jnp.abs(a)) * (1 + x.sum() + lo.sum()))

    density = ModelDensity.of(root, (np.zeros(2), LO), {})
    told = str(not_finite(density, jnp.zeros(1)))
    assert "argument" not in told and "norm at zero" in told
