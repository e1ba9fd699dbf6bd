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
from laplacebook.fit import other_starts
from laplacebook.models import bayesian_mlp
from laplacebook.search import search as search_module
from laplacebook.search import sparse_search
from tests.models import single_precision
from tests.test_next_calls import compiled

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 2 + RNG.normal(size=60) / 10
NETWORK = partial(bayesian_mlp, widths=(4, 4), noise_precision=10.0)


@pytest.fixture
def searches(monkeypatch):
    """From where each search began."""
    begun = []
    search = module.search

    def counted(density, start, settings, briefly=False):
        begun.append(start)
        return search(density, start, settings, briefly)

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


def test_a_second_search_that_fails_leaves_the_first(searches, monkeypatch):
    def idle(y):
        for name in ("a", "b"):
            numpyro.sample(name, dist.Normal(0, 1).expand([2, 2]).to_event(2))
        numpyro.sample("y", dist.Normal(numpyro.sample("m", dist.Normal(0, 1)), 1), obs=y)

    begin = other_starts.start_by_weights
    monkeypatch.setattr(module, "start_by_weights", lambda *args: begin(*args) * jnp.nan)
    approx = lb.laplace(idle, 1.0)
    assert len(searches) == 2 and approx.certificate.converged
    np.testing.assert_allclose(approx.mode["m"], 0.5)


def test_effects_in_small_units_are_the_same_within_a_program():
    """Matrices that the data move by little: the second search ends where the first did, and none is needed."""

    def effects(y):
        a, b = (
            numpyro.sample(name, dist.Normal(0, 0.002).expand([3, 2]).to_event(2)) for name in "ab"
        )
        numpyro.sample("y", dist.Normal(a + 2 * b, 0.01).to_event(2), obs=y)

    def evidence(y):
        return lb.laplace(effects, y).log_evidence

    y = np.arange(6.0).reshape(3, 2) / 1000
    exact = dist.Normal(0, np.sqrt(0.01**2 + 5 * 0.002**2)).log_prob(y).sum()
    np.testing.assert_allclose([evidence(y), jax.jit(evidence)(y)], exact, rtol=1e-9)


@pytest.mark.parametrize("space", ["unconstrained", "constrained"])
def test_one_group_in_two_axes(space, searches):
    def plates(y):
        with numpyro.plate("g", 1, dim=-2):
            mu = numpyro.sample("mu", dist.Normal(0, 5))
            s = numpyro.sample("s", dist.HalfNormal(2))
            with numpyro.plate("n", y.shape[1], dim=-1):
                numpyro.sample("y", dist.Normal(mu, s), obs=y)

    approx = lb.laplace(plates, np.random.default_rng(0).normal(2, 0.5, (1, 20)), space=space)
    assert len(searches) == 1 and approx.certificate.converged


def test_a_bias_that_is_a_row_moves_alone(searches):
    def net(x, t):
        h, shapes = x, [(2, 4), (4, 4), (4, 3)]
        for i, shape in enumerate(shapes):
            h = jnp.tanh(h) if i else h
            h = h @ numpyro.sample(f"w{i}", dist.Normal(0, 1).expand(shape).to_event(2))
        h = h + numpyro.sample("bias", dist.Normal(0, 1).expand([1, 3]).to_event(2))
        numpyro.sample("t", dist.Categorical(logits=h).to_event(1), obs=t)

    t = (X[:, 0] > 0).astype(int) + (X[:, 1] > 1)
    approx = lb.laplace(net, X, t, curvature="gauss_newton")
    assert len(searches) == 2 and np.ptp(approx.mode["w0"]) > 0.1


def test_effects_come_first_where_all_together_have_failed_and_the_next_time_nothing_is_compiled(
    searches,
):
    def table(y):
        scale = numpyro.sample("scale", dist.HalfNormal(1))
        with numpyro.plate("effects", y.size):
            effect = numpyro.sample("effect", dist.Normal(0, scale))
            numpyro.sample("y", dist.Normal(effect, 0.3), obs=y)

    y = np.sinh(np.arange(36.0) / 13 - 1.3)
    first, fits = lb.laplace(table, y), []
    assert not compiled(lambda: fits.append(lb.laplace(table, 1.01 * y)))
    assert len(searches) == 4  # of all, at first in the middle of the prior
    assert first.certificate.converged and fits[0].certificate.converged


