"""What a sparse precision refuses, and what it does without."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import laplacebook as lb
from laplacebook.gaussian.sparse_kernels import _compiled
from laplacebook.gaussian.sparse_layout import SparseLayout

SIZE = 5
TOP = np.arange(1, SIZE), np.arange(SIZE - 1)
ENTRIES = np.where(np.arange(2 * SIZE - 1) % 2 == 0, 3.0, -1.0)
LEFT, MIDDLE = np.ones((SIZE, 2)), np.eye(2)


@pytest.fixture
def layout():
    return SparseLayout.of(SIZE, *TOP)


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize(
    "parts",
    [
        (ENTRIES[1:],),
        (ENTRIES, LEFT[1:], MIDDLE),
        (ENTRIES, LEFT, np.eye(3)),
        (ENTRIES, LEFT, None),
        (ENTRIES, None, MIDDLE),
    ],
)
def test_shapes_that_do_not_fit_together(layout, parts):
    with pytest.raises(ValueError, match="do not fit together"):
        lb.SparsePrecision.of(layout, *parts)


@pytest.mark.parametrize("scale", [1.0, 1e-12])
def test_a_middle_that_is_not_symmetric(layout, scale):
    with pytest.raises(ValueError, match="middle is a symmetric matrix"):
        lb.SparsePrecision.of(layout, ENTRIES, LEFT, scale * np.array([[1.0, 1.0], [0.0, 1.0]]))


def test_a_factorisation_within_a_program(layout):
    with pytest.raises(ValueError, match=r"SparsePrecision.of looks at numbers"):
        jax.jit(lambda e: lb.SparsePrecision.of(layout, e).log_determinant())(ENTRIES)


def test_derivatives_of_what_is_computed_on_the_host(layout):
    precision = lb.SparsePrecision.of(layout, jnp.asarray(ENTRIES))
    with pytest.raises(ValueError, match="do not support JVP"):
        jax.grad(lambda v: precision.solve(v).sum())(np.ones(SIZE))


@pytest.mark.usefixtures("types_unchecked")
def test_vectors_of_another_length(layout):
    precision = lb.SparsePrecision.of(layout, ENTRIES)
    methods = (precision.matvec, precision.solve, precision.whitened, precision.half_solve)
    for method in methods:
        for wrong in (np.ones(1), np.ones(()), np.ones((2 * SIZE, SIZE)), np.ones((1, SIZE))):
            with pytest.raises(ValueError, match=r"must have \(5,\)"):
                jax.eval_shape(method, wrong)
    batch = jax.tree.map(lambda leaf: leaf[None], precision)
    with pytest.raises(ValueError, match="within jax.vmap"):
        batch.solve(np.ones(SIZE))


@pytest.mark.parametrize("missing", ["qdldl", "numba"])
def test_a_package_that_is_not_here(layout, missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "laplacebook.gaussian.sparse_kernels")
    with pytest.raises(ImportError, match=r'pip install "laplacebook\[sparse\]"'):
        lb.SparsePrecision.of(layout, ENTRIES)


def test_loops_are_compiled_where_nothing_can_be_kept():
    """Numba refuses to keep what is in no file, as it does where no directory can be written."""
    found = {}
    exec("def twice(x):\n    return 2 * x", found)
    assert _compiled(found["twice"])(3) == 6
