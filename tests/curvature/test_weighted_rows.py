"""Kronecker factors of rows that a mask hides, or that count several times: those of the rows that are there."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.curvature.kfac import kronecker_factors
from laplacebook.model.density import ModelDensity

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(20, 2)), RNG.normal(size=20)
U = 0.5 * RNG.normal(size=9)
SEEN = np.arange(20) % 4 != 1
TIMES = RNG.integers(1, 4, 20)


def network(x, t=None, seen=True, times=1.0):
    first = numpyro.sample("first", dist.Normal(0, 1).expand([2, 3]).to_event(2))
    second = numpyro.sample("second", dist.Normal(0, 1).expand([3, 1]).to_event(2))
    with numpyro.plate("N", len(x)), numpyro.handlers.scale(scale=times):
        outputs = (jnp.tanh(x @ first) @ second)[:, 0]
        numpyro.sample("t", dist.Normal(outputs, 0.3).mask(seen), obs=t)


def two_outputs(x, t=None, seen=True):
    first = numpyro.sample("first", dist.Normal(0, 1).expand([2, 2]).to_event(2))
    with numpyro.plate("N", len(x)):
        numpyro.sample("t", dist.Normal(x @ first, 0.3).mask(seen).to_event(1), obs=t)


def factors(model, u, *args, **kwargs):
    found = kronecker_factors(ModelDensity.of(model, args, kwargs), jnp.asarray(u))
    return [np.asarray(x) for x in jax.tree.leaves(found)]


@pytest.mark.parametrize("batch_size", [None, 7])
def test_what_is_masked_is_as_if_it_were_not_there(batch_size):
    hidden = np.where(SEEN[:, None], X, -100.0)
    density = ModelDensity.of(network, (hidden, Y), {"seen": SEEN})
    found = jax.tree.leaves(kronecker_factors(density, jnp.asarray(U), batch_size=batch_size))
    for one, exact in zip(found, factors(network, U, X[SEEN], Y[SEEN]), strict=True):
        np.testing.assert_allclose(one, exact, rtol=1e-12)


def test_what_counts_several_times_is_as_if_it_were_there_so_often():
    again = np.repeat(np.arange(20), TIMES)
    found = factors(network, U, X, Y, times=TIMES.astype(float))
    for one, exact in zip(found, factors(network, U, X[again], Y[again]), strict=True):
        np.testing.assert_allclose(one, exact, rtol=1e-12)


def test_a_row_with_one_of_two_outputs_counts():
    seen = np.ones((20, 2), bool)
    seen[3] = [True, False]
    seen[5] = False
    u, t = U[:4], RNG.normal(size=(20, 2))
    of_inputs, of_outputs = factors(two_outputs, u, X, t, seen=seen)
    rows = X[seen.any(axis=1)]
    np.testing.assert_allclose(of_inputs, rows.T @ rows / 19, rtol=1e-12)
    np.testing.assert_allclose(of_outputs, np.diag(seen.sum(axis=0)) / 0.09, rtol=1e-12)


def test_the_evidence_forgets_the_features_of_hidden_rows():
    start = lb.train(network, X[SEEN], Y[SEEN], key=jax.random.key(0), steps=2000)
    options = {"curvature": "gauss_newton", "start": start, "tolerance": 0.01}
    start = lb.laplace(network, X[SEEN], Y[SEEN], **options).mode
    options |= {"structure": "kronecker", "start": start}
    there = lb.laplace(network, X[SEEN], Y[SEEN], **options)
    hidden = lb.laplace(network, np.where(SEEN[:, None], X, 9.0), Y, seen=SEEN, **options)
    assert hidden.log_evidence == pytest.approx(float(there.log_evidence), abs=1e-3)


def test_a_weight_for_each_row_of_several_outputs():
    """Whose event has an axis that the weights have not."""

    def model(x, t, times):
        first = numpyro.sample("first", dist.Normal(0, 1).expand([2, 2]).to_event(2))
        with numpyro.plate("N", len(x)), numpyro.handlers.scale(scale=times):
            numpyro.sample("t", dist.Normal(x @ first, 0.3).to_event(1), obs=t)

    t, again = RNG.normal(size=(20, 2)), np.repeat(np.arange(20), TIMES)
    found = factors(model, U[:4], X, t, TIMES.astype(float))
    exact = factors(model, U[:4], X[again], t[again], np.ones(len(again)))
    for one, other in zip(found, exact, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
