"""Fits by a sparse Hessian against those by a dense one, in all that is asked of a result."""

import resource
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.search import search, sparse_search
from tests.models import single_precision

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
T = 60
COUNTS = RNG.poisson(3.0, T)
ONE, OTHER = RNG.integers(0, 12, 150), RNG.integers(0, 5, 150)
BITS, X = RNG.integers(0, 2, 150), RNG.normal(size=150)


def series(y):
    b = numpyro.sample("b", dist.Normal(0, 2))
    z = numpyro.sample("z", dist.GaussianRandomWalk(0.3, num_steps=len(y)))
    numpyro.sample("y", dist.Poisson(jnp.exp(b + z)).to_event(1), obs=y)


def crossed(one, other, x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    a = numpyro.sample("a", dist.Normal(0, 1).expand([12]).to_event(1))
    c = numpyro.sample("c", dist.Normal(0, 1).expand([5]).to_event(1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=a[one] + c[other] + w * x), obs=y)


CASES = {
    "series": (series, (COUNTS,)),
    "crossed": (crossed, (ONE, OTHER, X, BITS)),
}


@pytest.fixture(scope="module")
def fits():
    """Each model by both structures."""
    structures = ("sparse", "dense")
    return {
        name: [lb.laplace(model, *data, structure=s) for s in structures]
        for name, (model, data) in CASES.items()
    }


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_dense_fit(fits, name):
    sparse, dense = fits[name]
    deviations = np.sqrt(np.diagonal(dense.covariance))
    gap = (sparse.mode_vector - dense.mode_vector) / deviations
    np.testing.assert_allclose(gap, 0, atol=1e-8)
    for one in ("log_evidence", "log_likelihood", "log_prior"):
        assert float(getattr(sparse, one)) == pytest.approx(float(getattr(dense, one)), abs=1e-8)
    variances = sparse.precision.diagonal_of_inverse()
    np.testing.assert_allclose(variances, deviations**2, rtol=1e-8)
    assert isinstance(sparse.precision, lb.SparsePrecision)
    assert sparse.certificate.converged and sparse.certificate.newton_decrement <= 1.5e-8
    most = float(dense.certificate.condition_number)
    assert 1 <= float(sparse.certificate.condition_number) <= most * (1 + 1e-8)


def test_all_of_a_result_works(fits, tmp_path):
    sparse, dense = fits["crossed"]
    summaries = str(sparse.summary()), str(dense.summary())
    assert summaries[0].splitlines()[:8] == summaries[1].splitlines()[:8]
    assert repr(sparse).splitlines()[:6] == repr(dense).splitlines()[:6]
    one, other = (fit.quantiles((0.05, 0.5)) for fit in (sparse, dense))
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-8, atol=1e-8)
    heights = [float(fit.log_density(dense.mode_vector + 0.1)) for fit in (sparse, dense)]
    assert heights[0] == pytest.approx(heights[1], abs=1e-8)
    draws = sparse.sample(KEY, (2000,))["a"]
    scores = (draws - dense.mode["a"]) / np.sqrt(np.diagonal(dense.covariance))[1:13]
    assert abs(scores.mean()) < 0.05 and abs(scores.std() - 1) < 0.05
    assert sparse.to_arviz(KEY, 20)["posterior"]["a"].shape == (1, 20, 12)
    one, other = (lb.predict(fit, ONE[:4], OTHER[:4], X[:4]) for fit in (sparse, dense))
    np.testing.assert_allclose(one.mean(), other.mean(), rtol=1e-8)
    assert "log evidence" in str(lb.compare({"one": sparse, "other": sparse})).lower()


def test_starts(fits):
    model, data = CASES["series"]
    _, dense = fits["series"]
    again = lb.laplace(model, *data, structure="sparse", start=dense.mode)
    np.testing.assert_allclose(again.mode_vector, dense.mode_vector, atol=1e-8)
    assert again.certificate.iterations <= 4
    several = lb.laplace(model, *data, structure="sparse", starts=3, key=KEY)
    np.testing.assert_allclose(several.mode_vector, dense.mode_vector, atol=1e-8)
    assert several.other_modes == ()


def two_modes(y):
    z = numpyro.sample("z", dist.Normal(0, 3).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(z[0] ** 2 + z[0] / 10 + z[1] + z[2], 1), obs=y)
    numpyro.sample("x", dist.Normal(z[1:], 0.1).to_event(1), obs=jnp.zeros(2))


def test_two_modes_are_both_found():
    y = np.array(4.0)
    fit = lb.laplace(two_modes, y, structure="sparse", starts=8, key=KEY)
    heights = [float(x.log_evidence) for x in (fit, *fit.other_modes)]
    starts = [{"z": np.array([sign * 2.0, 0, 0])} for sign in (1, -1)]
    expected = [float(lb.laplace(two_modes, y, start=start).log_evidence) for start in starts]
    np.testing.assert_allclose(sorted(heights), sorted(expected), atol=1e-8)


