"""Kronecker factors of Gauss-Newton curvature: K-FAC for the dense layers of any NumPyro model."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from laplacebook.batches import NUMBERS
from laplacebook.blame import not_finite
from laplacebook.checks import require_number
from laplacebook.density import ModelDensity
from laplacebook.errors import UnsupportedModel
from laplacebook.layers import Layer, LayeredProgram, find_layers
from laplacebook.outputs import slope, split_likelihood
from laplacebook.row_factors import require_kind
from laplacebook.row_sums import require_sum, rows_add_up
from laplacebook.rows import Rows, rows_of

__all__ = ["kronecker_factors", "layered_diagonal"]


def kronecker_factors(
    density: ModelDensity,
    u: Float[Array, " D"],
    kind: str = "gauss_newton",
    batch_size: int | None = None,
) -> tuple[tuple[Array, Array] | Array, ...]:
    """Curvature of the negative log likelihood, site by site, with Kronecker products for layers.

    For a site of shape (m, k) that is the weight of a dense layer z = a W: A = (1/N) sum_n a_n' a_n
    and B = sum_n J_n' H_n J_n, where J_n is the derivative of the outputs eta of row n with respect
    to z_n, and H_n the Hessian of its loss with respect to eta. Their Kronecker product stands for
    the block sum_n (a_n' a_n) (x) (J_n' H_n J_n) of the Gauss-Newton matrix: it is that block where
    one of the two does not depend on the row, and else takes them for uncorrelated (K-FAC: Martens
    and Grosse 2015; of the Gauss-Newton matrix Botev, Ritter and Barber 2017). A layer that is
    applied at T positions of a row has N T rows (expand: Eschenhagen et al. 2023). For all other
    sites the block of the Gauss-Newton matrix itself.

    Args:
        density: a model and its arguments; its prior plays no part.
        u: a point, shape (D,).
        kind: ``"gauss_newton"``, or ``"empirical_fisher"``, with the gradient of the row's loss in
            place of J_n, and H_n = 1.
        batch_size: how many rows are held at a time (more than N are N); by default so many that no array of
            a batch has more than about 2^18 numbers. Memory does not grow with N but for the log likelihood
            of all data, against which the sum over the rows is checked.

    Returns:
        For each site in the order of the coordinates: of a site of shape (m, k) the pair of factors
        along its two axes, shapes (m, m) and (k, k), whose Kronecker product is in the order of the
        coordinates; for a weight that is multiplied from the other side, z = W a, these are B and A.
        Of any other site of d coordinates a matrix of shape (d, d). Within a transformation of JAX
        all are NaN where outside of it there would be an error about rows that do not add up.

    Raises:
        ValueError: ``kind`` or ``batch_size`` has no such value.
        UnsupportedModel: a site with two axes is not the weight of exactly one dense layer, or the
            log likelihood is not a sum over rows.
        NonFinite: the log likelihood is not finite at u.
    """
    require_kind(kind)
    if batch_size is not None:
        require_number("batch_size", batch_size)
    factors = _factors(density, u, kind, batch_size)
    bad = jnp.isnan(jnp.stack([jnp.sum(x) for x in jax.tree.leaves(factors)]).sum())
    if not isinstance(bad, jax.core.Tracer) and bad:
        if jnp.isfinite(density.loss(u)[0]):
            require_sum(density, u)
        raise not_finite(density, u)
    return factors


@partial(jax.jit, static_argnums=(2, 3))
def _factors(
    density: ModelDensity, u: Array, kind: str, batch_size: int | None
) -> tuple[tuple[Array, Array] | Array, ...]:
    """The factors, NaN where the rows do not add up."""
    rows, layers = rows_of(density), list[Layer]()

    def add_up(rows: Rows, u: Array) -> _Totals:
        program, outputs = _layers(rows, u)
        layers[:] = program.layers
        contract = partial(_contract, program.layers)
        return _sum(rows, u, program, outputs, kind, batch_size, contract)

    total = rows.over_shards(add_up, u)
    loud = jnp.where(rows_add_up(rows, u), 1, jnp.nan).astype(u.dtype)
    finished = iter(total.layers)
    blocks = iter(total.blocks)
    at = {layer.site: layer for layer in layers}
    factors: list[tuple[Array, Array] | Array] = []
    for i in range(len(density.sites)):
        if i in at:
            of_inputs, of_outputs = (loud * (x + x.T) / 2 for x in next(finished))
            of_inputs /= rows.number * at[i].positions
            pair = (of_inputs, of_outputs)
            factors.append(pair[::-1] if at[i].axis else pair)
        else:
            block = next(blocks)
            factors.append(loud * (block + block.T) / 2)
    return tuple(factors)


def layered_diagonal(
    rows: Rows, u: Float[Array, " D"], kind: str, batch_size: int | None
) -> Float[Array, " D"]:
    """The diagonal of the curvature, without the Jacobians of the weights of dense layers.

    A weight that is applied at one position of a row has the Jacobian a' (x) J, the squares of which
    factorise: its part of the diagonal is sum_n (a_n^2)' (J_n' H_n J_n)_kk, a product of matrices.

    Args:
        rows: the rows of a model, which are not checked to add up.
        u: a point, shape (D,).
        kind: as of :func:`kronecker_factors`, like the rest.
        batch_size: how many rows are held at a time.

    Raises:
        UnsupportedModel: a site with two axes is not the weight of exactly one dense layer applied
            at one position of a row.
        ValueError: there is no such kind.
    """
    require_kind(kind)
    at: set[int] = set()

    def add_up(rows: Rows, u: Array) -> tuple[list[Array], list[Array]]:
        program, outputs = _layers(rows, u)
        if any(layer.positions > 1 for layer in program.layers):
            raise UnsupportedModel("A layer is applied at several positions of a row.")
        at.update(layer.site for layer in program.layers)
        contract = partial(_squares, program.layers)
        return _sum(rows, u, program, outputs, kind, batch_size, contract)

    of_layers, of_sites = map(iter, rows.over_shards(add_up, u))
    sites = range(len(rows.density.sites))
    return jnp.concatenate([next(of_layers if i in at else of_sites) for i in sites])


def _squares(
    layers: Sequence[Layer], row: "_Row", counted: Array
) -> tuple[list[Array], list[Array]]:
    """The diagonals of the layers and of the other sites, of a batch of rows that are counted."""
    hessian = row.hessian * counted[:, None, None]
    of_sites = [_square(jacobian, hessian).sum(axis=0) for jacobian in row.of_sites]
    of_layers = []
    for layer, x, jacobian in zip(layers, row.inputs, row.of_layers, strict=True):
        grid = (x[:, 0] ** 2).T @ _square(jacobian[:, :, 0], hessian)
        of_layers.append(jnp.ravel(grid.T if layer.axis else grid))
    return of_layers, of_sites


class _Totals(NamedTuple):
    """Sums over rows: of A and B of each layer, and of other blocks."""

    layers: tuple[tuple[Array, Array], ...]
    blocks: tuple[Array, ...]


class _Row(NamedTuple):
    """Of one row: inputs (T, m) and J (C, T, k) of layers, J (C, d) of sites, H (C, C)."""

    inputs: list[Array]
    of_layers: list[Array]
    of_sites: list[Array]
    hessian: Array


def _layers(rows: Rows, u: Array) -> tuple[LayeredProgram, int]:
    """The layers of the program of the outputs of a row, and how many outputs it has."""

    def outputs(u: Array, index: Array) -> Array:
        return split_likelihood(rows.take(index[None]), u)[0](u)

    program = jax.make_jaxpr(outputs)(u, jnp.zeros((), int))
    (output,) = program.out_avals
    return find_layers(program, rows.density.sites), output.size


def _row(rows: Rows, u: Array, program: LayeredProgram, kind: str, index: Array) -> _Row:
    """The derivatives of one row, backwards from its outputs to its layers and other sites."""
    parts = [jnp.ravel(x) for x in rows.density.unravel(u).values()]
    weights = {layer.site for layer in program.layers}
    others = [i for i in range(len(parts)) if i not in weights]
    _, loss = split_likelihood(rows.take(index[None]), u)

    def outputs(moving: tuple[list[Array], list[Array]]) -> tuple[Array, list[Array]]:
        perturbations, sites = moving
        moved = dict(zip(others, sites, strict=True))
        at = [moved.get(i, part) for i, part in enumerate(parts)]
        return program.run(at, index, perturbations=perturbations)

    still = [jnp.zeros((layer.positions, layer.outputs), u.dtype) for layer in program.layers]
    eta, pullback, inputs = jax.vjp(outputs, (still, [parts[i] for i in others]), has_aux=True)
    if kind == "gauss_newton":
        rays, hessian = jnp.eye(eta.size, dtype=eta.dtype), jax.hessian(loss)(eta)
    else:
        rays, hessian = slope(loss, eta)[None], jnp.ones((1, 1), eta.dtype)
    ((of_layers, of_sites),) = jax.vmap(pullback)(rays)
    return _Row(inputs, of_layers, of_sites, hessian)


def _contract(layers: Sequence[Layer], row: _Row, counted: Array) -> _Totals:
    """The sums over a batch of rows, of those that are counted."""
    hessian = row.hessian * counted[:, None, None]
    factors = []
    for inputs, jacobian in zip(row.inputs, row.of_layers, strict=True):
        weighted = inputs * counted[:, None, None]
        of_inputs = jnp.tensordot(weighted, inputs, ((0, 1), (0, 1)))
        factors.append((of_inputs, _squared(jacobian, hessian)))
    blocks = tuple(_squared(jacobian[:, :, None], hessian) for jacobian in row.of_sites)
    return _Totals(tuple(factors), blocks)


def _squared(jacobian: Float[Array, "B C T k"], hessian: Float[Array, "B C C"]) -> Array:
    """The sum of J' H J over rows and positions, shape (k, k)."""
    product = jnp.einsum("bcd,bdtk->bctk", hessian, jacobian)
    return jnp.tensordot(product, jacobian, ((0, 1, 2), (0, 1, 2)))


