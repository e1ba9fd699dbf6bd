"""The precision of the weights of layers, by Kronecker factors that are never multiplied out."""

from dataclasses import dataclass
from math import inf, prod

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from laplacebook.base.checks import coordinates
from laplacebook.base.namespace import Numbers, eigh, namespace, once
from laplacebook.base.pytrees import Leaf, loud, register_dataclass
from laplacebook.base.quick import in_full_precision
from laplacebook.gaussian.precision import BlockPrecision, DensePrecision, Precision, aligned

_LARGE = 2**16  # numbers, of which NumPy's matmul would take a vector at a time
_ZERO = 10  # times order and machine precision: what a zero eigenvalue may be computed as


@register_dataclass
@dataclass(frozen=True)
class KroneckerBlock:
    """L (x) R + lambda I, for a weight of shape (m, k) whose numbers are in row-major order.

    Entry (i k + j, i' k + j') is L[i, i'] R[j, j'], with lambda added on the diagonal.

    In the book: :eq:`structured-curvature-kfac` of :doc:`/book/structured-curvature`.

    Attributes:
        left: L, symmetric positive semi-definite, shape (m, m).
        right: R, symmetric positive semi-definite, shape (k, k).
        prior_precision: lambda, a number of at least 0.
    """

    left: Leaf
    right: Leaf
    prior_precision: Leaf


@register_dataclass
@dataclass(frozen=True)
class Eigenbasis(Precision):
    """A Kronecker block Q diag(e) Q' with Q = Q_L (x) Q_R; the root is Q diag(e)^1/2 Q'.

    It is symmetric, and so the same whatever signs LAPACK gives to eigenvectors, and whatever basis where
    eigenvalues are equal: both differ between processors, and draws must not.

    Attributes:
        block: the factors as they were given.
        left_vectors: Q_L, the eigenvectors of L, shape (m, m).
        right_vectors: Q_R, those of R, shape (k, k).
        eigenvalues: e, products of eigenvalues of L and R plus lambda, shape (m, k).
    """

    block: KroneckerBlock
    left_vectors: Leaf
    right_vectors: Leaf
    eigenvalues: Leaf

    @classmethod
    def of(cls, block: KroneckerBlock) -> "Eigenbasis":
        """Decompose the factors of a block.

        Raises:
            ValueError: the prior precision is not one number.
        """
        xp = namespace(block.left, block.right)
        prior_precision = xp.asarray(block.prior_precision, block.left.dtype)
        if prior_precision.ndim:
            raise ValueError(
                f"The prior precision of a Kronecker block is one number, not an array of shape "
                f"{prior_precision.shape}: with several the block is no Kronecker product."
            )
        left, left_vectors = eigh(block.left)
        right, right_vectors = eigh(block.right)
        # To the products, since damped factors would stand for another matrix.
        eigenvalues = xp.outer(_semidefinite(left), _semidefinite(right)) + prior_precision
        eigenvalues = eigenvalues * loud(eigenvalues.min(initial=inf) > 0, eigenvalues.dtype)
        given = KroneckerBlock(block.left, block.right, prior_precision)
        return cls(given, left_vectors, right_vectors, eigenvalues)

    @property
    def shape(self) -> tuple[int, ...]:
        """``(*B, D)``."""
        *batch, m, k = self.eigenvalues.shape
        return (*batch, m * k)

    def matvec(self, v: Float[Numbers, " D"]) -> Float[Numbers, " D"]:
        """A v."""
        block, v = self.block, coordinates(v, self.shape)
        return self._rotated(block.left, block.right, v) + block.prior_precision * v

    def log_determinant(self) -> Float[Numbers, "*B"]:
        """``log |A|``, of eigenvalues alone, so that its gradient is right if some are equal."""
        return namespace(self.eigenvalues).log(self.eigenvalues).sum(axis=(-2, -1))

    def whitened(self, z: Float[Numbers, "D *K"]) -> Float[Numbers, "D *K"]:
        """Q diag(e)^-1/2 Q' z."""
        rotated = self._rotated(self.left_vectors.T, self.right_vectors.T, z)
        return self._rotated(self.left_vectors, self.right_vectors, self._scaled(rotated))

    def half_solve(self, v: Float[Numbers, "D *K"]) -> Float[Numbers, "D *K"]:
        """Q diag(e)^-1/2 Q' v."""
        return self.whitened(v)

    def diagonal_of_matrix(self) -> Float[Numbers, "*B D"]:
        """The diagonal of A."""
        xp = namespace(self.block.left, self.block.right)
        left = xp.diagonal(self.block.left, axis1=-2, axis2=-1)
        right = xp.diagonal(self.block.right, axis1=-2, axis2=-1)
        products = (left[..., :, None] * right[..., None, :]).reshape(self.shape)
        return products + xp.expand_dims(self.block.prior_precision, -1)

    @in_full_precision
    def diagonal_of_inverse(self) -> Float[Numbers, "*B D"]:
        """The diagonal of A^-1: the marginal variances."""
        right = namespace(self.right_vectors).swapaxes(self.right_vectors**2, -1, -2)
        return (self.left_vectors**2 @ (1 / self.eigenvalues) @ right).reshape(self.shape)

    def _rotated(
        self, left: Float[Numbers, "M M"], right: Float[Numbers, "N N"], v: Float[Numbers, "D *K"]
    ) -> Float[Numbers, "D *K"]:
        """(left (x) right) v."""
        v = coordinates(v, self.shape, columns=True)
        if namespace(left, right, v) is np and v.ndim == 1:
            return (left @ v.reshape(self.eigenvalues.shape) @ right.T).reshape(v.shape)
        return self._all_rotated(left, right, v)

    @in_full_precision
    def _all_rotated(
        self, left: Float[Numbers, "M M"], right: Float[Numbers, "N N"], v: Float[Numbers, "D *K"]
    ) -> Float[Numbers, "D *K"]:
        weights = v.reshape(*self.eigenvalues.shape, prod(v.shape[1:]))
        xp = namespace(left, right, weights)
        half = xp.tensordot(left, weights, 1)
        if xp is np and half.size > _LARGE:
            return xp.swapaxes(xp.tensordot(half, right, (1, 1)), 1, 2).reshape(v.shape)
        return (right @ half).reshape(v.shape)

    def _scaled(self, v: Float[Numbers, "D *K"]) -> Float[Numbers, "D *K"]:
        v = coordinates(v, self.shape, columns=True)
        return v / aligned(self._roots(), v)

    @once
    def _roots(self) -> Float[Numbers, " D"]:
        return (self.eigenvalues**0.5).reshape(self.size)


