"""What a precision matrix can be: the interface, and the dense and the diagonal one."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import log, pi, prod
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Key

from laplacebook.base.checks import coordinates, symmetric_part
from laplacebook.base.pytrees import Leaf, loud
from laplacebook.gaussian.memory import require_dense

_P = TypeVar("_P", bound="Precision")


class Precision(ABC):
    """A symmetric positive-definite matrix A of shape (D, D), known by what can be done with it.

    Every structure is a frozen dataclass and a pytree, and exact for what it stands for. Nothing is
    added to a diagonal: of a matrix that is not positive definite A v is known, and everything that
    needs a determinant, an inverse or a root is NaN in every entry.

    A precision that comes out of ``jax.vmap`` has leading axes B; then ``matrix``, ``inverse``,
    ``diagonal_of_inverse`` and ``log_determinant`` have them too, and the rest belongs within
    ``jax.vmap``. Only ``matrix`` and ``inverse`` make (D, D) numbers of a structure that has fewer.

    In the book: :eq:`structured-curvature-gauss-newton` and :eq:`structured-curvature-predictive`
    of :doc:`/book/structured-curvature`.
    """

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """``(*B, D)``."""

    @abstractmethod
    def matvec(self, v: Float[Array, " D"]) -> Float[Array, " D"]:
        """A v."""

    @abstractmethod
    def log_determinant(self) -> Float[Array, "*B"]:
        """``log |A|``."""

    @abstractmethod
    def whitened(self, z: Float[Array, "D *K"]) -> Float[Array, "D *K"]:
        """R'^-1 z, with a root A = R R': a step that z measures in posterior standard deviations."""

    @abstractmethod
    def half_solve(self, v: Float[Array, "D *K"]) -> Float[Array, "D *K"]:
        """R^-1 v, with the same root: its squared length is v' A^-1 v."""

    @abstractmethod
    def diagonal_of_matrix(self) -> Float[Array, "*B D"]:
        """The diagonal of A."""

    @abstractmethod
    def diagonal_of_inverse(self) -> Float[Array, "*B D"]:
        """The diagonal of A^-1: the marginal variances."""

    @property
    def size(self) -> int:
        """D."""
        return self.shape[-1]

    @property
    def matrix(self) -> Float[Array, "*B D D"]:
        """A, dense."""
        return _one_by_one(lambda a: jax.vmap(a.matvec, 1, 1)(a._identity()), self)

    def solve(self, v: Float[Array, "D *K"]) -> Float[Array, "D *K"]:
        """A^-1 v; here and elsewhere a v of another length than D is a ValueError."""
        return self.whitened(self.half_solve(v))

    def covariance_of(self, jacobian: Float[Array, "C D"]) -> Float[Array, "C C"]:
        """J A^-1 J': the covariance of C linear functions of the coordinates, such as predictions.

        Args:
            jacobian: J, a row for each function, shape (C, D).
        """
        half = self.half_solve(jacobian.T)
        return half.T @ half

    def log_volume(self) -> Float[Array, "*B"]:
        """``(D/2) log 2 pi - (1/2) log |A|``, the logarithm of the integral of exp(-u' A u / 2)."""
        return (self.size * log(2 * pi) - self.log_determinant()) / 2

    def sample(
        self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()
    ) -> Float[Array, "*S D"]:
        """Draws from N(0, A^-1): R' x = z with z standard normal, so that Cov x = R'^-1 R^-1 = A^-1.

        Args:
            key: a JAX random key.
            sample_shape: leading shape of the draws.
        """
        normal = jax.random.normal(key, (*sample_shape, self.size), self._dtype)
        return self.whitened(normal.reshape(-1, self.size).T).T.reshape(normal.shape)

    def inverse(self) -> Float[Array, "*B D D"]:
        """A^-1, dense."""
        return _one_by_one(lambda a: a.covariance_of(a._identity()), self)

    @property
    def _dtype(self) -> Any:
        return jnp.result_type(*jax.tree.leaves(self))

    def _identity(self) -> Float[Array, "D D"]:
        require_dense(self.size, self._dtype)
        return jnp.eye(self.size, dtype=self._dtype)


def _one_by_one(function: Callable[[_P], Array], precision: _P) -> Array:
    """A function of one precision, over the leading axes of a batch of them."""
    for _ in precision.shape[:-1]:
        function = jax.vmap(function)
    return function(precision)


