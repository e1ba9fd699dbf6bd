"""Which sites are the last layer, and that those before it are taken as they are given."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.curvature.last_layer import last_layer_of
from laplacebook.model.density import ModelDensity

RNG = np.random.default_rng(0)
X, T, NEW = RNG.normal(size=(30, 2)), RNG.normal(size=30), RNG.normal(size=(4, 2))


def relu_network(p, x):
    return jax.nn.relu(x @ p["trunk"] + p["shift"]) @ p["head"] + p["above"]


#: the head comes first by its name, and its bias before it
WEIGHTS = {
    "above": RNG.normal(size=1),
    "head": RNG.normal(size=(5, 1)),
    "shift": RNG.normal(size=5),
    "trunk": RNG.normal(size=(2, 5)),
}
NETWORK = lb.network(relu_network, WEIGHTS, likelihood="normal", noise_precision=4.0)


def normalised(p, x):
    """No activation after the normalisation, whose scale is linear in the outputs, too, and last by its name."""
    hidden = jnp.tanh(x @ p["inner"])
    apart = hidden - hidden.mean(axis=1, keepdims=True)
    hidden = apart * jax.lax.rsqrt(jnp.mean(apart**2, axis=1, keepdims=True) + 1e-6)
    return (p["norm_scale"] * hidden + p["norm_bias"]) @ p["head"]


NORMALISED = lb.network(
    normalised,
    {
        "head": np.ones((5, 1)),
        "inner": np.ones((2, 5)),
        "norm_bias": np.zeros(5),
        "norm_scale": np.ones(5),
    },
    likelihood="normal",
)


def scale_last(x, y):
    v = numpyro.sample("v", dist.Normal(0, 1).expand([2]).to_event(1))
    w = numpyro.sample("w", dist.Normal(0, 1))
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    numpyro.sample("y", dist.Normal(w * jnp.tanh(x @ v), scale), obs=y)


def bottleneck(x, y):
    """Linear in each, and jointly in none: the one that is applied last."""
    last = numpyro.sample("last", dist.Normal(0, 1).expand([3]).to_event(1))
    first = numpyro.sample("first", dist.Normal(0, 1).expand([2, 3]).to_event(2))
    numpyro.sample("y", dist.Normal((x @ first) @ last, 1.0), obs=y)


def with_scale(scale, apply):
    """A last layer that something multiplies, number by number, or whose weights are scaled."""
    weights = {"a": np.ones((2, 3)), "b": np.ones(3), "c": np.ones((3, 1)), "d": np.zeros(1)}
    return lb.network(apply, weights | {"s": scale}, likelihood="normal")


LAST = {
    "with weights that are scaled": (
        with_scale(np.ones(()), lambda p, x: (x @ p["a"] + p["b"]) @ (0.5 * p["c"]) + p["d"]),
        ["c", "d"],
    ),
    "with a scale of the outputs": (
        with_scale(np.ones(()), lambda p, x: p["s"] * (jnp.tanh(x @ p["a"]) @ p["c"] + p["d"])),
        ["c", "d"],
    ),
    "with the logarithm of one": (
        with_scale(np.ones(()), lambda p, x: jnp.exp(p["s"]) * (x @ p["a"] @ p["c"]) + p["d"]),
        ["c", "d"],
    ),
    "with a skip beside it": (
        with_scale(np.ones((2, 1)), lambda p, x: x @ p["s"] + jnp.tanh(x @ p["a"]) @ p["c"]),
        ["c", "s"],
    ),
    "of one unit": (
        with_scale(np.ones(()), lambda p, x: p["s"] * jnp.tanh(x @ p["c"][:2]) + p["d"]),
        ["d", "s"],
    ),
    "by its name first": (NETWORK, ["above", "head"]),
    "after a normalisation": (NORMALISED, ["head"]),
    "before the scale of the outcome": (scale_last, ["w"]),
    "after another that is linear": (bottleneck, ["last"]),
}


@pytest.mark.parametrize("name", LAST)
def test_the_last_layer_is_the_one_nearest_to_the_outputs(name):
    model, expected = LAST[name]
    density = ModelDensity.of(model, (X, T))
    layer = last_layer_of(density, jnp.full(density.dimension, 0.3))
    assert [site.name for site in layer.sites] == expected


def squashed(p, x):
    return jnp.tanh(x @ p["w"])


def tied(p, x):
    return jnp.tanh(x @ p["w"]) @ p["w"].T[:, :1] + p["bias"]


def of_unit_length(p, x):
    direction = p["w"] / jnp.sqrt(jnp.sum(p["w"] ** 2, axis=0))
    return (jnp.tanh(x) * p["before"]) @ (p["length"] * direction) + p["bias"]


NONE = {
    "an activation at the end": (squashed, {"w": np.ones((2, 1))}),
    "weights that are shared": (tied, {"w": np.ones((2, 2)), "bias": np.ones(1)}),
    "weights that are normalised": (
        of_unit_length,
        {"w": np.ones((2, 1)), "length": np.ones(1), "bias": np.ones(1), "before": np.ones(2)},
    ),
}


@pytest.mark.parametrize("name", NONE)
def test_a_model_without_one_is_refused(name):
    apply, weights = NONE[name]
    net = lb.network(apply, weights, likelihood="normal")
    with pytest.raises(lb.UnsupportedModel, match="linear in none of the latent sites but biases"):
        lb.laplace(net, X, T, structure="last_layer", start=net.start)


def test_the_layers_before_are_where_the_start_has_them():
    """Of a network with kinks, which has no mode as a whole: linear regression on the units that are given."""
    approx = lb.laplace(NETWORK, X, T, structure="last_layer", start=NETWORK.start)

    def units(x):
        hidden = np.maximum(x @ WEIGHTS["trunk"] + WEIGHTS["shift"], 0)
        return np.hstack([np.ones((len(x), 1)), hidden])

    A = np.eye(6) + 4 * units(X).T @ units(X)
    np.testing.assert_allclose(approx.precision.matrix, A, rtol=1e-9, atol=1e-9)
    mode = np.linalg.solve(A, 4 * units(X).T @ T)
    np.testing.assert_allclose(approx.mode_vector, mode, atol=1e-8)
    covariance = np.eye(30) / 4 + units(X) @ units(X).T
    exact = dist.MultivariateNormal(jnp.zeros(30), covariance).log_prob(T)
    assert approx.log_evidence == pytest.approx(float(exact), abs=1e-8)
    predicted = lb.predict(approx, NEW)
    np.testing.assert_allclose(predicted.mean, units(NEW) @ mode, atol=1e-8)
    variance = np.einsum("nd,de,ne->n", units(NEW), np.linalg.inv(A), units(NEW))
    np.testing.assert_allclose(predicted.epistemic, variance, rtol=1e-8)


def test_a_start_without_some_of_them_is_one_of_the_whole_search():
    smooth = lb.network(
        lambda p, x: jnp.tanh(x @ p["a"]) @ p["c"],
        {"a": 0.5 * np.ones((2, 1)), "c": np.ones(1)},
        likelihood="normal",
    )
    start = {"a": np.array([[0.5], [0.3]]), "c": np.ones(1)}
    whole = lb.laplace(smooth, X, T, curvature="gauss_newton", start=start)
    options = {"curvature": "gauss_newton", "structure": "last_layer"}

    def before(**own):
        return np.asarray(lb.laplace(smooth, X, T, **options, **own).density.model.fixed["a"])

    np.testing.assert_allclose(before(start=whole.mode), whole.mode["a"], atol=1e-12)
    np.testing.assert_array_equal(before(start=start), start["a"])
    several = {"starts": 2, "key": jax.random.key(0)}
    np.testing.assert_array_equal(before(start=start, **several), start["a"])
    assert np.abs(before(start={"c": np.ones(1)}) - start["a"]).max() > 0.01
    assert np.abs(before(start={"c": np.ones(1)}, **several) - start["a"]).max() > 0.01


def test_an_impossible_start_is_refused():
    with pytest.raises(ValueError, match="start must name latent sites"):
        lb.laplace(NETWORK, X, T, structure="last_layer", start={"tronk": 1.0})
    with pytest.raises(ValueError, match="trunk"):
        given = NETWORK.start | {"trunk": np.full((2, 5), np.nan)}
        lb.laplace(NETWORK, X, T, structure="last_layer", start=given)
