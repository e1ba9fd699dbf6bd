"""Fits in several threads are those of one: NumPyro's handlers are one stack for all threads."""

import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb


def rate(y):
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([len(y)]).to_event(1))
    numpyro.sample("y", dist.Poisson(jax.numpy.exp(scale * z)).to_event(1), obs=y)


def mean(y):
    z = numpyro.sample("z", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(z, 1).expand([len(y)]).to_event(1), obs=y)


def one(number):
    y = np.random.default_rng(number).poisson(2.0, 3)
    fit = lb.laplace(mean, y[number % 2 :])
    found = [fit.log_evidence, lb.importance_sampling(fit, jax.random.key(number)).value]
    if number % 3 == 0:
        found.append(lb.laplace(lb.marginalize(rate, "z", "sparse"), y).log_evidence)
    return [float(x) for x in found]


@pytest.fixture
def often():
    """Threads take turns some thousand times more often than they do by themselves."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("often")
def test_they_do_not_disturb_each_other():
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(one, range(6)))
    alone = [one(number) for number in range(6)]
    for found, expected in zip(together, alone, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)
