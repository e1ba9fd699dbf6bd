"""What a compiled program says of many points: so many at a time."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.quick import MEDIUM, jit_quickly, numbers_in
from laplacebook.curvature.hessian import joint
from laplacebook.model.density import ModelDensity

LANES = 64  # points in one call of the program, at most
WORK = 2**22  # numbers in one call: about 30 MiB
_CALLS = 4  # of a program, as many as a first answer takes that is not to wait for what later ones would gain


def lanes_of(numbers: int) -> int:
    """How many points one call of a program takes that computes so many numbers at each: a power of two."""
    return int(np.clip(2 ** np.floor(np.log2(WORK / max(1, numbers) + 1e-9)), 1, LANES))


def in_lanes(
    program: Any,
    density: ModelDensity,
    over: tuple[str, ...],
    lanes: int,
    *points: np.ndarray,
    times: int = 1,
    **fixed: Any,
) -> tuple[np.ndarray, ...]:
    """What a program says of each point: so many at a time, the last ones filled up and not computed.

    Args:
        program: that :func:`~laplacebook.base.quick.jit_quickly` returns, of a density, the number of points, arrays
            with a row for each, and keyword arguments.
        density: the log joint.
        over: the names of the hyperparameters.
        lanes: how many points it takes.
        points: the arrays; whole numbers stay what they are.
        times: how often it looks at each, about.
        fixed: what is the same for all.
    """
    dtype, total = jnp.result_type(float), len(points[0])
    points = tuple(
        one if one.dtype.kind == "i" else one.astype(dtype, copy=False) for one in points
    )
    in_a_call = numbers_in(density) + sum(lanes * one[0].size for one in points)
    # All of the optimisation takes a second more to compile, and saves less even with hundreds of effects.
    work = min(_CALLS * times * in_a_call * points[-1].shape[1], MEDIUM)
    compiled, found = program.for_work(work), []
    for begin in range(0, total, lanes):
        number = min(lanes, total - begin)
        index: Any = slice(begin, begin + lanes)
        if number < lanes:
            index = begin + np.minimum(np.arange(lanes), number - 1)
        rows = [one[index] for one in points]
        seen = compiled(density, number, *rows, over=over, **fixed)
        found.append([np.asarray(part)[:number].astype(float) for part in seen])
    return tuple(np.concatenate(parts) for parts in zip(*found, strict=True))


@partial(jit_quickly, static_argnames="over")
def hyper_values(
    density: ModelDensity, over: tuple[str, ...], hyper: Float[Array, "P H"], z: Float[Array, " d"]
) -> dict[str, Array]:
    """The hyperparameters at each of P points, on the scale of the model.

    Args:
        density: the log joint.
        over: their names.
        hyper: h, shape (P, H).
        z: of the effects, any, shape (d,).
    """

    def at(hyper: Array) -> dict[str, Array]:
        trace = density.run(joint(density, over, hyper, z))
        return {name: trace[name]["value"] for name in over}

    return jax.vmap(at)(hyper)


@partial(jax.jit, static_argnames="over", inline=True)
def loss_of(
    density: ModelDensity, over: tuple[str, ...], hyper: Float[Array, " H"], z: Float[Array, " d"]
) -> tuple[Array, Array]:
    """The negative log joint, and whether the model is valid there: traced once for all programs that look at it.

    Args:
        density: the log joint.
        over: the names of the hyperparameters.
        hyper: h, shape (H,).
        z: shape (d,).
    """
    value, (_, valid) = density.loss_and_validity(joint(density, over, hyper, z))
    return value, valid


def one_by_one(
    function: Callable[..., tuple[Array, ...]], number: Array | int, *points: Array
) -> tuple[Array, ...]:
    """The function at the first of the points, in a loop: batches of solvers are slow on a processor."""
    function = jax.jit(function, inline=True)  # traced once, for its shapes and in the loop
    shapes = jax.eval_shape(function, *(rows[0] for rows in points))
    empty = tuple(jnp.zeros((len(points[0]), *one.shape), one.dtype) for one in shapes)

    def step(k: Array | int, seen: tuple[Array, ...]) -> tuple[Array, ...]:
        here = function(*(rows[k] for rows in points))
        return tuple(part.at[k].set(value) for part, value in zip(seen, here, strict=True))

    return jax.lax.fori_loop(0, number, step, empty)
