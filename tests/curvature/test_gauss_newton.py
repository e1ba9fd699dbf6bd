"""The Gauss-Newton and the empirical Fisher matrix against their definitions, and the prior's Hessian."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.base.jaxprs import array_sizes
from laplacebook.curvature import gauss_newton
from laplacebook.curvature import symmetric_blocks as symmetric
from laplacebook.curvature.hessian import matrix_of, prior_curvature, prior_hessian
from laplacebook.curvature.last_layer import last_layer_of
from laplacebook.curvature.outputs_and_loss import split_likelihood
from laplacebook.curvature.symmetric_blocks import LayerBlock
from laplacebook.model.density import ModelDensity
from laplacebook.model.rows import require_sum, row_log_likelihoods
from laplacebook.models import bayesian_mlp
from tests.curvature.test_outputs_and_loss import X, binary, density_of, of_fixed_size, real, u
from tests.models import logistic

rng = np.random.default_rng(0)
classes = rng.integers(0, 3, 7)


@jax.jit
def expected(density, u):
    """J'HJ over all rows at once."""
    eta, loss = split_likelihood(density, u)
    J, H = jax.jacobian(eta)(u), jax.hessian(loss)(eta(u))
    return J.T @ H @ J


@jax.jit
def fisher(density, u):
    """The sum of gg'."""
    g = jax.jacobian(lambda u: row_log_likelihoods(density, u, 7))(u)
    return g.T @ g


@partial(jax.jit, static_argnames="kinds")
def computed(density, u, kinds):
    return {kind: [f(density, u, kind) for f in PIECES] for kind in kinds}


PIECES = (gauss_newton.dense, gauss_newton.diagonal, gauss_newton.blocks)
#: families, which test_outputs_and_loss.py takes apart, by the shape of H: outputs of two sites, one
#: a number of either sign, and a full matrix; the empirical Fisher matrix, which has no H, is that of
#: the first
MODELS = {"two sites": ("student", binary), "categorical": ("categorical",)}


@pytest.mark.parametrize("name", MODELS)
def test_the_matrices_are_what_they_are_defined_to_be(name):
    density = density_of(*MODELS[name])
    right = {"gauss_newton": expected(density, u)}
    if name == "two sites":
        right["empirical_fisher"] = fisher(density, u)
    for kind, (dense, diagonal, blocks) in computed(density, u, tuple(right)).items():
        scale = np.abs(right[kind]).max()
        np.testing.assert_allclose(dense, right[kind], rtol=1e-12, atol=1e-13 * scale)
        np.testing.assert_allclose(diagonal, np.diagonal(dense), rtol=1e-12, atol=1e-13 * scale)
        for block, at in zip(blocks, (slice(0, 6), slice(6, 7)), strict=True):
            np.testing.assert_allclose(block, dense[at, at], rtol=1e-12, atol=1e-13 * scale)


def test_wide_matrices_are_symmetric_and_whole(monkeypatch):
    monkeypatch.setattr(symmetric, "WIDE", 5)
    density = density_of("categorical")
    dense = jax.jit(gauss_newton.dense)(density, u)
    np.testing.assert_array_equal(dense, dense.T)
    np.testing.assert_allclose(dense, expected(density, u), atol=1e-12)


def around_layers(X, y):
    """Two layers, one with its weight on the left, between sites that are none; each axis counts."""
    table = numpyro.sample("table", dist.Normal(0, 1).expand([2, 2]).to_event(2))
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2, 3]).to_event(2))
    b = numpyro.sample("b", dist.Normal(0, 1).expand([3]).to_event(1))
    v = numpyro.sample("v", dist.Normal(0, 1).expand([4, 3]).to_event(2))
    c = numpyro.sample("c", dist.Normal(0, 1))
    hidden = jnp.tanh((X + table[(X[:, 0] > 0).astype(int)]) @ w + b)
    with numpyro.plate("n", X.shape[0]):
        numpyro.sample("y", dist.Categorical(logits=(v @ hidden.T).T + c * X[:, :1]), obs=y)