def flat(y):
    z = numpyro.sample("z", dist.Normal(0, 1).expand([5]).to_event(1).mask(False))
    numpyro.sample("y", dist.Normal(z[1:] - z[:-1], 1).to_event(1), obs=y)


def unbounded(y):
    s = numpyro.sample("s", dist.HalfNormal(1))
    z = numpyro.sample("z", dist.Normal(0, s).expand([5]).to_event(1))
    numpyro.sample("y", dist.Normal(z, 1).to_event(1), obs=y)


def kink(y):
    z = numpyro.sample("z", dist.Laplace(0, 0.1).expand([5]).to_event(1))
    numpyro.sample("y", dist.Normal(z, 1).to_event(1), obs=y)


def quartic(y):
    z = numpyro.sample("z", dist.Normal(0, 1).expand([5]).to_event(1).mask(False))
    numpyro.factor("f", -jnp.sum((z - 1) ** 4) + 0 * y.sum())


def hidden(y):
    z = numpyro.sample("z", dist.Normal(0, 1).expand([5]).to_event(1))
    numpyro.sample("y", dist.Normal(jax.lax.stop_gradient(5 * z), 1).to_event(1), obs=y)


def waits(y):
    """The log density of a negative wait is finite, and so would be a mode."""
    z = numpyro.sample("z", dist.Normal(0, 1).expand([len(y)]).to_event(1))
    numpyro.sample("y", dist.Exponential(jnp.exp(z)).to_event(1), obs=y)


HOLE = np.where(np.arange(T) == 7, np.nan, COUNTS)
FAILING = {
    "flat": (flat, (np.ones(4),), lb.NotPositiveDefinite, "is flat along -1 z[0] -1 z[1] -1 z[2]"),
    "kink": (kink, (np.full(5, 0.01),), lb.NotConverged, "slope of the log joint jumps at z[0] ="),
    "quartic": (quartic, (np.ones(2),), lb.NotConverged, "levels off at z[0] = 0.99"),
    "a hidden slope": (hidden, (np.arange(5.0),), lb.NotConverged, "follow its own gradient"),
    "NaN": (series, (HOLE,), lb.NonFinite, "argument 'y' has 1 NaN, first at [7]"),
    "outside": (
        waits,
        (np.array([0.1, -0.05, 0.2]),),
        lb.NonFinite,
        "outside the support of its likelihood",
    ),
    "a label beside": (
        crossed,
        (ONE + 3, OTHER, X, BITS),
        lb.NonFinite,
        "'one' has the label 13, first at [3]",
    ),
}


@pytest.mark.parametrize("name", FAILING)
def test_what_fails_fails_as_a_dense_one_does(name):
    model, data, error, phrase = FAILING[name]
    with pytest.raises(error) as caught:
        lb.laplace(model, *data, structure="sparse")
    assert phrase in " ".join(str(caught.value).split())


def endless(y):
    numpyro.sample("z", dist.ImproperUniform(dist.constraints.positive, (), (5,)))
    numpyro.sample("y", dist.Normal(0, 1).expand([5]).to_event(1), obs=y)


@pytest.mark.parametrize("name", ["endless", "unbounded"])
def test_a_search_that_leads_nowhere_ends(name):
    """On a plane, and where all steps are too long: a thousand iterations of many coordinates take half a minute."""
    model, start = {"endless": (endless, None), "unbounded": (unbounded, {"s": 1.0})}[name]
    failed = lb.laplace(model, np.zeros(5), structure="sparse", start=start, throw=False)
    assert not failed.certificate.converged
    assert failed.certificate.iterations < 600


def test_it_does_not_raise_if_told_so():
    model, data, *_ = FAILING["flat"]
    failed = lb.laplace(model, *data, structure="sparse", throw=False)
    assert not failed.certificate.converged
    assert np.isnan(failed.log_evidence) and np.isnan(failed.mode["z"]).all()
    assert np.isnan(failed.precision.diagonal_of_inverse()).all()


@pytest.mark.parametrize("around", [jax.jit, jax.vmap, jax.grad])
def test_not_within_a_program(around):
    fit = lambda y: lb.laplace(series, y, structure="sparse").log_evidence  # noqa: E731
    y = np.ones((2, T)) if around is jax.vmap else np.ones(T)
    with pytest.raises(ValueError, match="looks at numbers, and does not work within"):
        around(fit)(y)


@pytest.mark.parametrize("kind", ["float32", "uint8"])
def test_kinds_of_data(fits, kind):
    found = lb.laplace(series, COUNTS.astype(kind), structure="sparse")
    expected = fits["series"][1].log_evidence
    assert float(found.log_evidence) == pytest.approx(float(expected), abs=1e-8)


