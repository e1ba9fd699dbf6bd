"""A copy is one: what is done to the array that was given does not reach it, and JAX does not copy it again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from laplacebook.base.pytrees import own_copy
from tests.models import single_precision

MANY = np.random.default_rng(0).normal(size=(20_003, 10))


@pytest.mark.parametrize(
    "array", [MANY, MANY.T, MANY[::2], MANY > 0, (9 * MANY).astype(np.int32), MANY[:2], MANY[0, 0]]
)
def test_it_holds_what_jax_would_hold_and_nothing_changes_it(array):
    given = np.array(array)
    copy, expected = own_copy(given), jnp.array(array)
    given[...] = 0
    assert (copy.dtype, copy.weak_type) == (expected.dtype, expected.weak_type)
    assert jnp.array_equal(copy, expected)


def test_what_is_written_right_after_the_call_is_not_read():
    numbers = np.ones(50_000)
    for shift in range(1, 9):
        given = numbers[shift:].copy()
        copy = own_copy(given)
        given[...] = 0
        assert np.all(np.asarray(copy) == 1)


def test_in_another_type():
    counts = (9 * MANY).astype(np.uint8)
    assert jnp.array_equal(own_copy(counts, jnp.int64), jnp.array(counts, jnp.int64))
    with single_precision():
        assert jnp.array_equal(own_copy(MANY), jnp.array(MANY))
        assert own_copy(MANY).dtype == jnp.float32


def test_jax_does_not_copy_it_again(monkeypatch):
    handed, put = [], jax.device_put
    monkeypatch.setattr(jax, "device_put", lambda x: handed.append(x) or put(x))
    copy = own_copy(MANY)
    assert copy.unsafe_buffer_pointer() == handed[0].ctypes.data
    assert handed[0].ctypes.data % 64 == 0
