"""What every test module shares: a worker that forgets what it compiled."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def _forget_compiled_programs() -> Iterator[None]:
    """Thousands of compiled programs reach the kernel's limit of memory maps a process, and crash."""
    yield
    jax.clear_caches()
