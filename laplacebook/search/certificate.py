"""Where a search ended, and how sure it is that this is a mode."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from laplacebook.base.namespace import Numbers, namespace
from laplacebook.base.pytrees import Leaf, is_traced, loud, on_host, register_dataclass
from laplacebook.gaussian.precision import Precision
from laplacebook.search.metric import COARSEST


@register_dataclass
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
            deviations; with the Hessian at least the rounding of the coordinates. Of a fit that keeps
            a part of a Gauss-Newton or Fisher matrix of few weights, the larger of that by the part
            and by the whole, where that is positive definite: along a ridge a part says less than
            there is.
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
        if is_traced(self.converged) or jnp.ndim(self.converged):
            return f"Certificate(converged={self.converged})"
        exact = float(self.newton_decrement) <= COARSEST
        near = "mode certified" if exact else "accepted, no mode certified"
        return (
            f"{near if self.converged else 'NO MODE'}: Newton decrement "
            f"{self.newton_decrement:.0e}, condition number {self.condition_number:.2g}, "
            f"{self.iterations} iterations"
        )


class Search(NamedTuple):
    """Where a search for the minimum of a function f ended, and what is known there.

    Attributes:
        point: shape (D,).
        beside: what f returns there beside its value.
        curvature: the Hessian of f there, shape (D, D), or what stands for it: a precision. Where
            nothing is certified, that of a point nearby.
        certificate: whether the point is a minimum.
    """

    point: Leaf
    beside: Any
    curvature: Any
    certificate: Certificate


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


def fit_of(found: Search, sound: Numbers) -> Fit:
    """The fit where a search ended, if that is sound."""
    point, terms, precision = found[:3]
    if namespace(sound) is jnp or not sound:
        # A factor, not a selection, so that derivatives of a failed fit are NaN too.
        factor = loud(sound, point.dtype)
        point, terms, precision = jax.tree.map(lambda x: x * factor, on_host(found[:3]))
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


def as_result(fit: Fit) -> Fit:
    """The same with arrays of JAX in what a result, or an error, is made of: each takes ten microseconds."""
    if not fit.certificate.converged:
        return jax.device_put(fit)
    return Fit._make([*jax.device_put(fit[:-2]), *fit[-2:]])
