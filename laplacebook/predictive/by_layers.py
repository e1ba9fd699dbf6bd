"""Moments of a linearised predictor by the layers of a network: what is a row of J is their inputs times slopes."""

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from laplacebook.curvature.dense_layers import Layer, LayeredProgram, find_layers
from laplacebook.curvature.row_jacobians import LayerJacobian
from laplacebook.gaussian.kronecker import Eigenbasis, KroneckerPrecision
from laplacebook.gaussian.precision import DiagonalPrecision, Precision, blocks_of, parts_of
from laplacebook.model.sites import Site


class _Layer(NamedTuple):
    """The block of a layer's weight, which J meets by the inputs and by the slopes of the outputs.

    Attributes:
        of_inputs: eigenvectors of the factor of its inputs, shape (m, m); None for the identity.
        of_outputs: of that of its outputs, shape (k, k), likewise.
        variances: of the weight in this basis, shape (m, k).
    """

    of_inputs: Array | None
    of_outputs: Array | None
    variances: Float[Array, "m k"]


class ByLayers(NamedTuple):
    """The predictor of a row as a function of u and of its number, its layers known.

    Attributes:
        program: the function.
        sizes: of the latent sites.
    """

    program: LayeredProgram
    sizes: tuple[int, ...]

    @classmethod
    def of(
        cls,
        predictor: Callable[[Array, Array], Array],
        u: Float[Array, " D"],
        precision: Precision,
        sites: Sequence[Site],
    ) -> "ByLayers | None":
        """Where the precision of a weight meets inputs and slopes apart, and there is a layer.

        Args:
            predictor: of u and of the number of a row, shape () or (C,).
            u: a point.
            precision: of u.
            sites: the latent sites.
        """
        sizes = tuple(site.size for site in sites)
        if isinstance(precision, KroneckerPrecision):
            if sizes != tuple(block.size for block in precision.blocks):
                return None
        elif not isinstance(precision, DiagonalPrecision):
            return None
        traced = jax.make_jaxpr(lambda u, i: predictor(u, i).ravel())(u, jnp.zeros((), int))
        program = find_layers(traced, tuple(sites))
        return cls(program, sizes) if program.layers else None

    def numbers(self, outputs: int) -> int:
        """How many of them a row has in memory, of so many outputs."""
        weights = {layer.site for layer in self.program.layers}
        others = sum(size for i, size in enumerate(self.sizes) if i not in weights)
        each = [
            max(x.inputs * x.outputs if x.positions > 1 else x.outputs, x.positions * x.outputs)
            for x in self.program.layers
        ]
        inputs = sum(x.positions * x.inputs for x in self.program.layers)
        return outputs * (others + sum(each)) + inputs

    def moments(
        self,
        u: Float[Array, " D"],
        precision: Precision,
        step: Float[Array, " D"],
        index: Int[Array, " B"],
        joint: bool,
    ) -> tuple[Float[Array, "B C"], Float[Array, "B C"], Array]:
        """Of some rows the predictor, its slope along a step, and J A^-1 J'.

        Args:
            u: the point.
            precision: A.
            step: shape (D,).
            index: the rows.
            joint: whether between the outputs of a row, or of each alone.

        Returns:
            Shapes (B, C), (B, C), and (B, C, C) or (B, C).
        """
        parts, steps = parts_of(u, self.sizes), parts_of(step, self.sizes)

        def one(number: Array) -> tuple[Array, list[Array], list[Array], list[Array]]:
            eta, pullback, inputs = self.program.backwards(parts, number)
            return eta, inputs, *jax.vmap(pullback)(jnp.eye(eta.size, dtype=eta.dtype))

        eta, inputs, of_layers, of_sites = jax.vmap(one)(index)
        layers = zip(self.program.layers, inputs, of_layers, strict=True)
        weights = {layer.site: LayerJacobian(layer, *given) for layer, *given in layers}
        others = iter(of_sites)
        slope, squares = jnp.zeros_like(eta), jnp.zeros((), eta.dtype)
        for i, block in enumerate(_blocks(precision, self.sizes)):
            if i in weights:
                slope += _along(weights[i], steps[i])
                squares += _squares(weights[i], _of_block(weights[i].layer, block), joint)
            else:
                jacobian = next(others)
                slope += jacobian @ steps[i]
                squares += _products(_half(block, jacobian), joint)
        return eta, slope, squares


def _blocks(precision: Precision, sizes: Sequence[int]) -> Sequence[Precision]:
    if isinstance(precision, DiagonalPrecision):
        return [DiagonalPrecision(part) for part in parts_of(precision.diagonal, sizes)]
    return blocks_of(precision)


def _of_block(layer: Layer, block: Precision) -> _Layer | Precision:
    """The block by the inputs and the outputs of the layer, if that is how it is known."""
    shape = (layer.outputs, layer.inputs) if layer.axis else (layer.inputs, layer.outputs)
    if isinstance(block, DiagonalPrecision):
        variances = block.diagonal_of_inverse().reshape(shape)
        return _Layer(None, None, variances.T if layer.axis else variances)
    if not isinstance(block, Eigenbasis) or block.eigenvalues.shape != shape:
        return block
    sides, variances = (block.left_vectors, block.right_vectors), 1 / block.eigenvalues
    return _Layer(*sides[::-1], variances.T) if layer.axis else _Layer(*sides, variances)


def _along(jacobian: LayerJacobian, step: Float[Array, " d"]) -> Float[Array, "B C"]:
    layer = jacobian.layer
    shape = (layer.outputs, layer.inputs) if layer.axis else (layer.inputs, layer.outputs)
    weight = step.reshape(shape).T if layer.axis else step.reshape(shape)
    return jnp.einsum("btk,bctk->bc", jacobian.inputs @ weight, jacobian.of_outputs)


def _squares(jacobian: LayerJacobian, block: _Layer | Precision, joint: bool) -> Array:
    """J A^-1 J' of a layer."""
    if not isinstance(block, _Layer):
        return _products(_half(block, jacobian.whole()), joint)
    inputs = jacobian.inputs if block.of_inputs is None else jacobian.inputs @ block.of_inputs
    slopes = jacobian.of_outputs
    slopes = slopes if block.of_outputs is None else slopes @ block.of_outputs
    if jacobian.layer.positions > 1:
        half = jnp.einsum("btm,bctk->bcmk", inputs, slopes) * jnp.sqrt(block.variances)
        return _products(half.reshape(*half.shape[:2], prod(half.shape[2:])), joint)
    spread = jnp.sqrt(inputs[:, 0] ** 2 @ block.variances)
    return _products(slopes[:, :, 0] * spread[:, None], joint)


def _half(block: Precision, jacobian: Float[Array, "B C d"]) -> Float[Array, "B C d"]:
    return block.half_solve(jacobian.reshape(-1, block.size).T).T.reshape(jacobian.shape)


def _products(half: Float[Array, "B C d"], joint: bool) -> Array:
    return half @ jnp.swapaxes(half, 1, 2) if joint else jnp.sum(half**2, axis=2)
