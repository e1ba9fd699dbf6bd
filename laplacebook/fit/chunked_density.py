"""A log joint whose data come in chunks: a sum over passes through them, each held for a moment."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from laplacebook.base.checks import require_number, require_numbers
from laplacebook.base.errors import LaplaceError, UnsupportedModel
from laplacebook.base.progress import progress
from laplacebook.base.pytrees import STATIC, Leaf, register_dataclass
from laplacebook.base.quick import jit_quickly
from laplacebook.fit.chunk_checks import changed, require_sum_of_chunks
from laplacebook.model.density import Coordinates, ModelDensity
from laplacebook.model.fingerprint import is_data
from laplacebook.model.single_precision import loses
from laplacebook.model.trace import Terms


@register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class Part(ModelDensity):
    """The share of one chunk in a log joint: its log likelihood, and in the first one the prior.

    Attributes:
        share: of the prior, 1 or 0.
    """

    share: Leaf

    def terms(self, u: Coordinates) -> Terms:
        """The terms of this chunk, with a log prior of zero if it is not the first."""
        terms = super().terms(u)
        return terms._replace(log_prior=jnp.where(self.share > 0, terms.log_prior, 0))

    def own_terms(self, u: Float[Array, " D"]) -> Terms:
        """The log prior of the model of this chunk, and the latent values; the log likelihood is NaN."""
        terms = super().terms(u)
        return terms._replace(log_likelihood=jnp.full_like(terms.log_prior, jnp.nan))


class Chunks:
    """Arrays some rows at a time: chunks for :func:`~laplacebook.laplace_of_chunks`.

    In the book: :doc:`/book/scaling`.

    Args:
        arrays: with as many rows each, such as those of ``numpy.load(path, mmap_mode="r")``, of which
            only one chunk is then in memory; in the order of the model's positional arguments.
        size: rows of a chunk; the last one has what is left.

    Raises:
        ValueError: there is no array, or something else; the numbers of rows differ; or ``size`` is
            not a whole number of one or more.

    >>> [x.shape for (x,) in Chunks(np.zeros((5, 2)), size=2)]
    [(2, 2), (2, 2), (1, 2)]
    """

    def __init__(self, *arrays: Any, size: int) -> None:
        if not arrays or not all(hasattr(array, "shape") for array in arrays):
            kinds = ", ".join(type(array).__name__ for array in arrays) or "nothing"
            raise ValueError(f"Chunks takes arrays, or what has a shape as they do, not {kinds}.")
        rows = {np.shape(array)[:1] for array in arrays}
        if len(rows) != 1 or () in rows:
            raise ValueError(f"The arrays need as many rows each, not {sorted(rows)}.")
        require_number("size", size)
        self._arrays, self._size = arrays, int(size)
        ((self._rows,),) = rows

    def __len__(self) -> int:
        return -(-self._rows // self._size)

    def __iter__(self) -> Iterator[tuple]:
        for start in range(0, self._rows, self._size):
            yield tuple(array[start : start + self._size] for array in self._arrays)


class Passes:
    """The chunks of a model, to be gone through again and again.

    Args:
        model: a NumPyro model.
        chunks: an iterable that begins afresh each time: of tuples of the model's positional
            arguments, or of its only one. Chunks without rows are passed over.
        kwargs: the model's keyword arguments, the same for all chunks.
        space: as in :func:`~laplacebook.laplace`.
        progress_bar: whether to show one for a pass that takes longer than two seconds; by default
            if the standard error stream is a terminal.

    Raises:
        ValueError: the chunks can be gone through only once, there is none with rows, they are one
            array, or they are not known yet (``jit``, ``vmap``, ``grad``).
        UnsupportedModel: the second chunk has other latent sites than the first.
    """

    def __init__(
        self,
        model: Callable,
        chunks: Iterable[Any],
        kwargs: Mapping[str, Any],
        space: str,
        progress_bar: bool | None = None,
    ) -> None:
        if isinstance(chunks, str) or hasattr(chunks, "shape"):
            raise ValueError(
                f"chunks is a {type(chunks).__name__}, not an iterable of chunks: pass "
                "laplacebook.Chunks(X, y, size=...) of arrays, or a list of tuples of them."
            )
        if isinstance(chunks, Iterator):
            raise ValueError(
                "chunks is an iterator, which ends after one pass, and a fit takes many: pass a list, "
                "laplacebook.Chunks, or an object whose __iter__ opens the data again."
            )
        self._model, self._chunks, self._kwargs, self._space = model, chunks, dict(kwargs), space
        self._progress_bar = progress_bar
        self._known: set[tuple] = set()
        self.number = 0  # of passes begun
        self._size: int | None = None  # numbers in all chunks, after a pass
        begin = [
            ModelDensity.of(model, args, self._kwargs, space)
            for args in islice(self._with_rows(), 2)
        ]
        if not begin:
            raise ValueError("chunks has no chunk with rows.")
        self.first, self._second = begin[0], begin[-1] if len(begin) > 1 else None
        if begin[-1].sites != self.first.sites:
            raise _other_sites(1)

    def _with_rows(self) -> Iterator[tuple]:
        """The positional arguments of each chunk that has rows."""
        for chunk in self._chunks:
            args = tuple(chunk) if isinstance(chunk, tuple | list) else (chunk,)
            require_numbers("laplace_of_chunks", args)
            shapes = [np.shape(x) for x in jax.tree.leaves(args) if is_data(x) and np.ndim(x)]
            if not shapes or any(shape[0] for shape in shapes):
                yield args

    def parts(self) -> Iterator[Part]:
        """The shares of all chunks, the first one with the prior.

        Raises:
            UnsupportedModel: a chunk has other latent sites than the first.
        """
        # Another iterable may fill the same memory again while a chunk of it is computed with.
        own = isinstance(self._chunks, Chunks)
        for i, args in enumerate(self._with_rows()):
            args = jax.tree.map(_in_place, args) if own else args
            density = ModelDensity.of(self._model, args, self._kwargs, self._space)
            leaves, program = jax.tree.flatten(density)
            shapes = (program, *(jnp.shape(x) for x in leaves))
            if shapes not in self._known and density.sites != self.first.sites:
                raise _other_sites(i)
            self._known.add(shapes)
            share = jax.device_put(np.asarray(i == 0, jnp.result_type(float)))
            yield Part(density.call, density.space, share)

    def each(self, function: Callable[..., Any], *operands: Any) -> Iterator[Any]:
        """``function(part, *operands)`` for each chunk, the next one loaded while one computes.

        Raises:
            LaplaceError: there are more numbers, or fewer, than in the pass before.
        """
        self.number += 1
        size = 0
        total = len(self._chunks) if isinstance(self._chunks, Sized) else None
        named = {"desc": f"pass {self.number}", "unit": "chunk"}
        before = None
        with progress(total, self._progress_bar, **named) as bar:
            for part in self.parts():
                size += sum(jnp.size(x) for x in jax.tree.leaves(part))
                jax.block_until_ready(before)
                before = function(part, *operands)
                yield before
                bar.update()
            jax.block_until_ready(before)
        if self._size not in (None, size):
            raise changed(f"{self._size:,} numbers in one pass and {size:,} in another")
        self._size = size

    def sum(self, function: Callable[..., Any], *operands: Any) -> Any:
        """The sum of :meth:`each` over the chunks."""
        return reduce(_add, self.each(function, *operands))

    def require_sum_of_chunks(self, u: Float[Array, " D"]) -> None:
        """Refuse a model that is not a sum over rows; ``first`` then holds a few rows of the first chunk.

        Raises:
            UnsupportedModel: it is not, by the rows of the first two chunks.
        """
        self.first, self._second = require_sum_of_chunks(self.first, self._second, u), None


@register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class ChunkedDensity(ModelDensity):
    """The log joint of all chunks, of which some rows of the first alone are held.

    It knows the latent sites and what they are at a point. Its value takes a pass.
    """

    has_data = False

    def trace(self, u: Coordinates) -> tuple[dict, dict[str, Array]]:
        """The trace of the model without the data that it observes, and log densities that are NaN."""
        trace, log_probs = super().trace(u)
        unknown = {name: {**trace[name], "value": jnp.zeros(0)} for name in self.observed(trace)}
        return {**trace, **unknown}, {name: jnp.nan * value for name, value in log_probs.items()}

    def log_joint(self, u: Coordinates) -> Float[Array, ""]:
        """Refused: it takes a pass through the data.

        Raises:
            LaplaceError: always.
        """
        raise self.without_data()

    def draw_log_likelihood(self, key: Key[Array, ""]) -> Float[Array, ""]:
        """Refused, as :meth:`log_joint` is."""
        raise self.without_data()

    def loss(self, u: Coordinates) -> tuple[Float[Array, ""], Terms]:
        """Refused, as :meth:`log_joint` is."""
        raise self.without_data()

    def without_data(self) -> LaplaceError:
        """The error for what needs the data."""
        return LaplaceError(
            "This approximation was made from chunks of data and holds none of them, which diagnosis, "
            "samples of the log joint, tuning and a file would need.",
            causes=["laplace_of_chunks made it"],
            remedy="use laplace where all rows fit into memory, or on a random subset of them.",
        )


@register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class SearchedChunks(ChunkedDensity):
    """The same while the chunks are at hand, for an error to explain where a search ended.

    Attributes:
        passes: through the chunks.
    """

    passes: Passes = field(metadata=STATIC)

    def parts(self) -> Iterator[ModelDensity]:
        """The shares of the chunks."""
        yield from self.passes.parts()


def _other_sites(number: int) -> UnsupportedModel:
    return UnsupportedModel(
        f"The latent sites of chunk {number} are not those of the first: each row may have a share in the "
        "likelihood, and none in the prior.",
        causes=[
            "a latent site for each row",
            "chunks of different widths, or with other names or in another order",
        ],
        remedy="fit all data at once by laplace.",
    )


@jit_quickly
def _add(total: Any, value: Any) -> Any:
    return jax.tree.map(jnp.add, total, value)


def _in_place(leaf: Any) -> Any:
    """A NumPy array as JAX's own, in the same memory where JAX can; else for the model to judge."""
    fits = isinstance(leaf, np.ndarray) and is_data(leaf) and not np.ma.is_masked(leaf)
    return jax.device_put(leaf) if fits and leaf.dtype.isnative and not loses(leaf) else leaf
