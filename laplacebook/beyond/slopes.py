"""The log marginal of the hyperparameters with its gradient, which samplers follow."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.quick import jit_quickly
from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.dense_conditional import Conditional
from laplacebook.beyond.in_lanes import in_lanes, lanes_of, one_by_one
from laplacebook.beyond.sparse_effects import SparseEffects
from laplacebook.curvature.hessian import joint, twice_differentiable
from laplacebook.model.density import ModelDensity

_CHAINS = 8  # that are followed together: to fill up more rows takes as long as to compute these
_PASSABLE = 1e-3  # conditional standard deviations from the mode: there the log marginal has 4 digits or more


class Followed(NamedTuple):
    """The log marginal at K points of the hyperparameters.

    Attributes:
        heights: shape (K,); NaN where the effects have no mode.
        slopes: its gradient, shape (K, H).
        modes: of the effects, shape (K, d).
        turns: how they move with h, shape (K, d, H); None where that is not known.
    """

    heights: np.ndarray
    slopes: np.ndarray
    modes: np.ndarray
    turns: np.ndarray | None


def followed(
    effects: Effects, hyper: Float[np.ndarray, "K H"], start: Float[np.ndarray, "K d"]
) -> Followed:
    """The log marginal and its gradient.

    Of L(z, h) = -log p(D, z, h) with its minimum z(h) and the Hessian A there the gradient is that of
    -L - (1/2) tr(A^-1 A(z, h)) + v' dL/dz in h, with A^-1 and v = A^-1 d/dz (1/2) log |A| held still.

    Args:
        effects: the log joint.
        hyper: h, shape (K, H).
        start: z where the searches begin, shape (K, d).
    """
    if isinstance(effects, SparseEffects):
        return Followed(*effects.followed(hyper, start), None)
    at = effects.given(hyper, start, _PASSABLE)
    assert isinstance(at, Conditional)
    slopes = np.full(hyper.shape, np.nan)
    turns = np.full((*start.shape, hyper.shape[1]), np.nan)
    sound = np.flatnonzero(np.isfinite(at.log_marginal))
    if sound.size:
        slopes[sound], turns[sound] = _slopes_at(effects, at.at(sound))
    return Followed(at.log_marginal, slopes, at.mode, turns)


def _slopes_at(effects: Effects, at: Conditional) -> tuple[np.ndarray, ...]:
    ways = effects.ways
    root = at.roots()
    inverse = root.swapaxes(1, 2) @ root
    weights = inverse if effects.pattern is None else effects.pattern.trace_with(inverse)
    points = weights, root, at.hyper, at.mode
    lanes = min(_CHAINS, lanes_of(4 * ways.size))
    with twice_differentiable("three times"):
        return in_lanes(_slopes, effects.density, effects.over, lanes, *points, ways=ways)


@partial(jit_quickly, half=True, static_argnames="over")
def _slopes(
    density: ModelDensity,
    number: Array | int,
    weights: Float[Array, "K C d"],
    root: Float[Array, "K d d"],
    hyper: Float[Array, "K H"],
    z: Float[Array, "K d"],
    over: tuple[str, ...],
    ways: Float[Array, "C d"],
) -> tuple[Array, ...]:
    """The gradient of the log marginal in h, and that of the mode.

    By products of the Hessian with some ways, and the weights of these in the trace.
    """

    def slope(weights: Array, root: Array, hyper: Array, z: Array) -> tuple[Array, ...]:
        def loss(hyper: Array, z: Array) -> Array:
            return density.loss(joint(density, over, hyper, z))[0]

        def bend(hyper: Array, z: Array) -> Array:
            _, product = jax.linearize(lambda z: jax.grad(loss, 1)(hyper, z), z)
            return jnp.vdot(weights, jax.vmap(product)(ways)) / 2

        bend_by_hyper, bend_by_z = jax.grad(bend, (0, 1))(hyper, z)
        v = root.T @ (root @ bend_by_z)

        def value(hyper: Array) -> Array:
            f, along = jax.jvp(lambda z: loss(hyper, z), (z,), (v,))
            return along - f

        crossed = jax.jacfwd(lambda hyper: jax.grad(loss, 1)(hyper, z))(hyper)
        return jax.grad(value)(hyper) - bend_by_hyper, -root.T @ (root @ crossed)

    return one_by_one(slope, number, weights, root, hyper, z)
