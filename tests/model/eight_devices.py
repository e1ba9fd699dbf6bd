"""What tests/model/test_sharding.py runs in a process of its own, which has eight devices."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import laplacebook as lb
from laplacebook.curvature.settings import Settings
from laplacebook.model.arguments import Call
from laplacebook.model.density import ModelDensity
from laplacebook.predictive import linearized
from laplacebook.search.search import compiled_search
from tests.models import logistic

N = 160
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(N, 20))
CLASSES = (RNG.uniform(size=N) < 0.5).astype(float)
TARGETS = np.sin(FEATURES[:, 0])


def network(features, y=None):
    """Dense layers and two outputs."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([20, 2]).to_event(2))
    v = numpyro.sample("v", dist.Normal(0, 1).expand([2, 2]).to_event(2))
    with numpyro.plate("N", len(features)):
        mean = jnp.tanh(features @ w) @ v
        numpyro.sample("y", dist.Normal(mean, 1).to_event(1), obs=y)


def explicit(array):
    """On axes of explicit type, which jax.make_mesh makes by itself in newer versions of JAX."""
    mesh = jax.make_mesh((4, 2), ("data", "rest"), axis_types=(AxisType.Explicit,) * 2)
    return jax.device_put(array, NamedSharding(mesh, PartitionSpec("data")))


def test_there_are_eight():
    assert jax.device_count() == 8


FITS = {
    "hessian": (logistic, (FEATURES, CLASSES), lb.shard, {}),
    "kronecker": (
        network,
        (FEATURES, TARGETS[:, None] * np.ones(2)),
        lb.shard,
        {"curvature": "gauss_newton", "structure": "kronecker", "tolerance": 1e-3},
    ),
}


def gathered(compiled):
    """The shapes of the arrays that a program puts together from all devices."""
    moves = r"= \(?\w+\[([\d,]*)\][^=]* (?:all-gather|all-to-all|collective-permute)"
    return re.findall(moves, compiled.as_text())


@pytest.mark.parametrize("name", FITS)
def test_sharded_data_give_the_same_numbers_and_stay_where_they_lie(name):
    model, data, spread, options = FITS[name]
    one = lb.laplace(model, *data, **options)
    start = one.mode_vector if name == "kronecker" else None  # of its many modes the same
    density = ModelDensity.of(model, tuple(map(spread, data)), {})
    tolerance = options.get("tolerance", 1e-8)
    program = compiled_search.lower(
        density, start, tolerance, settings=Settings(**options)
    ).compile()
    assert "all-reduce" in program.as_text()
    assert not gathered(program)
    many = program(density, start, tolerance)
    assert many.certificate.converged
    np.testing.assert_allclose(many.mode_vector, one.mode_vector, atol=1e-10)
    np.testing.assert_allclose(many.log_likelihood, one.log_likelihood, rtol=1e-10)
    np.testing.assert_allclose(many.precision.inverse(), one.covariance, atol=1e-10)


def test_predictions_from_rows_where_they_lie():
    """By the private name: a compiled lb.predict chooses between two ways, and gathers the rows for it."""
    model, data, spread, options = FITS["kronecker"]
    approx = lb.laplace(model, *data, **options)
    of_one, of_many = (Call.of(model, (x,)) for x in (FEATURES, spread(FEATURES)))
    given = (approx.density, of_many, approx.mode_vector, approx.precision)
    program = linearized._by_rows.lower(*given, site=None, joint=False).compile()
    assert not gathered(program)
    many, same = program(*given)
    assert same
    one = linearized.linearize(approx.density, of_one, *given[2:])
    np.testing.assert_allclose(many.mean, one.mean, atol=1e-10)
    np.testing.assert_allclose(many.variance, one.variance, atol=1e-10)


def test_sharded_data_go_in_unchanged():
    one, many = (
        lb.laplace(logistic, *(place(x) for x in (FEATURES[:, :3], CLASSES)))
        for place in (jnp.asarray, explicit)
    )
    np.testing.assert_allclose(many.log_evidence, one.log_evidence, rtol=1e-10)
    new = FEATURES[:8, :3]
    predictions = lb.predict(many, explicit(new))
    np.testing.assert_allclose(predictions, lb.predict(one, new), atol=1e-10)
    assert len(predictions.sharding.device_set) == 8


def test_a_program_that_gathers_is_seen():
    def sorts(x):
        return jnp.sum(jnp.sort(x) * jnp.arange(N))

    assert gathered(jax.jit(sorts).lower(lb.shard(TARGETS)).compile())


def test_rows_that_do_not_divide():
    with pytest.raises(ValueError, match=rf"{N - 3} rows do not divide among 8 devices"):
        lb.shard(TARGETS[: N - 3])


@pytest.mark.parametrize("array", [TARGETS[:3], TARGETS[:0], TARGETS[0]])
def test_fewer_rows_than_devices(array):
    with pytest.raises(ValueError, match=r"shape .* has fewer rows than there are devices here, 8"):
        lb.shard(array)


def test_a_mask_is_not_lost():
    with pytest.raises(ValueError, match="masked"):
        lb.shard(np.ma.masked_array(TARGETS, mask=TARGETS > 0))


def test_uneven_and_empty_shards_are_chunks():
    even, rest, none = slice(0, 152), slice(152, 157), slice(157, 157)
    features = FEATURES[:157, :3]
    chunks = [tuple(lb.shard(x[even]) for x in (features, CLASSES))]
    chunks += [(features[s], CLASSES[s]) for s in (rest, none)]
    many = lb.laplace_of_chunks(logistic, chunks)
    one = lb.laplace(logistic, features, CLASSES[:157])
    np.testing.assert_allclose(many.log_evidence, one.log_evidence, rtol=1e-10)
    np.testing.assert_allclose(many.covariance, one.covariance, atol=1e-10)


def test_failures_stay_loud():
    wrong = FEATURES[:, :3].copy()
    wrong[-1, 2] = np.nan
    with pytest.raises(lb.NonFinite, match=r"'features' has 1 NaN, first at \[159, 2\]"):
        lb.laplace(logistic, explicit(wrong), explicit(CLASSES))
