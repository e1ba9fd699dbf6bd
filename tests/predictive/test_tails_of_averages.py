"""An average over draws that another key would not give again is refused; so is no mean or variance."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.stats import norm

import laplacebook as lb
from laplacebook.predictive import averages
from laplacebook.predictive.averages import tail_over_draws, told_below

KEY = jax.random.key(0)


def observed(distribution):
    """A site w that the data say nothing of at x = 0: it is N(0, 1), exactly."""

    def model(x, y=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("N", len(x)):
            numpyro.sample("y", distribution(w, x), obs=y)

    return model


def pareto(w, k):
    """The mean is a draw of the Pareto distribution of which k-hat is the k."""
    return dist.Normal(norm.sf(w) ** -k, 1.0)


#: an outcome, a datum at x = 0, where the average is told by the draws, where it is not
OUTCOMES = {
    "log-normal of unknown sigma": (lambda w, x: dist.LogNormal(0, jnp.exp(w * x)), 1.0, 0.1, 0.5),
    "a count far from the data": (lambda w, x: dist.Poisson(jnp.exp(w * x)), 1, 0.5, 4.0),
    "a large offset": (lambda w, x: dist.Normal(1e6 - jnp.exp(w * x), 1.0), 1e6, 0.5, 4.0),
    "a division by zero": (lambda w, x: dist.Normal(x / (w + 9 - 9 * x), 1.0), 0.0, 0.1, 1.0),
    "the threshold": (pareto, 1.0, 0.5, 0.95),
}


@cache
def fit_of(name):
    """The fit, where an average is told by the draws, and where it is not."""
    distribution, y, near, far = OUTCOMES[name]
    return lb.laplace(observed(distribution), np.zeros(1), np.array([y])), near, far


@pytest.mark.parametrize("name", OUTCOMES)
def test_an_average_that_the_draws_do_not_tell(name):
    approx, near, far = fit_of(name)
    for key in jax.random.split(KEY, 5):
        options = {"key": key, "num_samples": 4000, "method": "monte_carlo"}
        assert np.isfinite(lb.predict(approx, np.array([near]), **options).mean).all()
        with pytest.raises(lb.NonFinite, match="k-hat = ") as caught:
            lb.predict(approx, np.array([far]), **options)
    message = " ".join(str(caught.value).split())
    assert "take quantiles of draws of the outcome" in message and "above 0.7" in message


@pytest.mark.parametrize("num_samples", [200, 500])
def test_a_light_tail_is_no_false_alarm(num_samples):
    approx, near, _ = fit_of("a count far from the data")
    for key in jax.random.split(KEY, 40):
        found = lb.predict(approx, np.array([near]), key=key, num_samples=num_samples)
        assert np.isfinite(found.noise).all()


def test_few_draws_need_a_heavier_tail():
    assert told_below(500) == 0.7 and told_below(499) == 1.0
    approx, _, far = fit_of("log-normal of unknown sigma")
    for key in jax.random.split(KEY, 10):
        with pytest.raises(lb.NonFinite, match="above 1.0"):
            lb.predict(approx, np.array([2 * far]) * 0.9, key=key, num_samples=400)


@pytest.mark.parametrize("kept", ["every value", "some computed again"])
def test_one_row_among_many(kept, monkeypatch):
    approx, near, far = fit_of("a count far from the data")
    if kept != "every value":
        monkeypatch.setattr(averages, "_KEPT", 0)
    x = np.full(50 if kept == "every value" else 51, near)
    assert np.isfinite(lb.predict(approx, x, key=KEY).mean).all()
    x[37] = far
    with pytest.raises(lb.NonFinite, match="k-hat = "):
        lb.predict(approx, x, key=KEY)
    assert np.isfinite(lb.predict(approx, x, method="plug_in").mean).all()


def test_a_noise_that_the_draws_do_not_tell_is_none():
    def counts(w, x):
        return dist.NegativeBinomial2(3.0, jnp.exp(w * x))

    approx = lb.laplace(observed(counts), np.zeros(1), np.array([3]))
    far = lb.predict(approx, np.array([4.0]), key=KEY)
    assert far.mean == pytest.approx([3.0]) and np.isnan(far.noise).all()
    near = lb.predict(approx, np.array([0.3]), key=KEY)
    assert near.noise == pytest.approx([3 + 9 * np.exp(0.3**2 / 2)], rel=0.1)


def test_a_noise_that_is_infinite_for_some_draws_is_infinite():
    def heavy(w, x):
        return dist.StudentT(1.2 + jnp.exp(w * x), w, 1.0)

    approx = lb.laplace(observed(heavy), np.zeros(1), np.array([0.0]))
    found = lb.predict(approx, np.array([0.5]), key=KEY)
    assert np.isposinf(found.noise).all() and abs(found.mean[0]) < 0.2


def test_probabilities_have_a_mean_whatever_the_draws():
    approx = lb.laplace(
        observed(lambda w, x: dist.Bernoulli(logits=w * x - 9)), np.zeros(1), np.array([0])
    )
    found = lb.predict(approx, np.array([4.0]), key=KEY, method="monte_carlo")
    assert 0 < found.value[0] < 0.2


@pytest.mark.parametrize("k", [0.3, 0.6, 0.9])
def test_k_is_that_of_the_distribution(k):
    tail = ((np.arange(4000) + 0.5) / 4000) ** -k
    for values in (tail, -tail, 1e3 + tail):
        assert tail_over_draws(values[:, None]) == pytest.approx(k, abs=0.1)
    assert tail_over_draws(1e200 * tail[:, None]) == pytest.approx(k, abs=0.1)


def test_without_a_tail_there_is_no_k():
    normal = np.random.default_rng(0).normal(size=(1000, 3))
    constant = np.ones((1000, 1)) * (1 + np.finfo(float).eps * (np.arange(1000) % 97 == 0)[:, None])
    huge = np.where(np.arange(1000)[:, None] % 2, 1e200, -1e200)
    infinite = np.where(np.arange(1000)[:, None] == 5, np.inf, 1.0)
    for values in (normal, huge, infinite, constant, np.zeros((1000, 2)), np.zeros((1, 0))):
        assert tail_over_draws(values) == -np.inf


def test_under_jit_it_is_not_looked_at():
    approx, near, _ = fit_of("a count far from the data")
    x = np.array([near])
    np.testing.assert_allclose(
        jax.jit(lambda x: lb.predict(approx, x, key=KEY).mean)(x),
        lb.predict(approx, x, key=KEY).mean,
    )


class WrongMean(dist.HalfNormal):
    mean = property(lambda self: -self.scale)


class WrongVariance(dist.HalfNormal):
    variance = property(lambda self: -self.scale)


@pytest.mark.parametrize(
    ("distribution", "says", "method"),
    [
        (WrongMean, "outside\\s+of its support", "monte_carlo"),
        (WrongVariance, "The variance of the outcome", "plug_in"),
    ],
)
def test_a_mean_outside_of_the_support_or_a_negative_variance(distribution, says, method):
    approx = lb.laplace(
        observed(lambda w, x: distribution(jnp.exp(w * x))), np.zeros(1), np.array([1.0])
    )
    with pytest.raises(lb.NonFinite, match=says):
        lb.predict(approx, np.ones(2), method=method, key=KEY)


@pytest.mark.parametrize("side", [-1, 1])
def test_a_truncated_normal_in_its_tail(side):
    """Of a standard normal between 30 and 40, by arithmetic of 400 digits, times 0.1."""
    ends = np.sort([side * 3.0, side * 4.0])

    def tail(w, x):
        return dist.TruncatedNormal(w * x, 0.1, low=ends[0], high=ends[1])

    approx = lb.laplace(observed(tail), np.zeros(1), np.array([side * 3.01]))
    found = lb.predict(approx, np.zeros(2), key=KEY)
    assert found.mean == pytest.approx(side * 3.003325966743368, rel=1e-10)
    assert found.noise == pytest.approx(1.103771511890091e-05, rel=1e-8)
