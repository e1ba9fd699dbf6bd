"""A cheap look at whether q can stand for the posterior, where nobody asked for a diagnosis."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.jaxprs import linear_algebra
from laplacebook.base.namespace import Numbers
from laplacebook.base.pytrees import on_host
from laplacebook.base.quick import numbers_in
from laplacebook.fit.log_joints import log_joint_at, log_joints
from laplacebook.gaussian.precision import Precision
from laplacebook.gaussian.sparse import SparsePrecision
from laplacebook.model.density import ModelDensity
from laplacebook.search.looks import is_small, look, slope_look

DRAWS = 64
FEWEST = 1 / 3  # of the draws: of thirty models of practice, those that diagnose calls bad had less
_BEYOND = (
    0.1  # of the draws: a Gaussian of which so much lies beyond an edge is off by 0.1 nats there
)
_INTEGRAL = 100  # log joints in each evaluation of one that is an integral itself
_WORK = 2**28  # numbers in all log joints together: some tenths of a second
_ALGEBRA = 2**14  # of a Hessian's factorisations: ten columns of a matrix of order eleven
_COLUMNS = 10  # of a Hessian, that are soon computed


def doubt_at_a_glance(
    density: ModelDensity,
    mode_vector: Float[Array, " D"],
    precision: Precision,
    by_values: bool = False,
) -> str | None:
    """Why not to trust q, by how many draws from the posterior 64 draws of q are worth; else None.

    Or by how many of them have density zero. A third and more of them is no proof: so few draws see no
    tail, and none another mode. Not looked at where 64 evaluations of the log joint would take longer than
    a moment, nor where the data are spread over devices.

    Args:
        density: the log joint.
        mode_vector: shape (D,).
        precision: of q.
        by_values: whether no search has compiled the Hessian, as where another curvature stands for it.
    """
    each = _INTEGRAL if density.only_gradients else 1
    if density.placement is not None or each * DRAWS * numbers_in((density, mode_vector)) > _WORK:
        return None
    normal = np.random.default_rng(0).standard_normal((DRAWS, mode_vector.size))
    precision, mode = on_host((precision, mode_vector))
    points = np.asarray(mode + precision.whitened(normal.T.astype(mode.dtype)).T)
    heights = _heights(density, points, by_values)
    if not np.all(heights < np.inf):
        return f"the log joint is not a number at some of {DRAWS} draws from it"
    beyond = np.count_nonzero(np.isneginf(heights))
    if beyond > _BEYOND * DRAWS:
        return (
            f"{beyond} of {DRAWS} draws from it have density zero: an edge lies within it, beyond which its evidence "
            "and its intervals reach"
        )
    log_weights = heights + np.sum(normal**2, axis=1) / 2
    weights = np.exp(log_weights - log_weights.max())
    worth = weights.sum() ** 2 / np.sum(weights**2)
    if worth >= FEWEST * DRAWS:
        return None
    size = mode_vector.size
    told = isinstance(precision, SparsePrecision) and not is_small(density, size)
    alone = f", of all {size:,} numbers together; lb.diagnose tells how far each alone is off"
    return f"{DRAWS} draws from it are worth {worth:.0f} from the posterior{alone if told else ''}"


def _heights(
    density: ModelDensity, points: Float[Numbers, "S D"], by_values: bool
) -> Float[np.ndarray, " S"]:
    """The log joint at each point; of a small fit by the program that its search has compiled."""
    if density.only_gradients:
        return -np.array([slope_look(density, u).f for u in points])
    if by_values or not is_small(density, points.shape[1]) or factorises(density, points[0]):
        return log_joints(density, points, progress_bar=False)

    seen = (seen_at(density, u) for u in points)
    return np.array([-np.inf if one.outside else -one.f for one in seen])


class Seen(NamedTuple):
    """The negative log joint at a point with its derivatives, and whether that is outside of the support."""

    f: float
    gradient: np.ndarray
    hessian: np.ndarray
    outside: bool


def seen_at(density: ModelDensity, u: Float[np.ndarray, " D"]) -> Seen:
    """By the program that the search of a small fit has compiled.

    Args:
        density: the log joint.
        u: shape (D,).

    Returns:
        Where f is NaN if a distribution has a parameter that is none there.
    """
    value, (terms, valid), gradient, hessian = jax.tree.map(np.asarray, look(density, u))
    outside = bool(np.any(terms.room < 0))
    return Seen(float(value) if valid else np.nan, gradient, hessian, outside)


def factorises(density: ModelDensity, u: Float[Numbers, " D"]) -> bool:
    """Whether the log joint factorises matrices so large that its Hessian takes tens of milliseconds.

    As that of a Gaussian process does; a covariance of a few effects does not.

    Args:
        density: the log joint.
        u: shape (D,).
    """
    if u.size < _COLUMNS:
        return False  # without tracing the model
    program = jax.make_jaxpr(log_joint_at)(density, u)
    return u.size * max(linear_algebra(program.jaxpr), default=0) >= _ALGEBRA
