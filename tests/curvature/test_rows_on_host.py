"""Products with many rows by BLAS, in threads: those of NumPy, for weights of both signs."""

import numpy as np
import pytest

from laplacebook.base.one_thread import blas_threads
from laplacebook.curvature import rows_on_host
from laplacebook.curvature.rows_on_host import Rows

N, P = 1_003, 7
RNG = np.random.default_rng(0)
M, D = RNG.normal(size=(N, P)), RNG.normal(size=N)


@pytest.fixture(params=[1, 3])
def rows(request, monkeypatch):
    monkeypatch.setattr(rows_on_host, "blas_threads", lambda: request.param)
    monkeypatch.setattr(rows_on_host, "_BLOCK", 100 * P)  # no divisor of the rows of a thread
    with Rows(M) as found:
        yield found


@pytest.mark.parametrize("weights", [abs(D), D, np.zeros(N)], ids=["positive", "both", "none"])
def test_they_are_those_of_numpy(rows, weights):
    z = np.linspace(-1, 1, P)
    assert np.allclose(rows.times(z), M @ z, rtol=1e-14, atol=1e-14)
    several = np.stack([weights, D])
    assert np.allclose(rows.weighted_sum(several), several @ M, rtol=1e-12, atol=1e-12)
    found = rows.weighted_products(weights)
    assert np.allclose(found, M.T @ (weights[:, None] * M), rtol=1e-12, atol=1e-11)
    assert np.array_equal(found, found.T)


@pytest.mark.parametrize("wide", [1, P + 1])
@pytest.mark.parametrize("layout", [M, np.asfortranarray(M), M[:, ::-1], np.float32(M)])
def test_sums_of_rows_that_lie_in_memory_in_any_way(layout, wide, monkeypatch):
    monkeypatch.setattr(rows_on_host, "_WIDE", wide)
    with Rows(layout) as rows:
        found = rows.weighted_sum(D.astype(layout.dtype))
    assert found.dtype == layout.dtype
    precision = 100 * np.finfo(layout.dtype).eps
    assert np.allclose(found, D @ layout.astype(float), rtol=0, atol=precision * N**0.5)


def test_products_by_a_sample_of_the_rows_are_about_those_of_all(rows):
    of_all, of_some = rows.weighted_products(abs(D)), rows.weighted_products(abs(D), 5)
    expected = 5 * M[::5].T @ (abs(D)[::5, None] * M[::5])
    assert np.allclose(of_some, expected, rtol=1e-12, atol=1e-11)
    ratios = np.linalg.eigvals(np.linalg.solve(of_all, of_some)).real
    assert 0.5 < ratios.min() < ratios.max() < 2


def test_a_weight_that_is_no_number_is_not_lost(rows):
    assert np.isnan(rows.weighted_products(np.where(np.arange(N) == 700, np.nan, 1))).all()


def test_blas_has_one_thread_within_and_as_many_as_before_after():
    before = blas_threads()
    with Rows(M):
        assert blas_threads() == 1
    assert blas_threads() == before
