"""The curvature of a log likelihood as a sum over rows of J'HJ, accumulated a batch at a time."""

from collections.abc import Callable
from functools import partial
from math import ceil, prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr
from jaxtyping import Array, Float, Int

from laplacebook.base.jaxprs import array_sizes
from laplacebook.base.many_points import NUMBERS
from laplacebook.curvature.dense_layers import Layer, LayeredProgram, find_layers
from laplacebook.curvature.outputs_and_loss import (
    moving_parameters,
    slope,
    split_likelihood,
    split_likelihood_and_weight,
)
from laplacebook.curvature.settings import Settings, require_memory
from laplacebook.model.rows import Rows

KINDS = ("gauss_newton", "empirical_fisher")
_PRIME = 999_983  # rows, more than any array has numbers for each
FEWEST = 16  # rows of a batch, however many coordinates there are


class LayerJacobian(NamedTuple):
    """J of the weight of a layer: its inputs times the Jacobian with respect to its outputs.

    Attributes:
        layer: which it is, with m inputs and k outputs at T positions of a row.
        inputs: of B rows, shape (B, T, m).
        of_outputs: shape (B, C, T, k).
    """

    layer: Layer
    inputs: Float[Array, "B T m"]
    of_outputs: Float[Array, "B C T k"]

    def whole(self) -> Float[Array, "B C _"]:
        """J in the order of the coordinates of the weight, summed over positions."""
        product = jnp.einsum("btm,bctk->bcmk", self.inputs, self.of_outputs)
        ordered = product.swapaxes(2, 3) if self.layer.axis else product
        return ordered.reshape(*ordered.shape[:2], self.layer.inputs * self.layer.outputs)


class RowFactors(NamedTuple):
    """J and H of B rows, whose share of the curvature is the sum of J'HJ.

    Attributes:
        jacobians: J, one part a latent site in the order of ``density.sites``: of the weight of a
            layer a :class:`LayerJacobian`, of any other site of d coordinates shape (B, C, d).
        hessians: H, shape (B, C, C).
        weights: by which the likelihood of each row is scaled, zero of one that is masked, shape (B,).
    """

    jacobians: list[LayerJacobian | Float[Array, "B C _"]]
    hessians: Float[Array, "B C C"]
    weights: Float[Array, " B"]

    def bent(self, jacobian: Float[Array, "B C _"]) -> Float[Array, "B C _"]:
        """H J for a part of J."""
        if self.hessians.shape[-1] == 1:
            return self.hessians * jacobian
        return jnp.einsum("bij,bjd->bid", self.hessians, jacobian)


def require_kind(kind: str) -> None:
    """Refuse what is no kind of curvature.

    Raises:
        ValueError: there is no such kind.
    """
    if kind not in KINDS:
        raise ValueError(f"kind is one of {', '.join(map(repr, KINDS))}, not {kind!r}")


def sum_over_rows(
    rows: Rows,
    u: Float[Array, " D"],
    kind: str,
    batch_size: int | None,
    share: Callable[[RowFactors], Any],
    every_layer: bool = False,
) -> Any:
    """The sum over batches of rows of what ``share`` makes of their factors.

    Args:
        rows: the rows of a model.
        u: the point, shape (D,).
        kind: ``"gauss_newton"``: J is the Jacobian of the row's outputs, and H the Hessian of their
            loss (:func:`~laplacebook.curvature.outputs_and_loss.split_likelihood`); ``"empirical_fisher"``: J' is the
            gradient of the row's loss, and H is 1.
        batch_size: how many rows at a time; by default so many that no array of theirs is larger
            than the sum, or than what a processor keeps at hand.
        share: a function of :class:`RowFactors` that returns a pytree of arrays.
        every_layer: whether a layer at several positions of a row is taken as one, too, and a
            matrix, or a kernel, that is not the weight of one layer is refused.

    Returns:
        A pytree of arrays.

    Raises:
        ValueError: there is no such kind.
        UnsupportedModel: a matrix, or the kernel of a convolution, is not the weight of exactly one
            layer, and ``every_layer`` is asked for.
        LaplaceError: the blocks of those that are no weights do not fit into memory, likewise.
    """
    require_kind(kind)
    add_up = partial(_sum, kind=kind, batch_size=batch_size, share=share, every_layer=every_layer)
    return rows.over_shards(add_up, u)


