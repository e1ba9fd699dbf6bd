"""Sparse precisions of matrices that hypothesis makes up, beside dense inverses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gaussian.test_sparse import made, whole


@st.composite
def sparse_matrices(draw):
    size = draw(st.integers(1, 12))
    place = st.integers(0, size - 1)
    places = draw(st.lists(st.tuples(place, place), max_size=3 * size))
    number = st.floats(-2, 2).filter(lambda x: x == 0 or abs(x) > 1e-3)
    root = np.zeros((size, size))
    for at in places:
        root[at] = draw(number)
    rank = draw(st.integers(0, 3))
    numbers = st.lists(number, min_size=size * rank + rank, max_size=size * rank + rank)
    left, middle = np.split(np.array(draw(numbers)), [size * rank])
    matrix = root @ root.T + draw(st.sampled_from([0.1, 1.0, 10.0])) * np.eye(size)
    return matrix, left.reshape(size, rank), np.diag(middle)


@settings(max_examples=100, deadline=None)
@given(sparse_matrices())
def test_random_sparse_matrices(case):
    matrix, precision = whole(*case), made(*case)
    eigenvalues, size = np.linalg.eigvalsh(matrix), len(matrix)
    if eigenvalues[0] > 1e-6:
        inverse, near = np.linalg.inv(matrix), 1e-9 * eigenvalues[-1] / eigenvalues[0] ** 2
        half = precision.half_solve(np.eye(size))
        np.testing.assert_allclose(half.T @ half, inverse, rtol=0, atol=near)
        white = precision.whitened(np.eye(size))
        np.testing.assert_allclose(white @ white.T, inverse, rtol=0, atol=near)
        np.testing.assert_allclose(precision.solve(np.eye(size)), inverse, rtol=0, atol=near)
        layout = precision.layout
        at_entries, diagonal = precision.inverse_at_entries(), precision.diagonal_of_inverse()
        np.testing.assert_allclose(at_entries, inverse[layout.rows, layout.cols], 0, near)
        np.testing.assert_allclose(diagonal, np.diag(inverse), 0, near)
        log_determinant = np.log(eigenvalues).sum()
        assert precision.log_determinant() == pytest.approx(log_determinant, abs=1e-8)
    elif eigenvalues[0] < -1e-6:
        assert np.isnan(precision.log_determinant())
        assert np.isnan(precision.diagonal_of_inverse()).all()
    np.testing.assert_allclose(precision.matvec(np.ones(size)), matrix.sum(1), atol=1e-10)
