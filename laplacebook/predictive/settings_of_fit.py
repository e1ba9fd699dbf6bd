"""Arguments of a model that its predictions share with its fit."""

from collections.abc import Mapping
from functools import partial
from inspect import Parameter, signature
from typing import Any

import jax
import numpy as np

from laplacebook.model.arguments import Call, is_network, within_handlers

_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def with_settings_of(fit: Call, args: tuple, kwargs: Mapping, own: Mapping[str, bool]) -> Call:
    """The model of a fit with new arguments; a setting that they leave out is what it was in the fit.

    A setting has another default than None, which outcomes have, or has no place, but a name alone; and it is no array
    with as many entries as an argument had rows that is given anew, whose entries may belong to these.

    Args:
        fit: the call that was fitted.
        args: new positional arguments.
        kwargs: new keyword arguments.
        own: names of arguments of the function that predicts, and whether they were given to it.

    Raises:
        ValueError: one that was given is the name of an argument of the model, too, which then does not get it;
            or a table for a network of :func:`~laplacebook.network` has other columns.
    """
    try:
        of_model = signature(within_handlers(fit.fixed_function.value))
        before = of_model.bind(*fit.arguments[0], **fit.arguments[1]).arguments
        now = of_model.bind_partial(*args, **kwargs).arguments
    except (
        TypeError,
        ValueError,
    ):  # of a function that does not tell, or whose mistake it is to say
        return Call.of(fit.function, args, kwargs)
    if _reads_by_place(fit.fixed_function.value):
        for name in now.keys() & before.keys():
            _refuse_other_columns(name, before[name], now[name])
    left_out = {
        name: parameter
        for name, parameter in of_model.parameters.items()
        if name not in now and parameter.kind in _NAMED
    }
    taken = [name for name in left_out if own.get(name)]
    if taken:
        raise ValueError(
            f"The model has an argument named {taken[0]!r}, and so has lb.predict, which took it. Give the model's by "
            "its place, or rename it."
        )
    settings = {
        name: before[name]
        for name, parameter in left_out.items()
        if name in before
        and (parameter.default is not None or parameter.kind is Parameter.KEYWORD_ONLY)
    }
    for name, parameter in of_model.parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:
            settings |= {k: v for k, v in before.get(name, {}).items() if k not in kwargs}
    given = [before[name] for name in now if name in before]
    rows = {np.shape(x)[0] for x in jax.tree.leaves(given) if np.ndim(x)}
    of_no_rows = {k: v for k, v in settings.items() if _has_no_rows(v, rows)}
    return Call.of(fit.function, args, {**kwargs, **of_no_rows})


def _reads_by_place(function: Any) -> bool:
    """Whether a model of this package reads a table by the places of its columns."""
    model = within_handlers(function)
    model = model.func if isinstance(model, partial) else model
    return is_network(function) or getattr(model, "__module__", "") == "laplacebook.models"


def _refuse_other_columns(name: str, fit: Any, new: Any) -> None:
    """Refuse a table whose columns, which a network reads by their places, are not those of the fit."""
    if not (hasattr(fit, "columns") and hasattr(new, "columns")):
        return
    before, now = list(fit.columns), list(new.columns)
    if before != now and len(before) == len(now):
        raise ValueError(
            f"Argument '{name}' has the columns {', '.join(map(str, now))}, and in the fit "
            f"{', '.join(map(str, before))}: a network reads them by their places. Pass {name}[{before!r}]; or, if "
            f"they are the same by other names, {name}.to_numpy()."
        )


def _has_no_rows(value: Any, rows: set[int]) -> bool:
    shape = np.shape(value) if isinstance(value, list) else getattr(value, "shape", ())
    return not shape or (bool(rows) and shape[0] not in rows)
