"""One step, three drivers: the search whose products BLAS computes ends as the compiled one."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.curvature import linear_predictor
from laplacebook.search import search
from tests.models import line

RNG = np.random.default_rng(0)
X = RNG.normal(size=(900, 20))
SCALES = np.linspace(0.1, 1, 20)
COUNTS = RNG.poisson(np.exp(X @ SCALES / 4 + 0.3))


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
        (counts, (X, COUNTS), {"structure": "block", "start": {"shift": 1.0}}),
        (line, (X[:, :3], X @ SCALES), {}),
        (line, (np.int16(np.round(3 * X[:, :3])), X @ SCALES), {}),
    ],
    ids=["with estimated curvature", "few coordinates", "whole numbers"],
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


def test_they_refuse_alike(by_both):
    without = np.where(np.arange(20) == 4, 0, X)
    for approx in by_both(flat, without, X @ SCALES, throw=False):
        assert not approx.certificate.converged
        assert np.isnan(approx.log_evidence)
    with pytest.raises(lb.NotPositiveDefinite, match="weights"):
        lb.laplace(flat, without, X @ SCALES)


def test_data_outside_of_their_support_are_refused(by_both):
    """The log density of a negative size is finite, and so would be a mode."""
    found = by_both(sizes, X, np.where(np.arange(900) == 7, -0.01, COUNTS + 0.5), throw=False)
    assert not any(approx.certificate.converged for approx in found)