def aligned(scale: Float[Array, " D"], v: Float[Array, "D *K"]) -> Float[Array, "D *K1"]:
    """A number for each coordinate, with as many axes as v."""
    return jnp.expand_dims(scale, range(1, v.ndim))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DensePrecision(Precision):
    """Any symmetric matrix, and its Cholesky factor L with A = L L', which is the root.

    In the book: :eq:`structured-curvature-gauss-newton` of :doc:`/book/structured-curvature`.
    """

    entries: Leaf
    cholesky: Leaf

    @classmethod
    def of(cls, matrix: Float[Array, "D D"]) -> "DensePrecision":
        """Factorise a symmetric matrix; under a JAX transformation the symmetric part of any.

        Raises:
            ValueError: it is not square, or not symmetric beyond rounding.
        """
        return cls.of_symmetric(symmetric_part(matrix))

    @classmethod
    def of_symmetric(cls, matrix: Float[Array, "D D"]) -> "DensePrecision":
        """Factorise a matrix of which the two triangles are equal to the last bit: not checked."""
        return cls(matrix, jnp.linalg.cholesky(matrix, symmetrize_input=False))

    @property
    def shape(self) -> tuple[int, ...]:
        """``(*B, D)``."""
        return self.entries.shape[:-1]

    @property
    def matrix(self) -> Float[Array, "*B D D"]:
        """A."""
        return self.entries

    def matvec(self, v: Float[Array, " D"]) -> Float[Array, " D"]:
        """A v."""
        return self.entries @ coordinates(v, self.shape)

    def log_determinant(self) -> Float[Array, "*B"]:
        """``log |A|``."""
        return 2 * jnp.sum(jnp.log(jnp.diagonal(self.cholesky, axis1=-2, axis2=-1)), axis=-1)

    def whitened(self, z: Float[Array, "D *K"]) -> Float[Array, "D *K"]:
        """L'^-1 z: a step that z measures in posterior standard deviations."""
        return self._substituted(z, "T")

    def half_solve(self, v: Float[Array, "D *K"]) -> Float[Array, "D *K"]:
        """L^-1 v."""
        return self._substituted(v, "N")

    def diagonal_of_matrix(self) -> Float[Array, "*B D"]:
        """The diagonal of A."""
        return jnp.diagonal(self.entries, axis1=-2, axis2=-1)

    def diagonal_of_inverse(self) -> Float[Array, "*B D"]:
        """The diagonal of A^-1: the marginal variances."""
        return _one_by_one(lambda a: jnp.sum(a.half_solve(a._identity()) ** 2, axis=0), self)

    def _substituted(self, v: Float[Array, "D *K"], trans: str) -> Float[Array, "D *K"]:
        v = coordinates(v, self.shape, columns=True)
        columns = v.reshape(self.size, prod(v.shape[1:]))  # further axes would be taken for a batch
        return solve_triangular(self.cholesky, columns, lower=True, trans=trans).reshape(v.shape)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DiagonalPrecision(Precision):
    """Independent coordinates: A is diagonal, and its square root the root.

    In the book: :prf:ref:`structured-curvature-blocks` of :doc:`/book/structured-curvature`.

    Attributes:
        diagonal: of A, shape (D,).
    """

    diagonal: Leaf

    @property
    def shape(self) -> tuple[int, ...]:
        """``(*B, D)``."""
        return self.diagonal.shape

    def matvec(self, v: Float[Array, " D"]) -> Float[Array, " D"]:
        """A v."""
        return self.diagonal * coordinates(v, self.shape)

    def log_determinant(self) -> Float[Array, "*B"]:
        """``log |A|``."""
        return jnp.sum(jnp.log(self._positive()), axis=-1)

    def whitened(self, z: Float[Array, "D *K"]) -> Float[Array, "D *K"]:
        """A^-1/2 z: a step that z measures in posterior standard deviations."""
        return coordinates(z, self.shape, columns=True) / aligned(jnp.sqrt(self._positive()), z)

    def half_solve(self, v: Float[Array, "D *K"]) -> Float[Array, "D *K"]:
        """A^-1/2 v."""
        return self.whitened(v)

    def diagonal_of_matrix(self) -> Float[Array, "*B D"]:
        """The diagonal of A, which is all of it."""
        return self.diagonal

    def diagonal_of_inverse(self) -> Float[Array, "*B D"]:
        """The diagonal of A^-1: the marginal variances."""
        return 1 / self._positive()

    def _positive(self) -> Float[Array, "*B D"]:
        """The diagonal; NaN if an entry is not positive."""
        sound = jnp.all(self.diagonal > 0, axis=-1, keepdims=True)
        return self.diagonal * loud(sound, self.diagonal.dtype)


@jax.tree_util.register_dataclass
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
