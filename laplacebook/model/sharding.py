"""Data that lie on several devices, as JAX's own sharded arrays."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from laplacebook.base.pytrees import is_traced
from laplacebook.model.single_precision import loses


class Placement(NamedTuple):
    """Over which axes of which mesh the observations are spread.

    Attributes:
        mesh: the devices.
        axes: one name of an axis of the mesh, or a tuple of them.
    """

    mesh: Mesh | AbstractMesh
    axes: Any

    @property
    def number(self) -> int:
        """How many shards there are."""
        axes = (self.axes,) if isinstance(self.axes, str) else self.axes
        return int(np.prod([self.mesh.shape[axis] for axis in axes]))


def shard(array: Any, axis_name: str = "data") -> Array:
    """An array whose rows are spread evenly over all devices, of all processes.

    In the book: :eq:`scaling-shards` of :doc:`/book/scaling`.

    Args:
        array: numbers, shape (n, ...). With several processes (``jax.distributed``) each one passes
            the rows that it holds, as many as the others, and they follow one another in the order of
            the processes.
        axis_name: of the axis of the mesh of devices.

    Returns:
        Shape (N, ...), with N = n times the number of processes.

    Raises:
        ValueError: the rows are fewer than the devices, or do not divide among them or among the
            processes, or are so wide that JAX would round them; or the array is masked.

    >>> shard(np.arange(6.0)).shape
    (6,)
    """
    if np.ma.is_masked(array):
        raise ValueError(
            "The array is masked, and what the mask hides would be data: pass them apart."
        )
    array = array if isinstance(array, jax.Array) else np.asarray(array)
    devices, rows = len(jax.local_devices()), np.shape(array)[0] if np.ndim(array) else 0
    if jax.process_count() > 1:
        shapes = multihost_utils.process_allgather(np.array(np.shape(array), int))
        if (shapes != shapes[0]).any():
            raise ValueError(f"The processes hold arrays of different shapes, {shapes.tolist()}.")
    if rows < devices:
        raise ValueError(
            f"An array of shape {np.shape(array)} has fewer rows than there are devices here, "
            f"{devices}: pass it as it is, without shard."
        )
    if rows % devices:
        raise ValueError(
            f"{rows} rows do not divide among {devices} devices, as JAX's sharded arrays do: shard the first "
            f"{rows - rows % devices}, and fit them together with the rest by laplace_of_chunks."
        )
    if loses(array):
        raise ValueError(f"JAX would narrow the array: {loses(array)}. Call numpyro.enable_x64().")
    mesh = jax.make_mesh((jax.device_count(),), (axis_name,), axis_types=(AxisType.Auto,))
    sharding = NamedSharding(mesh, PartitionSpec(axis_name))
    return jax.make_array_from_process_local_data(sharding, np.asarray(array))


def placed(array: Array) -> Array:
    """The same array on the same devices, its sharding left to the compiler in what is made of it.

    A mesh of explicit axes asks each operation for the sharding of its result, which a NumPyro model
    does not tell.
    """
    spread = None if is_traced(array) else array.sharding
    if not isinstance(spread, NamedSharding) or not isinstance(spread.mesh, Mesh):
        return array
    kinds = (AxisType.Auto,) * len(spread.mesh.axis_names)
    if spread.mesh.axis_types == kinds:
        return array
    mesh = Mesh(spread.mesh.devices, spread.mesh.axis_names, axis_types=kinds)
    return jax.device_put(array, NamedSharding(mesh, spread.spec))


def here(array: Array) -> Any:
    """The rows of an array that lie on the devices of this process."""
    if array.is_fully_addressable:
        return array
    return np.concatenate([np.asarray(part.data) for part in array.addressable_shards])


def placement_of(leaves: Iterable[Any]) -> Placement | None:
    """How the first axis of data is spread: that of the first array that is; None if there is none."""
    for leaf in leaves:
        known = isinstance(leaf, jax.Array) and not is_traced(leaf)
        spread = leaf.sharding if known else None
        if isinstance(spread, NamedSharding) and len(spread.spec) and spread.spec[0] is not None:
            found = Placement(spread.mesh, spread.spec[0])
            if found.number > 1:
                return found
    return None
