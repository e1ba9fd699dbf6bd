"""A fit beside a log joint that is written by hand and optimised by SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy import stats
from scipy import optimize

import laplacebook as lb

Y = np.array([1.0, 2.5, -0.5, 1.7])


def normal(x, mean=0.0, sd=1.0):
    return jnp.sum(stats.norm.logpdf(x, mean, sd))


def by_scipy(log_joint, near):
    """Mode, precision and log evidence of a log joint; of several modes, the one nearby."""
    minus = lambda u: -log_joint(u)  # noqa: E731
    both, hessian = jax.jit(jax.value_and_grad(minus)), jax.jit(jax.hessian(minus))
    found = optimize.minimize(both, near, jac=True, hess=hessian, method="trust-exact", tol=1e-9)
    precision = hessian(found.x)
    occam = len(found.x) / 2 * np.log(2 * np.pi) - np.linalg.slogdet(precision)[1] / 2
    return found.x, precision, occam - found.fun


def agrees(model, args, log_joint, dimension):
    """Mode, precision and log evidence of a model, of so many coordinates, are those of its log joint."""
    approx = lb.laplace(model, *args)
    assert approx.mode_vector.shape == (dimension,)
    away = approx.mode_vector + 0.05 * np.random.default_rng(0).normal(size=dimension)
    mode, precision, log_evidence = by_scipy(log_joint, away)
    np.testing.assert_allclose(approx.mode_vector, mode, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(approx.precision.matrix, precision, rtol=1e-6, atol=1e-6)
    assert approx.log_evidence == pytest.approx(log_evidence, rel=1e-8, abs=1e-8)
