"""Hessians by differences of gradients: how right they are, and of how many gradients they are made."""

import numpy as np
import pytest

from laplacebook.search.differences import _Differences
from laplacebook.search.newton_step import Look

SCALES = np.array([1e-3, 1.0, 40.0])


class Bent:
    """A sum of exp(x) - x and of products, where x is u in units of the scales; with gradients that are off a bit."""

    def __init__(self, scales, noise=0.0):
        self.scales, self.noise, self.looks = scales, noise, 0

    def __call__(self, u):
        self.looks += 1
        x = u / self.scales
        slope = (np.exp(x) - 1 + 0.3 * x.sum()) / self.scales
        off = self.noise * np.sin(1e9 * x.sum() * np.arange(1, u.size + 1)) / self.scales
        return Look(np.sum(np.exp(x) - x) + 0.15 * x.sum() ** 2, None, slope + off, None)

    def whitened(self, hessian):
        """What is left of a Hessian at 0, where it should be that of x, as distances of units."""
        exact = np.eye(self.scales.size) + 0.3
        return np.abs(hessian * self.scales[:, None] * self.scales - exact).max()


def searched(bent):
    """Where the scale is known by the rough Hessian beside the mode."""
    differences, zero = _Differences(bent, 0 * bent.scales), 0 * bent.scales
    differences.deviations = bent.scales
    assert bent.whitened(differences.hessian(zero + 0.01 * bent.scales)) < 0.02
    return differences, zero


def test_a_hessian_of_two_points_is_right_and_not_made_twice():
    bent = Bent(SCALES)
    differences, mode = searched(bent)
    assert bent.looks == 1 + 3
    found = differences.hessian(mode)
    assert bent.looks == 4 + 6
    np.testing.assert_array_equal(differences.finely(mode), found)
    assert bent.looks == 10
    assert bent.whitened(found) < 2e-6


@pytest.mark.parametrize("moved", [0.0, 1e-9], ids=["noise", "another point"])
def test_gradients_that_are_off_and_other_points_are_looked_at_further_apart(moved):
    bent = Bent(SCALES, noise=1e-6 if moved == 0 else 0.0)
    differences, mode = searched(bent)
    rough, looks = differences.hessian(mode), bent.looks
    fine = differences.finely(mode + moved * SCALES)
    assert bent.looks == looks + 12
    assert bent.whitened(fine) < 5e-5
    if moved == 0:
        assert bent.whitened(rough) > 1e-4


def test_of_one_coordinate_errors_would_not_show():
    bent = Bent(SCALES[:1])
    differences, mode = searched(bent)
    differences.hessian(mode)
    looks = bent.looks
    assert bent.whitened(differences.finely(mode)) < 1e-5
    assert bent.looks == looks + 4


def test_steps_of_another_scale_are_taken_again():
    bent = Bent(SCALES)
    differences = _Differences(bent, 0 * SCALES)
    differences.deviations = 100 * SCALES
    mode = 0 * SCALES
    for _ in range(2):
        differences.hessian(mode)
    assert bent.whitened(differences.finely(mode)) < 2e-6
