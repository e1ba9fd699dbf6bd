"""The marginal densities of hyperparameters, against quadrature."""

import numpy as np
import pytest
from scipy import stats

import laplacebook as lb
from tests.beyond.practice import SCHOOLS, eight_schools, not_centred


def exact(log_tau):
    """The posterior density of log tau, up to a constant: mu and theta are normal and integrated out."""
    y, error = SCHOOLS
    tau = np.exp(log_tau)
    covariance = np.diag(error**2) + 25.0 + tau[:, None, None] ** 2 * np.eye(8)
    squares = y @ np.linalg.inv(covariance) @ y
    likelihood = np.exp(-squares / 2) / np.sqrt(np.linalg.det(2 * np.pi * covariance))
    return likelihood * stats.halfcauchy(scale=5).pdf(tau) * tau


@pytest.fixture(scope="module")
def fit():
    return lb.nested(eight_schools, *SCHOOLS)


def test_the_density_of_a_scale(fit):
    (marginal,) = fit.marginals
    grid = np.linspace(-12, 6, 2000)
    normaliser = np.trapezoid(exact(grid), grid)
    density = exact(np.asarray(marginal.u)) / normaliser
    assert marginal.name == "tau"
    np.testing.assert_allclose(marginal.density, density, atol=0.012)  # of 0.37 at the highest
    assert np.trapezoid(marginal.density, marginal.u) == pytest.approx(1, abs=3e-3)
    spread = np.trapezoid(marginal.density * marginal.u, marginal.u)
    assert spread == pytest.approx(np.trapezoid(density * marginal.u, marginal.u), abs=0.02)


def test_the_picture_draws_it(fit):
    (axes,) = fit.plot().axes
    (line,) = axes.lines
    np.testing.assert_array_equal(
        line.get_xydata().T, [fit.marginals[0].u, fit.marginals[0].density]
    )
    assert axes.get_title() == "tau" and not axes.patches


def test_a_site_that_is_named_is_drawn_in_its_place(fit):
    (axes,) = fit.plot("mu").axes
    assert axes.get_title() == "mu" and axes.patches


def test_how_the_effects_are_centred_does_not_matter(fit):
    (other,) = lb.nested(not_centred(eight_schools, "theta"), *SCHOOLS).marginals
    np.testing.assert_allclose(fit.marginals[0].density, other.density, atol=1e-4)
