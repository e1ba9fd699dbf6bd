"""Derivatives of the fit go through the mode, and those of a failed fit are NaN."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import gammaln

import laplacebook as lb
from tests.models import coin, normal, redundant

COIN = np.repeat([1.0, 0.0], [8, 1])

WAYS = {
    "argument": lambda s: lb.laplace(coin, COIN, s, 2.0),
    "partial": lambda s: lb.laplace(functools.partial(coin, heads=s), COIN),
    "closure": lambda s: lb.laplace(lambda y: coin(y, s), COIN),
}


def closed_form(s):
    """log Z = log lik + log prior + log Jacobian + (1/2) log(2 pi / A) at p = (s + 8)/(s + 11)."""
    p, a, b = (s + 8) / (s + 11), s + 8, 3.0
    log_beta = gammaln(s) + gammaln(2.0) - gammaln(s + 2)  # betaln has a wrong second derivative
    return a * jnp.log(p) + b * jnp.log1p(-p) - log_beta - jnp.log(a * b / (a + b)) / 2


@pytest.mark.parametrize("way", WAYS)
def test_gradient_of_the_evidence_goes_through_the_mode(way):
    gradient = jax.grad(lambda s: WAYS[way](s).log_evidence)(2.0)
    assert gradient == pytest.approx(float(jax.grad(closed_form)(2.0)), rel=1e-8)


def test_second_derivative_of_the_evidence_within_a_program():
    second = jax.jit(jax.grad(jax.grad(lambda s: WAYS["argument"](s).log_evidence)))(2.0)
    known = jax.jit(jax.grad(jax.grad(closed_form)))(2.0)
    assert float(second) == pytest.approx(float(known), rel=1e-6)


def test_gradient_of_the_mode_and_the_covariance():
    """In the logit the mode is log((s + 8)/3), the variance 1/(s + 8) + 1/3."""

    def moments(s):
        approx = WAYS["argument"](s)
        return approx.mode_vector[0], approx.covariance[0, 0]

    slopes = jax.jit(jax.jacobian(moments))(2.0)
    np.testing.assert_allclose(slopes, [1 / 10, -1 / 100], rtol=1e-6)


def test_gradient_with_respect_to_the_data_agrees_with_finite_differences():
    y = jnp.array([1.3, 2.0, 0.4, 3.1, 1.1])

    def log_evidence(y):
        return lb.laplace(normal, y, 10.0, 10.0).log_evidence

    gradient = jax.grad(log_evidence)(y)
    h = 1e-5
    steps = [(log_evidence(y + h * e) - log_evidence(y - h * e)) / (2 * h) for e in jnp.eye(5)]
    np.testing.assert_allclose(gradient, steps, rtol=1e-6, atol=1e-8)


FAILED = {
    "no mode": lambda y: lb.laplace(redundant, y),
    "a mode at the edge": lambda a: lb.laplace(coin, np.ones(3), a, 1.0, space="constrained"),
}


@pytest.mark.parametrize("why", FAILED)
def test_a_derivative_of_a_failed_fit_is_nan(why):
    assert np.isnan(jax.grad(lambda x: FAILED[why](x).log_evidence)(1.0))
