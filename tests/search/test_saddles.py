"""The way down from a saddle of a search without a Hessian."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from laplacebook.base.namespace import namespace
from laplacebook.gaussian.precision import DensePrecision
from laplacebook.search.driven_rounds import drive_rounds
from laplacebook.search.lbfgs import search_by_lbfgs
from laplacebook.search.looks import remembered
from laplacebook.search.newton_step import Look
from laplacebook.search.rounds import downhill, initial_rounds, ridge

TOLERANCE = 1e-6
#: how steep the walls are of the valley that begins at the saddle: with 1e6 it is a thousandth of a unit wide
WALLS = [0.01, 1.0, 1e3, 1e6]


def valley(walls):
    """A saddle at zero, minima at y = +-1/(2 sqrt(walls)), and a precision that knows of neither."""

    def f(u):
        x, y = u
        return x**2 / 2 - y**2 / 2 + walls * y**4, None

    return f


def value_and_slope(f):
    slope = jax.jit(jax.value_and_grad(f, has_aux=True))

    def look(u):
        (value, _), gradient = slope(u)
        return Look(np.asarray(value), None, np.asarray(gradient), None)

    return remembered(look)


def identity(u):
    unit = namespace(u).eye(2)
    return DensePrecision(unit, unit)


@pytest.mark.parametrize("walls", WALLS)
def test_a_point_below_the_saddle_is_found_however_near_the_walls(walls):
    f = valley(walls)
    at_saddle = initial_rounds(np.zeros(2), Look(None, None, np.zeros(2), None), None)._replace(
        f=np.asarray(0.0), way=np.array([0.0, 1.0])
    )
    there = downhill(lambda u: np.asarray(f(u)[0]), at_saddle)
    assert abs(there[1]) in 0.5 ** np.arange(10)
    assert f(there)[0] < 0 or abs(there[1]) == 2**-9
    assert abs(there[1]) == 1 or f(2 * there)[0] >= 0


@pytest.mark.parametrize("walls", [WALLS[0], WALLS[-1]])
def test_the_search_ends_in_the_valley(walls):
    """Both drivers; a standard deviation on lies far above all walls but the lowest."""
    f, start = valley(walls), np.array([0.3, 0.0])
    look = value_and_slope(f)

    def ridge_at(u, precision):
        product = jax.linearize(jax.grad(lambda u: f(u)[0]), jnp.asarray(u))[1]
        return ridge(lambda v: np.asarray(product(v)), u, precision)

    driven = drive_rounds(look, identity, lambda u: None, ridge_at, start, TOLERANCE)
    compiled = jax.jit(lambda u: search_by_lbfgs(f, identity, u, TOLERANCE))(jnp.asarray(start))
    for found in (driven, compiled):
        assert bool(found.certificate.converged)
        np.testing.assert_allclose(abs(found.point), [0, 0.5 / walls**0.5], atol=2e-6)
        assert found.certificate.iterations < 60
