"""Looks at a log joint: small programs, between which Python decides where to look next."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.namespace import Numbers
from laplacebook.base.one_thread import by_one_thread, one_thread
from laplacebook.base.pytrees import on_host
from laplacebook.base.quick import MEDIUM, SMALL, jit, jit_quickly, most_rows, numbers_in
from laplacebook.curvature.hessian import has_factors_of_few, hessian_at, prior_hessian
from laplacebook.curvature.precision_at import (
    LARGEST,
    WHOLE,
    entries_and_metric_at,
    entries_at,
    may_have_layers,
    precision_of,
    whole_entries_at,
)
from laplacebook.curvature.settings import Settings
from laplacebook.gaussian.precision import Precision
from laplacebook.model.density import ModelDensity
from laplacebook.model.hierarchy import is_marginal
from laplacebook.model.rows import rows_add_up, rows_of
from laplacebook.search.newton_step import Look

WORK = 1_000_000  # coordinates times numbers of data: a look costs a millisecond or so
COORDINATES = 200  # an eigendecomposition costs some milliseconds, and the whole loop half a second to compile
INNER = 200  # looks at the log joint behind each look at its integral
_T = TypeVar("_T")
# Those of them that count: with 10,000 data half a second more of compilation saves a twentieth of each call.
_OF_INTEGRAL = 3
COLUMNS = 4  # looks by the Hessian: up to a million numbers of data times coordinates the quick compilation pays
LAYERS = 16  # looks at a network that take as long as its better compilation
HESSIANS = 16  # of a search: of three hundred effects they take a hundred times as long as their better compilation
LOOKS = 128  # at each number of the data, in a compiled search: a hundred gradients or so


def work_of_search(
    density: ModelDensity, *_: Any, settings: Settings | None = None, **__: Any
) -> int:
    """How many numbers a search computes, about: by the Hessian, if settings say so, for each coordinate."""
    numbers = numbers_in(density)
    by_hessian = settings is not None and settings.curvature == "hessian"
    hessians = HESSIANS * numbers * density.dimension if by_hessian else 0
    work = max(numbers * LOOKS, min(hessians, MEDIUM))
    # Of an integral the host has most to do, which more optimisation does not make quicker.
    return min(work * _OF_INTEGRAL, MEDIUM) if density.only_gradients else work


def is_always_driven(density: ModelDensity) -> bool:
    """Whether the whole loop as one program does not pay, however often it runs.

    With the search for integrated sites in it, it takes a minute to compile; and it differentiates a factor that few
    coordinates decide in the columns of all.
    """
    return is_marginal(density) or has_factors_of_few(density)


def is_small(density: ModelDensity, size: int) -> bool:
    """Whether the log joint of so many coordinates, with two derivatives, takes a millisecond or so."""
    if density.only_gradients:
        return False
    return size <= COORDINATES and size * max(size, numbers_in(density)) <= WORK


def is_medium(density: ModelDensity, size: int) -> bool:
    """Whether it takes tens of milliseconds: less in all than the whole loop takes to be compiled with care.

    Or what is factorised depends on a few coordinates, of whose columns alone it is differentiated here.
    """
    if density.only_gradients:
        return False
    if size <= LARGEST and has_factors_of_few(density):
        return True
    return size <= 3 * COORDINATES and size * max(size, numbers_in(density)) <= 20 * WORK


def is_laborious(density: ModelDensity, size: int) -> bool:
    """Whether a look takes milliseconds if this is a network, with a number for each row and weight."""
    return most_rows(density) * size > SMALL


def _work_of_rounds(density: ModelDensity, u: Float[Numbers, " D"], **_: Any) -> int:
    """The same of a search without a Hessian, of a network perhaps: of few inputs its weights make the work."""
    return max(work_of_search(density), most_rows(density) * u.size)


@by_one_thread
def look(density: ModelDensity, u: Float[np.ndarray, " D"]) -> Look:
    """f at u, beside it its terms and whether u is valid, its gradient and its Hessian: in NumPy."""
    value, beside, gradient, hessian = _bend(density, u)
    return Look(np.asarray(value), beside, np.asarray(gradient), np.asarray(hessian))


def remembered(look_at: Callable[[np.ndarray], Look]) -> Callable[[np.ndarray], Look]:
    """The same looks, without a second one at the point that was looked at last."""
    last: list[tuple[np.ndarray, Look]] = []

    def look_again(u: np.ndarray) -> Look:
        if not last or not np.array_equal(last[0][0], u):
            last[:] = [(u.copy(), look_at(u))]
        return last[0][1]

    return look_again


def slope_look(density: ModelDensity, u: Float[Numbers, " D"]) -> Look:
    """The same without the Hessian."""
    value, beside, gradient = _slope(density, u)
    return Look(np.asarray(value), beside, np.asarray(gradient), None)


def slope_look_again(density: ModelDensity, u: Float[np.ndarray, " D"]) -> Look:
    """The same but for rounding, compiled for longer."""
    value, beside, gradient = _slope_again(density, u)
    return Look(np.asarray(value), beside, np.asarray(gradient), None)


def precision_seen(density: ModelDensity, u: Float[Numbers, " D"], settings: Settings) -> Precision:
    """The precision at u by a curvature other than the Hessian: in NumPy.

    Raises:
        UnsupportedModel: the model has no such curvature, or no such structure.
    """
    settings = replace(settings, tolerance=None)
    if settings.structure in WHOLE:
        entries, separate = _whole_entries(density, u, settings=settings)
        # A program of its own: few models need it, and all would wait until it is compiled.
        entries = entries if separate else entries + _prior_hessian(density, u)
    else:
        entries = _entries(density, u, settings=settings)
    return _factors(_if_rows_agree(density, u, entries), settings.structure)


def precision_and_metric_seen(
    density: ModelDensity, u: Float[Numbers, " D"], settings: Settings
) -> tuple[Precision, Callable[[], Precision]]:
    """The diagonal at u, and a function that returns Kronecker factors there, by one program: in NumPy.

    Raises:
        UnsupportedModel: as :func:`precision_seen` does for the one or for the other.
    """
    both = _entries_and_metric(density, u, settings=replace(settings, tolerance=None))
    diagonal, metric = _if_rows_agree(density, u, both)
    return _factors(diagonal, "diagonal"), lambda: _factors(metric, "kronecker")


def _if_rows_agree(density: ModelDensity, u: Numbers, entries: _T) -> _T:
    """The entries, NaN where the rows do not add up."""
    if _rows_agree(density, u):
        return entries
    return jax.tree.map(partial(jnp.multiply, jnp.nan), entries)


def _factors(entries: Any, structure: str) -> Precision:
    small = max(map(np.size, jax.tree.leaves(entries)), default=0) <= SMALL
    with one_thread() if small else nullcontext():
        return on_host(_factorised(entries, structure))


@jit
def terms_and_validity(density: ModelDensity, u: Float[Numbers, " D"]) -> tuple:
    """What :func:`look` has beside f: its terms at u, and whether u is valid."""
    return density.loss_and_validity(u)[1]


@jit_quickly
def middle(density: ModelDensity) -> Float[Array, " D"]:
    """Where a search begins that is given no start: in the middle of the prior."""
    return density.start()


def _work_of_bend(density: ModelDensity, u: Float[Numbers, " D"]) -> int:
    """In each of some looks a number for each coordinate and number of the data.

    Of a network one for each row and pair of weights, in each of a hundred looks or more.
    """
    numbers = numbers_in(density)
    columns = min(COLUMNS * numbers * u.size, MEDIUM)
    layers = LAYERS * most_rows(density) * u.size**2 if may_have_layers(density) else 0
    return max(numbers, columns, min(layers, MEDIUM))


@partial(jit_quickly, work=_work_of_bend, half=True)
def _bend(density: ModelDensity, u: Array) -> tuple:
    return hessian_at(density, u)


def _value_and_slope(density: ModelDensity, u: Array) -> tuple:
    (value, beside), gradient = jax.value_and_grad(density.loss_and_validity, has_aux=True)(u)
    return value, beside, gradient


_slope = jit_quickly(_value_and_slope, _work_of_rounds, half=True, divided=True)
_slope_again = jit(_value_and_slope)


@partial(jit_quickly, work=_work_of_rounds, half=True, divided=True, static_argnames="settings")
def _entries(density: ModelDensity, u: Array, settings: Settings) -> Any:
    return entries_at(density, u, settings, compared=False)


@partial(jit_quickly, work=_work_of_rounds, half=True, divided=True, static_argnames="settings")
def _whole_entries(density: ModelDensity, u: Array, settings: Settings) -> tuple[Array, Array]:
    return whole_entries_at(density, u, settings, compared=False)


_prior_hessian = jit_quickly(prior_hessian)


@partial(jit_quickly, work=_work_of_rounds, half=True, divided=True, static_argnames="settings")
def _entries_and_metric(density: ModelDensity, u: Array, settings: Settings) -> tuple:
    return entries_and_metric_at(density, u, settings)


def _work_of_rows(density: ModelDensity, u: Float[Numbers, " D"]) -> int:
    """Half a number for each row and weight: of products that a processor makes several at once."""
    return most_rows(density) * u.size // 2


@partial(jit_quickly, work=_work_of_rows, half=True)
def _rows_agree(density: ModelDensity, u: Array) -> Array:
    """Whether the rows add up; true where there are none, and the entries are of all data at once, or refused.

    Apart from the entries, with which it would be compiled for longer than it runs.
    """
    try:
        rows = rows_of(density)
    except UnsupportedModel:
        return jnp.ones((), bool)
    return rows_add_up(rows, u)


# Little but LAPACK, which is compiled already.
_factorised = jit_quickly(precision_of, lambda *_: 0, divided=True, static_argnums=1)
