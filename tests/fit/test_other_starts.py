"""Where the middle of the prior leads nowhere a search begins once more."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.fit import laplace as module
from laplacebook.models import bayesian_mlp
from tests.models import single_precision

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 2 + RNG.normal(size=60) / 10
NETWORK = partial(bayesian_mlp, widths=(4, 4), noise_precision=10.0)


@pytest.fixture
def searches(monkeypatch):
    """From where each search began."""
    begun = []
    search = module.search

    def counted(density, start, settings):
        begun.append(start)
        return search(density, start, settings)

    monkeypatch.setattr(module, "search", counted)
    return begun


@pytest.mark.parametrize("structure", ["dense", "kronecker"])
def test_weights_that_were_left_at_zero_are_moved_apart(searches, structure):
    how = {"curvature": "gauss_newton", "structure": structure}
    approx = lb.laplace(NETWORK, X, Y, **how)
    assert len(searches) == 2 and searches[0] is None
    assert approx.certificate.converged
    zeros = {name: np.zeros_like(value) for name, value in approx.mode.items()}
    asleep = lb.laplace(NETWORK, X, Y, start=zeros, **how)
    assert len(searches) == 3  # a start that was asked for is taken
    spread, flat = (np.ptp(lb.predict(fit, X).mean) for fit in (approx, asleep))
    assert flat < 1e-3 < 1 < spread
    assert approx.log_evidence > asleep.log_evidence + 20


def test_so_are_those_of_a_search_that_failed(searches):
    with single_precision():
        data = X.astype("float32"), Y.astype("float32")
        approx = lb.laplace(partial(bayesian_mlp, widths=(20, 20)), *data, throw=False)
    assert len(searches) == 2 and not approx.certificate.converged


def test_matrices_that_the_data_move_are_searched_once(searches):
    def two(y):
        a = numpyro.sample("a", dist.Normal(0, 1).expand([3, 2]).to_event(2))
        b = numpyro.sample("b", dist.Normal(0, 1).expand([3, 2]).to_event(2))
        numpyro.sample("y", dist.Normal(a + 2 * b, 1).to_event(2), obs=y)

    y = np.arange(6.0).reshape(3, 2)
    approx = lb.laplace(two, y)
    np.testing.assert_allclose(approx.mode["b"], y / 3, atol=1e-9)
    assert len(searches) == 1


def test_the_lower_of_two_modes_is_not_taken(searches):
    """Matrices that nothing tells apart: the second search ends where the first did."""

    def idle(y):
        for name in ("a", "b"):
            numpyro.sample(name, dist.Normal(0, 1).expand([2, 2]).to_event(2))
        numpyro.sample(
            "y",
            dist.Normal(numpyro.sample("m", dist.Normal(0, 1)), 1).expand([2]).to_event(1),
            obs=y,
        )

    approx = lb.laplace(idle, np.ones(2))
    assert len(searches) == 2
    np.testing.assert_allclose(approx.mode["a"], 0, atol=1e-7)
    np.testing.assert_allclose(approx.mode["m"], 2 / 3)


def test_a_program_has_no_second_search_and_its_fit_has_failed():
    how = {"curvature": "gauss_newton"}

    def evidence(y, start=None):
        return lb.laplace(NETWORK, X, y, start=start, **how).log_evidence

    assert jnp.isnan(jax.jit(evidence)(Y))
    start = lb.laplace(NETWORK, X, Y, **how).mode
    np.testing.assert_allclose(jax.jit(evidence)(Y, start), evidence(Y, start), rtol=1e-9)
