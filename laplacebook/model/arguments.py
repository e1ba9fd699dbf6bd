"""The arguments of a model: which are data, what they are called, and what is wrong with them."""

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.tree_util import PyTreeDef, keystr
from jaxtyping import Array
from numpyro.primitives import Messenger

from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.pytrees import STATIC
from laplacebook.model.fingerprint import Fixed, is_data, name_of
from laplacebook.model.known_sites import LastLayer
from laplacebook.model.sharding import Placement, here, placed, placement_of
from laplacebook.model.single_precision import loses
from laplacebook.model.working_precision import InWorkingPrecision, widened, wider_type

_NUMBERS = bool | int | float | complex


@jax.tree_util.register_dataclass
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
        structure: of the arguments.
        constants: the leaves that are no data, None elsewhere.
        placement: how the rows of the data are spread over devices; None if they are not.
    """

    data: list[Any]
    known: dict[str, Any] | None
    fixed_function: Fixed = field(metadata=STATIC)
    structure: PyTreeDef = field(metadata=STATIC)
    constants: tuple[Fixed | None, ...] = field(metadata=STATIC)
    placement: Placement | None = field(metadata=STATIC)

    @classmethod
    def of(cls, function: Callable, args: tuple = (), kwargs: Mapping | None = None) -> "Call":
        """A function and its positional and keyword arguments.

        Raises:
            UnsupportedModel: JAX works in single precision, which cannot hold the data, or knows
                nothing of a mask that they have; they can be read only once; or it is called within
                NumPyro's handlers.
        """
        _refuse_handlers()
        given = _in_order(args), _in_order(dict(kwargs or {}))
        leaves, structure = jax.tree.flatten(given, _is_read_once)
        if any(map(_is_read_once, leaves)):
            raise _read_once(_named(function, args, kwargs or {}, _is_read_once))
        leaves = [_numbers_of(leaf) for leaf in leaves]
        if any(loses(leaf) for leaf in leaves):
            raise _too_narrow(_named(function, args, kwargs or {}))
        if any(np.ma.is_masked(leaf) for leaf in leaves):
            raise _masked(_named(function, args, kwargs or {}))
        data = [_own(leaf) if is_data(leaf) else None for leaf in leaves]
        constants = tuple(None if is_data(leaf) else Fixed(leaf) for leaf in leaves)
        last = function if isinstance(function, LastLayer) else None
        known, model = (last.fixed, last.model) if last else (None, function)
        return cls(data, known, Fixed(model), structure, constants, placement_of(data))

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
        return jax.tree.unflatten(self.structure, leaves)

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
        except ValueError as error:
            if str(error) != "'scale' argument should be positive.":
                raise
            raise UnsupportedModel(
                "The model scales a log density by a number that is not positive: of a negative one "
                "the likely is unlikely.",
                causes=["numpyro.handlers.scale with a difference, or a weight of the wrong sign"],
                remedy="scale by positive numbers; what is to count 0 times is hidden by "
                "numpyro.handlers.mask.",
            ) from error
        except (TypeError, IndexError, UnsupportedModel) as error:
            named = _named(self.function, *self.arguments, _is_sequence)
            if "Indexer must have integer" in str(error):
                raise _no_labels(named, error) from error
            column = next((pair for pair in named if _needs_a_column_read(pair[1])), None)
            causes = _not_arrays(named)
            if not causes or (column is None and not isinstance(error, TypeError)):
                raise
            said = error.__cause__ if isinstance(error, UnsupportedModel) else error
            raise UnsupportedModel(
                f"The model cannot compute with its arguments: "
                f"{str(said).split(' The error occurred')[0]}",
                causes=causes,
                remedy="pass numbers as NumPy or JAX arrays, such as np.asarray(list(y), float)."
                if column is None
                else f"pass numbers: {_numbers_in(*column)}.",
            ) from error


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
        remedy="pass its data and its mask, and hide those data with numpyro.handlers.mask.",
    )


def _is_read_once(leaf: Any) -> bool:
    return isinstance(leaf, Iterator)


def _read_once(named: list[tuple[str, Any]]) -> UnsupportedModel:
    name, leaf = next((name, leaf) for name, leaf in named if _is_read_once(leaf))
    return UnsupportedModel(
        f"Argument '{name}', of type {type(leaf).__name__}, has nothing left once it was read, and a "
        "model is run many times.",
        remedy="pass an array of its numbers, such as np.asarray(list(y), float).",
    )


def _not_arrays(named: list[tuple[str, Any]]) -> list[str]:
    """Which arguments hold numbers, or should, and yet are no arrays of numbers.

    Returns:
        One phrase an argument, such as ``"argument 'y' is a list"``.
    """
    found: dict[str, None] = {}
    for name, value in named:
        if _is_sequence(value):
            leaves = jax.tree.leaves(value)
            if not leaves:
                found[f"argument '{name}' is an empty {type(value).__name__}"] = None
            for kind, what in (
                (_NUMBERS, "numbers"),
                (str, "strings"),
                (_NUMBERS | jax.Array, "arrays"),
            ):
                if leaves and all(isinstance(leaf, kind) for leaf in leaves):
                    found[f"argument '{name}' is a {type(value).__name__} of {what}"] = None
        elif isinstance(value, np.ndarray) and not is_data(value):
            found[f"argument '{name}' is an array of {value.dtype.name} values"] = None
        elif hasattr(value, "__array__") and not is_data(value) and not np.isscalar(value):
            kind = type(value)
            found[f"argument '{name}' is a {kind.__module__.split('.')[0]} {kind.__name__}"] = None
        elif isinstance(value, str):
            found[f"argument '{name}' is a string"] = None
        elif isinstance(value, Iterable) and not is_data(value):
            found[f"argument '{name}' is a {type(value).__name__}, and no array"] = None
    return list(found)


def _needs_a_column_read(value: Any) -> bool:
    return hasattr(value, "to_numpy") or (isinstance(value, np.ndarray) and not is_data(value))


#: by the beginning of a data type, the numbers in a column of pandas or in an array
_READ = {
    "category": "{0}.cat.codes.to_numpy(), labels from 0, of a Series with nothing missing",
    "datetime64": '(({0} - {0}.min()) / np.timedelta64(1, "D")).astype(float), days since the first',
    "timedelta64": '({0} / np.timedelta64(1, "D")).astype(float), in days',
    "period": '{0}.astype("int64"), the number of each period',
    "interval": "pandas.IntervalIndex({0}).mid.to_numpy(), the middles",
}
_LABELS = "np.asarray({0}, float) with nothing missing, and of labels np.unique({0}, return_inverse=True)[1]"
_OF_TABLE = "{0}.to_numpy(float) with nothing missing, and of labels {0}.astype('category').cat.codes.to_numpy()"


def _numbers_in(name: str, value: Any) -> str:
    """How to read the numbers in a column."""
    dtype = str(getattr(value, "dtype", ""))
    other = _OF_TABLE if hasattr(value, "to_numpy") else _LABELS
    ways = (way for start, way in _READ.items() if dtype.startswith(start))
    return next(ways, other).format(name)


def _no_labels(named: list[tuple[str, Any]], error: Exception) -> UnsupportedModel:
    real = [f"argument '{k}' is of type {v.dtype}" for k, v in named if _is_real(v)]
    return UnsupportedModel(
        f"The model takes for labels what are no whole numbers: {str(error).splitlines()[0]}.",
        causes=real,
        remedy="pass labels as integers from 0, np.asarray(g, int), of a column with nothing missing.",
    )


def _is_real(value: Any) -> bool:
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.floating)


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
    return jnp.array(leaf, wider_type(leaf))


def _is_inexact(leaf: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)


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


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list | tuple)


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


def within_handlers(model: Any) -> Callable:
    """The function that handlers of NumPyro are around, if any are, or whose sites are integrated out."""
    if getattr(model, "is_marginal", False):
        return within_handlers(model.model)
    if isinstance(model, Messenger) and model.fn is not None:
        return within_handlers(model.fn)
    return model


def _in_order(tree: Any) -> Any:
    """The same arguments with dicts that keep their order, in which JAX would sort the keys."""
    if type(tree) is dict:
        return OrderedDict((key, _in_order(value)) for key, value in tree.items())
    if type(tree) in (list, tuple):
        return type(tree)(_in_order(value) for value in tree)
    return tree
