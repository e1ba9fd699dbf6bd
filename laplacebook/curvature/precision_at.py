"""The precision of an approximation: the curvature that was asked for, and as much of it as was."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float

from laplacebook.base.checks import require_numbers
from laplacebook.base.errors import NotPositiveDefinite, UnsupportedModel
from laplacebook.base.namespace import Numbers, namespace
from laplacebook.base.pytrees import loud, own_copy
from laplacebook.base.quick import jit_quickly, most_rows
from laplacebook.curvature import gauss_newton
from laplacebook.curvature.eigenvalues import top_eigenpairs
from laplacebook.curvature.hessian import ROUNDING, prior_curvature, prior_hessian
from laplacebook.curvature.kfac import kronecker_factors, kronecker_factors_and_diagonal
from laplacebook.curvature.settings import Settings
from laplacebook.gaussian.kronecker import Eigenbasis, KroneckerBlock, KroneckerPrecision
from laplacebook.gaussian.low_rank import LowRankPrecision
from laplacebook.gaussian.precision import (
    BlockPrecision,
    DensePrecision,
    DiagonalPrecision,
    Precision,
    parts_of,
)
from laplacebook.model.density import ModelDensity

WHOLE = ("dense", "last_layer")  # structures that keep the whole matrix
LARGEST = 2000  # order of a matrix whose eigenvectors cost a second, not minutes
FEW_ROWS = 256  # of such a matrix
COSTLY = 3000  # coordinates, of which a dense matrix costs a second, and a step by it as much as a hundred without
FEW = 2 * 10**8  # products for a whole matrix, hundredths of a second: for steps and verdict
MANY = 3 * 10**10  # a second or more: it takes the steps after some rounds by a part without a mode
EQUAL = 1e-6  # relative difference of prior precisions that count as one number


def kept(hessian: Float[Numbers, "D D"], sizes: Sequence[int], structure: str) -> Precision:
    """What a structure keeps of a Hessian.

    Args:
        hessian: of the negative log joint, its two triangles equal to the last bit.
        sizes: the number of coordinates of each latent site.
        structure: ``"diagonal"`` or ``"block"``; all of it for any other.
    """
    if structure == "diagonal":
        return DiagonalPrecision(namespace(hessian).diagonal(hessian))
    if structure == "block":
        return BlockPrecision(tuple(map(DensePrecision.of_symmetric, _blocks(hessian, sizes))))
    return DensePrecision.of_symmetric(hessian)


def precision_at(density: ModelDensity, u: Float[Array, " D"], settings: Settings) -> Precision:
    """The precision at u by Gauss-Newton or empirical Fisher curvature of the likelihood.

    The Hessian of the negative log prior is added to it, whole where the structure is dense or in
    blocks, its diagonal elsewhere. What a structure cannot hold makes it NaN: a prior of which that
    Hessian is not diagonal, or for a Kronecker block not one number.

    Args:
        density: the log joint.
        u: shape (D,).
        settings: of the fit; its curvature is not ``"hessian"``, nor its structure ``"low_rank"``.

    Raises:
        UnsupportedModel: the model has no such curvature, or no such structure.
    """
    return precision_of(entries_at(density, u, settings), settings.structure)


def entries_at(
    density: ModelDensity, u: Float[Array, " D"], settings: Settings, compared: bool = True
) -> Array | tuple[Array | KroneckerBlock, ...]:
    """What :func:`precision_at` factorises; errors are its own.

    Args:
        density: the log joint.
        u: shape (D,).
        settings: of the fit.
        compared: whether the rows are compared with the whole; else that is for the caller.

    Returns:
        A matrix for a dense structure, its diagonal, or of each site a matrix or a Kronecker block.
    """
    kind, batch = settings.curvature, settings.batch_size
    if settings.structure in WHOLE:
        matrix, separate = whole_entries_at(density, u, settings, compared)
        return jax.lax.cond(
            separate,
            lambda matrix: matrix,
            lambda matrix: matrix + prior_hessian(density, u),
            matrix,
        )
    prior, separate = prior_curvature(density, u)
    prior *= loud(separate, prior.dtype)
    if settings.structure == "diagonal":
        return gauss_newton.diagonal(density, u, kind, batch, compared) + prior
    if settings.structure == "block":
        blocks = gauss_newton.blocks(density, u, kind, batch, compared)
        return _all_damped(density, blocks, prior)
    return _all_damped(density, kronecker_factors(density, u, kind, batch, compared), prior)


def whole_entries_at(
    density: ModelDensity, u: Float[Array, " D"], settings: Settings, compared: bool = True
) -> tuple[Float[Array, "D D"], Bool[Array, ""]]:
    """The entries of a whole matrix, but for a prior that couples the numbers.

    Args:
        density: the log joint.
        u: shape (D,).
        settings: of the fit.
        compared: as in :func:`entries_at`.

    Returns:
        The matrix, with the Hessian of the prior if that is diagonal, and without if not; whether it is, shape ().
    """
    prior, separate = prior_curvature(density, u)
    kind, batch = settings.curvature, settings.batch_size
    matrix = gauss_newton.dense(density, u, kind, batch, compared)
    return matrix.at[jnp.diag_indices(u.size)].add(jnp.where(separate, prior, 0)), separate


def entries_and_metric_at(
    density: ModelDensity, u: Float[Array, " D"], settings: Settings
) -> tuple[Array, tuple[Array | KroneckerBlock, ...]]:
    """What :func:`entries_at` finds for a diagonal and for Kronecker factors, of rows that are not compared."""
    kind, batch = settings.curvature, settings.batch_size
    prior, separate = prior_curvature(density, u)
    prior *= loud(separate, prior.dtype)
    factors, diagonal = kronecker_factors_and_diagonal(density, u, kind, batch)
    return diagonal + prior, _all_damped(density, factors, prior)


def metric_of(density: ModelDensity, settings: Settings) -> Settings | None:
    """The settings of a precision for the steps of a search that is closer to the Hessian, or costs less.

    That of the whole matrix where the numbers are few: along a ridge, as of a network with more units than
    it needs, parts of it are far from the Hessian, so that a search by them stops on the way, or does not
    end. Beyond, in single precision a search in the metric of a diagonal does not reach the mode of a
    network; one in that of Kronecker factors does, in as many steps as in that of the whole matrix. Those
    of a model that has none raise UnsupportedModel.

    Args:
        density: the log joint.
        settings: of the fit.

    Returns:
        None where that of the fit itself will do.
    """
    whole = whole_metric_of(density, settings, FEW)
    if whole is not None:
        return whole
    costly = settings.structure == "dense" and density.dimension > COSTLY
    if settings.structure != "diagonal" and not costly:
        return None
    return replace(settings, structure="kronecker") if _order(density) <= LARGEST else None


def whole_metric_of(
    density: ModelDensity, settings: Settings, products: int = MANY
) -> Settings | None:
    """The settings of the whole matrix for the steps, where the fit keeps less and it takes no more products."""
    if settings.structure in WHOLE or _products(density) > products:
        return None
    return replace(settings, structure="dense")


def ends_in_minutes(density: ModelDensity) -> bool:
    """Whether all rounds of a search take minutes at most, even by the whole matrix."""
    return _products(density) <= MANY


def _products(density: ModelDensity) -> int:
    """For the whole matrix and its factor."""
    return density.dimension**2 * max(density.dimension, most_rows(density))


def may_have_layers(density: ModelDensity) -> bool:
    """Whether a site is a matrix, as the weights of a layer are, or a kernel of more axes."""
    return any(len(site.shape) > 1 for site in density.sites)


def metric_costs_little(density: ModelDensity) -> bool:
    """Whether Kronecker factors cost little beside a diagonal: a few products with matrices of some hundred rows."""
    return _order(density) <= FEW_ROWS


def _order(density: ModelDensity) -> int:
    """That of the largest Kronecker factor, if the matrices are layers."""
    return max(max(s.shape) if len(s.shape) == 2 else s.size for s in density.sites)


def precision_of(entries: Any, structure: str) -> Precision:
    """The precision with its factors, of the entries that :func:`entries_at` finds: in NumPy or in JAX."""
    if structure == "diagonal":
        return DiagonalPrecision(entries)
    if structure not in ("block", "kronecker"):
        return DensePrecision.of_symmetric(entries)
    blocks = tuple(
        Eigenbasis.of(entry)
        if isinstance(entry, KroneckerBlock)
        else DensePrecision.of_symmetric(entry)
        for entry in entries
    )
    return BlockPrecision(blocks) if structure == "block" else KroneckerPrecision(blocks)


def low_rank_at(density: ModelDensity, u: Float[Array, " D"], rank: int) -> LowRankPrecision:
    """The Hessian of the prior and the largest eigenpairs of the Gauss-Newton matrix beside it.

    Args:
        density: the log joint.
        u: shape (D,).
        rank: how many.

    Raises:
        ValueError: u is not known, under a JAX transformation.
        UnsupportedModel: the model has no Gauss-Newton curvature, or a prior that couples sites.
        NotPositiveDefinite: one of the eigenvalues is negative.
        NotConverged: the eigenpairs were not found; and other errors of
            :func:`~laplacebook.curvature.eigenvalues.top_eigenpairs`.
    """
    require_numbers('structure="low_rank"', u)
    product, (prior, separate) = _product_and_prior(density, u)
    if not separate:
        raise coupled("low_rank")
    prior = np.asarray(prior)
    vectors, values = top_eigenpairs(product, prior, rank)
    rounding = ROUNDING * jnp.finfo(u.dtype).eps * np.max(abs(values))
    if values[-1] < -rounding:
        raise NotPositiveDefinite(
            f"The Gauss-Newton matrix has a negative eigenvalue, {float(values[-1]):.2g} of the prior "
            "precision, which a low rank beside the prior does not hold.",
            causes=["an outcome whose loss is not convex (a Student-t beside outliers)"],
            remedy='use structure="dense", or a smaller rank. Nothing was set to zero.',
        )
    found = LowRankPrecision.of(prior, vectors, np.maximum(values, 0))
    return jax.tree.map(own_copy, found)


@partial(jit_quickly, half=True)
def _product_and_prior(density: ModelDensity, u: Array) -> tuple[Partial, tuple[Array, Array]]:
    return gauss_newton.gauss_newton_product(density, u), prior_curvature(density, u)


def coupled(structure: str) -> UnsupportedModel:
    """The error for a prior that a structure cannot hold."""
    return UnsupportedModel(
        f'structure="{structure}" needs a prior under which the numbers are independent of one '
        "another, and that of this model couples them.",
        causes=["a hierarchical prior: the scale of the weights is itself a latent site"],
        remedy='use structure="dense"; or fix the scale, and find it by the evidence.',
    )


def _all_damped(
    density: ModelDensity, factors: Sequence[tuple[Array, Array] | Array], prior: Array
) -> tuple[KroneckerBlock | Array, ...]:
    """The blocks of all sites, each with its prior."""
    parts = parts_of(prior, [site.size for site in density.sites])
    return tuple(_damped(f, p) for f, p in zip(factors, parts, strict=True))


def _damped(factors: tuple[Array, Array] | Array, prior: Array) -> KroneckerBlock | Array:
    """A block with its prior, which for a Kronecker product has to be one number."""
    if not isinstance(factors, tuple):
        return _plus(factors, prior)
    return KroneckerBlock(*factors, jnp.mean(prior) * loud(is_one(prior), prior.dtype))


def is_one(prior: Float[Array, " d"]) -> Bool[Array, ""]:
    """Whether prior precisions count as one number."""
    one = jnp.mean(prior)
    return jnp.all(jnp.abs(prior - one) <= EQUAL * one)


def _plus(block: Array, prior: Array) -> Array:
    return (block + block.T) / 2 + jnp.diag(prior)


def _blocks(matrix: Numbers, sizes: Sequence[int]) -> tuple[Numbers, ...]:
    ends = [0, *accumulate(sizes)]
    return tuple(matrix[a:b, a:b] for a, b in pairwise(ends))