def _semidefinite(eigenvalues: Float[Numbers, " M"]) -> Float[Numbers, " M"]:
    """Eigenvalues with what rounding made negative at zero; all NaN if one is more negative."""
    xp = namespace(eigenvalues)
    unit = _ZERO * eigenvalues.size * jnp.finfo(eigenvalues.dtype).eps
    sound = eigenvalues.min(initial=0) >= -unit * eigenvalues.max(initial=0)
    # A shift that has no derivative: that of an eigenvalue at zero is not zero.
    shift = xp.maximum(-eigenvalues, 0)
    shift = shift if xp is np else jax.lax.stop_gradient(shift)
    return (eigenvalues + shift) * loud(sound, eigenvalues.dtype)


@register_dataclass
@dataclass(frozen=True)
class KroneckerPrecision(BlockPrecision):
    """A block for each weight, as L (x) R + lambda I or dense, in the order of the coordinates.

    Computed in the eigenbases of the factors, in (m + k) D operations for each vector and memory of
    a few D: lambda is added to products of eigenvalues, and no block is formed (Ritter et al. 2018,
    Immer et al. 2021). An eigenvalue of a factor counts as zero if it is negative by rounding: above
    -10 m eps times the largest, for a factor of order m; below that everything is NaN.

    Derivatives of the log determinant are right whatever the eigenvalues; those of a solution or a
    draw with respect to a factor are NaN where two of its eigenvalues are equal.

    In the book: :prf:ref:`structured-curvature-damping` and :eq:`structured-curvature-solve` of
    :doc:`/book/structured-curvature`.

    Attributes:
        blocks: an ``Eigenbasis`` or a dense precision for each weight.
    """

    @classmethod
    def of(cls, blocks: tuple[KroneckerBlock | Float[Numbers, "_ _"], ...]) -> "KroneckerPrecision":
        """Decompose Kronecker blocks, and factorise symmetric matrices.

        Args:
            blocks: each a :class:`KroneckerBlock`, or a matrix of shape (d, d).

        Raises:
            ValueError: a prior precision is not one number.
        """
        return cls(
            tuple(
                Eigenbasis.of(block)
                if isinstance(block, KroneckerBlock)
                else DensePrecision.of(block)
                for block in blocks
            )
        )
