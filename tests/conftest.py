"""What test modules share: a worker that forgets what it compiled, and a reader without checks of types."""

from collections.abc import Iterator

import jax
import pytest
from jaxtyping import config

# What a sparse Hessian needs is made for these alone.
collect_ignore_glob = [] if (0, 9) <= jax.__version_info__ < (0, 12) else ["*/test_sparse*.py"]


@pytest.fixture(scope="module", autouse=True)
def _forget_compiled_programs() -> Iterator[None]:
    """Thousands of compiled programs reach the kernel's limit of memory maps a process, and crash."""
    yield
    jax.clear_caches()


@pytest.fixture
def types_unchecked() -> Iterator[None]:
    """As for a reader: the checks of types that the tests add would speak before the package does."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
