"""From both sides: what a search certifies, and how it tells what it does not."""

import jax.numpy as jnp
import numpy as np
import pytest

import laplacebook as lb
from laplacebook.gaussian.precision import DiagonalPrecision
from laplacebook.model.density import ModelDensity
from laplacebook.search.certificate import Certificate
from laplacebook.search.follows_gradient import fails, follows_finely, levels_off
from laplacebook.search.metric import inside, metric_at
from laplacebook.search.mode import enough
from laplacebook.search.newton_step import (
    Look,
    Seen,
    _is_parabola,
    initial_state,
    probe,
    unfinished,
)
from laplacebook.search.no_mode import _sites_at_edge
from laplacebook.search.rounds import go_on, initial_rounds, near, ridge
from tests.models import coin
from tests.thresholds import Refused, check, sides

EPS = np.finfo(float).eps


def correlated(apart):
    """Two coordinates with the correlation 1 - apart: the smallest eigenvalue is as large."""
    matrix = jnp.array([[1.0, 1 - apart], [1 - apart, 1.0]])
    found = lb.laplace_of_density(lambda z: -z @ matrix @ z / 2, np.zeros(2))
    return round(float(found.certificate.condition_number) * apart, 3)


def large(size):
    """The same of many coordinates, by Cholesky factors: is the metric regular?"""

    def regular(apart):
        matrix = np.eye(size)
        matrix[0, 1] = matrix[1, 0] = 1 - apart
        return bool(metric_at(jnp.asarray(matrix)).regular)

    return regular


def far_out(centre):
    """A standard normal so far from zero that its coordinate moves by steps of 0.001, or less."""
    found = lb.laplace_of_density(lambda z: -((z - centre) ** 2) / 2, centre)
    return float(found.mode["z"]) - centre


def at_an_edge(sds):
    precision = DiagonalPrecision(np.array([4.0, 1.0]))
    return bool(inside("constrained", np.array([sds / 2, 1.0]), precision))


def tail(ratio):
    """Of the curvature that is told, what a short step sees."""
    precision = DiagonalPrecision(np.ones(3))
    return bool(levels_off(lambda u: ratio * u, np.zeros(3), precision))


def odd(change):
    """A change of the log joint from side to side of which its slope says nothing."""
    return bool(fails(np.array([-change, 0.0, 0.0, 0.0, change]), np.zeros(5)))


def even(change):
    return bool(fails(np.array([change, 0.0, 0.0, 0.0, change]), np.zeros(5)))


def finely(change):
    """The same at the end of many short panels."""
    values = np.zeros((2, 65))
    values[1, -1] = change
    return bool(follows_finely(values.ravel(), np.zeros(130)))


def finely_bent(change):
    """A slope that bends within each panel may be off by a quarter of its range."""
    values, slopes = np.zeros((2, 65)), np.zeros((2, 65))
    slopes[:, 2::4] = 1.0  # of which the quadrature makes 16/45
    values[:, ::4] = np.arange(17) / 16 * (16 / 45) * np.array([[-1], [1]])
    values[1, -1] += change
    return bool(follows_finely(values.ravel(), slopes.ravel()))


def parabola(bend=0.0, shared=0.0, rise=0.0, noise=0.0):
    """Two looks at a parabola of two coordinates, off by so much of the change of slope that is told.

    The noise is of the slope, of which four times as much may be added.
    """
    size = probe(np.zeros(2))
    ahead = Seen(np.asarray(rise), (1 + bend + shared) * size)
    behind = Seen(np.asarray(rise), (-1 - bend + shared) * size)
    return bool(_is_parabola(np.asarray(0.0), noise * abs(size[0]), 0.0, ahead, behind))


def saddle(curvature):
    """The least curvature of a Hessian with an eigenvalue of 1: zero where it is rounding."""
    hessian = np.array([1.0, curvature])
    found = ridge(lambda v: hessian * v, np.zeros(2), DiagonalPrecision(np.ones(2)))
    return bool(found[1] < 0)


def steps(number):
    state = initial_state(np.zeros(1), None)
    return bool(unfinished(state._replace(iteration=np.asarray(number))))


NO_ROUND = initial_rounds(np.zeros(1), Look(None, None, np.zeros(1), None), None)


def rounds(**changes):
    known = {name: np.asarray(value) for name, value in changes.items()}
    return bool(go_on(NO_ROUND._replace(f=np.asarray(1.0), **known), 0.1))


