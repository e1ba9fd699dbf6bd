"""One compiled search: the mode, the precision there, and whether that is to be believed."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from laplacebook.base.pytrees import loud
from laplacebook.curvature.hessian import twice_differentiable
from laplacebook.curvature.settings import DENSE_HESSIAN, Settings, require_memory
from laplacebook.gaussian.precision import Precision
from laplacebook.model.density import ModelDensity
from laplacebook.model.start import off_centre
from laplacebook.search.certificate import Certificate
from laplacebook.search.follows_gradient import follows_gradient
from laplacebook.search.metric import inside
from laplacebook.search.mode import enough, locate


class Fit(NamedTuple):
    """What one compiled call computes.

    For an error to explain: ``last`` is where the search stood, and ``stationary`` whether that is
    a mode by its derivatives.
    """

    mode: dict[str, Array]
    mode_vector: Array
    precision: Precision
    log_likelihood: Array
    log_prior: Array
    certificate: Certificate
    last: Array
    stationary: Array


def search(density: ModelDensity, start: Array | None, settings: Settings = DENSE_HESSIAN) -> Fit:
    """The search for the mode, from ``start`` of shape (D,) or the middle of the prior.

    Compiled once for all tolerances.
    """
    tolerance = enough(settings.tolerance, jnp.result_type(float))
    return compiled(density, start, tolerance, settings=replace(settings, tolerance=None))


@partial(jax.jit, static_argnames="settings")
def compiled(
    density: ModelDensity, start: Array | None, tolerance: Array | float, settings: Settings
) -> Fit:
    """The same, with the tolerance that the settings leave out."""
    require_memory(density.sites, settings, float)  # here, since it runs the model
    given = jnp.zeros(()) if start is None else start
    start = density.start() if start is None else start
    # Many coordinates in single precision: a nudge of all would take a start away from its mode.
    nudged = (given == 0) | (settings.curvature == "hessian")
    start = jnp.where(nudged, off_centre(start, density.room(start)), start)
    with twice_differentiable():
        found = locate(density, start, settings, tolerance)
    room, precision = found.beside.room, found.curvature
    sound = found.certificate.converged & density.valid(found.point)
    sound &= follows_gradient(lambda u: density.loss(u)[0], found.point, precision, room)
    sound &= inside(density.space, room, precision)
    # A factor, not a selection, so that derivatives of a failed fit are NaN too.
    factor = loud(sound, start.dtype)
    point, terms, precision = jax.tree.map(lambda x: x * factor, found[:3])
    return Fit(
        mode=terms.values,
        mode_vector=point,
        precision=precision,
        log_likelihood=terms.log_likelihood,
        log_prior=terms.log_prior,
        certificate=replace(found.certificate, converged=sound),
        last=found.point,
        stationary=found.certificate.converged,
    )
