"""From both sides: data, parameters and labels that a model can be of, and those that it cannot."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints
from scipy import stats

import laplacebook as lb
from laplacebook.model.density import ModelDensity
from laplacebook.model.distributions import satisfies
from laplacebook.model.rows import add_up, require_batch_size, rows_of
from laplacebook.model.single_precision import loses
from laplacebook.model.tails import _log, log_above
from tests.models import coin, single_precision
from tests.thresholds import Refused, check, sides

EPS = np.finfo(float).eps
TINY = np.finfo(float).tiny
TOSSES = np.array([1.0, 1.0, 0.0])


def classes(apart):
    """Probabilities of two classes whose sum is off by so much."""

    def model(probabilities):
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.sample("y", dist.Categorical(probabilities), obs=1)
        numpyro.sample("z", dist.Normal(w, 1), obs=0.0)

    return float(lb.laplace(model, jnp.array([0.5, 0.5 + apart])).log_likelihood)


def in_single(constraint):
    def inside(value):
        with single_precision():
            return bool(satisfies(constraint, jnp.asarray(value, jnp.float32)))

    return inside


def inside(constraint):
    return lambda value: bool(satisfies(constraint, jnp.asarray(value)))


def above(p):
    """A tail of which the distribution function leaves p, computed from what it leaves."""
    return round(float(log_above(dist.Beta(2.0, 8.0), stats.beta(2, 8).isf(p))), 3)


def in_single_lost(data):
    with single_precision():
        return loses(np.asarray(data))


def rounded(error):
    """A number that single precision rounds by so much, of data with the standard deviation 1."""
    return in_single_lost([32769.0, 32771 + error])[:18]


def constant(units):
    """Two numbers that are apart by so many units in the last place."""
    return in_single_lost([2.0**33, 2.0**33 * (1 + units * EPS)])[:18]


def rows_of_their_own(apart):
    """A log likelihood that counts so much more among others than alone."""

    def model(y):
        numpyro.sample("w", dist.Normal(0, 1))
        scale = 1 + apart * (len(y) > 1)
        with numpyro.handlers.scale(scale=scale), numpyro.plate("N", len(y)):
            numpyro.sample("y", dist.Normal(0, 1), obs=y)

    return bool(add_up(ModelDensity.of(model, (np.zeros(3),)), jnp.zeros(1)))


def batch(number):
    return require_batch_size(number, rows_of(ModelDensity.of(coin, (TOSSES,))))


def held(label):
    """A label that the model holds itself, of four groups; a negative one counts from the end."""

    def model():
        a = numpyro.sample("a", dist.Normal(jnp.arange(1.0, 5), 1))
        numpyro.sample("y", dist.Normal(a[np.array([label])], 1), obs=np.zeros(1))

    return float(lb.laplace(model).mode["a"][label])


def passed(label):
    """A label among the data, of four groups."""

    def model(g):
        a = numpyro.sample("a", dist.Normal(jnp.arange(1.0, 5), 1))
        numpyro.sample("y", dist.Normal(a[g], 1).to_event(1), obs=np.zeros(1))

    return float(lb.laplace(model, np.array([label])).mode["a"][label])


def start(theta):
    fit = lb.laplace(coin, TOSSES, start={"theta": theta})
    return float(fit.mode["theta"])


def count(y):
    """How many were counted where none can be: the log likelihood."""

    def model(y):
        numpyro.sample("w", dist.Normal(0, 1))
        numpyro.sample("y", dist.Binomial(2, 0.5), obs=y)

    return float(lb.laplace(model, y).log_likelihood)


def crossed(size):
    """A column of data beside as many means."""

    def model(y):
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(w * jnp.ones(size), 1), obs=y)

    return float(lb.laplace(model, np.zeros((size, 1))).log_likelihood)


LOST = "the rounding error"
NO_LABEL = "labels begin at 0 and end at 3"
ROOT = EPS ** (1 / 3)
ALONE = ROOT * (1 + np.log(2 * np.pi) / 2) / (np.log(2 * np.pi) / 2)

THRESHOLDS = {
    "probabilities that sum to one": (
        classes,
        (0.9e-6, np.log(0.5 + 0.9e-6) - np.log(2 * np.pi) / 2),
        (1.1e-6, Refused(lb.NonFinite, "not a probs of CategoricalProbs")),
        (-1.1e-6, Refused(lb.NonFinite, "not a probs of CategoricalProbs")),
    ),
    "a simplex in single precision": (
        lambda apart: in_single(constraints.simplex)([0.5, 0.5 + apart]),
        (3.4e-4, True),
        (3.5e-4, False),
    ),
    "the end of an interval": (
        inside(constraints.unit_interval),
        (0.0, True),
        (1.0, True),
        (-TINY, False),
        (1 + EPS, False),
    ),
    "a rate of zero": (inside(constraints.positive), (0.0, True), (-TINY, False)),
    "a probability of no class": (
        lambda p: inside(constraints.simplex)([p, 1.0]),
        (0.0, True),
        (-1e-300, False),
    ),
    "a count out of two": (
        count,
        (2, np.log(0.25)),
        (3, Refused(lb.NonFinite, "outside the support")),
        (-1, Refused(lb.NonFinite, "outside the support")),
    ),
    "five digits of a tail": (
        above,
        (1.01e5 * EPS, round(np.log(1.01e5 * EPS), 3)),
        (0.99e5 * EPS, np.nan),
    ),
    "a probability that has a logarithm": (
        lambda p: float(_log(jnp.asarray(p))),
        (101 * TINY, np.log(101 * TINY)),
        (99 * TINY, np.nan),
    ),
    "a thousandth of the spread": (rounded, (0.00099, ""), (0.00101, "the rounding error")),
    "a column that is constant but for rounding": (constant, (31, ""), (33, "the rounding error")),
    "a whole number in single precision": (
        in_single_lost,
        ([2**31 - 1], ""),
        ([2**31], "2147483648 would become -2147483648"),
        ([-(2**31)], ""),
    ),
    "an unsigned whole number": (
        lambda number: loses(np.array([number], np.uint64)),
        (2**63 - 1, ""),
        (2**63, "9223372036854775808 would become -9223372036854775808"),
    ),
    "a row alone and among others": (
        rows_of_their_own,
        (0.99 * ALONE, True),
        (1.01 * ALONE, False),
        (-1.01 * ALONE, False),
    ),
    "rows at a time": (
        batch,
        (1, None),
        (3, None),
        (0, Refused(ValueError, "from 1 to the 3 rows of the data, not 0")),
        (4, Refused(ValueError, "from 1 to the 3 rows of the data, not 4")),
    ),
    "a label that the model holds": (
        held,
        (3, 2.0),
        (-4, 0.5),
        (4, Refused(lb.UnsupportedModel, NO_LABEL)),
        (-5, Refused(lb.UnsupportedModel, NO_LABEL)),
    ),
    "a label among the data": (
        passed,
        (0, 0.5),
        (3, 2.0),
        (4, Refused(lb.NonFinite, "has the label 4")),
        (-1, Refused(lb.NonFinite, "has the label -1")),
    ),
    "rows of a shard": (
        lambda number: lb.shard(np.ones(number)).shape,
        (1, (1,)),
        (0, Refused(ValueError, "fewer rows than there are devices")),
    ),
    "a start within the support": (
        start,
        (1e-9, 4 / 7),
        (1 - 1e-9, 4 / 7),
        (0.0, Refused(ValueError, "on the edge of")),
        (1.0, Refused(ValueError, "on the edge of")),
    ),
    "a column of several data": (
        crossed,
        (1, -np.log(2 * np.pi) / 2),
        (2, Refused(lb.UnsupportedModel, "repeat each other")),
    ),
}


@pytest.mark.parametrize(("act", "x", "result"), sides(THRESHOLDS))
def test_threshold(act, x, result):
    check(act, x, result)
