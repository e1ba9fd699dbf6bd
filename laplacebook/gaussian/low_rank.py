"""A precision of a diagonal and a few directions, as of a prior and the few things that data tell."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from laplacebook.base.checks import coordinates
from laplacebook.base.namespace import Numbers, left_svd, namespace
from laplacebook.base.pytrees import Leaf, register_dataclass
from laplacebook.base.quick import in_full_precision
from laplacebook.gaussian.precision import DiagonalPrecision, Precision, aligned


@register_dataclass
@dataclass(frozen=True)
class LowRankPrecision(Precision):
    """A = diag(p) + V diag(s) V', with V of k columns, in k D operations for each vector.

    With the thin singular value decomposition U diag(sigma) Y' of p^-1/2 V s^1/2 it is
    p^1/2 (I + U diag(sigma^2) U') p^1/2, of which a root is p^1/2 (I + U diag(c) U') with
    (1 + c)^2 = 1 + sigma^2. What is small beside 1/p after data have told much of it is a difference
    of such numbers: the relative error of a variance is the machine precision times 1 + sigma^2.

    Derivatives of the log determinant are right whatever the singular values, but NaN with respect
    to an entry of s that is zero; those of a solution or a draw are NaN where two of sigma are equal.

    In the book: :prf:ref:`structured-curvature-woodbury` and :eq:`structured-curvature-low-rank`
    of :doc:`/book/structured-curvature`.

    Attributes:
        diagonal: p, positive, shape (D,).
        vectors: V, shape (D, k).
        values: s, at least 0, shape (k,).
        directions: U, shape (D, min(D, k)).
        gains: sigma^2, by how much data raise the precision along each direction, shape (min(D, k),).
    """

    diagonal: Leaf
    vectors: Leaf
    values: Leaf
    directions: Leaf
    gains: Leaf

    @classmethod
    def of(
        cls,
        diagonal: Float[Numbers, " D"],
        vectors: Float[Numbers, "D K"],
        values: Float[Numbers, " K"],
    ) -> "LowRankPrecision":
        """Decompose diag(p) + V diag(s) V'.

        Args:
            diagonal: p, shape (D,).
            vectors: V, shape (D, k); they need not be orthogonal.
            values: s, shape (k,); with a negative entry all is NaN, as its root is.

        Raises:
            ValueError: the shapes do not fit together.
        """
        if vectors.shape != (*diagonal.shape, *values.shape):
            raise ValueError(
                f"diagonal (D,), vectors (D, k) and values (k,) have the shapes {diagonal.shape}, "
                f"{vectors.shape} and {values.shape}, which do not fit together."
            )
        xp = namespace(diagonal, vectors, values)
        with np.errstate(all="ignore"):
            scaled = vectors * xp.sqrt(values) / xp.sqrt(diagonal)[:, None]
        directions, singular = left_svd(scaled)
        return cls(diagonal, vectors, values, directions, singular**2)

    @property
    def shape(self) -> tuple[int, ...]:
        """``(*B, D)``."""
        return self.diagonal.shape

    @in_full_precision
    def matvec(self, v: Float[Numbers, " D"]) -> Float[Numbers, " D"]:
        """A v."""
        v = coordinates(v, self.shape)
        return self.diagonal * v + self.vectors @ (self.values * (self.vectors.T @ v))

    def log_determinant(self) -> Float[Numbers, "*B"]:
        """``log |A|``, of singular values alone, so that its gradient is right if some are equal."""
        told = namespace(self.gains).log1p(self.gains).sum(axis=-1)
        return self._untold.log_determinant() + told

    def whitened(self, z: Float[Numbers, "D *K"]) -> Float[Numbers, "D *K"]:
        """p^-1/2 (I + U diag(c) U')^-1 z."""
        return self._untold.whitened(self._shrunk(z))

    def half_solve(self, v: Float[Numbers, "D *K"]) -> Float[Numbers, "D *K"]:
        """(I + U diag(c) U')^-1 p^-1/2 v."""
        return self._shrunk(self._untold.half_solve(v))

    def diagonal_of_matrix(self) -> Float[Numbers, "*B D"]:
        """The diagonal of A."""
        return self.diagonal + (self.values[..., None, :] * self.vectors**2).sum(axis=-1)

    def diagonal_of_inverse(self) -> Float[Numbers, "*B D"]:
        """The diagonal of A^-1: the marginal variances."""
        told = (self.gains / (1 + self.gains))[..., None, :]
        kept = 1 - (self.directions**2 * told).sum(axis=-1)
        return kept * self._untold.diagonal_of_inverse()

    @property
    def _untold(self) -> DiagonalPrecision:
        """diag(p): A without the directions."""
        return DiagonalPrecision(self.diagonal)

    @in_full_precision
    def _shrunk(self, v: Float[Numbers, "D *K"]) -> Float[Numbers, "D *K"]:
        """(I + U diag(c) U')^-1 v, of which the eigenvalues along U are (1 + sigma^2)^-1/2."""
        v = coordinates(v, self.shape, columns=True)
        xp = namespace(self.directions, self.gains, v)
        root = xp.sqrt(1 + self.gains)
        along = xp.tensordot(self.directions.T, v, axes=1)
        told = self.gains / (root * (1 + root))  # 1 - 1 / root, without a difference
        return v - xp.tensordot(self.directions, along * aligned(told, along), axes=1)