def centred(group, y, size):
    mean = numpyro.sample("mean", dist.Normal(0, 2))
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    noise = numpyro.sample("noise", dist.HalfNormal(1))
    with numpyro.plate("groups", size):
        effect = numpyro.sample("effect", dist.Normal(0, scale))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mean + effect[group], noise), obs=y)


@pytest.fixture
def looks(monkeypatch):
    """How many looks each search took."""
    taken = []
    for place in (sparse_search, search_module):
        drive = place.drive

        def counted(*args, drive=drive, **kwargs):
            taken.append(drive(*args, **kwargs))
            return taken[-1]

        monkeypatch.setattr(place, "drive", counted)
    return taken


@pytest.mark.parametrize("structure", ["dense", "sparse"])
def test_a_scale_that_shrinks_to_zero_is_not_followed_to_the_end(structure, looks):
    """Before the effects have moved: the search for these, given the scale, is the shorter way to the same mode."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(40), 10)
    y = rng.normal(size=40)[group] + rng.normal(size=400) / 2
    approx = lb.laplace(centred, group, y, 40, structure=structure)
    assert [int(found.certificate.iterations) for found in looks][0] == 100
    assert all(found.certificate.iterations < 30 for found in looks[1:]) and len(looks) == 3
    slope = jax.grad(lambda u: approx.density.loss(u)[0])(approx.mode_vector)
    np.testing.assert_allclose(slope * np.sqrt(np.diag(approx.covariance)), 0, atol=1e-7)
    assert 0.7 < approx.mode["scale"] < 1.3


@pytest.mark.parametrize("seed", [1, 2])
def test_a_long_way_to_a_mode_is_gone(seed, looks):
    """Where no scale has shrunk the search goes on, and does not end at another mode of a model with several."""

    def several(y):
        scale = numpyro.sample("scale", dist.Gamma(4.0, 2.0))
        z = numpyro.sample("z", dist.Normal(0, scale).expand([60]).to_event(1))
        level = jnp.linalg.slogdet(3 * jnp.eye(3) + z[:9].reshape(3, 3))[1]
        numpyro.sample("y", dist.Normal(level + z, 1).to_event(1), obs=y)

    approx = lb.laplace(several, np.random.default_rng(seed).normal(size=60))
    assert approx.certificate.iterations > 150 and len(looks) == 1


def test_where_that_leads_nowhere_the_first_search_is_made_to_its_end(searches, looks):
    """Groups that hardly differ: the joint mode is at a scale of zero, which the error says as before."""
    group, rng = np.repeat(np.arange(8), 3), np.random.default_rng(1)
    with pytest.raises(lb.NotConverged) as refused:
        lb.laplace(centred, group, rng.normal(size=24), 8)
    first, last = looks[0].certificate, looks[-1].certificate
    assert first.iterations == 100 < last.iterations and searches[0] is searches[-1] is None
    assert (
        refused.value.last.shape == (11,) and refused.value.last[1] < -20
    )  # the logarithm of the scale
    assert "nested" in str(refused.value)


def test_a_sparse_integral_without_a_mode_is_refused_for_that():
    """Given its scales it would be a model of another kind, of which JAX has no second derivative."""

    def nested(y):
        scale = numpyro.sample("scale", dist.HalfNormal(1))
        with numpyro.plate("means", 2):
            mean = numpyro.sample("mean", dist.Normal(0, scale))
        with numpyro.plate("effects", 6):
            effect = numpyro.sample("effect", dist.Normal(jnp.repeat(mean, 3), 1))
        numpyro.sample("y", dist.Normal(effect, 0.5).to_event(1), obs=y)

    with pytest.raises(lb.NotConverged, match="edge of the support of 'scale'"):
        lb.laplace(lb.marginalize(nested, "effect", structure="sparse"), np.arange(6.0) / 100)
