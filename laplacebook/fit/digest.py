"""A few numbers by which to know data again: a file has them in place of the data."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.model.density import ModelDensity
from laplacebook.model.observations import observed_numbers

_UNITS = 16  # units in the last place, as between models that are compared
_FREQUENCIES = np.sqrt([2.0, 3.0, 5.0])
WIDTH = 3 + 2 * _FREQUENCIES.size


def digests(
    density: ModelDensity, u: Float[Array, " D"]
) -> tuple[dict[str, Float[np.ndarray, " K"]], Float[np.ndarray, "n K"]]:
    """What to know the data of a model by.

    Args:
        density: a model and its arguments.
        u: where the model runs to say what it observes, shape (D,).

    Returns:
        name -> digest of each array among the arguments; and that of all observed numbers, with a
        row, or with none where they are not known. Data on several devices are not looked at.
    """
    if density.placement is not None:
        return {}, np.empty((0, WIDTH))
    named = zip(density.call.array_names, density.call.arrays, strict=True)
    arrays = {name: x for name, x in named if np.ndim(x) and not is_key(x)}
    observed = observed_numbers(density, u)
    rows = [] if observed is None else [digest(observed)]
    return {name: digest(x) for name, x in arrays.items()}, np.reshape(rows, (-1, WIDTH))


def is_key(x: Any) -> bool:
    """Whether an argument is a random key, of which there are no numbers."""
    return isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def digest(numbers: Any) -> Float[np.ndarray, " K"]:
    """Size, how many are not finite, norm, and projections of the sorted numbers, whole and rounded.

    A rounding error changes them by as much, in whatever order the numbers come: a hash would
    change altogether. The projections of the numbers rounded to single precision are those of the
    same data out of a file of single precision.
    """
    flat = np.ravel(np.asarray(numbers))
    flat = np.concatenate([flat.real, flat.imag]) if flat.dtype.kind == "c" else flat.astype(float)
    finite = np.isfinite(flat)
    ordered = np.sort(np.where(finite, flat, 0.0))
    most = np.finfo(np.float32).max
    single = np.clip(ordered, -most, most).astype(np.float32).astype(float)
    scale = np.max(np.abs(ordered), initial=np.finfo(float).tiny)
    norm = scale * np.linalg.norm(ordered / scale)
    places = np.arange(flat.size)
    projections = [
        np.sum(np.cos(frequency * places) * x)
        for x in (ordered, single)
        for frequency in _FREQUENCIES
    ]
    return np.array([flat.size, np.sum(~finite), norm, *projections])


def same(one: np.ndarray, other: np.ndarray, eps: float) -> bool:
    """Whether two digests are of equal numbers, up to rounding.

    Args:
        one: a digest.
        other: a digest.
        eps: of the precision that the data were computed in.
    """
    if not np.array_equal(one[:2], other[:2]):
        return False
    whole, rounded = np.stack([one[3:], other[3:]]).reshape(2, 2, -1).swapaxes(0, 1)
    allowed = _UNITS * eps * max(one[2], other[2])
    is_single = np.any(np.all(whole == rounded, axis=1))  # one of the two was held in it
    seen = [whole, rounded] if is_single else [whole]
    return any(bool(np.all(np.abs(a - b) <= allowed)) for a, b in seen)


def told_apart(
    saved: tuple[dict[str, np.ndarray], np.ndarray],
    now: tuple[dict[str, np.ndarray], np.ndarray],
    eps: float,
) -> list[str]:
    """What of the data is no longer what it was, one phrase each; none where there is nothing to compare.

    An array may have another name or place, as where some of the arguments were bound before.

    Args:
        saved: of the fit, as :func:`digests` has it.
        now: of the model and the arguments at hand.
        eps: of the precision that the data were computed in.
    """
    found = []
    left = dict(now[0])
    if len(saved[0]) == len(left):
        for name, of_fit in saved[0].items():
            match = next((n for n in (name, *left) if n in left and same(of_fit, left[n], eps)), "")
            if match:
                del left[match]
            else:
                found.append(f"argument '{name}' had other numbers ({_size(of_fit)})")
    pairs = zip(saved[1], now[1], strict=False)
    found += [
        f"other numbers are observed ({_size(new)}; in the fit {_size(old)})"
        for old, new in pairs
        if not same(old, new, eps)
    ]
    return found


def _size(of_numbers: np.ndarray) -> str:
    return f"{int(of_numbers[0]):,} of them"
