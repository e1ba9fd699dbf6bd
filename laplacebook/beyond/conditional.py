"""The effects given the hyperparameters: their Laplace approximations at many points at once."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.namespace import Numbers
from laplacebook.base.pytrees import own_copy
from laplacebook.base.quick import jit_quickly, numbers_in
from laplacebook.beyond.columns import Columns, Pattern, aside, pattern_of, symmetric
from laplacebook.beyond.dense_conditional import AnyConditional, Conditional, in_order
from laplacebook.beyond.in_lanes import LANES, WORK, in_lanes, lanes_of, loss_of, one_by_one
from laplacebook.beyond.lane import Lane
from laplacebook.beyond.leaves import Layout, Leaves
from laplacebook.beyond.walk import STEPS, walks
from laplacebook.curvature.hessian import (
    COLUMNS,
    factorises,
    joint,
    twice_differentiable,
    value_gradient_hessian,
)
from laplacebook.model.density import ModelDensity
from laplacebook.search.follows_gradient import (
    LOOK_NODES,
    NODES,
    direction_of_look,
    fails,
    follows_finely,
)

_STEPS = 60  # of Newton's method, halvings included
_DECREMENT, _DECREMENT_OF_FEW = 1e-5, 1e-6  # posterior standard deviations
# Standard deviations, at which a normal log density is 10 below its highest.
OUT = np.array([-4.5, 4.5])
FALL = 0.5  # nats: one that has fallen by less there levels off
_TOGETHER = 32  # points of the effects for which what depends on h alone is computed once
_FEW = 100  # effects, of which a Cholesky factor at each step takes little time
_HELD = 2**20  # of the points on lines, at once: what a processor keeps at hand
_TOGETHER_HELD = 2**21  # numbers of Hessians that are alive at once, where none is kept


@dataclass(frozen=True)
class Effects:
    """A log joint seen as one of the effects, for given hyperparameters.

    Attributes:
        density: the log joint of all latent sites.
        over: the names of the hyperparameters.
        often: whether it is looked at at tens of thousands of points.
    """

    density: ModelDensity
    over: tuple[str, ...]
    often: bool = False

    @property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """The coordinates of the hyperparameters, and those of the effects, among all."""
        marks = [np.full(s.size, s.name in self.over) for s in self.density.sites]
        is_hyper = np.concatenate(marks)
        return np.flatnonzero(is_hyper), np.flatnonzero(~is_hyper)

    @property
    def names(self) -> tuple[str, ...]:
        """Those of the effects."""
        return tuple(site.name for site in self.density.sites if site.name not in self.over)

    @property
    def dimensions(self) -> tuple[int, int]:
        """How many coordinates the hyperparameters have, and how many the effects."""
        hyper, effects = self.places
        return hyper.size, effects.size

    @property
    def held(self) -> int:
        """How many numbers are kept of the effects at a point, about."""
        return self.dimensions[1] ** 2

    def joined(
        self, hyper: Float[Numbers, "*K H"], effects: Float[Numbers, "*K d"]
    ) -> Float[Numbers, "*K D"]:
        """Both as one vector of all coordinates, in the order of the density."""
        order = np.argsort(np.concatenate(self.places))
        return np.concatenate([hyper, effects], axis=-1)[..., order]

    def given(
        self,
        hyper: Float[np.ndarray, "K H"],
        start: Float[np.ndarray, "K d"],
        passable: float = 0.0,
    ) -> AnyConditional:
        """Newton's method at every point, all together, from where each begins.

        Args:
            hyper: h, shape (K, H).
            start: z where the search begins, shape (K, d).
            passable: conditional standard deviations from the mode at which it may end, if that is farther than else.
        """
        lanes, layout = self._lanes(hyper, start, passable), self._layout
        is_whole = np.array([lane.is_whole for lane in lanes], bool)
        if layout is None or not is_whole.any():
            return _conditional(hyper, lanes, start, layout)
        # Where a Hessian has entries that the layout has not.
        parts = [np.flatnonzero(~is_whole), np.flatnonzero(is_whole)]
        found = [
            _conditional(hyper[which], [lanes[k] for k in which], start[which], one)
            for which, one in zip(parts, (layout, None), strict=True)
        ]
        return in_order(found, parts)

    def heights(
        self, hyper: Float[np.ndarray, "K H"], start: Float[np.ndarray, "K d"]
    ) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, "K d"]]:
        """The log marginal at every point and the modes, as :meth:`given` finds them; no matrix is inverted.

        Args:
            hyper: h, shape (K, H).
            start: z where the search begins, shape (K, d).
        """
        together = max(LANES, _TOGETHER_HELD // self.held)
        parts = [slice(k, k + together) for k in range(0, max(1, len(hyper)), together)]
        found = [_ends(self._lanes(hyper[part], start[part]), start[part]) for part in parts]
        heights, modes = map(np.concatenate, zip(*found, strict=True))
        return heights, modes

    def _lanes(self, hyper: np.ndarray, start: np.ndarray, passable: float = 0.0) -> list[Lane]:
        few = self._bends_at_once
        rounding = float(jnp.finfo(jnp.result_type(float)).eps) ** 0.5
        tolerance = max(_DECREMENT_OF_FEW if few else _DECREMENT, 3 * rounding, passable)
        lanes = [Lane(z.copy(), tolerance, self._layout) for z in start]
        with np.errstate(all="ignore"), twice_differentiable():
            if self._walks and lanes:
                walked = self._walked(hyper, start, max(rounding, passable))
                for lane, z, f, *bends in zip(lanes, *walked, strict=True):
                    lane.z = z
                    lane.take(float(f), *bends)
            going = list(range(len(lanes)))
            for _ in range(_STEPS):
                going = [k for k in going if lanes[k].is_going]
                if not going:
                    break
                bent = [k for k in going if few or lanes[k].wants_hessian]
                straight = [k for k in going if not (few or lanes[k].wants_hessian)]
                for look, which in ((self._bends, bent), (self._looks, straight)):
                    if which:
                        points = np.array([lanes[k].z for k in which])
                        looks: tuple[Any, ...] = look(hyper[which], points)
                        for k, f, *slopes in zip(which, *looks, strict=True):
                            lanes[k].take(float(f), *slopes)
        return lanes

    def follows_gradient(self, at: AnyConditional) -> bool:
        """Whether the log joint follows its own gradient around the effects' mode at the one point of ``at``."""
        assert isinstance(at, Conditional)
        mode = at.mode[0]
        direction = direction_of_look(mode, at.precision(0), np.full(mode.shape, np.inf))

        def line(nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            points = mode + nodes[:, None] * direction
            hyper = np.repeat(at.hyper, len(nodes), axis=0)
            look = self._bends if self._bends_at_once else self._looks
            f, gradient, *_ = look(hyper, points)
            return f, gradient @ direction

        few, many = NODES[:LOOK_NODES], NODES[LOOK_NODES:]
        with np.errstate(all="ignore"):  # what overflows does not follow
            return not fails(*line(few)) or bool(follows_finely(*line(many)))

    def falls(self, at: AnyConditional) -> bool:
        """Whether the log joint falls to both sides of the effects' mode at the one point of ``at``.

        For each effect along the line on which the others follow with their conditional means.
        """
        return self.level(at) is None

    def level(self, at: AnyConditional) -> int | None:
        """An effect along whose line it does not fall, that along which it is highest; None if there is none."""
        fall = np.nan_to_num(-self.along(at, OUT)[0], nan=np.inf).min(axis=0)
        return int(np.argmin(fall)) if fall.min() < FALL else None

    def along(
        self, nodes: AnyConditional, places: Float[np.ndarray, " P"]
    ) -> Float[np.ndarray, "K P d"]:
        """The log joint along the line of each effect on which the others follow, less that at the mode.

        They follow with their conditional means.

        Args:
            nodes: the effects at some points of the hyperparameters, shape (K, ...).
            places: on the lines, in conditional standard deviations from the mode, shape (P,).
        """
        assert isinstance(nodes, Conditional)
        number, size = nodes.mode.shape
        last = 1 + len(places) * size
        rows = -(-last // _TOGETHER) * _TOGETHER
        together = int(np.clip(_HELD // (rows * size), 1, number))
        # Made once: pages of new memory cost as much as what is written.
        held = np.empty((together, rows, size))
        found = np.empty((number, len(places), size))
        for begin in range(0, number, together):
            some = slice(begin, begin + together)
            modes = nodes.mode[some]
            points = held[: len(modes)]
            points[:, 0], points[:, last:] = modes, modes[:, None]
            for k, mode in enumerate(modes):
                ways = nodes.ways(begin + k, np.arange(size))
                lines = np.split(points[k, 1:last], len(places))
                for place, line in zip(places, lines, strict=True):
                    np.multiply(ways, place, out=line)
                    line += mode
            heights = self.log_joint(nodes.hyper[some], points)
            found[some] = (heights[:, 1:last] - heights[:, :1]).reshape(-1, len(places), size)
        return found

    def _looks(
        self, hyper: np.ndarray, z: np.ndarray, bent: bool = False
    ) -> tuple[np.ndarray, ...]:
        few = z.shape[1] <= COLUMNS  # so that one program, which is compiled once, serves for both
        columns = z.shape[1] if bent or few else 1
        lanes = lanes_of(columns * (columns + numbers_in(self.density)))
        at = self.density, self.over, lanes, hyper, z
        return in_lanes(_looks, *at, bent=bent or few)[: 3 if bent else 2]

    def _bends(self, hyper: np.ndarray, z: np.ndarray) -> tuple[Any, ...]:
        """The negative log joint, its gradient and its Hessian in z, as a matrix or as the layout has it."""
        if self._columns is not None:
            return self._columns.seen(hyper, z)
        return self._looks(hyper, z, bent=True)

    def _walked(self, hyper: np.ndarray, start: np.ndarray, tolerance: float) -> tuple[Any, ...]:
        """Where Newton's whole steps lead, and the negative log joint, its gradient and its Hessian there."""
        columns, size = self._columns, start.shape[1]
        pattern = None if columns is None else columns.pattern
        ways = np.eye(size) if pattern is None else pattern.taken
        index = np.arange(size * size) if pattern is None else pattern.source_of_each
        lanes = lanes_of(len(ways) * (size + numbers_in(self.density)))
        end, f, gradient, products = in_lanes(
            walks,
            *(self.density, self.over, lanes, hyper, start),
            times=STEPS,
            ways=own_copy(ways, float),
            source=index,
            tolerance=tolerance,
        )
        if columns is None or pattern is None:
            return end, f, gradient, symmetric(products)
        return end, f, gradient, columns.told(pattern, products, hyper, end)

    @cached_property
    def _walks(self) -> bool:
        """Whether all steps at a point are one program, which takes a second more to compile.

        So where it is looked at often; or where what depends on the hyperparameters alone, which is computed once in
        it, costs most.
        """
        columns = self._columns
        is_dense = columns is None or columns.pattern is None
        is_costly = factorises(self.density)
        return (is_costly and is_dense) or (
            (is_costly or self.often) and self.dimensions[1] <= _FEW
        )

    @cached_property
    def _bends_at_once(self) -> bool:
        """Whether a Hessian takes less time than another round of looks."""
        at_once = self._columns is not None and self._columns.looks == 1
        return at_once or self.dimensions[1] <= COLUMNS

    @cached_property
    def _columns(self) -> Columns | None:
        return Columns.of(self.density, self.over, self.dimensions[1], self.often)

    @property
    def _layout(self) -> Layout | None:
        """In which its Hessians are."""
        columns = self._columns
        return None if columns is None or columns.pattern is None else columns.pattern.layout

    @cached_property
    def pattern(self) -> Pattern | None:
        """The products by which the Hessian in the effects is known, as it is seen at one point."""
        if self._columns is not None:
            return self._columns.pattern
        hessian = self._looks(*aside(self.density, self.dimensions[1]), bent=True)[2][0]
        return pattern_of(hessian != 0) if np.isfinite(hessian).all() else None

    @cached_property
    def ways(self) -> Float[Array, "C d"]:
        """The vectors of these products; those of the axes where there is no pattern."""
        read = np.eye(self.dimensions[1]) if self.pattern is None else self.pattern.read
        return own_copy(read, float)

    def log_joint(
        self, hyper: Float[np.ndarray, "K H"], z: Float[np.ndarray, "K M d"]
    ) -> Float[np.ndarray, "K M"]:
        """log p(D, h, z) at M points z for each of K points h; minus infinity where the model has none."""
        z = z.astype(jnp.result_type(float), copy=False)
        number, many, size = z.shape
        parts = -(-many // _TOGETHER)  # of one size, so that one program serves for all M
        if many != parts * _TOGETHER:
            z = z[:, np.minimum(np.arange(parts * _TOGETHER), many - 1)]
        z = z.reshape(number * parts, _TOGETHER, size)
        lanes = int(np.clip(WORK // (_TOGETHER * size), 1, LANES))
        places = np.repeat(hyper, parts, axis=0), z
        heights = in_lanes(_log_joints, self.density, self.over, lanes, *places)[0]
        return heights.reshape(number, -1)[:, :many]


def _conditional(
    hyper: np.ndarray, lanes: list[Lane], start: np.ndarray, layout: Layout | None
) -> Conditional:
    size = start.shape[1] if layout is None else layout.others.size
    root = np.empty((len(lanes), size, size))
    leaves = None if layout is None else Leaves.nowhere(layout, len(lanes))
    for k, lane in enumerate(lanes):
        root[k] = lane.root if lane.found else np.nan
        if leaves is not None and lane.found and lane.factor is not None:
            leaves.put(k, lane.factor)
    return Conditional(hyper, *_ends(lanes, start), root, leaves)


def _ends(lanes: list[Lane], start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The log marginal where searches have ended, and the modes; NaN where they found none."""
    size = start.shape[1] / 2 * np.log(2 * np.pi)
    heights = [size - lane.lowest - lane.log_root if lane.found else np.nan for lane in lanes]
    modes = [lane.z if lane.found else np.full(lane.z.shape, np.nan) for lane in lanes]
    return np.array(heights), np.array(modes).reshape(start.shape)


@partial(jit_quickly, half=True, static_argnames=("over", "bent"))
def _looks(
    density: ModelDensity,
    number: Array | int,
    hyper: Float[Array, "K H"],
    z: Float[Array, "K d"],
    over: tuple[str, ...],
    bent: bool,
) -> tuple[Array, ...]:
    """The negative log joint, its gradient and, if ``bent``, its Hessian in z; NaN where the model is not valid."""

    def look(hyper: Array, z: Array) -> tuple[Array, ...]:
        f = partial(loss_of, density, over, hyper)
        if bent:
            value, valid, *slopes = value_gradient_hessian(f, z)
        else:
            (value, valid), *slopes = jax.value_and_grad(f, has_aux=True)(z)
        return jnp.where(valid, value, jnp.nan), *slopes

    return one_by_one(look, number, hyper, z)


@partial(jit_quickly, half=True, static_argnames="over")
def _log_joints(
    density: ModelDensity,
    number: Array | int,
    hyper: Float[Array, "K H"],
    z: Float[Array, "K M d"],
    over: tuple[str, ...],
) -> tuple[Array, ...]:
    """log p(D, h, z), shape (K, M): what depends on h alone is computed once for all z."""

    def at(hyper: Array, z: Array) -> tuple[Array, ...]:
        return (jax.vmap(lambda z: density.log_joint(joint(density, over, hyper, z)))(z),)

    return one_by_one(at, number, hyper, z)
