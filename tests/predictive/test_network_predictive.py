"""Predictions of networks: the linearised predictive row by row, against Jacobians by hand."""

from contextlib import nullcontext
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.base.jaxprs import array_sizes
from laplacebook.curvature.last_layer import last_layer_of
from laplacebook.curvature.settings import DENSE_HESSIAN, Settings
from laplacebook.gaussian.low_rank import LowRankPrecision
from laplacebook.model.arguments import Call
from laplacebook.model.density import ModelDensity
from laplacebook.models import bayesian_mlp
from laplacebook.predictive import linearized
from laplacebook.predictive.averages import sigmoid_mean
from laplacebook.search.certificate import Certificate

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(5, 2)), RNG.normal(size=(7, 2))
SHAPES = [(2, 3), (3,), (3, 2), (2,)]
D = 17
U = jnp.array(RNG.normal(size=D))
ROOT = RNG.normal(size=(D, D))
LINEARISED = Settings("gauss_newton")
NETWORK = partial(bayesian_mlp, widths=(3,), outputs=2, noise_precision=4.0)
CLASSES = partial(bayesian_mlp, widths=(3,), outputs=2, likelihood="categorical")


@pytest.fixture(autouse=True)
def _always_by_rows(monkeypatch):
    monkeypatch.setattr(linearized, "MOST_BY_COLUMNS", 0)


def factor(size):
    return jnp.array(ROOT[:size] @ ROOT[:size].T)


def precision_of(structure):
    if structure == "dense":
        return lb.DensePrecision.of(factor(D))
    if structure == "low_rank":
        return LowRankPrecision.of(jnp.diagonal(factor(D)), jnp.array(ROOT[:, :4]), jnp.arange(4.0))
    first, second = (
        lb.KroneckerBlock(*map(factor, shape), jnp.array(2.0)) for shape in SHAPES[::2]
    )
    return lb.KroneckerPrecision.of((first, factor(3), second, factor(2)))


def approximation(model, precision, settings=LINEARISED, u=U, *data):
    """A fit with this mode and precision: a prediction asks nothing else of them."""
    density = ModelDensity.of(model, data or (X, np.zeros((5, 2))))
    certificate = Certificate(True, 0.0, 0, 1.0)
    return lb.LaplaceApproximation(
        density.unravel(u), u, precision, 0.0, 0.0, certificate, density, settings=settings
    )


def network(u, x):
    w1, b1, w2, b2 = (
        part.reshape(shape) for part, shape in zip(jnp.split(u, [6, 9, 15]), SHAPES, strict=True)
    )
    return jnp.tanh(x @ w1 + b1) @ w2 + b2


JACOBIAN = np.asarray(jax.jacobian(network)(U, NEW))


def covariances(precision, jacobian=JACOBIAN):
    return np.einsum("ncd,de,nfe->ncf", jacobian, np.linalg.inv(precision.matrix), jacobian)


@pytest.mark.parametrize("structure", ["dense", "kronecker", "low_rank"])
def test_the_covariance_of_the_outputs_of_a_row(structure):
    approx = approximation(NETWORK, precision_of(structure))
    found = lb.predict(approx, NEW)
    expected = covariances(approx.precision)
    np.testing.assert_allclose(found.mean, network(U, NEW), rtol=1e-12)
    np.testing.assert_allclose(found.epistemic_covariance, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.epistemic, np.einsum("ncc->nc", expected), rtol=1e-9)
    np.testing.assert_allclose(found.variance - found.epistemic, 0.25, rtol=1e-12)


def scaled(features, y=None):
    """Not every coordinate is a parameter as the model has it."""
    scale = numpyro.sample("scale", dist.LogNormal(0, 1))
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2, 2]).to_event(2))
    numpyro.sample("y", dist.Normal(scale * jnp.tanh(features @ w), 0.5).to_event(1), obs=y)


def test_rows_in_batches_and_columns_agree(monkeypatch):
    """Both by their own names: `linearize` would hide rows that are wrong behind the columns."""
    density, precision = (
        ModelDensity.of(scaled, (X, np.zeros((5, 2)))),
        lb.DensePrecision.of(factor(5)),
    )
    fit = (density, Call.of(scaled, (NEW,)), U[:5], precision, None, True)
    columns = linearized._by_columns(*fit)
    monkeypatch.setattr(linearized, "_AT_ONCE", 3 * 2 * 5)  # three rows, so that the last is filled
    rows, same = linearized._by_rows(*fit)
    assert same
    assert not np.any(rows.linear) and not np.any(columns.linear)
    for by_rows, by_columns in zip(rows, columns, strict=True):
        np.testing.assert_allclose(by_rows, by_columns, rtol=1e-10, atol=1e-12)


