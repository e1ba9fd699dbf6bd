"""What a precision matrix can be: the interface, and the dense and the diagonal one."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import log, pi, prod
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from laplacebook.base.checks import coordinates, require_key, symmetric_part
from laplacebook.base.namespace import Numbers, cholesky, namespace, once, solve_lower
from laplacebook.base.one_thread import one_thread_for
from laplacebook.base.pytrees import Leaf, from_host, loud, on_host, register_dataclass
from laplacebook.base.quick import in_full_precision, jit_quickly
from laplacebook.gaussian.memory import require_dense

_P = TypeVar("_P", bound="Precision")
_DEAR = 16  # A normal number is computed in about as long as so many others.


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
    def matvec(self, v: Float[Numbers, " D"]) -> Float[Numbers, " D"]:
        """A v."""

    @abstractmethod
    def log_determinant(self) -> Float[Numbers, "*B"]:
        """``log |A|``."""

    @abstractmethod
    def whitened(self, z: Float[Numbers, "D *K"]) -> Float[Numbers, "D *K"]:
        """R'^-1 z, with a root A = R R': a step that z measures in posterior standard deviations."""

    @abstractmethod
    def half_solve(self, v: Float[Numbers, "D *K"]) -> Float[Numbers, "D *K"]:
        """R^-1 v, with the same root: its squared length is v' A^-1 v."""

    @abstractmethod
    def diagonal_of_matrix(self) -> Float[Numbers, "*B D"]:
        """The diagonal of A."""

    @abstractmethod
    def diagonal_of_inverse(self) -> Float[Numbers, "*B D"]:
        """The diagonal of A^-1: the marginal variances."""

    @property
    def size(self) -> int:
        """The number of coordinates, D."""
        return self.shape[-1]

    @property
    def matrix(self) -> Float[Numbers, "*B D D"]:
        """A, dense."""
        return one_by_one(lambda a: jax.vmap(a.matvec, 1, 1)(a._identity()), self)

    def solve(self, v: Float[Numbers, "D *K"]) -> Float[Numbers, "D *K"]:
        """A^-1 v; here and elsewhere a v of another length than D is a ValueError."""
        return self.whitened(self.half_solve(v))

    @in_full_precision
    def covariance_of(self, jacobian: Float[Numbers, "C D"]) -> Float[Numbers, "C C"]:
        """J A^-1 J': the covariance of C linear functions of the coordinates, such as predictions.

        Args:
            jacobian: J, a row for each function, shape (C, D).
        """
        half = self.half_solve(jacobian.T)
        with one_thread_for(len(half)):
            return half.T @ half

    def log_volume(self) -> Float[Numbers, "*B"]:
        """``(D/2) log 2 pi - (1/2) log |A|``, the logarithm of the integral of exp(-u' A u / 2)."""
        return (self.size * log(2 * pi) - self.log_determinant()) / 2

    def sample(
        self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()
    ) -> Float[Numbers, "*S D"]:
        """Draws from N(0, A^-1): R' x = z with z standard normal, so that Cov x = R'^-1 R^-1 = A^-1.

        Args:
            key: a JAX random key.
            sample_shape: leading shape of the draws.

        Raises:
            TypeError: ``key`` is no random key.
        """
        require_key(key)
        return _draws(self, key, (*map(int, sample_shape), self.size))

    def inverse(self) -> Float[Numbers, "*B D D"]:
        """A^-1, dense."""
        return one_by_one(lambda a: a.covariance_of(a._identity()), self)

    @property
    def _dtype(self) -> Any:
        return jnp.result_type(*jax.tree.leaves(self))

    def _identity(self) -> Float[Numbers, "D D"]:
        require_dense(self.size, self._dtype)
        return namespace(*jax.tree.leaves(self)).eye(self.size, dtype=self._dtype)


def _work(_precision: Precision, _key: Array, shape: tuple[int, ...]) -> int:
    return _DEAR * prod(shape)


@partial(jit_quickly, work=_work, half=True, static_argnums=2)
def _draws(precision: Precision, key: Array, shape: tuple[int, ...]) -> Float[Array, "*S D"]:
    normal = jax.random.normal(key, shape, precision._dtype)
    return precision.whitened(normal.reshape(-1, precision.size).T).T.reshape(shape)


