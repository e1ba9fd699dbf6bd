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

from laplacebook.base.namespace import Numbers
from laplacebook.base.pytrees import loud
from laplacebook.base.quick import jit
from laplacebook.curvature.hessian import hessian_product
from laplacebook.curvature.sparse_hessian import Parts, SparseHessian
from laplacebook.gaussian.sparse import SparsePrecision
from laplacebook.model.density import ModelDensity
from laplacebook.model.start import off_centre
from laplacebook.search.follows_gradient import direction_of_look, follows_along
from laplacebook.search.metric import irregular_signs, probe, rounding_floor, units
from laplacebook.search.newton_step import JUMP, is_straight
from laplacebook.search.sparse_metric import SparseMetric, is_definite

_STEPS = 100
_HALVINGS = 30
_ENOUGH = 1e-9  # posterior standard deviations: the Newton decrement of a mode
_PASSABLE = 1e-6  # where rounding keeps it from becoming smaller
_OFTEN = 64  # searches, of which one begins in the middle of the prior as well
_SAME = 0.1  # standard deviations: nearer points are one mode
_CLOSE = 1e-3  # so near the mode the values of f say less than the slope
_DECREASE = 1e-4  # of the predicted decrease

Loss = Callable[[Array], Float[Array, ""]]


@dataclass(eq=False)
class SparseIntegral:
    """The integral over all latent sites of a density whose Hessian is sparse.

    It remembers the last mode, where the next search begins: of effects with one mode that is the one which is
    found, whatever came before, up to rounding. Of each 64 searches one begins in the middle of the prior as
    well, and where that ends at another mode, all searches begin there from then on, as those of a dense integral.

    Attributes:
        pattern: of the Hessian.
        start: a point of the shape of the effects, (d,).
        number: of the pattern, among those that data of the same shapes had.
        two_modes: whether a search from the last mode and one from the middle of the prior have ended apart.
    """

    pattern: SparseHessian
    start: np.ndarray
    number: int
    two_modes: bool = False
    _searches: int = 0
    _mode: np.ndarray | None = None
    _precision: SparsePrecision | None = None

    def __call__(self, density: ModelDensity) -> Float[Array, ""]:
        """The log of the integral; NaN where there is no mode. Of a density with this pattern."""
        return _integral(self, density)

    def forget(self) -> None:
        """Let the next search begin in the middle of the prior, whatever came before."""
        self._mode, self._searches, self.two_modes = None, 1, False

    def look_twice(self) -> None:
        """Let the next search begin in the middle of the prior as well."""
        self._searches = 0

    def beginning(self, middle: Numbers) -> tuple[Numbers, np.ndarray]:
        """Where to begin, and whether in the middle of the prior as well, which is given."""
        if self._mode is None or self.two_modes:
            return middle, np.zeros((), bool)
        twice = self._searches % _OFTEN == 0
        self._searches += 1
        return self._mode, np.asarray(twice)

    @np.errstate(all="ignore")
    def are_two(self, parts: Parts, here: Numbers, there: Numbers, sound: Numbers) -> np.ndarray:
        """Whether two modes are not one: on the host, which remembers it.

        Args:
            parts: the Hessian at the second.
            here: the first, shape (d,).
            there: the second.
            sound: whether both are modes.
        """
        here, there, parts = jax.tree.map(np.asarray, (here, there, parts))
        step = here - there
        apart = sound and step @ self.factorised(parts).matvec(step) > _SAME**2
        self.two_modes |= bool(apart)
        return np.asarray(apart, bool)

    def begin_at(self, z: Float[np.ndarray, " d"]) -> None:
        """Let the next search begin there, and no other beside it."""
        self._mode, self._searches, self.two_modes = z, 1, False

    def found(self) -> tuple[np.ndarray, SparsePrecision]:
        """The mode that was found last, shape (d,), and the precision there."""
        assert self._mode is not None and self._precision is not None
        return self._mode, self._precision

    @np.errstate(all="ignore")
    def newton_step(
        self, z: Numbers, gradient: Numbers, parts: Parts, moved: Numbers
    ) -> tuple[Numbers, Numbers, Numbers]:
        """The step from z, the Newton decrement and log |A|: on the host.

        Args:
            z: shape (d,).
            gradient: there.
            parts: the Hessian there.
            moved: its product with a vector of :func:`irregular_signs`, which has to be that of its parts.
        """
        z, gradient, moved, parts = jax.tree.map(np.asarray, (z, gradient, moved, parts))
        nothing = np.full_like(z, np.nan), np.array(np.nan), np.array(np.nan)
        if not np.isfinite(gradient).all():
            return nothing
        precision = self.factorised(parts)
        if self.pattern.differs(precision, irregular_signs(2, z.size), moved):
            return nothing
        if not is_definite(precision):
            step = self._metric(precision).step(gradient, 0.0)
            return step, np.array(np.inf), np.array(np.nan)
        step = -precision.solve(gradient)
        decrement = np.sqrt(-step @ gradient)
        if decrement < _CLOSE:
            self._mode = z
        return step, decrement, np.asarray(precision.log_determinant())

    @np.errstate(all="ignore")
    def ways(self, parts: Parts) -> tuple[np.ndarray, np.ndarray]:
        """A short step in all directions and a long one in some, at which a mode is looked at: on the host."""
        precision = self.factorised(jax.tree.map(np.asarray, parts))
        room = np.full_like(self.start, np.inf)
        return precision.whitened(probe(self.start)), direction_of_look(self.start, precision, room)

    @np.errstate(all="ignore")
    def bends(self, parts: Parts, ahead: Numbers, behind: Numbers) -> np.ndarray:
        """Whether f bends by its Hessian, which is positive definite beyond rounding: on the host.

        Args:
            parts: the Hessian at the mode.
            ahead: the gradient after the short step.
            behind: after the step to the other side.
        """
        ahead, behind, parts = jax.tree.map(np.asarray, (ahead, behind, parts))
        precision = self.factorised(parts)
        if not is_definite(precision):
            return np.zeros((), bool)
        regular = self._metric(precision).regular
        one, other = precision.half_solve(ahead), precision.half_solve(behind)
        return np.asarray(
            regular & is_straight(one, other, float(np.sqrt(np.finfo(ahead.dtype).eps)))
        )

    @np.errstate(all="ignore")
    def inverse(self, parts: Parts) -> tuple[np.ndarray, np.ndarray]:
        """The entries of A^-1 where A has some, and A^-1 W: on the host."""
        precision = self.factorised(jax.tree.map(np.asarray, parts))
        return precision.inverse_at_entries(), precision.solve(precision.left)

    @np.errstate(all="ignore")
    def solve(self, parts: Parts, v: Numbers) -> Float[np.ndarray, " d"]:
        """A^-1 v, on the host."""
        return self.factorised(jax.tree.map(np.asarray, parts)).solve(np.asarray(v))

    def _metric(self, precision: SparsePrecision) -> SparseMetric:
        floor = float(rounding_floor(self.start.size, self.start.dtype))
        return SparseMetric.of(units(precision), precision, floor)

    def factorised(self, parts: Parts) -> SparsePrecision:
        """The precision, with the factor of the call before, if that was the same matrix: on the host."""
        last = self._precision
        same = last is not None and all(
            np.array_equal(*pair)
            for pair in zip((last.entries, last.left, last.middle), parts, strict=True)
        )
        if last is None or not same:
            last = self._precision = self.pattern.precision(Parts(*map(np.array, parts)))
        return last


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
        lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(partial(_look, whole, density), first)
    )
    unknown = unknown._replace(f=unknown.f + jnp.inf, decrement=unknown.decrement + jnp.inf)

    def unfinished(state: _Found) -> Array:
        return ~state.ended & (state.iterations <= _STEPS)

    def iterate(state: _Found) -> _Found:
        z = _shorter(loss, state)
        new = _look(whole, density, z)
        # Where rounding keeps it from falling further.
        settled = (new.decrement >= state.decrement / 2) & (state.decrement <= _PASSABLE)
        better = jax.tree.map(lambda a, b: jnp.where(settled, a, b), state, new)
        ended = settled | (new.decrement <= _ENOUGH) | ~jnp.isfinite(new.f)
        ended |= jnp.isnan(new.decrement)
        return better._replace(iterations=state.iterations + 1, ended=ended)

    def another(searches: _Searches) -> _Searches:
        start = jnp.where(searches.number == 0, begin, first)
        new = lax.while_loop(unfinished, iterate, unknown._replace(z=start))
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


def _look(whole: SparseIntegral, density: ModelDensity, z: Array) -> _Found:
    value, gradient = jax.value_and_grad(loss_of(density))(z)
    parts = whole.pattern.parts_at(density, z)
    moved = hessian_product(density, z, jnp.asarray(irregular_signs(2, z.size), z.dtype))
    shapes = _like(z), _like(value), _like(value)
    step, decrement, log_determinant = jax.pure_callback(
        whole.newton_step, shapes, z, gradient, parts, moved, vmap_method="sequential"
    )
    zero, no = jnp.zeros((), int), jnp.zeros((), bool)
    return _Found(z, parts, step, value, decrement, log_determinant, zero, no)


def _shorter(loss: Loss, state: _Found) -> Array:
    """Where the step leads, or half of it, or ..., until f falls as it should."""
    close = state.decrement < _CLOSE
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
