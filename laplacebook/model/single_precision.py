"""What of an array is lost in single precision, into which JAX narrows unless told otherwise."""

from typing import Any

import jax
import numpy as np

from laplacebook.model.fingerprint import is_data

#: largest rounding error of a number, in standard deviations of its column
TOLERANCE = 1e-3


def loses(value: Any) -> str:
    """What JAX would lose of an argument in the precision that it works in now.

    Args:
        value: any argument of a model.

    Returns:
        In words what is lost; empty if it is nothing that matters: a whole number has to stay as
        it is, and a real one within a thousandth of the standard deviation of its column.
    """
    if not isinstance(value, np.ndarray | np.generic) or not is_data(value):
        return ""
    wide, held = np.asarray(value), jax.dtypes.canonicalize_dtype(value.dtype)
    if held == wide.dtype or not wide.size:
        return ""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        narrow = wide.astype(held)
        back = narrow.astype(wide.dtype)
    whole = wide.dtype.kind in "iu"
    changed = wide != back if whole else np.isfinite(wide) & ~np.isfinite(back)
    if changed.any():
        first = tuple(np.argwhere(changed)[0].tolist())
        return f"{wide[first]} would become {narrow[first]}"
    return "" if whole else _rounding(np.atleast_1d(wide), np.atleast_1d(back))


def _rounding(wide: np.ndarray, back: np.ndarray) -> str:
    columns = np.ma.masked_invalid(wide.reshape(len(wide), -1))
    error = abs(columns - back.reshape(columns.shape)).max(0)
    # A column that is constant but for rounding has no spread to be lost.
    constant = columns.std(0) <= 16 * np.finfo(wide.dtype).eps * abs(columns).max(0)
    relative = np.ma.masked_array(error / np.where(constant, np.inf, columns.std(0)))
    worst = float(relative.filled(0).max())
    if worst <= TOLERANCE:
        return ""
    return f"the rounding error would be {worst:.2g} of the standard deviation of the data"
