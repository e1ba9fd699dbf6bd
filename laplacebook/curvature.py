"""The curvature of a log joint."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, Float

__all__ = ["value_gradient_hessian"]


def value_gradient_hessian(
    f: Callable[[Array], tuple[Array, Any]], x: Float[Array, " D"]
) -> tuple[Float[Array, ""], Any, Float[Array, " D"], Float[Array, "D D"]]:
    """A scalar function, its gradient and its Hessian at x, in one forward-over-reverse pass.

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

    hessian, (value, beside, slope) = jax.jacfwd(gradient, has_aux=True)(x)
    return value, beside, slope, (hessian + hessian.T) / 2
