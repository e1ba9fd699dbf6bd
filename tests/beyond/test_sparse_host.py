"""What the host spares in a search of many effects: factors that say nothing new."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.beyond.sparse_host import SparseHost
from laplacebook.curvature.sparse_hessian import SparseHessian
from laplacebook.gaussian.sparse import SparsePrecision
from laplacebook.gaussian.sparse_layout import SparseLayout
from laplacebook.model.density import ModelDensity
from laplacebook.search.metric import rounding_floor

RNG = np.random.default_rng(0)
GROUP = np.repeat(np.arange(30), 4)
Y = RNG.poisson(np.exp(0.3 + RNG.normal(0, 0.7, 30)[GROUP]))


def groups(group, y):
    b, log_s = numpyro.sample("b", dist.Normal(0, 2)), numpyro.sample("log_s", dist.Normal(0, 1))
    effects = numpyro.sample("z", dist.Normal(0, jnp.exp(log_s)).expand([30]).to_event(1))
    numpyro.sample("y", dist.Poisson(jnp.exp(b + effects[group])).to_event(1), obs=y)


def loss_of(marginal):
    density = ModelDensity.of(marginal, (GROUP, Y))
    return jax.jit(lambda u: density.loss(u)[0])


@pytest.fixture(scope="module")
def marginal():
    return lb.marginalize(groups, "z", structure="sparse")


@pytest.fixture(scope="module")
def loss(marginal):
    return loss_of(marginal)


@pytest.fixture(scope="module")
def dense():
    return loss_of(lb.marginalize(groups, "z"))


@pytest.fixture
def factors(monkeypatch):
    made = []
    precision = SparseHessian.precision

    def counted(self, parts):
        made.append(parts)
        return precision(self, parts)

    monkeypatch.setattr(SparseHessian, "precision", counted)
    return made


def test_a_look_nearby_takes_two_factors(loss, dense, factors):
    at, near = jnp.array([0.3, -0.4]), jnp.array([0.301, -0.401])
    for _ in range(2):
        loss(at).block_until_ready()
    factors.clear()
    found = float(loss(near))
    assert len(factors) == 2
    assert found == pytest.approx(float(dense(near)), rel=1e-12)


@pytest.mark.parametrize("far", [3.0, -6.0])
def test_a_chord_from_far_away_is_no_mode(loss, dense, far):
    loss(jnp.array([0.3, -0.4]))
    there = jnp.array([far, far / 3])
    assert float(loss(there)) == pytest.approx(float(dense(there)), rel=1e-11)


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize(("more", "far"), [(1.0, True), (1e-6, True), (1e-12, False)])
def test_the_trace_of_the_inverse_says_regular_only_where_eigenvalues_do(more, far):
    size = 24
    steps = np.diff(np.eye(size), axis=0)
    matrix = steps.T @ steps + more * np.eye(size)
    layout = SparseLayout.of(size, *np.nonzero(matrix))
    precision = SparsePrecision.of(layout, matrix[layout.rows, layout.cols])
    scale = np.diagonal(matrix) ** -0.5
    least = np.linalg.eigvalsh(scale[:, None] * matrix * scale)[0]
    assert (least > rounding_floor(size, float)) == far
    host = SparseHost(SimpleNamespace(), np.zeros(size), 0)
    assert host._is_far_from_singular(precision) == far
