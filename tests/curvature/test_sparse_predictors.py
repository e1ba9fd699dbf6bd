"""Hessians through a long affine predictor, against those of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

from laplacebook.curvature.sparse_hessian import SparseHessian
from laplacebook.curvature.sparse_pattern import generic_point
from laplacebook.model.density import ModelDensity

RNG = np.random.default_rng(0)
N, GROUPS, ITEMS = 300, 30, 12
GROUP, ITEM = RNG.integers(0, GROUPS, N), RNG.integers(0, ITEMS, N)
X, Y = RNG.normal(size=N), RNG.integers(0, 2, N)
SEEN = RNG.random(N) < 0.8


def effects(scale=1.0):
    with numpyro.plate("groups", GROUPS):
        u = numpyro.sample("u", dist.Normal(0, scale))
    with numpyro.plate("items", ITEMS):
        v = numpyro.sample("v", dist.Normal(0, scale))
    return u, v


def with_slopes(y):
    b = numpyro.sample("b", dist.Normal(0, 1))
    u, v = effects()
    eta = 0.3 + b * X + u[GROUP] * X + v[ITEM]
    with numpyro.plate("rows", N):
        numpyro.sample("y", dist.Poisson(jnp.exp(eta / 2)), obs=y)


def masked_outcome(y):
    """Beside another one."""
    u, v = effects()
    with handlers.mask(mask=SEEN):
        numpyro.sample("y", dist.Bernoulli(logits=u[GROUP] - v[ITEM]), obs=y)
    numpyro.sample("x", dist.StudentT(4, 2 * u[GROUP], 0.5), obs=X)


def correlated(y):
    """An effect twice in a row: one entry of the Jacobian, not two."""
    u, v = effects()
    numpyro.sample("y", dist.Bernoulli(logits=u[GROUP] + u[(GROUP + 1) % GROUPS] + v[ITEM]), obs=y)


def scaled_effects(y):
    """The predictor is a product of coordinates, and not affine."""
    s = numpyro.sample("s", dist.HalfNormal(1))
    u, v = effects()
    numpyro.sample("y", dist.Bernoulli(logits=s * u[GROUP] + v[ITEM]), obs=y)


def row_against_row(y):
    """Neighbours among the rows meet in the likelihood: it is no sum over rows."""
    u, v = effects()
    eta = u[GROUP] + v[ITEM]
    numpyro.factor("pairs", -0.5 * jnp.sum((eta[1:] * eta[:-1] - 1) ** 2))


def correlated_pairs(y):
    """A prior with a triangular solve, of which the search for a pattern knows nothing."""
    root = jnp.array([[1.0, 0.0], [0.4, 0.9]])
    with numpyro.plate("groups", GROUPS):
        u = numpyro.sample("u", dist.MultivariateNormal(jnp.zeros(2), scale_tril=root))
    eta = u[GROUP, 0] + u[GROUP, 1] * X
    numpyro.sample("y", dist.Bernoulli(logits=eta).to_event(1), obs=y)


def found(model):
    density = ModelDensity.of(model, (Y,), {})
    point = generic_point(density, np.asarray(density.start(), float))
    pattern = SparseHessian.of(density, point)
    parts = jax.device_get(pattern.parts_at(density, jnp.asarray(point)))
    whole = np.asarray(pattern.precision(parts).matrix)
    exact = np.asarray(jax.jit(jax.hessian(lambda u: density.loss(u)[0]))(point))
    np.testing.assert_allclose(whole, exact, rtol=1e-10, atol=1e-10 * np.abs(exact).max())
    return pattern


@pytest.mark.parametrize(
    ("model", "products"),
    [(with_slopes, 3), (masked_outcome, 3), (correlated, 4)],
)
def test_a_predictor_holds_the_hessian_in_few_products(model, products):
    pattern = found(model)
    assert pattern.predictor is not None
    assert pattern.predictor[1] <= products
    assert pattern.number <= 2


@pytest.mark.parametrize("model", [scaled_effects, row_against_row, correlated_pairs])
def test_what_is_no_affine_predictor_or_not_seen_to_be_is_not_taken_for_one(model):
    assert found(model).predictor is None
