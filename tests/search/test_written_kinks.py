"""The error for a network without a smooth mode names its activation, and only if that has a kink."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import laplacebook as lb
from laplacebook.model.density import ModelDensity
from laplacebook.search.no_mode import written_kinks

KINKED = {"relu": jax.nn.relu, "leaky_relu": jax.nn.leaky_relu, "hard_tanh": jax.nn.hard_tanh}
SMOOTH = {"softplus": jax.nn.softplus, "tanh": jnp.tanh, "gelu": jax.nn.gelu}


def refused(activation):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2))
    y = np.sin(2 * x[:, 0]) + x[:, 1] + 0.1 * rng.normal(size=100)
    weights = {"a": rng.normal(size=(2, 8)), "b": np.zeros(8), "c": rng.normal(size=(8, 1))}

    def apply(p, x):
        return activation(x @ p["a"] + p["b"]) @ p["c"]

    net = lb.network(apply, weights, likelihood="normal", noise_precision=50.0)
    start = lb.train(net, x, y, key=jax.random.key(0), steps=100)
    with pytest.raises(lb.LaplaceError) as caught:
        lb.laplace(
            net, x, y, start=start, curvature="gauss_newton", structure="kronecker", tolerance=1e-9
        )
    return " ".join(str(caught.value).split())


@pytest.mark.parametrize("name", KINKED)
def test_a_kink_is_named(name):
    assert f"a kink ({name})" in refused(KINKED[name])


@pytest.mark.parametrize("name", SMOOTH)
def test_a_smooth_one_is_not(name):
    def apply(p, x):
        return SMOOTH[name](x @ p["a"]) @ p["c"]

    weights = {"a": np.ones((2, 3)), "c": np.ones((3, 1))}
    for likelihood in ("normal", "bernoulli", "poisson"):
        net = lb.network(apply, weights, likelihood=likelihood)
        density = ModelDensity.of(net, (np.ones((4, 2)), np.ones(4, int)), {})
        assert written_kinks(density, density.start()) == [], likelihood
