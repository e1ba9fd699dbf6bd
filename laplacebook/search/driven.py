"""The Newton loop driven from Python: of a small fit only the log joint and its derivatives are compiled.

The steps are those of :mod:`laplacebook.search.newton_step`, in NumPy.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from laplacebook.base.namespace import Numbers
from laplacebook.search.certificate import Search
from laplacebook.search.follows_gradient import (
    LOOK_NODES,
    NODES,
    direction_of_look,
    fails,
    follows_finely,
)
from laplacebook.search.metric import Curvature
from laplacebook.search.newton import ended
from laplacebook.search.newton_step import (
    Look,
    conclude,
    initial_state,
    judge,
    next_step,
    point_after,
    unfinished,
)

LookAt = Callable[[np.ndarray], Look]
Along = Callable[[np.ndarray, np.ndarray], tuple[Numbers, Numbers]]
GivesUp = Callable[[np.ndarray], bool] | None
SOON = 100  # iterations, after which a search from another start may be the shorter way


def drive(
    look_at: LookAt,
    start: Float[np.ndarray, " D"],
    hessian_at: Callable[[np.ndarray], Curvature] | None = None,
    identity: Curvature | None = None,
    estimated: bool = False,
    gives_up: GivesUp = None,
    begin_by: Callable[[np.ndarray], Curvature] | None = None,
) -> Search:
    """The minimum that damped Newton steps from ``start`` reach, as :func:`~laplacebook.search.newton.newton` has it.

    Args:
        look_at: f and its derivatives at a point, in NumPy; with the Hessian, unless ``hessian_at`` is given.
        start: where the search begins, shape (D,).
        hessian_at: the Hessian at a point, where it costs more than a look.
        identity: of the kind that the Hessian is; by default a matrix.
        estimated: whether the curvature is estimated from the gradients where these suffice.
        begin_by: about the Hessian at a point, to begin with where that costs much less.
        gives_up: whether to end after 100 iterations, by where the search stands then.

    Returns:
        A :class:`~laplacebook.search.certificate.Search`, in NumPy.
    """
    look = look_at(start)
    identity = begin_by(start) if begin_by is not None else identity
    state = initial_state(start, look.beside, identity, estimated)
    while unfinished(state):
        if gives_up is not None and state.iteration == SOON and gives_up(state.x):
            break
        step = next_step(state)
        if state.iteration > 0:  # the first step, of length zero, is a look at the start
            nowhere = look._replace(f=np.nan * state.f)
            look = look_at(step.x) if np.all(np.isfinite(step.x)) else nowhere
        verdict = judge(state, step, look)
        if state.iteration == 0 and begin_by is not None:
            verdict = verdict._replace(renew=np.False_)
        hessian = state.hessian
        if verdict.renew:
            at = point_after(state, step, verdict)
            hessian = look.hessian if hessian_at is None else hessian_at(at)
        state = conclude(state, step, look, verdict, hessian)
    return ended(state)


def along(look_at: LookAt) -> Along:
    """The same looks along a direction."""

    def look_along(u: np.ndarray, direction: np.ndarray) -> tuple[Numbers, Numbers]:
        look = look_at(u)
        return look.f, look.gradient @ direction

    return look_along


def looks_as_its_gradient(look_along: Along, found: Search) -> bool:
    """Whether f follows its gradient, as :func:`~laplacebook.search.follows_gradient.follows_gradient` asks.

    Args:
        look_along: f and its derivative along a direction at a point.
        found: where the search ended, with the terms of the log joint beside f and the precision there.
    """
    direction = direction_of_look(found.point, found.curvature, found.beside.room)

    def line(nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # The first is at the mode, where the search looked last.
        order = np.argsort(abs(nodes), kind="stable")
        seen = {i: look_along(found.point + nodes[i] * direction, direction) for i in order}
        values, slopes = zip(*(seen[i] for i in range(nodes.size)), strict=True)
        return np.array(values), np.array(slopes)

    nodes = NODES.astype(found.point.dtype)
    return not fails(*line(nodes[:LOOK_NODES])) or bool(follows_finely(*line(nodes[LOOK_NODES:])))
