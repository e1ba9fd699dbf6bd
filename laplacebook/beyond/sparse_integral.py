"""The log of the integral of many effects by Laplace's method, with its exact gradient, within JAX's programs.

Of L(z, h) = -log p(D, z, h) with its minimum z(h) and the sparse Hessian A there,

``log p(D, h) = -L - (1/2) log |A| + (d/2) log 2 pi``,

and its slope is that of -L - (1/2) tr(A^-1 A(z, h)) + v' dL/dz, with A^-1 and v = A^-1 d/dz (1/2) log |A| held
still: of A^-1 only the entries where A has some are needed. The log joint and its derivatives are part of the
program, and what factorises is called on the host.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import log, pi
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from laplacebook.base.irregular import irregular_signs
from laplacebook.base.pytrees import loud
from laplacebook.base.quick import jit
from laplacebook.beyond.sparse_host import CLOSE, ENOUGH, SparseHost
from laplacebook.curvature.hessian import hessian_product
from laplacebook.curvature.sparse_hessian import Parts
from laplacebook.model.density import ModelDensity
from laplacebook.model.start import off_centre
from laplacebook.search.follows_gradient import follows_along
from laplacebook.search.newton_step import JUMP

_STEPS = 100
_HALVINGS = 30
_PASSABLE = 1e-6  # where rounding keeps it from becoming smaller
_DECREASE = 1e-4  # of the predicted decrease

Loss = Callable[[Array], Float[Array, ""]]


@dataclass(eq=False)
class SparseIntegral(SparseHost):
    """The integral over all latent sites of a density whose Hessian is sparse."""

    def __call__(self, density: ModelDensity) -> Float[Array, ""]:
        """The log of the integral; NaN where there is no mode. Of a density with this pattern."""
        return _integral(self, density)


class _Found(NamedTuple):
    """Where the search for the mode stands."""

    z: Array
    parts: Parts
    step: Array
    f: Array
    decrement: Array
    log_determinant: Array
    iterations: Array
    ended: Array


class _Searches(NamedTuple):
    """What the searches so far have found, how many they are, and whether there is another one."""

    found: _Found
    number: Array
    again: Array


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _integral(whole: SparseIntegral, density: ModelDensity) -> Array:
    return _forward(whole, density)[0]


@partial(jit, static_argnums=0)  # traced once, for the value and for the slope
def _forward(whole: SparseIntegral, density: ModelDensity) -> tuple[Array, tuple]:
    found = _newton(whole, density)
    sound = (found.decrement <= _PASSABLE) & density.valid(found.z)
    sound &= _looks_like_a_mode(whole, density, found)
    factor = loud(sound, found.z.dtype)
    half = (whole.start.size * log(2 * pi) - found.log_determinant) / 2
    return (half - found.f) * factor, (density, found.z, found.parts, factor)


def _backward(whole: SparseIntegral, kept: tuple, cotangent: Array) -> tuple:
    density, z, parts, factor = kept
    shapes = jax.ShapeDtypeStruct(parts.entries.shape, z.dtype), _like(parts.left)
    inverse, solved = jax.pure_callback(whole.inverse, shapes, parts, vmap_method="sequential")

    def bent(z: Array, density: ModelDensity) -> Array:
        return bend(whole, density, z, inverse, solved, parts)

    slope = jax.grad(bent)(z, density)
    v = jax.pure_callback(whole.solve, _like(z), parts, slope, vmap_method="sequential")

    def value(density: ModelDensity) -> Array:
        loss = loss_of(density)
        return jax.jvp(loss, (z,), (v,))[1] - loss(z) - bent(z, density)

    (slopes,) = jax.vjp(value, density)[1](cotangent * factor)
    return (slopes,)


_integral.defvjp(_forward, _backward)


def bend(
    whole: SparseIntegral,
    density: ModelDensity,
    z: Array,
    inverse: Array,
    solved: Array,
    parts: Parts,
) -> Array:
    """What has the slope of (1/2) log |A|: (1/2) tr(A^-1 dA).

    Args:
        whole: the integral.
        density: of this pattern.
        z: the mode, shape (d,).
        inverse: the entries of A^-1 where A has some, and
        solved: A^-1 W, both held still; A = S + W K W'.
        parts: the Hessian at the mode, held still.
    """
    layout, here = whole.pattern.layout, whole.pattern.parts_at(density, z)
    sparse = (inverse * np.where(layout.rows == layout.cols, 1, 2)) @ here.entries
    left = 2 * jnp.sum((solved @ parts.middle) * here.left)
    return (sparse + left + jnp.sum((parts.left.T @ solved) * here.middle)) / 2


def _newton(whole: SparseIntegral, density: ModelDensity) -> _Found:
    """One or two searches, as one loop, since XLA compiles what stands in two places twice."""
    loss = loss_of(density)
    first = lax.stop_gradient(density.start())
    first = off_centre(first, density.room(first))
    likes = _like(first), jax.ShapeDtypeStruct((), bool)
    last, twice = jax.pure_callback(whole.beginning, likes, first, vmap_method="sequential")
    begin = jnp.where(jnp.isfinite(loss(last)), last, first)
    unknown = jax.tree.map(
        lambda x: jnp.zeros(x.shape, x.dtype),
        jax.eval_shape(partial(_look, whole, density), first, False),
    )
    unknown = unknown._replace(f=unknown.f + jnp.inf, decrement=unknown.decrement + jnp.inf)

    def unfinished(state: _Found) -> Array:
        return ~state.ended & (state.iterations <= _STEPS)

    def iterate(state: _Found) -> _Found:
        z, chord = _shorter(loss, state), state.iterations == 0
        new = _look(whole, density, z, chord)
        # Where rounding keeps it from falling further.
        settled = (new.decrement >= state.decrement / 2) & (state.decrement <= _PASSABLE)
        settled &= state.iterations > 1
        better = jax.tree.map(lambda a, b: jnp.where(settled, a, b), state, new)
        ended = settled | (new.decrement <= ENOUGH) & ~chord | ~jnp.isfinite(new.f)
        ended |= jnp.isnan(new.decrement)
        return better._replace(iterations=state.iterations + 1, ended=ended)

    def another(searches: _Searches) -> _Searches:
        start = jnp.where(searches.number == 0, begin, first)
        new = unknown._replace(z=start, iterations=searches.number)  # of the first, 0 is the chord
        new = lax.while_loop(unfinished, iterate, new)
        found = searches.found
        # The last mode may be that of other data, from which no way leads here.
        lost = ~(found.decrement <= _PASSABLE)
        given = new.parts, found.z, new.z, ~lost & (new.decrement <= _PASSABLE)
        taken = lost | lax.cond(
            searches.number == 0,
            lambda *_: jnp.zeros((), bool),
            lambda *given: jax.pure_callback(
                whole.are_two, likes[1], *given, vmap_method="sequential"
            ),
            *given,
        )
        found = jax.tree.map(lambda a, b: jnp.where(taken, a, b), new, found)
        return _Searches(
            found,
            searches.number + 1,
            (searches.number == 0) & (twice | ~(found.decrement <= _PASSABLE)),
        )

    nothing = _Searches(unknown, jnp.zeros((), int), jnp.ones((), bool))
    return lax.while_loop(lambda searches: searches.again, another, nothing).found


def _looks_like_a_mode(whole: SparseIntegral, density: ModelDensity, found: _Found) -> Array:
    """The looks of a certificate: beside the mode f is a parabola, and further off it follows its gradient."""
    loss = loss_of(density)
    like = _like(found.z)
    short, long = jax.pure_callback(whole.ways, (like, like), found.parts, vmap_method="sequential")
    (f_ahead, f_behind), (ahead, behind) = jax.lax.map(
        jax.value_and_grad(loss), found.z + jnp.stack([short, -short])
    )
    straight = jax.pure_callback(
        whole.bends,
        _like(density.valid(found.z)),
        found.parts,
        ahead,
        behind,
        vmap_method="sequential",
    )
    jump = abs((f_ahead + f_behind) / 2 - found.f)
    noise = 10 * jnp.finfo(found.f.dtype).eps * jnp.maximum(abs(found.f), 1)
    return straight & (jump <= JUMP + noise) & follows_along(loss, found.z, long)


def _look(whole: SparseIntegral, density: ModelDensity, z: Array, chord: Array | bool) -> _Found:
    value, gradient = jax.value_and_grad(loss_of(density))(z)

    def curvature(z: Array) -> tuple[Parts, Array]:
        signs = jnp.asarray(irregular_signs(2, z.size), z.dtype)
        return whole.pattern.parts_at(density, z), hessian_product(density, z, signs)

    shapes = jax.eval_shape(curvature, z)
    none = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    parts, moved = lax.cond(chord, lambda _: none, curvature, z)
    shapes = _like(z), _like(value), _like(value)
    step, decrement, log_determinant = jax.pure_callback(
        whole.newton_step, shapes, z, gradient, parts, moved, chord, vmap_method="sequential"
    )
    zero, no = jnp.zeros((), int), jnp.zeros((), bool)
    return _Found(z, parts, step, value, decrement, log_determinant, zero, no)


def _shorter(loss: Loss, state: _Found) -> Array:
    """Where the step leads, or half of it, or ..., until f falls as it should."""
    close = state.decrement < CLOSE
    least = _DECREASE * jnp.minimum(state.decrement, 1) ** 2

    def too_long(length: Array) -> Array:
        falls = state.f - loss(state.z + length * state.step) >= least * length
        return ~(falls | close) & (length > 0.5**_HALVINGS)

    length = lax.while_loop(too_long, lambda length: length / 2, jnp.ones((), state.z.dtype))
    return state.z + length * state.step


def loss_of(density: ModelDensity) -> Loss:
    """The negative log joint, as a function of all coordinates."""
    return lambda z: density.loss(z)[0]


def _like(x: Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)
