"""Fits by a sparse Hessian against those by a dense one, in all that is asked of a result."""

import os
import subprocess
import sys
import textwrap
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import Predictive

import laplacebook as lb
from tests.models import single_precision

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
FLAT = dist.ImproperUniform(dist.constraints.real, (), ())
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


def simplices(y):
    with numpyro.plate("ten", 10):
        s = numpyro.sample("s", dist.HalfNormal(1))
        p = numpyro.sample("p", dist.Dirichlet(jnp.ones(3)))
        numpyro.sample("y", dist.Normal(s[:, None] + p @ jnp.eye(3, 6), 1).to_event(1), obs=y)


CASES = {
    "series": (series, (COUNTS,)),
    "crossed": (crossed, (ONE, OTHER, X, BITS)),
    "simplices": (simplices, (COUNTS.reshape(10, 6) * 0.3,)),
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
    seen = Predictive(crossed, sparse.sample(KEY, (5,)))(KEY, ONE[:4], OTHER[:4], X[:4])
    assert seen["y"].shape == (5, 4)
    assert "log evidence" in str(lb.compare({"one": sparse, "other": sparse})).lower()
    found, expected = (lb.diagnose(fit, KEY, 500, 2) for fit in (sparse, dense))
    assert found.level == expected.level
    found, expected = (lb.importance_sampling(fit, KEY, 2000) for fit in (sparse, dense))
    assert float(found.value) == pytest.approx(float(expected.value), abs=0.1)


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
    both = [
        lb.laplace(two_modes, np.array(4.0), structure=s, starts=8, key=KEY)
        for s in ("sparse", "dense")
    ]
    heights = [[float(x.log_evidence) for x in (fit, *fit.other_modes)] for fit in both]
    assert len(heights[0]) == 2
    np.testing.assert_allclose(*heights, atol=1e-8)


def logistic(x, y):
    w = numpyro.sample("w", FLAT.expand([3]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=x @ w).to_event(1), obs=y)


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


ROWS = np.vstack([np.eye(3), -np.eye(3)])
HOLE = np.where(np.arange(T) == 7, np.nan, COUNTS)
FAILING = {
    "separable": (logistic, (ROWS, np.repeat([1, 0], 3))),
    "flat": (flat, (np.ones(4),)),
    "kink": (kink, (np.full(5, 0.01),)),
    "quartic": (quartic, (np.ones(2),)),
    "a hidden slope": (hidden, (np.arange(5.0),)),
    "NaN": (series, (HOLE,)),
    "outside": (series, (COUNTS - 9,)),
    "a label beside": (crossed, (ONE + 3, OTHER, X, BITS)),
}


@pytest.mark.parametrize("name", FAILING)
def test_what_fails_fails_as_the_dense_one_does(name):
    model, data = FAILING[name]
    with pytest.raises(lb.LaplaceError) as dense:
        lb.laplace(model, *data)
    begin = time.process_time()
    with pytest.raises(dense.type) as sparse:
        lb.laplace(model, *data, structure="sparse")
    assert time.process_time() - begin < 30
    assert str(sparse.value).split()[:4] == str(dense.value).split()[:4]


def endless(y):
    numpyro.sample("z", dist.ImproperUniform(dist.constraints.positive, (), (5,)))
    numpyro.sample("y", dist.Normal(0, 1).expand([5]).to_event(1), obs=y)


@pytest.mark.parametrize("structure", ["dense", "sparse"])
@pytest.mark.parametrize("name", ["endless", "unbounded"])
def test_a_search_that_leads_nowhere_ends(name, structure):
    """On a plane, and where all steps are too long: a thousand iterations of many coordinates take half a minute."""
    model = {"endless": endless, "unbounded": unbounded}[name]
    failed = lb.laplace(model, np.zeros(5), structure=structure, throw=False)
    assert not failed.certificate.converged
    assert failed.certificate.iterations < 600


def test_it_does_not_raise_if_told_so():
    model, data = FAILING["flat"]
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


@pytest.mark.parametrize(
    "data",
    [COUNTS.astype("float32"), COUNTS.astype("uint8"), jnp.asarray(COUNTS), COUNTS.astype("int16")],
    ids=["float32", "uint8", "JAX", "int16"],
)
def test_kinds_of_data(fits, data):
    found = lb.laplace(series, data, structure="sparse")
    expected = fits["series"][1].log_evidence
    assert float(found.log_evidence) == pytest.approx(float(expected), abs=1e-8)


def scaled(units, y):
    z = numpyro.sample("z", dist.Normal(0, 1 / units).to_event(1))
    numpyro.sample("y", dist.Normal(jnp.cumsum(units * z), 1).to_event(1), obs=y)


def test_units_of_the_coordinates_do_not_matter():
    units = 10.0 ** np.linspace(-8, 8, 30)
    both = [lb.laplace(scaled, units, Y30, structure=s) for s in ("sparse", "dense")]
    plain = lb.laplace(scaled, np.ones(30), Y30)
    np.testing.assert_allclose(both[0].mode["z"] * units, plain.mode["z"], atol=1e-7)
    variances = both[0].precision.diagonal_of_inverse() * units**2
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


CHILD = """
    import jax.numpy as jnp, numpy as np, numpyro, numpyro.distributions as dist
    numpyro.enable_x64()
    import laplacebook as lb

    def series(y):
        b = numpyro.sample("b", dist.Normal(0, 2))
        z = numpyro.sample("z", dist.GaussianRandomWalk(0.3, num_steps=len(y)))
        numpyro.sample("y", dist.Poisson(jnp.exp(b + z)).to_event(1), obs=y)

    y = np.random.default_rng(1).poisson(3.0, 100_000)
    approx = lb.laplace(series, y, structure="sparse")
    assert approx.certificate.converged
    # A border, a diagonal and one beside: a twentieth of a matrix of all coordinates would be 4 GB.
    assert approx.precision.layout.rows.size == 3 * 100_000
    variances = approx.precision.diagonal_of_inverse()
    assert variances.shape == (100_001,) and np.all(np.isfinite(variances))
    # Since this program began: what getrusage tells is no less than what its parent had.
    with open("/proc/self/status") as status:
        print(*(line.split()[1] for line in status if line.startswith("VmHWM")))
"""


def test_a_hundred_thousand_coordinates_take_less_than_two_gigabytes():
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD)],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    assert int(found.stdout) * 1024 < 2 * 2**30
