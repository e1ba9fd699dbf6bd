"""Where a sparse matrix has entries, and its factor: in any order, equal by content, and in a pickle."""

import pickle

import numpy as np
import pytest

import laplacebook as lb
from laplacebook.gaussian.sparse_layout import SparseLayout
from tests.gaussian.test_sparse import CASES, MATRICES, V, layout_of, made


def test_a_layout_is_of_places_in_any_order():
    layout = SparseLayout.of(4, np.array([0, 3, 1, 3, 1]), np.array([2, 1, 3, 1, 1]))
    np.testing.assert_array_equal(layout.rows, [0, 2, 1, 3, 2, 3])
    np.testing.assert_array_equal(layout.cols, [0, 0, 1, 1, 2, 3])
    assert layout.rows.dtype == layout.cols.dtype == np.int32
    np.testing.assert_array_equal(layout.diagonal, [0, 2, 4, 5])
    assert repr(layout) == "SparseLayout(size=4, 6 entries in a triangle)"
    assert layout.fill == 2 and layout.flops == 4 + 4 + 1 + 1
    nothing = np.zeros(0, int)
    empty = SparseLayout.of(3, nothing, nothing)
    np.testing.assert_array_equal(empty.rows, [0, 1, 2])
    precision = lb.SparsePrecision.of(empty, np.array([1.0, 2.0, 4.0]))
    np.testing.assert_allclose(precision.solve(np.ones(3)), [1, 0.5, 0.25])


def test_layouts_are_equal_by_content():
    i, j = np.array([1, 2]), np.array([0, 0])
    one, same = SparseLayout.of(3, i, j), SparseLayout.of(3, j, i)
    assert one == same and hash(one) == hash(same)
    for other in (SparseLayout.of(4, i, j), SparseLayout.of(3, i, np.array([0, 1])), "layout"):
        assert one != other
    assert len({one, same, SparseLayout.of(4, i, j)}) == 2


@pytest.mark.parametrize(
    ("size", "rows", "cols", "words"),
    [
        (3, [0, 3], [0, 0], "no row 3"),
        (3, [0, 1], [0, -1], "no column -1"),
        (0, [], [], "size must be"),
    ],
)
def test_places_outside_are_refused(size, rows, cols, words):
    with pytest.raises(ValueError, match=words):
        SparseLayout.of(size, np.array(rows, int), np.array(cols, int))


@pytest.mark.parametrize("used", [False, True])
def test_it_is_pickled_with_its_layout(used):
    layout = layout_of(MATRICES["crossed"])
    if used:
        assert layout.fill > 0
    copy = pickle.loads(pickle.dumps(layout))
    assert copy == layout and hash(copy) == hash(layout)
    precision = made(*CASES["crossed, indefinite"])
    copied = pickle.loads(pickle.dumps(precision))
    np.testing.assert_array_equal(copied.solve(V), precision.solve(V))
    np.testing.assert_array_equal(copied.diagonal_of_inverse(), precision.diagonal_of_inverse())


def test_a_factor_in_another_order_is_refused():
    layout = layout_of(MATRICES["crossed"])
    order = layout.factor.permutation
    rebuild, (size, rows, cols, kept) = layout.__reduce__()
    np.testing.assert_array_equal(kept, order)
    with pytest.raises(ValueError, match="another version of qdldl"):
        rebuild(size, rows, cols, order[::-1])
