"""Derivatives of the fit go through the mode, and those of a failed fit are NaN."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import gammaln

import laplacebook as lb
from tests.models import coin, normal, redundant

COIN = np.repeat([1.0, 0.0], [8, 1])


def closed_form(s):
    """log Z = log lik + log prior + log Jacobian + (1/2) log(2 pi / A) at p = (s + 8)/(s + 11)."""
    p, a, b = (s + 8) / (s + 11), s + 8, 3.0
    log_beta = gammaln(s) + gammaln(2.0) - gammaln(s + 2)  # betaln has a wrong second derivative
    return a * jnp.log(p) + b * jnp.log1p(-p) - log_beta - jnp.log(a * b / (a + b)) / 2


def test_two_derivatives_of_the_evidence_go_through_the_mode():
    """By a number of a partial; the first alone, by one that is closed over, is in test_fool.py."""
    gradient = jax.grad(lambda s: lb.laplace(partial(coin, heads=s), COIN).log_evidence)
    second, known = (jax.jit(jax.grad(f))(2.0) for f in (gradient, jax.grad(closed_form)))
    assert float(second) == pytest.approx(float(known), rel=1e-6)


def test_gradient_with_respect_to_the_data_agrees_with_finite_differences():
    y = jnp.array([1.3, 2.0, 0.4, 3.1, 1.1])

    def log_evidence(y):
        return lb.laplace(normal, y, 10.0, 10.0).log_evidence

    gradient = jax.jit(jax.grad(log_evidence))(y)
    h = 1e-5
    steps = [(log_evidence(y + h * e) - log_evidence(y - h * e)) / (2 * h) for e in jnp.eye(5)]
    np.testing.assert_allclose(gradient, steps, rtol=1e-6, atol=1e-8)


def test_a_derivative_of_a_failed_fit_is_nan():
    slope = jax.jit(jax.grad(lambda y: lb.laplace(redundant, y).log_evidence))
    assert np.isnan(slope(1.0))
