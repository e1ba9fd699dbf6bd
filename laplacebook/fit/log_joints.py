"""The log joint at many points that are known."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import Array, Float

from laplacebook.base.many_points import at_many
from laplacebook.base.namespace import Numbers
from laplacebook.base.pytrees import is_here
from laplacebook.base.quick import is_eager
from laplacebook.model.density import ModelDensity
from laplacebook.model.hierarchy import is_marginal


def searches_together(density: ModelDensity) -> bool:
    """Whether its sites are integrated out, by searches that may go together at many points."""
    if not is_marginal(density) or density.only_gradients or not is_eager():
        return False
    if type(density) is not ModelDensity or numpyro.primitives._PYRO_STACK:
        return (
            False  # without its priors; or within handlers, where the model is not looked at anew
        )
    return density.space == "unconstrained" and all(map(is_here, jax.tree.leaves(density)))


def log_joints(
    density: ModelDensity, points: Float[Numbers, "S D"], progress_bar: bool | None = None
) -> Float[np.ndarray, " S"]:
    """log p(D, u) at many points, in NumPy.

    Args:
        density: the log joint.
        points: u, shape (S, D).
        progress_bar: as in :func:`~laplacebook.importance_sampling`.
    """
    left, found = np.full(len(points), True), np.empty(len(points))
    if searches_together(density):
        marginal: Any = density.model
        found = marginal.log_joints_at(density, np.asarray(points, float), progress_bar)
        left = ~np.isfinite(found)
    if left.any():
        found[left] = at_many(log_joint_at, (density,), points[left], progress_bar)
    return found


def log_joint_at(density: ModelDensity, u: Float[Array, " D"]) -> Float[Array, ""]:
    """log p(D, u): a function of a module, as :func:`~laplacebook.base.many_points.at_many` takes."""
    return jnp.asarray(density.log_joint(u))
