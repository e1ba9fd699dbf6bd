"""Find the mode, say how sure that is, and differentiate through it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve
from jax.scipy.sparse.linalg import cg
from jaxtyping import Array, Float

from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.jaxprs import closed_over
from laplacebook.base.pytrees import loud
from laplacebook.curvature.hessian import value_gradient_hessian
from laplacebook.curvature.precision_at import ends_in_minutes, kept, metric_of, precision_at
from laplacebook.curvature.settings import Settings
from laplacebook.gaussian.precision import Precision
from laplacebook.model.density import ModelDensity
from laplacebook.model.trace import Terms
from laplacebook.search.certificate import Certificate, Search
from laplacebook.search.lbfgs import descend, search_by_lbfgs
from laplacebook.search.metric import COARSEST
from laplacebook.search.newton import newton

# Coordinates: beyond them the search descends without a Hessian, and takes one at the end.
MANY = 3000


def find_mode(
    f: Callable[..., tuple[Array, Any]], start: Float[Array, " D"], *parameters: Any
) -> Search:
    """The minimum of f that a damped Newton search reaches from ``start``.

    ``jit``- and ``vmap``-able; derivatives with respect to the parameters, and to real arrays that
    f closes over, go through the minimum by the implicit function theorem. Where there is no
    minimum they are NaN.

    Args:
        f: a twice differentiable function of a vector of shape (D,), and of the parameters, that
            returns a scalar and, beside it, a pytree of arrays.
        start: where the search begins, shape (D,).
        parameters: pytrees of arrays, integer ones included, on which f depends.

    Returns:
        A :class:`~laplacebook.search.certificate.Search` with the Hessian. Nothing is raised: the
        certificate says whether there is a mode.
    """
    closed, constants = closed_over(f, start, *parameters)
    return _find_mode(closed, start, (*parameters, *constants))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _find_mode(f: Callable, start: Array, constants: Any) -> Search:
    if start.size > MANY:
        start = descend(lambda x: f(x, *constants)[0], start)
    return newton(lambda x: f(x, *constants), start)


@_find_mode.defjvp
def _find_mode_jvp(f: Callable, primals: tuple, tangents: tuple) -> tuple[Search, Search]:
    start, constants = primals
    end = _find_mode(f, start, constants)
    real = loud_tangents(tangents[1], end.certificate)

    def derivative(g: Callable, d_point: Array) -> Any:
        return jax.jvp(g, (end.point, constants), (d_point, real))[1]

    def value(x: Array, c: Any) -> Array:
        return f(x, *c)[0]

    factor = cho_factor(end.curvature, lower=True)
    d_point = -cho_solve(factor, derivative(jax.grad(value), jnp.zeros_like(end.point)))
    d_beside = derivative(lambda x, c: f(x, *c)[1], d_point)
    d_hessian = derivative(jax.hessian(value), d_point)
    return end, Search(d_point, d_beside, d_hessian, no_tangents(end.certificate))


def loud_tangents(tangents: Any, certificate: Certificate) -> Any:
    """The tangents of what a search depends on, NaN where it found no mode."""

    def tangent(t: Any) -> Any:
        known = t.dtype == jax.dtypes.float0
        return t if known else t * loud(certificate.converged, t.dtype)

    return jax.tree.map(tangent, tangents)


def no_tangents(certificate: Certificate) -> Certificate:
    """The tangents of a certificate, which counts as constant."""

    def tangent(x: Array) -> Any:
        real = jnp.issubdtype(x.dtype, jnp.inexact)
        return jnp.zeros_like(x) if real else np.zeros(x.shape, jax.dtypes.float0)

    return jax.tree.map(tangent, certificate)


def enough(tolerance: float | None, dtype: Any) -> float:
    """The Newton decrement that passes for a mode.

    By default the square root of the machine precision, or in single precision 0.001.
    """
    if tolerance is not None:
        return float(tolerance)
    return float(jnp.finfo(dtype).eps) ** 0.5 if dtype == jnp.float64 else COARSEST


def locate(
    density: ModelDensity,
    start: Float[Array, " D"],
    settings: Settings,
    tolerance: Float[Array, ""] | float,
) -> Search:
    """The mode that a search from ``start`` reaches, and the precision there.

    By Newton steps where the curvature is the Hessian, else by :func:`~laplacebook.search.lbfgs.search_by_lbfgs`.
    ``jit``- and ``vmap``-able; derivatives go through the mode by the implicit function theorem,
    with the exact Hessian.

    Args:
        density: the log joint.
        start: where the search begins, shape (D,).
        settings: of the fit.
        tolerance: the Newton decrement that passes for a mode where the curvature is not the Hessian.

    Returns:
        A :class:`~laplacebook.search.certificate.Search` with the parts of the log joint and the
        precision. Nothing is raised: the certificate says whether it is a mode.
    """

    def loss(u: Array, density: ModelDensity) -> tuple[Array, Terms]:
        return density.loss(u)

    if settings.curvature == "hessian":
        found = find_mode(loss, start, density)
        sizes = [site.size for site in density.sites]
        return found._replace(curvature=kept(found.curvature, sizes, settings.structure))

    def curved(u: Array, density: ModelDensity) -> Precision:
        return precision_at(density, u, settings)

    f, of_f = closed_over(loss, start, density)
    a, of_a = closed_over(curved, start, density)
    m, of_m, judges = _metric(density, start, settings)
    constants = (density, *of_f), (density, *of_a), (density, *of_m)
    return _by_lbfgs(f, a, m, (judges, ends_in_minutes(density)), start, constants, tolerance)


def _metric(
    density: ModelDensity, start: Array, settings: Settings
) -> tuple[Callable | None, list[Array], bool]:
    """The metric of the steps where it is not the precision of the fit, what it closes over, and whether it judges."""
    metric = metric_of(density, settings)
    if metric is None:
        return None, [], False
    try:
        steps = closed_over(lambda u, d: precision_at(d, u, metric), start, density)
        return *steps, metric.structure == "dense"
    except UnsupportedModel:
        return None, [], False


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2, 3))
def _by_lbfgs(
    f: Callable,
    precision_at: Callable,
    metric_at: Callable | None,
    kinds: tuple[bool, bool],
    start: Array,
    constants: Any,
    tolerance: Array | float,
) -> Search:
    of_f, of_a, of_m = constants
    return search_by_lbfgs(
        lambda x: f(x, *of_f),
        lambda x: precision_at(x, *of_a),
        start,
        tolerance,
        None if metric_at is None else lambda x: metric_at(x, *of_m),
        *kinds,
    )


@_by_lbfgs.defjvp
def _by_lbfgs_jvp(
    f: Callable,
    precision_at: Callable,
    metric_at: Callable | None,
    kinds: tuple[bool, bool],
    primals: tuple,
    tangents: tuple,
) -> tuple[Search, Search]:
    start, (of_f, of_a, _), _ = primals
    end = _by_lbfgs(f, precision_at, metric_at, kinds, *primals)
    to_f, to_a, _ = loud_tangents(tangents[1], end.certificate)

    def slope(x: Array, constants: Any) -> Array:
        return jax.grad(lambda x: f(x, *constants)[0])(x)

    still = jnp.zeros_like(end.point)
    d_slope = jax.jvp(slope, (end.point, of_f), (still, to_f))[1]
    d_point = -_solve(lambda x: f(x, *of_f), end.point, d_slope)
    moved = (d_point, to_f)
    d_beside = jax.jvp(lambda x, c: f(x, *c)[1], (end.point, of_f), moved)[1]
    d_precision = jax.jvp(lambda x, c: precision_at(x, *c), (end.point, of_a), (d_point, to_a))[1]
    return end, Search(d_point, d_beside, d_precision, no_tangents(end.certificate))


def _solve(f: Callable, x: Array, v: Array) -> Array:
    """H^-1 v with the exact Hessian of f at x, by conjugate gradients where it is large."""
    if x.size <= MANY:
        factor = cho_factor(value_gradient_hessian(f, x)[3], lower=True)
        return cho_solve(factor, v)
    product = jax.linearize(jax.grad(lambda x: f(x)[0]), x)[1]
    return cg(product, v, tol=float(jnp.finfo(x.dtype).eps) ** 0.5, maxiter=x.size)[0]
