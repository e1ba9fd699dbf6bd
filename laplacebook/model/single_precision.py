"""What of an array is lost in the types that JAX computes with: single precision, unless told otherwise."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from laplacebook.base.pytrees import is_traced
from laplacebook.model.fingerprint import is_data
from laplacebook.model.working_precision import wider_type

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
    if is_traced(value) or not is_data(value):
        return ""
    if isinstance(value, jax.Array) and not jnp.issubdtype(value.dtype, jnp.unsignedinteger):
        return ""  # JAX has narrowed it already
    held = wider_type(value) or jax.dtypes.canonicalize_dtype(value.dtype)
    wide = np.asarray(value) if not isinstance(value, jax.Array) else _at_hand(value)
    if np.can_cast(wide.dtype, held) or not wide.size:
        return ""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        narrow = wide.astype(held)
        back = narrow.astype(wide.dtype)
    whole = wide.dtype.kind in "iu"
    changed = (wide != back) | ((narrow < 0) & (wide > 0))
    if not whole:
        changed = np.isfinite(wide) & ~np.isfinite(back)
    if changed.any():
        first = tuple(np.argwhere(changed)[0].tolist())
        return f"{wide[first]} would become {narrow[first]}"
    return "" if whole else _rounding(np.atleast_1d(wide), np.atleast_1d(back))


def _at_hand(array: jax.Array) -> np.ndarray:
    """The numbers that lie on the devices of this process."""
    return np.concatenate([np.ravel(part.data) for part in array.addressable_shards])


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
