"""The error for a network without a smooth mode names its activation, and only if that has a kink."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import laplacebook as lb
from laplacebook.curvature.settings import Settings
from laplacebook.model.density import ModelDensity
from laplacebook.search.certificate import Certificate
from laplacebook.search.no_mode import level, written_kinks
from laplacebook.search.no_mode_gauss_newton import explain_shortfall

KINKED = {"relu": jax.nn.relu, "leaky_relu": jax.nn.leaky_relu, "hard_tanh": jax.nn.hard_tanh}
SMOOTH = {"softplus": jax.nn.softplus, "tanh": jnp.tanh, "gelu": jax.nn.gelu}


def density_of(activation, likelihood="normal"):
    def apply(p, x):
        return activation(x @ p["a"]) @ p["c"]

    weights = {"a": np.ones((2, 3)), "c": np.ones((3, 1))}
    net = lb.network(apply, weights, likelihood=likelihood)
    return ModelDensity.of(net, (np.ones((4, 2)), np.ones(4, int)), {})


@pytest.mark.parametrize("name", KINKED)
def test_a_kink_is_named(name):
    density = density_of(KINKED[name])
    (told,) = written_kinks(density, density.start())
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
        assert written_kinks(density, density.start()) == [], likelihood
