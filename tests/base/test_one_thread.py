import numpy as np
import pytest
import scipy.linalg
from threadpoolctl import threadpool_info, threadpool_limits

from laplacebook.base.namespace import cholesky, solve_lower
from laplacebook.base.one_thread import by_one_thread, one_thread


def threads() -> set[int]:
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_linear_algebra_has_one_thread_within_and_as_many_as_before_after():
    with threadpool_limits(2, user_api="blas"):
        assert by_one_thread(threads)() == {1}
        assert threads() == {2}


@pytest.mark.parametrize(("rows", "expected"), [(100, {1}), (1001, {2})])
def test_so_have_factors_of_hundreds_of_rows_which_would_wait_for_each_other(
    rows, expected, monkeypatch
):
    found, root, solve = [], np.linalg.cholesky, scipy.linalg.lapack.dtrtrs

    def watched(function):
        return lambda *args, **kwargs: found.append(threads()) or function(*args, **kwargs)

    monkeypatch.setattr(np.linalg, "cholesky", watched(root))
    monkeypatch.setattr(scipy.linalg.lapack, "dtrtrs", watched(solve))
    with threadpool_limits(2, user_api="blas"):
        lower = cholesky(2 * np.eye(rows))
        solve_lower(lower, np.ones((rows, 1)), "N")
        assert threads() == {2}
    assert found == [expected, expected]


def test_the_number_is_as_before_when_the_last_has_left_in_whatever_order():
    with threadpool_limits(2, user_api="blas"):
        first, second = one_thread(), one_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert threads() == {1}
        second.__exit__(None, None, None)
        assert threads() == {2}
