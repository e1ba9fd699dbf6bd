"""Kronecker factors of Gauss-Newton curvature: K-FAC for the layers of any NumPyro model."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from laplacebook.base.checks import require_number
from laplacebook.base.namespace import Numbers
from laplacebook.base.pytrees import STATIC, is_traced, register_dataclass
from laplacebook.base.quick import jit
from laplacebook.curvature.gauss_newton import squares
from laplacebook.curvature.row_jacobians import (
    LayerJacobian,
    RowFactors,
    require_kind,
    sum_over_rows,
)
from laplacebook.curvature.symmetric_blocks import LayerBlock, Strips, block_of
from laplacebook.model.density import ModelDensity
from laplacebook.model.not_finite import not_finite
from laplacebook.model.rows import require_sum, rows_of, sound


def kronecker_factors(
    density: ModelDensity,
    u: Float[Array, " D"],
    kind: str = "gauss_newton",
    batch_size: int | None = None,
    compared: bool = True,
) -> tuple[tuple[Array, Array] | Array, ...]:
    """Curvature of the negative log likelihood, site by site, with Kronecker products for layers.

    For a site of shape (m, k) that is the weight of a dense layer z = a W: A = (1/N) sum_n a_n' a_n
    (of rows that handlers weigh or mask the weighted mean) and B = sum_n J_n' H_n J_n, where J_n is the
    derivative of the outputs eta of row n with respect to z_n, and H_n the Hessian of its loss with respect to
    eta. Their Kronecker product stands for the block sum_n (a_n' a_n) (x) (J_n' H_n J_n) of the Gauss-Newton
    matrix: it is that block where
    one of the two does not depend on the row, and else takes them for uncorrelated (K-FAC: Martens
    and Grosse 2015; of the Gauss-Newton matrix Botev, Ritter and Barber 2017). A layer that is
    applied at T positions of a row has N T rows (expand: Eschenhagen et al. 2023). A convolution is
    such a layer, whose inputs are the patches of an image under its kernel: this is the KFC of
    Grosse and Martens (2016), with the bias apart; it takes what happens at two positions for
    uncorrelated, too. For all other sites the block of the Gauss-Newton matrix itself.

    Those are the factors of laplace-torch, which like :class:`~laplacebook.gaussian.kronecker.KroneckerBlock`
    adds the prior precision to the products of their eigenvalues, and keeps biases apart. A classifier of
    8x8 digits (64-64-10, 1,500 rows, prior precision 1, float64) has at one set of weights the log determinant
    826.5206561402 by both, and the log evidence -535.7044, whichever the backend of version 0.3 (curvlinops,
    BackPACK, ASDL) and the batch size. With ``stochastic=True`` labels are drawn there instead of summed over:
    -539.0 by curvlinops and -511.1 by ASDL. Its fit takes the weights as they are, where
    :func:`laplacebook.laplace` goes on to the mode.

    Args:
        density: a model and its arguments; its prior plays no part.
        u: a point, shape (D,).
        kind: ``"gauss_newton"``, or ``"empirical_fisher"``, with the gradient of the row's loss in
            place of J_n, and H_n = 1.
        batch_size: how many rows are held at a time; by default so many, and no fewer than 16, that no array
            of a batch is larger than the sum, or than about 2^18 numbers. Memory does not grow with N but for
            the log likelihood of all data, against which the sum over the rows is checked.
        compared: whether it is; else that is for the caller.

    Returns:
        For each site in the order of the coordinates: of a site of shape (m, k) the pair of factors
        along its two axes, shapes (m, m) and (k, k), whose Kronecker product is in the order of the
        coordinates; for a weight that is multiplied from the other side, z = W a, these are B and A.
        A kernel of shape (height, width, inputs, outputs) counts as one of shape (m, outputs); of
        shape (outputs, inputs, height, width) as one of shape (outputs, m).
        Of any other site of d coordinates a matrix of shape (d, d). Within a transformation of JAX
        all are NaN where outside of it there would be an error about rows that do not add up.

    Raises:
        ValueError: ``kind`` or ``batch_size`` has no such value.
        UnsupportedModel: a matrix, or the kernel of a convolution, is not the weight of exactly one
            layer, or the log likelihood is not a sum over rows.
        LaplaceError: the block of a site that is no such weight does not fit into memory.
        NonFinite: the log likelihood is not finite at u.
    """
    require_kind(kind)
    if batch_size is not None:
        require_number("batch_size", batch_size)
    factors = _factors(density, u, kind, batch_size, compared)
    bad = jnp.isnan(jnp.stack([jnp.sum(x) for x in jax.tree.leaves(factors)]).sum())
    if not is_traced(bad) and bad:
        if jnp.isfinite(density.loss(u)[0]):
            require_sum(density, u)
        raise not_finite(density, u)
    return factors


@partial(jit, static_argnums=(2, 3, 4))
def _factors(
    density: ModelDensity, u: Array, kind: str, batch_size: int | None, compared: bool
) -> tuple[tuple[Array, Array] | Array, ...]:
    """The factors, NaN where the rows are compared and do not add up."""
    rows = rows_of(density)
    parts, number = sum_over_rows(rows, u, kind, batch_size, _share, every_layer=True)
    return _finished(parts, number, sound(rows, u, compared))


def kronecker_factors_and_diagonal(
    density: ModelDensity, u: Float[Array, " D"], kind: str, batch_size: int | None
) -> tuple[tuple[tuple[Array, Array] | Array, ...], Float[Array, " D"]]:
    """What :func:`kronecker_factors` returns, and the diagonal of the Gauss-Newton or Fisher matrix, of the same rows.

    The arguments, and what is raised while it is traced, are those of that function. The rows are not compared.
    """
    rows = rows_of(density)

    def share(factors: RowFactors) -> tuple[tuple, list[Array]]:
        return _share(factors), squares(factors)

    (parts, number), of_sites = sum_over_rows(rows, u, kind, batch_size, share, every_layer=True)
    factors = _finished(parts, number, sound(rows, u, compared=False))
    return factors, jnp.concatenate(of_sites)


@register_dataclass
@dataclass(frozen=True)
class _Pair:
    """Sums over rows of a layer: of products of its inputs, and of those of its outputs; and the axis of the inputs."""

    of_inputs: Any
    of_outputs: Any
    axis: int = field(metadata=STATIC)


def _finished(
    total: list[_Pair | Strips | LayerBlock],
    number: Float[Numbers, ""],
    factor: Float[Numbers, ""],
) -> tuple[tuple[Array, Array] | Array, ...]:
    """The sums over so many rows, of which A is a mean, as symmetric matrices, all times a factor."""
    finished: list[tuple[Array, Array] | Array] = []
    counted = jnp.where(number > 0, number, 1)
    for part in total:
        if isinstance(part, _Pair):
            a, b = part.of_inputs / counted, part.of_outputs
            one, other = (factor * (x + x.T) / 2 for x in ((b, a) if part.axis else (a, b)))
            finished.append((one, other))
        else:
            finished.append(factor * part.whole())
    return tuple(finished)


def _share(factors: RowFactors) -> tuple[list[_Pair | Strips | LayerBlock], Float[Array, ""]]:
    """Of a batch, site by site, and the sum of the weights of its rows."""
    parts = [
        _pair(part, factors) if isinstance(part, LayerJacobian) else block_of([part], factors)
        for part in factors.jacobians
    ]
    return parts, jnp.sum(factors.weights)


def _pair(part: LayerJacobian, factors: RowFactors) -> _Pair:
    layer, jacobian = part.layer, part.of_outputs
    weighted = part.inputs * factors.weights[:, None, None]
    of_inputs = jnp.tensordot(weighted, part.inputs, ((0, 1), (0, 1))) / layer.positions
    bent = factors.bent(jacobian.reshape(*jacobian.shape[:2], layer.positions * layer.outputs))
    # As in the block of a bias, which has the same Jacobian: XLA computes it once.
    left, right = (x.reshape(-1, layer.outputs) for x in (jacobian, bent))
    of_outputs = left.T @ right
    return _Pair(of_inputs, of_outputs, int(layer.axis))
