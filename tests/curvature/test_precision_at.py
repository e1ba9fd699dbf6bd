"""Fits by Gauss-Newton and Fisher curvature, whole and in parts: modes, evidence, refusals."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.optimize import minimize

import laplacebook as lb
from laplacebook.curvature.precision_at import low_rank_at, precision_at
from laplacebook.curvature.settings import CURVATURES, STRUCTURES, Settings, precision_bytes
from laplacebook.model.density import ModelDensity
from laplacebook.models import bayesian_mlp

RNG = np.random.default_rng(1)
X = RNG.uniform(-2, 2, size=(12, 1))
T = np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=12)
NETWORK = {"widths": (2,), "noise_precision": 100.0}
START = {
    "w1": np.array([[1.0, -1.5]]),
    "b1": np.array([0.5, 0.3]),
    "w2": np.array([[1.0], [-1.0]]),
    "b2": np.array([0.1]),
}


jit_precision_at = jax.jit(precision_at, static_argnums=2)


def fit(structure="dense", curvature="gauss_newton", **options):
    settings = {"curvature": curvature, "structure": structure, "start": START}
    return lb.laplace(bayesian_mlp, X, T, **(settings | NETWORK | options))


@pytest.fixture(scope="module")
def dense():
    return fit()


def test_the_mode_is_that_of_scipy(dense):
    density = dense.density
    loss = jax.jit(jax.value_and_grad(lambda u: density.loss(u)[0]))
    start = density.start(START)
    found = minimize(
        lambda u: [*map(np.asarray, loss(u))], start, jac=True, method="BFGS", tol=1e-9
    )
    assert dense.certificate.converged and dense.certificate.newton_decrement < 1.5e-8
    np.testing.assert_allclose(dense.mode_vector, found.x, atol=1e-5)
    assert -dense.log_likelihood - dense.log_prior == pytest.approx(float(found.fun), abs=1e-9)


def test_the_precision_is_the_explicit_sum(dense):
    w1, b1, w2, b2 = (np.asarray(dense.mode[name]) for name in START)
    hidden = np.tanh(X @ w1 + b1)
    slope = (1 - hidden**2) * w2[:, 0]
    gradients = np.hstack([X * slope, slope, hidden, np.ones((12, 1))])
    A = np.eye(7) + 100 * gradients.T @ gradients
    np.testing.assert_allclose(dense.precision.matrix, A, rtol=1e-9, atol=1e-9)
    assert float(dense.certificate.condition_number) > 1


def test_kronecker_factors_find_the_same_mode(dense):
    near = {name: value + 0.02 for name, value in dense.mode.items()}  # of one mode out of several
    approx = fit("kronecker", batch_size=5, start=near)
    np.testing.assert_allclose(approx.mode_vector, dense.mode_vector, atol=1e-6)
    assert approx.log_likelihood == pytest.approx(float(dense.log_likelihood), abs=1e-6)
    settings = Settings("gauss_newton", "kronecker", batch_size=5)
    again = jit_precision_at(dense.density, dense.mode_vector, settings)
    np.testing.assert_allclose(approx.precision.matrix, again.matrix, rtol=1e-4, atol=1e-4)
    assert "gauss newton curvature, kronecker" in repr(approx)


def test_full_rank_is_dense_and_low_rank_is_less(dense):
    whole, less = (fit("low_rank", rank=k) for k in (7, 2))
    np.testing.assert_allclose(whole.precision.matrix, dense.precision.matrix, rtol=1e-8, atol=1e-8)
    assert whole.log_evidence == pytest.approx(float(dense.log_evidence), abs=1e-8)
    assert less.log_evidence > dense.log_evidence  # what is left out would have raised |A|
    with pytest.raises(lb.LaplaceError, match="different curvatures"):
        lb.compare({"all of it": dense, "two directions": less})


def test_the_last_layer_is_linear_regression_on_its_features(dense, tmp_path):
    approx = fit("last_layer", start=dense.mode)
    features = np.hstack([np.tanh(X @ dense.mode["w1"] + dense.mode["b1"]), np.ones((12, 1))])
    A = np.eye(3) + 100 * features.T @ features
    assert [site.name for site in approx.density.sites] == ["w2", "b2"]
    assert "gauss newton curvature, last layer" in repr(approx)
    np.testing.assert_allclose(approx.precision.matrix, A, rtol=1e-6)
    np.testing.assert_allclose(
        approx.mode_vector, np.linalg.solve(A, 100 * features.T @ T), atol=1e-6
    )
    covariance = np.eye(12) / 100 + features @ features.T
    exact = dist.MultivariateNormal(jnp.zeros(12), covariance).log_prob(T)
    assert approx.log_evidence == pytest.approx(float(exact), abs=1e-6)
    with pytest.raises(lb.UnsupportedModel, match="last layer"):
        lb.bic(approx, 12)  # whose D would be 3 of 7
    approx.save(tmp_path / "last.npz")
    again = lb.load(tmp_path / "last.npz", bayesian_mlp, X, T, **NETWORK)
    np.testing.assert_allclose(again.precision.matrix, approx.precision.matrix, rtol=1e-12)
    assert again.log_evidence == approx.log_evidence and repr(again) == repr(approx)


def product(y, scale=1.0):
    """A saddle at a = b = 0, two modes, (a, b) and (-a, -b), and linear in b with a fixed."""
    a = numpyro.sample("a", dist.Normal(0, scale))
    b = numpyro.sample("b", dist.Normal(0, 1))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(a * b, 0.1), obs=y)


def test_the_last_layer_of_each_mode_is_taken():
    options = {"start": {"b": 1.0}, "starts": 2, "key": jax.random.key(1)}
    approx = lb.laplace(product, np.full(3, 2.0), structure="last_layer", **options)
    (other,) = approx.other_modes
    assert approx.mode.keys() == other.mode.keys() == {"b"}
    assert other.settings == approx.settings
    assert other.mode["b"] == pytest.approx(-float(approx.mode["b"]), rel=1e-6)
    assert other.log_evidence == pytest.approx(float(approx.log_evidence), rel=1e-6)


@pytest.mark.parametrize(
    ("curvature", "structure", "rank", "size"),
    [("hessian", "last_layer", None, 3), ("gauss_newton", "low_rank", 2, 7)],
)
def test_a_failed_fit_is_of_the_structure_asked_for(curvature, structure, rank, size):
    options = {"curvature": curvature, "structure": structure, "rank": rank, "start": START}
    failed = lb.laplace(bayesian_mlp, X, T * np.nan, **options, **NETWORK, throw=False)
    assert not failed.certificate.converged
    assert (failed.settings.structure, failed.settings.rank) == (structure, rank)
    assert failed.precision.size == failed.mode_vector.size == failed.density.dimension == size
    assert np.isnan(failed.mode_vector).all() and np.isnan(failed.precision.matrix).all()
    assert np.isnan(failed.log_evidence)


def test_a_tolerance_is_in_the_summary_and_in_a_file(tmp_path):
    approx = fit(tolerance=0.5)
    approx.save(tmp_path / "network.npz")
    again = lb.load(tmp_path / "network.npz", bayesian_mlp, X, T, **NETWORK)
    assert again.settings == approx.settings
    assert 1e-6 < approx.certificate.newton_decrement <= 0.5
    assert "a Newton decrement of 0.5 was accepted" in repr(approx)
    assert "no mode certified" in repr(approx)


def test_derivatives_go_through_the_mode():
    options = {"curvature": "gauss_newton", "start": {"a": 1.0, "b": 1.0}}

    def evidence(scale):
        return lb.laplace(product, np.full(3, 2.0), scale, **options).log_evidence

    both = jax.jit(jax.value_and_grad(evidence))
    slope = (both(1.001)[0] - both(0.999)[0]) / 0.002
    assert both(1.0)[1] == pytest.approx(float(slope), rel=1e-4)


def test_a_saddle_is_left():
    """At which every derivative of first order vanishes."""
    approx = lb.laplace(product, np.full(3, 2.0), curvature="gauss_newton")
    a, b = (float(approx.mode[name]) for name in "ab")
    assert a * b == pytest.approx(2, abs=0.01) and abs(a) == pytest.approx(abs(b), abs=1e-6)


def heads(y):
    logit = numpyro.sample("logit", dist.Normal(0, 1))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=logit), obs=y)


def test_the_fisher_matrix_at_a_logit_of_zero():
    """Where NumPyro's slope of a Bernoulli is 1 and 0, and not 1/2."""
    density = ModelDensity.of(heads, (np.repeat([1.0, 0.0], [7, 3]),))
    precision = jit_precision_at(density, jnp.zeros(1), Settings("empirical_fisher", "dense"))
    assert precision.matrix == pytest.approx(1 + 10 / 4, abs=1e-9)


