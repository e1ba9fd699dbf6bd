"""The marginal densities of hyperparameters, against quadrature."""

import numpy as np
import pytest
from scipy import stats

import laplacebook as lb
from tests.beyond.practice import SCHOOLS, eight_schools, not_centred


def exact(log_tau):
    """The posterior density of log tau, up to a constant: mu and theta are normal and integrated out."""
    y, error = SCHOOLS
    covariance = np.diag(error**2 + np.exp(2 * log_tau)) + 25.0
    likelihood = stats.multivariate_normal(np.zeros(8), covariance).pdf(y)
    return likelihood * stats.halfcauchy(scale=5).pdf(np.exp(log_tau)) * np.exp(log_tau)


def test_the_density_of_a_scale():
    (marginal,) = lb.nested(eight_schools, *SCHOOLS).marginals
    grid = np.linspace(-12, 6, 2000)
    normaliser = np.trapezoid([exact(u) for u in grid], grid)
    density = np.array([exact(u) for u in marginal.u]) / normaliser
    assert marginal.name == "tau"
    np.testing.assert_allclose(marginal.density, density, atol=0.012)  # of 0.37 at the highest
    assert np.trapezoid(marginal.density, marginal.u) == pytest.approx(1, abs=3e-3)
    spread = np.trapezoid(marginal.density * marginal.u, marginal.u)
    assert spread == pytest.approx(np.trapezoid(density * marginal.u, marginal.u), abs=0.02)


def test_the_picture_draws_it():
    approx = lb.nested(eight_schools, *SCHOOLS)
    (axes,) = approx.plot().axes
    (line,) = axes.lines
    np.testing.assert_array_equal(
        line.get_xydata().T, [approx.marginals[0].u, approx.marginals[0].density]
    )
    assert axes.get_title() == "tau"


def test_how_the_effects_are_centred_does_not_matter():
    model = not_centred(eight_schools, "theta")
    (one,), (other,) = (lb.nested(m, *SCHOOLS).marginals for m in (eight_schools, model))
    np.testing.assert_allclose(one.density, other.density, atol=1e-4)