def test_layers_by_pairs_are_what_they_are_by_their_jacobians(monkeypatch):
    monkeypatch.setattr(symmetric, "DEEP", 1)
    density = ModelDensity.of(around_layers, (X, classes))
    v = jnp.asarray(np.random.default_rng(1).normal(size=density.dimension))
    by_pairs = []

    def noted(products, sizes, axis):
        by_pairs.append(axis)
        return LayerBlock(products, sizes, axis)

    monkeypatch.setattr(symmetric, "LayerBlock", noted)

    @jax.jit
    def pieces(density, v):
        return [f(density, v, "gauss_newton", 3) for f in PIECES]

    right = expected(density, v)
    dense, diagonal, blocks = pieces(density, v)
    assert set(by_pairs) == {0, 1}
    np.testing.assert_allclose(dense, right, rtol=1e-11, atol=1e-12)
    np.testing.assert_array_equal(dense, dense.T)
    np.testing.assert_allclose(diagonal, np.diagonal(right), rtol=1e-11, atol=1e-12)
    ends = np.cumsum([site.size for site in density.sites])
    for block, a, b in zip(blocks, [0, *ends], ends, strict=False):
        np.testing.assert_allclose(block, right[a:b, a:b], rtol=1e-11, atol=1e-12)


def _applied(product, v):
    return product(v)


def test_products_and_all_rows_at_once():
    density = density_of("categorical")
    right = expected(density, u)
    product = jax.jit(gauss_newton.gauss_newton_product)(density, u)
    np.testing.assert_allclose(jax.jit(_applied)(product, u), right @ u, rtol=1e-12)
    fixed = jax.jit(gauss_newton.dense)(ModelDensity.of(of_fixed_size, (X, real)), u[:2])
    np.testing.assert_allclose(fixed, X.T @ X, rtol=1e-12)


def test_the_last_layer_of_a_poisson_network_is_that_of_its_log_rate():
    whole = ModelDensity.of(
        partial(bayesian_mlp, widths=(2,), likelihood="poisson"), (X, jnp.arange(len(X)) % 4)
    )
    layer = last_layer_of(whole, jnp.linspace(-1, 1, whole.dimension))
    known, at = layer.model.fixed, jnp.array([0.3, -0.2, 0.1])
    assert [site.name for site in layer.sites] == ["w2", "b2"]
    features = np.hstack([np.tanh(X @ known["w1"] + known["b1"]), np.ones((len(X), 1))])
    found = jax.jit(gauss_newton.dense)(layer, at)
    rates = np.exp(features @ at)
    np.testing.assert_allclose(found, features.T @ (rates[:, None] * features), rtol=1e-12)


def test_known_values_as_many_as_the_rows_are_not_by_row():
    data = (X, real)
    whole = ModelDensity.of(partial(bayesian_mlp, widths=(len(X),)), data)
    layer = last_layer_of(whole, jnp.linspace(-1, 1, whole.dimension))
    known = layer.model.fixed
    assert known["b1"].shape == real.shape
    features = np.hstack([np.tanh(X @ known["w1"] + known["b1"]), np.ones((len(X), 1))])
    found = jax.jit(gauss_newton.dense)(layer, jnp.zeros(layer.dimension))
    np.testing.assert_allclose(found, features.T @ features, rtol=1e-11, atol=1e-12)


def standardised(X, y):
    logistic((X - X.mean(axis=0)) / 2, y)


def of_one_another(X, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]))
    before = jnp.concatenate([jnp.zeros(1), y[:-1]])
    numpyro.sample("y", dist.Normal(X @ w + w[0] * before, 1), obs=y)


def jointly(X, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]))
    covariance = jnp.eye(len(y)) + X @ X.T
    numpyro.sample("y", dist.MultivariateNormal(X @ w, covariance), obs=y)


