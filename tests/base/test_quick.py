"""Programs of little work are compiled quickly where they are called eagerly, and like any other elsewhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from laplacebook.base import quick
from laplacebook.base.devices import FEW
from laplacebook.base.quick import is_eager, jit_as_written, jit_quickly


@pytest.fixture
def compiled(monkeypatch):
    """With which options programs are made to be compiled, by what is called."""
    made, jit = [], jax.jit

    def note(function, compiler_options=None, **static):
        program = jit(function, compiler_options=compiler_options, **static)

        def call(*args, **kwargs):
            result = program(*args, **kwargs)
            made.append(compiler_options is not None)
            return result

        call.lower, call._cache_size = program.lower, program._cache_size
        return call

    monkeypatch.setattr(jax, "jit", note)
    return made


def square(x):
    return x**2


def test_little_work_is_compiled_quickly_and_much_is_not(compiled, monkeypatch):
    program = jit_quickly(square)
    assert program(3.0) == 9.0
    monkeypatch.setattr(quick, "SMALL", 5)
    np.testing.assert_array_equal(program(np.arange(5)), np.arange(5) ** 2)
    np.testing.assert_array_equal(program(np.arange(6)), np.arange(6) ** 2)
    assert compiled == [True, True, False]


def test_the_work_may_be_told(compiled, monkeypatch):
    monkeypatch.setattr(quick, "SMALL", 5)
    program = jit_quickly(square, work=lambda x: 2 * x.size)
    program(np.arange(2))
    program(np.arange(3))
    assert compiled == [True, False]


def test_half_of_the_optimisation_is_between(compiled, monkeypatch):
    monkeypatch.setattr(quick, "SMALL", 5)
    monkeypatch.setattr(quick, "MEDIUM", 7)
    for half in (True, False):
        program = jit_quickly(square, half=half)
        for n in (5, 7, 8):
            np.testing.assert_array_equal(program(np.arange(n)), np.arange(n) ** 2)
    assert compiled == [True, True, False, True, False, False]


def test_another_device_gets_no_options_of_the_cpu(compiled, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    jit_quickly(square)(np.zeros(FEW + 1))  # so many that they stay there
    assert compiled == [False]


def test_options_that_a_compiler_has_no_more_are_left_out(compiled, monkeypatch):
    """As xla_cpu_use_fusion_emitters since jaxlib 0.11."""
    monkeypatch.setattr(quick, "_unknown", set())
    monkeypatch.setattr(quick, "_UNDIVIDED", quick._UNDIVIDED | {"xla_gone": 1, "xla_lost": 2})
    program = jit_quickly(square)
    assert program(3.0) == program(3.0) == 9.0
    assert quick._unknown >= {"xla_gone", "xla_lost"}
    assert compiled == [True] * len(compiled)


def test_an_option_that_the_numbers_depend_on_is_not_left_out(monkeypatch):
    monkeypatch.setattr(quick, "_AS_WRITTEN", quick._UNDIVIDED | {"xla_gone": 1})
    program = jit_as_written(square)
    with pytest.raises(jax.errors.JaxRuntimeError, match="xla_gone"):
        program(3.0)


TRANSFORMED = {
    "jit": lambda f: jax.jit(f)(3.0),
    "vmap": lambda f: jax.vmap(f)(jnp.array([3.0]))[0],
    "grad": lambda f: jax.grad(lambda x: f(x) * x)(3.0) / 3,
    "closed over": lambda f: jax.vmap(lambda x: f(jnp.sum(x)))(jnp.array([[3.0]]))[0],
    "unmapped": lambda f: jax.vmap(lambda _: f(3.0), out_axes=None)(jnp.zeros(2)),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_within_a_transformation_it_is_plain(name):
    seen = []

    def noted(x):
        seen.append(is_eager())
        return jit_quickly(square)(x)

    assert TRANSFORMED[name](noted) == pytest.approx(9.0)
    assert seen == [False]
    assert is_eager()


def test_what_is_compiled_as_written_is_not_simplified():
    tiny = 0.6 * np.finfo(float).eps
    program = jit_as_written(lambda x: (x - 1.0) + tiny)
    assert program(1.0) == tiny  # x + (tiny - 1) is 0 there
    assert jax.vmap(program)(jnp.ones(2)).tolist() == [tiny, tiny]
