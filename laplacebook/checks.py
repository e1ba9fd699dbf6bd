"""What an argument has to be."""

from numbers import Integral
from typing import Any

__all__ = ["require_number"]


def require_number(name: str, number: Any) -> None:
    """Refuse what cannot count draws, points or rows.

    Raises:
        ValueError: ``number`` is not a positive integer.
    """
    if isinstance(number, bool) or not isinstance(number, Integral) or number < 1:
        raise ValueError(f"{name} must be a whole number, 1 or more, not {number!r}")
