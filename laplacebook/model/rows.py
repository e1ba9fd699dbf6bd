"""The data of a model row by row: its observations enter the likelihood one by one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil
from numbers import Integral
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jax.tree_util import GetAttrKey
from jaxtyping import Array, Bool, Float, Int
from numpyro import distributions as dist
from numpyro.distributions.distribution import validation_enabled

from laplacebook.base.errors import LaplaceError, UnsupportedModel
from laplacebook.base.irregular import irregular_numbers, irregular_signs
from laplacebook.base.namespace import Numbers
from laplacebook.base.pytrees import STATIC, is_traced, loud, register_dataclass
from laplacebook.base.quick import jit_quickly
from laplacebook.model.density import ModelDensity

_FOUND: dict[
    tuple, tuple[int, tuple[bool, ...]]
] = {}  # in programs, by model and shapes of its data
_KEPT = 200  # of them


@register_dataclass
@dataclass(frozen=True)
class Rows:
    """The observations of a model.

    Attributes:
        density: the :class:`ModelDensity` with all its data, or the :class:`Call`.
        number: N, how many rows they have.
        carried: for each array among the model's arguments, whether its first axis runs over the
            rows.
    """

    density: Any
    number: int = field(metadata=STATIC)
    carried: tuple[bool, ...] = field(metadata=STATIC)

    @classmethod
    def of(cls, density: Any, number: int) -> "Rows":
        """The rows of a model or a call: of its arrays those of N rows, but for what a last layer knows."""
        leaves = jax.tree_util.tree_leaves_with_path(density)
        known = GetAttrKey("known")
        carried = (jnp.shape(x)[:1] == (number,) and known not in path for path, x in leaves)
        return cls(density, number, tuple(carried))

    def take(self, index: Int[Array, " B"]) -> Any:
        """The model with B of the rows, as if there were no others; also under ``vmap``."""
        leaves, structure = jax.tree.flatten(self.density)
        taken = [x[index] if c else x for x, c in zip(leaves, self.carried, strict=True)]
        return jax.tree.unflatten(structure, taken)

    def over_shards(
        self,
        function: Callable[..., Any],
        *operands: Any,
        by_row: tuple[Array, ...] = (),
        summed: bool = True,
    ) -> Any:
        """What a function makes of the rows of each device, where they lie.

        Args:
            function: of :class:`Rows`, ``operands`` and ``by_row``; returns a pytree of arrays.
            operands: pytrees of arrays, the same for all rows; a function must not close over others.
            by_row: arrays of shape (N, ...).
            summed: whether what it returns is summed over devices, or has an axis of rows to be put
                together.

        Returns:
            The sum, or for each row the value; ``function(self, *operands, *by_row)`` where the
            data are not spread over devices.
        """
        place = self.density.placement
        # Where they do not divide evenly, other arrays than the rows are spread.
        if place is None or self.number % place.number:
            return function(self, *operands, *by_row)
        leaves, structure = jax.tree.flatten(self.density.on_one_device())

        def here(leaves: list, operands: tuple, by_row: tuple) -> Any:
            own = jax.tree.unflatten(structure, leaves)
            rows = Rows(own, self.number // place.number, self.carried)
            found = function(rows, *operands, *by_row)
            return jax.lax.psum(found, place.axes) if summed else found

        apart, whole = PartitionSpec(place.axes), PartitionSpec()
        return jax.shard_map(
            here,
            mesh=place.mesh,
            in_specs=([apart if carried else whole for carried in self.carried], whole, apart),
            out_specs=whole if summed else apart,
            check_vma=False,
        )(leaves, operands, by_row)


def rows_of(density: ModelDensity) -> Rows:
    """The rows of a model: those of its arrays whose first axis is that of what it observes.

    By shapes alone. Whether the log likelihood is the sum over the rows (it is not where a model
    standardises its data, or where an outcome depends on the one before) is for the caller to
    check, who sums it.

    Args:
        density: a model and its arguments.

    Returns:
        The :class:`Rows`.

    Raises:
        UnsupportedModel: the observed sites have no first axis in common, or the model does not run
            with one of the rows.
    """
    program = density.program
    if program not in _FOUND:
        found = _rows_of(density)
        if not all(map(is_traced, jax.tree.leaves(density))):
            return found  # known numbers, which decide what a program does
        while len(_FOUND) >= _KEPT:
            del _FOUND[next(iter(_FOUND))]
        _FOUND[program] = found.number, found.carried
    return Rows(density, *_FOUND[program])


def _rows_of(density: ModelDensity) -> Rows:
    lengths = set(_observed(density).values())
    if len(lengths) != 1 or () in lengths:
        raise _no_rows(density, "its observed sites have no first axis in common")
    ((number,),) = lengths
    rows = Rows.of(density, number)
    seen: list[tuple] = []

    def look(index: Array) -> None:
        one = rows.take(index)
        seen.append((_observed(one), one.sites))

    try:
        jax.eval_shape(look, jax.ShapeDtypeStruct((1,), jnp.result_type(int)))
    except (LaplaceError, TypeError, ValueError, AssertionError) as error:
        why = f"with one of its {number} rows it does not run: {error}"
        raise _no_rows(density, why) from error
    ((observed, sites),) = seen
    if set(observed.values()) != {(1,)} or sites != density.sites:
        raise _no_rows(density, f"with one of its {number} rows it has sites of other shapes")
    return rows


def require_batch_size(batch_size: Any, rows: Rows) -> None:
    """Refuse what is no number of rows.

    Raises:
        ValueError: ``batch_size`` is not a whole number from 1 to N.
    """
    whole = isinstance(batch_size, Integral) and not isinstance(batch_size, bool)
    if not whole or not 1 <= batch_size <= rows.number:
        raise ValueError(
            f"batch_size must be a whole number from 1 to the {rows.number} rows of the data, "
            f"not {batch_size!r}"
        )


def _observed(density: ModelDensity) -> dict[str, tuple[int, ...]]:
    """For each observed site the length of its first axis, () if it has none of its own."""
    found: dict[str, tuple[int, ...]] = {}

    def run(u: Array) -> None:
        trace, _ = density.trace(u)
        for name in density.observed(trace):
            value, fn = jnp.shape(trace[name]["value"]), trace[name]["fn"].shape()
            found[name] = fn[:1] if fn == value else ()

    jax.eval_shape(run, jax.ShapeDtypeStruct((density.dimension,), jnp.result_type(float)))
    return found


def _no_rows(density: ModelDensity, why: str) -> UnsupportedModel:
    table = any(hasattr(leaf, "columns") for leaf in jax.tree.leaves(density.arguments))
    return UnsupportedModel(
        f"The observations of this model cannot be taken one by one: {why}.",
        causes=[
            *(["a table, of which the model reads the columns itself"] * table),
            "an argument that holds the number of rows (take it from the shape of the data)",
            "an outcome that depends on other rows (a time series), or one outcome for all rows",
            "a statistic of the data that the model computes (their mean, to centre them)",
            "an array that has as many entries as there are rows, and is not by row",
        ],
        remedy="pass table.to_numpy(), of the columns that the model reads; or "
        * table
        + 'use curvature="hessian" or, with structure="dense", "gauss_newton": these take all '
        "rows at once; train without batch_size does so too.",
    )


TOGETHER = 1024  # rows that are compared at a time
AWAY = 0.125  # of 1 + |u|: where the rows are compared, since at 0 a model may not see its data


def row_log_likelihoods(
    density: ModelDensity, u: Float[Array, " D"] | Mapping, number: int
) -> Float[Array, " N"]:
    """The log likelihood of each row, as the model with all of them has it.

    Args:
        density: a model and its arguments.
        u: a point, shape (D,), or a dict of its parts by site.
        number: N, how many rows the model has.

    Returns:
        Shape (N,); NaN if a distribution is of all rows jointly.
    """
    trace, _ = density.trace(u)
    parts = []
    for name in density.observed(trace):
        site = trace[name]
        fn = site["fn"]
        while isinstance(fn, dist.Independent):
            fn = fn.base_dist
        with validation_enabled(False):
            log_prob = fn.log_prob(site["value"])
        if log_prob.shape[:1] != (number,):
            return jnp.full(number, jnp.nan)
        scaled = log_prob if site["scale"] is None else _beside(site, fn) * log_prob
        parts.append(jnp.sum(scaled.reshape(number, -1), axis=1))
    return jnp.sum(jnp.stack(parts), axis=0)


def _beside(site: dict, fn: dist.Distribution) -> Array:
    """The scale of a site, with axes for what ``fn`` has of its event in the batch."""
    scale = jnp.asarray(site["scale"])
    return scale.reshape(scale.shape + (1,) * (site["fn"].event_dim - fn.event_dim))


def rows_add_up(rows: Rows, u: Float[Array, " D"]) -> Bool[Array, ""]:
    """Whether each row has the same log likelihood alone as among all the others.

    Compared at a point beside u, row by row, to the cube root of the rounding unit, in nats or of
    the value: 6e-6 in double precision.

    Args:
        rows: the rows of a model.
        u: a point, shape (D,).

    Returns:
        Shape ().
    """
    sides = jnp.asarray(irregular_signs(0, u.size), u.dtype)
    far = AWAY * (1 + jnp.abs(u)) * jnp.asarray(irregular_numbers(1, u.size), u.dtype)
    beside = u + sides * jnp.minimum(far, rows.density.room(u) / 2)
    together = row_log_likelihoods(rows.density, beside, rows.number)
    other = rows.over_shards(_other_alone, beside, by_row=(together,))
    return jnp.any(jnp.isfinite(together)) & (other == 0)


def sound(rows: Rows, u: Float[Array, " D"], compared: bool = True) -> Float[Numbers, ""]:
    """A factor of a sum over rows: one, and where they are ``compared`` and do not add up at u, NaN."""
    return loud(rows_add_up(rows, u) if compared else np.True_, u.dtype)


def _other_alone(rows: Rows, u: Array, together: Array) -> Array:
    """How many rows have another log likelihood alone than together."""

    def alone(index: Array) -> Array:
        return row_log_likelihoods(rows.take(index[None]), u, 1)[0]

    # Batches of one size, the last made up by rows taken again: one of another size is another program.
    batches = ceil(rows.number / TOGETHER)
    index = jnp.arange(batches * ceil(rows.number / batches)) % rows.number
    apart = jax.lax.map(jax.vmap(alone), index.reshape(batches, -1)).ravel()[: rows.number]
    tolerance = jnp.cbrt(jnp.finfo(u.dtype).eps)
    same = jnp.abs(apart - together) <= tolerance * (1 + jnp.abs(together))
    return jnp.sum(~jnp.where(jnp.isfinite(together), same, ~jnp.isfinite(apart)))


@jit_quickly
def add_up(density: ModelDensity, u: Float[Array, " D"]) -> Bool[Array, ""]:
    """Whether the log likelihood of a model is the sum over its rows, as :func:`rows_add_up` sees it.

    Raises:
        UnsupportedModel: the observations cannot be taken one by one.
    """
    return rows_add_up(rows_of(density), u)


def require_sum(density: ModelDensity, u: Float[Array, " D"]) -> None:
    """Refuse a model whose log likelihood is not the sum over its rows; not under ``jit``.

    Args:
        density: a model and its arguments.
        u: a point, shape (D,).

    Raises:
        UnsupportedModel: it is not, or the observations cannot be taken one by one.
    """
    if not add_up(density, u):
        raise UnsupportedModel(
            "The log likelihood of this model is not the sum over its observations: alone, an "
            "observation has another likelihood than among the others.",
            causes=[
                "the model standardises its data, or computes with their mean or number: in a network, "
                "batch normalisation in training mode",
                "an outcome depends on other outcomes (a time series, a Gaussian process)",
                "an array among the arguments has as many entries as there are observations, and is "
                "not by observation",
            ],
            remedy='prepare the data outside of the model; or use curvature="hessian" or, with '
            'structure="dense", "gauss_newton" with all observations at once.',
        )
