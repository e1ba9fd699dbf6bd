"""Why is there no mode by a curvature other than the Hessian? The error that says so."""

from functools import partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.errors import (
    LaplaceError,
    NotConverged,
    NotPositiveDefinite,
    UnsupportedModel,
    or_in_double,
)
from laplacebook.curvature.hessian import prior_curvature
from laplacebook.curvature.precision_at import coupled, ends_in_minutes, is_one, metric_of
from laplacebook.curvature.settings import Settings
from laplacebook.gaussian.precision import parts_of
from laplacebook.model.density import ModelDensity
from laplacebook.model.not_finite import not_finite, print_point
from laplacebook.model.rows import require_sum
from laplacebook.search.certificate import Certificate
from laplacebook.search.follows_gradient import levels_off
from laplacebook.search.looks import precision_seen, slope_look
from laplacebook.search.mode import enough
from laplacebook.search.no_mode import jumps_about, level


def explain_shortfall(
    density: ModelDensity,
    u: Float[Array, " D"],
    certificate: Certificate,
    stationary: bool,
    settings: Settings,
    start: Float[Array, " D"] | None = None,
) -> LaplaceError:
    """The error for a search by Gauss-Newton or Fisher curvature that ended at u.

    Args:
        density: the log joint that was searched.
        u: where the search stood, shape (D,).
        certificate: what is known of that point.
        stationary: whether it is a mode by its derivatives, and fails in another way.
        settings: of the fit.
        start: where the search began, shape (D,); by default in the middle of the prior.

    Returns:
        The error to raise; one about rows that do not add up is raised here.
    """
    look_at, at = partial(slope_look, density), np.asarray(u)
    seen = look_at(at)
    _, valid = seen.beside
    if not (np.all(np.isfinite(seen.gradient)) and np.isfinite(seen.f) and valid):
        return not_finite(density, u)
    if stationary and levels_off(
        lambda u: look_at(u).gradient, at, precision_seen(density, at, settings)
    ):
        return level(density, u, otherwise=or_in_double(u))
    if stationary:
        return jumps_about(density, u)
    if np.isfinite(certificate.newton_decrement):
        start = density.start() if start is None else start
        return _not_there(density, u, certificate, settings, start)
    require_sum(density, u)
    prior, separate = prior_curvature(density, u)
    if settings.structure != "dense" and not separate:
        return coupled(settings.structure)
    return _not_positive(density, u, prior, settings)


def _not_there(
    density: ModelDensity, u: Array, certificate: Certificate, settings: Settings, start: Array
) -> LaplaceError:
    distance, at = float(certificate.newton_decrement), print_point(density, u)
    wanted = enough(settings.tolerance, u.dtype)
    if distance <= wanted:
        return NotPositiveDefinite(
            f"The {density.function} curves upwards at the stationary point that was found, {at}: it "
            "is a saddle, and Gauss-Newton curvature does not see that.",
            causes=["a start at a symmetric point of a network, such as all weights zero"],
            remedy="pass start=laplacebook.train(model, ..., key=key), or other values of the latent sites.",
        )
    steps = int(certificate.iterations)
    before = _distance(density, start, settings)
    single = u.dtype == jnp.float32
    from laplacebook.search.hindrances import hindrances  # of failed fits alone

    hinder = hindrances(density, u)
    prior = f"a tighter prior{'; numpyro.enable_x64()' if single else ''}"
    return NotConverged(
        f"No mode after {steps} iterations: the search stood at {at}, {distance:.2g} posterior standard "
        f"deviations from the nearest stationary point by its curvature ({u.dtype}); it is to be within "
        f"{wanted:.1g}. {_pace(before, distance, wanted, steps, ends_in_minutes(density))}",
        causes=[
            *hinder.causes,
            "the start is far away: networks need training before",
            "a wide prior on many weights of which the data say little: the log joint is then all but flat "
            "along most directions, and its curvature far from the Hessian",
            *(["in float32 the sum over the data is too noisy for a smaller distance"] * single),
        ],
        remedy=(
            hinder.remedy
            or f"train longer, and pass start=laplacebook.train(model, ..., key=key, steps=...); {prior}"
        )
        + (
            f"; or accept what is there with tolerance={2 * distance:.1g}: the summary will say so."
            if distance < 0.4
            else "."
        ),
    )


def _distance(density: ModelDensity, u: Array, settings: Settings) -> float:
    """The Newton decrement at u; NaN where the precision is not positive definite."""
    at, metric = np.asarray(u), metric_of(density, settings)
    slope = slope_look(density, at).gradient
    kinds = [settings]
    if metric is not None and metric.structure == "dense":  # it judges, too
        kinds.append(metric)
    halves = [precision_seen(density, at, kind).half_solve(slope) for kind in kinds]
    return float(np.fmax.reduce([np.linalg.norm(half) for half in halves]))


def _pace(before: float, distance: float, wanted: float, steps: int, patient: bool) -> str:
    """How many more iterations there would be, if each went on to bring the search nearer by the same factor.

    Of a search to which the pace means nothing, as in :func:`~laplacebook.search.rounds.go_on`, only where it began.
    """
    if not np.isfinite(before):
        return ""
    if not distance < before:
        return f"It began at {before:.2g}, and came no nearer."
    if patient:
        return f"It began at {before:.2g}."
    more = steps * np.log(distance / wanted) / np.log(before / distance)
    return f"It began at {before:.2g}: at that pace {more:.2g} more iterations would do."


def _not_positive(
    density: ModelDensity, u: Array, prior: Array, settings: Settings
) -> LaplaceError:
    at = print_point(density, u)
    if settings.structure == "kronecker" and not _one_a_matrix(density, prior):
        return UnsupportedModel(
            "A Kronecker block needs one prior precision for all weights of a site, and this "
            "prior has several.",
            remedy='use one prior scale a site, or structure="block".',
        )
    lowest = int(jnp.argmin(prior))
    single = u.dtype == jnp.float32
    rounding = "rounding: in float32 the largest and the smallest precision are too far apart"
    return NotPositiveDefinite(
        f"The {settings.curvature} precision is not positive definite at {at}: the smallest prior "
        f"precision is {float(prior[lowest]):.2g}, of {density.coordinate_names()[lowest]}.",
        causes=[
            "a flat prior on a parameter that the data do not tell apart from others",
            "an outcome whose loss is not convex in its parameters (a Student-t beside outliers)",
            *([rounding] if single else []),
        ],
        remedy=f"{'call numpyro.enable_x64(); ' if single else ''}give every parameter a proper prior. "
        "Nothing was added to the diagonal.",
    )


def _one_a_matrix(density: ModelDensity, prior: Array) -> bool:
    """Whether all numbers of each site with two axes have one prior precision."""
    parts = parts_of(prior, [site.size for site in density.sites])
    pairs = zip(density.sites, parts, strict=True)
    return all(is_one(part) for site, part in pairs if len(site.shape) == 2)