def _square(jacobian: Float[Array, "B C k"], hessian: Float[Array, "B C C"]) -> Float[Array, "B k"]:
    """The diagonals of J' H J of each row."""
    return jnp.sum(jacobian * jnp.einsum("bcd,bdk->bck", hessian, jacobian), axis=1)


def _sum(
    rows: Rows,
    u: Array,
    program: LayeredProgram,
    outputs: int,
    kind: str,
    batch_size: int | None,
    contract: Callable[[_Row, Array], Any],
) -> Any:
    """The sum over batches of rows of what ``contract`` makes of them, weighted by 1, or 0 at the end."""
    size = batch_size or _batch_size(rows, program.layers, outputs)
    batches = -(-rows.number // size)
    size = -(-rows.number // batches)
    index = jnp.arange(batches * size).reshape(batches, size)
    per_row = jax.vmap(partial(_row, rows, u, program, kind))

    def of_batch(index: Array) -> Any:
        counted = (index < rows.number).astype(u.dtype)  # what fills up the last batch is not
        return contract(per_row(index % rows.number), counted)

    def add(total: Any, index: Array) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, of_batch(index)), None

    shapes = jax.eval_shape(of_batch, index[0])
    start = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return jax.lax.scan(add, start, index)[0]


def _batch_size(rows: Rows, layers: Sequence[Layer], outputs: int) -> int:
    weights = {layer.site for layer in layers}
    sites = [s.size for i, s in enumerate(rows.density.sites) if i not in weights]
    widths = [max(x.inputs, outputs * x.outputs) * x.positions for x in layers]
    largest = max([*widths, *(outputs * size for size in sites), 1])
    return min(max(NUMBERS // largest, 1), rows.number)
