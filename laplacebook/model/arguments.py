"""The arguments of a model: which are data, what they are called, and what is wrong with them."""

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, takewhile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.tree_util import keystr
from jaxtyping import Array
from numpyro.primitives import Messenger

from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.pytrees import STATIC, own_copy, register_dataclass
from laplacebook.model.fingerprint import Fixed, is_data, name_of
from laplacebook.model.known_sites import LastLayer
from laplacebook.model.not_arrays import (
    column_to_read,
    crossed_rows,
    is_sequence,
    no_attribute,
    no_labels,
    not_arrays,
    numbers_in_column,
    numbers_in_lists,
)
from laplacebook.model.sharding import Placement, here, placed, placement_of
from laplacebook.model.single_precision import loses
from laplacebook.model.working_precision import InWorkingPrecision, widened, wider_type

_BLAMED = (ValueError, TypeError, IndexError, AttributeError, OverflowError)
_OF_WHOLE_NUMBERS = ("too large to convert", "out of bounds")
# What NumPy and JAX say of lists, and of dicts, that they cannot read.
_OF_DICTS = ("OrderedDict", "entry not a 2- or 3- tuple")
_OF_LISTS = ("inhomogeneous shape", "None is not a valid value")


@register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class Call:
    """A function, such as a model, and the arguments that it is called with.

    As a pytree its leaves are the arrays among the arguments (data), and the known values of a last
    layer; all else (the function, Python numbers, strings, callables) is part of the program, and a
    new value compiles anew.

    Attributes:
        data: the leaves of the arguments that are arrays, None elsewhere.
        known: the values of the sites before a last layer, by site; None for any other function.
        fixed_function: the function, and what tells whether it has changed.
        structure: of the arguments, and the classes in it.
        constants: the leaves that are no data, None elsewhere.
        placement: how the rows of the data are spread over devices; None if they are not.
    """

    data: list[Any]
    known: dict[str, Any] | None
    fixed_function: Fixed = field(metadata=STATIC)
    structure: Fixed = field(metadata=STATIC)
    constants: tuple[Fixed | None, ...] = field(metadata=STATIC)
    placement: Placement | None = field(metadata=STATIC)

    @classmethod
    def of(cls, function: Callable, args: tuple = (), kwargs: Mapping | None = None) -> "Call":
        """A function and its positional and keyword arguments.

        Raises:
            UnsupportedModel: JAX works in single precision, which cannot hold the data, or knows
                nothing of a mask that they have; they can be read only once; columns of pandas have the same row
                labels in different orders; or it is called within NumPyro's handlers.
            TypeError: it is no function.
        """
        _refuse_handlers()
        if not callable(function):
            raise TypeError(f"A model is a function of its data, not {function!r}.")
        given = _in_order(args), _in_order(dict(kwargs or {}))
        leaves, structure = jax.tree.flatten(given, _is_read_once)
        if any(map(_is_read_once, leaves)):
            raise _read_once(_named(function, args, kwargs or {}, _is_read_once))
        if sum(map(_has_index, leaves)) > 1:
            named = _named(function, args, kwargs or {})
            crossed = crossed_rows([(name, x.index) for name, x in named if _has_index(x)])
            if crossed is not None:
                raise crossed
        leaves = [_numbers_of(leaf) for leaf in leaves]
        if any(loses(leaf) for leaf in leaves):
            raise _too_narrow(_named(function, args, kwargs or {}))
        if any(np.ma.is_masked(leaf) for leaf in leaves):
            raise _masked(_named(function, args, kwargs or {}))
        data = [_own(leaf) if is_data(leaf) else None for leaf in leaves]
        constants = tuple(None if is_data(leaf) else Fixed(leaf) for leaf in leaves)
        last = function if isinstance(function, LastLayer) else None
        known, model = (last.fixed, last.model) if last else (None, function)
        return cls(data, known, Fixed(model), Fixed(structure), constants, placement_of(data))

    @property
    def function(self) -> Callable:
        """The function, unchanged since the call was made."""
        function = self.fixed_function.value
        return function if self.known is None else LastLayer(function, self.known)

    @property
    def name(self) -> str:
        """What the function is called."""
        return name_of(self.function)

    @property
    def arguments(self) -> tuple[tuple, dict]:
        """The positional and the keyword arguments."""
        pairs = zip(self.data, self.constants, strict=True)
        leaves = [d if c is None else c.value for d, c in pairs]
        return jax.tree.unflatten(self.structure.as_given, leaves)

    @property
    def arrays(self) -> list[Any]:
        """The data, without the places where there are none."""
        return [x for x in self.data if x is not None]

    def with_arrays(self, arrays: Iterable[Any]) -> "Call":
        """The same function of other data."""
        given = iter(arrays)
        return replace(self, data=[None if x is None else next(given) for x in self.data])

    @property
    def array_names(self) -> list[str]:
        """What the data are called, in the order of :attr:`arrays`."""
        return [name for name, x in _named(self.function, *self.arguments) if is_data(x)]

    def with_arguments(self, args: tuple, kwargs: Mapping) -> "Call":
        """The same function of other arguments, whose rows are where those of this call are."""
        return replace(Call.of(self.function, args, kwargs), placement=self.placement)

    def on_one_device(self) -> "Call":
        """The same, taken as one whose data are not spread over devices."""
        return replace(self, placement=None)

    def not_finite(self) -> list[str]:
        """Which arguments have a NaN or an infinity, how many and where.

        Returns:
            One phrase an argument, such as ``"argument 'x' has 3 NaN, first at [4, 0]"``.
        """
        found = []
        for name, leaf in _named(self.function, *self.arguments):
            if (is_data(leaf) or isinstance(leaf, float)) and _is_inexact(leaf):
                leaf = here(leaf) if isinstance(leaf, jax.Array) else leaf
                bad = {"NaN": np.isnan(leaf), "infinite": np.isinf(leaf)}
                counted = [
                    f"{np.sum(where)} {kind}" for kind, where in bad.items() if np.any(where)
                ]
                if counted:
                    first = np.argwhere(bad["NaN"] | bad["infinite"])[0].tolist()
                    at = f", first at {first}" if first else ""
                    found.append(f"argument '{name}' has {' and '.join(counted)}{at}")
        return found

    @contextmanager
    def arrays_blamed(self) -> Iterator[None]:
        """An error of the function, as one that names the arguments that are no arrays."""
        try:
            yield
        except (*_BLAMED, UnsupportedModel) as error:
            blamed = self._blamed(error)
            if blamed is None:
                raise
            raise blamed from error

    def _blamed(self, error: Exception) -> UnsupportedModel | None:
        if str(error) == "'scale' argument should be positive.":
            return UnsupportedModel(
                "The model scales a log density by a number that is not positive: of a negative one "
                "the likely is unlikely.",
                causes=["numpyro.handlers.scale with a difference, or a weight of the wrong sign"],
                remedy="scale by positive numbers; what is to count 0 times is hidden by "
                "numpyro.handlers.mask.",
            )
        if isinstance(error, OverflowError) and not any(w in str(error) for w in _OF_WHOLE_NUMBERS):
            return None
        if "dot_general requires" in str(error):  # of shapes that do not fit
            return None
        if isinstance(error, AttributeError) and "Tracer has no attribute" in str(error):
            return no_attribute(error)
        named = _named(self.function, *self.arguments, is_sequence)
        column = column_to_read(named)
        if column is None and "Indexer must have integer" in str(error):
            return no_labels(named, error)
        of_dicts = any(words in str(error) for words in _OF_DICTS)
        if of_dicts:
            named = _named(self.function, *self.arguments, lambda x: isinstance(x, dict))
        too_large = isinstance(error, OverflowError)
        causes = not_arrays(named, too_large) if self._is_of_its_arguments() else []
        of_lists = isinstance(error, TypeError | AttributeError | OverflowError) or any(
            words in str(error) for words in (*_OF_LISTS, *_OF_DICTS)
        )
        if not causes or not (of_lists or (column and not isinstance(error, ValueError))):
            return None
        said = (error.__cause__ or error) if isinstance(error, UnsupportedModel) else error
        return UnsupportedModel(
            f"The model cannot compute with its arguments: {_in_short(said)}",
            causes=causes,
            remedy=f"pass {numbers_in_lists(causes)}."
            if column is None
            else f"pass numbers: {numbers_in_column(*column)}.",
        )

    def _is_of_its_arguments(self) -> bool:
        """Whether the function has such arguments."""
        args, kwargs = self.arguments
        try:
            inspect.signature(within_handlers(self.function)).bind(*args, **kwargs)
        except TypeError:
            return False
        except ValueError:  # a function that does not tell
            return True
        return True


