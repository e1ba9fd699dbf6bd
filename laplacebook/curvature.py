"""The curvature of a log joint."""

from collections.abc import Callable
from math import ceil
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["value_gradient_hessian"]

COLUMNS = 32  # of the Hessian at a time: wide enough for matrix products, narrow enough for memory


def value_gradient_hessian(
    f: Callable[[Array], tuple[Array, Any]], x: Float[Array, " D"]
) -> tuple[Float[Array, ""], Any, Float[Array, " D"], Float[Array, "D D"]]:
    """A scalar function, its gradient and its Hessian at x, forward over reverse.

    Args:
        f: a twice differentiable function of a vector of shape (D,) that returns a scalar and,
            beside it, anything else worth keeping.
        x: the point, shape (D,).

    Returns:
        f(x), shape (); what f returned beside it; the gradient, shape (D,); the symmetric Hessian,
        shape (D, D).
    """

    def gradient(x: Array) -> tuple[Array, tuple[Array, Any, Array]]:
        (value, beside), slope = jax.value_and_grad(f, has_aux=True)(x)
        return slope, (value, beside, slope)

    if x.size <= COLUMNS:
        hessian, (value, beside, slope) = jax.jacfwd(gradient, has_aux=True)(x)
    else:
        slope, column, (value, beside, _) = jax.linearize(gradient, x, has_aux=True)
        chunks = ceil(x.size / COLUMNS)
        width = ceil(x.size / chunks)
        directions = jnp.eye(chunks * width, x.size, dtype=x.dtype).reshape(chunks, width, x.size)
        hessian = jax.lax.map(jax.vmap(column), directions).reshape(-1, x.size)[: x.size]
    return value, beside, slope, (hessian + hessian.T) / 2
