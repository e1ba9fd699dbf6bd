"""Do the data of a site and its distribution fit together, or broadcast against each other?

``Normal(X @ w, 1)`` with a column ``w`` has the shape (N, 1); with data of shape (N,) NumPyro adds
up N x N terms of N observations, and says nothing.
"""

import jax.numpy as jnp

from laplacebook.errors import UnsupportedModel
from laplacebook.wrappers import unwrapped

__all__ = ["refuse_crossed"]


def refuse_crossed(site: dict) -> None:
    """Refuse an observed site whose data and distribution repeat each other.

    One of them may repeat the other (one mean for all data, one datum for all means); each the
    other only along axes that plates declare. What is one event is not repeated.

    Args:
        site: an observed site of NumPyro's trace of a model.

    Raises:
        UnsupportedModel: the shapes do not fit together, or fit only crosswise.
    """
    fn, shape = site["fn"], jnp.shape(site["value"])
    base = unwrapped(fn)
    cut = max(len(shape) - base.event_dim, 0)
    data, own = shape[:cut], base.batch_shape
    # A plate counts axes of the batch, to which the events of to_event do not belong.
    inner = fn.event_dim - base.event_dim
    plates = {frame.dim - inner: frame.size for frame in site["cond_indep_stack"]}
    axes = range(min(-len(data), -len(own), *plates, -1), 0)
    sizes = {i: (_size(data, i), _size(own, i)) for i in axes}
    apart = shape[cut:] != base.event_shape or any(1 < d != o > 1 for d, o in sizes.values())
    crossed = any(d < o for d, o in sizes.values()) and any(o < d for d, o in sizes.values())
    idle = any(max(sizes[i]) < size for i, size in plates.items())
    undeclared = any(max(pair) > 1 and i not in plates for i, pair in sizes.items())
    scalar = not shape and not base.event_dim
    if apart or ((crossed or (idle and not scalar)) and undeclared):
        raise _misfit(site["name"], shape, own + base.event_shape, apart)


def _size(shape: tuple[int, ...], axis: int) -> int:
    return shape[axis] if -axis <= len(shape) else 1


def _misfit(name: str, data: tuple, own: tuple, apart: bool) -> UnsupportedModel:
    how = "do not fit together" if apart else "repeat each other: each datum would count many times"
    return UnsupportedModel(
        f"The data of site '{name}', of shape {data}, and its distribution, of shape {own}, {how}.",
        causes=[
            "a column of shape (N, 1) where a vector of shape (N,) is meant: y[:, None], "
            "table[['y']].to_numpy(), X @ w with w of shape (D, 1)",
            "features and outcomes with different numbers of rows",
        ],
        remedy="flatten the column (np.ravel(y), (X @ w)[:, 0]), or give each axis a numpyro.plate.",
    )
