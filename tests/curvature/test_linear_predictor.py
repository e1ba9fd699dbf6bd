"""The Hessian through a linear predictor, by JAX and by turns of BLAS and JAX: that of JAX alone."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist
from numpyro import handlers

import laplacebook as lb
from laplacebook.curvature import linear_predictor
from laplacebook.curvature.hessian import hessian_of
from laplacebook.curvature.predictor_on_host import PredictorOnHost, features_of
from laplacebook.curvature.rows_on_host import Rows
from laplacebook.model.density import ModelDensity

N, P = 4_321, 40  # no multiple of the rows at a time

RNG = np.random.default_rng(0)

X, Y = RNG.normal(size=(N, P)), RNG.integers(0, 2, N)

T, GROUP = RNG.normal(size=N), RNG.integers(0, 5, N)


def weights(*shape):
    shape = shape or (P,)
    return numpyro.sample("w", dist.Normal(0, 1).expand(shape).to_event(len(shape)))


def bernoulli(logits, name="y"):
    numpyro.sample(name, dist.Bernoulli(logits=logits), obs=Y)


def intercept(x):
    w, b = weights(), numpyro.sample("b", dist.Normal(0, 1))
    bernoulli(x @ w + b)


def few_groups(x):
    w, a = weights(), numpyro.sample("a", dist.Normal(0, 1).expand([5]).to_event(1))
    bernoulli(x @ w + a[GROUP])


def row_vector(x):
    bernoulli(weights() @ x.T)


def horseshoe(x):
    tau = numpyro.sample("tau", dist.HalfCauchy(1))
    scales = numpyro.sample("scales", dist.HalfCauchy(1).expand([P]).to_event(1))
    bernoulli(x @ (tau * scales * weights()))


def masked_and_scaled(x):
    eta = x @ weights()
    with handlers.scale(scale=0.5), numpyro.plate("rows", N):
        numpyro.sample("y", dist.Bernoulli(logits=eta).mask(T > 0), obs=Y)


def one_event(x):
    numpyro.sample("y", dist.Bernoulli(logits=x @ weights()).to_event(1), obs=Y)


def two_outcomes(x):
    w = weights()
    bernoulli(x @ w)
    numpyro.sample("t", dist.Normal(x[:, :30] @ w[:30], 1), obs=T)


def sum_within_a_function(x):
    numpyro.factor("y", -jnp.log1p(jnp.sum((T - x @ weights()) ** 2)))


def centred(x):
    eta = x @ weights()
    mean = jnp.broadcast_to(eta.mean(), eta.shape)
    numpyro.sample("y", dist.Normal(eta - mean, 1), obs=T)


def neighbours(x):
    eta = x @ weights()
    numpyro.factor("y", -jnp.sum((eta[1:] * eta[:-1] - T[1:]) ** 2) / N)


def product_of_sums(x):
    eta = x @ weights()
    numpyro.factor("y", -jnp.sum(eta * T) * jnp.sum(eta**2) / N**2)


def classes(x):
    numpyro.sample("y", dist.Categorical(logits=x @ weights(P, 3)), obs=Y)


def many_groups(x):
    w, a = weights(), numpyro.sample("a", dist.Normal(0, 1).expand([30]).to_event(1))
    bernoulli(x @ w + a[jnp.arange(N) % 30])


THROUGH = (intercept, few_groups, row_vector, horseshoe)

THROUGH += (masked_and_scaled, two_outcomes, one_event)

NOT = (sum_within_a_function, centred, neighbours, product_of_sums, classes, many_groups)


def loss_and_point(model):
    density = ModelDensity.of(model, (X,))
    u = jax.random.normal(jax.random.key(1), (density.dimension,)) / 5
    return density.loss, u


@pytest.fixture
def all_sizes(monkeypatch):
    monkeypatch.setattr(linear_predictor, "LARGE", 1)


@pytest.mark.usefixtures("all_sizes")
@pytest.mark.parametrize("model", THROUGH + NOT, ids=lambda model: model.__name__)
def test_it_is_the_hessian(model):
    loss, u = loss_and_point(model)
    split = linear_predictor.split_at_predictor(lambda u: loss(u)[0], u)
    assert (split is not None) == (model in THROUGH)
    known = jax.hessian(lambda u: loss(u)[0])
    found, exact = jax.jit(lambda u: (hessian_of(loss, u), known(u)))(u)
    assert jnp.max(jnp.abs(found - exact)) < 1e-13 * jnp.max(jnp.abs(exact))
    assert jnp.array_equal(found, found.T)


@pytest.mark.usefixtures("all_sizes")
def test_under_vmap_and_a_derivative():
    loss, u = loss_and_point(intercept)
    points = jnp.stack([u, -u])
    known = jax.hessian(lambda u: loss(u)[0])
    several = jax.jit(jax.vmap(lambda u: hessian_of(loss, u)))(points)
    assert jnp.allclose(several[1], jax.jit(known)(-u), rtol=1e-12)
    slope = jax.jit(jax.grad(lambda u: jnp.linalg.slogdet(hessian_of(loss, u))[1]))
    exact = jax.jit(jax.grad(lambda u: jnp.linalg.slogdet(known(u))[1]))
    assert jnp.allclose(slope(u), exact(u), rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("all_sizes")
def test_fewer_rows_than_are_taken_at_a_time():
    x, w = RNG.normal(size=(50, 40)), np.linspace(-1, 1, 40)
    y = RNG.integers(0, 2, 50)

    def loss(w):
        a = x @ w
        return jnp.sum(jnp.logaddexp(0, a) - y * a), None

    p = 1 / (1 + np.exp(-x @ w))
    exact = x.T @ ((p * (1 - p))[:, None] * x)
    np.testing.assert_allclose(jax.jit(lambda w: hessian_of(loss, w))(w), exact, atol=1e-12)


def test_small_data_are_left_alone():
    loss, u = loss_and_point(intercept)
    assert linear_predictor.split_at_predictor(lambda u: loss(u)[0], u) is None


def test_a_large_fit_has_the_covariance_that_numpy_finds():
    x = RNG.normal(size=(26_000, 41))
    y = (RNG.random(len(x)) < 1 / (1 + np.exp(-x @ np.linspace(-1, 1, 41)))).astype(int)
    approx = lb.laplace(lb.models.logistic_regression, x, y)
    p = 1 / (1 + np.exp(-x @ approx.mode["w"]))
    precision = x.T @ ((p * (1 - p))[:, None] * x) + np.eye(41)
    assert np.allclose(np.linalg.inv(approx.covariance), precision, rtol=1e-10, atol=1e-8)
    assert np.allclose(x.T @ (y - p), approx.mode["w"], atol=1e-5)


def intercept_among_the_features(x):
    intercept(jnp.column_stack([x, jnp.ones(len(x))])[:, :-1])


@pytest.fixture
def of_this_size(monkeypatch):
    monkeypatch.setattr(linear_predictor, "LARGE", X.size)


@pytest.mark.usefixtures("of_this_size")
@pytest.mark.parametrize("model", [intercept, horseshoe], ids=lambda m: m.__name__)
def test_they_are_those_of_jax(model):
    density = ModelDensity.of(model, (X,))
    features = features_of(density, 200)
    assert np.shares_memory(features, np.asarray(density.call.data[0]))
    u = np.random.default_rng(1).normal(size=density.dimension) / 5
    with Rows(features) as rows:
        on_host = PredictorOnHost(density, rows)
        on_host.hessian(u + 0.1)
        value, slope = on_host.value_and_slope(u)
        hessian = on_host.hessian(u)
        along = on_host.value_and_slope_along(u, np.cos(u))
        other = on_host.value_and_slope_along(u + 0.1, np.sin(u))
        beside = on_host.value_and_slope(u + 0.1)

    def loss(u):
        return density.loss(u)[0]

    exact = jax.jit(lambda u: (loss(u), jax.grad(loss)(u), jax.hessian(loss)(u)))(u)
    for found, expected in zip((value, slope, hessian), exact, strict=True):
        assert np.allclose(found, expected, rtol=1e-12, atol=1e-12 * np.max(abs(expected)))
    assert np.array_equal(hessian, hessian.T)
    assert along == pytest.approx((float(value), slope @ np.cos(u)), rel=1e-10)
    assert other == pytest.approx((float(beside[0]), beside[1] @ np.sin(u)), rel=1e-10)


@pytest.mark.usefixtures("of_this_size")
@pytest.mark.parametrize("model", [row_vector, intercept_among_the_features])
def test_what_is_computed_from_the_data_is_left_to_jax(model):
    """It would be computed anew at every look."""
    assert features_of(ModelDensity.of(model, (X,)), 200) is None


@pytest.mark.usefixtures("of_this_size")
def test_so_are_fewer_data_more_coordinates_and_data_that_are_not_known():
    density = ModelDensity.of(intercept, (X,))
    assert features_of(ModelDensity.of(intercept, (X[1:],)), 200) is None
    assert features_of(density, density.dimension - 1) is None
    found = []
    jax.eval_shape(lambda density: found.append(features_of(density, 200)), density)
    assert found == [None]
