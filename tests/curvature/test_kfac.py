"""Kronecker factors of the curvature, against a network differentiated by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import softmax

import laplacebook as lb
from laplacebook.curvature import gauss_newton
from laplacebook.curvature.kfac import kronecker_factors
from laplacebook.model.density import ModelDensity
from laplacebook.models import bayesian_mlp

RNG = np.random.default_rng(0)
N = 7
X = RNG.normal(size=(N, 2))
REAL, CLASSES = RNG.normal(size=(N, 2)), RNG.integers(0, 2, N)

#: targets, options, the activation and its derivative as a function of its value
LIKELIHOODS = {
    "normal": (REAL, {"noise_precision": [4.0, 0.25]}, np.tanh, lambda a: 1 - a**2),
    "categorical": (
        CLASSES,
        {"likelihood": "categorical", "activation": jax.nn.relu},
        lambda z: np.maximum(z, 0),
        lambda a: (a > 0).astype(float),
    ),
}


def loss_by_hand(name, f):
    """Slope and Hessian of each row's loss with respect to its outputs, (N, 2) and (N, 2, 2)."""
    if name == "normal":
        beta = np.array([4.0, 0.25])
        return beta * (f - REAL), np.broadcast_to(np.diag(beta), (N, 2, 2))
    p = softmax(f, axis=1)
    return p - np.eye(2)[CLASSES], p[:, :, None] * np.eye(2) - p[:, :, None] * p[:, None]


@pytest.mark.parametrize(
    ("name", "kind"), [("categorical", "gauss_newton"), ("normal", "empirical_fisher")]
)
def test_factors_are_those_of_a_network_by_hand(name, kind):
    targets, options, activation, slope_of = LIKELIHOODS[name]
    density = ModelDensity.of(bayesian_mlp, (X, targets), options | {"widths": (3,), "outputs": 2})
    u = jnp.asarray(RNG.normal(size=density.dimension))
    w1, b1, w2, b2 = (np.asarray(x) for x in density.unravel(u).values())
    a = activation(X @ w1 + b1)
    slope, hessian = loss_by_hand(name, a @ w2 + b2)
    last = np.broadcast_to(np.eye(2), (N, 2, 2))  # d eta / d z of the last layer, (N, C, k)
    if kind == "empirical_fisher":
        last, hessian = slope[:, None], np.ones((N, 1, 1))
    first = last @ w2.T * slope_of(a)[:, None]
    of_first, of_last = (np.einsum("nck,ncd,ndl->kl", d, hessian, d) for d in (first, last))
    expected = ((X.T @ X / N, of_first), of_first, (a.T @ a / N, of_last), of_last)
    found = kronecker_factors(density, u, kind, batch_size=3)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-9), found, expected)


def transposed(x, y=None):
    """Its weight stands on the left, in a compiled function; the last axis of x are positions."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([1, 2]).to_event(2))
    multiply = jax.jit(lambda w, x: jnp.squeeze(w) @ x)
    with numpyro.plate("N", x.shape[0]):
        numpyro.sample(
            "y", dist.Normal(jax.vmap(multiply, (None, 0))(w, x), 0.5).to_event(1), obs=y
        )


@pytest.mark.parametrize("which", ["linear", "transposed"])
def test_the_product_is_the_exact_block_where_only_the_inputs_depend_on_the_row(which):
    """With one output and a constant H, B is a number."""
    if which == "linear":
        density = ModelDensity.of(bayesian_mlp, (X, REAL[:, 0]), {"widths": ()})
    else:
        density = ModelDensity.of(transposed, (RNG.normal(size=(N, 2, 3)), RNG.normal(size=(N, 3))))
    u = jnp.asarray(RNG.normal(size=density.dimension))
    (one, two), *_ = kronecker_factors(density, u)
    exact = jax.jit(jax.hessian(lambda u: -density.terms(u).log_likelihood))(u)[:2, :2]
    assert one.shape == ((2, 2) if which == "linear" else (1, 1))
    np.testing.assert_allclose(np.kron(one, two), exact, rtol=1e-9)


def test_the_slope_of_a_bernoulli_is_right_at_logit_zero():
    """There every row's is 1/2 or -1/2, where NumPyro's own are 0 and -1."""
    density = ModelDensity.of(bayesian_mlp, (X, CLASSES), {"widths": (), "likelihood": "bernoulli"})
    (_, of_outputs), of_bias = kronecker_factors(density, jnp.zeros(3), "empirical_fisher")
    np.testing.assert_allclose(of_outputs, [[N / 4]], rtol=1e-9)
    np.testing.assert_allclose(of_bias, [[N / 4]], rtol=1e-9)


WEIGHTS = {
    "2\\s+places": lambda w, x: jnp.tanh(x @ w) @ w,
    "operation\\s+'exp'": lambda w, x: x @ jnp.exp(w),
    "operation\\s+'mul'": lambda w, x: x * w[0],
    "operation\\s+'gather'": lambda w, x: w[(x[:, 0] > 0).astype(int)],
    "operation\\s+'scan'": lambda w, x: jax.lax.scan(lambda h, _: (h @ w, None), x, length=2)[0],
    "only\\s+parts\\s+of\\s+it": lambda w, x: x[:, :1] @ w[:1],
    "stack\\s+of\\s+weights": lambda w, x: jnp.einsum("ni,ij->nij", x, w).sum(1),
    "an\\s+output\\s+itself": lambda w, x: jnp.broadcast_to(w[0], x.shape),
    "does\\s+not\\s+enter": lambda w, x: x,
    "complex\\s+numbers": lambda w, x: jnp.real(jnp.exp(1j * x) @ w),
}


@pytest.mark.parametrize("words", WEIGHTS)
def test_a_matrix_that_is_no_weight_of_one_layer_is_refused(words):
    def model(x, y=None):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([2, 2]).to_event(2))
        with numpyro.plate("N", x.shape[0]):
            numpyro.sample("y", dist.Normal(WEIGHTS[words](w, x), 1).to_event(1), obs=y)

    density = ModelDensity.of(model, (X, REAL))
    with pytest.raises(lb.UnsupportedModel, match=rf"'w'[^$]*{words}[^$]*structure=\"block\""):
        kronecker_factors(density, jnp.ones(4))


def biases(x, y):
    """As those of heads, which have two axes."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2, 4]).to_event(2))
    b = numpyro.sample("b", dist.Normal(0, 1).expand([2, 2]).to_event(2))
    with numpyro.plate("N", x.shape[0]):
        units = jnp.tanh((x @ w).reshape(-1, 2, 2) + b)
        numpyro.sample("y", dist.Normal(units.sum(axis=(1, 2)), 1), obs=y)


