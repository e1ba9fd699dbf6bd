"""From both sides: what a prediction refuses, and where it has no number."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

import laplacebook as lb
from laplacebook.predictive.averages import Averages, _of_angles, tail_over_draws
from laplacebook.predictive.outcomes import _in_support, _outcome
from laplacebook.predictive.predict import _require_averages
from tests.thresholds import Refused, check, sides

EPS = np.finfo(float).eps


def curved(bend):
    """A logit w + bend w^2, of which the data say nothing: w is N(0, 1)."""

    def model(x, y=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.sample("y", dist.Bernoulli(logits=x * (w + bend * w**2)).to_event(1), obs=y)

    approx = lb.laplace(model, np.zeros(1), np.ones(1))
    return float(lb.predict(approx, np.ones(1))[0])


def pareto(k):
    return jnp.asarray((np.arange(1, 4001) / 4000) ** -k)[:, None]


def told(number, of):
    """Averages of so many draws whose tail has that k, of the mean or of the noise: k-hat is 0.7 at 0.7564."""

    def average(k):
        tail, still = pareto(k)[4000 - number :], jnp.zeros((number, 0))
        heaviest = (tail, still) if of == "mean" else (still, tail)
        one = jnp.ones(1)
        return float(_require_averages(Averages(one, one, one, one, heaviest), True)[1][0])

    return average


def equal(number):
    """So many of a thousand draws as far from the median as the farthest, and all others on it."""
    return tail_over_draws(np.where(np.arange(1000) < number, 1.0, 0.0)[:, None])


def apart(size):
    """One of a thousand draws, which are one, is farther by so much."""
    return tail_over_draws(1 + np.where(np.arange(1000) < 1, size, 0.0)[:, None])


def direction(length):
    """Of a mean of cosine and sine that is so long."""
    of_three = (jnp.zeros(1), jnp.full(1, length), jnp.full(1, length))
    return float(_of_angles(of_three, (jnp.zeros(1),) * 3, jnp.zeros(1)).mean[0])


def of_concentration(concentration):
    return float(_outcome(dist.VonMises(1.0, concentration)).mean)


def outputs(number):
    """The variances of the sum and of the difference of two outputs of a row, where they are told."""

    def model(x, y=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(w * x, 1).to_event(2), obs=y)

    approx = lb.laplace(model, np.ones((2, number)), np.zeros((2, number)))
    found = lb.predict(approx, np.ones((3, number))).epistemic_covariance
    return None if found is None else (found.shape, float(found[0, 0, 1]))


NO_MEAN = Refused(lb.NonFinite, "k-hat = 0.7.*above 0.7")
CIRCULAR = 8 * EPS

THRESHOLDS = {
    "a predictor that is linear": (
        curved,
        (0.0, 0.5),
        (3.2e-6, 0.5),
        (3.6e-6, Refused(lb.UnsupportedModel, "linear in the parameters")),
        (-3.6e-6, Refused(lb.UnsupportedModel, "linear in the parameters")),
    ),
    "a mean that draws tell": (told(4000, "mean"), (0.755, 1.0), (0.758, NO_MEAN)),
    "a noise that draws tell": (told(4000, "noise"), (0.755, 1.0), (0.758, np.nan)),
    "as many draws as have a fiftieth of the variance": (equal, (50, -np.inf), (49, np.inf)),
    "draws that differ": (apart, (999 * EPS, -np.inf), (1001 * EPS, np.inf)),
    "a mean within the support": (
        lambda units: bool(_in_support(constraints.unit_interval, jnp.asarray(1 + units * EPS))),
        (8, True),
        (9, False),
    ),
    "a mean below the upper end": (
        lambda units: bool(_in_support(constraints.less_than(1.0), jnp.asarray(1 + units * EPS))),
        (8, True),
        (9, False),
    ),
    "a mean above the lower end": (
        lambda units: bool(
            _in_support(constraints.greater_than(1.0), jnp.asarray(1 - units * EPS))
        ),
        (7.5, True),
        (8.5, False),
    ),
    "a direction": (direction, (1.01 * CIRCULAR, np.pi / 2), (0.99 * CIRCULAR, np.nan)),
    "a direction of one angle": (of_concentration, (2.5 * CIRCULAR, 1.0), (1.5 * CIRCULAR, np.nan)),
    "outputs with a covariance": (
        outputs,
        (2, ((3, 2, 2), pytest.approx(1 / 5))),
        (100, ((3, 100, 100), pytest.approx(1 / 201))),
        (101, None),
        (1, None),
    ),
}


@pytest.mark.parametrize(("act", "x", "result"), sides(THRESHOLDS))
def test_threshold(act, x, result):
    check(act, x, result)
