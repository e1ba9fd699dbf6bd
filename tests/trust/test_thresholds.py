"""From both sides: where a verdict changes, up to the threshold itself."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import laplacebook as lb
from laplacebook.base.estimate import Estimate
from laplacebook.fit.maximum_likelihood import Highest
from laplacebook.trust.slices import _name
from laplacebook.trust.verdict import of_bound, of_evidence, of_modes, of_sample_size, of_tail
from tests.models import coin
from tests.thresholds import Refused, check, sides

APPROX = lb.laplace(coin, np.array([1.0, 1.0, 1.0, 0.0]))
KEY = jax.random.key(0)
FOUND = lb.diagnose(APPROX, KEY, 100, starts=1)
ROUNDING = np.finfo(float).eps ** 0.5


def evidence(error):
    return lambda value: of_evidence(Estimate(np.float64(value), np.float64(error))).level


def tail(draws):
    return lambda k: of_tail(k, draws, 1).level


def excess(nats):
    """Of the log evidence over a maximum log likelihood that is near it."""
    bound = Highest(APPROX.log_evidence - nats, APPROX.certificate)
    found = replace(FOUND, maximum_log_likelihood=bound)
    return bool(found.excess > 0), "impossible" in found.verdict


def named(shares):
    """An axis by the shares of the coordinates in the square of its length."""
    return _name(np.sqrt(shares), "abcd")


def rise(nats):
    """From one mode to another that is as high but for so much."""
    higher = replace(APPROX, log_prior=APPROX.log_prior + nats)
    found = replace(FOUND, other_modes=(higher,))
    return float(found.rise) != 0, float(found.rise) > 0


SIZE = ROUNDING * abs(float(APPROX.log_evidence))
HEIGHT = ROUNDING * abs(float(APPROX.log_likelihood + APPROX.log_prior))
BAD = "bad"

THRESHOLDS = {
    "k-hat": (tail(4000), (0.5, "good"), (0.5001, "usable"), (0.7, "usable"), (0.7001, BAD)),
    "k-hat of a thousand draws": (tail(1000), (0.666, "usable"), (0.667, BAD)),
    "k-hat of a hundred draws": (tail(100), (0.499, "good"), (0.501, BAD)),
    "the effective sample size": (
        lambda share: of_sample_size(share).level,
        (0.8, "good"),
        (0.7999, "usable"),
    ),
    "the evidence": (
        evidence(0.0),
        (0.1, "good"),
        (-0.1001, "usable"),
        (np.log(2), "usable"),
        (0.6932, BAD),
        (-0.6932, BAD),
    ),
    "the evidence, but for two errors": (
        evidence(0.01),
        (0.119, "good"),
        (-0.121, "usable"),
        (0.713, "usable"),
        (-0.714, BAD),
    ),
    "evidence in other modes": (
        lambda share: of_modes(1, share, -1.0, 8).level,
        (0.01, "good"),
        (0.0101, BAD),
    ),
    "a higher mode": (
        lambda rise: of_modes(1, 0.001, rise, 8).level,
        (0.0, "good"),
        (1e-7, "usable"),
    ),
    "a mode that is higher, but for rounding": (
        rise,
        (0.9 * HEIGHT, (False, False)),
        (1.1 * HEIGHT, (True, True)),
        (-0.9 * HEIGHT, (False, False)),
        (-1.1 * HEIGHT, (True, False)),
    ),
    "above all likelihoods": (
        lambda nats: [finding.level for finding in of_bound(nats, True)],
        (0.0, []),
        (1e-7, ["usable"]),
        (0.1, ["usable"]),
        (0.1001, [BAD]),
    ),
    "above a likelihood that is not certified to be the highest": (
        lambda nats: [finding.level for finding in of_bound(nats, False)],
        (0.0, []),
        (0.1001, ["usable"]),
    ),
    "above all likelihoods, but for rounding": (
        excess,
        (0.9 * SIZE, (False, False)),
        (-1.1 * SIZE, (False, False)),
    ),
    "coordinates in the name of an axis": (
        named,
        ([0.91, 0.09], "a"),
        ([0.89, 0.11], "a + b"),
        ([0.34, 0.33, 0.33], "a + b + c"),
        ([0.26, 0.25, 0.25, 0.24], "a + b + c ..."),
    ),
    "draws": (
        lambda number: lb.diagnose(APPROX, KEY, number, starts=1).num_samples,
        (100, 100),
        (99, Refused(ValueError, "100 or more")),
    ),
}


@pytest.mark.parametrize(("act", "x", "result"), sides(THRESHOLDS))
def test_threshold(act, x, result):
    check(act, x, result)


def test_an_excess_that_is_not_rounding_counts():
    bound = Highest(APPROX.log_evidence - 1.1 * SIZE, APPROX.certificate)
    found = replace(FOUND, maximum_log_likelihood=bound)
    assert found.excess == pytest.approx(1.1 * SIZE, rel=1e-6)
    assert any("impossible" in finding.words for finding in found._findings)
