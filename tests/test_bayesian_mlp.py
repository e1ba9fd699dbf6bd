"""The network of the book: its log density by hand, what it refuses, and one of NumPyro's support of modules."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.contrib.module as numpyro_module
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import log_expit, log_softmax

import laplacebook as lb
from laplacebook.model.density import ModelDensity
from laplacebook.models import bayesian_mlp

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 2))
real, pairs = RNG.normal(size=5), RNG.normal(size=(5, 2))
binary, classes = np.array([0, 1, 1, 0, 1]), np.array([0, 2, 1, 1, 0])

#: targets, options, and the log likelihood of the outputs, shape (5, outputs)
LIKELIHOODS = {
    "normal": (
        real,
        {"noise_precision": 4.0},
        lambda f: stats.norm.logpdf(real, f[:, 0], 0.5),
    ),
    "normals": (
        pairs,
        {"outputs": 2, "noise_precision": [4.0, 0.25]},
        lambda f: stats.norm.logpdf(pairs, f, [0.5, 2.0]),
    ),
    "bernoulli": (
        binary,
        {"likelihood": "bernoulli"},
        lambda f: log_expit(np.where(binary, 1, -1) * f[:, 0]),
    ),
    "categorical": (
        classes,
        {"likelihood": "categorical", "outputs": 3},
        lambda f: log_softmax(f, axis=1)[np.arange(5), classes],
    ),
    "poisson": (
        classes,
        {"likelihood": "poisson"},
        lambda f: stats.poisson.logpmf(classes, np.exp(f[:, 0])),
    ),
}


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_log_joint_is_that_of_scipy(name):
    targets, options, log_likelihood = LIKELIHOODS[name]
    options = options | {"widths": (3,), "prior_mean": [0.1, -0.2], "prior_precision": [4.0, 0.5]}
    density = ModelDensity.of(bayesian_mlp, (X, targets), options)
    u = jnp.asarray(RNG.normal(size=density.dimension))
    w1, b1, w2, b2 = (np.asarray(x) for x in density.unravel(u).values())
    assert [site.name for site in density.sites] == ["w1", "b1", "w2", "b2"]
    terms = jax.jit(density.terms)(u)
    prior = stats.norm.logpdf(np.r_[w1.ravel(), b1], 0.1, 0.5).sum()
    prior += stats.norm.logpdf(np.r_[w2.ravel(), b2], -0.2, 0.5**-0.5).sum()
    assert terms.log_prior == pytest.approx(prior, rel=1e-6)
    expected = log_likelihood(np.tanh(X @ w1 + b1) @ w2 + b2).sum()
    assert terms.log_likelihood == pytest.approx(expected, rel=1e-5)


def test_without_widths_it_is_linear_and_its_evidence_can_be_differentiated():
    """Bishop 3.86: the exact evidence of linear regression."""

    def log_evidence(precision):
        options = {"widths": (), "prior_precision": precision, "noise_precision": 4.0}
        return lb.laplace(bayesian_mlp, X, real, **options).log_evidence

    design = np.column_stack([X, np.ones(5)])

    def exact(precision):
        covariance = np.eye(5) / 4 + design @ design.T / precision
        return stats.multivariate_normal.logpdf(real, np.zeros(5), covariance)

    value, slope = jax.value_and_grad(log_evidence)(2.0)
    assert value == pytest.approx(exact(2.0), rel=1e-5)
    assert slope == pytest.approx((exact(2.001) - exact(1.999)) / 0.002, rel=1e-3)


@pytest.mark.parametrize(
    ("args", "options", "words"),
    [
        ((X[:, 0], real), {}, r"not \(5,\); a single feature is a column, features\[:, None\]"),
        (
            (X, real),
            {"likelihood": "gauss"},
            "normal, bernoulli, categorical, poisson, not 'gauss'",
        ),
        ((X, real), {"widths": (0,)}, "1 or more"),
        ((X, real[:, None]), {}, r"targets must have shape \(5,\), not \(5, 1\)"),
        ((X, real), {"outputs": 2}, r"targets must have shape \(5, 2\), not \(5,\)"),
        ((X, binary), {"likelihood": "bernoulli", "outputs": 2}, "outputs must be 1"),
        ((X, 2 * binary), {"likelihood": "bernoulli"}, r"classes 0, ..., 1, not \[2\]"),
        ((X, classes - 1), {"likelihood": "poisson"}, r"counts 0, 1, 2, ..., not \[-1\]"),
        ((X, classes / 2), {"likelihood": "poisson"}, r"counts 0, 1, 2, ..., not \[0\.5\]"),
        ((X, classes), {"likelihood": "poisson", "outputs": 2}, "outputs must be 1, the log"),
        ((X, classes), {"likelihood": "categorical"}, "number of classes"),
        ((X, classes - 1), {"likelihood": "categorical", "outputs": 3}, r"not \[-1\]"),
        ((X, real), {"likelihood": "categorical", "outputs": 3}, "classes as integers"),
        ((X, real), {"prior_precision": [1.0, 2.0]}, "one for each layer, of shape \\(3,\\)"),
        ((X, real), {"noise_precision": [1.0, 2.0]}, "one for each output"),
        ((X, real), {"noise_precision": -1.0}, "noise_precision must be positive and finite"),
        ((X, real), {"prior_precision": [1.0, np.inf, 1.0]}, "positive and finite"),
    ],
)
def test_what_does_not_fit_is_refused(args, options, words):
    with pytest.raises(ValueError, match=words):
        bayesian_mlp(*args, **options)


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"widths": 3}, r"one number for each hidden layer, such as \(50,\), not 3"),
        (
            {"prior_precision": "1"},
            "prior_precision must be a number, one over a variance, not '1'",
        ),
    ],
)
def test_what_is_no_number_is_refused(options, words):
    with pytest.raises(TypeError, match=words):
        bayesian_mlp(X, real, **options)


def random_equinox(features, targets=None):
    """A network by NumPyro's own support of modules, which keeps a parameter for its shapes alone."""
    mlp = eqx.nn.MLP(1, "scalar", 5, depth=1, activation=jax.nn.tanh, key=jax.random.key(0))
    shapes = {"net$params": eqx.filter(mlp, eqx.is_inexact_array)}
    with numpyro.handlers.substitute(data=shapes):
        net = numpyro_module.random_eqx_module("net", mlp, prior=dist.Normal(0, 1))
    with numpyro.plate("N", features.shape[0]):
        numpyro.sample("t", dist.Normal(jax.vmap(net)(features), 0.1), obs=targets)


@pytest.mark.skipif(
    not hasattr(numpyro_module, "random_eqx_module"), reason="this NumPyro has no support for it"
)
def test_a_network_by_numpyros_module_support_is_a_model():
    density = ModelDensity.of(random_equinox, (X[:, :1], real))
    first = "net/layers[0]."
    assert [site.name for site in density.sites][:2] == [first + "weight", first + "bias"]
    u = jnp.asarray(RNG.normal(size=density.dimension))
    w1, b1, w2, b2 = (np.asarray(x) for x in density.unravel(u).values())
    f = (np.tanh(X[:, :1] @ w1.T + b1) @ w2.T + b2)[:, 0]
    expected = stats.norm.logpdf(real, f, 0.1).sum()
    assert jax.jit(density.terms)(u).log_likelihood == pytest.approx(expected, rel=1e-5)
