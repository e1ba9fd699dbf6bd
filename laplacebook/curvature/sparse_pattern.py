"""Where the Hessian of a log joint has entries: by its program, or where that has loops by its columns."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.jaxprs import all_equations_of
from laplacebook.base.quick import jit_quickly, numbers_in
from laplacebook.curvature.bottlenecks import Bottlenecks, Lagrangian, apart, lagrangian
from laplacebook.curvature.hessian import WORK, hessian_product
from laplacebook.gaussian.sparse_layout import SparseLayout, optional
from laplacebook.model.density import ModelDensity

TOGETHER = 32  # products with vectors at a time
_LOOK = 12  # columns that tell whether there is anything to save
_SHARE = 0.25  # of all rows: more is not sparse
SMALL = 500  # coordinates of which any Hessian may be taken
_LOOPED = 5000  # coordinates of which the Hessian may be looked at column by column
_BORDER = 64  # entries in a row, at least, that touches far more than the others
_FAR_MORE = 10  # times the median row
_LOOPS = {"scan", "while"}
_ZERO = 1e-13  # of the largest in a column: rounding
# Of asdex, for an operation that it does not know, or an index that depends on coordinates.
UNKNOWN = (NotImplementedError, ValueError)


def work_of_products(density: ModelDensity, *_: Any, **__: Any) -> int:
    """How many numbers a product of the Hessian with a vector computes, about."""
    return WORK * numbers_in(density)


def without(
    density: ModelDensity, which: Bottlenecks, at: Lagrangian | None
) -> Callable[[Array], Float[Array, ""]]:
    """The function of u of which S is the Hessian: the bottlenecks are held where they are."""
    if at is None:
        return lambda u: density.loss(u)[0]
    value = apart(density, which, at)
    return lambda u: value(u, at.w)


def _product_of(
    density: ModelDensity, u: Array, which: Bottlenecks, at: Lagrangian | None
) -> Callable[[Array], Float[Array, " D"]]:
    return jax.linearize(jax.grad(without(density, which, at)), u)[1]


_lagrangian = jit_quickly(lagrangian, work_of_products, static_argnames="which")


def generic_point(density: ModelDensity, u: Float[np.ndarray, " D"]) -> Float[np.ndarray, " D"]:
    """A point beside u at which no derivative vanishes by symmetry, where the log joint is finite."""
    for size in (0.1, 0.01, 0.0):
        point = u + size * np.random.default_rng(1).normal(size=u.size)
        if np.all(np.isfinite(hessian_product(density, point, np.ones_like(u)))):
            return point.astype(u.dtype)
    return u


def pattern_at(
    density: ModelDensity, u: Float[np.ndarray, " D"], which: Bottlenecks
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """The rows and columns of the entries of S, in both triangles.

    Args:
        density: the log joint, with its data.
        u: a point in its domain at which no derivative vanishes by symmetry, shape (D,).
        which: the bottlenecks, held where they are at u.

    Raises:
        UnsupportedModel: there are so many that nothing is saved.
    """
    size = u.size
    if size > SMALL:
        some = np.random.default_rng(2).choice(size, _LOOK, replace=False)
        filled = np.count_nonzero(_columns(density, u, some, which), axis=1)
        if np.median(filled) > _SHARE * size:
            raise _not_sparse(density, int(np.median(filled)))
    if _has_loops(density, u):
        return _by_columns(density, u, which)
    asdex = optional("asdex")
    at = _lagrangian(density, u, which=which) if which else None
    try:
        found = asdex.hessian_sparsity(without(density, which, at), jnp.asarray(u))
    except UNKNOWN:
        return _by_columns(density, u, which)
    return np.asarray(found.rows), np.asarray(found.cols)


def _has_loops(density: ModelDensity, u: np.ndarray) -> bool:
    """Whether a coordinate enters a loop."""
    equations, _ = all_equations_of(jax.make_jaxpr(density.loss)(u))
    touched: set[Any] = {0}
    for source, inputs, outputs in equations:
        if any(isinstance(x, int) and x in touched for x in inputs):
            touched.update(outputs)
            if source.primitive.name in _LOOPS:
                return True
    return False


def _by_columns(
    density: ModelDensity, u: np.ndarray, which: Bottlenecks
) -> tuple[np.ndarray, np.ndarray]:
    """The pattern of a program from which it cannot be read: as numbers tell it."""
    if u.size > _LOOPED:
        raise UnsupportedModel(
            f"The places of the Hessian of {u.size:,} coordinates cannot be read off the program of {density.name}, "
            "and are too many to look at one by one.",
            causes=[
                "a series whose states are sites within a loop (numpyro's scan, lax.scan)",
                "a branch (lax.cond), or a triangular solve, as in MultivariateNormal",
            ],
            remedy="make all states one site of T numbers, and write the prior of z[1:] given z[:-1] at once; write "
            "jnp.where for a branch, and the quadratic form for a multivariate normal.",
        )
    rows, cols = [], []
    for some in np.array_split(np.arange(u.size), max(1, u.size // 256)):
        index, places = np.nonzero(_columns(density, u, some, which))
        rows.append(some[index])
        cols.append(places)
    return np.concatenate(rows), np.concatenate(cols)


def _columns(
    density: ModelDensity, u: np.ndarray, index: np.ndarray, which: Bottlenecks
) -> np.ndarray:
    """Which entries of some columns of S are not zero, a row for each: by their numbers at u."""
    found = np.abs(_some_columns(density, u, index, bottlenecks=which))
    return found > _ZERO * found.max(axis=1, keepdims=True)


@partial(jit_quickly, work=work_of_products, static_argnames="bottlenecks")
def _some_columns(
    density: ModelDensity, u: Array, index: Array, *, bottlenecks: Bottlenecks
) -> Float[Array, "K D"]:
    at = lagrangian(density, u, bottlenecks) if bottlenecks else None
    product = _product_of(density, u, bottlenecks, at)

    def column(k: Array) -> Array:
        return product(jnp.zeros_like(u).at[k].set(1))

    return jax.lax.map(column, index, batch_size=TOGETHER)


def places_in(
    layout: SparseLayout, rows: Int[np.ndarray, " n"], cols: Int[np.ndarray, " n"]
) -> Int[np.ndarray, " n"]:
    """Where places of either triangle stand among the entries of a layout that has them."""

    def key(rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        low, high = np.minimum(rows, cols), np.maximum(rows, cols)
        return low.astype(np.int64) * layout.size + high

    return np.searchsorted(key(layout.rows, layout.cols), key(rows, cols))


def colored(
    layout: SparseLayout,
) -> tuple[Int[np.ndarray, " D"], Int[np.ndarray, " nnz"], int, int]:
    """The seed of each coordinate, the source of each entry, and how many products and border there are."""
    asdex = optional("asdex")
    size, rows, cols = layout.size, layout.rows, layout.cols
    degree = np.bincount(rows, minlength=size) + np.bincount(cols, minlength=size) - 1
    border = degree > max(_BORDER, _FAR_MORE * np.median(degree))
    inner, alone = np.flatnonzero(~border), np.flatnonzero(border)
    within = ~(border[rows] | border[cols])
    below = within & (rows > cols)
    number = np.cumsum(~border) - 1
    one, other = number[rows[below]], number[cols[below]]
    same = np.arange(inner.size)
    places = np.concatenate([same, one, other]), np.concatenate([same, other, one])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", asdex.DenseColoringWarning)
        coloring = asdex.hessian_coloring_from_sparsity(
            asdex.SparsityPattern.from_coo(*places, (inner.size, inner.size))
        )
    products = coloring.num_colors
    seed = np.full(size, -1, np.int32)
    seed[inner] = coloring.colors
    seed[alone] = products + np.arange(alone.size)
    # What asdex reads for each entry, if what it reads from are the places themselves.
    table = np.arange(products)[:, None] * size + inner
    # One program, not one for each of its operations.
    read = np.asarray(jit_quickly(partial(asdex.decompress_data, coloring=coloring))(table))
    source = np.empty(rows.size, np.int64)
    source[within & (rows == cols)] = read[: inner.size]
    source[below] = read[inner.size : inner.size + one.size]
    crossing = ~within
    moved = np.where(border[cols], cols, rows)[crossing]
    source[crossing] = seed[moved].astype(np.int64) * size + (rows + cols)[crossing] - moved
    return seed, source, products + alone.size, alone.size


def _not_sparse(density: ModelDensity, filled: int) -> UnsupportedModel:
    return UnsupportedModel(
        f"The Hessian of {density.name} is not sparse: a typical one of its {density.dimension:,} coordinates "
        f"meets {filled - 1:,} others.",
        causes=[
            "a series written by its innovations, whose states are sums of all before them (cumsum, "
            "a non-centred walk)",
            "a dense covariance matrix (a Gaussian process)",
        ],
        remedy="make the states themselves the site, with a prior of z[1:] given z[:-1]; or use "
        'structure="dense".',
    )
