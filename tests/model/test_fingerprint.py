"""When a compiled model may be used again: the fingerprint of all that a Python value can reach."""

import functools
import sys
import types

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from laplacebook.base.errors import LaplaceError
from laplacebook.model.fingerprint import Fixed, is_data

scale = 1.0


class Options:
    scale = 1.0

    def __init__(self):
        self.shift = [1.0]

    def method(self):
        return self.shift


def helper():
    return scale


def direct():
    return scale


def through_a_helper():
    return helper()


def nested():
    def inner():
        return scale

    return inner()


def with_default(x=np.zeros(2)):  # noqa: B008
    return x


options = Options()


def through_an_object():
    return options.shift


def through_a_class():
    return Options.scale


@pytest.mark.parametrize("function", [direct, through_a_helper, nested])
def test_a_changed_global_shows(function, monkeypatch):
    before = Fixed(function)
    assert before == Fixed(function)
    assert hash(before) == hash(Fixed(function))
    monkeypatch.setitem(globals(), "scale", 2.0)
    assert before != Fixed(function)


def test_a_changed_attribute_shows(monkeypatch):
    functions = (through_an_object, options.method, options, functools.partial(options.method))
    before = [Fixed(f) for f in functions]
    assert before == [Fixed(f) for f in functions]
    options.shift.append(2.0)
    assert all(b != Fixed(f) for b, f in zip(before, functions, strict=True))


def test_a_changed_class_attribute_shows(monkeypatch):
    before = Fixed(through_a_class)
    monkeypatch.setattr(Options, "scale", 2.0)
    assert before != Fixed(through_a_class)


def test_a_changed_module_of_the_reader_shows(monkeypatch):
    config = types.ModuleType("config")
    config.prior = 1.0
    monkeypatch.setitem(globals(), "config", config)
    before = Fixed(reads_config)
    assert before == Fixed(reads_config)
    config.prior = 2.0
    assert before != Fixed(reads_config)


def reads_config():
    return config.prior  # noqa: F821


def test_a_name_that_only_a_helper_reads_in_a_module_seen_before_shows(monkeypatch):
    config = types.ModuleType("config")
    config.prior, config.shift = 1.0, lambda: config.amount
    config.amount = 0.0
    monkeypatch.setitem(globals(), "config", config)
    before = Fixed(reads_config_twice)
    assert before == Fixed(reads_config_twice)
    config.amount = 10.0
    assert before != Fixed(reads_config_twice)
    with pytest.raises(LaplaceError, match="has changed since the fit"):
        before.value  # noqa: B018


def reads_config_twice():
    return reads_config() + reads_shift()


def reads_shift():
    return config.shift()  # noqa: F821


def test_array_contents_show():
    x = np.zeros(3)

    def closure():
        return x

    before = Fixed(closure), Fixed(with_default), Fixed({"x": [x]})
    assert before[0] == Fixed(closure)
    x[0] = 1
    assert before[0] != Fixed(closure)
    assert before[1] == Fixed(with_default)
    assert before[2] != Fixed({"x": [x]})
    assert Fixed(np.zeros(3)) != Fixed(np.zeros(3, np.float32))
    assert Fixed(np.array(["a"], object)) != Fixed(np.array(["b"], object))


def test_a_closure_shows():
    def make(value):
        return lambda: value

    assert Fixed(make(1.0)) == Fixed(make(1.0))
    assert Fixed(make(1.0)) != Fixed(make(2.0))
    assert Fixed(make(0.0)) != Fixed(make(-0.0))
    assert Fixed(make(1)) != Fixed(make(1.0))
    assert Fixed(make(1)) != Fixed(make(True))


def test_jax_arrays_are_the_same_only_if_identical():
    x = jnp.zeros(2)
    assert Fixed(x) == Fixed(x)
    assert Fixed(x) != Fixed(jnp.zeros(2))


def test_what_cannot_be_seen_into_is_never_the_same():
    generator = np.random.default_rng(0)
    assert Fixed(generator) != Fixed(generator)


def test_libraries_are_taken_as_they_are():
    assert Fixed(np.linalg.solve) == Fixed(np.linalg.solve)
    assert Fixed(dist.Normal) == Fixed(dist.Normal)
    assert Fixed(sys) == Fixed(sys)


def test_a_value_that_contains_itself():
    loop = []
    loop.append(loop)
    assert Fixed(loop) == Fixed(loop)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (np.zeros(2), True),
        (jnp.zeros(2), True),
        (np.float64(1), True),
        (np.array(["a"]), False),
        (1.0, False),
        (True, False),
        ("a", False),
        (None, False),
    ],
)
def test_arrays_are_data_and_the_rest_is_program(value, data):
    assert is_data(value) is data
