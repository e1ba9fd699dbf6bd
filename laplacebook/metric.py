"""Distances in posterior standard deviations, by the curvature at a point."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

__all__ = ["COARSEST", "Metric", "rounding_floor"]

COARSEST = 1e-3  # posterior standard deviations: no mode is certified to less than that


def rounding_floor(size: int, dtype: Any) -> Array:
    """The smallest eigenvalue of a matrix with unit diagonal that can be told from zero.

    A sum over many observations rounds by more than the machine precision. What is a quarter of
    the digits above it is certain, and is known to a quarter of the digits.
    """
    eps = jnp.finfo(dtype).eps
    return jnp.asarray(max(4 * eps**0.75, 10 * size * eps), dtype)


class Metric(NamedTuple):
    """The curvature H at a point in units of its own diagonal, and the slope in those units.

    Attributes:
        scale: S, the diagonal of H to the power -1/2, shape (D,).
        values: the eigenvalues of S H S in rising order, shape (D,).
        vectors: V, its eigenvectors in columns, shape (D, D).
        slope: V' S g with g the gradient, shape (D,).
        regular: whether S H S is positive definite beyond rounding.
        decrement: the Newton decrement sqrt(g' H^-1 g), at least the rounding of the coordinates;
            infinite where H is not regular.
        tolerance: the decrement that is small enough.
    """

    scale: Array
    values: Array
    vectors: Array
    slope: Array
    regular: Array
    decrement: Array
    tolerance: Array

    @classmethod
    def unknown(cls, x: Float[Array, " D"]) -> "Metric":
        """Before anything was evaluated: no slope, and an infinite decrement."""
        ones, one, no = jnp.ones_like(x), jnp.ones((), x.dtype), jnp.zeros((), bool)
        return cls(ones, ones, jnp.eye(x.size, dtype=x.dtype), 0 * ones, no, jnp.inf * one, one)

    @classmethod
    def of(
        cls, x: Float[Array, " D"], gradient: Float[Array, " D"], hessian: Float[Array, "D D"]
    ) -> "Metric":
        """The metric at x; one of a Hessian that is not finite is not regular."""
        diagonal = jnp.abs(jnp.diagonal(hessian))
        scale = jnp.where(diagonal > 0, lax.rsqrt(diagonal), 1)
        scaled = scale[:, None] * hessian * scale
        finite = jnp.all(jnp.isfinite(scaled))
        identity = jnp.eye(x.size, dtype=x.dtype)
        values, vectors = jnp.linalg.eigh(jnp.where(finite, scaled, identity))
        slope = vectors.T @ (scale * gradient)
        regular = finite & (values[0] > rounding_floor(x.size, x.dtype))
        eps = jnp.finfo(x.dtype).eps
        rounding = eps * jnp.max(jnp.abs(x) / scale)
        measured = jnp.sqrt(jnp.sum(slope**2 / jnp.where(regular, values, 1)))
        decrement = jnp.where(regular, jnp.maximum(measured, rounding), jnp.inf)
        tolerance = jnp.clip(4 * rounding, jnp.sqrt(eps), COARSEST)
        return cls(scale, values, vectors, slope, regular, decrement, tolerance)

    def condition_number(self) -> Float[Array, ""]:
        """Of S H S; infinite where that is not positive definite."""
        return jnp.where(self.regular, self.values[-1] / self.values[0], jnp.inf)

    def small(self) -> Array:
        """Whether the point is near enough to a minimum."""
        return self.decrement <= self.tolerance

    def whiten(self, gradient: Float[Array, " D"]) -> Float[Array, " D"]:
        """A gradient in posterior standard deviations along the eigenvectors."""
        return self.vectors.T @ (self.scale * gradient) * lax.rsqrt(self._curvature())

    def step(self, damping: Float[Array, ""]) -> Float[Array, " D"]:
        """The damped Newton step; where the curvature is negative, along it and away."""
        step = -self.slope / (self._curvature() + damping)
        upward = self.values[0] < -rounding_floor(step.size, step.dtype)
        size = jnp.maximum(jnp.abs(step[0]), 1 / (1 + damping))
        away = jnp.where(self.slope[0] < 0, size, -size)
        return self._back(step.at[0].set(jnp.where(upward, away, step[0])))

    def lengths(self, step: Float[Array, " D"]) -> Float[Array, " D"]:
        """A step in posterior standard deviations along the eigenvectors."""
        return self.vectors.T @ (step / self.scale) * jnp.sqrt(self._curvature())

    def unwhiten(self, lengths: Float[Array, " D"]) -> Float[Array, " D"]:
        """The inverse of :meth:`lengths`."""
        return self._back(lengths * lax.rsqrt(self._curvature()))

    def probe(self) -> Float[Array, " D"]:
        """A short step along all eigenvectors, in posterior standard deviations.

        Far longer than the distance left to the minimum, so that a tail or a quartic shows, and
        short enough to stay in a curved valley: 0.00001 in float64, 0.01 in float32. The signs
        are in no order that a model has.
        """
        size = 2 * jnp.finfo(self.scale.dtype).eps ** (1 / 3)
        signs = np.random.default_rng(0).choice([-size, size], self.scale.size)
        return jnp.asarray(signs, self.scale.dtype)

    def _curvature(self) -> Array:
        """The absolute eigenvalues, or where they cannot be told from zero what can be."""
        return jnp.maximum(
            jnp.abs(self.values), rounding_floor(self.values.size, self.values.dtype)
        )

    def _back(self, step: Array) -> Array:
        return self.scale * (self.vectors @ step)
