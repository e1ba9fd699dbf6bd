"""Find the mode, say how sure that is, and differentiate through it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve
from jax.scipy.sparse.linalg import cg
from jaxtyping import Array, Float

from laplacebook.curvature.eigenvalues import ritz
from laplacebook.curvature.hessian import value_gradient_hessian
from laplacebook.curvature.precision_at import kept, precision_at
from laplacebook.curvature.settings import Settings
from laplacebook.gaussian.precision import Leaf, Precision
from laplacebook.model.density import ModelDensity
from laplacebook.model.trace import Terms
from laplacebook.search.lbfgs import Polished, descend, polish
from laplacebook.search.metric import COARSEST
from laplacebook.search.newton import newton

# Coordinates: beyond them the search descends without a Hessian, and takes one at the end.
MANY = 3000


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["converged", "newton_decrement", "iterations", "condition_number"],
    meta_fields=[],
)
@dataclass(frozen=True)
class Certificate:
    """How far a point is from the mode, and whether that is near enough.

    In the book: :eq:`laplace-stationary` and :eq:`laplace-curvature` of :doc:`/book/laplace`.

    Attributes:
        converged: the Newton decrement is at most the square root of the machine precision (or
            the rounding of the coordinates where that is larger, up to 0.001), A is positive
            definite beyond rounding, and 0.00001 standard deviations away (0.01 in float32), on
            both sides, the gradient is what A says: not so at a kink, or on a tail. And of a fit:
            one standard deviation away the log joint is what its gradient says. Where A is not the
            Hessian: the Newton decrement with that A is at most the tolerance of the fit, and ten
            steps of Lanczos see no direction in which the Hessian is negative.
        newton_decrement: sqrt(g' A^-1 g), the distance to the mode in posterior standard
            deviations; with the Hessian at least the rounding of the coordinates.
        iterations: evaluations of the log joint with its gradient; where A is not the Hessian,
            steps of L-BFGS, none if the start is a mode.
        condition_number: of A scaled to a unit diagonal, so that units do not matter; infinite
            where A is not positive definite. Where A is not the Hessian, an estimate by ten steps
            of Lanczos, never too large.
    """

    converged: Leaf
    newton_decrement: Leaf
    iterations: Leaf
    condition_number: Leaf

    def __repr__(self) -> str:
        if isinstance(self.converged, jax.core.Tracer) or jnp.ndim(self.converged):
            return f"Certificate(converged={self.converged})"
        near = (
            "mode certified" if self.newton_decrement <= COARSEST else "accepted, no mode certified"
        )
        return (
            f"{near if self.converged else 'NO MODE'}: Newton decrement "
            f"{self.newton_decrement:.0e}, condition number {self.condition_number:.2g}, "
            f"{self.iterations} iterations"
        )


class Mode(NamedTuple):
    """Where a search ended.

    Attributes:
        point: the point, shape (D,).
        beside: what f returns there beside its value.
        hessian: the Hessian of f there, shape (D, D).
        certificate: whether it is a mode.
    """

    point: Float[Array, " D"]
    beside: Any
    hessian: Float[Array, "D D"]
    certificate: Certificate


def find_mode(
    f: Callable[..., tuple[Array, Any]], start: Float[Array, " D"], *parameters: Any
) -> Mode:
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
        A :class:`Mode`. Nothing is raised: the certificate says whether there is a mode.
    """
    closed, constants = jax.closure_convert(f, start, *parameters)
    point, beside, hessian, certified = _find_mode(closed, start, (*parameters, *constants))
    return Mode(point, beside, hessian, Certificate(*certified))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _find_mode(f: Callable, start: Array, constants: Any) -> tuple:
    if start.size > MANY:
        start = descend(lambda x: f(x, *constants)[0], start)
    end = newton(lambda x: f(x, *constants), start)
    certified = (end.converged, end.newton_decrement, end.iterations, end.condition_number)
    return end.point, end.beside, end.hessian, certified


@_find_mode.defjvp
def _find_mode_jvp(f: Callable, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
    start, constants = primals
    point, beside, hessian, certified = _find_mode(f, start, constants)

    real = loud_tangents(tangents[1], certified[0])

    def derivative(g: Callable, d_point: Array) -> Any:
        return jax.jvp(g, (point, constants), (d_point, real))[1]

    def value(x: Array, c: Any) -> Array:
        return f(x, *c)[0]

    factor = jax.scipy.linalg.cho_factor(hessian, lower=True)
    d_gradient = derivative(jax.grad(value), jnp.zeros_like(point))
    d_point = -jax.scipy.linalg.cho_solve(factor, d_gradient)
    d_beside = derivative(lambda x, c: f(x, *c)[1], d_point)
    d_hessian = derivative(jax.hessian(value), d_point)
    d_certified = tuple(no_tangent(x) for x in certified)
    return (point, beside, hessian, certified), (d_point, d_beside, d_hessian, d_certified)


def loud_tangents(tangents: Any, converged: Array) -> Any:
    """The tangents of what a search depends on, NaN where it found no mode."""
    loud = jnp.where(converged, 1, jnp.nan)
    return jax.tree.map(lambda t: t if t.dtype == jax.dtypes.float0 else t * loud, tangents)


def no_tangent(x: Array) -> Any:
    """The tangent of a number that counts as constant."""
    if jnp.issubdtype(x.dtype, jnp.inexact):
        return jnp.zeros_like(x)
    return np.zeros(x.shape, jax.dtypes.float0)


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

    By Newton steps where the curvature is the Hessian, else by :func:`~laplacebook.search.lbfgs.polish`.
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
