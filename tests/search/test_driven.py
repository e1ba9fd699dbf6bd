"""One step, three drivers: the searches driven from Python, of them one by rows, end as the compiled one."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.curvature import linear_predictor, predictor_on_host, rows_on_host
from laplacebook.curvature.predictor_on_host import PredictorOnHost
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


RNG = np.random.default_rng(0)

ROWS = RNG.normal(size=(900, 20))

SCALES = np.linspace(0.1, 1, 20)

COUNTS = RNG.poisson(np.exp(ROWS @ SCALES / 4 + 0.3))


def counts(x, y):
    weights = numpyro.sample("weights", dist.Normal(0, SCALES).to_event(1))
    shift = numpyro.sample("shift", dist.Normal(0, 1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Poisson(jax.numpy.exp(shift + x @ weights)), obs=y)


def flat(x, y):
    flat = dist.ImproperUniform(dist.constraints.real_vector, (), (x.shape[1],))
    weights = numpyro.sample("weights", flat)
    numpyro.sample("y", dist.Normal(x @ weights, 1), obs=y)


def sizes(x, y):
    weights = numpyro.sample("weights", dist.Normal(0, SCALES).to_event(1))
    numpyro.sample("y", dist.HalfNormal(jax.numpy.exp(x @ weights)).to_event(1), obs=y)


@pytest.fixture
def by_both(monkeypatch):
    """The fit by rows, and the compiled one."""
    driven, by_rows_alone = [], search._driven_by_rows
    monkeypatch.setattr(search, "WORK", 0)

    def fit(*args, **options):
        with monkeypatch.context() as patch:
            patch.setattr(linear_predictor, "LARGE", 1)
            patch.setattr(
                search, "_driven_by_rows", lambda *given: driven.append(1) or by_rows_alone(*given)
            )
            by_rows = lb.laplace(*args, **options)
        searches = len(driven)
        compiled = lb.laplace(*args, **options)
        assert 0 < searches == len(driven)
        return by_rows, compiled

    return fit


@pytest.mark.parametrize(
    ("model", "data", "options"),
    [
        (counts, (ROWS, COUNTS), {"structure": "block", "start": {"shift": 1.0}}),
        (line, (np.int16(np.round(3 * ROWS[:, :3])), ROWS @ SCALES), {}),
    ],
    ids=["with estimated curvature", "few coordinates and whole numbers"],
)
def test_they_end_alike(model, data, options, by_both):
    by_rows, compiled = by_both(model, *data, **options)
    scale = np.sqrt(np.asarray(compiled.precision.diagonal_of_inverse()))
    assert np.all(np.abs(by_rows.mode_vector - compiled.mode_vector) <= 1e-6 * scale)
    for find in (lambda a: a.log_evidence, lambda a: a.certificate.condition_number):
        assert find(by_rows) == pytest.approx(float(find(compiled)), rel=1e-8)
    assert by_rows.certificate.converged
    assert by_rows.certificate.iterations == compiled.certificate.iterations
    leaves, expected = map(jax.tree.leaves, (by_rows, compiled))
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    assert [x.dtype for x in leaves] == [x.dtype for x in expected]
    assert jax.tree.structure(by_rows) == jax.tree.structure(compiled)


@pytest.mark.parametrize(
    ("rows", "looks_at_start"),
    [(ROWS, 1), (np.where(np.arange(900)[:, None] % 2 == 0, 0, ROWS), 2)],
    ids=["that tells", "that says nothing"],
)
def test_a_search_that_begins_by_a_sample_of_the_rows_ends_by_all(
    rows, looks_at_start, by_both, monkeypatch
):
    hessian, taken = PredictorOnHost.hessian, []
    monkeypatch.setattr(predictor_on_host, "_SAMPLE", 1)
    monkeypatch.setattr(predictor_on_host, "_MANY", 1)
    monkeypatch.setattr(predictor_on_host, "_EVERY", 2)
    monkeypatch.setattr(rows_on_host, "blas_threads", lambda: 1)

    def watched(self, u, every=1):
        taken.append((tuple(u), every))
        return hessian(self, u, every)

    monkeypatch.setattr(PredictorOnHost, "hessian", watched)
    by_rows, compiled = by_both(lb.models.logistic_regression, rows, COUNTS > 1)
    points, shares = zip(*taken, strict=True)
    assert shares == (2, *[1] * (len(taken) - 1))
    assert points.count(points[0]) == looks_at_start
    sd = np.sqrt(np.diagonal(compiled.covariance))
    assert np.all(np.abs(by_rows.mode_vector - compiled.mode_vector) <= 1e-6 * sd)
    assert np.allclose(
        by_rows.covariance / np.outer(sd, sd), compiled.covariance / np.outer(sd, sd)
    )
    assert by_rows.certificate.converged
    for least, options in ((1, {"start": by_rows.mode}), (ROWS.shape[1] + 1, {})):
        taken.clear()
        monkeypatch.setattr(predictor_on_host, "_MANY", least)
        by_both(lb.models.logistic_regression, rows, COUNTS > 1, **options)
        assert {every for _, every in taken} == {1}


def test_they_refuse_alike(by_both):
    without = np.where(np.arange(20) == 4, 0, ROWS)
    for approx in by_both(flat, without, ROWS @ SCALES, throw=False):
        assert not approx.certificate.converged
        assert np.isnan(approx.log_evidence)
    with pytest.raises(lb.NotPositiveDefinite, match="weights"):
        lb.laplace(flat, without, ROWS @ SCALES)


def test_data_outside_of_their_support_are_refused(by_both):
    """The log density of a negative size is finite, and so would be a mode."""
    found = by_both(sizes, ROWS, np.where(np.arange(900) == 7, -0.01, COUNTS + 0.5), throw=False)
    assert not any(approx.certificate.converged for approx in found)