def _sum(
    rows: Rows,
    u: Array,
    kind: str,
    batch_size: int | None,
    share: Callable[[RowFactors], Any],
    every_layer: bool,
) -> Any:
    moving = moving_parameters(rows.take(jnp.zeros(1, int)), u)
    layered = _program(rows, u, moving, every_layer)
    # Traced once, for batches of all sizes.
    one = jax.jit(partial(_one_row, rows, u, moving, layered, kind), inline=True)

    def of_batch(index: Int[Array, " B"]) -> Any:
        # The last batch is made up by rows taken again, with weight zero.
        counted = (index < rows.number).astype(u.dtype)[:, None, None]
        return share(_row_factors(rows, layered, one, index % rows.number, counted))

    def add(total: Any, index: Array) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, of_batch(index)), None

    prime = jax.ShapeDtypeStruct((_PRIME,), jnp.result_type(int))
    program, shapes = jax.make_jaxpr(of_batch, return_shape=True)(prime)
    total = sum(prod(x.shape) for x in jax.tree.leaves(shapes))
    size = batch_size or _batch_size(program, total)
    batches = ceil(rows.number / size)
    index = jnp.arange(batches * ceil(rows.number / batches)).reshape(batches, -1)
    start = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return jax.lax.scan(add, start, index)[0]


def _batch_size(program: ClosedJaxpr, total: int) -> int:
    """So many rows that no array is larger than the sum, or than what a processor keeps at hand.

    Args:
        program: of a batch of a prime number of rows, so that a size tells whether it is one for each.
        total: how many numbers the sum has.
    """
    sizes = array_sizes(program.jaxpr)
    for_each = max((size // _PRIME for size in sizes if size % _PRIME == 0), default=1)
    return max(FEWEST, max(NUMBERS, total) // max(for_each, 1))


def _program(rows: Rows, u: Array, moving: list[list[bool]], every_layer: bool) -> LayeredProgram:
    """The outputs of a row as a function of u and of the row's index, with its layers."""

    def outputs(u: Array, index: Array) -> Array:
        return split_likelihood(rows.take(index[None]), u, moving)[0](u)

    sites = rows.density.sites
    program = find_layers(jax.make_jaxpr(outputs)(u, jnp.zeros((), int)), sites)
    if not every_layer:
        return program.at_one_position()
    if program.refused:
        raise program.refused[0]
    weights = {layer.site: (layer.inputs, layer.outputs) for layer in program.layers}
    require_memory(sites, Settings("gauss_newton", "kronecker"), u.dtype, weights)
    return program


def _row_factors(
    rows: Rows,
    program: LayeredProgram,
    one: Callable[[Array], tuple],
    index: Array,
    counted: Float[Array, "B 1 1"],
) -> RowFactors:
    """The factors of a batch of rows, those that are not counted as zero."""
    inputs, of_layers, of_sites, hessians, weights = jax.vmap(one)(index)
    by_layer = zip(program.layers, inputs, of_layers, strict=True)
    layers = {x.site: LayerJacobian(x, a * counted, jac) for x, a, jac in by_layer}
    others = iter(of_sites)
    sites = range(len(rows.density.sites))
    jacobians = [layers[i] if i in layers else next(others) for i in sites]
    return RowFactors(jacobians, hessians * counted, weights * counted[:, 0, 0])


def _one_row(
    rows: Rows,
    u: Array,
    moving: list[list[bool]],
    program: LayeredProgram,
    kind: str,
    index: Array,
) -> tuple[list[Array], list[Array], list[Array], Array, Array]:
    """Backwards from the outputs of a row to its layers and other sites.

    Returns:
        Of each layer the inputs, shape (T, m), and J, shape (C, T, k); J of the other sites, shape
        (C, d); H, shape (C, C); and the weight of the row.
    """
    # Of the parts and not of the vector: what J is made of stays apart, and need not be stored.
    parts = [jnp.ravel(x) for x in rows.density.unravel(u).values()]
    _, loss, weight = split_likelihood_and_weight(rows.take(index[None]), u, moving)
    eta, pullback, inputs = program.backwards(parts, index)
    if kind == "gauss_newton":
        rays, hessian = jnp.eye(eta.size, dtype=eta.dtype), jax.hessian(loss)(eta)
    else:
        rays, hessian = slope(loss, eta)[None], jnp.ones((1, 1), eta.dtype)
    of_layers, of_sites = jax.vmap(pullback)(rays)
    return inputs, of_layers, of_sites, hessian, weight
