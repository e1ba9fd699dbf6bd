"""A model that standardises its rows predicts others by other numbers: it is warned of; no other model is."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.model.arguments import Call
from laplacebook.model.density import ModelDensity
from laplacebook.predictive.rows_together import warn_of_rows_together

rng = np.random.default_rng(0)
X = rng.normal(10, 3, size=60)
Y = rng.uniform(size=60) < 1 / (1 + np.exp(-(X - 10)))
GROUP = np.arange(60) % 6
SHIFT = {
    "mean": lambda x: x - x.mean(),
    "range": lambda x: (x - x.min()) / (x.max() - x.min()),
    "rank": lambda x: jnp.argsort(jnp.argsort(x)) / x.size,
}


def logit(x, y=None, shift=lambda x: x - 10):
    a, b = (numpyro.sample(name, dist.Normal(0, 5)) for name in "ab")
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=a + b * shift(x)), obs=y)


def grouped(x, group, y=None):
    s = numpyro.sample("s", dist.HalfNormal(1))
    with numpyro.plate("groups", 6):
        a = numpyro.sample("a", dist.Normal(0, s))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Poisson(jnp.exp(a[group] + 0.1 * (x - 10))), obs=y)


def series(x, y=None):
    b, s = numpyro.sample("b", dist.Normal(0, 1)), numpyro.sample("s", dist.HalfNormal(1))
    numpyro.sample("y", dist.Normal(b * jnp.cumsum(x - 10), s).to_event(1), obs=y)


@pytest.mark.parametrize("how", SHIFT)
def test_one_that_standardises_its_rows_is_warned_of(how):
    fit = lb.laplace(logit, X, Y, shift=SHIFT[how])
    with pytest.warns(lb.DoubtfulFit, match="with all of its rows together"):
        lb.predict(fit, np.array([14.0, 15.0]), shift=SHIFT[how])


def test_a_nested_one_too():
    def model(x, group, y=None):
        grouped(x - x.mean() + 10, group, y)

    fit = lb.nested(model, X, GROUP, rng.poisson(2, size=60))
    with pytest.warns(lb.DoubtfulFit, match="with all of its rows together"):
        lb.predict(fit, X[:3] + 5, GROUP[:3], key=jax.random.key(0), num_samples=100)


def test_no_other_is():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lb.predict(lb.laplace(logit, X, Y), np.array([14.0, 15.0]))
        density = ModelDensity.of(grouped, (X, GROUP, rng.poisson(2, size=60)))
        warn_of_rows_together(density, Call.of(grouped, (X[:3], GROUP[:3])))


def test_of_a_series_one_is_told_what_it_is():
    """Its rows are what they are by those before."""
    fit = lb.laplace(series, X, np.cumsum(X - 10) * 0.5 + rng.normal(size=60))
    with pytest.warns(lb.DoubtfulFit, match="to standardise them, say"):
        lb.predict(fit, X[:5])
