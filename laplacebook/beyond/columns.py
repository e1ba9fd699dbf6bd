"""Hessians in many effects, at many points, by products with a few vectors."""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from laplacebook.base.pytrees import own_copy
from laplacebook.base.quick import jit_quickly, numbers_in
from laplacebook.beyond.in_lanes import in_lanes, lanes_of, loss_of, one_by_one
from laplacebook.beyond.leaves import Layout
from laplacebook.curvature.hessian import COLUMNS, factorises
from laplacebook.model.density import ModelDensity

_TOGETHER = 6  # products in one look: groups and a few columns take no more
_WHOLE = 64  # effects, of which all columns are one look where each meets most others
_FEW = 18  # effects, of which all columns take little more
_SEVERAL, _OFTEN = range(4, 7), 400  # hyperparameters, for which thousands of points are looked at
_BORDER = 4, 2  # times the entries of a median row: such an effect moves alone, by which is better
_SHARE = 0.5  # of the products that a dense Hessian takes: with more there is little to save
_ASIDE = (
    0.1  # units of the unconstrained space, from its middle: where no entry vanishes by symmetry
)
_PATTERNS = 20  # of Hessians seen before


@dataclass(frozen=True, eq=False)
class Pattern:
    """Where the Hessian has entries, and from which product each is read.

    Attributes:
        ways: the vectors of the products, shape (C, 6, d).
        looks: how many of these C parts there are to look at.
        places: of the entries in the Hessian as one list of numbers, shape (n,).
        source: of each entry, among the products as one list of numbers, shape (n,).
        check: the product that is not read, but has to agree with what was read.
        layout: of the Hessian, where many effects meet only a few others; else None.
    """

    ways: Array
    looks: int
    places: np.ndarray
    source: np.ndarray
    check: int
    layout: Layout | None

    @cached_property
    def taken(self) -> Float[np.ndarray, "C d"]:
        """The vectors of these, and of the product that checks them."""
        return np.asarray(self.ways).reshape(-1, self.ways.shape[-1])[: self.check + 1]

    def at_once(self) -> "Pattern":
        """The same, with all products in one look."""
        return replace(self, ways=own_copy(self.taken[None], float), looks=1)

    @property
    def source_of_each(self) -> Int[np.ndarray, " dd"]:
        """Where each entry of the Hessian stands among all these products; behind them where it is zero."""
        size = self.ways.shape[-1]
        found = np.full(size * size, (self.check + 1) * size)
        found[self.places] = self.source
        return found

    @property
    def read(self) -> Float[np.ndarray, "C d"]:
        """The vectors of the products that are read."""
        return self.taken[: self.check]

    @cached_property
    def _in_layout(self) -> tuple[Int[np.ndarray, " m"], Int[np.ndarray, " m"]]:
        """Where entries stand among the numbers of the layout, and which they are."""
        assert self.layout is not None
        place = self.layout.places(*np.divmod(self.places, self.ways.shape[-1]))
        which = np.flatnonzero(place >= 0)
        return place[which], which

    @cached_property
    def _rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows that have entries, the first of each, and by what the product that checks multiplies each entry."""
        rows, columns = np.divmod(self.places, self.ways.shape[-1])
        return *np.unique(rows, return_index=True), self.taken[self.check][columns]

    def hessians(self, read: Float[np.ndarray, "K n"]) -> np.ndarray:
        """The Hessians that have these entries, as the numbers of the layout, if there is one.

        Args:
            read: the entries, row by row.
        """
        size = self.ways.shape[-1]
        if self.layout is None:
            hessian = np.zeros((len(read), size * size))
            hessian[:, self.places] = read
            return hessian.reshape(-1, size, size)
        numbers = np.zeros((len(read), self.layout.numbers))
        place, which = self._in_layout
        numbers[:, place] = read[:, which]
        return numbers

    def checked(self, read: Float[np.ndarray, "K n"]) -> tuple[np.ndarray, np.ndarray]:
        """The product with the last vector of the Hessians that have these entries, and that of absolute values.

        Args:
            read: the entries, row by row.
        """
        rows, first, factors = self._rows
        parts = read * factors
        found = np.zeros((2, len(read), self.ways.shape[-1]))
        found[0][:, rows] = np.add.reduceat(parts, first, axis=1)
        found[1][:, rows] = np.add.reduceat(abs(parts), first, axis=1)
        return found[0], found[1]

    def trace_with(self, inverse: Float[np.ndarray, "K d d"]) -> Float[np.ndarray, "K C d"]:
        """The weights of these products in the trace of the Hessian times each of some symmetric matrices."""
        number, size = inverse.shape[:2]
        weights = np.zeros((self.check * size, number))
        np.add.at(weights, self.source, inverse.reshape(number, -1)[:, self.places].T)
        return weights.T.reshape(number, self.check, size)


@dataclass(frozen=True)
class Columns:
    """Effects that are moved together where none meets another one, nor both the same one.

    A few products of the Hessian with vectors then hold all entries (Curtis, Powell and Reid 1974, Journal of the
    Institute of Mathematics and its Applications 13, 117-119). Where these are is seen at one point. At every other
    point one more product, with a random vector, has to be that of the Hessian that was read: else it is taken
    column by column there.

    Attributes:
        density: the log joint.
        over: the names of the hyperparameters.
        dense: the columns of the identity, as the ways of a pattern.
        pattern: None if nothing is saved by it.
    """

    density: ModelDensity
    over: tuple[str, ...]
    dense: Array
    pattern: Pattern | None

    @classmethod
    def of(
        cls, density: ModelDensity, over: tuple[str, ...], size: int, often: bool = False
    ) -> "Columns | None":
        """Those of a log joint.

        None of few effects, unless one site holds most of them, or if what depends on h alone costs most and one look
        does not do.

        Args:
            density: the log joint.
            over: the names of the hyperparameters.
            size: d, how many effects there are.
            often: whether another program, of which one look tells a Hessian, is worth its compilation.
        """
        is_costly = factorises(density)
        largest = max(site.size for site in density.sites if site.name not in over)
        is_mixed = size - largest >= _TOGETHER
        if size <= _FEW or (size <= COLUMNS and (is_mixed or is_costly)):
            return None
        parts = -(-size // _TOGETHER)
        dense = _ways(np.eye(size), parts)
        unlimited = cls(density, over, dense, None)
        hessian = unlimited.hessians(*aside(density, size))[2][0]
        if not np.isfinite(hessian).all():
            return None if is_costly else unlimited
        pattern = pattern_of(hessian != 0)
        if is_costly and (pattern is None or pattern.looks > 1):
            return None
        if often and pattern is not None:
            pattern = pattern.at_once()
        if pattern is None and size <= _WHOLE:
            dense = own_copy(np.eye(size)[None], float)
        return cls(density, over, dense, pattern)

    @property
    def looks(self) -> int:
        """How many looks at a point tell its Hessian."""
        return len(self.dense) if self.pattern is None else self.pattern.looks

    def hessians(
        self, hyper: Float[np.ndarray, "K H"], z: Float[np.ndarray, "K d"]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The negative log joint, its gradient and its Hessian in z.

        Args:
            hyper: h, shape (K, H).
            z: shape (K, d).
        """
        f, gradient, seen = self.seen(hyper, z)
        layout = None if self.pattern is None else self.pattern.layout
        if layout is not None:
            seen = [one if one.ndim == 2 else layout.matrix(one) for one in seen]
        return f, gradient, np.asarray(seen)

    def seen(
        self, hyper: Float[np.ndarray, "K H"], z: Float[np.ndarray, "K d"]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | list[np.ndarray]]:
        """The same, with each Hessian as the numbers of the layout, if there is one, where these tell it.

        Args:
            hyper: h, shape (K, H).
            z: shape (K, d).
        """
        pattern = self.pattern
        if pattern is None:
            f, gradient, columns = self._products(self.dense, len(self.dense), hyper, z)
            return f, gradient, symmetric(columns[:, : z.shape[1]])
        f, gradient, products = self._products(pattern.ways, pattern.looks, hyper, z)
        return f, gradient, self.told(pattern, products, hyper, z)

    def told(
        self, pattern: Pattern, products: np.ndarray, hyper: np.ndarray, z: np.ndarray
    ) -> np.ndarray | list[np.ndarray]:
        """The Hessians that products with the ways of a pattern tell.

        Args:
            pattern: of this log joint.
            products: in the order of the ways, shape (K, C, d).
            hyper: h, shape (K, H).
            z: shape (K, d).
        """
        read = products.reshape(len(z), -1)[:, pattern.source]
        product, size_of_it = pattern.checked(read)
        rounding = np.sqrt(jnp.finfo(jnp.result_type(float)).eps)
        off = abs(products[:, pattern.check] - product)
        wrong = ~(off <= rounding * size_of_it).all(axis=1)
        hessian = pattern.hessians(read)
        if not wrong.any():
            return hessian
        column_by_column = Columns(self.density, self.over, self.dense, None)
        right = iter(column_by_column.hessians(hyper[wrong], z[wrong])[2])
        pairs = zip(wrong, hessian, strict=True)
        return [next(right) if is_wrong else one for is_wrong, one in pairs]

    def _products(
        self, ways: Array, looks: int, hyper: np.ndarray, z: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        number, size = z.shape
        lanes = lanes_of(ways.shape[1] * (size + numbers_in(self.density)))
        part = np.tile(np.arange(looks), number)
        points = np.repeat(hyper, looks, axis=0), np.repeat(z, looks, axis=0)
        at = self.density, self.over, lanes, part, *points
        times = _OFTEN if hyper.shape[1] in _SEVERAL else 1
        found = in_lanes(_products, *at, times=times, ways=ways)
        f, gradient, products = found
        return f[::looks], gradient[::looks], products.reshape(number, -1, size)


@partial(jit_quickly, half=True, static_argnames="over")
def _products(
    density: ModelDensity,
    number: Array | int,
    part: Int[Array, " K"],
    hyper: Float[Array, "K H"],
    z: Float[Array, "K d"],
    over: tuple[str, ...],
    ways: Float[Array, "C T d"],
) -> tuple[Array, ...]:
    """The negative log joint, its gradient, and products of its Hessian in z with some ways; NaN as it is."""

    def look(part: Array, hyper: Array, z: Array) -> tuple[Array, ...]:
        return products_of(density, over, ways[part], hyper, z)

    return one_by_one(look, number, part, hyper, z)


def products_of(
    density: ModelDensity,
    over: tuple[str, ...],
    ways: Float[Array, "T d"],
    hyper: Float[Array, " H"],
    z: Float[Array, " d"],
) -> tuple[Array, Array, Array]:
    """The negative log joint, its gradient, and products of its Hessian in z with some ways; NaN as it is.

    Args:
        density: the log joint.
        over: the names of the hyperparameters.
        ways: vectors, shape (T, d).
        hyper: h, shape (H,).
        z: shape (d,).
    """

    def gradient(z: Array) -> tuple[Array, tuple[Array, Array]]:
        f = partial(loss_of, density, over, hyper)
        (value, valid), slope = jax.value_and_grad(f, has_aux=True)(z)
        return slope, (value, valid)

    slope, product, (value, valid) = jax.linearize(gradient, z, has_aux=True)
    return jnp.where(valid, value, jnp.nan), slope, jax.vmap(product)(ways)


def symmetric(columns: Float[np.ndarray, "K d d"]) -> Float[np.ndarray, "K d d"]:
    """Hessians from their columns, without rounding."""
    return (columns + columns.swapaxes(1, 2)) / 2


def _ways(rows: np.ndarray, parts: int) -> Array:
    """Vectors of d numbers, filled up with zeros."""
    size = rows.shape[1]
    filled = np.zeros((parts * _TOGETHER, size))
    filled[: len(rows)] = rows
    return own_copy(filled.reshape(parts, _TOGETHER, size), float)


def aside(
    density: ModelDensity, size: int
) -> tuple[Float[np.ndarray, "1 H"], Float[np.ndarray, "1 d"]]:
    """A point at which the pattern of the Hessian in d effects is seen, as h and z."""
    point = _ASIDE * np.random.default_rng(0).normal(size=(1, density.dimension))
    return point[:, : density.dimension - size], point[:, density.dimension - size :]


def pattern_of(known: Bool[np.ndarray, "d d"]) -> Pattern | None:
    """The products by which a Hessian is known.

    Args:
        known: where it has entries.

    Returns:
        A pattern; None if nothing is saved by it.
    """
    return _pattern(np.packbits(known).tobytes(), len(known), str(jnp.result_type(float)))


@lru_cache(_PATTERNS)
def _pattern(packed: bytes, size: int, dtype: str) -> Pattern | None:
    """That of the entries whose bits these are, with vectors of this type."""
    bits = np.unpackbits(np.frombuffer(packed, np.uint8), count=size * size)
    known = bits.reshape(size, size).astype(bool)
    parts = -(-size // _TOGETHER)
    filled = known.sum(axis=1)
    borders = [filled > times * np.median(filled) for times in _BORDER]
    colors = [_colors(known, border) for border in borders]
    best = int(np.argmin([color.max() for color in colors]))
    border, color = borders[best], colors[best]
    products = color.max() + 1
    if products + 1 > _SHARE * size:
        return None
    vectors = np.zeros((products + 1, size))
    vectors[color, np.arange(size)] = 1
    vectors[products] = np.random.default_rng(1).uniform(0.5, 1.5, size)
    rows, cols = np.nonzero(known)
    low, high = np.minimum(rows, cols), np.maximum(rows, cols)
    # One that moves alone is read off its own product.
    moved, row = np.where(border[low], (low, high), (high, low))
    ways, looks = _ways(vectors, parts).astype(dtype), -(-(products + 1) // _TOGETHER)
    places, source = rows * size + cols, color[moved] * size + row
    return Pattern(ways, int(looks), places, source, int(products), Layout.of(known))


def _colors(known: np.ndarray, border: np.ndarray) -> Int[np.ndarray, " d"]:
    """The product in which each effect moves: those of the border alone, the others apart from what they meet."""
    inner = known[np.ix_(~border, ~border)].astype(np.float32)
    meets = inner.T @ inner > 0
    of_inner = np.zeros(len(inner), int)
    for i in range(len(inner)):
        taken = np.zeros(i + 1, bool)
        taken[of_inner[:i][meets[i, :i]]] = True
        of_inner[i] = np.argmin(taken)
    color = np.empty(len(known), int)
    color[~border] = of_inner
    color[border] = of_inner.max() + 1 + np.arange(border.sum())
    return color
