"""Where numbers are computed: a small fit on the host, also where JAX has an accelerator.

A program of few numbers is compiled for a GPU in three to four times as long as for a processor, and runs there
no sooner.
"""

from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any

import jax

FEW = 2**20  # numbers, as of ten thousand rows with a hundred features
WORK = 2**26  # rows times numbers beside them, as of 1,000 images and a network of 67,000 weights


def device() -> jax.Device:
    """Where that is computed which lies on no device by request."""
    chosen = _chosen()
    if chosen is None or isinstance(chosen, str):
        return jax.local_devices(backend=chosen)[0]
    return chosen


def platform() -> str:
    """The kind of that device: ``"cpu"``, ``"gpu"``, ``"tpu"``."""
    chosen = _chosen()
    if chosen is None:
        return jax.default_backend()
    return chosen if isinstance(chosen, str) else chosen.platform


def near(arguments: Any) -> AbstractContextManager:
    """Where what is computed of few numbers is computed on the host.

    Unless those beside the rows are as many as the weights of a large network, some of them were put on a device by
    request (``jax.device_put(x, device)``, a sharding), or a device was chosen for all (``jax_default_device``), or
    there is no processor among JAX's backends.

    Args:
        arguments: a pytree, of arrays and anything else.
    """
    if _chosen() is not None or jax.default_backend() == "cpu":
        return nullcontext()
    leaves = jax.tree.leaves(arguments)
    stay = any(isinstance(leaf, jax.Array) and leaf.committed for leaf in leaves)
    known = (getattr(leaf, "shape", ()) for leaf in leaves)
    shapes = [tuple(shape) for shape in known if isinstance(shape, tuple)]
    rows = max(shapes, key=prod, default=())[:1]
    beside = sum(prod(shape) for shape in shapes if shape[:1] != rows)
    if stay or sum(map(prod, shapes)) > FEW or prod(rows) * beside > WORK:
        return nullcontext()
    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:
        return nullcontext()


def _chosen() -> jax.Device | str | None:
    return jax.config.jax_default_device  # type: ignore[attr-defined]
