"""One search without a Hessian, two drivers: rounds driven from Python and compiled ones end alike."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from threadpoolctl import threadpool_limits

import laplacebook as lb
from laplacebook.models import bayesian_mlp
from laplacebook.search import driven_rounds, looks, search
from laplacebook.search.looks import remembered
from laplacebook.search.newton_step import Look
from tests.base.test_one_thread import threads
from tests.models import logistic

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
LABELS = (X @ np.ones(2) + RNG.normal(size=30) > 0).astype(float)
WAVE = np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=30)
NETWORK = {"widths": (3,), "noise_precision": 10.0}
START = {
    "w1": RNG.normal(size=(2, 3)),
    "b1": RNG.normal(size=3),
    "w2": RNG.normal(size=(3, 1)),
    "b2": RNG.normal(size=1),
}
ZEROS = {name: np.zeros_like(value) for name, value in START.items()}


def ordered(x, y):
    """Its prior is not the same for all numbers, and its rate has an end."""
    slope = numpyro.sample("slope", dist.Normal(np.zeros(2), np.array([1.0, 3.0])).to_event(1))
    rate = numpyro.sample("rate", dist.Gamma(3, 1))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(x @ slope, 1 / rate), obs=y)


def separable(x, y):
    b = numpyro.sample("b", dist.ImproperUniform(dist.constraints.real, (), ()))
    numpyro.sample("y", dist.Bernoulli(logits=b * x), obs=y)


def flat(x, y):
    """The data tell the sum of two slopes."""
    slopes = numpyro.sample("slopes", dist.ImproperUniform(dist.constraints.real, (), (2,)))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(jnp.sum(slopes) * x, 1), obs=y)


def rounded(x, y):
    """JAX sees no slope in a step of the mean."""
    slope = numpyro.sample("slope", dist.Normal(0, 3))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(jnp.round(3 * slope) * x, 1), obs=y)


def gauss_newton(structure, **more):
    return {"curvature": "gauss_newton", "structure": structure, **more}


FITS = {
    "from a start, in its own space": (
        ordered,
        (X, WAVE),
        gauss_newton("block", space="constrained", start={"slope": np.ones(2), "rate": 0.3}),
    ),
    "network": (bayesian_mlp, (X, WAVE), gauss_newton("kronecker", start=START, **NETWORK)),
    "low rank, from a dense one": (logistic, (X, LABELS), gauss_newton("low_rank", rank=1)),
    "roughly": (
        ordered,
        (X, WAVE),
        gauss_newton("block", start={"slope": np.ones(2), "rate": 0.3}, tolerance=0.5),
    ),
}
LINE = X[:, 0]
REFUSED = {
    "a flat direction": (flat, (LINE, WAVE), lb.NotPositiveDefinite),
    "data with a NaN": (logistic, (X, np.where(np.arange(30) == 3, np.nan, LABELS)), lb.NonFinite),
    "data outside the support": (logistic, (X, 2 * LABELS), lb.NonFinite),
    "a tail": (separable, (LINE, (LINE > 0).astype(float)), lb.NotConverged),
    "a hidden slope": (rounded, (LINE, WAVE), lb.NotConverged),
}


def both(model, args, options, monkeypatch):
    """The fits that are driven from Python and compiled; each has to take its way."""
    ways = []
    for name in ("_driven_rounds", "compiled_search"):
        way = getattr(search, name)
        monkeypatch.setattr(
            search, name, lambda *a, way=way, name=name, **k: ways.append(name) or way(*a, **k)
        )
    driven = lb.laplace(model, *args, **options)
    assert set(ways) == {"_driven_rounds"}
    ways.clear()
    monkeypatch.setattr(search, "PATIENCE", -1)
    compiled = lb.laplace(model, *args, **options)
    assert set(ways) == {"compiled_search"}
    return driven, compiled


@pytest.mark.parametrize(("model", "args", "options"), FITS.values(), ids=FITS)
def test_both_drivers_find_the_same_mode(model, args, options, monkeypatch):
    driven, compiled = both(model, args, options, monkeypatch)
    assert driven.certificate.converged
    assert compiled.certificate.converged
    scale = np.sqrt(np.asarray(driven.precision.diagonal_of_inverse()))
    assert np.all(np.abs(driven.mode_vector - compiled.mode_vector) <= 1e-6 * scale)
    for find in (lambda a: a.log_evidence, lambda a: a.certificate.condition_number):
        assert find(driven) == pytest.approx(float(find(compiled)), rel=1e-6)
    iterations = [int(a.certificate.iterations) for a in (driven, compiled)]
    assert iterations[0] == pytest.approx(iterations[1], rel=0.2, abs=2)  # rounding leads elsewhere
    distances = [float(a.certificate.newton_decrement) for a in (driven, compiled)]
    assert distances[0] == pytest.approx(distances[1], rel=1e-5, abs=1e-8)
    leaves = jax.tree.leaves(driven)
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    assert jax.tree.structure(driven.mode) == jax.tree.structure(compiled.mode)
    assert [leaf.dtype for leaf in leaves] == [leaf.dtype for leaf in jax.tree.leaves(compiled)]


def test_the_linear_algebra_of_few_numbers_has_one_thread(monkeypatch):
    """Those of OpenBLAS wait for each other by spinning: four small eigendecompositions took 24 ms instead of 0.6."""
    seen = []

    def noted(room, name):
        one = getattr(room, name)
        note = lambda *args: seen.append((name, *threads())) or one(*args)  # noqa: E731
        monkeypatch.setattr(room, name, note)

    for name in ("round_from", "after_round", "ended"):
        noted(driven_rounds, name)
    noted(looks, "_factorised")
    noted(search, "levels_off")
    model, args, options = FITS["network"]
    with threadpool_limits(2, user_api="blas"):
        lb.laplace(model, *args, **options)
        assert threads() == {2}
    assert {name for name, *_ in seen} == {
        "round_from",
        "after_round",
        "ended",
        "_factorised",
        "levels_off",
    }
    assert {number for _, *numbers in seen for number in numbers} == {1}


@pytest.mark.parametrize(("model", "args", "error"), REFUSED.values(), ids=REFUSED)
def test_both_drivers_refuse_alike(model, args, error, monkeypatch):
    options = {"curvature": "gauss_newton"}
    driven, compiled = both(model, args, options | {"throw": False}, monkeypatch)
    for approx in (driven, compiled):
        assert not approx.certificate.converged
        assert np.isnan(approx.log_evidence)
        assert np.isnan(approx.mode_vector).all()
    messages = []
    for patience in (300, -1):
        monkeypatch.setattr(search, "PATIENCE", patience)
        with pytest.raises(error) as caught:
            lb.laplace(model, *args, **options)
        messages.append((caught.type, str(caught.value).split(":")[0]))
    assert messages[0] == messages[1]


def test_a_saddle_is_left_by_both_and_refused_where_the_search_ends_there(monkeypatch):
    """All weights zero is a stationary point of a network, where Gauss-Newton sees no way down."""
    driven, compiled = both(
        bayesian_mlp, (X, WAVE), gauss_newton("kronecker", start=ZEROS, **NETWORK), monkeypatch
    )
    assert np.abs(driven.mode_vector).max() > 0.1
    assert driven.log_evidence == pytest.approx(float(compiled.log_evidence), rel=1e-6)


def asked_often(monkeypatch, start, times=5):
    """Fits of one network, which counts as large, and how often each program of the judge has run."""
    calls = {"hessian_product_again": 0, "slope_look_again": 0}

    def counted(name, program):
        def call(*args):
            calls[name] += 1
            return program(*args)

        return call

    for name in calls:
        monkeypatch.setattr(search, name, counted(name, getattr(search, name)))
    monkeypatch.setattr(search, "is_laborious", lambda density, size: True)
    search._known_past.cache_clear()
    how = {"curvature": "gauss_newton", "structure": "diagonal", "throw": False, **NETWORK}
    return [lb.laplace(bayesian_mlp, X, WAVE, start=start, **how) for _ in range(times)], calls


def test_a_network_that_is_fitted_often_is_judged_by_other_programs_and_has_the_same_fit(
    monkeypatch,
):
    fits, calls = asked_often(monkeypatch, START)
    assert calls == {"hessian_product_again": 20, "slope_look_again": 14}
    first, *_, last = (jax.tree.leaves((fit.mode, fit.precision, fit.log_prior)) for fit in fits)
    assert fits[0].certificate.converged
    assert all(np.array_equal(one, other) for one, other in zip(first, last, strict=True))


def test_a_point_that_was_looked_at_last_is_not_looked_at_again():
    seen = []

    def look(u):
        seen.append(u.copy())
        return Look(np.asarray(len(seen)), None, u, None)

    look_at, u = remembered(look), np.zeros(2)
    assert [int(look_at(x).f) for x in (u, u.copy(), u + 1, u)] == [1, 1, 2, 3]
    u += 5  # in place: another point
    assert look_at(u).f == 4
