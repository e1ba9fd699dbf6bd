"""A convolution as a dense layer: of the patches of what it is applied to."""

from collections.abc import Callable
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jaxtyping import Array, Float, Shaped

from laplacebook.base.jaxprs import Atom, Constant, equations_of, evaluate, primitives
from laplacebook.base.namespace import Numbers

NAME = "conv_general_dilated"  # of the primitive


def refusal(source: Any, operand: int) -> str | None:
    """Why a convolution is no dense layer of the latent site that is one of its operands, if it is none."""
    groups = source.params["feature_group_count"]
    if operand == 0:
        return "a convolution is applied to it, of which it is not the kernel"
    if groups != 1 or source.params["batch_group_count"] != 1:
        each = (
            " (a depthwise convolution)"
            if source.invars[1].aval.shape[_axes(source)[1]] == 1
            else ""
        )
        return f"its convolution has groups of channels, feature_group_count={groups}{each}"
    return None


def as_matrix(source: Any, kernel: Shaped[Numbers, "..."]) -> Shaped[Numbers, "m k"]:
    """A kernel as the weight of a dense layer, with the inputs in the order of :func:`patches`.

    Args:
        source: the equation of JAX.
        kernel: an array in the layout of the kernel.

    Returns:
        A row for each channel and place in the kernel, the channels first; a column for each output.
    """
    of_outputs = kernel.transpose(_axes(source))
    return of_outputs.reshape(of_outputs.shape[0], -1).T


def patches(source: Any, x: Float[Array, "..."]) -> Float[Array, "T m"]:
    """What the kernel is multiplied with at each of T positions, zeros beside the edge included."""
    params = source.params
    x = x.transpose(params["dimension_numbers"].lhs_spec)
    edges = zip(params["padding"], params["lhs_dilation"], strict=True)
    widths = [(0, 0, 0), (0, 0, 0), *((low, high, step - 1) for (low, high), step in edges)]
    x = jax.lax.pad(x, jnp.zeros((), x.dtype), widths)
    kernel = [source.invars[1].aval.shape[axis] for axis in _axes(source)[2:]]
    places, strides = _places(source), params["window_strides"]
    seen = []
    # By slices, which move numbers: the convolution that JAX has for it would multiply them by ones.
    for offset in np.ndindex(*kernel):
        first = [i * step for i, step in zip(offset, params["rhs_dilation"], strict=True)]
        last = [a + (n - 1) * s + 1 for a, n, s in zip(first, places, strides, strict=True)]
        seen.append(jax.lax.slice(x, (0, 0, *first), (*x.shape[:2], *last), (1, 1, *strides)))
    stacked = jnp.stack(seen, axis=2)  # (batch, channels, places in the kernel, *positions)
    return jnp.moveaxis(stacked.reshape(*x.shape[:2], len(seen), -1), 3, 1).reshape(
        x.shape[0] * prod(places), x.shape[1] * len(seen)
    )


def as_output(source: Any, outputs: Float[Array, "T k"]) -> Float[Array, "..."]:
    """What a dense layer computes at T positions, in the layout of the output of the convolution."""
    channels_last = outputs.reshape(-1, *_places(source), outputs.shape[1])
    spec = source.params["dimension_numbers"].out_spec
    return jnp.moveaxis(channels_last, -1, 1).transpose(np.argsort(spec))


def with_products(program: ClosedJaxpr) -> Callable[..., Array]:
    """The same function of one array, each convolution without groups computed as a product of matrices.

    Within the loops of a compiled program XLA computes convolutions on a CPU 25 times slower than outside of
    them (jax-ml/jax issue 12868), and products as fast.

    Args:
        program: what ``jax.make_jaxpr`` returns of the function.
    """
    if NAME not in primitives(program):
        return lambda *args: jaxpr_as_fun(program)(*args)[0]
    equations, output = equations_of(program)

    def run(*args: Array) -> Array:
        values: dict[Any, Any] = dict(enumerate(args))

        def read(atom: Atom) -> Any:
            return atom.value if isinstance(atom, Constant) else values[atom]

        for source, inputs, outputs in equations:
            operands = [read(atom) for atom in inputs]
            if source.primitive.name == NAME and refusal(source, 1) is None:
                x, kernel = operands
                product = patches(source, x) @ as_matrix(source, kernel)
                values[outputs[0]] = as_output(source, product)
            else:
                values.update(zip(outputs, evaluate(source, operands), strict=True))
        return read(output)

    return run


def _axes(source: Any) -> tuple[int, ...]:
    """Of the kernel: that of the outputs, that of the inputs, and those of space."""
    return source.params["dimension_numbers"].rhs_spec


def _places(source: Any) -> list[int]:
    """How many positions there are along each axis of space."""
    output = source.outvars[0].aval.shape
    return [output[axis] for axis in source.params["dimension_numbers"].out_spec[2:]]