def one_by_one(function: Callable[[_P], Numbers], precision: _P) -> Numbers:
    """A function of one precision, over the leading axes of a batch of them."""
    for _ in precision.shape[:-1]:
        function = jax.vmap(function)
    return function(precision)


def aligned(scale: Float[Numbers, " D"], v: Float[Numbers, "D *K"]) -> Float[Numbers, "D *K1"]:
    """A number for each coordinate, with as many axes as v."""
    return scale.reshape(scale.shape + (1,) * (v.ndim - 1))


@register_dataclass
@dataclass(frozen=True)
class DensePrecision(Precision):
    """Any symmetric matrix, and its Cholesky factor L with A = L L', which is the root.

    In the book: :eq:`structured-curvature-gauss-newton` of :doc:`/book/structured-curvature`.
    """

    entries: Leaf
    cholesky: Leaf

    @classmethod
    def of(cls, matrix: Float[Numbers, "D D"]) -> "DensePrecision":
        """Factorise a symmetric matrix; under a JAX transformation the symmetric part of any.

        Raises:
            ValueError: it is not square, or not symmetric beyond rounding.
        """
        return cls.of_symmetric(symmetric_part(matrix))

    @classmethod
    def of_symmetric(cls, matrix: Float[Numbers, "D D"]) -> "DensePrecision":
        """Factorise a matrix of which the two triangles are equal to the last bit: not checked."""
        return cls(matrix, cholesky(matrix))

    @property
    def shape(self) -> tuple[int, ...]:
        """``(*B, D)``."""
        return self.entries.shape[:-1]

    @property
    def matrix(self) -> Float[Numbers, "*B D D"]:
        """A."""
        return self.entries

    @in_full_precision
    def matvec(self, v: Float[Numbers, " D"]) -> Float[Numbers, " D"]:
        """A v."""
        return self.entries @ coordinates(v, self.shape)

    def log_determinant(self) -> Float[Numbers, "*B"]:
        """``log |A|``."""
        xp = namespace(self.cholesky)
        return 2 * xp.sum(xp.log(xp.diagonal(self.cholesky, axis1=-2, axis2=-1)), axis=-1)

    def whitened(self, z: Float[Numbers, "D *K"]) -> Float[Numbers, "D *K"]:
        """L'^-1 z: a step that z measures in posterior standard deviations."""
        return self._substituted(z, "T")

    def half_solve(self, v: Float[Numbers, "D *K"]) -> Float[Numbers, "D *K"]:
        """L^-1 v."""
        return self._substituted(v, "N")

    def diagonal_of_matrix(self) -> Float[Numbers, "*B D"]:
        """The diagonal of A."""
        return namespace(self.entries).diagonal(self.entries, axis1=-2, axis2=-1)

    def diagonal_of_inverse(self) -> Float[Numbers, "*B D"]:
        """The diagonal of A^-1: the marginal variances."""
        here = self if self.shape[:-1] else on_host(self)  # in which nothing is compiled
        found = one_by_one(lambda a: (a.half_solve(a._identity()) ** 2).sum(axis=0), here)
        return found if namespace(self.cholesky) is np else from_host(found)

    def _substituted(self, v: Float[Numbers, "D *K"], trans: str) -> Float[Numbers, "D *K"]:
        v = coordinates(v, self.shape, columns=True)
        columns = v.reshape(self.size, prod(v.shape[1:]))  # further axes would be taken for a batch
        return solve_lower(self.cholesky, columns, trans).reshape(v.shape)


