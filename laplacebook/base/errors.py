"""What can go wrong in a Laplace approximation, as errors that say what, where, why and what to do."""

from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np


class LaplaceError(Exception):
    """Base class: there is no Laplace approximation to return.

    In the book: the conditions of :prf:ref:`laplace-theorem` of :doc:`/book/laplace`.

    Args:
        what: one sentence that says what happened, and at which site.
        causes: the likely causes; printed as (a), (b), (c).
        remedy: what the reader can do about it.

    Attributes:
        last: the coordinates of the model at which a search ended without a mode, shape (D,); None where there was
            no search.
    """

    last: Any = None

    def __init__(self, what: str, *, causes: Sequence[str] = (), remedy: str = "") -> None:
        lines = [_fill(what)]
        if causes:
            lines.append("Likely causes:")
            lines += [_fill(cause, f"  ({chr(ord('a') + i)}) ") for i, cause in enumerate(causes)]
        if remedy:
            lines.append(_fill(f"What to do: {remedy}"))
        super().__init__("\n".join(lines))


def _fill(text: str, label: str = "") -> str:
    """Wrapped at the width of a notebook's output; paths and names stay whole."""
    return fill(
        text,
        width=76,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )


class DoubtfulFit(UserWarning):
    """A prediction was made from draws of an approximation that may stand far from the posterior.

    Or a log evidence, by draws or quadrature about one mode, where others are known. Or effects that were integrated
    out were found to have two modes, of which the fit follows one.

    In the book: :eq:`sigmoid-coin-pareto` of :doc:`/book/computing-evidence`.
    """


class UnsupportedModel(LaplaceError):
    """The model has no density on R^D that a Laplace approximation could be made of.

    In the book: :prf:ref:`laplace-theorem` of :doc:`/book/laplace`.
    """


class NonFinite(LaplaceError):
    """The log joint is NaN or infinite where the search stands, or is that of no distribution.

    In the book: :eq:`laplace-density` of :doc:`/book/laplace`.
    """


class NotConverged(LaplaceError):
    """No mode was found: the certificate does not hold at the last point of the search.

    In the book: :eq:`laplace-stationary` of :doc:`/book/laplace`.
    """


def failed_fit(what: str, so: str = "") -> NotConverged:
    """The error for what needs the numbers of a fit that found no mode.

    Args:
        what: names the fit.
        so: what follows from it.
    """
    return NotConverged(
        f"{what} failed, and every number of it is NaN{f': {so}' if so else ''}.",
        remedy="fit with throw=True, which says why it failed.",
    )


class NotPositiveDefinite(LaplaceError):
    """The log joint is flat or curves upwards at the point that was found: it is not a mode.

    In the book: :eq:`laplace-curvature` of :doc:`/book/laplace`.
    """


def or_in_double(x: Any) -> str:
    """What else to try where the numbers are in single precision, in which the error may be rounding."""
    return " This is float32: also try numpyro.enable_x64()." if x.dtype == np.float32 else ""
