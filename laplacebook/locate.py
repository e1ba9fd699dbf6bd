"""The mode by the curvature that was asked for, and derivatives through it."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve
from jax.scipy.sparse.linalg import cg
from jaxtyping import Array, Float

from laplacebook.curvature import value_gradient_hessian
from laplacebook.density import ModelDensity, Terms
from laplacebook.mode import MANY, Certificate, find_mode, loud_tangents, no_tangent
from laplacebook.polish import Polished, polish
from laplacebook.precision import Precision
from laplacebook.ritz import ritz
from laplacebook.settings import Settings
from laplacebook.structured import kept, precision_at

__all__ = ["locate"]

KRYLOV = 5  # products with a matrix, for its extreme eigenvalues to a few percent


class Located(NamedTuple):
    """Where a search ended, what the log joint is made of there, and the precision.

    Attributes:
        point: shape (D,).
        terms: the parts of the log joint there.
        precision: A.
        certificate: whether it is a mode.
    """

    point: Array
    terms: Terms
    precision: Precision
    certificate: Certificate


def locate(density: ModelDensity, start: Float[Array, " D"], settings: Settings) -> Located:
    """The mode that a search from ``start`` reaches, and the precision there.

    By Newton steps where the curvature is the Hessian, else by :func:`~laplacebook.polish.polish`.
    ``jit``- and ``vmap``-able; derivatives go through the mode by the implicit function theorem,
    with the exact Hessian.

    Args:
        density: the log joint.
        start: where the search begins, shape (D,).
        settings: of the fit.

    Returns:
        A :class:`Located`. Nothing is raised: the certificate says whether it is a mode.
    """

    def loss(u: Array, density: ModelDensity) -> tuple[Array, Terms]:
        return density.loss(u)

    if settings.curvature == "hessian":
        found = find_mode(loss, start, density)
        sizes = [site.size for site in density.sites]
        precision = kept(found.hessian, sizes, settings.structure)
        return Located(found.point, found.beside, precision, found.certificate)

    def curved(u: Array, density: ModelDensity) -> Precision:
        return precision_at(density, u, settings)

    f, of_f = jax.closure_convert(loss, start, density)
    a, of_a = jax.closure_convert(curved, start, density)
    end = _polish(f, a, settings.tolerance, start, ((density, *of_f), (density, *of_a)))
    condition = jnp.where(end.converged, _condition_number(end.precision), jnp.inf)
    certificate = Certificate(end.converged, end.newton_decrement, end.iterations, condition)
    return Located(end.point, end.beside, end.precision, certificate)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _polish(
    f: Callable, precision_at: Callable, tolerance: float | None, start: Array, constants: Any
) -> Polished:
    of_f, of_a = constants
    return polish(lambda x: f(x, *of_f), lambda x: precision_at(x, *of_a), start, tolerance)


@_polish.defjvp
def _polish_jvp(
    f: Callable, precision_at: Callable, tolerance: float | None, primals: tuple, tangents: tuple
) -> tuple[Polished, Polished]:
    start, (of_f, of_a) = primals
    end = _polish(f, precision_at, tolerance, *primals)
    to_f, to_a = loud_tangents(tangents[1], end.converged)

    def slope(x: Array, constants: Any) -> Array:
        return jax.grad(lambda x: f(x, *constants)[0])(x)

    still = jnp.zeros_like(end.point)
    d_slope = jax.jvp(slope, (end.point, of_f), (still, to_f))[1]
    d_point = -_solve(lambda x: f(x, *of_f), end.point, d_slope)
    moved = (d_point, to_f)
    d_beside = jax.jvp(lambda x, c: f(x, *c)[1], (end.point, of_f), moved)[1]
    d_precision = jax.jvp(lambda x, c: precision_at(x, *c), (end.point, of_a), (d_point, to_a))[1]
    rest = map(no_tangent, (end.converged, end.newton_decrement, end.iterations))
    return end, Polished(d_point, d_beside, d_precision, *rest)


def _solve(f: Callable, x: Array, v: Array) -> Array:
    """H^-1 v with the exact Hessian of f at x, by conjugate gradients where it is large."""
    if x.size <= MANY:
        factor = cho_factor(value_gradient_hessian(f, x)[3], lower=True)
        return cho_solve(factor, v)
    product = jax.linearize(jax.grad(lambda x: f(x)[0]), x)[1]
    return cg(product, v, tol=float(jnp.finfo(x.dtype).eps) ** 0.5, maxiter=x.size)[0]


def _condition_number(precision: Precision) -> Array:
    """Of A scaled to a unit diagonal, by Lanczos with it and with its inverse: never too large."""
    precision = jax.lax.stop_gradient(precision)
    root = jnp.sqrt(precision.diagonal_of_matrix())
    above = ritz(lambda v: precision.matvec(v / root) / root, root, KRYLOV)[0][-1]
    return above * ritz(lambda v: root * precision.solve(root * v), root, KRYLOV)[0][-1]