@register_dataclass
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

    def matvec(self, v: Float[Numbers, " D"]) -> Float[Numbers, " D"]:
        """A v."""
        return self.diagonal * coordinates(v, self.shape)

    def log_determinant(self) -> Float[Numbers, "*B"]:
        """``log |A|``."""
        positive = self._positive()
        return namespace(positive).log(positive).sum(axis=-1)

    def whitened(self, z: Float[Numbers, "D *K"]) -> Float[Numbers, "D *K"]:
        """A^-1/2 z: a step that z measures in posterior standard deviations."""
        return coordinates(z, self.shape, columns=True) / aligned(self._positive() ** 0.5, z)

    def half_solve(self, v: Float[Numbers, "D *K"]) -> Float[Numbers, "D *K"]:
        """A^-1/2 v."""
        return self.whitened(v)

    def diagonal_of_matrix(self) -> Float[Numbers, "*B D"]:
        """The diagonal of A, which is all of it."""
        return self.diagonal

    def diagonal_of_inverse(self) -> Float[Numbers, "*B D"]:
        """The diagonal of A^-1: the marginal variances."""
        return 1 / self._positive()

    def _positive(self) -> Float[Numbers, "*B D"]:
        """The diagonal; NaN if an entry is not positive."""
        sound = (self.diagonal > 0).all(axis=-1, keepdims=True)
        return self.diagonal * loud(sound, self.diagonal.dtype)


@register_dataclass
@dataclass(frozen=True)
class BlockPrecision(Precision):
    """Independent groups of consecutive coordinates, such as the sites of a model.

    In the book: :prf:ref:`structured-curvature-blocks` of :doc:`/book/structured-curvature`.

    Attributes:
        blocks: a precision for each group, in the order of the coordinates.
    """

    blocks: tuple[Any, ...]

    @classmethod
    def of(cls, blocks: tuple[Float[Numbers, "_ _"], ...]) -> "BlockPrecision":
        """Factorise the symmetric matrices on the diagonal, of shapes (d_1, d_1), (d_2, d_2), ..."""
        return cls(tuple(DensePrecision.of(block) for block in blocks))

    @property
    def shape(self) -> tuple[int, ...]:
        """``(*B, D)``."""
        return (*self.blocks[0].shape[:-1], sum(block.size for block in self.blocks))

    def matvec(self, v: Float[Numbers, " D"]) -> Float[Numbers, " D"]:
        """A v."""
        return self._each(lambda block, part: block.matvec(part), coordinates(v, self.shape))

    def log_determinant(self) -> Float[Numbers, "*B"]:
        """``log |A|``."""
        return sum(block.log_determinant() for block in self.blocks)

    def whitened(self, z: Float[Numbers, "D *K"]) -> Float[Numbers, "D *K"]:
        """R'^-1 z, with the roots of the blocks on the diagonal of R."""
        return self._each(lambda block, part: block.whitened(part), z) * self._loud()

    def half_solve(self, v: Float[Numbers, "D *K"]) -> Float[Numbers, "D *K"]:
        """R^-1 v."""
        return self._each(lambda block, part: block.half_solve(part), v) * self._loud()

    def diagonal_of_matrix(self) -> Float[Numbers, "*B D"]:
        """The diagonal of A."""
        diagonals = [block.diagonal_of_matrix() for block in self.blocks]
        return namespace(*diagonals).concatenate(diagonals, axis=-1)

    def diagonal_of_inverse(self) -> Float[Numbers, "*B D"]:
        """The diagonal of A^-1: the marginal variances."""
        diagonals = [block.diagonal_of_inverse() for block in self.blocks]
        return namespace(*diagonals).concatenate(diagonals, axis=-1) * self._loud()[..., None]

    def _each(
        self, method: Callable[[Precision, Numbers], Numbers], v: Float[Numbers, "D *K"]
    ) -> Float[Numbers, "D *K"]:
        sizes = [block.size for block in self.blocks]
        parts = parts_of(coordinates(v, self.shape, columns=True), sizes)
        found = [method(*pair) for pair in zip(self.blocks, parts, strict=True)]
        return namespace(*found).concatenate(found)

    @once
    def _loud(self) -> Float[Numbers, "*B"]:
        """One; NaN if one of the blocks is not positive definite."""
        determinant = self.log_determinant()
        return loud(~namespace(determinant).isnan(determinant), determinant.dtype)


def blocks_of(precision: Precision) -> tuple[Precision, ...]:
    """The blocks of a precision; of one that has none, itself."""
    return precision.blocks if isinstance(precision, BlockPrecision) else (precision,)


def parts_of(v: Float[Numbers, "D *K"], sizes: Sequence[int]) -> list[Float[Numbers, "_ *K"]]:
    """A vector in pieces of these sizes, which make up D."""
    return namespace(v).split(v, list(accumulate(sizes))[:-1])
