"""One step, two drivers: the search driven from Python and the compiled one end alike."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.search import search
from tests.fit.test_fool import RIGHT
from tests.models import coin, line

TOSSES = np.array([1.0, 1.0, 0.0])
X = np.random.default_rng(0).normal(size=(40, 30))


def effects(y):
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    with numpyro.plate("J", len(y)):
        effect = numpyro.sample("effect", dist.Normal(0, 1))
        numpyro.sample("y", dist.StudentT(4, 1 + scale * effect, 0.5), obs=y)


def simplex(y):
    weights = numpyro.sample("weights", dist.Dirichlet(np.ones(4)))
    numpyro.sample("y", dist.Multinomial(10, weights), obs=y)


def often_tossed(y):
    coin(y)


# For a search; the others for the reader of a model.
HARD = ("nearly collinear", "units", "small noise")
MODELS = {name: (*RIGHT[name][:2], {}) for name in HARD} | {
    "simplex": (simplex, (np.array([1, 2, 3, 4]),), {}),
    "in its own space, from a start": (
        coin,
        (TOSSES,),
        {"space": "constrained", "start": {"theta": 0.999}},
    ),
    "in blocks": (effects, (np.linspace(-1, 3, 8),), {"structure": "block"}),
    "more coordinates than few": (line, (X, X @ np.ones(30)), {}),
}


def both(model, args, options, monkeypatch):
    """The fits that are driven from Python and compiled."""
    driven = lb.laplace(model, *args, **options)
    monkeypatch.setattr(search, "WORK", 0)
    return driven, lb.laplace(model, *args, **options)


@pytest.mark.parametrize(("model", "args", "options"), MODELS.values(), ids=MODELS)
def test_both_drivers_find_the_same_mode(model, args, options, monkeypatch):
    driven, compiled = both(model, args, options, monkeypatch)
    scale = np.sqrt(np.asarray(driven.precision.diagonal_of_inverse()))
    assert np.all(np.abs(driven.mode_vector - compiled.mode_vector) <= 1e-6 * scale)
    for find in (lambda a: a.log_evidence, lambda a: a.certificate.condition_number):
        assert find(driven) == pytest.approx(float(find(compiled)), rel=1e-6)
    assert driven.certificate.converged
    assert compiled.certificate.converged
    distances = [float(a.certificate.newton_decrement) for a in (driven, compiled)]
    assert distances[0] == pytest.approx(distances[1], abs=1e-6)
    leaves = jax.tree.leaves(driven)
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    assert jax.tree.structure(driven.mode) == jax.tree.structure(compiled.mode)
    assert [leaf.dtype for leaf in leaves] == [leaf.dtype for leaf in jax.tree.leaves(compiled)]


def test_what_is_fitted_often_is_compiled(monkeypatch):
    compiled, found = search.compiled_search, []
    monkeypatch.setattr(search, "PATIENCE", 3)
    monkeypatch.setattr(
        search, "compiled_search", lambda *a, **k: found.append(1) or compiled(*a, **k)
    )
    evidences = [float(lb.laplace(often_tossed, TOSSES).log_evidence) for _ in range(5)]
    assert len(found) == 2
    np.testing.assert_allclose(evidences, evidences[0], rtol=1e-12)


def test_what_reads_much_beside_its_arguments_is_compiled_from_the_second_time_on(monkeypatch):
    compiled, found = search.compiled_search, []
    monkeypatch.setattr(search, "LONG", 1e-3)
    monkeypatch.setattr(
        search, "compiled_search", lambda *a, **k: found.append(1) or compiled(*a, **k)
    )
    many = np.random.default_rng(0).normal(size=(100_000, 3))

    def beside():
        line(many, many @ np.ones(3))

    evidences = [float(lb.laplace(beside).log_evidence) for _ in range(2)]
    assert len(found) == 1
    assert evidences[0] == pytest.approx(evidences[1], rel=1e-10)


def waits(y):
    rate = numpyro.sample("rate", dist.Gamma(9, 1))
    numpyro.sample("y", dist.Exponential(rate).expand([len(y)]).to_event(1), obs=y)


def test_both_drivers_ask_whether_the_data_lie_in_their_support(monkeypatch):
    """The log density of a negative wait is finite, and so would be a mode."""
    driven, compiled = both(waits, (np.array([0.1, -0.05]),), {"throw": False}, monkeypatch)
    assert not driven.certificate.converged
    assert not compiled.certificate.converged
    with pytest.raises(lb.NonFinite, match="site 'y'"):
        lb.laplace(waits, np.array([0.1, -0.05]))
