"""Networks of the user's own: plain functions and modules, against the network of the book."""

import sys
import warnings
from collections import namedtuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pandas as pd
import pytest
from jax import monitoring

import laplacebook as lb
from laplacebook.curvature.kfac import kronecker_factors
from laplacebook.model.density import ModelDensity
from laplacebook.models import bayesian_mlp

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 1))
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=12)
IMAGES, CLASSES = RNG.normal(size=(9, 1, 4, 4)), np.arange(9) % 3
NORMAL = {"prior_precision": 2.0, "noise_precision": 25.0}
KRONECKER = {"curvature": "gauss_newton", "structure": "kronecker", "tolerance": 0.01}
COMPILED = []


def _note(event, _duration, **about):
    if event == "/jax/core/compile/backend_compile_duration":
        COMPILED.append(about.get("fun_name", "a program"))


monitoring.register_event_duration_secs_listener(_note)


def apply(params, x):
    return jnp.tanh(x @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]


def drawn(seed, outputs=1):
    rng = np.random.default_rng(seed)
    shapes = {"w1": (1, 3), "b1": (3,), "w2": (3, outputs), "b2": (outputs,)}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


class Convolutional(eqx.Module):
    convolution: eqx.nn.Conv2d
    norm: eqx.nn.LayerNorm
    layers: list

    def __init__(self, key):
        one, two = jax.random.split(key)
        self.convolution = eqx.nn.Conv2d(1, 2, 3, key=one)
        self.norm = eqx.nn.LayerNorm((2, 2, 2))
        self.layers = [eqx.nn.Linear(8, 3, key=two)]

    def __call__(self, x):
        return self.layers[0](jnp.tanh(self.norm(self.convolution(x))).ravel())


LIKELIHOODS = {
    "normal": (Y, 1, {"noise_precision": 25.0}),
    "normals": (np.column_stack([Y, Y**2]), 2, {"noise_precision": [4.0, 25.0]}),
    "bernoulli": ((Y > 0).astype(float), 1, {}),
    "categorical": (np.arange(12) % 3, 3, {}),
    "poisson": (np.arange(12) % 4, 1, {}),
}


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_its_log_joint_is_that_of_the_network_of_the_book(name):
    """Among all sites of a density: the same names, in the order of the leaves."""
    targets, outputs, options = LIKELIHOODS[name]
    options = options | {"likelihood": name.removesuffix("s")}
    params = drawn(1, outputs)
    book = {**options, "widths": (3,), "outputs": outputs, "prior_precision": [4.0, 0.5]}
    own = {**options, "prior_precision": {"w1": 4.0, "b1": 4.0, "w2": 0.5, "b2": 0.5}}
    one = ModelDensity.of(bayesian_mlp, (X, targets), book)
    other = ModelDensity.of(lb.network(apply, params, **own), (X, targets))
    assert [site.name for site in other.sites] == sorted(params)
    one, other = (jax.jit(d.terms)(d.start(params)) for d in (one, other))
    assert float(other.log_likelihood) == pytest.approx(float(one.log_likelihood), rel=1e-12)
    assert float(other.log_prior) == pytest.approx(float(one.log_prior), rel=1e-12)


def test_mode_evidence_and_predictions_are_those_of_the_network_of_the_book():
    model = lb.network(apply, drawn(1), likelihood="normal", **NORMAL)
    fit = lb.laplace(model, X, Y, start=model.start)
    book = lb.laplace(bayesian_mlp, X, Y, widths=(3,), start=model.start, **NORMAL)
    assert float(fit.log_evidence) == pytest.approx(float(book.log_evidence), abs=1e-8)
    for name in fit.mode:
        np.testing.assert_allclose(fit.mode[name], book.mode[name], atol=1e-6)
    one = lb.predict(fit, X[:3], method="linearized")
    other = lb.predict(book, X[:3], widths=(3,), method="linearized", **NORMAL)
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-6)
    np.testing.assert_allclose(one.variance, other.variance, rtol=1e-6)


def test_its_precisions_are_arguments_too():
    other = {"prior_precision": 1.0, "noise_precision": 9.0}
    model = lb.network(apply, drawn(1), likelihood="normal", **NORMAL)
    fit = lb.laplace(model, X, Y, start=model.start, **other)
    same = lb.laplace(
        lb.network(apply, drawn(1), likelihood="normal", **other), X, Y, start=fit.mode
    )
    assert float(same.log_evidence) == pytest.approx(float(fit.log_evidence), abs=1e-8)


