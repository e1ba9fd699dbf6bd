"""Find the mode, say how sure that is, and differentiate through it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.curvature import in_single, rough_hessian
from laplacebook.descent import descend
from laplacebook.metric import COARSEST, FEW
from laplacebook.newton import newton
from laplacebook.precision import Leaf

__all__ = ["MANY", "Certificate", "find_mode", "loud_tangents", "no_tangent"]

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
    rough: Callable | None = None
    low: tuple = ()
    if start.dtype == jnp.float64 and start.size > FEW:
        rounded = in_single(parameters)
        rough, captured = jax.closure_convert(partial(rough_hessian, f), start, *rounded)
        low = (*rounded, *captured)
    searched = _find_mode(closed, rough, start, (*parameters, *constants), low)
    point, beside, hessian, certified = searched
    return Mode(point, beside, hessian, Certificate(*certified))


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _find_mode(
    f: Callable, rough: Callable | None, start: Array, constants: Any, low: Any
) -> tuple:
    if start.size > MANY:
        start = descend(lambda x: f(x, *constants)[0], start)
    hessian = None if rough is None else lambda x: rough(x, *low)
    end = newton(lambda x: f(x, *constants), start, hessian)
    certified = (end.converged, end.newton_decrement, end.iterations, end.condition_number)
    return end.point, end.beside, end.hessian, certified


@_find_mode.defjvp
def _find_mode_jvp(
    f: Callable, rough: Callable | None, primals: tuple, tangents: tuple
) -> tuple[tuple, tuple]:
    start, constants, low = primals
    point, beside, hessian, certified = _find_mode(f, rough, start, constants, low)

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
