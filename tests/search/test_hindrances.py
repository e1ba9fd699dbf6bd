"""The error for a network without a smooth mode names its activation, and only if that has a kink."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import laplacebook as lb
from laplacebook.curvature.settings import Settings
from laplacebook.model.density import ModelDensity
from laplacebook.search.certificate import Certificate
from laplacebook.search.hindrances import hindrances
from laplacebook.search.no_mode import level
from laplacebook.search.no_mode_gauss_newton import explain_shortfall

RNG = np.random.default_rng(0)
KINKED = {"relu": jax.nn.relu, "leaky_relu": jax.nn.leaky_relu, "hard_tanh": jax.nn.hard_tanh}
SMOOTH = {
    "softplus": jax.nn.softplus,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "masked": lambda x: jnp.where(np.arange(3) > 0, x, 0.0),
}


def density_of(activation, likelihood="normal"):
    def apply(p, x):
        return activation(x @ p["a"]) @ p["c"]

    weights = {"a": np.ones((2, 3)), "c": np.ones((3, 1))}
    net = lb.network(apply, weights, likelihood=likelihood)
    return ModelDensity.of(net, (np.ones((4, 2)), np.ones(4, int)), {})


@pytest.mark.parametrize("name", KINKED)
def test_a_kink_is_named(name):
    density = density_of(KINKED[name])
    (told,) = hindrances(density, density.start()).causes
    assert told.startswith(f"a kink ({name}): where its units switch on or off")


def test_both_errors_of_a_search_that_a_kink_stops_name_it():
    """It came no nearer, or it stands where the log joint levels off."""
    density, certificate = density_of(jax.nn.relu), Certificate(False, 0.5, 3, 10.0)
    u = jnp.full(density.dimension, 0.1)
    settings = Settings("gauss_newton", "diagonal")
    for error in (
        explain_shortfall(density, u, certificate, False, settings),
        level(density, u),
    ):
        assert isinstance(error, lb.NotConverged)
        assert "a kink (relu)" in str(error)


@pytest.mark.parametrize("name", SMOOTH)
def test_a_smooth_one_is_not(name):
    for likelihood in ("normal", "bernoulli", "poisson"):
        density = density_of(SMOOTH[name], likelihood)
        assert hindrances(density, density.start()) == ([], ""), likelihood


def pooled(p, x):
    grid = jnp.tanh(x @ p["a"]).reshape(-1, 4, 1)
    pooled = jax.lax.reduce_window(grid, -jnp.inf, jax.lax.max, (1, 2, 1), (1, 2, 1), "VALID")
    return pooled.reshape(-1, 2) @ p["c"]


def normalised(p, x):
    hidden = x @ p["a"]
    return jnp.tanh(hidden * jax.lax.rsqrt(jnp.mean(hidden**2, axis=1, keepdims=True))) @ p["c"][:4]


def in_half(p, x):
    hidden = jax.nn.relu(x.astype(jnp.bfloat16) @ p["a"].astype(jnp.bfloat16))
    return hidden.astype(p["c"].dtype) @ p["c"]


def maximum(p, x):
    return jnp.maximum(x @ p["a"], 0) @ p["c"]


def switched(p, x):
    hidden = x @ p["a"]
    return jnp.where(hidden > 0, hidden, 0.1 * hidden) @ p["c"]


def narrower(p, x):
    return (jnp.tanh(x @ p["a"]).astype(jnp.float32) @ p["c"].astype(jnp.float32)).astype(float)


OTHERS = {
    "a maximum": (maximum, (4, 4), r"a kink \(max\)", True),
    "a switch": (switched, (4, 4), r"a kink \(where\)", True),
    "single in double precision": (narrower, (4, 4), "layers that compute in float32", False),
    "max pooling": (pooled, (4, 2), r"a kink \(max pooling\)", True),
    "normalisation": (normalised, (4, 4), r"a normalisation \(rsqrt\)", True),
    "half precision": (in_half, (4, 4), "layers that compute in bfloat16", False),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_else_hinders_is_named_and_what_helps(name):
    apply, (units, of_last), cause, by_last_layer = OTHERS[name]
    weights = {"a": RNG.normal(size=(2, units)), "c": RNG.normal(size=(of_last, 1))}
    net = lb.network(apply, weights, likelihood="normal")
    data = RNG.normal(size=(6, 2)), RNG.normal(size=6)
    density = ModelDensity.of(net, data, {})
    found = hindrances(density, density.start())
    assert re.match(cause, found.causes[0])
    assert ('structure="last_layer"' in found.remedy) == by_last_layer
    assert ("leave dtype=" in found.remedy) != by_last_layer
    if by_last_layer:
        fit = lb.laplace(net, *data, structure="last_layer", start=net.start)
        assert fit.certificate.converged


def test_without_a_last_layer_it_is_no_remedy():
    def apply(p, x):
        return jax.nn.relu(x @ p["a"])

    net = lb.network(apply, {"a": np.ones((2, 1))}, likelihood="normal")
    density = ModelDensity.of(net, (np.ones((4, 2)), np.ones(4)), {})
    assert hindrances(density, density.start()).remedy == ""