def trained_by_optax(net, steps):
    """What the documentation of Equinox does."""
    optimizer = optax.adam(0.02)
    arrays, rest = eqx.partition(net, eqx.is_inexact_array)

    def loss(arrays):
        logits = jax.vmap(eqx.combine(arrays, rest))(IMAGES)
        return optax.softmax_cross_entropy_with_integer_labels(logits, CLASSES).mean()

    @jax.jit
    def step(carry, _):
        arrays, state = carry
        updates, state = optimizer.update(jax.grad(loss)(arrays), state)
        return (optax.apply_updates(arrays, updates), state), None

    (arrays, _), _ = jax.lax.scan(step, (arrays, optimizer.init(arrays)), length=steps)
    return eqx.combine(arrays, rest)


def test_a_module_of_equinox_that_optax_has_trained_is_where_a_fit_begins():
    net = trained_by_optax(eqx.filter_jit(Convolutional)(jax.random.key(0)), 100)
    model = lb.network(net, likelihood="categorical")
    assert {name: value.shape for name, value in model.start.items()} == {
        "convolution.weight": (2, 1, 3, 3),
        "convolution.bias": (2, 1, 1),
        "norm.weight": (2, 2, 2),
        "norm.bias": (2, 2, 2),
        "layers[0].weight": (3, 8),
        "layers[0].bias": (3,),
    }
    np.testing.assert_array_equal(model.start["layers[0].weight"], net.layers[0].weight)
    density = ModelDensity.of(model, (IMAGES, CLASSES))
    likelihood = jax.jit(density.terms)(density.start(model.start)).log_likelihood
    logits = jax.nn.log_softmax(eqx.filter_jit(eqx.filter_vmap(net))(IMAGES))
    expected = logits[np.arange(len(CLASSES)), CLASSES].sum()
    assert float(likelihood) == pytest.approx(float(expected), rel=1e-6)
    fit = lb.laplace(model, IMAGES, CLASSES, start=model.start, **KRONECKER)
    sizes = [block.shape for block in fit.precision.blocks]
    assert sizes == [(18,), (2,), (8,), (8,), (24,), (3,)]


def test_a_network_of_other_parameters_compiles_nothing_and_other_code_is_seen():
    def fitted(net):
        model = lb.network(net, likelihood="normal", **NORMAL)
        before = len(COMPILED)
        value = float(lb.laplace(model, X, Y, start=START).log_evidence)
        return value, COMPILED[before:]

    def network(key, activation):
        return eqx.nn.MLP(1, "scalar", 2, depth=1, activation=activation, key=jax.random.key(key))

    value, _ = fitted(network(0, jnp.tanh))
    assert fitted(network(1, jnp.tanh)) == (value, [])
    other, compiled = fitted(network(0, jnp.arctan))
    assert compiled
    assert abs(other - value) > 1e-3


START = {
    "layers[0].weight": np.array([[1.0], [-1.5]]),
    "layers[0].bias": np.array([0.5, 0.3]),
    "layers[1].weight": np.array([[1.0, -1.0]]),
    "layers[1].bias": np.array([0.1]),
}

Pair = namedtuple("Pair", "w b")


@pytest.mark.parametrize(
    ("params", "names"),
    [
        (Pair(np.ones(1), [np.ones(2), np.ones(())]), ["w", "b[0]", "b[1]"]),
        ({"Dense_0": {"kernel": np.ones(1)}, "a b": (1.5,)}, ["Dense_0.kernel", "a b[0]"]),
        ({3: np.ones(1)}, ["[3]"]),
        (np.ones(2), ["params"]),
    ],
)
def test_sites_are_called_by_where_they_stand(params, names):
    model = lb.network(lambda params, x: x, params, likelihood="normal")
    assert list(model.start) == names


class NeedsState(eqx.Module):
    norm: eqx.nn.Linear

    def __call__(self, x, state):
        return self.norm(x), state


INT, NAN = {"w": np.ones(2, int)}, {"w": np.array([1.0, np.nan])}
WRONG = {
    "integers": ((apply, INT), ValueError, "w must have floating-point numbers, not int64"),
    "complex": ((apply, {"w": np.ones(2, complex)}), ValueError, "not complex128"),
    "no array": ((apply, {"w": "one"}), ValueError, "w must be an array, not a str"),
    "empty": ((apply, {"w": np.ones((0, 2))}), ValueError, r"w is empty, of shape \(0, 2\)"),
    "NaN": ((apply, NAN), ValueError, "w is not finite"),
    "nothing": ((apply, {}), TypeError, "no array in it"),
    "a function alone": ((apply,), TypeError, "pass them, network"),
    "no function": ((3.0, NAN), TypeError, "not a float"),
    "a name twice": ((apply, {"a.b": 1.0, "a": {"b": 1.0}}), ValueError, r"'a\.b'"),
    "the name of the targets": ((apply, {"t": 1.0}), ValueError, "'t'"),
    "a state": (
        (NeedsState(eqx.nn.Linear(1, 1, key=jax.random.key(0))),),
        TypeError,
        "called with x, state",
    ),
}


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_network_is_refused(name):
    args, error, words = WRONG[name]
    with pytest.raises(error, match=words):
        lb.network(*args, likelihood="normal")


