"""NumPy's arrays that a model reads, of which JAX keeps a copy in a narrower type."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from laplacebook.base.errors import LaplaceError
from laplacebook.base.quick import at_once, is_eager

_narrows = False  # whether JAX does, or has done so when one was looked at


def read_anew(arrays: Sequence[np.ndarray], name: str) -> None:
    """Let JAX read these arrays anew where they have changed since it copied them.

    It copies what it has to narrow, such as any array of NumPy's default types in single precision, once for as
    long as a program with the copy lives: a later program would have the numbers of the first.

    Args:
        arrays: of 64 bits a number.
        name: of what reads them.

    Raises:
        LaplaceError: it would not, within a program.
    """
    global _narrows
    _narrows |= jax.dtypes.canonicalize_dtype(np.float64) != np.float64
    if not _narrows or _are_read(arrays):
        return
    if is_eager():
        jax.clear_caches()
    if not _are_read(arrays):
        raise LaplaceError(
            f"An array that '{name}' reads was changed in place, and JAX would go on with a copy of its old numbers.",
            causes=[
                "X -= X.mean(), or X[0] = 1, of an array of 64 bits, with JAX in single precision"
            ],
            remedy="make a new array, as X = X - X.mean() does; or pass it as an argument of the model.",
        )


def _are_read(arrays: Sequence[np.ndarray]) -> bool:
    """Whether a program that JAX makes now has the numbers that are in the arrays."""
    with at_once(), np.errstate(all="ignore"):  # what overflows does so in both
        copies = jaxpr_as_fun(jax.make_jaxpr(lambda: list(map(jnp.asarray, arrays)))())()
        types = (jax.dtypes.canonicalize_dtype(array.dtype) for array in arrays)
        wanted = list(map(np.asarray, arrays, types))
    return all(
        copy.dtype == array.dtype and np.asarray(copy).tobytes() == array.tobytes()
        for copy, array in zip(copies, wanted, strict=True)
    )
