"""Why is there no mode? A failed search, turned into the error that says so."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.errors import (
    LaplaceError,
    NotConverged,
    NotPositiveDefinite,
    or_in_double,
)
from laplacebook.base.irregular import irregular_signs
from laplacebook.base.pytrees import on_host
from laplacebook.base.quick import jit_quickly
from laplacebook.curvature.hessian import hessian_at
from laplacebook.curvature.precision_at import may_have_layers
from laplacebook.gaussian.precision import Precision
from laplacebook.model.density import LikelihoodDensity, ModelDensity
from laplacebook.model.hierarchy import integrate_out
from laplacebook.model.not_finite import not_finite, print_point
from laplacebook.model.trace import Terms
from laplacebook.search.certificate import Certificate
from laplacebook.search.looks import slope_look
from laplacebook.search.metric import (
    COARSEST,
    EDGE,
    Curvature,
    rounding_floor,
    units,
)
from laplacebook.search.newton_step import MAX_ITERATIONS

_LOOKED_AT = 3000  # coordinates, across each of which four gradients are taken
_POWERS = 30  # of the inverse of a curvature, which find its smallest eigenvalue
FAR = 50  # unconstrained: there a scale is e^-50, and a probability 1


def explain(
    density: ModelDensity,
    u: Float[Array, " D"],
    certificate: Certificate,
    stationary: bool,
    sparse: bool = False,
) -> LaplaceError:
    """The error for a search that ended at u without a certificate.

    Args:
        density: the log joint that was searched.
        u: where the search stood, shape (D,).
        certificate: what is known of that point.
        stationary: whether it is a mode by its derivatives, and fails in another way.
        sparse: whether the Hessian was kept sparse.

    Returns:
        The error to raise: NonFinite, NotConverged or NotPositiveDefinite.
    """
    look = _look_by_gradients if sparse or density.only_gradients else _look_at_all
    value, terms, hessian, finite, wrong = look(density, u)
    first = certificate.iterations <= 1
    edge = [] if first else _sites_at_edge(density, u, terms, hessian)
    if edge:
        return _boundary(density, u, edge)
    if not (finite or first) and np.isfinite(value):
        return _unbounded(density, u, value)
    if wrong is not None:
        return not_finite(wrong, u)
    if not np.isfinite(certificate.condition_number):
        return _not_positive_definite(density, hessian)
    kinks = _kinks(density, u, hessian)
    if kinks:
        return _kink(density, u, kinks)
    if stationary:
        return jumps_about(density, u)
    near = certificate.newton_decrement <= COARSEST
    if near:
        return level(density, u, _by_rounding(density, u), or_otherwise(density, u))
    return _not_converged(density, u, certificate)


def _look_at_all(
    density: ModelDensity, u: Array
) -> tuple[Any, Terms, Curvature, bool, ModelDensity | None]:
    """f, the terms of its last part, the Hessian, whether all is finite, and which part is wrong."""
    finite, wrong, value, hessian = True, None, 0.0, 0.0
    for part in density.parts():
        of_part, terms, bend, is_finite, is_valid = on_host(_look(part, u))
        value, hessian, finite = value + of_part, hessian + bend, finite and bool(is_finite)
        if wrong is None and not (is_finite and is_valid):
            wrong = part
    return value, terms, hessian, finite, wrong


@np.errstate(all="ignore")
def _look_by_gradients(
    density: ModelDensity, u: Array
) -> tuple[Any, Terms, Curvature, bool, ModelDensity | None]:
    """The same of a density with a sparse Hessian, or with gradients alone."""
    from laplacebook.search.differences import hessian_by_differences
    from laplacebook.search.sparse_search import known_pattern

    point = np.asarray(u)
    look = slope_look(density, point)
    terms, valid = jax.tree.map(np.asarray, look.beside)
    hessian: Curvature = None
    if density.only_gradients:
        hessian = hessian_by_differences(density, point)
        bent = np.isfinite(hessian).all()
    else:
        pattern = known_pattern(density)
        hessian = pattern.precision(jax.device_get(pattern.parts_at(density, point)))
        bent = np.isfinite(hessian.entries).all()
    finite = bool(np.isfinite(look.f) and np.isfinite(look.gradient).all() and bent)
    return look.f, terms, hessian, finite, None if finite and valid else density


@jit_quickly
def _look(density: ModelDensity, u: Array) -> tuple[Array, Terms, Array, Array, Array]:
    """f, its terms, the Hessian, whether all derivatives are finite, and whether u is valid."""
    value, (terms, valid), gradient, hessian = hessian_at(density, u)
    finite = [jnp.all(jnp.isfinite(x)) for x in (value, gradient, hessian)]
    return value, terms, hessian, jnp.array(finite).all(), valid


def _sites_at_edge(density: ModelDensity, u: Array, terms: Terms, hessian: Curvature) -> list[str]:
    """The sites with an element at the end of its interval, as far as rounding can tell.

    In the constrained space: within a thousandth of its curvature's width. In the unconstrained
    space the end is infinitely far, and FAR is as good.
    """
    width = np.asarray(units(hessian))
    near = np.asarray(terms.room) <= np.maximum(EDGE * width, 1e-6 * np.abs(u))
    if density.space == "unconstrained":
        coordinates = density.unravel(u)
        free = [
            np.array_equal(coordinates[site.name], terms.values[site.name])
            for site in density.sites
            for _ in range(site.size)
        ]
        near = (np.abs(u) > FAR) & ~np.array(free)
    owners = [site.name for site in density.sites for _ in range(site.size)]
    return list(dict.fromkeys(name for name, at_edge in zip(owners, near, strict=True) if at_edge))


def _boundary(density: ModelDensity, u: Array, sites: list[str]) -> NotConverged:
    names, why = ", ".join(f"'{name}'" for name in sites), reasons(density)
    return NotConverged(
        f"The {density.function} still rises at the edge of the support of {names}: there is no interior mode.",
        causes=why.edge,
        remedy=f"{why.inside}{or_in_double(u)}",
    )


def _not_positive_definite(density: ModelDensity, hessian: Curvature) -> NotPositiveDefinite:
    scale = np.asarray(units(hessian))
    lowest, direction = _lowest(hessian, scale)
    direction = scale * direction
    direction = direction / np.max(np.abs(direction))
    names = density.coordinate_names()
    parts = [f"{w:+.2g} {name}" for w, name in zip(direction, names, strict=True) if abs(w) > 0.05]
    upward = lowest < -rounding_floor(len(names), scale.dtype)
    bend = "curves upwards" if upward else "is flat"
    why = reasons(density)
    return NotPositiveDefinite(
        f"The {density.function} {bend} along {' '.join(parts[:6])}{' ...' if len(parts) > 6 else ''}"
        f"{'' if upward else ', as far as rounding can tell'}: the point that was found is not a "
        "mode with a Gaussian around it.",
        causes=[*_by_rounding(density, scale), *(why.unbounded if upward else why.flat)],
        remedy=f"{why.remedy} Nothing was added to the diagonal.{or_otherwise(density, scale)}",
    )


def _lowest(hessian: Curvature, scale: np.ndarray) -> tuple[float, np.ndarray]:
    """The smallest eigenvalue of a Hessian in units of its diagonal, and its eigenvector."""
    if not isinstance(hessian, Precision):
        values, vectors = np.linalg.eigh(scale[:, None] * np.asarray(hessian) * scale)
        return float(values[0]), vectors[:, 0]
    from laplacebook.search.sparse_metric import SparseMetric

    floor = float(rounding_floor(scale.size, scale.dtype))
    raised = SparseMetric.of(scale, hessian, floor).precision
    direction = irregular_signs(3, scale.size)
    for _ in range(_POWERS):
        direction = raised.solve(direction / scale) / scale
        direction = direction / np.linalg.norm(direction)
    return float((scale * direction) @ hessian.matvec(scale * direction)), direction


def _unbounded(density: ModelDensity, u: Array, value: Array) -> NotConverged:
    why = reasons(density)
    return NotConverged(
        f"The search ran away: the {density.function} was {-float(value):.4g} and rising at {print_point(density, u)}, "
        "where numbers overflow.",
        causes=why.unbounded,
        remedy=f"{why.remedy}{or_in_double(u)}",
    )


def _kinks(density: ModelDensity, u: Array, hessian: Curvature) -> list[tuple[str, float]]:
    """The coordinates across which the slope jumps by as much however near one looks; of very many none."""
    scale = np.asarray(units(hessian))
    if u.size > _LOOKED_AT:
        return []
    far, near = np.sum([_jumps(part, u, scale) for part in density.parts()], axis=0)
    kinks = (np.abs(near) > np.abs(far) / 2) & (np.abs(far) * scale > 0.01)
    names = density.coordinate_names()
    return [(names[i], float(far[i])) for i in np.flatnonzero(kinks)]


@jit_quickly
def _jumps(density: ModelDensity, u: Array, scale: Array) -> Array:
    """The change of the slope across each coordinate, over a short distance and a hundredth of it."""
    width = jnp.finfo(u.dtype).eps ** 0.25 * jnp.minimum(scale, jnp.maximum(jnp.abs(u), 1))

    def jumps(i: Array) -> Array:
        side = jnp.zeros_like(u).at[i].set(width[i])
        slope = jax.grad(lambda v: density.loss(v)[0])
        return jnp.array([slope(u + s)[i] - slope(u - s)[i] for s in (side, side / 100)])

    return jax.lax.map(jumps, jnp.arange(u.size)).T


def _kink(density: ModelDensity, u: Array, kinks: list[tuple[str, float]]) -> NotConverged:
    listed = ", ".join(f"{name} (by {jump:.3g})" for name, jump in kinks[:4])
    return NotConverged(
        f"The slope of the {density.function} jumps at {print_point(density, u)}, across {listed}: a kink has no "
        "curvature, so there is no Gaussian around it.",
        causes=[
            "a Laplace prior (dist.Laplace) whose mode is at its centre",
            "abs, max, clip, where or relu within the model",
        ],
        remedy="use a smooth prior (Normal, StudentT) or a smooth function, or draw samples with NUTS.",
    )


def jumps_about(density: ModelDensity, u: Float[Array, " D"]) -> NotConverged:
    """The error for a log joint that does not follow its own gradient about u of shape (D,)."""
    return NotConverged(
        f"The {density.function} does not follow its own gradient: within one posterior standard deviation of "
        f"{print_point(density, u)} it changes by more than its slope explains.",
        causes=[
            "a jump: a change point (where(t < tau, ...)), round, floor, an index made of a latent site",
            "jax.lax.stop_gradient, or a derivative of the model's own that is wrong",
        ],
        remedy="write the likelihood as a smooth function of the latent sites (a sigmoid for a step), or "
        f"sum the discrete choice out.{or_in_double(u)}",
    )


def or_otherwise(density: ModelDensity, x: Any) -> str:
    """What else to try than the Hessian, by the sites and by the precision of an array."""
    other = ' Of a network also try curvature="gauss_newton".' if may_have_layers(density) else ""
    return f"{or_in_double(x)}{other}"


def _by_rounding(density: ModelDensity, x: Any) -> list[str]:
    """The first cause to think of where a network is fitted by its Hessian in single precision, as an array is."""
    if x.dtype != np.float32 or not may_have_layers(density):
        return []
    return ["rounding: of a network single precision does not tell the least curvatures"]


def level(
    density: ModelDensity,
    u: Float[Array, " D"],
    causes: Sequence[str] = (),
    otherwise: str = "",
) -> NotConverged:
    """The error for a log joint that levels off about u of shape (D,); with other causes, and what else to try."""
    from laplacebook.search.hindrances import hindrances  # of failed fits alone

    hinder = hindrances(density, u)
    return NotConverged(
        f"The {density.function} levels off at {print_point(density, u)}, but not like a parabola: its curvature there "
        "changes within a small fraction of the width that it tells.",
        causes=[
            *hinder.causes,
            *causes,
            "a mode at infinity, or one that only a very wide prior keeps from there: separable classes, "
            "or a parameter that the data push without end",
            "a maximum that is flatter than any parabola (a fourth power)",
            f"a {density.function} that is not smooth, or noisy at the scale of the machine precision",
        ],
        remedy=f"{hinder.remedy}." if hinder.remedy else f"{reasons(density).remedy}{otherwise}",
    )


def _not_converged(density: ModelDensity, u: Array, certificate: Certificate) -> NotConverged:
    why = reasons(density)
    return NotConverged(
        f"No mode after {int(certificate.iterations)} of at most {MAX_ITERATIONS} iterations: the search stood at "
        f"{print_point(density, u)}, {float(certificate.newton_decrement):.2g} posterior standard deviations "
        f"from the nearest stationary point by its curvature ({u.dtype}).",
        causes=[
            f"the {density.function} has no maximum: {why.no_maximum}",
            f"the {density.function} is noisy at the scale of the machine precision, or not smooth",
            *_by_rounding(density, u),
            "the start is too far away",
        ],
        remedy=f"{why.check}, or pass start= with values of the latent sites.{or_otherwise(density, u)}",
    )


class Reasons(NamedTuple):
    """Likely causes and remedies, in words.

    Attributes:
        flat: why it may be flat.
        unbounded: why it may grow without bound.
        edge: why it may rise at the edge of the support.
        no_maximum: what it means that there is no maximum.
        remedy: what helps where it is flat or unbounded.
        inside: what helps at the edge.
        check: what to look at first.
    """

    flat: tuple[str, ...]
    unbounded: tuple[str, ...]
    edge: tuple[str, ...]
    no_maximum: str
    remedy: str
    inside: str
    check: str


_MASKED = (
    "elements of a latent site that a mask hides (obs_mask=, handlers.mask): of data that are missing "
    "leave obs_mask= out, and observe them as any number under numpyro.handlers.mask(mask=known)"
)
_UNBOUNDED = (
    "a scale that can shrink to zero around equal values: a centred hierarchical model, a repeated or "
    "single observation",
    "an improper prior where the data do not bound the parameter",
)
_PROPER = "give those sites a proper prior, or remove what is redundant."
_ONE_KIND = "the data are all of one kind (all heads) and the prior is flat"
_JOINT = Reasons(
    flat=(
        "parameters of which the data and the prior fix only a combination (collinear, redundant)",
        "a flat prior where the data say nothing",
        "a mode at infinity (separable data without a prior)",
        _MASKED,
    ),
    unbounded=_UNBOUNDED,
    edge=(_ONE_KIND, *_UNBOUNDED),
    no_maximum="an improper posterior, or a mode at infinity",
    remedy=_PROPER,
    inside=_PROPER,
    check="check the priors",
)
_CONSTRAINED = _JOINT._replace(
    edge=(_ONE_KIND, "a scale or variance whose posterior piles up at zero"),
    inside='use space="unconstrained", where the log Jacobian moves the mode inside, or a prior that '
    "vanishes at the edge.",
)
_WITH_PRIOR = (
    "the likelihood alone does not determine those sites: use laplace, where the priors help to, or "
    "remove what is redundant."
)
_LIKELIHOOD = Reasons(
    flat=(
        "parameters of which the data fix only a combination (collinear, redundant)",
        "a parameter that enters only the prior of another one (a hierarchical model): maximum "
        "likelihood leaves priors out",
        "a maximum at infinity (separable data)",
        _MASKED,
    ),
    unbounded=(
        "a scale that can shrink to zero around equal values: a repeated or single observation, a "
        "mixture component on one point",
        "data that do not bound the parameter",
    ),
    edge=(
        "the data are all of one kind (all heads), or separable",
        "a support that ends before the maximum",
        "a scale that fits best at zero",
    ),
    no_maximum="it rises towards infinity (separable data), or is flat",
    remedy=_WITH_PRIOR,
    inside=_WITH_PRIOR,
    check="check that the data determine all latent sites",
)


def reasons(density: ModelDensity) -> Reasons:
    """The words for a density that was searched without finding its maximum."""
    if isinstance(density, LikelihoodDensity):
        return _LIKELIHOOD
    why, more = _CONSTRAINED if density.space == "constrained" else _JOINT, integrate_out(density)
    return why._replace(remedy=why.remedy + more, inside=why.inside + more)