@pytest.mark.parametrize("model", [standardised, of_one_another, jointly])
def test_rows_that_do_not_add_up_are_refused(model):
    """At zero, where the likelihood of a standardised model adds up and its curvature does not."""
    density = ModelDensity.of(model, (X, binary if model is standardised else real))
    with pytest.raises(lb.UnsupportedModel, match="not the sum"):
        require_sum(density, jnp.zeros(2))
    assert np.isnan(jax.jit(gauss_newton.diagonal)(density, jnp.zeros(2))).all()


def test_rows_that_add_up_are_not_refused():
    require_sum(ModelDensity.of(logistic, (X, binary)), jnp.zeros(2))


def test_memory_does_not_grow_with_the_number_of_rows():
    big = ModelDensity.of(logistic, (jnp.zeros((3000, 2)), jnp.zeros(3000)))

    program = jax.make_jaxpr(lambda u: gauss_newton.diagonal(big, u, batch_size=10))(jnp.zeros(2))
    assert max(array_sizes(program.jaxpr)) <= 3000


def test_a_kind_that_is_none_is_refused():
    with pytest.raises(ValueError, match="empirical_fisher"):
        gauss_newton.diagonal(density_of("student"), u, "fisher")


@jax.jit
def of_prior(density, u):
    return *prior_curvature(density, u), prior_hessian(density, u)


def test_the_curvature_of_a_prior_that_is_diagonal():
    density = density_of("student")
    diagonal, alone, whole = of_prior(density, u)
    assert alone
    np.testing.assert_allclose(diagonal, [1] * 6 + [2 * np.exp(2 * u[6])], rtol=1e-12)
    np.testing.assert_allclose(whole, np.diag(diagonal), atol=1e-12)


def test_the_curvature_of_a_prior_that_is_not():
    def hierarchical(y):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
        with numpyro.plate("n", 3):
            x = numpyro.sample("x", dist.Normal(0.0, scale))
            numpyro.sample("y", dist.Normal(x, 1.0), obs=y)

    density = ModelDensity.of(hierarchical, (real[:3],))
    diagonal, alone, whole = of_prior(density, u[:4])
    assert not alone and np.isnan(diagonal).all()
    log_scale, x = float(u[0]), np.asarray(u[1:4])
    precision = np.exp(-2 * log_scale)
    right = np.diag([1 + 2 * precision * np.sum(x**2)] + [precision] * 3)
    right[0, 1:] = right[1:, 0] = -2 * precision * x
    np.testing.assert_allclose(whole, right, rtol=1e-12, atol=1e-14)


def test_a_matrix_from_its_products():
    A = rng.normal(size=(40, 40))
    found = jax.jit(lambda zero: matrix_of(lambda v: (A + A.T) @ v, zero))(np.zeros(40))
    np.testing.assert_array_equal(found, A + A.T)


def test_a_bias_that_was_sampled_first_is_of_the_last_layer():
    """As the parameters of a dict are, in the order of their names."""
    rng = np.random.default_rng(3)
    x, t = rng.normal(size=(20, 2)), rng.normal(size=20)
    b1, b2, w1, w2 = (0.5 * rng.normal(size=shape) for shape in ((5,), (1,), (2, 5), (5, 1)))
    one = lb.network(
        lambda p, x: jnp.tanh(x @ p[0] + p[1]) @ p[2] + p[3], [w1, b1, w2, b2], likelihood="normal"
    )
    by_name = lambda p, x: jnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]  # noqa: E731
    other = lb.network(by_name, {"b1": b1, "b2": b2, "w1": w1, "w2": w2}, likelihood="normal")
    layers = []
    for network in (one, other):
        density = ModelDensity.of(network, (x, t))
        layers.append(last_layer_of(density, density.start(network.start)))
    assert [site.name for site in layers[1].sites] == ["b2", "w2"]
    assert layers[0].dimension == layers[1].dimension == 6