def _refuse_handlers() -> None:
    """Refuse to look at a model from within NumPyro's handlers, unless a fit is what runs there."""
    around = numpyro.primitives._PYRO_STACK
    if around and not any(isinstance(handler, InWorkingPrecision) for handler in around):
        raise UnsupportedModel(
            "laplace was called within NumPyro handlers, which the fit would not see again.",
            remedy="wrap the model instead: laplace(numpyro.handlers.scale(model, ...), ...).",
        )


def _masked(named: list[tuple[str, Any]]) -> UnsupportedModel:
    name = next(name for name, leaf in named if np.ma.is_masked(leaf))
    return UnsupportedModel(
        f"Argument '{name}' is a masked array, of which JAX would read what the mask hides.",
        remedy="pass its data and its mask, and hide those data with numpyro.handlers.mask; in lb.network by weights=.",
    )


def _is_read_once(leaf: Any) -> bool:
    return isinstance(leaf, Iterator)


def _has_index(leaf: Any) -> bool:
    """Whether its rows have labels, as those of a column or a table of pandas have."""
    return hasattr(leaf, "to_numpy") and hasattr(getattr(leaf, "index", None), "isin")


def _read_once(named: list[tuple[str, Any]]) -> UnsupportedModel:
    name, leaf = next((name, leaf) for name, leaf in named if _is_read_once(leaf))
    return UnsupportedModel(
        f"Argument '{name}', of type {type(leaf).__name__}, has nothing left once it was read, and a "
        "model is run many times.",
        remedy="pass an array of its numbers, such as np.asarray(list(y), float).",
    )


