from threadpoolctl import threadpool_info, threadpool_limits

from laplacebook.base.one_thread import by_one_thread


def threads() -> set[int]:
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_linear_algebra_has_one_thread_within_and_as_many_as_before_after():
    with threadpool_limits(2, user_api="blas"):
        assert by_one_thread(threads)() == {1}
        assert threads() == {2}
