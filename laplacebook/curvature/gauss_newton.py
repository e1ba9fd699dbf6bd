"""The generalised Gauss-Newton and the empirical Fisher matrix of a log likelihood, in pieces.

With J the Jacobian of a row's outputs and H the Hessian of their loss, the Gauss-Newton matrix is the
sum over rows of J'HJ; with J' the gradient of a row's log likelihood and H = 1, the same sum is the
empirical Fisher matrix. No prior is in them. Memory does not grow with the number of rows beyond
what the model itself takes to evaluate. Where the log likelihood is not the sum over the rows, every
number is NaN (:func:`laplacebook.model.rows.require_sum` says why).
"""

from collections.abc import Callable
from itertools import groupby

import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Float

from laplacebook.base.errors import UnsupportedModel
from laplacebook.curvature.hessian import matrix_of
from laplacebook.curvature.outputs_and_loss import split_likelihood
from laplacebook.curvature.row_jacobians import LayerJacobian, RowFactors, sum_over_rows
from laplacebook.curvature.symmetric_blocks import (
    LayerBlock,
    Strips,
    block_of,
    flat,
    mirrored,
    pays,
)
from laplacebook.model.density import ModelDensity
from laplacebook.model.rows import Rows, rows_of, sound


def dense(
    data: ModelDensity | Rows,
    u: Float[Array, " D"],
    kind: str = "gauss_newton",
    batch_size: int | None = None,
    compared: bool = True,
) -> Float[Array, "D D"]:
    """The whole matrix (Schraudolph 2002; Martens 2020, section 8).

    The Gauss-Newton matrix of a model whose observations cannot be taken one by one is computed with
    all of them at once.

    Args:
        data: a model and its arguments, or its rows.
        u: the point, shape (D,).
        kind: ``"gauss_newton"`` or ``"empirical_fisher"``.
        batch_size: how many rows at a time.
        compared: whether the rows are compared with the whole; else that is for the caller.

    Returns:
        A symmetric matrix, shape (D, D); NaN if the rows are compared and do not add up.

    Raises:
        UnsupportedModel: the observations cannot be taken one by one, and the kind is not
            ``"gauss_newton"`` or ``data`` are rows; or the model observes nothing, or a factor.
        ValueError: there is no such kind.
    """
    try:
        rows = _rows(data)
    except UnsupportedModel:
        if kind == "gauss_newton" and isinstance(data, ModelDensity):
            return dense_at_once(data, u)
        raise
    factor = sound(rows, u, compared)
    upper = sum_over_rows(rows, u, kind, batch_size, _upper_blocks)
    return _assembled(jax.tree.map(lambda x: factor * x, upper))


def diagonal(
    data: ModelDensity | Rows,
    u: Float[Array, " D"],
    kind: str = "gauss_newton",
    batch_size: int | None = None,
    compared: bool = True,
) -> Float[Array, " D"]:
    """The diagonal of :func:`dense`, shape (D,), with the same arguments.

    Raises:
        UnsupportedModel: the observations cannot be taken one by one; or the model observes nothing,
            or a factor.
        ValueError: there is no such kind.
    """
    rows = _rows(data)
    of_sites = sum_over_rows(rows, u, kind, batch_size, squares)
    return sound(rows, u, compared) * jnp.concatenate(of_sites)


def blocks(
    data: ModelDensity | Rows,
    u: Float[Array, " D"],
    kind: str = "gauss_newton",
    batch_size: int | None = None,
    compared: bool = True,
) -> tuple[Float[Array, "_ _"], ...]:
    """The diagonal blocks of :func:`dense`, with the same arguments and the errors of :func:`diagonal`.

    Returns:
        One symmetric matrix a latent site in the order of ``density.sites``, of shape (d, d) for a
        site of d coordinates.
    """
    rows = _rows(data)
    factor = sound(rows, u, compared)
    of_sites = sum_over_rows(rows, u, kind, batch_size, _site_blocks)
    return tuple(block.whole() for block in jax.tree.map(lambda x: factor * x, of_sites))


def gauss_newton_product(density: ModelDensity, u: Float[Array, " D"]) -> Partial:
    """The Gauss-Newton matrix as a function v -> J'HJ v, over all rows at once and without a matrix.

    Args:
        density: a model and its arguments; its observations need not be taken one by one.
        u: the point, shape (D,).

    Returns:
        A linear function of a vector of shape (D,), of the same shape; a ``jax.tree_util.Partial``,
        so that it can be an argument of a compiled function.

    Raises:
        UnsupportedModel: the model observes nothing, or a factor.
    """
    eta, loss = split_likelihood(density, u)
    outputs, push = jax.linearize(eta, u)
    _, bend = jax.linearize(jax.grad(loss), outputs)
    return Partial(_product, push, bend)


def _product(push: Callable, bend: Callable, v: Array) -> Array:
    (image,) = jax.linear_transpose(push, v)(bend(push(v)))
    return image


def dense_at_once(density: ModelDensity, u: Float[Array, " D"]) -> Float[Array, "D D"]:
    """The Gauss-Newton matrix from its products, all rows at once, for a model of any kind.

    Args:
        density: a model and its arguments.
        u: the point, shape (D,).

    Returns:
        A symmetric matrix, shape (D, D).

    Raises:
        UnsupportedModel: the model observes nothing, or a factor.
    """
    return matrix_of(gauss_newton_product(density, u), u)


def _rows(data: ModelDensity | Rows) -> Rows:
    return data if isinstance(data, Rows) else rows_of(data)


def squares(factors: RowFactors) -> list[Float[Array, " d"]]:
    """The diagonal of J'HJ, site by site; that of the weight of a layer at one position is a product of matrices."""
    return [_square(part, factors) for part in factors.jacobians]


def _square(part: LayerJacobian | Array, factors: RowFactors) -> Array:
    if isinstance(part, LayerJacobian) and part.layer.positions > 1:
        part = part.whole()
    if not isinstance(part, LayerJacobian):
        return jnp.sum(part * factors.bent(part), axis=(0, 1))
    of_outputs = part.of_outputs[:, :, 0]
    grid = (part.inputs[:, 0] ** 2).T @ jnp.sum(of_outputs * factors.bent(of_outputs), axis=1)
    return jnp.ravel(grid.T if part.layer.axis else grid)


def _site_blocks(factors: RowFactors) -> list[Strips | LayerBlock]:
    return [block_of([part], factors) for part in factors.jacobians]


def _upper_blocks(factors: RowFactors) -> list[tuple[Strips | LayerBlock, list[Array]]]:
    """For each group of sites its own block, and its blocks with the groups that follow."""
    runs = groupby(enumerate(factors.jacobians), lambda at: at[0] if pays(at[1]) else -1)
    groups = [[part for _, part in run] for _, run in runs]
    return [
        (block_of(group, factors), [_beside(group, other, factors) for other in groups[i + 1 :]])
        for i, group in enumerate(groups)
    ]


def _beside(
    one: list[LayerJacobian | Array], other: list[LayerJacobian | Array], factors: RowFactors
) -> Array:
    """The block of two groups of sites; the narrower of their Jacobians is multiplied by H."""
    left, right = flat(one), flat(other)
    if left.shape[1] < right.shape[1]:
        return flat(one, factors).T @ right
    return left.T @ flat(other, factors)


def _assembled(upper: list[tuple[Strips | LayerBlock, list[Array]]]) -> Float[Array, "D D"]:
    """The matrix of which :func:`_upper_blocks` are the distinct blocks."""
    strips = [jnp.concatenate([own.whole(), *others], axis=1) for own, others in upper]
    return mirrored(strips) if len(strips) > 1 else strips[0]