def outlier(x, t=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("N", len(x)):
        numpyro.sample("t", dist.StudentT(3.0, w, 0.3), obs=t)


def test_a_negative_eigenvalue_is_not_set_to_zero():
    density = ModelDensity.of(outlier, (np.zeros(2), np.array([1.0, 2.0])))
    with pytest.raises(lb.NotPositiveDefinite, match="negative eigenvalue"):
        low_rank_at(density, jnp.zeros(1), 1)


def hierarchical(x, t=None):
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    w = numpyro.sample("w", dist.Normal(0, scale).expand([1]))
    with numpyro.plate("N", len(x)):
        numpyro.sample("t", dist.Normal(x @ w, 1), obs=t)


def standardised(x, t=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([1]))
    with numpyro.plate("N", len(x)):
        numpyro.sample("t", dist.Normal((x - x.mean()) @ w, 1), obs=t)


def flat(x, t=None):
    w = numpyro.sample("w", dist.ImproperUniform(dist.constraints.real, (), (2,)))
    with numpyro.plate("N", len(x)):
        numpyro.sample("t", dist.Normal(x @ w[:1] + w.sum() * 0, 1), obs=t)


@pytest.mark.parametrize(
    ("model", "structure", "error", "words"),
    [
        (hierarchical, "diagonal", lb.UnsupportedModel, "couples them"),
        (standardised, "diagonal", lb.UnsupportedModel, "not the sum over its observations"),
        (flat, "dense", lb.NotPositiveDefinite, "not positive definite"),
    ],
)
def test_what_a_structure_cannot_hold_is_refused(model, structure, error, words):
    options = {"curvature": "gauss_newton", "structure": structure}
    with pytest.raises(error, match=words):
        lb.laplace(model, X, T, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"curvature": "fisher"}, ", ".join(CURVATURES)),
        ({"structure": "banded"}, ", ".join(STRUCTURES)),
        ({"structure": "sparse", "curvature": "gauss_newton"}, 'of curvature="hessian"'),
        ({"curvature": "hessian", "structure": "kronecker"}, "dense, diagonal, block, last_layer"),
        ({"structure": "low_rank"}, "rank="),
        ({"rank": 3}, "rank="),
        ({"batch_size": 0}, "batch_size must be"),
        ({"tolerance": 0.0}, "tolerance, .* must be a Python number"),
        ({"tolerance": np.inf}, "above 0 and below 1, not inf"),
        ({"tolerance": 1e6}, "above 0 and below 1, not 1000000.0"),
        ({"curvature": "hessian", "tolerance": 0.1}, "certified to rounding"),
        ({"curvature": "empirical_fisher", "structure": "low_rank", "rank": 2}, "gauss_newton"),
    ],
)
def test_options_that_do_not_exist(options, words):
    with pytest.raises(ValueError, match=words):
        fit(**options)


def test_too_large_for_memory_says_what_fits():
    network = partial(bayesian_mlp, widths=(1000, 1000))
    with pytest.raises(lb.LaplaceError, match=r"(?s)GiB.*\"kronecker\".*\"diagonal\"") as error:
        lb.laplace(network, X, T)
    assert "Hessian of 1,004,001 coordinates" in str(error.value)
    sites = ModelDensity.of(network, (X, T)).sites
    diagonal = precision_bytes(sites, Settings("gauss_newton", "diagonal"), float)
    assert diagonal == 6 * 8 * 1_004_001


@pytest.mark.parametrize("structure", ["block", "kronecker"])
def test_a_site_of_no_numbers(structure):
    def model(x, t):
        numpyro.sample("none", dist.Normal(0, 1).expand([0]).to_event(1))
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.sample("t", dist.Normal(x[:, 0] * w, 1.0), obs=t)

    density = ModelDensity.of(model, (X, T))
    precision = jit_precision_at(density, jnp.zeros(1), Settings("gauss_newton", structure))
    np.testing.assert_allclose(precision.solve(jnp.ones(1)), 1 / (1 + np.sum(X**2)), rtol=1e-9)
