"""From both sides: what base refuses, or takes for unknown."""

import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base.array import array_stats

from laplacebook.base.checks import require_sample_shape, symmetric_part
from laplacebook.base.estimate import Estimate, log_mean
from laplacebook.base.table import percentages
from laplacebook.base.weights import mean_of_weights, pareto_k
from tests.thresholds import Refused, check, sides

LIGHT = np.log(np.random.default_rng(0).uniform(1, 2, size=1000))
ROOT = np.finfo(float).eps ** 0.5


def of_equal(number):
    """A thousand weights of which all but some are zero: the error of their mean."""
    return float(log_mean(np.where(np.arange(1000) < number, 0, -np.inf)).standard_error)


def told(k):
    error = mean_of_weights(LIGHT, k).standard_error
    return float(error)


def lump(height):
    """Five of four thousand equal weights are larger."""
    return pareto_k(np.where(np.arange(4000) < 5, height, 0.0))


def largest(number):
    """A lump that begins within the first quarter of the tail, of 189, or before it."""
    return pareto_k(raised(number))


def raised(number):
    return np.concatenate([np.zeros(4000 - number), np.linspace(1, 2, number)])


def plateau(number):
    """As many of four thousand weights as the tail has, 189, or one fewer, are larger and equal."""
    return pareto_k(np.where(np.arange(4000) < number, 1.0, 0.0))


def step(units):
    """A tail whose first quarter is above the rest by so many units in the last place of the largest."""
    unit = 1000 * np.finfo(float).eps
    tail = np.concatenate([np.full(47, units * unit), np.linspace(0.5, 1, 142)])
    return bool(np.isinf(pareto_k(np.concatenate([np.zeros(3811), tail]) - 1001)))


def asymmetric(apart):
    return float(symmetric_part(jnp.array([[4.0, 1.0], [1.0 + apart, 2.0]]))[0, 1])


def ends(probability):
    return ", ".join(percentages([(1 - probability) / 2, (1 + probability) / 2]))


SPREAD = float(log_mean(LIGHT).standard_error)
NO_ENDS = Refused(ValueError, "no ends that can be told apart")

THRESHOLDS = {
    "ten effective draws": (of_equal, (10, np.sqrt(990 / 9990)), (9, np.inf)),
    "k-hat of a thousand weights": (
        told,
        (0.5, SPREAD),
        (0.6, SPREAD * 1000**0.1),
        (0.666, SPREAD * 1000**0.166),
        (0.667, np.inf),
        (np.nan, SPREAD),
    ),
    "one percent above equal weights": (lump, (0.0099, -np.inf), (0.0101, np.inf)),
    "a tail that reaches its first quarter": (
        largest,
        (143, float(array_stats.psislw(-raised(143))[1])),
        (142, np.inf),
    ),
    "a tail of equal weights": (
        plateau,
        (188, float(array_stats.psislw(-1.0 * (np.arange(4000) < 188))[1])),
        (189, -np.inf),
        (190, -np.inf),
    ),
    "a quarter of a tail that is told from the rest": (step, (11, False), (9, True)),
    "a precision that is symmetric": (
        asymmetric,
        (3.9 * ROOT, 1.0),
        (4.1 * ROOT, Refused(ValueError, r"element \[0, 1\] is 1, element")),
        (-4.1 * ROOT, Refused(ValueError, "symmetric matrix")),
    ),
    "a wide interval": (
        ends,
        (1 - 2**-52, "1.110223024625157e-14 %, 99.99999999999999 %"),
        (1 - 2**-53, NO_ENDS),
    ),
    "a narrow interval": (
        ends,
        (2**-52, "49.99999999999999 %, 50.00000000000001 %"),
        (1e-17, NO_ENDS),
    ),
    "a standard error": (
        lambda error: Estimate(1.0, error).standard_error,
        (0.0, 0.0),
        (-5e-324, Refused(ValueError, "0 or more")),
    ),
    "an error beside rounding": (
        lambda error: repr(Estimate(2.0, error)),
        (1.9e-12, "2.000000 ± 0"),
        (2.1e-12, "2.000000000000 ± 0.000000000002"),
    ),
    "a value without an error": (
        lambda value: repr(Estimate(value, 0.0)),
        (0.00101, "0.001010 ± 0"),
        (0.00099, "0.00099 ± 0"),
    ),
    "the shape of draws": (
        lambda number: require_sample_shape((number,)),
        (0, None),
        (-1, Refused(ValueError, "sample_shape")),
    ),
}


@pytest.mark.parametrize(("act", "x", "result"), sides(THRESHOLDS))
def test_threshold(act, x, result):
    check(act, x, result)
