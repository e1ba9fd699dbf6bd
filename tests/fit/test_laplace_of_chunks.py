"""Data in chunks: the numbers of all rows at once, or an error; chunks that are no sum over rows are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import laplacebook as lb
from tests.models import logistic, single_precision

KEY = jax.random.key(0)

N, D = 103, 18

RNG = np.random.default_rng(0)

FEATURES = RNG.normal(size=(N, D))

CLASSES = (RNG.uniform(size=N) < 1 / (1 + np.exp(-FEATURES[:, 0]))).astype(float)

FEW = FEATURES[:, :2]

MISSING = FEW.copy()

MISSING[90, 1] = np.nan


class OneBuffer:
    """Chunks in the same memory, filled anew for each, as readers of files have them."""

    def __init__(self, *arrays, size):
        self.arrays, self.size = arrays, size
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        buffers = [np.empty((self.size, *array.shape[1:])) for array in self.arrays]
        for start in range(0, N, self.size):
            for buffer, array in zip(buffers, self.arrays, strict=True):
                some = array[start : start + self.size]
                buffer[: len(some)] = some
            yield tuple(buffer[: len(some)] for buffer in buffers)
            for buffer in buffers:
                buffer[:] = np.nan


def as_memory_maps(folder, *arrays):
    for i, array in enumerate(arrays):
        np.save(folder / f"{i}.npy", array)
    return [np.load(folder / f"{i}.npy", mmap_mode="r") for i in range(len(arrays))]


@pytest.fixture(scope="module")
def whole():
    return lb.laplace(logistic, FEW, CLASSES)


@pytest.fixture(scope="module")
def in_chunks():
    return lb.laplace_of_chunks(logistic, lb.Chunks(FEW, CLASSES, size=40))


def same(one, other, tolerance=1e-8):
    np.testing.assert_allclose(other.mode_vector, one.mode_vector, atol=tolerance)
    np.testing.assert_allclose(other.covariance, one.covariance, atol=tolerance)
    for name in ("log_evidence", "log_likelihood", "log_prior"):
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=tolerance)


def test_a_memory_map_of_many_features_gives_the_numbers_of_an_array(tmp_path):
    chunks = lb.Chunks(*as_memory_maps(tmp_path, FEATURES, CLASSES), size=40)
    found, one = lb.laplace_of_chunks(logistic, chunks), lb.laplace(logistic, FEATURES, CLASSES)
    same(one, found)
    assert found.certificate.condition_number == pytest.approx(
        float(one.certificate.condition_number)
    )


def test_any_iterable_will_do(whole, in_chunks):
    same(whole, in_chunks)
    reader = OneBuffer(FEW, CLASSES, size=40)
    same(whole, lb.laplace_of_chunks(logistic, reader))
    assert reader.passes > 5
    parts = [(FEW[s], CLASSES[s]) for s in (slice(0, 40), slice(40, 40), slice(40, 80))]
    same(whole, lb.laplace_of_chunks(logistic, [*parts, (jnp.array(FEW[80:]), CLASSES[80:])]))


def test_one_argument_a_start_a_block_and_the_constrained_space():
    def normal(y):
        sd = numpyro.sample("sd", dist.HalfNormal(2.0))
        mean = numpyro.sample("mean", dist.Normal(0, sd))
        with numpyro.plate("N", len(y)):
            numpyro.sample("y", dist.Normal(mean, sd), obs=y)

    y, options = FEW[:100, 0], {"space": "constrained", "structure": "block"}
    start = {"sd": 2.0, "mean": 0.5}
    found = lb.laplace_of_chunks(normal, [y[:50], y[50:]], start=start, **options)
    same(lb.laplace(normal, y, start=start, **options), found)


@pytest.mark.parametrize("structure", ["dense", "diagonal", "block"])
def test_gauss_newton_curvature_of_chunks(structure, whole):
    """With a canonical link it is the Hessian, and one site is one block."""
    options = {"curvature": "gauss_newton", "structure": structure}
    found = lb.laplace_of_chunks(logistic, lb.Chunks(FEW, CLASSES, size=40), **options)
    hessian = np.asarray(whole.precision.matrix)
    kept = np.diag(np.diag(hessian)) if structure == "diagonal" else hessian
    np.testing.assert_allclose(found.covariance, np.linalg.inv(kept), atol=1e-8)
    np.testing.assert_allclose(found.mode_vector, whole.mode_vector, atol=1e-8)
    assert "gauss newton curvature" in repr(found)


def test_structures_that_do_not_add_up():
    chunks, options = lb.Chunks(FEW, CLASSES, size=40), {"curvature": "gauss_newton"}
    with pytest.raises(ValueError, match="dense, diagonal, block"):
        lb.laplace_of_chunks(logistic, chunks, structure="kronecker", **options)


def test_in_single_precision(whole):
    with single_precision():
        chunks = lb.Chunks(*(np.float32(x) for x in (FEW, CLASSES)), size=40)
        found = lb.laplace_of_chunks(logistic, chunks)
        assert found.mode_vector.dtype == jnp.float32
        with pytest.raises(lb.UnsupportedModel, match="would be|would become"):
            lb.laplace_of_chunks(logistic, lb.Chunks(1e9 + FEW, CLASSES, size=40))
    same(whole, found, 2e-3)


def test_what_it_gives(whole, in_chunks):
    np.testing.assert_allclose(lb.predict(in_chunks, FEW), lb.predict(whole, FEW), atol=1e-8)
    assert str(in_chunks.summary()) == str(whole.summary())
    draws = (a.sample(KEY, (3,))["w"] for a in (whole, in_chunks))
    np.testing.assert_allclose(*draws, atol=1e-8)
    assert "observed_data" not in in_chunks.to_arviz(num_samples=5)
    compared = lb.compare({"whole": whole, "chunks": in_chunks})
    assert "not checked to be of the same data: 'chunks'" in str(compared)


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda a, path: lb.diagnose(a, KEY), id="diagnose"),
        pytest.param(lambda a, path: lb.importance_sampling(a, key=KEY), id="importance"),
        pytest.param(lambda a, path: lb.bridge_sampling(a, a.sample(KEY, (9,)), KEY), id="bridge"),
        pytest.param(lambda a, path: lb.prior_sampling(a, key=KEY), id="prior"),
        pytest.param(lambda a, path: lb.gauss_hermite(a, 3), id="quadrature"),
        pytest.param(lambda a, path: lb.maximize_evidence(a, {"scale": 1.0}), id="tuning"),
        pytest.param(lambda a, path: a.save(path / "saved"), id="save"),
    ],
)
def test_what_needs_the_data_is_refused(in_chunks, use, tmp_path):
    with pytest.raises(lb.LaplaceError, match="chunks of data"):
        use(in_chunks, tmp_path)


@pytest.mark.parametrize("curvature", ["hessian", "gauss_newton"])
def test_without_throw_a_failure_is_nan(curvature):
    chunks = lb.Chunks(MISSING, CLASSES, size=40)
    failed = lb.laplace_of_chunks(logistic, chunks, throw=False, curvature=curvature)
    assert not failed.certificate.converged
    assert np.isnan(failed.log_evidence)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ((FEW, CLASSES[:-1]), "as many rows each"),
        ((np.float64(1.0),), "as many rows each"),
        ((), "not nothing"),
        ((1.0,), "not float"),
        ((FEW, CLASSES.tolist()), "not ndarray, list"),
    ],
)
def test_chunks_are_of_arrays_with_rows(arrays, words):
    with pytest.raises(ValueError, match=words):
        lb.Chunks(*arrays, size=4)


def test_not_within_a_compiled_program():
    chunks = lb.Chunks(FEW, CLASSES, size=40)
    traced = {
        "chunks": lambda x: lb.laplace_of_chunks(logistic, [(FEW, x)]),
        "start": lambda x: lb.laplace_of_chunks(logistic, chunks, start={"w": x[:2]}),
        "keyword": lambda x: lb.laplace_of_chunks(logistic, chunks, scale=x[0]),
    }
    for function in traced.values():
        with pytest.raises(ValueError, match="laplace_of_chunks looks at numbers"):
            jax.jit(function)(CLASSES)


@pytest.mark.parametrize("size", [0, -1, True])
def test_chunks_need_a_size(size):
    with pytest.raises(ValueError, match="size must be a whole number"):
        lb.Chunks(FEW, size=size)


def test_rows_in_another_order_of_bytes_are_read(whole):
    other = lb.Chunks(FEW.astype(">f8"), CLASSES.astype(">f8"), size=40)
    same(whole, lb.laplace_of_chunks(logistic, other))


def standardised(features, y):
    logistic((features - features.mean(0)) / features.std(0), y)


def scaled_by_data(features, y):
    logistic(features, y, features.std())


def by_row(features, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([len(features)]).to_event(1))
    numpyro.sample("y", dist.Normal(w, 1).to_event(1), obs=y)


def jump(features, y):
    at = numpyro.sample("at", dist.Normal(0, 1))
    with numpyro.plate("N", len(features)):
        numpyro.sample("y", dist.Normal(jnp.where(features[:, 0] > at, 1.0, 0.0), 1), obs=y)


def flat(features, y):
    prior = dist.ImproperUniform(dist.constraints.real, (), (features.shape[1],))
    numpyro.sample("y", dist.Bernoulli(logits=features @ numpyro.sample("w", prior)), obs=y)


def by_number(features, y):
    logistic(features, y, 1 / len(features))


def scaled_to_all(features, y):
    with handlers.scale(scale=N / len(features)):
        logistic(features, y)


def by_name(columns, y):
    w = {name: numpyro.sample(f"w_{name}", dist.Normal(0, 1)) for name in columns}
    with numpyro.plate("N", len(y)):
        logits = sum(w[name] * columns[name] for name in columns)
        numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


class Growing:
    """Rows that come while the others are read."""

    passes = 0

    def __iter__(self):
        self.passes += 1
        yield FEW[:40], CLASSES[:40]
        if self.passes > 3:
            yield FEW[40:], CLASSES[40:]


A, B = FEW.T

SORTED = FEW.copy()

SORTED[:40] = FEW[0]

REFUSED = {
    "once": (logistic, iter([(FEW, CLASSES)]), ValueError, "an iterator"),
    "an array": (logistic, FEW, ValueError, r"chunks is a ndarray.*laplacebook\.Chunks"),
    "text": (logistic, "abc", ValueError, "chunks is a str"),
    "none": (logistic, [], ValueError, "no chunk with rows"),
    "empty": (logistic, [(FEW[:0], CLASSES[:0])], ValueError, "no chunk with rows"),
    "widths": (
        logistic,
        [(FEW[:50], CLASSES[:50]), (FEATURES[50:], CLASSES[50:])],
        lb.UnsupportedModel,
        "latent sites of chunk 1",
    ),
    "not a sum": (
        standardised,
        lb.Chunks(FEW, CLASSES, size=40),
        lb.UnsupportedModel,
        "not the sum",
    ),
    "prior": (
        scaled_by_data,
        lb.Chunks(FEW, CLASSES, size=40),
        lb.UnsupportedModel,
        r"another\sprior",
    ),
    "a latent each": (by_row, lb.Chunks(FEW, CLASSES, size=40), lb.UnsupportedModel, "not the sum"),
    "prior by number": (
        by_number,
        [(FEW[:50], CLASSES[:50]), (FEW[50:100], CLASSES[50:100])],
        lb.UnsupportedModel,
        "number of rows",
    ),
    "one row first": (
        scaled_to_all,
        [(FEW[:1], CLASSES[:1]), (FEW[1:], CLASSES[1:])],
        lb.UnsupportedModel,
        "not the sum",
    ),
    "equal rows first": (
        lambda features, y: logistic(features - features.mean(0), y),
        [(SORTED[:40], CLASSES[:40]), (SORTED[40:], CLASSES[40:])],
        lb.UnsupportedModel,
        "not the sum",
    ),
    "order of names": (
        by_name,
        [
            ({"a": A[:40], "b": B[:40]}, CLASSES[:40]),
            ({"b": B[40:80], "a": A[40:80]}, CLASSES[40:80]),
        ],
        lb.UnsupportedModel,
        "sites of chunk 1|not the sum",
    ),
    "data beside their support": (
        logistic,
        [(FEW[:40], CLASSES[:40]), (FEW[40:80], 2 * CLASSES[40:80])],
        lb.NonFinite,
        r"outside\s+the\s+support",
    ),
    "growing": (logistic, Growing(), lb.LaplaceError, "change between passes"),
    "large": (
        logistic,
        lb.Chunks(np.zeros((2, 3001)), np.zeros(2), size=1),
        lb.UnsupportedModel,
        "3,001 coordinates",
    ),
    "jump": (jump, lb.Chunks(FEW, CLASSES, size=40), lb.NotConverged, "follow its own gradient"),
    "collinear": (
        flat,
        lb.Chunks(np.column_stack([FEW, FEW[:, 0]]), CLASSES, size=40),
        lb.NotPositiveDefinite,
        "is flat along",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_refused(name):
    model, chunks, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        lb.laplace_of_chunks(model, chunks)
