"""Newton's method at one point of the hyperparameters ends where rounding leaves no way on, and nowhere else."""

import numpy as np
import pytest

from laplacebook.beyond.lane import Lane

_STEPS = 60


def rounds(lane, look):
    """How many looks it takes; each a function of z that returns f, its gradient and its Hessian."""
    for number in range(_STEPS):
        if not lane.is_going:
            return number
        f, gradient, hessian = look(lane.z)
        lane.take(float(f), gradient, hessian if lane.wants_hessian else None)
    return _STEPS


def saddle(z):
    """Falls from zero along z[0], to minima at 1 and -1."""
    x, y = z
    return (
        (x**2 - 1) ** 2 / 4 + y**2,
        np.array([x**3 - x, 2 * y]),
        np.diag([3 * x**2 - 1, 2.0]),
    )


def test_a_saddle_is_left_however_near_it_begins():
    lane = Lane(np.array([1e-12, 0.5]), 1e-5)
    assert rounds(lane, saddle) < _STEPS
    assert lane.found
    np.testing.assert_allclose(lane.z, [1, 0], atol=1e-6)


def nowhere(z):
    return np.nan, np.full(1, np.nan), np.full((1, 1), np.nan)


def level(z):
    """Rounding hides where it falls, and the sign of the curvature."""
    return 1.0, np.array([1e-20, 0.0]), np.diag([-1.0, 1.0])


def noise(z):
    """A gradient of rounding, with a Hessian that does not belong to it."""
    return -abs(float(z[0])), np.array([0.1]), np.array([[1.0]])


@pytest.mark.parametrize("look", [nowhere, level, noise])
def test_where_there_is_no_way_on_it_ends_without_a_mode(look):
    lane = Lane(np.full(len(look(np.zeros(2))[1]), 1e-3), 1e-5)
    assert rounds(lane, look) < 20
    assert not lane.found
