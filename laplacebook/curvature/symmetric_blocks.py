"""Blocks of a sum over rows of J'HJ: of a symmetric matrix, only what is distinct is computed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.pytrees import STATIC, register_dataclass
from laplacebook.curvature.row_jacobians import LayerJacobian, RowFactors

STRIPS = 4  # of a symmetric matrix, of which only the upper blocks are computed: 5/8 of the work
WIDE = 256  # coordinates, from which on that pays
DEEP = 64  # C times the square of the inputs or the outputs of a layer, from which on pairs pay


@register_dataclass
@dataclass(frozen=True)
class Strips:
    """A symmetric matrix by horizontal strips, each from the diagonal to the right.

    Attributes:
        upper: shapes (b - a, d - a) for rows a to b.
    """

    upper: Any

    def whole(self) -> Float[Array, "d d"]:
        """The matrix."""
        return mirrored(self.upper)


@register_dataclass
@dataclass(frozen=True)
class LayerBlock:
    """The block of the weight of a layer with m inputs and k outputs.

    Its element for the weights from input i to output j and from input p to output q is
    sum_n a_ni a_np (J_n' H_n J_n)_jq, the same for i and p, and for j and q, exchanged: with pairs
    of inputs in rows and pairs of outputs in columns it is a product of matrices, with about half
    the work of one triangle of the block, and with as little for many outputs of the model as for one.

    Attributes:
        products: shape (m (m + 1) / 2, k (k + 1) / 2).
        sizes: m and k.
        axis: that of :class:`~laplacebook.curvature.dense_layers.Layer`.
    """

    products: Any
    sizes: tuple[int, int] = field(metadata=STATIC)
    axis: int = field(metadata=STATIC)

    def whole(self) -> Float[Array, "mk mk"]:
        """The block, in the order of the coordinates of the weight."""
        rows, columns = map(_places, self.sizes)
        grid = self.products[rows][:, :, columns]  # (m, m, k, k)
        order = (2, 0, 3, 1) if self.axis else (0, 2, 1, 3)
        size = self.sizes[0] * self.sizes[1]
        return grid.transpose(order).reshape(size, size)


def pays(part: LayerJacobian | Array) -> bool:
    """Whether the block of a site is better computed from pairs of inputs and of outputs."""
    if not isinstance(part, LayerJacobian):
        return False
    narrow = min(part.layer.inputs, part.layer.outputs)
    return part.of_outputs.shape[1] * narrow**2 >= DEEP


def block_of(parts: Sequence[LayerJacobian | Array], factors: RowFactors) -> Strips | LayerBlock:
    """The block of J'HJ of consecutive sites, summed over the rows of a batch.

    Args:
        parts: those of J, of sites with one coordinate or more.
        factors: which they belong to.

    Returns:
        What is distinct of it, which adds up over batches.
    """
    if len(parts) == 1 and isinstance(part := parts[0], LayerJacobian) and pays(part):
        return _layer_block(part, factors)
    left, right = flat(parts), flat(parts, factors)
    size = left.shape[1]
    cuts = np.linspace(0, size, 1 + (STRIPS if size >= WIDE else 1)).astype(int).tolist()
    return Strips([left[:, a:b].T @ right[:, a:] for a, b in zip(cuts, cuts[1:], strict=False)])


def _layer_block(part: LayerJacobian, factors: RowFactors) -> LayerBlock:
    layer, inputs, of_outputs = part.layer, part.inputs[:, 0], part.of_outputs[:, :, 0]
    one, other = np.triu_indices(layer.inputs)
    products = jnp.einsum("bcj,bcq->bjq", of_outputs, factors.bent(of_outputs))
    distinct = products[:, *np.triu_indices(layer.outputs)]
    of_pairs = (inputs[:, one] * inputs[:, other]).T @ distinct
    return LayerBlock(of_pairs, (layer.inputs, layer.outputs), layer.axis)


def flat(
    parts: Sequence[LayerJacobian | Array], factors: RowFactors | None = None
) -> Float[Array, "BC d"]:
    """Parts of J, or with ``factors`` of H J, of B rows with C outputs each, as one matrix."""
    whole = [part.whole() if isinstance(part, LayerJacobian) else part for part in parts]
    bent = whole if factors is None else [factors.bent(part) for part in whole]
    joined = [part.reshape(part.shape[0] * part.shape[1], part.shape[2]) for part in bent]
    return jnp.concatenate(joined, axis=1)


def mirrored(strips: Sequence[Float[Array, "_ _"]]) -> Float[Array, "d d"]:
    """The symmetric matrix of which these are horizontal strips, each from the diagonal to the right."""
    size = strips[0].shape[1]
    upper = jnp.concatenate([jnp.pad(x, ((0, 0), (size - x.shape[1], 0))) for x in strips])
    index = jnp.arange(size)
    return jnp.where(index[:, None] <= index, upper, upper.T)


def _places(number: int) -> np.ndarray:
    """For each two of a number of things the place of their pair, shape (number, number)."""
    one, other = np.triu_indices(number)
    places = np.zeros((number, number), int)
    places[one, other] = places[other, one] = np.arange(one.size)
    return places
