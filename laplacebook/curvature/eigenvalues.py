"""The largest eigenpairs of a curvature matrix that is known by its products with vectors."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from laplacebook.base.errors import NonFinite, NotConverged, NotPositiveDefinite
from laplacebook.base.namespace import Numbers, eigh, namespace, put, repeat
from laplacebook.base.quick import jit_quickly, numbers_in
from laplacebook.curvature.hessian import ROUNDING, matrix_of
from laplacebook.gaussian.precision import DiagonalPrecision, Precision

SHARE = 3  # with more than a third of all eigenpairs wanted, all are computed
EXTREMES = 5  # products with a matrix, for its extreme eigenvalues to a few percent
TOLERANCE = 10  # units in the last place of an eigenvalue: where the iteration ends
PRODUCTS = 128  # about, for some tens of eigenpairs


def top_eigenpairs(
    product: Partial, prior: Float[np.ndarray, " D"], rank: int
) -> tuple[Float[np.ndarray, "D K"], Float[np.ndarray, " K"]]:
    """The largest eigenpairs of P^-1/2 G P^-1/2, by ARPACK's implicitly restarted Lanczos method.

    Lehoucq, Sorensen and Yang (1998). Not under ``jit`` or ``vmap``.

    Args:
        product: v -> G v for a symmetric G, shape (D,) each; a ``jax.tree_util.Partial``, which keeps
            the arrays that it holds out of the compiled program.
        prior: the diagonal of P, positive, shape (D,).
        rank: how many.

    Returns:
        Vectors V, shape (D, K), and the eigenvalues s, shape (K,), the largest first, with K the
        smaller of ``rank`` and D: V diag(s) V' is what these eigenpairs hold of G, and all of it
        where K is D.

    Raises:
        ValueError: ``rank`` is not positive.
        NotPositiveDefinite: an element of ``prior`` is not positive.
        NonFinite: G has a NaN or an infinity.
        NotConverged: the iteration did not end, or ended beside an eigenpair.
    """
    if rank < 1:
        raise ValueError(f"rank is the number of eigenpairs, 1 or more, not {rank}")
    if not np.all(prior > 0):
        raise NotPositiveDefinite(
            f"The curvature of the log prior is not positive in {int(np.sum(~(prior > 0)))} of its "
            f"{prior.size} coordinates.",
            causes=["a flat prior", "a prior with heavy tails, at a point far from its centre"],
            remedy="choose a normal prior, or a dense structure.",
        )
    root = np.sqrt(prior)

    def whitened(v: np.ndarray) -> np.ndarray:
        return np.asarray(_whitened(product, root, np.ravel(v)))

    start = np.random.default_rng(0).normal(size=prior.size).astype(prior.dtype)
    if not np.all(np.isfinite(whitened(start))):
        raise NonFinite(
            "The curvature of the likelihood is not finite.",
            causes=["a NaN among the data", "a likelihood that is not the sum over its rows"],
            remedy="look at the curvature's diagonal, and at the log likelihood of each row.",
        )
    if SHARE * rank >= prior.size:
        values, vectors = np.linalg.eigh(np.asarray(_matrix(product, root)))
    else:
        values, vectors = _lanczos(whitened, rank, start)
    values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
    images = np.stack([whitened(v) for v in vectors.T], axis=1)
    residuals = np.linalg.norm(images - vectors * values, axis=0)
    rounding = ROUNDING * np.finfo(prior.dtype).eps * np.max(abs(values))
    if not np.all(residuals <= rounding):
        raise _not_converged(f"A residual is {float(np.max(residuals)):.1e}.")
    return root[:, None] * vectors, values


def _work(product: Partial, *_: Any) -> int:
    """How many numbers are computed by the products, some hundred: each about as many as this one holds."""
    return PRODUCTS * numbers_in(product)


@partial(jit_quickly, work=_work, half=True)
def _whitened(product: Partial, root: Array, v: Array) -> Array:
    return product(v / root) / root


@partial(jit_quickly, work=_work, half=True)
def _matrix(product: Partial, root: Array) -> Float[Array, "D D"]:
    return matrix_of(lambda v: product(v / root) / root, root)


def _lanczos(
    product: Callable[[np.ndarray], np.ndarray], rank: int, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues in rising order, and eigenvectors."""
    operator = LinearOperator((start.size, start.size), matvec=product, dtype=start.dtype)
    tolerance = TOLERANCE * float(np.finfo(start.dtype).eps)
    try:
        return eigsh(operator, rank, which="LA", v0=start, tol=tolerance)
    except ArpackError as error:
        raise _not_converged(f"ARPACK: {error}") from error


def _not_converged(why: str) -> NotConverged:
    return NotConverged(
        f"The largest eigenpairs of the curvature were not found. {why}",
        causes=["eigenvalues that lie too close together", "single precision"],
        remedy="ask for more of them, use numpyro.enable_x64(), or another structure.",
    )


def ritz(
    product: Callable[[Float[Numbers, " D"]], Float[Numbers, " D"]],
    like: Float[Numbers, " D"],
    steps: int,
) -> tuple[Float[Numbers, " K"], Float[Numbers, "K D"]]:
    """The Ritz values and vectors of a symmetric matrix after some steps of Lanczos.

    Every new direction is orthogonalised against all earlier ones, twice, so that rounding makes no
    copies. The smallest Ritz value is never below the smallest eigenvalue, and the largest never
    above the largest. If the steps exhaust the space before they are done, Ritz values of zero with
    vectors of zero stand for the rest.

    Args:
        product: v -> M v, a linear function of a vector of shape (D,).
        like: a vector of that shape and precision.
        steps: K, or D where that is less: as many products are computed.

    Returns:
        The values in rising order, shape (K,), and the vectors in rows, shape (K, D).
    """
    xp, size, dtype = namespace(like), like.size, like.dtype
    steps = min(steps, size)
    seed = xp.asarray(np.random.default_rng(0).normal(size=size), dtype)
    basis = put(xp.zeros((steps, size), dtype), 0, seed / xp.linalg.norm(seed))

    def extend(i: Any, carry: tuple[Numbers, Numbers]) -> tuple[Numbers, Numbers]:
        basis, image = carry
        new = product(basis[i])
        left = new - basis.T @ (basis @ new)
        left = left - basis.T @ (basis @ left)
        length = xp.linalg.norm(left)
        known = length <= jnp.finfo(dtype).eps ** 0.5 * xp.linalg.norm(new)
        left = xp.where(known, 0, left / xp.where(known, 1, length))
        return put(basis, i + 1, left), put(image, i, new)

    basis, image = repeat(steps, extend, (basis, xp.zeros_like(basis)))
    small = basis @ image.T
    values, vectors = eigh((small + small.T) / 2)
    return values, vectors.T @ basis


def condition_number(precision: Precision) -> Float[Numbers, ""]:
    """Of A scaled to a unit diagonal, by Lanczos with it and with its inverse: never too large.

    Args:
        precision: A.
    """
    root = precision.diagonal_of_matrix() ** 0.5
    if isinstance(precision, DiagonalPrecision):
        return namespace(root).max(root / root)
    above = ritz(lambda v: precision.matvec(v / root) / root, root, EXTREMES)[0][-1]
    return above * ritz(lambda v: root * precision.solve(root * v), root, EXTREMES)[0][-1]
