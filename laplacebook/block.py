"""A precision in blocks: groups of coordinates that are independent of one another."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from laplacebook.checks import coordinates
from laplacebook.precision import DensePrecision, Precision, loud

__all__ = ["BlockPrecision", "blocks_of", "parts_of"]


@partial(jax.tree_util.register_dataclass, data_fields=["blocks"], meta_fields=[])
@dataclass(frozen=True)
class BlockPrecision(Precision):
    """Independent groups of consecutive coordinates, such as the sites of a model.

    In the book: :prf:ref:`structured-curvature-blocks` of :doc:`/book/structured-curvature`.

    Attributes:
        blocks: a precision for each group, in the order of the coordinates.
    """

    blocks: tuple[Any, ...]

    @classmethod
    def of(cls, blocks: tuple[Float[Array, "_ _"], ...]) -> "BlockPrecision":
        """Factorise the symmetric matrices on the diagonal, of shapes (d_1, d_1), (d_2, d_2), ..."""
        return cls(tuple(DensePrecision.of(block) for block in blocks))

    @property
    def shape(self) -> tuple[int, ...]:
        """``(*B, D)``."""
        return (*self.blocks[0].shape[:-1], sum(block.size for block in self.blocks))

    def matvec(self, v: Float[Array, " D"]) -> Float[Array, " D"]:
        """A v."""
        return self._each(lambda block, part: block.matvec(part), coordinates(v, self.shape))

    def log_determinant(self) -> Float[Array, "*B"]:
        """``log |A|``."""
        return sum(block.log_determinant() for block in self.blocks)

    def whitened(self, z: Float[Array, "D *K"]) -> Float[Array, "D *K"]:
        """R'^-1 z, with the roots of the blocks on the diagonal of R."""
        return self._each(lambda block, part: block.whitened(part), z) * self._loud()

    def half_solve(self, v: Float[Array, "D *K"]) -> Float[Array, "D *K"]:
        """R^-1 v."""
        return self._each(lambda block, part: block.half_solve(part), v) * self._loud()

    def diagonal_of_matrix(self) -> Float[Array, "*B D"]:
        """The diagonal of A."""
        return jnp.concatenate([block.diagonal_of_matrix() for block in self.blocks], axis=-1)

    def diagonal_of_inverse(self) -> Float[Array, "*B D"]:
        """The diagonal of A^-1: the marginal variances."""
        diagonals = [block.diagonal_of_inverse() for block in self.blocks]
        return jnp.concatenate(diagonals, axis=-1) * self._loud()[..., None]

    def _each(
        self, method: Callable[[Precision, Array], Array], v: Float[Array, "D *K"]
    ) -> Float[Array, "D *K"]:
        sizes = [block.size for block in self.blocks]
        parts = parts_of(coordinates(v, self.shape, columns=True), sizes)
        return jnp.concatenate([method(*pair) for pair in zip(self.blocks, parts, strict=True)])

    def _loud(self) -> Float[Array, "*B"]:
        """One; NaN if one of the blocks is not positive definite."""
        return loud(~jnp.isnan(self.log_determinant()), self._dtype)


def blocks_of(precision: Precision) -> tuple[Precision, ...]:
    """The blocks of a precision; of one that has none, itself."""
    return precision.blocks if isinstance(precision, BlockPrecision) else (precision,)


def parts_of(v: Float[Array, "D *K"], sizes: Sequence[int]) -> list[Float[Array, "_ *K"]]:
    """A vector in pieces of these sizes, which make up D."""
    return jnp.split(v, list(accumulate(sizes))[:-1])
