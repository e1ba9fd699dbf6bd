"""The rounds of a search without a Hessian driven from Python: what is in their loops is compiled.

The steps are those of :mod:`laplacebook.search.rounds`, in NumPy.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from jaxtyping import Float

from laplacebook.base.progress import progress
from laplacebook.gaussian.precision import Precision
from laplacebook.search.certificate import Search
from laplacebook.search.driven import LookAt
from laplacebook.search.newton_step import Look
from laplacebook.search.rounds import (
    ROUNDS,
    Rounds,
    after_round,
    downhill,
    ended,
    go_on,
    initial_rounds,
    near,
)


def drive_rounds(
    look_at: LookAt,
    precision_at: Callable[[np.ndarray], Precision],
    round_from: Callable[[Rounds, float], tuple[np.ndarray, np.ndarray]],
    ridge_at: Callable[[np.ndarray, Precision], tuple[np.ndarray, np.ndarray]],
    start: Float[np.ndarray, " D"],
    tolerance: float,
) -> Search:
    """The minimum that L-BFGS reaches from ``start``, as :func:`~laplacebook.search.lbfgs.search_by_lbfgs` has it.

    Args:
        look_at: f and its gradient at a point, without a Hessian: all in NumPy.
        precision_at: the precision at a point, in NumPy.
        round_from: where a round ends that begins in a state, and how many steps led there.
        ridge_at: the direction of least curvature at a point by the precision there, and that curvature.
        start: where the search begins, shape (D,).
        tolerance: the Newton decrement that is small enough.

    Returns:
        A :class:`~laplacebook.search.certificate.Search`, in NumPy.
    """
    state = initial_rounds(start, Look(None, None, np.zeros_like(start), None), None)
    with progress(ROUNDS, None, unit="round") as bar:
        while go_on(state, tolerance):
            if state.rounds == 0:
                x, steps = start, np.zeros((), int)
            elif near(state, tolerance):
                x, steps = downhill(state), np.ones((), int)
            else:
                x, steps = round_from(state, tolerance)

            precision = precision_at(x)
            ridge = partial(ridge_at, x, precision)
            state = after_round(state, x, look_at(x), precision, steps, ridge, tolerance)
            bar.update()
            bar.set_postfix_str(f"{float(state.decrement):.1g} standard deviations from a mode")
    return ended(state, tolerance)