def test_a_likelihood_that_is_none_is_refused():
    with pytest.raises(ValueError, match="normal, bernoulli, categorical, poisson, not 'gauss'"):
        lb.network(apply, drawn(0), likelihood="gauss")


@pytest.mark.parametrize("precision", [0.0, [1.0, -1.0], np.array([1.0, np.nan])], ids=str)
@pytest.mark.parametrize("name", ["prior_precision", "noise_precision"])
def test_a_precision_that_is_not_positive_is_refused(name, precision):
    """And named, where the model would name a site and its scale."""
    with pytest.raises(ValueError, match=f"{name} must be positive"):
        lb.network(apply, drawn(0), likelihood="normal", **{name: precision})


OUTPUTS = {
    "of one row": (lambda p, x: x[0] * p["w1"], "normal", {}, r"\(12,\) or \(12, C\).*vmap"),
    "of three axes": (lambda p, x: x[..., None], "normal", {}, r"not \(12, 1, 1\)"),
    "integers": (lambda p, x: x[:, 0] > 0, "normal", {}, "floating-point numbers, not bool"),
    "with a state": (lambda p, x: (x, {}), "normal", {}, "one array, the outputs, not a tuple"),
    "two logits": (lambda p, x: jnp.tile(x, 2), "bernoulli", {}, "outputs must be 1, the logit"),
    "two rates": (lambda p, x: jnp.tile(x, 2), "poisson", {}, "outputs must be 1, the logarithm"),
    "no counts": (apply, "poisson", {}, r"targets must be counts 0, 1, 2, ..., not \["),
    "one class": (lambda p, x: x, "categorical", {}, "number of classes"),
    "two precisions": (apply, "normal", {"noise_precision": [1.0, 2.0]}, "one for each output"),
    "two priors": (apply, "normal", {"prior_precision": [1.0, 2.0]}, "one for each array of"),
    "a prior of a site": (apply, "normal", {"prior_precision": {"w1": 1.0}}, "not for w1"),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_that_do_not_fit_are_refused(name):
    function, likelihood, options, words = OUTPUTS[name]
    model = lb.network(function, drawn(0), likelihood=likelihood, **options)
    with pytest.raises(ValueError, match=words):
        lb.laplace(model, X, Y)


@pytest.mark.usefixtures("types_unchecked")
def test_a_column_of_logits_is_taken_and_features_need_rows():
    flat = lb.network(lambda p, x: apply(p, x)[:, 0], drawn(0), likelihood="bernoulli")
    column = lb.network(apply, drawn(0), likelihood="bernoulli")
    one, other = (ModelDensity.of(model, (X, Y > 0)) for model in (flat, column))
    one, other = (jax.jit(d.loss)(d.start(flat.start))[0] for d in (one, other))
    assert float(one) == float(other)
    with pytest.raises(ValueError, match="a row for each target"):
        lb.laplace(column, 1.0, Y > 0)
    with pytest.raises(ValueError, match="no rows"):
        lb.laplace(column, X[:0], Y[:0] > 0)
    for targets in (Y > 0, (Y > 0).tolist()):
        with pytest.raises(ValueError, match=r"features\[:, None\]. It says: dot_general"):
            lb.laplace(column, X[:, 0], targets)


def dropout(params, x):
    return apply(params, x * jax.random.bernoulli(jax.random.key(0), 0.5, x.shape))


def test_dropout_is_refused():
    with pytest.raises(lb.UnsupportedModel, match=r"random\s+numbers[^$]*dropout"):
        lb.laplace(lb.network(dropout, drawn(0), likelihood="normal"), X, Y)
    net = eqx.nn.Sequential([eqx.nn.Linear(1, 1, key=jax.random.key(0)), eqx.nn.Dropout()])
    with pytest.raises(lb.UnsupportedModel, match=r"requires a key[^$]*inference_mode\(net\)"):
        lb.laplace(lb.network(net, likelihood="normal"), X, Y)
    still = lb.network(eqx.nn.inference_mode(net), likelihood="normal")
    assert lb.laplace(still, X, Y).certificate.converged


def test_batch_normalisation_in_training_mode_is_named_as_a_cause():
    def normalised(params, x):
        hidden = jnp.tanh(x @ params["w1"] + params["b1"])
        return ((hidden - hidden.mean(0)) / (hidden.std(0) + 1e-3)) @ params["w2"]

    model = lb.network(normalised, drawn(0), likelihood="normal")
    with pytest.raises(lb.UnsupportedModel, match=r"batch\s+normalisation"):
        lb.laplace(model, X, Y, start=model.start, **KRONECKER)


class FakeTraceContextError(Exception):
    pass


FakeTraceContextError.__name__ = "TraceContextError"


def test_a_network_that_changes_its_state_is_told_to_stop():
    """As batch normalisation and dropout of Flax do."""

    def mutates(params, x):
        raise FakeTraceContextError("Cannot mutate BatchStat from a different trace level")

    with pytest.raises(lb.UnsupportedModel, match=r"BatchStat[^$]*net\.eval\(\)"):
        lb.laplace(lb.network(mutates, drawn(0), likelihood="normal"), X, Y)


def test_a_module_of_flax_is_a_model():
    from flax import nnx  # a second, which no other test needs

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.convolution = nnx.Conv(1, 2, (3, 3), padding="VALID", rngs=rngs)
            self.norm = nnx.BatchNorm(2, rngs=rngs)
            self.drop = nnx.Dropout(0.5, rngs=rngs)
            self.out = nnx.Linear(8, 3, rngs=rngs)

        def __call__(self, x):
            hidden = self.drop(self.norm(jnp.tanh(self.convolution(x))))
            return self.out(hidden.reshape(len(x), -1))

    images, net = np.moveaxis(IMAGES, 1, -1), Net(nnx.Rngs(0))
    # Flax puts averages in double precision into its own in single precision, and JAX warns.
    with (
        warnings.catch_warnings(action="ignore"),
        pytest.raises(lb.UnsupportedModel, match=r"net\.eval\(\)"),
    ):
        lb.laplace(lb.network(net, likelihood="categorical"), images, CLASSES)
    net.eval()
    model = lb.network(net, likelihood="categorical")
    assert model.start["convolution.kernel"].shape == (3, 3, 1, 2)
    density = ModelDensity.of(model, (images, CLASSES))
    likelihood = jax.jit(density.terms)(density.start(model.start)).log_likelihood
    logits = jax.nn.log_softmax(net(images))
    expected = logits[np.arange(len(CLASSES)), CLASSES].sum()
    assert float(likelihood) == pytest.approx(float(expected), rel=1e-5)


def test_neither_library_is_imported_for_a_plain_function():
    """Where Flax is not there, no module of it can be given."""
    before = set(sys.modules)
    lb.network(apply, drawn(0), likelihood="normal")
    assert not {name for name in set(sys.modules) - before if name.startswith(("flax", "equinox"))}


@pytest.mark.usefixtures("types_unchecked")
def test_a_table_is_named_where_rows_are_asked_for():
    """What it holds is read within the model, which has all of its rows then."""
    table = pd.DataFrame(np.asarray(X), columns=[str(i) for i in range(np.shape(X)[1])])
    model = lb.network(apply, drawn(0), likelihood="normal")
    with pytest.raises(lb.UnsupportedModel, match=r"pass\s+table\.to_numpy\(\)"):
        lb.laplace(model, table, Y, start=model.start, **KRONECKER)


def test_the_kernels_of_images_with_channels_last_have_factors():
    """The convolution is a product of patches there, whose entries are in another order than the kernel's."""
    rng = np.random.default_rng(1)
    x, t = rng.normal(size=(9, 4, 4, 2)), rng.normal(size=(9, 2))
    params = {"a": 0.5 * rng.normal(size=(2, 3, 2, 3)), "z": 0.2 * rng.normal(size=(18, 2))}

    def apply(p, x):
        layout = ("NHWC", "HWIO", "NHWC")
        seen = jax.lax.conv_general_dilated(x, p["a"], (1, 1), "VALID", dimension_numbers=layout)
        return jnp.tanh(seen).reshape(len(x), -1) @ p["z"]

    def written(x, t=None):
        p = {
            n: numpyro.sample(n, dist.Normal(0, 1).expand(v.shape).to_event(v.ndim))
            for n, v in params.items()
        }
        with numpyro.plate("N", len(x)):
            numpyro.sample("t", dist.Normal(apply(p, x), 1).to_event(1), obs=t)

    network, u = lb.network(apply, params, likelihood="normal"), jnp.asarray(rng.normal(size=72))
    for one, other in zip(
        *(kronecker_factors(ModelDensity.of(m, (x, t)), u) for m in (network, written)), strict=True
    ):
        for factor, same in zip(one, other, strict=True):
            np.testing.assert_allclose(factor, same, rtol=1e-9, atol=1e-12)
