"""Functions in which Python does not look for garbage."""

import functools
import gc
from collections.abc import Callable
from typing import Any, TypeVar, cast

_F = TypeVar("_F", bound=Callable)


def uncollected(function: _F) -> _F:
    """The function, in which Python's collector of cyclic garbage is off; left off if it was.

    Traces make objects by the hundred thousand that stay. After every few of them Python looks through all that
    there are, a tenth of a second each time once JAX is imported and three tenths after some programs, and finds
    next to nothing: one tenth of the time of whole sessions. What is garbage is found by the first look after the call.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not gc.isenabled():
            return function(*args, **kwargs)
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            gc.enable()

    return cast(_F, call)
