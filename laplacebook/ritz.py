"""Extreme eigenvalues of a symmetric matrix that is known by its products with vectors."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

__all__ = ["ritz"]


def ritz(
    product: Callable[[Float[Array, " D"]], Float[Array, " D"]],
    like: Float[Array, " D"],
    steps: int,
) -> tuple[Float[Array, " K"], Float[Array, "K D"]]:
    """The Ritz values and vectors of a symmetric matrix after some steps of Lanczos.

    Every new direction is orthogonalised against all earlier ones, twice, so that rounding makes no
    copies. The smallest Ritz value is never below the smallest eigenvalue, and the largest never
    above the largest. If the steps exhaust the space before they are done, Ritz values of zero with
    vectors of zero stand for the rest.

    Args:
        product: v -> M v, a linear function of a vector of shape (D,).
        like: a vector of that shape and precision.
        steps: K, or D where that is less: as many products are computed.

    Returns:
        The values in rising order, shape (K,), and the vectors in rows, shape (K, D).
    """
    size, dtype = like.size, like.dtype
    steps = min(steps, size)
    seed = jnp.asarray(np.random.default_rng(0).normal(size=size), dtype)
    basis = jnp.zeros((steps, size), dtype).at[0].set(seed / jnp.linalg.norm(seed))

    def extend(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        basis, image = carry
        new = product(basis[i])
        left = new - basis.T @ (basis @ new)
        left -= basis.T @ (basis @ left)
        length = jnp.linalg.norm(left)
        known = length <= jnp.finfo(dtype).eps ** 0.5 * jnp.linalg.norm(new)
        left = jnp.where(known, 0, left / jnp.where(known, 1, length))
        return basis.at[i + 1].set(left, mode="drop"), image.at[i].set(new)

    basis, image = lax.fori_loop(0, steps, extend, (basis, jnp.zeros_like(basis)))
    small = basis @ image.T
    values, vectors = jnp.linalg.eigh((small + small.T) / 2)
    return values, vectors.T @ basis