def centred(features, y=None):
    """A row alone has another predictor than among others, though at w = 0 one cannot see it."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal((features - features.mean(axis=0)) @ w, 1.0), obs=y)


@pytest.mark.parametrize("compiled", [False, True])
def test_rows_that_depend_on_one_another(compiled):
    precision = lb.DensePrecision.of(factor(2))
    approx = approximation(centred, precision, LINEARISED, jnp.zeros(2), X, np.zeros(5))
    warned = pytest.warns(lb.DoubtfulFit, match="all of its rows together")
    with nullcontext() if compiled else warned:
        found = (jax.jit(lb.predict) if compiled else lb.predict)(approx, NEW)
    away = NEW - NEW.mean(axis=0)
    expected = np.einsum("nd,de,ne->n", away, np.linalg.inv(precision.matrix), away)
    np.testing.assert_allclose(found.epistemic, expected, rtol=1e-10)
    assert found.epistemic_covariance is None


def test_two_classes_by_draws_of_the_outputs_and_by_quadrature():
    """The difference of two logits is normal, and what the probabilities depend on."""
    approx = approximation(CLASSES, precision_of("dense"), LINEARISED, U, X, np.zeros(5, int))
    drawn = lb.predict(approx, NEW, method="output_monte_carlo", key=KEY, num_samples=4000)
    contrast = np.array([1.0, -1.0])
    variance = np.einsum("c,ncd,d->n", contrast, covariances(approx.precision), contrast)
    truth = sigmoid_mean(network(U, NEW) @ contrast, jnp.array(variance))
    np.testing.assert_allclose(drawn.value.sum(axis=1), 1, rtol=1e-12)
    away = (drawn.value[:, 0] - truth) / drawn.standard_error[:, 0]
    assert np.abs(away).max() < 4
    assert drawn.standard_error.max() < 0.5 / 4000**0.5 * 1.001
    plugged = jax.nn.softmax(network(U, NEW))[:, 0]
    assert np.abs(plugged - truth).max() > 10 * drawn.standard_error.max()


def shifted(features, y=None):
    """Two logits with a common shift, which changes no probability."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    logits = jnp.stack([w[0] + features @ w[1:], w[0] + 0 * features[:, 0]], axis=1)
    numpyro.sample("y", dist.Categorical(logits=logits), obs=y)


def test_probit_of_classes_sees_a_common_shift():
    u, precision = jnp.array([0.0, 3.0]), lb.DiagonalPrecision(jnp.array([1e-6, 1e6]))
    approx = approximation(shifted, precision, DENSE_HESSIAN, u, X[:, :1], np.zeros(5, int))
    row = np.ones((1, 1))
    assert lb.predict(approx, row)[0, 0] < 0.51
    drawn = lb.predict(approx, row, method="output_monte_carlo", key=KEY, num_samples=100)
    np.testing.assert_allclose(drawn.value[0, 0], jax.nn.sigmoid(3.0), atol=1e-3)


@pytest.fixture(scope="module")
def binary():
    model = partial(bayesian_mlp, widths=(3,), likelihood="bernoulli")
    u, precision = U[:13], lb.DensePrecision.of(factor(13))
    return approximation(model, precision, LINEARISED, u, X, np.zeros(5))


def test_a_binary_outcome_of_a_network(binary):
    here = lb.predict(binary, NEW)
    u = jnp.concatenate([binary.mode_vector, jnp.zeros(4)])

    def logit(u):
        w1, b1, w2, b2 = u[:6].reshape(2, 3), u[6:9], u[9:12], u[12]
        return jnp.tanh(NEW @ w1 + b1) @ w2 + b2

    variance = covariances(binary.precision, np.asarray(jax.jacobian(logit)(u))[:, None, :13])
    expected = sigmoid_mean(logit(u), jnp.array(variance[:, 0, 0]))
    np.testing.assert_allclose(here, expected, rtol=1e-9)
    drawn = lb.predict(binary, NEW, method="output_monte_carlo", key=KEY, num_samples=4000)
    assert np.abs((drawn.value - here) / drawn.standard_error).max() < 4
    np.testing.assert_allclose(jax.jit(lb.predict)(binary, NEW), here, rtol=1e-10)


def test_a_curved_predictor_with_the_hessian_is_refused(binary):
    exact = lb.LaplaceApproximation(
        *(getattr(binary, name) for name in ("mode", "mode_vector", "precision")),
        *(0.0, 0.0, binary.certificate, binary.density),
    )
    for method in ("quadrature", "output_monte_carlo"):
        with pytest.raises(lb.UnsupportedModel, match='(?s)monte_carlo.*curvature="gauss_newton"'):
            lb.predict(exact, NEW, method=method, key=KEY)
    with pytest.raises(ValueError, match='"output_monte_carlo" needs a random key'):
        lb.predict(binary, NEW, method="output_monte_carlo")


def test_the_last_layer_is_linear_whatever_the_curvature(binary):
    density = last_layer_of(binary.density, binary.mode_vector)
    last = lb.LaplaceApproximation(
        *({}, binary.mode_vector[9:], lb.DensePrecision.of(factor(4)), 0.0, 0.0),
        *(binary.certificate, density),
    )
    w1, b1 = binary.mode["w1"], binary.mode["b1"]
    units = np.column_stack([np.tanh(NEW @ w1 + b1), np.ones(7)])
    variance = np.einsum("nd,de,ne->n", units, np.linalg.inv(factor(4)), units)
    expected = sigmoid_mean(units @ binary.mode_vector[9:], jnp.array(variance))
    np.testing.assert_allclose(lb.predict(last, NEW), expected, rtol=1e-9)


def test_rows_times_weights_are_never_in_memory():
    """Of the rows by their own name: a traced `linearize` holds the columns beside them."""
    N, D = 20_000, 2_701
    fit = ModelDensity.of(bayesian_mlp, (np.ones((2, 1)), np.zeros(2)))

    def variances(features, u):
        new = Call.of(bayesian_mlp, (features,))
        precision = LowRankPrecision.of(u, u[:, None], jnp.ones(1))
        return linearized._by_rows(fit, new, u, precision, None, False)

    shapes = [jax.ShapeDtypeStruct(shape, float) for shape in ((N, 1), (D,))]
    found = max(array_sizes(jax.make_jaxpr(variances)(*shapes).jaxpr))
    assert linearized._AT_ONCE / 2 < found <= linearized._AT_ONCE  # a batch of Jacobians was seen
