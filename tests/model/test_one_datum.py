"""One datum for many means, and one number for all of them."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from tests.model.test_misfit import N, Y, exact, level


def alone(y, x):
    numpyro.sample("y", dist.Normal(level() + 0 * x, 1), obs=y)


def alone_in_an_event(y, x):
    numpyro.sample("y", dist.Normal(level() + 0 * x, 1).to_event(1), obs=y)


def alone_in_another_plate(y, x):
    mean = level() + 0 * x
    with numpyro.plate("rows", 1, dim=-2):
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def alone_in_a_plate(y, x):
    mean = level() + 0 * x
    with numpyro.plate("N", len(x)):
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def alone_with_one_mean(y, x):
    mean = level()
    with numpyro.plate("N", len(x)):
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)


ALONE = [alone, alone_in_an_event, alone_in_another_plate, alone_in_a_plate, alone_with_one_mean]


@pytest.mark.parametrize("model", ALONE)
@pytest.mark.parametrize("shape", [(1,), (1, 1)])
def test_one_datum_for_many_means(model, shape):
    with pytest.raises(lb.UnsupportedModel, match=r"of shape\s+\(1,.*(?s:.)*count\s+many\s+times"):
        lb.laplace(model, Y[:1].reshape(shape), Y)


ONE_NUMBER = {"a number": 0.3, "an array of shape ()": np.array(0.3)}


@pytest.mark.parametrize("y", ONE_NUMBER.values(), ids=ONE_NUMBER)
def test_one_number_for_many_means(y):
    """As in a constraint, obs=0.0."""
    fit = lb.laplace(alone, y, Y)
    np.testing.assert_allclose(fit.log_evidence, exact(np.full(N, 0.3), np.ones(N)), rtol=1e-9)
