"""Beside an accelerator, which no test has: only the choice of the device is looked at."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.base import devices
from laplacebook.base.devices import FEW, device, near, platform
from laplacebook.base.quick import in_full_precision, jit_quickly

HOST = jax.local_devices(backend="cpu")[0]


@pytest.fixture
def accelerator(monkeypatch):
    """JAX as if its backend were another one."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


@in_full_precision
def chosen(*args, **kwargs):
    return jax.config.jax_default_device


@pytest.mark.parametrize(
    "arguments",
    [
        (np.zeros(9), jnp.zeros(9), 3, "name", None, {"a": [1, 2.0]}),
        (np.zeros(FEW),),
        (jax.random.key(0),),
        (object(), range(2 * FEW), dist.Normal, jax.ShapeDtypeStruct((3,), float)),
    ],
)
@pytest.mark.usefixtures("accelerator")
def test_few_numbers_are_computed_on_the_host(arguments):
    assert chosen(*arguments) == HOST
    assert chosen(data=arguments) == HOST
    assert jax.config.jax_default_device is None


@pytest.mark.usefixtures("accelerator")
def test_many_numbers_and_those_that_were_put_elsewhere_stay():
    assert chosen(np.zeros(FEW), 2 * np.ones(1)) is None
    assert chosen(jnp.zeros(3)) == HOST
    assert chosen(jax.device_put(jnp.zeros(3), HOST)) is None


@pytest.mark.usefixtures("accelerator")
def test_a_large_network_stays_beside_few_rows():
    images, weights = np.zeros((1000, 64)), {"w": np.zeros((8, 8000)), "b": np.zeros(3000)}
    assert chosen(images, start=weights) == HOST
    assert chosen(images, start=weights | {"more": np.zeros(500)}) is None


@pytest.mark.usefixtures("accelerator")
def test_a_device_that_was_chosen_is_kept():
    with jax.default_device("cpu"):
        assert chosen(np.zeros(3)) == "cpu"
        assert device() == HOST and platform() == "cpu"
    with jax.default_device(HOST):
        assert device() == HOST and platform() == "cpu"


def test_without_an_accelerator_nothing_is_chosen():
    assert chosen(np.zeros(3)) is None
    assert device() == HOST and platform() == "cpu"


@pytest.mark.usefixtures("accelerator")
def test_without_a_host_nothing_is_chosen(monkeypatch):
    def none(backend):
        raise RuntimeError(f"Unknown backend {backend}")

    monkeypatch.setattr(devices.jax, "local_devices", none)
    with near(np.zeros(3)):
        assert jax.config.jax_default_device is None


@pytest.mark.usefixtures("accelerator")
def test_within_a_program_nothing_is_chosen():
    assert jax.jit(lambda x: x + (chosen(x) is None))(0.0) == 1


@pytest.mark.usefixtures("accelerator")
def test_programs_on_the_host_are_compiled_as_quickly_as_ever(monkeypatch):
    asked = []
    compile_with = jax.jit
    monkeypatch.setattr(
        jax, "jit", lambda f, **options: asked.append(options) or compile_with(f, **options)
    )
    program = jit_quickly(lambda x: x**2 + 1)
    assert program(np.arange(3.0)).tolist() == [1, 2, 5]
    assert "xla_backend_optimization_level" in asked[-1]["compiler_options"]


@pytest.mark.usefixtures("accelerator")
def test_a_fit_there_is_the_same():
    def line(x, y):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(x @ w, 1).to_event(1), obs=y)

    x = np.random.default_rng(0).normal(size=(9, 2))
    approx = lb.laplace(line, x, x @ np.ones(2))
    np.testing.assert_allclose(
        approx.mode["w"], np.linalg.solve(x.T @ x + np.eye(2), x.T @ x @ np.ones(2))
    )
