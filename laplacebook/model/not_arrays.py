"""Arguments that are no arrays of numbers: what they are, and how to read the numbers in them."""

from collections.abc import Iterable
from numbers import Number
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from laplacebook.base.errors import UnsupportedModel
from laplacebook.model.fingerprint import is_data

_BEYOND = "a whole number beyond"
_NUMBERS = bool | int | float | complex | np.number | np.bool_
#: what a list may be of
_KINDS = (
    (_NUMBERS, "numbers"),
    (str, "strings"),
    (_NUMBERS | str, "numbers and strings"),
    (_NUMBERS | jax.Array, "arrays"),
    (_NUMBERS | None, "numbers, some of them None"),
    (Number, "numbers that no array holds"),
)


def not_arrays(named: list[tuple[str, Any]], too_large: bool = True) -> list[str]:
    """Which arguments hold numbers, or should, and yet are no arrays of numbers.

    Args:
        named: the arguments with their names.
        too_large: whether a whole number that JAX has no place for counts.

    Returns:
        One phrase an argument, such as ``"argument 'y' is a list"``.
    """
    found: dict[str, None] = {}
    bits = jnp.iinfo(jnp.result_type(int)).bits
    for name, value in named:
        if is_sequence(value):
            leaves = jax.tree.leaves(value, is_leaf=lambda leaf: leaf is None)
            if not leaves:
                found[f"argument '{name}' is an empty {type(value).__name__}"] = None
            what = next(
                (what for kind, what in _KINDS if all(isinstance(x, kind) for x in leaves)), ""
            )
            if leaves and what:
                found[f"argument '{name}' is a {type(value).__name__} of {what}"] = None
        elif isinstance(value, np.ndarray) and not is_data(value):
            found[f"argument '{name}' is an array of {value.dtype.name} values"] = None
        elif hasattr(value, "__array__") and not is_data(value) and not np.isscalar(value):
            kind = type(value)
            found[f"argument '{name}' is a {kind.__module__.split('.')[0]} {kind.__name__}"] = None
        elif isinstance(value, Number) and not isinstance(value, _NUMBERS):
            found[f"argument '{name}' is a {type(value).__name__}"] = None
        elif too_large and isinstance(value, int) and value.bit_length() >= bits:
            found[f"argument '{name}' is {_BEYOND} {bits} bits"] = None
        elif isinstance(value, str):
            found[f"argument '{name}' is a string"] = None
        elif isinstance(value, dict):
            found[f"argument '{name}' is a dict"] = None
        elif isinstance(value, Iterable) and not is_data(value):
            found[f"argument '{name}' is a {type(value).__name__}, and no array"] = None
    return list(found)


def numbers_in_lists(causes: list[str]) -> str:
    """How to read the numbers in lists, of which ``causes`` says what they are."""
    if any(_BEYOND in cause for cause in causes):
        return "it as a real number, float(y)"
    if any(cause.endswith("is a dict") for cause in causes):
        return (
            "the array that is in the dict, such as data['y'], or read it by its name in the model"
        )
    arrays = "numbers as NumPy or JAX arrays, such as np.asarray(list(y), float)"
    if not any("strings" in cause for cause in causes):
        return arrays
    return f"{arrays}, and for labels g their numbers from 0, np.unique(list(g), return_inverse=True)[1]"


def column_to_read(named: list[tuple[str, Any]]) -> tuple[str, Any] | None:
    """The first argument that is a table, a column or an array and none of numbers, else the first table or column."""
    found = [
        (name, value)
        for name, value in named
        if hasattr(value, "to_numpy") or (isinstance(value, np.ndarray) and not is_data(value))
    ]
    others = (pair for pair in found if np.asarray(pair[1]).dtype.kind not in _OF_NUMBERS)
    return next(others, found[0] if found else None)


