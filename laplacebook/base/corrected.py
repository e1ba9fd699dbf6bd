"""A number by an expansion, which never travels without the scale of what the expansion leaves out."""

from dataclasses import dataclass, field
from math import floor, isfinite, log10
from typing import Any

import numpy as np

from laplacebook.base.pytrees import STATIC, is_traced, register_dataclass


@register_dataclass
@dataclass(frozen=True, repr=False)
class Corrected:
    """A number by an expansion in 1/N, with the scale of what the expansion leaves out.

    In the book: :eq:`laplace-several` of :doc:`/book/accuracy`.

    Attributes:
        value: the number, its correction included.
        correction: what the terms beyond Laplace's approximation add.
        truncation: the scale of what is left out, 0 or more: no standard error, since it is no chance.
        doubt: what is known against the fit, a verdict of bad or modes elsewhere; or None. It is printed.

    >>> Corrected(-4.70059, 0.0297, 0.00088)
    -4.7006, corrected by 0.0297; leaves out about 0.0009
    """

    value: Any
    correction: Any
    truncation: Any
    doubt: str | None = field(default=None, metadata=STATIC, kw_only=True)

    def __repr__(self) -> str:
        if is_traced(self.value) or np.ndim(self.value):
            numbers = f"value={self.value}, correction={self.correction}"
            return f"{type(self).__name__}({numbers}, truncation={self.truncation}){self._doubtful}"
        digits = digits_of(self.truncation)
        return (
            f"{self.value:.{digits}f}, corrected by {self.correction:.{digits}f}; leaves out about "
            f"{self.truncation:.{digits}f}{self._doubtful}"
        )

    @property
    def _doubtful(self) -> str:
        return "" if self.doubt is None else f"; doubtful: {self.doubt}"


def digits_of(scale: Any) -> int:
    """How many decimals a number has that is known so well: to one digit of the scale, from 4 to 12."""
    size = float(scale)
    return 4 if not isfinite(size) or size <= 0 else min(max(4, -floor(log10(size))), 12)