def scaled(units, y):
    z = numpyro.sample("z", dist.Normal(0, 1 / units).to_event(1))
    numpyro.sample("y", dist.Normal(jnp.cumsum(units * z), 1).to_event(1), obs=y)


def test_units_of_the_coordinates_do_not_matter():
    units = 10.0 ** np.linspace(-8, 8, 30)
    found = lb.laplace(scaled, units, Y30, structure="sparse")
    plain = lb.laplace(scaled, np.ones(30), Y30)
    np.testing.assert_allclose(found.mode["z"] * units, plain.mode["z"], atol=1e-7)
    variances = found.precision.diagonal_of_inverse() * units**2
    np.testing.assert_allclose(variances, np.diagonal(plain.covariance), rtol=1e-7)


Y30 = RNG.normal(size=30)


def test_single_precision(fits):
    with single_precision():
        found = lb.laplace(series, COUNTS, structure="sparse")
    dense = fits["series"][1]
    assert found.mode_vector.dtype == np.float32 and found.certificate.converged
    gap = (found.mode_vector - dense.mode_vector) / np.sqrt(np.diagonal(dense.covariance))
    np.testing.assert_allclose(gap, 0, atol=2e-3)
    assert float(found.log_evidence) == pytest.approx(float(dense.log_evidence), abs=1e-3)