def crossed_rows(indexes: list[tuple[str, Any]]) -> UnsupportedModel | None:
    """The error for two columns, or tables, of pandas with the same labels of rows in different orders, or None.

    Args:
        indexes: of each its name and its index.
    """
    for i, (name, index) in enumerate(indexes):
        for other, labels in indexes[:i]:
            if (
                len(index) == len(labels)
                and not index.equals(labels)
                and index.nlevels == labels.nlevels
                and index.is_unique
                and index.isin(labels).all()
                and labels.isin(index).all()
            ):
                return UnsupportedModel(
                    f"Arguments '{other}' and '{name}' have the same row labels in different orders, and a model reads "
                    "rows by their position: those of one would meet others of the other.",
                    causes=["one of the two was sorted or shuffled alone"],
                    remedy=f"pass {name}.loc[{other}.index] if they are rows of the same data; or {name}.to_numpy() if "
                    "they are in the same order, or looked up by number.",
                )
    return None


#: by the beginning of a data type, the numbers in a column of pandas or in an array
_READ = {
    "category": "{0}.cat.codes.to_numpy(), labels from 0, of a Series with nothing missing",
    "datetime64": '(({0} - {0}.min()) / np.timedelta64(1, "D")).astype(float), days since the first',
    "timedelta64": '({0} / np.timedelta64(1, "D")).astype(float), in days',
    "period": '{0}.astype("int64"), the number of each period',
    "interval": "pandas.IntervalIndex({0}).mid.to_numpy(), the middles",
}
_LABELS = "np.asarray({0}, float) with nothing missing, and of labels np.unique({0}, return_inverse=True)[1]"
_OF_COLUMN = "{0}.to_numpy(float) with nothing missing, and of labels {0}.astype('category').cat.codes.to_numpy()"
_OF_NUMBERS = "biuf"  # the kinds of their data types


def numbers_in_column(name: str, value: Any) -> str:
    """How to read the numbers in a column, or in a table."""
    if hasattr(value, "columns"):
        return _numbers_in_table(name, value)
    dtype = str(getattr(value, "dtype", ""))
    other = _OF_COLUMN if hasattr(value, "to_numpy") else _LABELS
    return (_way_for(dtype) or other).format(name)


def _way_for(dtype: str) -> str:
    return next((way for start, way in _READ.items() if dtype.startswith(start)), "")


def _numbers_in_table(name: str, table: Any) -> str:
    dtypes = list(table.dtypes)
    places = [i for i, x in enumerate(dtypes) if getattr(x, "kind", "") not in _OF_NUMBERS]
    if not places:
        return f"{name}.to_numpy(float) with nothing missing"
    no_labels = [i for i in places if _way_for(str(dtypes[i])) and str(dtypes[i]) != "category"]
    place = next(iter(no_labels), places[0])
    label = table.columns[place]
    column = f"{name}[{label!r}]"
    if len(dtypes) == 1 or no_labels:
        own = numbers_in_column(column, table.iloc[:, place])
        return own if len(dtypes) == 1 else f"in place of its column {label!r} {own}"
    return (
        f"{name}.to_numpy(float) if all are numbers with nothing missing; for labels, as in {label!r}, "
        f"pandas.get_dummies({name}, dtype=float).to_numpy(float), with a column for each, or where the model reads "
        f"columns by name {name}.assign(**{{{label!r}: {column}.astype('category').cat.codes}})"
    )


def no_labels(named: list[tuple[str, Any]], error: Exception) -> UnsupportedModel:
    """The error for labels that are no whole numbers."""
    real = [f"argument '{k}' is of type {v.dtype}" for k, v in named if _is_real(v)]
    return UnsupportedModel(
        f"The model takes for labels what are no whole numbers: {str(error).splitlines()[0]}.",
        causes=real,
        remedy="pass labels as integers from 0, np.asarray(g, int), of a column with nothing missing.",
    )


def _is_real(value: Any) -> bool:
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.floating)


def is_sequence(value: Any) -> bool:
    """Whether a value is a list or a tuple."""
    return isinstance(value, list | tuple)


def no_attribute(error: AttributeError) -> UnsupportedModel:
    """The error for a model that reads of a JAX array what it has not."""
    attribute = str(error).split()[-1]
    return UnsupportedModel(
        f"The model reads '{attribute}' of what is a JAX array while it is fitted, and has no such attribute.",
        causes=[
            "a column of a table, which comes as an array of its numbers: leave .values or .to_numpy() out",
            "a method of NumPy that JAX has not",
        ],
        remedy="compute with jax.numpy in the model, and do the rest before the fit.",
    )
