"""Newton's steps on the effects in one program, in which what depends on the hyperparameters alone is computed once."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from laplacebook.base.jaxprs import ahead
from laplacebook.base.namespace import cholesky, larger, select, solve_lower
from laplacebook.base.quick import jit_quickly
from laplacebook.beyond.columns import products_of
from laplacebook.beyond.in_lanes import one_by_one
from laplacebook.beyond.lane import SLACK
from laplacebook.model.density import ModelDensity

STEPS = 12


class _Stand(NamedTuple):
    """Where a walk is, what is seen there, and the way on.

    Attributes:
        z: the effects.
        seen: the negative log joint, its gradient and products of its Hessian with some ways.
        move: Newton's step.
        decrement: the distance that it tells, in posterior standard deviations; zero where the walk ends.
        steps: so far.
    """

    z: Array
    seen: tuple[Array, Array, Array]
    move: Array
    decrement: Array
    steps: Array | int


@partial(jit_quickly, half=True, static_argnames="over")
def walks(
    density: ModelDensity,
    number: Array | int,
    hyper: Float[Array, "K H"],
    start: Float[Array, "K d"],
    over: tuple[str, ...],
    ways: Float[Array, "C d"],
    source: Int[Array, " dd"],
    tolerance: Array | float,
) -> tuple[Array, ...]:
    """Where Newton's whole steps lead at each of the points, and what is seen there.

    Each walk ends where a step is as short as the tolerance, and before one that does not go down or that the Hessian
    does not tell. Whether that is a mode, and how to go on where it is none, a ``Lane`` says.

    Args:
        density: the log joint.
        number: how many of the points are looked at.
        hyper: h, shape (K, H).
        start: z where they begin, shape (K, d).
        over: the names of the hyperparameters.
        ways: vectors by whose products the Hessian is known, shape (C, d).
        source: where each of its entries stands among the products, shape (d * d,); behind all where it is zero.
        tolerance: posterior standard deviations.
    """

    def walk(hyper: Array, start: Array) -> tuple[Array, ...]:
        look = ahead(lambda z: products_of(density, over, ways, hyper, z), start)

        def stand(z: Array, steps: Array | int) -> _Stand:
            f, gradient, products = seen = look(z)
            hessian = jnp.append(products.ravel(), 0)[source].reshape(z.size, z.size)
            root = cholesky(hessian)
            half = solve_lower(root, gradient, "N")
            move = -solve_lower(root, half, "T")
            return _Stand(z, seen, move, jnp.linalg.norm(half), steps)

        def goes(at: _Stand) -> Array:
            return (at.decrement > tolerance) & (at.steps < STEPS)

        def step(at: _Stand) -> _Stand:
            there = stand(at.z + at.move, at.steps + 1)
            low, new = at.seen[0], there.seen[0]
            falls = new <= low + SLACK * larger(1, SLACK * abs(new))
            return select(falls, there, at._replace(decrement=jnp.zeros_like(low)))

        end = jax.lax.while_loop(goes, step, stand(start, jnp.zeros((), int)))
        return end.z, *end.seen

    return one_by_one(walk, number, hyper, start)