def test_a_bias_has_a_block_whatever_its_axes():
    density = ModelDensity.of(biases, (X, REAL[:, 0]))
    u = jnp.asarray(RNG.normal(size=12))
    _, block = kronecker_factors(density, u)
    exact = jax.jit(gauss_newton.dense_at_once)(density, u)[8:, 8:]
    np.testing.assert_allclose(block, exact, rtol=1e-9, atol=1e-12)


def both(x, y):
    """One product of two latent sites, each of which would be the weight of a layer of the other."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([1, 3]).to_event(2))
    v = numpyro.sample("v", dist.Normal(0, 1).expand([3, 1]).to_event(2))
    with numpyro.plate("N", x.shape[0]):
        numpyro.sample("y", dist.Normal(x[:, 0] * (w @ v)[0, 0], 1), obs=y)


def fourier(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2, 3]).to_event(2))
    with numpyro.plate("N", x.shape[0]):
        weights = jax.lax.complex(w, jnp.zeros_like(w))  # JAX 0.8 warns of a cast to complex
        waves = jnp.real(jnp.exp(1j * x) @ weights).sum(axis=1)
        numpyro.sample("y", dist.Normal(waves, 1), obs=y)


@pytest.mark.parametrize("model", [both, fourier])
def test_a_matrix_that_is_no_weight_has_its_curvature_all_the_same(model):
    density = ModelDensity.of(model, (X, REAL[:, 0]))
    u = jnp.asarray(RNG.normal(size=6))
    with pytest.raises(lb.UnsupportedModel, match="not the weight of one dense layer"):
        kronecker_factors(density, u)
    exact = jax.jit(gauss_newton.dense_at_once)(density, u)
    dense, diagonal = jax.jit(lambda d, u: (gauss_newton.dense(d, u), gauss_newton.diagonal(d, u)))(
        density, u
    )
    np.testing.assert_allclose(dense, exact, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(diagonal, np.diagonal(exact), rtol=1e-9, atol=1e-12)


def centred(x, y):
    b = numpyro.sample("b", dist.Normal(0, 1))
    with numpyro.plate("N", x.shape[0]):
        numpyro.sample("y", dist.Normal(b * (x - jnp.mean(x)), 1), obs=y)


def test_rows_that_do_not_add_up_are_refused_or_nan():
    density, u = ModelDensity.of(centred, (X[:, 0], REAL[:, 0])), jnp.ones(1)
    with pytest.raises(lb.UnsupportedModel, match="not the sum over its observations"):
        kronecker_factors(density, u)
    assert np.isnan(jax.jit(kronecker_factors)(density, u)[0]).all()


def test_what_is_not_finite_or_no_option_is_refused():
    density = ModelDensity.of(centred, (X[:, 0], np.full(N, np.nan)))
    with pytest.raises(lb.NonFinite, match="'y'"):
        kronecker_factors(density, jnp.ones(1))
    with pytest.raises(ValueError, match="'gauss_newton', 'empirical_fisher', not 'fisher'"):
        kronecker_factors(density, jnp.ones(1), "fisher")
    with pytest.raises(ValueError, match="batch_size must be a whole number"):
        kronecker_factors(density, jnp.ones(1), batch_size=0)
