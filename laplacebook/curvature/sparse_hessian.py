"""The exact Hessian of a log joint of many coordinates, by where it has entries at all.

Coordinates that no other one meets twice are moved together: a few products with vectors then hold all entries
(Curtis, Powell and Reid 1974, Journal of the Institute of Mathematics and its Applications 13, 117-119).
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from laplacebook.base.namespace import Numbers
from laplacebook.base.quick import jit_quickly
from laplacebook.curvature.bottlenecks import Bottlenecks, bottlenecks_of, lagrangian, low_rank
from laplacebook.curvature.hessian import hessian_product
from laplacebook.curvature.predictors import (
    Predictor,
    beside_predictors,
    predictor_of,
    predictor_terms,
)
from laplacebook.curvature.sparse_pattern import (
    TOGETHER,
    UNKNOWN,
    colored,
    generic_point,
    pattern_at,
    places_in,
    without,
    work_of_products,
)
from laplacebook.gaussian.sparse import SparsePrecision
from laplacebook.gaussian.sparse_layout import SparseLayout, optional
from laplacebook.model.density import ModelDensity

_CAUGHT = 1e-7  # of its size: what a product with the Hessian may differ by


@dataclass(frozen=True)
class SparseHessian:
    """Where the Hessian of a model's log joint has entries, and how they are found.

    Attributes:
        layout: the places of the entries.
        seed: for each coordinate the product in which it is moved, shape (D,).
        source: for each entry the product and the row in which it stands, as one number, shape (nnz,).
        number: of the products.
        border: how many coordinates that touch very many others are moved alone.
        bottlenecks: what adds terms of low rank.
        predictor: the predictors through which rows of data add to it, if there are any, and how many products
            hold their Jacobian.
        through: where that stands.
    """

    layout: SparseLayout
    seed: np.ndarray
    source: np.ndarray
    number: int
    border: int
    bottlenecks: Bottlenecks
    predictor: tuple[Bottlenecks, int] | None = None
    through: "Through | None" = None

    @classmethod
    def of(cls, density: ModelDensity, u: Float[np.ndarray, " D"]) -> "SparseHessian":
        """Find the pattern, by the program of the log joint.

        Args:
            density: the log joint, with its data.
            u: a point in its domain, about which it is looked at, shape (D,).

        Raises:
            ImportError: an optional dependency is missing.
            UnsupportedModel: the Hessian is not sparse.
        """
        u = generic_point(density, u)
        which = bottlenecks_of(density, u)
        predictor = None if which else predictor_of(density, u)
        if predictor is not None:
            with suppress(*UNKNOWN):
                return cls._through(predictor, density, u)
        layout = SparseLayout.of(u.size, *pattern_at(density, u, which))
        return cls(layout, *colored(layout), which)

    @classmethod
    def _through(
        cls, predictor: Predictor, density: ModelDensity, u: np.ndarray
    ) -> "SparseHessian":
        rest = beside_predictors(density, jnp.asarray(u), predictor.which)
        found = optional("asdex").hessian_sparsity(rest, jnp.asarray(u))
        inner = SparseLayout.of(u.size, found.rows, found.cols)
        layout = SparseLayout.of(
            u.size,
            np.concatenate([inner.rows, predictor.rows]),
            np.concatenate([inner.cols, predictor.cols]),
        )
        through = Through(
            *(predictor.seed, predictor.one, predictor.other, predictor.row),
            places_in(layout, inner.rows, inner.cols),
            places_in(layout, predictor.rows, predictor.cols),
            np.zeros(layout.rows.size),
        )
        return cls(layout, *colored(inner), (), (predictor.which, predictor.number), through)

    def parts_at(self, density: ModelDensity, u: Float[Numbers, " D"]) -> "Parts":
        """The entries of the Hessian at u of shape (D,), and its terms of low rank; within any transformation."""
        which, products = self.predictor or ((), 0)
        return hessian_parts(
            *(density, u, self.seed, self.source, self.through),
            number=self.number,
            bottlenecks=self.bottlenecks,
            which=which,
            products=products,
        )

    def precision(self, parts: "Parts") -> SparsePrecision:
        """The precision of these entries, factorised in NumPy."""
        return SparsePrecision.of(self.layout, *parts)

    def misses(
        self, density: ModelDensity, u: Float[np.ndarray, " D"], precision: SparsePrecision
    ) -> bool:
        """Whether a product of the Hessian with an irregular vector is not that of the entries."""
        vectors = np.random.default_rng(0).normal(size=(2, u.size)) * _units(precision)
        return any(
            self.differs(precision, v, np.asarray(hessian_product(density, u, v))) for v in vectors
        )

    @staticmethod
    def differs(
        precision: SparsePrecision, v: Float[np.ndarray, " D"], product: Float[np.ndarray, " D"]
    ) -> bool:
        """Whether the product of the Hessian with v is not that of a precision, beyond rounding."""
        scale = _units(precision)
        error = scale * np.abs(product - precision.matvec(v))
        size = scale * np.abs(product) + np.abs(v) / scale
        return not np.all(error <= _CAUGHT * (size + np.median(size)))


class Through(NamedTuple):
    """Where products with the Jacobian J of predictors add to the entries of a Hessian.

    Attributes:
        seed: for each coordinate the product in which it is moved, shape (D,).
        one: for each pair of entries in a row of J where the first stands among the products, shape (P,).
        other: where the second stands, shape (P,).
        row: of the pair, shape (P,).
        inner: the places of the entries that do not come through a predictor, shape (n,).
        place: to which the pair adds, shape (P,).
        blank: zeros, of the shape of all entries, (nnz,).
    """

    seed: Any
    one: Any
    other: Any
    row: Any
    inner: Any
    place: Any
    blank: Any


class Parts(NamedTuple):
    """A Hessian S + W K W'.

    Attributes:
        entries: of S, at the places of its layout, shape (nnz,).
        left: W, shape (D, R).
        middle: K, shape (R, R).
    """

    entries: Any
    left: Any
    middle: Any


def _units(precision: SparsePrecision) -> Float[np.ndarray, " D"]:
    """The diagonal to the power -1/2; one where it is zero."""
    diagonal = np.abs(np.asarray(precision.diagonal_of_matrix()))
    return np.where(diagonal > 0, diagonal, 1) ** -0.5


@partial(
    jit_quickly,
    work=work_of_products,
    half=True,
    static_argnames=("number", "bottlenecks", "which", "products"),
)
def hessian_parts(
    density: ModelDensity,
    u: Float[Array, " D"],
    seed: Int[Array, " D"],
    source: Int[Array, " n"],
    through: Through | None,
    *,
    number: int,
    bottlenecks: Bottlenecks,
    which: Bottlenecks,
    products: int,
) -> Parts:
    """What :meth:`SparseHessian.parts_at` returns: the arguments are its attributes."""
    left, middle = jnp.zeros((u.size, 0), u.dtype), jnp.zeros((0, 0), u.dtype)
    at = lagrangian(density, u, bottlenecks) if bottlenecks else None
    if at is not None:
        left, middle = low_rank(density, u, bottlenecks, at)
    rest = without(density, bottlenecks, at)
    if through is not None:
        rest = beside_predictors(density, u, which)
    product = jax.linearize(jax.grad(rest), u)[1]

    def moved(k: Array) -> Array:
        return product((seed == k).astype(u.dtype))

    found = jax.lax.map(moved, jnp.arange(number), batch_size=min(number, TOGETHER))
    entries = found.ravel()[source]
    if through is not None:
        bend, by_seed = predictor_terms(density, u, which, through.seed, products)
        by_seed = by_seed.ravel()
        pairs = bend[through.row] * by_seed[through.one] * by_seed[through.other]
        whole = through.blank.astype(u.dtype).at[through.inner].set(entries)
        entries = whole.at[through.place].add(pairs)
    return Parts(entries, left, middle)
