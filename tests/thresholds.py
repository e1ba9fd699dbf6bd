"""Tables of thresholds: what the package makes of an input just inside of one, and of one just outside."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest


class Refused(NamedTuple):
    """An error, and words of it, as a regular expression; lines count as one."""

    error: type[Exception]
    words: str


Row = tuple[Callable[[Any], Any], *tuple[tuple[Any, Any], ...]]


def sides(table: dict[str, Row]) -> list[Any]:
    """The rows as parameters of a test: what is done, with which input, and what becomes of it.

    Args:
        table: name -> a function of one input, and pairs of an input and its result, or what refuses it.
    """
    return [
        pytest.param(act, x, result, id=f"{name}, {x}")
        for name, (act, *pairs) in table.items()
        for x, result in pairs
    ]


def check(act: Callable[[Any], Any], x: Any, result: Any) -> None:
    """Numbers agree to six digits."""
    if isinstance(result, Refused):
        with pytest.raises(result.error) as caught:
            act(x)
        assert re.search(result.words, " ".join(str(caught.value).split()))
    else:
        number = isinstance(result, float | np.ndarray)
        assert act(x) == (pytest.approx(result, rel=1e-6, nan_ok=True) if number else result)