def _too_narrow(named: list[tuple[str, Any]]) -> UnsupportedModel:
    name, leaf = next((name, leaf) for name, leaf in named if loses(leaf))
    return UnsupportedModel(
        f"Argument '{name}' is {leaf.dtype}, which JAX would narrow: {loses(leaf)}.",
        causes=["timestamps, identifiers or coordinates with a large offset"],
        remedy="centre and scale the data."
        if jnp.result_type(float) == jnp.float64
        else "call numpyro.enable_x64() before the first array is made, or centre and scale the data.",
    )


def _numbers_of(leaf: Any) -> Any:
    """Of a column of numbers, such as a pandas Series, its array; a table is left to the model to read."""
    if is_data(leaf):
        return of_known_type(leaf)
    if hasattr(leaf, "columns") or not hasattr(leaf, "to_numpy"):
        return leaf
    array = leaf.to_numpy()
    return of_known_type(array) if is_data(array) else leaf


def of_known_type(leaf: Any) -> Any:
    """The numbers in a type that JAX has: bytes in the order of the machine, at most double precision."""
    if not isinstance(leaf, np.ndarray | np.generic):
        return leaf
    widest = {"f": 8, "c": 16}.get(leaf.dtype.kind, leaf.dtype.itemsize)
    return leaf.astype(f"={leaf.dtype.kind}{min(leaf.dtype.itemsize, widest)}", copy=False)


