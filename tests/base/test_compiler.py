"""Programs of JAX's compiler against NumPy, where a release has computed wrong numbers."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from laplacebook.base.compiler import warn_of_compiler

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


def test_the_release_whose_sums_are_wrong_is_told():
    with pytest.warns(RuntimeWarning, match=r"jaxlib!=0\.10\.2"):
        warn_of_compiler("0.10.2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_compiler("0.10.1")
        warn_of_compiler()
