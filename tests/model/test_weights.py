"""Scales of handlers.scale that are not positive: of a negative one the likely is unlikely."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import laplacebook as lb

Y = np.array([0.3, -0.2, 1.1, 0.7])
WEIGHTS = np.array([1.0, 0.5, 2.0, 1.0])
NEGATIVE = np.array([1.0, 1.0, -0.5, 1.0])  # their sum is positive: there is a mode


def data_scaled(weights, y=None):
    m = numpyro.sample("m", dist.Normal(0, 1))
    with handlers.scale(scale=weights):
        numpyro.sample("y", dist.Normal(m + 0 * weights, 1), obs=y)


def prior_scaled(weights, y):
    with handlers.scale(scale=weights[2]):
        m = numpyro.sample("m", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(m + 0 * weights, 1), obs=y)


def twice(weights, y):
    with handlers.scale(scale=2.0):
        data_scaled(weights, y)


def held(weights, y):
    data_scaled(-0.1 + 0 * Y if weights is NEGATIVE else WEIGHTS, y)


KEY = jax.random.key(0)
CALLS = {
    "data": lambda w: lb.laplace(data_scaled, w, Y),
    "the prior": lambda w: lb.laplace(prior_scaled, w, Y),
    "within another": lambda w: lb.laplace(twice, w, Y),
    "a number of the model": lambda w: lb.laplace(lambda y: held(w, y), Y),
    "maximum_likelihood": lambda w: lb.maximum_likelihood(data_scaled, w, Y),
    "start": lambda w: lb.laplace(data_scaled, w, Y, start={"m": 0.2}),
    "constrained": lambda w: lb.laplace(data_scaled, w, Y, space="constrained"),
    "prior_sampling": lambda w: lb.prior_sampling(data_scaled, w, Y, key=KEY),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_negative_scale_is_refused(call):
    call(WEIGHTS)
    with pytest.raises(lb.LaplaceError, match="not\\s+positive|is NaN or\\s+infinite"):
        call(NEGATIVE)


def test_a_negative_scale_of_a_compiled_fit():
    fit = jax.jit(lambda w: lb.laplace(data_scaled, w, Y).log_evidence)
    assert np.isfinite(fit(WEIGHTS)) and np.isnan(fit(NEGATIVE))


def test_a_datum_that_counts_0_times():
    fit = lb.laplace(data_scaled, np.array([1.0, 0, 1, 1]), Y)
    np.testing.assert_allclose(fit.mode["m"], Y[[0, 2, 3]].sum() / 4, rtol=1e-9)


def test_a_weight_for_each_row_is_no_weight_of_a_prior():
    """Around the whole model it would count the prior as often as there are rows."""

    def line(x, y):
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(w * x, 1), obs=y)

    def weighted(x, y, times):
        with numpyro.handlers.scale(scale=times):
            line(x, y)

    x, y = np.arange(5.0), np.ones(5)
    with pytest.raises(lb.UnsupportedModel, match=r"prior of 'w'.* it\s+would count 5"):
        lb.laplace(weighted, x, y, np.ones(5))
    for one in (np.ones(()), np.ones(1)):
        once = lb.laplace(weighted, x, y, one)
        assert once.log_evidence == pytest.approx(float(lb.laplace(line, x, y).log_evidence))
