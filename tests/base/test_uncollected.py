"""Python does not look for garbage while a model is traced or fitted, and does so again afterwards."""

import gc

import jax.numpy as jnp
import pytest

from laplacebook.base.quick import jit, uncollected


def state():
    return gc.isenabled()


def test_the_collector_is_off_in_the_call_and_on_after_it():
    assert uncollected(state)() is False
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        uncollected(state)()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_after_an_error_the_collector_is_on_again():
    with pytest.raises(ZeroDivisionError):
        uncollected(lambda: 1 / 0)()
    assert gc.isenabled()


def test_programs_are_traced_without_it_and_run_with_it():
    seen = []

    def program(x):
        seen.append(gc.isenabled())
        return x + 1

    assert jit(program)(jnp.ones(())) == 2
    assert seen == [False]
    assert gc.isenabled()
