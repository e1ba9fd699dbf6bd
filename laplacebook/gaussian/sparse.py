"""A precision of which most entries are zero, by its sparse factor."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import prod
from types import ModuleType
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from laplacebook.base.checks import coordinates, require_key, require_numbers
from laplacebook.base.namespace import Numbers, eigh, namespace
from laplacebook.base.progress import progress
from laplacebook.base.pytrees import (
    STATIC,
    Leaf,
    from_host,
    is_traced,
    loud,
    on_host,
    register_dataclass,
)
from laplacebook.base.quick import in_full_precision
from laplacebook.gaussian.precision import Precision, one_by_one
from laplacebook.gaussian.sparse_layout import SparseLayout, as_numbers, optional

_VANISHED = 1e-8  # of the diagonal there: a pivot whose inverse would cost half of the digits
_GROUNDED = 32  # pivots at most
_SINGULAR = 1e-10  # what 1 - 1 may be computed as, where grounding is taken away again
_ZERO = 10  # times order and machine precision: what a zero eigenvalue may be computed as
_AT_ONCE = 2**22  # numbers of draws, at one time
_ALIKE = 1e-6  # of the largest entry of K: by how much its triangles may differ
_Host = Float[np.ndarray, "..."]
_Step = Literal["half_solve", "whitened", "solve"]


@register_dataclass
@dataclass(frozen=True)
class SparsePrecision(Precision):
    """A = S + W K W', a sparse matrix and one of low rank, in a few numbers for each of S's factor.

    With a permutation P, P' S P = L D L', of which M = P L D^1/2 is a root. Two symmetric matrices
    that differ from the identity along a few directions make it one of A: T of I + M^-1 W K+ W' M'^-1,
    and then U of I - T^-1 M^-1 W K- W' M'^-1 T^-1, where K = K+ - K-. So A = R R' with R = M T U,
    and what the positive part adds is never a small difference of large numbers.

    Where r > 0, S may be singular, as in a random field whose sum W' x is held softly. A pivot that
    vanishes is raised by a number c of the size of the diagonal there, and -c joins K-: the same A.
    This is done for 32 pivots at most. Where r = 0, S is positive definite by its pivots.

    Under a JAX transformation solutions, draws and variances are computed on the host, and have no
    derivatives. The entries of the inverse at the places of L alone are those of its recursion
    (Takahashi, Fagan and Chin 1973, Erisman and Tinney 1975).

    In the book: :prf:ref:`latent-fields-takahashi` and :eq:`latent-fields-woodbury` of :doc:`/book/latent-fields`.

    Attributes:
        entries: of S at the places of the layout, shape (nnz,).
        lower: the strictly lower entries of L, column by column.
        pivots: the diagonal of D, shape (D,).
        left: W, shape (D, r).
        middle: K, symmetric, shape (r, r).
        up: the directions of T, in the order of elimination, orthonormal columns.
        up_roots: the eigenvalues of T along them, at least 1.
        down: the directions of U.
        down_roots: the eigenvalues of U along them, at most 1.
        layout: where S has entries, and the order of elimination.
    """

    entries: Leaf
    lower: Leaf
    pivots: Leaf
    left: Leaf
    middle: Leaf
    up: Leaf
    up_roots: Leaf
    down: Leaf
    down_roots: Leaf
    layout: SparseLayout = field(metadata=STATIC)

    @classmethod
    def of(
        cls,
        layout: SparseLayout,
        entries: Float[Numbers, " nnz"],
        left: Float[Numbers, "D r"] | None = None,
        middle: Float[Numbers, "r r"] | None = None,
    ) -> "SparsePrecision":
        """Factorise S + W K W', in double precision whatever the numbers are.

        Args:
            layout: where S has entries.
            entries: of S at the places of the layout, shape (nnz,).
            left: W, shape (D, r); none: S alone.
            middle: K, symmetric, shape (r, r).

        Raises:
            ImportError: the packages of the extra ``sparse`` are not installed.
            ValueError: the shapes do not fit together, K is not symmetric, or a number is traced.
        """
        optional("laplacebook.gaussian.sparse_kernels")
        given = [x for x in (entries, left, middle) if x is not None]
        require_numbers("SparsePrecision.of", given)
        xp = namespace(*given)
        dtype = xp.result_type(*given)
        left = xp.zeros((layout.size, 0), dtype) if left is None else left
        middle = xp.zeros((0, 0), dtype) if middle is None else middle
        if entries.shape != layout.rows.shape or (*left.shape, left.shape[-1]) != (
            layout.size,
            *middle.shape,
        ):
            raise ValueError(
                f"entries ({layout.rows.size},), left ({layout.size}, r) and middle (r, r) have the shapes "
                f"{entries.shape}, {left.shape} and {middle.shape}, which do not fit together."
            )
        known = np.asarray(middle)
        if np.max(np.abs(known - known.T), initial=0) > _ALIKE * np.max(np.abs(known), initial=0):
            raise ValueError("middle is a symmetric matrix, and this one is not.")
        with np.errstate(all="ignore"):
            found = _factorised(layout, *map(as_numbers, (entries, left, middle)))
        to = from_host if xp is jnp else np.asarray
        lower, pivots, *stages = (to(x.astype(dtype)) for x in found)
        up, up_roots, down, down_roots = stages
        return cls(entries, lower, pivots, left, middle, up, up_roots, down, down_roots, layout)

    @property
    def shape(self) -> tuple[int, ...]:
        """``(*B, D)``."""
        return self.pivots.shape

    @in_full_precision
    def matvec(self, v: Float[Numbers, " D"]) -> Float[Numbers, " D"]:
        """A v."""
        v = coordinates(v, self.shape)
        parts = (self.entries, self.left, self.middle, v)
        if is_traced(parts):
            return _traced_product(self.layout, *parts)
        found = _product(self.layout, *map(np.asarray, parts))
        return found if namespace(*parts) is np else from_host(found)

    def log_determinant(self) -> Float[Numbers, "*B"]:
        """``log |A|``."""
        parts = (self.pivots, self.up_roots, self.down_roots)
        if is_traced(parts):
            return _log_determinant(jnp, *parts)
        with np.errstate(all="ignore"):
            found = _log_determinant(np, *map(np.asarray, parts))
        return found if namespace(*parts) is np else from_host(found)

    def whitened(self, z: Float[Numbers, "D *K"]) -> Float[Numbers, "D *K"]:
        """M'^-1 T^-1 U^-1 z."""
        return self._step("whitened", z)

    @in_full_precision
    def sample(
        self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()
    ) -> Float[Numbers, "*S D"]:
        """As :meth:`Precision.sample`, some draws at a time, with a progress bar where that takes seconds."""
        if is_traced((self, key)):
            return super().sample(key, sample_shape)
        require_key(key)
        normal = jax.random.normal(key, (prod(sample_shape), self.size), self._dtype)
        here, drawn = on_host(self), np.array(normal)
        together = max(1, _AT_ONCE // self.size)
        with progress(len(drawn), None, unit="draw") as bar:
            for begin in range(0, len(drawn), together):
                some = drawn[begin : begin + together]
                some[:] = here.whitened(some.T).T
                bar.update(len(some))
        return from_host(drawn.reshape(*sample_shape, self.size))

    def half_solve(self, v: Float[Numbers, "D *K"]) -> Float[Numbers, "D *K"]:
        """U^-1 T^-1 M^-1 v."""
        return self._step("half_solve", v)

    def solve(self, v: Float[Numbers, "D *K"]) -> Float[Numbers, "D *K"]:
        """A^-1 v."""
        return self._step("solve", v)

    @in_full_precision
    def diagonal_of_matrix(self) -> Float[Numbers, "*B D"]:
        """The diagonal of A."""
        xp = namespace(self.entries, self.left, self.middle)
        low_rank = xp.sum((self.left @ self.middle) * self.left, axis=-1)
        return self.entries[..., self.layout.diagonal] + low_rank

    def diagonal_of_inverse(self) -> Float[Numbers, "*B D"]:
        """The diagonal of A^-1: the marginal variances."""
        return self._called(partial(_inverse, self.layout, False), self.layout.size)

    def inverse_at_entries(self) -> Float[Numbers, "*B nnz"]:
        """The entries of A^-1 at the places of the layout."""
        return self._called(partial(_inverse, self.layout, True), self.layout.rows.size)

    @in_full_precision
    def covariance_of(self, jacobian: Float[Numbers, "C D"]) -> Float[Numbers, "C C"]:
        """J A^-1 J', as :meth:`Precision.covariance_of`, by solutions: half of the memory of two roots."""
        found = jacobian @ self.solve(jacobian.T)
        return (found + found.T) / 2

    def inverse(self) -> Float[Numbers, "*B D D"]:
        """A^-1, dense."""
        return one_by_one(lambda a: a.solve(a._identity()), self)

    def _step(self, step: _Step, v: Float[Numbers, "D *K"]) -> Float[Numbers, "D *K"]:
        v = coordinates(v, self.shape, columns=True)
        columns = v.reshape(self.size, prod(v.shape[1:]))
        return self._called(partial(_steps, self.layout, step), *columns.shape, v=columns).reshape(
            v.shape
        )

    def _called(
        self, function: Callable[..., _Host], *shape: int, v: Numbers | None = None
    ) -> Numbers:
        """A function of the factor, and of columns, on the host."""
        arrays = [self.lower, self.pivots, self.up, self.up_roots, self.down, self.down_roots]
        arrays += [] if v is None else [v]
        call = partial(_for_each, function, shape)
        if is_traced(arrays):
            dtype = jnp.result_type(*arrays)
            like = jax.ShapeDtypeStruct((*self.shape[:-1], *shape), dtype)
            return jax.pure_callback(
                lambda *x: call(*x).astype(dtype), like, *arrays, vmap_method="expand_dims"
            )
        xp = namespace(*arrays)
        found = call(*arrays).astype(xp.result_type(*arrays))
        return found if xp is np else from_host(found)


def _log_determinant(xp: ModuleType, pivots: Numbers, *others: Numbers) -> Numbers:
    roots = xp.concatenate([xp.sqrt(pivots), *others], axis=-1)
    return 2 * xp.log(roots).sum(axis=-1)


def _for_each(function: Callable[..., _Host], shape: tuple[int, ...], *given: Numbers) -> _Host:
    """A function over leading axes of what it takes; of vectors alone, all at once as columns."""
    arrays = [as_numbers(x) for x in given]
    ranks = (1, 1, 2, 1, 2, 1, 2)[: len(arrays)]
    leading = [x.shape[: x.ndim - rank] for x, rank in zip(arrays, ranks, strict=True)]
    batch = np.broadcast_shapes(*leading)
    with np.errstate(all="ignore"):
        if all(prod(lead) == 1 for lead in leading[:6]):
            factor = [x.reshape(x.shape[-r:]) for x, r in zip(arrays[:6], ranks, strict=False)]
            if len(arrays) == 6:
                return function(*factor).reshape(*batch, *shape)
            columns = np.moveaxis(arrays[6], -2, 0)
            found = function(*factor, columns.reshape(len(columns), -1))
            return np.moveaxis(found.reshape(columns.shape), 0, -2)
        whole = [
            np.broadcast_to(x, (*batch, *x.shape[-r:])) for x, r in zip(arrays, ranks, strict=True)
        ]
        each = [function(*(x[at] for x in whole)) for at in np.ndindex(*batch)]
        return np.reshape(each, (*batch, *shape))


def _traced_product(
    layout: SparseLayout, entries: Numbers, left: Numbers, middle: Numbers, v: Numbers
) -> Numbers:
    below = layout.below
    rows, cols = layout.rows[below], layout.cols[below]
    product = entries[layout.diagonal] * v + left @ (middle @ (left.T @ v))
    product = product.at[rows].add(entries[below] * v[cols])
    return product.at[cols].add(entries[below] * v[rows])


def _product(layout: SparseLayout, entries: _Host, left: _Host, middle: _Host, v: _Host) -> _Host:
    below = layout.below
    rows, cols = layout.rows[below], layout.cols[below]
    product = entries[layout.diagonal] * v + left @ (middle @ (left.T @ v))
    for one, other in ((rows, cols), (cols, rows)):
        product += np.bincount(one, entries[below] * v[other], layout.size).astype(product.dtype)
    return product


def _factorised(
    layout: SparseLayout, entries: _Host, left: _Host, middle: _Host
) -> tuple[_Host, ...]:
    """L, D, and the directions and eigenvalues of T and U; D is NaN if A is not positive definite."""
    rank = left.shape[1]
    lower, pivots, added = _grounded(layout, entries, rank > 0)
    places = np.flatnonzero(added)
    width = min(layout.size, rank)
    nothing = (np.zeros((layout.size, width)), np.ones(width)) * 2
    sound = (
        all(np.isfinite(x).all() for x in (lower, pivots, left, middle))
        and (pivots > 0).all()
        and len(places) <= _GROUNDED
    )
    if not sound:
        return lower, np.full_like(pivots, np.nan), *nothing
    if not rank:
        return lower, pivots, *nothing
    values, vectors = eigh((middle + middle.T) / 2)
    values = np.where(
        np.abs(values) <= _ZERO * rank * np.finfo(float).eps * np.abs(values).max(), 0, values
    )
    raised = left @ (vectors * np.sqrt(np.maximum(values, 0)))
    lowered = left @ (vectors * np.sqrt(np.maximum(-values, 0)))
    ground = np.zeros((layout.size, len(places)))
    ground[places, np.arange(len(places))] = np.sqrt(added[places])
    nowhere = (np.zeros((layout.size, 0)), np.ones(0)) * 2
    halves = [
        _steps(layout, "half_solve", lower, pivots, *nowhere, columns)
        for columns in (raised, np.column_stack([lowered, ground]))
    ]
    up, gains, _ = np.linalg.svd(halves[0], full_matrices=False)
    up_roots = np.hypot(1, gains)
    down, losses, _ = np.linalg.svd(_shrunk(up, up_roots, halves[1]), full_matrices=False)
    left_over = (1 - losses) * (1 + losses)
    regular = loud((left_over > (_SINGULAR if len(places) else 0)).all(), float)
    return lower, regular * pivots, up, up_roots, down, regular * np.sqrt(left_over)


def _grounded(layout: SparseLayout, entries: _Host, singular: bool) -> tuple[_Host, _Host, _Host]:
    """L and D of S, and what was added to the diagonal where S may be singular."""
    factor, diagonal = layout.factor, entries[layout.diagonal]
    added = np.zeros(layout.size)
    for _ in range(_GROUNDED + 1):
        whole = entries.copy()
        whole[layout.diagonal] += added
        lower, pivots = factor.numbers(whole)
        scale = np.abs(diagonal + added)[factor.permutation]
        vanished = factor.permutation[np.abs(pivots) <= _VANISHED * scale]
        if not singular or not vanished.size:
            break
        added[vanished] = np.where(diagonal[vanished] > 0, diagonal[vanished], 1)
    return lower, pivots, added


def _steps(
    layout: SparseLayout,
    step: _Step,
    lower: _Host,
    pivots: _Host,
    up: _Host,
    up_roots: _Host,
    down: _Host,
    down_roots: _Host,
    columns: _Host,
) -> _Host:
    """R^-1 v, R'^-1 v or A^-1 v for each column v."""
    kernels, factor = optional("laplacebook.gaussian.sparse_kernels"), layout.factor
    structure = factor.indptr, factor.indices, as_numbers(lower)
    root = np.sqrt(pivots)[:, None]
    if step == "whitened":
        found = np.array(columns)
    else:
        found = columns[factor.permutation]
        kernels.substitute(*structure, found)
        found = _shrunk(down, down_roots, _shrunk(up, up_roots, found / root))
    if step == "half_solve":
        return found
    found = _shrunk(up, up_roots, _shrunk(down, down_roots, found)) / root
    kernels.substitute_transposed(*structure, found)
    return found[factor.inverse]


def _shrunk(directions: _Host, roots: _Host, columns: _Host) -> _Host:
    """(I + Q diag(roots - 1) Q')^-1 v in the place of each column v."""
    if roots.size:
        # Not by BLAS, whose threads wait for each other on a busy machine.
        along = np.einsum("ij,ik->jk", directions, columns) * ((1 - roots) / roots)[:, None]
        kernels = optional("laplacebook.gaussian.sparse_kernels")
        kernels.add_product(as_numbers(directions), along, columns)
    return columns


def _inverse(
    layout: SparseLayout,
    at_entries: bool,
    lower: _Host,
    pivots: _Host,
    up: _Host,
    up_roots: _Host,
    down: _Host,
    down_roots: _Host,
) -> _Host:
    """The diagonal of A^-1, or its entries at the places of the layout."""
    kernels, factor = optional("laplacebook.gaussian.sparse_kernels"), layout.factor
    below, diagonal = kernels.selected_inverse(
        factor.indptr, factor.indices, as_numbers(lower), as_numbers(pivots)
    )
    rows = cols = np.arange(layout.size)
    found = diagonal[factor.inverse]
    if at_entries:
        rows, cols = layout.rows, layout.cols
        found = np.concatenate([below, diagonal])[factor.places]
    nowhere = (np.zeros((layout.size, 0)), np.ones(0)) * 2
    shrunk = _shrunk(up, up_roots, np.array(down))
    directions = _steps(layout, "whitened", lower, pivots, *nowhere, np.column_stack([up, shrunk]))
    weights = np.concatenate([1 / up_roots**2 - 1, 1 / down_roots**2 - 1])
    for direction, weight in zip(directions.T, weights, strict=True):
        found += weight * direction[rows] * direction[cols]
    return found
