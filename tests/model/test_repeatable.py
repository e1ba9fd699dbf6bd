"""A model that computes with other numbers each time has no log joint, wherever it has them from."""

import functools
import random
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from scipy import stats

import laplacebook as lb
from laplacebook.model.repeatable import require_repeats

Y = np.array([1.0, 2.5, -0.5, 1.7])
#: where a number comes from that is another the next time
SOURCES = {
    "random": lambda: random.gauss(0, 1),
    "a new generator": lambda: np.random.default_rng().normal(),
    "an array": lambda: np.random.default_rng().normal(size=4),
    "a clock": time.time,
}


def shifted(source, y):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(mean + source(), 1).expand([4]).to_event(1), obs=y)


def prior(source, y):
    scale = 1 + abs(source()) % 1
    mean = numpyro.sample("mean", dist.Normal(0, scale))
    numpyro.sample("y", dist.Normal(mean, 1).expand([4]).to_event(1), obs=y)


def within_scan(source, y):
    mean = numpyro.sample("mean", dist.Normal(0, 1))

    def step(carry, now):
        numpyro.sample("y", dist.Normal(mean + source(), 1), obs=now)
        return carry, None

    scan(step, 0.0, y)


def weight(source, y):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    numpyro.factor("weight", -source() * (mean - y[0]) ** 2)


DRAWING = [(shifted, source) for source in SOURCES]
DRAWING += [(model, "random") for model in (prior, within_scan, weight)]


@pytest.mark.parametrize(("model", "source"), DRAWING)
def test_numbers_that_python_draws_are_refused(model, source):
    with pytest.raises(lb.UnsupportedModel, match=r"with\s+other\s+numbers\s+each\s+time"):
        lb.laplace(functools.partial(model, SOURCES[source]), Y)


@pytest.mark.parametrize("draw", [random.random, np.random.normal])  # noqa: NPY002
def test_a_plain_function_that_draws_is_refused_each_time(draw):
    def log_density(z):
        return -((z - draw()) ** 2) / 2

    for _ in range(2):
        with pytest.raises(lb.UnsupportedModel, match=r"no\s+one\s+log\s+joint"):
            lb.laplace_of_density(log_density, 0.0)


def test_keys_that_a_model_takes_one_after_another_are_refused():
    keys = iter(list(jax.random.split(jax.random.key(0), 100)))
    with pytest.raises(lb.UnsupportedModel, match=r"keeps\s+between\s+calls"):
        lb.laplace(lambda y: shifted(lambda: jax.random.normal(next(keys), (4,)), y), Y)


def test_operations_that_differ_each_time_do_not_repeat():
    calls = iter(range(100))

    def function():
        return [jnp.sin(jnp.ones(3)) if next(calls) % 2 else jnp.cos(jnp.ones(3))]

    with pytest.raises(lb.UnsupportedModel, match=r"keeps\s+between\s+calls"):
        require_repeats(function)


#: numbers that are the same the next time
STEADY = {
    "a generator with a seed": lambda: np.random.default_rng(0).normal(),
    "a key": lambda: jax.random.normal(jax.random.key(0), (4,)),
    "a cache": functools.cache(lambda: np.random.default_rng().normal(size=4)),
    "not a number": lambda: jnp.where(jnp.array([True, False, True, True]), 0.0, np.nan)[0],
}


@pytest.mark.parametrize("source", STEADY)
def test_numbers_that_stay_are_not(source):
    approx = lb.laplace(functools.partial(shifted, STEADY[source]), Y)
    expected = (Y - np.asarray(STEADY[source]())).sum() / 5
    assert approx.mode["mean"] == pytest.approx(expected)


def test_a_cache_that_the_first_trace_fills_does_not_matter():
    known = {}

    def function():
        if not known:
            known["x"] = 2.0
            return [jnp.sin(jnp.ones(3)) * 3.0]
        return [known["x"] * jnp.ones(3)]

    require_repeats(function)


class Settings:
    """As of a library that is not set up yet: whatever is asked of it that it does not have is an error."""

    scale = 2.0

    def __getattr__(self, name):
        raise RuntimeError(f"settings are not configured: {name}")


SETTINGS = [Settings()]


def configured(y):
    mean = numpyro.sample("mean", dist.Normal(0, SETTINGS[0].scale))
    numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def test_an_object_that_answers_no_other_question_is_read(monkeypatch):
    for scale in (2.0, 0.5):
        monkeypatch.setattr(Settings, "scale", scale)
        exact = stats.norm(0, np.hypot(1, scale)).logpdf(3.0)
        assert float(lb.laplace(configured, 3.0).log_evidence) == pytest.approx(exact)
