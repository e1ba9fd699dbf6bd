"""The maximum of a log evidence over the logarithms of hyperparameters, with a certificate."""

from abc import ABC, abstractmethod
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float
from tqdm import tqdm

from laplacebook.batches import PATIENCE
from laplacebook.precision import Leaf

__all__ = ["FAR", "Objective", "Peak", "ascend"]

FAR = 20  # of a logarithm from its start: a factor of 5e8
AWAY = 0.01  # of the logarithms: a Newton step that is longer does not count as small
_CHUNK = 5  # steps: between them the progress bar moves


class Objective(ABC):
    """The log evidence as a differentiable function of logarithms; a pytree."""

    @abstractmethod
    def __call__(self, x: Float[Array, " H"], u: Float[Array, " D"]) -> Float[Array, ""]:
        """The log evidence at x, where a search for the mode, if there is one, begins at u."""

    def follow(self, x: Float[Array, " H"], u: Float[Array, " D"]) -> Float[Array, " D"]:
        """The mode at x, from the last one; here it stays."""
        return u


class _Ascent(NamedTuple):
    """Where L-BFGS stands.

    Attributes:
        x: the logarithms, shape (H,).
        u: the mode, shape (D,).
        value: the log evidence.
        gradient: of it with respect to x, shape (H,).
        history: the log evidence at the start and after each step, shape (steps + 1,), NaN beyond.
        steps: how many were taken.
        moved: whether the last one led anywhere.
        memory: of L-BFGS.
    """

    x: Leaf
    u: Leaf
    value: Leaf
    gradient: Leaf
    history: Leaf
    steps: Leaf
    moved: Leaf
    memory: Any


class Peak(NamedTuple):
    """Where an ascent ended.

    Attributes:
        x: the logarithms, shape (H,).
        value: the log evidence.
        gradient: of it with respect to x, shape (H,).
        hessian: by central differences of the gradient, shape (H, H).
        history: the log evidence at the start and after each step.
        level: whether no derivative exceeds 1e-6 (0.01 in single precision).
        distance: the largest element of the Newton step that is left.
        converged: level, the Hessian negative definite, and the distance below 0.01.
    """

    x: Array
    value: Array
    gradient: Array
    hessian: Array
    history: Array
    level: bool
    distance: Array
    converged: bool


def ascend(
    objective: Objective,
    start: Float[Array, " H"],
    u: Float[Array, " D"],
    steps: int,
    progress_bar: bool | None,
) -> Peak:
    """Climb by L-BFGS (Liu and Nocedal 1989) with the line search of optax.

    Args:
        objective: the log evidence.
        start: x, shape (H,).
        u: the mode there, shape (D,).
        steps: how many at most.
        progress_bar: whether to show one; by default if the standard error stream is a terminal.

    Returns:
        Where it ended. Nothing is raised.
    """
    state = _begin(objective, start, u, steps)
    hidden = None if progress_bar is None else not progress_bar
    with tqdm(total=steps, delay=PATIENCE, disable=hidden, leave=False) as bar:
        for last in range(_CHUNK, steps + _CHUNK, _CHUNK):
            state = _advance(objective, state, start, min(last, steps))
            bar.update(int(state.steps) - bar.n)
            if not _unfinished(state, start, steps):
                break
    hessian = _hessian(objective, state.x, state.u)
    distance = jnp.max(jnp.abs(jnp.linalg.solve(hessian, state.gradient)))
    level = bool(_level(state.gradient))
    concave = bool(jnp.max(jnp.linalg.eigvalsh(hessian)) < 0)
    return Peak(
        state.x,
        state.value,
        state.gradient,
        hessian,
        state.history[: int(state.steps) + 1],
        level,
        distance,
        level and concave and bool(distance < AWAY),
    )


def _solver() -> Any:
    import optax  # here, because few fits need it and every import would pay for it

    return optax.lbfgs()


@partial(jax.jit, static_argnums=3)
def _begin(objective: Objective, start: Array, u: Array, steps: int) -> _Ascent:
    value, gradient = jax.value_and_grad(objective)(start, u)
    history = jnp.full(steps + 1, jnp.nan, value.dtype).at[0].set(value)
    zero, memory = jnp.zeros((), int), _solver().init(start)
    return _Ascent(start, u, value, gradient, history, zero, jnp.ones((), bool), memory)


def _unfinished(state: _Ascent, start: Array, last: Array | int) -> Array:
    finite = jnp.isfinite(state.value) & jnp.all(jnp.isfinite(state.gradient))
    near = jnp.max(jnp.abs(state.x - start)) < FAR
    return finite & near & ~_level(state.gradient) & state.moved & (state.steps < last)


@jax.jit
def _advance(objective: Objective, state: _Ascent, start: Array, last: Array) -> _Ascent:
    """Steps until ``last`` of them are taken, or no more are needed."""
    import optax

    def step(state: _Ascent) -> _Ascent:
        def loss(x: Array) -> Array:
            return -objective(x, state.u)

        update, memory = _solver().update(
            -state.gradient,
            state.memory,
            state.x,
            value=-state.value,
            grad=-state.gradient,
            value_fn=loss,
        )
        x = state.x + update
        value = -optax.tree_utils.tree_get(memory, "value")
        steps = state.steps + 1
        return _Ascent(
            x=x,
            u=objective.follow(x, state.u),
            value=value,
            gradient=-optax.tree_utils.tree_get(memory, "grad"),
            history=state.history.at[steps].set(value),
            steps=steps,
            moved=jnp.any(update != 0),
            memory=memory,
        )

    return lax.while_loop(lambda state: _unfinished(state, start, last), step, state)


def _level(gradient: Array) -> Array:
    return jnp.max(jnp.abs(gradient)) <= (1e-6 if gradient.dtype == jnp.float64 else 0.01)


@jax.jit
def _hessian(objective: Objective, x: Array, u: Array) -> Array:
    step = jnp.asarray(jnp.finfo(x.dtype).eps ** 0.2, x.dtype)
    gradient = jax.grad(objective)

    def column(direction: Array) -> Array:
        ahead, behind = gradient(x + step * direction, u), gradient(x - step * direction, u)
        return (ahead - behind) / (2 * step)

    hessian = lax.map(column, jnp.eye(x.size, dtype=x.dtype))
    return (hessian + hessian.T) / 2
