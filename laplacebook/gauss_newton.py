"""The generalised Gauss-Newton and the empirical Fisher matrix of a log likelihood, in pieces.

With J the Jacobian of a row's outputs and H the Hessian of their loss, the Gauss-Newton matrix is the
sum over rows of J'HJ; with J' the gradient of a row's log likelihood and H = 1, the same sum is the
empirical Fisher matrix. No prior is in them. Memory does not grow with the number of rows beyond
what the model itself takes to evaluate. Where the log likelihood is not the sum over the rows, every
number is NaN (:func:`laplacebook.row_sums.require_sum` says why).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float

from laplacebook.curvature import matrix_of
from laplacebook.density import ModelDensity
from laplacebook.errors import UnsupportedModel
from laplacebook.kfac import layered_diagonal
from laplacebook.outputs import split_likelihood
from laplacebook.row_factors import RowFactors, sum_over_rows
from laplacebook.row_sums import rows_add_up
from laplacebook.rows import Rows, rows_of

__all__ = ["blocks", "dense", "dense_at_once", "diagonal", "gauss_newton_product"]

STRIPS = 4  # of a symmetric matrix, of which only the upper blocks are computed: 5/8 of the work
WIDE = 256  # coordinates, from which on that pays


def dense(
    data: ModelDensity | Rows,
    u: Float[Array, " D"],
    kind: str = "gauss_newton",
    batch_size: int | None = None,
) -> Float[Array, "D D"]:
    """The whole matrix (Schraudolph 2002; Martens 2020, section 8).

    The Gauss-Newton matrix of a model whose observations cannot be taken one by one is computed with
    all of them at once.

    Args:
        data: a model and its arguments, or its rows.
        u: the point, shape (D,).
        kind: ``"gauss_newton"`` or ``"empirical_fisher"``.
        batch_size: how many rows at a time.

    Returns:
        A symmetric matrix, shape (D, D); NaN if the rows do not add up.

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
    (whole,) = _symmetric(rows, u, kind, batch_size, [slice(None)])
    return whole


def diagonal(
    data: ModelDensity | Rows,
    u: Float[Array, " D"],
    kind: str = "gauss_newton",
    batch_size: int | None = None,
) -> Float[Array, " D"]:
    """The diagonal of :func:`dense`, shape (D,), with the same arguments.

    Raises:
        UnsupportedModel: the observations cannot be taken one by one; or the model observes nothing,
            or a factor.
        ValueError: there is no such kind.
    """
    rows = _rows(data)

    def share(factors: RowFactors) -> list[Array]:
        pairs = zip(factors.jacobians, factors.bent(), strict=True)
        return [jnp.sum(jacobian * bent, axis=(0, 1)) for jacobian, bent in pairs]

    try:
        entries = layered_diagonal(rows, u, kind, batch_size)
    except UnsupportedModel:  # not layers throughout
        entries = jnp.concatenate(sum_over_rows(rows, u, kind, batch_size, share))
    return _loud(rows, u) * entries


def blocks(
    data: ModelDensity | Rows,
    u: Float[Array, " D"],
    kind: str = "gauss_newton",
    batch_size: int | None = None,
) -> tuple[Float[Array, "_ _"], ...]:
    """The diagonal blocks of :func:`dense`, with the same arguments and the errors of :func:`diagonal`.

    Returns:
        One symmetric matrix a latent site in the order of ``density.sites``, of shape (d, d) for a
        site of d coordinates.
    """
    rows = _rows(data)
    each = [slice(i, i + 1) for i in range(len(rows.density.sites))]
    return tuple(_symmetric(rows, u, kind, batch_size, each))


def gauss_newton_product(
    density: ModelDensity, u: Float[Array, " D"]
) -> Callable[[Float[Array, " D"]], Float[Array, " D"]]:
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


def _symmetric(
    rows: Rows, u: Array, kind: str, batch_size: int | None, groups: list[slice]
) -> list[Array]:
    """The sum of J'HJ for each group of sites, from its upper blocks."""
    sizes = [sum(site.size for site in rows.density.sites[group]) for group in groups]
    strips = [_strips(size) for size in sizes]

    def share(factors: RowFactors) -> list[list[Array]]:
        jacobians, bent = factors.jacobians, factors.bent()
        pairs = [(_flat(jacobians[group]), _flat(bent[group])) for group in groups]
        return [
            [left[:, a:b].T @ right[:, a:] for a, b in of]
            for (left, right), of in zip(pairs, strips, strict=True)
        ]

    loud, whole = _loud(rows, u), []
    upper = sum_over_rows(rows, u, kind, batch_size, share)
    for parts, of in zip(upper, strips, strict=True):
        padded = [jnp.pad(x, ((0, 0), (a, 0))) for x, (a, _) in zip(parts, of, strict=True)]
        matrix, index = loud * jnp.concatenate(padded), jnp.arange(of[-1][1])
        whole.append(jnp.where(index[:, None] <= index, matrix, matrix.T))
    return whole


def _strips(size: int) -> list[tuple[int, int]]:
    """Where the strips of a symmetric matrix begin and end."""
    cuts = np.linspace(0, size, 1 + (STRIPS if size >= WIDE else 1)).astype(int).tolist()
    return list(zip(cuts, cuts[1:], strict=False))


def _flat(parts: list[Array]) -> Float[Array, "BC D"]:
    """Jacobians of B rows with C outputs each as one matrix of B C rows."""
    flat = [part.reshape(part.shape[0] * part.shape[1], part.shape[2]) for part in parts]
    return jnp.concatenate(flat, axis=1)


def _loud(rows: Rows, u: Array) -> Float[Array, ""]:
    """1, or NaN if the log likelihood is not the sum over the rows."""
    return jnp.where(rows_add_up(rows, u), 1, jnp.nan).astype(u.dtype)
