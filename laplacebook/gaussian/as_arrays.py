"""A precision as named arrays, and back, for a file."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array

from laplacebook.base.errors import LaplaceError
from laplacebook.gaussian.kronecker import Eigenbasis, KroneckerBlock, KroneckerPrecision
from laplacebook.gaussian.low_rank import LowRankPrecision
from laplacebook.gaussian.precision import (
    BlockPrecision,
    DensePrecision,
    DiagonalPrecision,
    Precision,
)


class _Structure(NamedTuple):
    arrays: Callable[..., dict[str, Array]]
    make: Callable[..., Precision]


def _attributes(*names: str) -> Callable[..., dict[str, Array]]:
    return lambda source: {name: getattr(source, name) for name in names}


def _block_arrays(precision: BlockPrecision) -> dict[str, Array]:
    numbered = enumerate(map(to_arrays, precision.blocks))
    return {f"{i}/{name}": array for i, block in numbered for name, array in block.items()}


def _blocks(arrays: dict[str, Array]) -> tuple[Precision, ...]:
    parts: dict[str, dict[str, Array]] = {}
    for path, array in arrays.items():
        number, _, name = path.partition("/")
        parts.setdefault(number, {})[name] = array
    return tuple(from_arrays(parts[str(i)]) for i in range(len(parts)))


def _sparse_arrays(precision: Any) -> dict[str, Any]:
    layout = precision.layout
    places = {"size": np.asarray(layout.size), "rows": layout.rows, "cols": layout.cols}
    return _attributes("entries", "left", "middle")(precision) | places


def _sparse(size: Any, rows: Any, cols: Any, **numbers: Array) -> Precision:
    from laplacebook.gaussian.sparse import SparsePrecision
    from laplacebook.gaussian.sparse_layout import SparseLayout

    layout = SparseLayout.of(int(size), np.asarray(rows), np.asarray(cols))
    return SparsePrecision.of(layout, **numbers)


_factors = _attributes("left", "right", "prior_precision")
_STRUCTURES: dict[str, _Structure] = {
    "DensePrecision": _Structure(_attributes("matrix"), DensePrecision.of),
    "DiagonalPrecision": _Structure(_attributes("diagonal"), DiagonalPrecision),
    "LowRankPrecision": _Structure(
        _attributes("diagonal", "vectors", "values"), LowRankPrecision.of
    ),
    "SparsePrecision": _Structure(_sparse_arrays, _sparse),
    "Eigenbasis": _Structure(
        lambda basis: _factors(basis.block), lambda **block: Eigenbasis.of(KroneckerBlock(**block))
    ),
    "BlockPrecision": _Structure(_block_arrays, lambda **parts: BlockPrecision(_blocks(parts))),
    "KroneckerPrecision": _Structure(
        _block_arrays, lambda **parts: KroneckerPrecision(_blocks(parts))
    ),
}


def to_arrays(precision: Precision) -> dict[str, Array]:
    """What a precision is made of, without what is computed from it.

    Args:
        precision: of one of the package's structures.

    Returns:
        Arrays by name; each name begins with that of the structure.

    Raises:
        LaplaceError: it is of another structure.
    """
    name = type(precision).__name__
    if name not in _STRUCTURES:
        raise LaplaceError(
            f"There is no format of a file for a precision of type {name}.",
            remedy="save it with DensePrecision.of(approx.precision.matrix) in its place.",
        )
    return {f"{name}/{part}": x for part, x in _STRUCTURES[name].arrays(precision).items()}


def from_arrays(arrays: dict[str, Array]) -> Precision:
    """The precision that :func:`to_arrays` took apart.

    Args:
        arrays: by name.

    Raises:
        KeyError: there is no such structure, or no such block.
        TypeError: an array is missing, or one too many.
        ValueError: the arrays do not fit together.
    """
    (name,) = {path.partition("/")[0] for path in arrays}
    return _STRUCTURES[name].make(**{path.partition("/")[2]: x for path, x in arrays.items()})