def test_a_hundred_thousand_coordinates_take_less_than_two_gigabytes():
    """A border, a diagonal and one beside: a twentieth of a matrix of all coordinates would be 4 GB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    y = np.random.default_rng(1).poisson(3.0, 100_000)
    approx = lb.laplace(series, y, structure="sparse")
    assert approx.certificate.converged
    assert approx.precision.layout.rows.size == 3 * 100_000
    variances = approx.precision.diagonal_of_inverse()
    assert variances.shape == (100_001,) and np.all(np.isfinite(variances))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * 1024 < 2 * 2**30


LEVELS = 260


def two_levels(group, y, features=None, noise=0.5):
    """520 effects, of which the exact posterior is known."""
    with numpyro.plate("groups", LEVELS):
        a = numpyro.sample("a", dist.Normal(0, 1))
        b = numpyro.sample("b", dist.Normal(a, 0.5))
    mean = b[group]
    if features is not None:
        mean = mean + features @ jnp.sin(b)[: features.shape[1]]
    numpyro.sample("y", dist.Normal(mean, noise).to_event(1), obs=y)


GROUPS = np.arange(2 * LEVELS) % LEVELS
VALUES = np.random.default_rng(5).normal(size=2 * LEVELS)


@pytest.fixture
def compiled_searches(monkeypatch):
    """How many searches were one compiled program."""
    made, search_compiled = [], search._compiled
    monkeypatch.setattr(search, "_compiled", lambda *a: made.append(a) or search_compiled(*a))
    return made


@pytest.mark.parametrize("structure", ["dense", "diagonal", "block"])
def test_a_matrix_of_many_coordinates_is_found_by_its_entries(structure, compiled_searches):
    """In the order a, b the precision has three diagonals, and two data for each b."""
    approx = lb.laplace(two_levels, GROUPS, VALUES, structure=structure)
    one = np.eye(LEVELS)
    exact = np.block([[5 * one, -4 * one], [-4 * one, 12 * one]])
    data = np.concatenate([np.zeros(LEVELS), 4 * VALUES.reshape(2, -1).sum(0)])
    np.testing.assert_allclose(approx.mode_vector, np.linalg.solve(exact, data), atol=1e-10)
    kept = {"dense": exact, "diagonal": np.diag(np.diag(exact)), "block": exact * (exact != -4)}
    np.testing.assert_allclose(approx.precision.matrix, kept[structure], atol=1e-10)
    assert not compiled_searches and approx.certificate.converged


def test_its_condition_number_is_that_of_all_eigenvalues():
    """Of which a sparse fit has a few steps of Lanczos."""
    rng = np.random.default_rng(8)
    group, values = rng.zipf(1.3, 4 * LEVELS) % LEVELS, rng.normal(size=4 * LEVELS)
    fits = [lb.laplace(two_levels, group, values, structure=s) for s in ("dense", "sparse")]
    whole = np.asarray(fits[0].precision.matrix)
    expected = np.linalg.cond(whole / np.sqrt(np.outer(np.diag(whole), np.diag(whole))))
    dense, sparse = (float(fit.certificate.condition_number) for fit in fits)
    assert dense == pytest.approx(expected, rel=1e-9)
    assert sparse < expected * (1 - 1e-6)


def test_what_is_not_sparse_is_searched_by_its_matrix_and_not_looked_at_again(
    compiled_searches, monkeypatch
):
    features = np.random.default_rng(6).normal(size=(2 * LEVELS, 200)) / 10
    data = GROUPS, VALUES, features
    monkeypatch.setattr(search, "is_medium", lambda *_: False)
    first = lb.laplace(two_levels, *data)
    monkeypatch.setattr(sparse_search, "pattern_of", None)
    again = lb.laplace(two_levels, *data)
    np.testing.assert_array_equal(first.mode_vector, again.mode_vector)
    assert len(compiled_searches) == 2 and first.certificate.converged


@pytest.mark.parametrize("why", ["no packages", "single precision"])
def test_without_what_it_takes_it_is_the_matrix(why, compiled_searches, monkeypatch):
    by_entries = lb.laplace(two_levels, GROUPS, VALUES, noise=0.7)
    monkeypatch.setattr(search, "is_medium", lambda *_: False)
    if why == "single precision":
        with single_precision():
            found = lb.laplace(two_levels, GROUPS, VALUES.astype("float32"), noise=0.7)
    else:
        monkeypatch.setattr(sparse_search, "_PATTERNS", {})
        monkeypatch.setattr(sparse_search, "_NOT_SPARSE", {})
        monkeypatch.setitem(sys.modules, "asdex", None)
        found = lb.laplace(two_levels, GROUPS, VALUES, noise=0.7)
    assert len(compiled_searches) == 1
    np.testing.assert_allclose(found.mode_vector, by_entries.mode_vector, atol=1e-6)
    assert float(found.log_evidence) == pytest.approx(float(by_entries.log_evidence), rel=1e-6)


def test_without_a_start_it_is_not(compiled_searches, monkeypatch):
    monkeypatch.setattr(search, "is_medium", lambda *_: False)
    missing = np.where(np.arange(2 * LEVELS) == 7, np.nan, VALUES)
    with pytest.raises(lb.NonFinite, match="argument 'y' has 1"):
        lb.laplace(two_levels, GROUPS, missing)
    assert not compiled_searches


def test_without_a_mode_the_matrix_is_tried_too(compiled_searches, monkeypatch):
    monkeypatch.setattr(search, "is_medium", lambda *_: False)

    def unbounded(y):
        z = numpyro.sample("z", dist.ImproperUniform(dist.constraints.real, (), (2 * LEVELS,)))
        numpyro.sample("y", dist.Poisson(jnp.exp(z)).to_event(1), obs=y)

    with pytest.raises(lb.LaplaceError):
        lb.laplace(unbounded, np.arange(2 * LEVELS) % 3)
    assert len(compiled_searches) == 1


@pytest.mark.parametrize("structure", ["dense", "sparse"])
def test_an_index_that_depends_on_coordinates_is_looked_at_in_numbers(structure):
    """Which of a sorted vector stands where."""

    def ranked(place, y):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([2 * LEVELS]).to_event(1))
        fifth = jnp.sort(place + b / 100)[5]
        numpyro.sample("y", dist.Normal(b + fifth, 1).to_event(1), obs=y)

    place, y = 100.0 * np.arange(2 * LEVELS), VALUES + 500
    found = lb.laplace(ranked, place, y, structure=structure)
    # Of n normal ones with a mean that the fifth moves by a hundredth of itself.
    design = np.eye(2 * LEVELS)
    design[:, 5] += 0.01
    exact = np.linalg.solve(np.eye(2 * LEVELS) + design.T @ design, design.T @ (y - 500))
    np.testing.assert_allclose(found.mode["b"], exact, atol=1e-8)


def test_a_failed_search_by_entries_is_made_again_by_the_matrix(compiled_searches, monkeypatch):
    """Also that of a hierarchical model, unless its scale went to zero."""

    def scaled(group, y):
        scale = numpyro.sample("scale", dist.LogNormal(0, 0.1))
        with numpyro.plate("groups", 2 * LEVELS):
            b = numpyro.sample("b", dist.Normal(0, scale))
        numpyro.sample("y", dist.Normal(b[group], 0.5).to_event(1), obs=y)

    expected, ended, find = lb.laplace(scaled, GROUPS, VALUES), [], sparse_search.search_if_sparse
    assert not compiled_searches

    def failed(*args):
        found, _ = find(*args)
        found.point[0] -= ended[-1]  # the logarithm of the scale
        return found, False

    monkeypatch.setattr(sparse_search, "search_if_sparse", failed)
    monkeypatch.setattr(search, "is_medium", lambda *_: False)
    ended.append(1.0)
    again = lb.laplace(scaled, GROUPS, VALUES)
    assert len(compiled_searches) == 1
    np.testing.assert_allclose(again.mode_vector, expected.mode_vector, atol=1e-7)
    ended.append(20.0)
    start = {"scale": np.array(1.0)}
    assert not lb.laplace(scaled, GROUPS, VALUES, start=start, throw=False).certificate.converged
    assert len(compiled_searches) == 1
