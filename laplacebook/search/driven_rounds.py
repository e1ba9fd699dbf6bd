"""The rounds of a search without a Hessian driven from Python.

The steps are those of :mod:`laplacebook.search.rounds`, in NumPy; the looks between them are small programs.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from jaxtyping import Float

from laplacebook.base.namespace import Numbers
from laplacebook.base.one_thread import by_one_thread
from laplacebook.base.progress import progress
from laplacebook.gaussian.precision import Precision
from laplacebook.search.certificate import Search
from laplacebook.search.driven import LookAt
from laplacebook.search.newton_step import Look
from laplacebook.search.rounds import (
    ROUNDS,
    after_round,
    downhill,
    ended,
    go_on,
    initial_rounds,
    leaves,
    round_from,
)


def drive_rounds(
    look_at: LookAt,
    precision_at: Callable[[np.ndarray], Precision],
    metric_at: Callable[[np.ndarray], Precision | None],
    ridge_at: Callable[[np.ndarray, Precision], tuple[np.ndarray, np.ndarray]],
    start: Float[np.ndarray, " D"],
    tolerance: float,
    judge_at: Callable[[np.ndarray], Precision | None] = lambda _: None,
    rounds: int = ROUNDS,
    patient: bool = False,
) -> Search:
    """The minimum that L-BFGS reaches from ``start``, as :func:`~laplacebook.search.lbfgs.search_by_lbfgs` has it.

    Args:
        look_at: f and its gradient at a point, without a Hessian: all in NumPy.
        precision_at: the precision at a point, in NumPy.
        metric_at: the precision of the steps at a point, if it is another one.
        ridge_at: the direction of least curvature at a point by the precision there, and that curvature.
        start: where the search begins, shape (D,).
        tolerance: the Newton decrement that is small enough.
        judge_at: the precision of the steps, where it judges the distance as well.
        rounds: how many.
        patient: as in :func:`~laplacebook.search.rounds.go_on`.

    Returns:
        A :class:`~laplacebook.search.certificate.Search`, in NumPy.
    """

    def value_and_gradient(x: np.ndarray) -> tuple[Numbers, np.ndarray]:
        seen = look_at(x)
        return seen.f, seen.gradient

    state = initial_rounds(start, Look(None, None, np.zeros_like(start), None), None)
    with progress(ROUNDS, None, unit="round") as bar:
        while go_on(state, tolerance, patient) and state.rounds <= rounds:
            if state.rounds == 0:
                x, steps = start, np.zeros((), int)
            elif leaves(state, tolerance):
                x, steps = downhill(lambda x: look_at(x).f, state), np.ones((), int)
            else:
                metric = metric_at(state.x) if state.judge is None else state.judge
                x, steps = by_one_thread(round_from)(value_and_gradient, state, tolerance, metric)

            precision, judge = precision_at(x), judge_at(x)
            ridge = partial(ridge_at, x, precision)
            look = look_at(x)
            end = look, precision, judge, steps, ridge
            state = by_one_thread(after_round)(state, x, *end, tolerance)
            bar.update()
            bar.set_postfix_str(f"{float(state.decrement):.1g} standard deviations from a mode")
    return by_one_thread(ended)(state, tolerance)
