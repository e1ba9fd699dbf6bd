"""What a precision matrix can be. Here: dense."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float, Key

__all__ = ["DensePrecision"]

Leaf = Any  # of a pytree: an array, or what a JAX transformation puts in its place


@partial(jax.tree_util.register_dataclass, data_fields=["matrix", "cholesky"], meta_fields=[])
@dataclass(frozen=True)
class DensePrecision:
    """A symmetric positive-definite matrix A of shape (D, D), and its Cholesky factor L with A = L L'.

    Nothing is added to the diagonal: a matrix that is not positive definite has a factor of NaN,
    and so has everything computed from it.
    """

    matrix: Leaf
    cholesky: Leaf

    @classmethod
    def of(cls, matrix: Float[Array, "D D"]) -> "DensePrecision":
        """Factorise a symmetric matrix."""
        return cls(matrix, jnp.linalg.cholesky(matrix))

    def matvec(self, v: Float[Array, " D"]) -> Float[Array, " D"]:
        """A v."""
        return self.matrix @ v

    def solve(self, v: Float[Array, "D *K"]) -> Float[Array, "D *K"]:
        """A^-1 v."""
        return cho_solve((self.cholesky, True), v)

    def log_determinant(self) -> Float[Array, "*B"]:
        """log |A|."""
        return 2 * jnp.sum(jnp.log(jnp.diagonal(self.cholesky, axis1=-2, axis2=-1)), axis=-1)

    def sample(
        self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()
    ) -> Float[Array, "*S D"]:
        """Draws from N(0, A^-1): L' x = z with z standard normal, so that Cov x = L'^-1 L^-1 = A^-1."""
        normal = jax.random.normal(key, (*sample_shape, self.matrix.shape[-1]), self.matrix.dtype)
        return self.whitened(normal.reshape(-1, normal.shape[-1]).T).T.reshape(normal.shape)

    def whitened(self, z: Float[Array, "D *K"]) -> Float[Array, "D *K"]:
        """L'^-1 z: a step that z measures in posterior standard deviations."""
        return solve_triangular(self.cholesky, z, lower=True, trans="T")

    def inverse(self) -> Float[Array, "*B D D"]:
        """A^-1, dense."""
        root = self._root_of_inverse()
        return jnp.swapaxes(root, -1, -2) @ root

    def diagonal_of_inverse(self) -> Float[Array, "*B D"]:
        """The diagonal of A^-1: the marginal variances."""
        return jnp.sum(self._root_of_inverse() ** 2, axis=-2)

    def _root_of_inverse(self) -> Float[Array, "*B D D"]:
        """L^-1, with A^-1 = L'^-1 L^-1."""
        identity = jnp.eye(self.matrix.shape[-1], dtype=self.matrix.dtype)
        identity = jnp.broadcast_to(identity, self.matrix.shape)
        return solve_triangular(self.cholesky, identity, lower=True)
