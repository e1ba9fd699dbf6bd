"""Check an answer to an exercise of the book, without the network and without its solution.

``laplacebook/data/exercises.json`` holds no answer but digests of it, on a grid of half a unit of the
last decimal asked for. They keep an answer from being read by accident, not from being searched for.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from hashlib import sha256
from importlib.resources import files
from numbers import Real
from textwrap import fill
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

__all__ = ["Checked", "check", "names"]

_Values = Float[np.ndarray, "..."]

#: a true sentence about a wrong answer -> what makes it right
_ALMOST: dict[str, Callable[[_Values], _Values]] = {
    "It would be right with the other sign.": lambda x: -x,
    "Twice that would be right: look for a factor of 2.": lambda x: 2 * x,
    "Half of that would be right: look for a factor of 2.": lambda x: x / 2,
    "Its logarithm would be right.": np.log,
    "Its exponential would be right: you gave a logarithm.": np.exp,
    "Its reciprocal would be right: a precision in place of a variance, say, or a ratio the other "
    "way round.": lambda x: 1 / x,
    "Its square root would be right: a variance in place of a standard deviation?": np.sqrt,
    "Its square would be right: a standard deviation in place of a variance?": np.square,
    "One minus that would be right.": lambda x: 1 - x,
    "A hundredth of that would be right: no per cent, please.": lambda x: x / 100,
    "The numbers are right, but in the opposite order.": np.flip,
    "The inverse of that matrix would be right: a covariance is the inverse of a precision.": np.linalg.inv,
}


@dataclass(frozen=True, repr=False)
class Checked:
    """What :func:`check` says of an answer. It is true exactly if the answer is right.

    Attributes:
        name: of the exercise.
        right: whether the answer is right.
        hint: what to look at if it is not; else empty.
    """

    name: str
    right: bool
    hint: str = ""

    def __bool__(self) -> bool:
        return self.right

    def __repr__(self) -> str:
        text = f"{self.name}: " + ("right" if self.right else f"not right yet. {self.hint}")
        return fill(text, width=76, break_long_words=False, break_on_hyphens=False)


def check(name: str, answer: Any) -> Checked:
    """Tell whether an answer to an exercise is right, and if not, give a hint.

    An answer within half a unit of the last decimal that the exercise asks for is right, and one
    that is more than a unit off is wrong; an array is compared entry by entry.

    Args:
        name: of the exercise, as its text has it: ``"taylor-1"``.
        answer: a number, or an array or nested list of numbers in the shape that the exercise names.

    Returns:
        What to show, which is true exactly if the answer is right. A wrong shape, NaN and infinity
        are wrong answers.

    Raises:
        ValueError: there is no such exercise, or its answer cannot be checked.
        TypeError: the answer is not made of real numbers, or ``jax.jit`` is tracing it.

    >>> check("taylor-1", 3.0)
    taylor-1: not right yet. The bound of the remainder is largest at x = 1/2;
    try one degree after the other.
    """
    exercise = _exercise(name)
    values, shape = _numbers(name, answer), tuple(exercise["shape"])
    if values.shape != shape:
        wanted = f"an array of shape {shape}" if shape else "one number"
        got = f"an array of shape {values.shape}" if values.ndim else "one number"
        return Checked(name, False, f"The answer is {wanted}, and yours is {got}.")
    if not np.isfinite(values).all():
        return Checked(name, False, "It holds NaN or infinity, and the answer holds neither.")
    right = _agrees(name, exercise, exercise["digests"], values)
    return Checked(name, True) if right.all() else Checked(name, False, _hint(name, values, right))


def names(chapter: str = "") -> tuple[str, ...]:
    """The exercises whose answers can be checked.

    Args:
        chapter: the name of its file without the ending; all chapters if it is left out.

    Returns:
        Their names, sorted.

    Raises:
        ValueError: no chapter of this name has such exercises.

    >>> names("taylor")
    ('taylor-1', 'taylor-2', 'taylor-3', 'taylor-4')
    """
    found = tuple(sorted(name for name in _table() if not chapter or _chapter(name) == chapter))
    if chapter and not found:
        raise ValueError(f"There is no answer to check in a chapter {chapter!r}. {_near(chapter)}.")
    return found


def digests(name: str, values: _Values, decimals: int) -> list[str]:
    """What the table keeps of an answer: a digest for each entry, of its place and of its step.

    Args:
        name: of the exercise.
        values: the answer.
        decimals: that the exercise asks for; negative for tens, hundreds, ...
    """
    return [_digest(name, i, step) for i, step in enumerate(_steps(values, decimals))]


def _hint(name: str, values: _Values, right: Bool[np.ndarray, "..."]) -> str:
    exercise = _exercise(name)
    for mistake in exercise["mistakes"]:
        if _agrees(name, exercise, mistake["digests"], values).all():
            return str(mistake["hint"])
    for sentence, repaired in _ALMOST.items():
        try:
            with np.errstate(all="ignore"):
                other = np.asarray(repaired(values))
        except np.linalg.LinAlgError:  # no matrix, or a singular one
            continue
        # What is smaller than the last decimal would be near anything small.
        visible = (abs(other) > 10.0 ** -exercise["decimals"]).any()
        if visible and _agrees(name, exercise, exercise["digests"], other).all():
            return sentence
    if right.any():
        where = list(map(int, np.argwhere(~right)[0]))
        some = f"{right.sum()} of {right.size} entries are right; the one at {where} is not."
        return f"{some} {exercise['hint']}"
    return str(exercise["hint"])


def _agrees(
    name: str, exercise: dict[str, Any], known: list[str], values: _Values
) -> Bool[np.ndarray, "..."]:
    """Which entries are at the step of the known answer or at a neighbouring one."""
    steps = _steps(values, exercise["decimals"])
    found = [
        step is not None and any(_digest(name, i, step + off) == digest for off in (-1, 0, 1))
        for i, (step, digest) in enumerate(zip(steps, known, strict=True))
    ]
    return np.array(found).reshape(values.shape)


def _steps(values: _Values, decimals: int) -> list[int | None]:
    """Each value in half units of the last decimal; None for what is not finite."""
    scaled = [value * 2 * 10.0**decimals for value in values.ravel().tolist()]
    return [math.floor(x + 0.5) if math.isfinite(x) else None for x in scaled]


def _digest(name: str, place: int, step: int | None) -> str:
    return sha256(f"{name} {place} {step}".encode()).hexdigest()[:16]


def _numbers(name: str, answer: Any) -> _Values:
    advice = ""
    try:
        array = np.asarray(answer)
        if jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer):
            return array.astype(np.float64)
        if array.dtype == object and array.size and all(map(_is_real, array.flat)):
            return array.astype(np.float64)  # fractions
    except jax.errors.TracerArrayConversionError:
        advice = " jax.jit, grad or vmap is tracing it: call check outside of them."
    except OverflowError:
        advice = " It is too large for a floating-point number."
    except (TypeError, ValueError):
        advice = " Are its rows of one length?"
    else:
        if array.dtype.kind in "SU":
            advice = " Leave out the quotation marks."
        elif array.dtype.kind == "b":
            advice = " Give the number itself, not a comparison with it."
        elif array.dtype.kind == "c":
            advice = " Complex numbers have no place here: take the real part if the other is zero."
    raise TypeError(
        f"The answer to {name} is a real number or an array of real numbers, not this "
        f"{type(answer).__name__}.{advice}"
    )


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _exercise(name: Any) -> dict[str, Any]:
    if not isinstance(name, str):
        raise TypeError(f"check takes the name of an exercise first, then the answer; got {name!r}")
    if name in _table():
        return _table()[name]
    raise ValueError(
        f"There is no answer to check of an exercise {name!r}. {_near(_chapter(name))}."
    )


def _near(chapter: str) -> str:
    """The exercises of the chapter whose name is nearest, or all chapters."""
    chapters = sorted({_chapter(known) for known in _table()})
    near = get_close_matches(chapter, chapters, n=1)
    return f"In {near[0]}: {', '.join(names(near[0]))}" if near else f"Chapters: {chapters}"


def _chapter(name: str) -> str:
    return name.rpartition("-")[0] or name


@cache
def _table() -> dict[str, dict[str, Any]]:
    text = files("laplacebook").joinpath("data", "exercises.json").read_text(encoding="utf-8")
    table: dict[str, dict[str, Any]] = json.loads(text)
    return table
