"""The thresholds, from both sides."""

import numpy as np
import pytest

from laplacebook.base.estimate import Estimate
from laplacebook.trust.slices import Slice
from laplacebook.trust.verdict import (
    Finding,
    of_bound,
    of_evidence,
    of_modes,
    of_sample_size,
    of_skewness,
    of_tail,
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


def test_the_worst_decides_and_is_explained():
    findings = [Finding("good", "one"), Finding("bad", "two"), Finding("bad", "three")]
    assert worst(findings) == "bad"
    assert sentence(findings) == "bad: two; three."
    assert sentence([*findings[:1], Finding("usable", "four")]) == "usable: four."
