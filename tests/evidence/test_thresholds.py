"""From both sides: what an estimate, a comparison or a maximum of the evidence refuses."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import laplacebook as lb
from laplacebook.evidence import quadrature
from laplacebook.evidence.ascent import Objective, ascend
from laplacebook.evidence.bridge import bridge
from laplacebook.evidence.evidence_at_fixed_mode import _equal
from laplacebook.model.observations import same_numbers
from tests.models import coin, line
from tests.thresholds import Refused, check, sides

TOSSES, KEY = np.array([1.0, 1, 1, 1, 1, 1, 1, 1, 0]), jax.random.key(0)
EXACT = -np.log(110)
COIN = lb.laplace(coin, TOSSES)
RNG = np.random.default_rng(0)
FEATURES, Y = RNG.normal(size=(20, 6)), RNG.normal(size=20)
EPS = np.finfo(float).eps


def dimensions(number):
    """Of a Gaussian one point is exact."""
    approx = lb.laplace(line, FEATURES[:, :number], Y)
    return abs(float(lb.gauss_hermite(approx, 1) - approx.log_evidence)) < 1e-9


def heavy(nu):
    found = lb.importance_sampling(COIN, KEY, 2000, degrees_of_freedom=nu)
    return abs(float(found.value) - EXACT) < 4 * float(found.standard_error) < 0.1


def equal_draws(number):
    """Of as many on each side, all of the same weight."""
    return float(bridge(np.zeros((1, number)), np.zeros(number)).standard_error)


def in_reach(number):
    """Of a hundred draws from q so many have a density under the posterior, and all the same."""
    proposed = np.where(np.arange(100) < number, 0.0, -50.0)
    return float(bridge(np.zeros((1, 100)), proposed).standard_error)


def other_units(units):
    """Of a number that single precision does not hold, 17.6 of its units in the last place."""
    return same_numbers(np.array([1.1]), np.array([1.1 + units * np.spacing(1.1)]))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Parabola(Objective):
    """A log evidence with its maximum at a logarithm, and so much curvature."""

    at: jax.Array
    curvature: jax.Array

    def __call__(self, x, u):
        return -self.curvature * jnp.sum((x - self.at) ** 2) / 2, u


def climbs(curvature):
    def peak(at):
        objective = Parabola(jnp.asarray(at), jnp.asarray(curvature))
        found = ascend(objective, jnp.zeros(1), jnp.zeros(1), 100, False)
        assert not found.converged or found.x[0] == pytest.approx(at, abs=2e-6)
        return bool(found.converged)

    return peak


THRESHOLDS = {
    "points of quadrature": (
        lambda number: float(lb.gauss_hermite(COIN, number)),
        (200, EXACT),
        (201, Refused(ValueError, "at most 200, not 201")),
    ),
    "dimensions of quadrature": (
        dimensions,
        (5, True),
        (6, Refused(ValueError, r"1 points in each of 6 dimensions .*D <= 5")),
    ),
    "degrees of freedom": (
        heavy,
        (1.0, True),
        (1000.0, True),
        (0.999, Refused(ValueError, "between 1 and 1000, not 0.999")),
        (1000.001, Refused(ValueError, "not 1000.001")),
    ),
    "observations": (
        lambda number: float(lb.bic(COIN, number) + 2 * COIN.log_likelihood),
        (1, 0.0),
        (0.999, Refused(ValueError, "N, 1 or more, not 0.999")),
    ),
    "draws on the sides of a bridge": (equal_draws, (10, 0.0), (9, np.inf)),
    "draws that reach the other side of a bridge": (in_reach, (10, 0.3), (9, np.inf)),
    "an error of an evidence": (
        lambda error: lb.compare({"a": lb.Estimate(-1.0, error)})["log evidence"][0].standard_error,
        (0.0, 0.0),
        (1e100, 1e100),
        (np.inf, Refused(lb.LaplaceError, "standard error of inf")),
    ),
    "data that are the same but for rounding": (other_units, (17, True), (18, False), (-18, False)),
    "hyperparameters that scale, but for rounding": (
        lambda apart: _equal(jnp.ones(1), jnp.ones(1) + apart),
        (1999 * EPS, True),
        (2001 * EPS, False),
        (-2001 * EPS, False),
    ),
    "how far a logarithm may move": (climbs(1.0), (19.9, True), (-19.9, True), (20.1, False)),
    "how far a level stretch may be from its maximum": (
        climbs(1e-9),
        (0.099, True),
        (0.101, False),
    ),
}


@pytest.mark.parametrize(("act", "x", "result"), sides(THRESHOLDS))
def test_threshold(act, x, result):
    check(act, x, result)


def test_points_of_a_grid(monkeypatch):
    """Three in each of two dimensions are nine; those of the package are too many for a test."""
    assert quadrature.POINTS == 10**8
    approx = lb.laplace(line, FEATURES[:, :2], Y)
    monkeypatch.setattr(quadrature, "POINTS", 9)
    assert lb.gauss_hermite(approx, 3) == pytest.approx(float(approx.log_evidence))
    monkeypatch.setattr(quadrature, "POINTS", 8)
    with pytest.raises(ValueError, match=r"3 points in each of 2 dimensions are 3\^2"):
        lb.gauss_hermite(approx, 3)