def slope_that_jumps(jump):
    """At zero, by so much for a curvature of one: what is to be said of it?"""
    lb.laplace_of_density(lambda z: -(z**2) / 2 - jump / 2 * jnp.abs(z), 1.0)


HEADS = ModelDensity.of(coin, (np.ones(3),))


def edge(u):
    """The sites at the edge of their supports, for a search that stopped there."""
    u = jnp.full(1, u)
    return _sites_at_edge(HEADS, u, HEADS.terms(u), jnp.eye(1))


def shown(decrement):
    found = Certificate(np.True_, np.asarray(decrement), np.asarray(3), np.asarray(1.0))
    return repr(found).partition(":")[0]


FLAT = Refused(lb.NotPositiveDefinite, "is flat along")
FLOOR = 4 * EPS**0.75

THRESHOLDS = {
    "a direction that is not flat": (
        correlated,
        (1.1 * FLOOR, 2.0),
        (0.9 * FLOOR, FLAT),
    ),
    "of many coordinates": (large(20), (1.01 * FLOOR, True), (0.99 * FLOOR, False)),
    "coordinates that can be told apart": (
        far_out,
        (4.4e12, 0.0),
        (4.6e12, Refused(lb.NotConverged, "No mode after")),
    ),
    "room to the edge": (at_an_edge, (0.00101, True), (0.00099, False)),
    "a tail": (tail, (99.0, False), (101.0, True), (-101.0, True), (np.nan, True)),
    "a change that is not explained": (
        odd,
        (0.1 / 1.75 * 0.99, False),
        (0.1 / 1.75 * 1.01, True),
        (-0.1 / 1.75 * 1.01, True),
    ),
    "a change on both sides": (
        even,
        (0.1 / 1.75 * 0.99, False),
        (0.1 / 1.75 * 1.01, True),
        (-0.1 / 1.75 * 1.01, True),
    ),
    "a change in one panel": (finely, (0.099, True), (0.101, False), (-0.101, False)),
    "a change where the slope bends": (finely_bent, (0.349, True), (0.351, False)),
    "a curvature that changes": (
        lambda bend: parabola(bend=bend),
        (0.099, True),
        (-0.099, True),
        (0.101, False),
        (-0.101, False),
    ),
    "a curvature that changes within noise": (
        lambda bend: parabola(bend=bend, noise=0.1),
        (0.49, True),
        (0.51, False),
        (-0.51, False),
    ),
    "a slope that both sides share within noise": (
        lambda shared: parabola(shared=shared, noise=0.1),
        (1.39, True),
        (1.41, False),
        (-1.41, False),
    ),
    "a slope that both sides share": (
        lambda shared: parabola(shared=shared),
        (0.99, True),
        (-0.99, True),
        (1.01, False),
        (-1.01, False),
    ),
    "a rise that is no parabola's": (
        lambda rise: parabola(rise=rise),
        (0.0099, True),
        (-0.0099, True),
        (0.0101, False),
        (-0.0101, False),
    ),
    "a saddle": (saddle, (-0.9 * EPS**0.5, False), (-1.1 * EPS**0.5, True)),
    "steps of a search": (steps, (999, True), (1000, False)),
    "rounds": (lambda number: rounds(rounds=number), (100, True), (101, False)),
    "rounds without progress": (lambda number: rounds(waited=number), (2, True), (3, False)),
    "rounds at a saddle": (
        lambda least: rounds(decrement=0.05, lowest=least, rounds=1),
        (-1e-9, True),
        (0.0, False),
        (np.nan, False),
    ),
    "a decrement that passes": (
        lambda decrement: bool(near(NO_ROUND._replace(decrement=decrement), 0.1)),
        (0.1, True),
        (np.nextafter(0.1, 1), False),
    ),
    "the decrement that passes by default": (
        lambda dtype: enough(None, np.dtype(dtype)),
        ("float64", EPS**0.5),
        ("float32", 1e-3),
    ),
    "a kink": (
        slope_that_jumps,
        (0.0097, Refused(lb.NotConverged, "No mode after")),  # the curvature adds 0.0002
        (0.0099, Refused(lb.NotConverged, r"jumps at z = .*by 0.0101")),
    ),
    "as good as the edge of a support": (edge, (50.0, []), (50.1, ["theta"]), (-50.1, ["theta"])),
    "what a certificate is called": (
        shown,
        (1e-3, "mode certified"),
        (1.01e-3, "accepted, no mode certified"),
    ),
}


@pytest.mark.parametrize(("act", "x", "result"), sides(THRESHOLDS))
def test_threshold(act, x, result):
    check(act, x, result)