def _own(leaf: Any) -> Array:
    """The array, as wide as JAX works; of a NumPy one a copy, for the result describes the data of the fit."""
    if isinstance(leaf, jax.Array):
        return widened(placed(leaf))
    return own_copy(leaf, wider_type(leaf))


def _is_inexact(leaf: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)


def _in_short(error: BaseException) -> str:
    """What an error of JAX says, without its account of the tracing and without long lists of numbers."""
    said = " ".join(str(error).split()).partition(" The error occurred")[0]
    return said if len(said) <= 300 else f"{said[:300]} ..."


def _named(
    function: Callable,
    args: tuple,
    kwargs: Mapping,
    is_leaf: Callable | None = None,
    before: int = 0,
) -> list[tuple[str, Any]]:
    """The leaves of the arguments with their names: ``"columns['age']"``; of a call, its own.

    ``before``: how many positional arguments there are before them.
    """
    names = positional_names(function, before + len(args))[before:]
    found: list[tuple[str, Any]] = []
    for name, value in [*zip(names, args, strict=True), *kwargs.items()]:
        if isinstance(value, Call):
            points = getattr(within_handlers(function), "points_before", 0)
            found += _named(value.function, *value.arguments, is_leaf, before=points)
        else:
            leaves = jax.tree_util.tree_leaves_with_path(_in_order(value), is_leaf)
            found += [(name + keystr(path), leaf) for path, leaf in leaves]
    return found


def positional_names(model: Callable, count: int) -> list[str]:
    """What the model calls its positional arguments, such as ``["x", "args[0]"]``.

    Args:
        model: a function, or one within handlers of NumPyro.
        count: how many there are.
    """
    try:
        parameters = list(inspect.signature(within_handlers(model)).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    single = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    extra = (f"{rest}[{i}]" for i in range(count))
    return [*single[:count], *islice(extra, max(0, count - len(single)))]


def as_called(model: Callable, args: tuple, kwargs: Mapping) -> list[str]:
    """The arguments of a call as a user would write them, such as ``["x", "y", "scale=scale"]``.

    Args:
        model: as of :func:`positional_names`.
        args: its positional arguments.
        kwargs: the others.

    Returns:
        Each by the name that the model has for it; dots from the first one on that has none.
    """
    named = positional_names(model, len(args))
    known = list(takewhile(str.isidentifier, named))
    return [*known, *["..."][: len(named) - len(known)], *(f"{key}={key}" for key in kwargs)]


def within_handlers(model: Any) -> Callable:
    """The function that handlers of NumPyro are around, if any are, or whose sites are integrated out."""
    if getattr(model, "is_marginal", False):
        return within_handlers(model.model)
    if isinstance(model, Messenger) and model.fn is not None:
        return within_handlers(model.fn)
    return model


def is_network(function: Any) -> bool:
    """Whether it is a model of :func:`~laplacebook.network`, itself or in a ``functools.partial`` or handlers."""
    model = within_handlers(function)
    return getattr(model.func if isinstance(model, partial) else model, "is_network", False)


def of_partial(model: Any, args: tuple, kwargs: Mapping) -> tuple[Any, tuple, Mapping]:
    """A model whose sites are integrated out, which is more than a function, for a ``functools.partial`` of it.

    Args:
        model: that, or any other.
        args: its positional arguments.
        kwargs: its keyword arguments.

    Returns:
        The model, and the arguments with those that the partial holds.
    """
    if not (isinstance(model, partial) and getattr(model.func, "is_marginal", False)):
        return model, args, kwargs
    return model.func, (*model.args, *args), {**model.keywords, **kwargs}


def _in_order(tree: Any) -> Any:
    """The same arguments with dicts that keep their order, in which JAX would sort the keys."""
    if type(tree) is dict:
        return OrderedDict((key, _in_order(value)) for key, value in tree.items())
    if type(tree) in (list, tuple):
        return type(tree)(_in_order(value) for value in tree)
    return tree
