"""The thresholds, from both sides."""

import numpy as np
import pytest

from laplacebook.base.estimate import Estimate
from laplacebook.trust.slices import Slice
from laplacebook.trust.verdict import (
    Finding,
    of_bound,
    of_evidence,
    of_grid,
    of_means,
    of_modes,
    of_sample_size,
    of_skewness,
    of_spreads,
    of_tail,
    of_weights,
    sentence,
    worst,
)


@pytest.mark.parametrize(
    ("k", "draws", "level"),
    [
        (-np.inf, 4000, "good"),
        (0.49, 4000, "good"),
        (0.51, 4000, "usable"),
        (0.69, 4000, "usable"),
        (0.71, 4000, "bad"),
        (0.6, 100, "bad"),  # a hundred draws tell less
    ],
)
def test_tail(k, draws, level):
    assert of_tail(k, draws, 1).level == level


def test_evidence():
    def level(value, error):
        return of_evidence(Estimate(np.float64(value), np.float64(error))).level

    assert [level(v, 0.001) for v in (0.09, -0.09, 0.11, -0.11, 0.68, 0.7, -0.7)] == (
        ["good"] * 2 + ["usable"] * 3 + ["bad"] * 2
    )
    assert level(0.7, 0.01) == "usable"  # within its error
    assert [level(0.0, error) for error in (0.19, 0.21, 0.69, 0.7, 2e7)] == (
        ["good"] + ["usable"] * 2 + ["bad"] * 2
    )
    assert [level(value, 0.15) for value in (0.29, 0.31, 0.88, 0.9)] == (
        ["good"] + ["usable"] * 2 + ["bad"]  # of an error that is large itself 0.2 at most
    )
    assert level(0.0, np.inf) == "bad"


def test_sample_size():
    assert [of_sample_size(r).level for r in (1.0, 0.8, 0.79, 0.01)] == ["good"] * 2 + [
        "usable"
    ] * 2


@pytest.mark.parametrize(
    ("skewness", "level"),
    [(0.25, "good"), (0.495, "good"), (0.505, "usable"), (0.99, "usable"), (1.01, "bad")],
)
def test_skewness(skewness, level):
    """That of a Gamma density is 2 over the root of its shape; the sign does not count."""
    shape = 4 / skewness**2
    t = np.linspace(0, 200, 20_001)
    with np.errstate(divide="ignore"):
        density = np.exp((shape - 1) * np.log(t) - t)
    density /= np.trapezoid(density, t)
    skewed = Slice("x", t, density)
    assert skewed.skewness == pytest.approx(skewness, rel=2e-3)
    mirrored = Slice("y", -t[::-1], density[::-1])
    for slices in (
        [skewed],
        [mirrored],
        [Slice("z", t, np.exp(-((t - 50) ** 2)) / np.sqrt(np.pi)), skewed],
    ):
        assert of_skewness(slices).level == level


def test_modes():
    assert of_modes(0, 0.0, -np.inf, 8).level == "good"
    assert of_modes(1, 0.009, -3.0, 8) == Finding(
        "good", "1 other mode holds 0.9% of the evidence (up to 1%)"
    )
    share, rise = of_modes(2, 0.011, -3.0, 8), of_modes(2, 0.001, 2.0, 8)
    assert (share.level, rise.level) == ("bad", "usable")
    remedy = "; fit with starts=8, or take other_modes[0] of this diagnosis"
    assert share.words.endswith(remedy) and rise.words.endswith(remedy)


def test_bound():
    assert of_bound(-np.inf, False) == of_bound(0.0, True) == []
    assert [of_bound(*case)[0].level for case in ((0.2, True), (0.2, False), (0.05, True))] == [
        "bad",
        "usable",
        "usable",
    ]


@pytest.mark.parametrize(
    ("off", "error", "level"),
    [
        (0.099, 0.0, "good"),
        (-0.101, 0.0, "usable"),
        (0.299, 0.0, "usable"),
        (-0.301, 0.0, "bad"),
        (0.099, 0.05, "good"),
        (0.301, 0.01, "usable"),  # within three errors
        (0.331, 0.01, "bad"),
    ],
)
def test_moments(off, error, level):
    (found,) = of_means({"x": Estimate(off, error)}, 3.0)
    assert found.level == level
    assert f"the mean of x is off by {off:+.2f} ± {error:.2f} sd" in found.words
    factor = np.log(1 + abs(off))
    (found,) = of_spreads({"x": Estimate(np.copysign(factor, off), error / 1.3)}, 3.0)
    assert found.level == level


def test_more_draws_are_asked_for_where_chance_may_be_it():
    told = {error: of_means({"x": Estimate(0.15, error)}, 3.0)[0].words for error in (0.01, 0.02)}
    assert told[0.02].endswith("(beyond 0.1; more draws tell it better)")
    assert told[0.01].endswith("(beyond 0.1)")


def test_the_moment_that_is_off_most_is_named():
    off = {"a": Estimate(0.05, 0.0), "b": Estimate(-0.4, 0.05), "c": Estimate(0.35, 0.0)}
    (found,) = of_means(off, 3.0)
    assert found == Finding("bad", "the mean of c is off by +0.35 ± 0.00 sd (beyond 0.3)")
    assert of_means({}, 3.0) == []
    (found,) = of_spreads({"a": Estimate(-np.inf, 0.0)}, 3.0)
    assert (found.level, "-100%" in found.words) == ("bad", True)


def test_weights_and_grid():
    assert of_weights(0.69, 4000, 5, True, "bad").level == "good"
    assert of_weights(0.71, 4000, 5, False, "usable").level == "usable"
    assert of_weights(0.71, 4000, 5, False, "bad").level == "bad"
    assert [of_grid(x).level for x in (0.09, 0.11, 0.69, 0.7)] == [
        "good",
        "usable",
        "usable",
        "bad",
    ]


def test_the_worst_decides_and_is_explained():
    findings = [Finding("good", "one"), Finding("bad", "two"), Finding("bad", "three")]
    assert worst(findings) == "bad"
    assert sentence(findings) == "bad: two; three."
    assert sentence([*findings[:1], Finding("usable", "four")]) == "usable: four."
