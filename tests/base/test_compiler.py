"""Programs of JAX's compiler against NumPy, where a release has computed wrong numbers."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from laplacebook.base.compiler import mend_compiler

ROWS = np.random.default_rng(0).normal(size=(20_000, 5))
MATRIX = np.random.default_rng(1).normal(size=(5, 5))
EQUAL = 0.3


@pytest.mark.parametrize(
    ("program", "by_numpy"),
    [
        (
            lambda rows: jax.vmap(lambda row: jnp.sum((MATRIX @ row) ** 2))(rows),
            ((ROWS @ MATRIX.T) ** 2).sum(axis=1),
        ),
        (
            lambda rows: jnp.sum((rows @ jnp.full((5, 5), EQUAL)) * rows, axis=1),
            EQUAL * ROWS.sum(axis=1) ** 2,
        ),
    ],
    ids=["squares", "equal entries"],
)
def test_sums_over_rows_that_a_matrix_was_applied_to(program, by_numpy):
    np.testing.assert_allclose(jax.jit(program)(ROWS), by_numpy, rtol=1e-9, atol=1e-9)


SEEN = "--xla_cpu_experimental_ynn_fusion_type="


@pytest.mark.parametrize("jaxlib", ["0.10.2", "0.11.0", "0.11.2", "0.12.0", "0.12.0.1"])
@pytest.mark.parametrize("flags", ["", "--xla_backend_optimization_level=0"])
def test_a_release_whose_sums_are_wrong_is_mended_before_it_starts(monkeypatch, jaxlib, flags):
    monkeypatch.setenv("XLA_FLAGS", flags)
    mend_compiler(jaxlib, lambda: False)
    assert os.environ["XLA_FLAGS"].split() == [*flags.split(), SEEN]
    mend_compiler(jaxlib, lambda: False)
    assert os.environ["XLA_FLAGS"].split() == [*flags.split(), SEEN]
    mend_compiler(jaxlib, lambda: True)  # a user who has seen to it hears nothing


@pytest.mark.parametrize("jaxlib", ["0.8.0", "0.10.1", "0.12.1", "1.0"])
def test_other_releases_are_left_alone(monkeypatch, jaxlib):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    for started in (True, False):
        mend_compiler(jaxlib, lambda started=started: started)
    assert "XLA_FLAGS" not in os.environ


def test_where_it_is_too_late_it_is_told(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    with pytest.warns(RuntimeWarning, match=r"jaxlib 0\.11\.2 sum wrong.*jax<0\.10\.2"):
        mend_compiler("0.11.2", lambda: True)
    assert os.environ["XLA_FLAGS"] == ""


def test_to_import_the_package_starts_nothing():
    """What is mended in it would else be mended too late."""
    asks = "import laplacebook; from jax._src import xla_bridge; print(xla_bridge.backends_are_initialized())"
    found = subprocess.run([sys.executable, "-c", asks], capture_output=True, check=True, text=True)
    assert found.stdout.strip() == "False"
