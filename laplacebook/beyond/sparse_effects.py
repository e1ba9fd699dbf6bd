"""A log joint seen as one of many effects, given the hyperparameters, whose Hessian is sparse."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from laplacebook.base.quick import jit_quickly, numbers_in
from laplacebook.beyond.conditional import FALL, OUT, Effects
from laplacebook.beyond.dense_conditional import AnyConditional
from laplacebook.beyond.kept_integrals import kept_integral
from laplacebook.beyond.marginalize import MarginalModel
from laplacebook.beyond.sparse_conditional import SparseConditional, ways
from laplacebook.beyond.sparse_integral import SparseIntegral
from laplacebook.fit.summary import values_at
from laplacebook.model.density import ModelDensity
from laplacebook.search.looks import INNER, middle

LINES = 4096  # of effects, along which the log joint is looked at
_NUMBERS = 2**22  # of points, at one time


@dataclass(frozen=True)
class SparseEffects(Effects):
    """The log joint as one of many effects, whose Hessian is sparse."""

    @cached_property
    def marginal(self) -> "_Marginal":
        """The density of the hyperparameters, with the effects integrated out."""
        names = tuple(site.name for site in self.density.sites if site.name not in self.over)
        args, kwargs = self.density.arguments
        model = MarginalModel(self.density.model, names, "sparse").prepare(args, kwargs)
        return _Marginal(model, ModelDensity.of(model, args, kwargs))

    @cached_property
    def integral(self) -> SparseIntegral:
        """What integrates them out, with the mode that it found last."""
        start = np.asarray(middle(self.density), float)
        found = kept_integral(self.density_given(start[self.places[0]]))
        assert found is not None
        found.forget()
        return found

    @cached_property
    def rank(self) -> int:
        """Of the terms of low rank in the precision."""
        start = np.asarray(middle(self.density), float)
        of_hyper, of_effects = self.places
        density, z = self.density_given(start[of_hyper]), jnp.asarray(start[of_effects])
        return jax.eval_shape(self.integral.pattern.parts_at, density, z).left.shape[1]

    @property
    def held(self) -> int:
        """As :attr:`~laplacebook.beyond.conditional.Effects.held`."""
        return self.integral.pattern.layout.rows.size + (2 + self.rank) * self.dimensions[1]

    def density_given(self, hyper: Float[np.ndarray, " H"]) -> ModelDensity:
        """The log joint of the effects alone."""
        args, kwargs = self.density.arguments
        u = self.joined(hyper, np.zeros(self.dimensions[1]))
        values = values_at(self.density, jnp.asarray(u, float)[None])
        known = {name: values[name][0] for name in self.over}
        return self.marginal.model.density_given(known, *args, **kwargs)

    def given(
        self,
        hyper: Float[np.ndarray, "K H"],
        start: Float[np.ndarray, "K d"],
        passable: float = 0.0,
    ) -> SparseConditional:
        """A certified search at every point, one after the other, from where each begins.

        Args:
            hyper: h, shape (K, H).
            start: z where the search begins, shape (K, d).
            passable: of no use, as each search ends as near to the mode as its certificate asks.
        """
        integral = self.integral
        layout, size, rank = integral.pattern.layout, start.shape[1], self.rank
        shapes = (), (size,), (size,), (), layout.rows.shape, (size, rank), (rank, rank)
        nowhere = [np.full((len(hyper), *shape), np.nan) for shape in shapes]
        found = SparseConditional(layout, hyper, *nowhere)
        for k in range(len(hyper)):
            height = self._height(hyper[k], start[k])
            if not np.isfinite(height):
                continue
            mode, precision = integral.found()
            found.log_marginal[k], found.mode[k] = height, mode
            found.deviations[k] = np.sqrt(precision.diagonal_of_inverse())
            found.log_roots[k] = precision.log_determinant() / 2
            found.entries[k] = precision.entries
            found.left[k], found.middle[k] = precision.left, precision.middle
        return found

    def heights(
        self, hyper: Float[np.ndarray, "K H"], start: Float[np.ndarray, "K d"]
    ) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, "K d"]]:
        """As :meth:`~laplacebook.beyond.conditional.Effects.heights`, whose arguments these are."""
        heights, modes = np.full(len(hyper), np.nan), np.full(start.shape, np.nan)
        for k in range(len(hyper)):
            heights[k] = self._height(hyper[k], start[k])
            if np.isfinite(heights[k]):
                modes[k] = self.integral.found()[0]
        return heights, modes

    def _height(self, hyper: np.ndarray, start: np.ndarray) -> float:
        """The log marginal at one point, by a search from there; no number where there is no mode."""
        self.integral.begin_at(start)
        u = jnp.asarray(hyper, float)
        return -float(_loss(self.marginal.density, u, whole=self.integral))

    def followed(
        self, hyper: Float[np.ndarray, "K H"], start: Float[np.ndarray, "K d"]
    ) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, "K H"], Float[np.ndarray, "K d"]]:
        """The log marginal at every point, NaN where there is no mode; its gradient, and the modes.

        Args:
            hyper: h, shape (K, H).
            start: z where the search begins, shape (K, d).
        """
        integral = self.integral
        heights = np.full(len(hyper), np.nan)
        slopes, modes = np.full(hyper.shape, np.nan), np.full(start.shape, np.nan)
        for k in range(len(hyper)):
            integral.begin_at(start[k])
            u = jnp.asarray(hyper[k], float)
            loss, slope = _loss_and_slope(self.marginal.density, u, whole=integral)
            if np.isfinite(loss):
                heights[k], slopes[k] = -float(loss), -np.asarray(slope, float)
                modes[k] = integral.found()[0]
        return heights, slopes, modes

    def follows_gradient(self, at: AnyConditional) -> bool:
        """True: without that no mode is certified."""
        return bool(np.isfinite(at.log_marginal[0]))

    def level(self, at: AnyConditional) -> int | None:
        """As :meth:`~laplacebook.beyond.conditional.Effects.level`, of 4,096 effects."""
        size = at.mode.shape[1]
        which = np.unique(np.linspace(0, size - 1, min(size, LINES)).astype(int))
        fall = np.nan_to_num(-self.along(at, OUT, which)[0], nan=np.inf).min(axis=0)
        return int(which[np.argmin(fall)]) if fall.min() < FALL else None

    def along(
        self,
        nodes: AnyConditional,
        places: Float[np.ndarray, " P"],
        which: Int[np.ndarray, " n"] | None = None,
    ) -> Float[np.ndarray, "K P n"]:
        """As :meth:`~laplacebook.beyond.conditional.Effects.along`.

        Args:
            nodes: the effects at some points of the hyperparameters.
            places: on the lines, in conditional standard deviations from the mode, shape (P,).
            which: effects; by default all.
        """
        assert isinstance(nodes, SparseConditional)
        number, size = nodes.mode.shape
        which = np.arange(size) if which is None else which
        found = np.empty((number, len(places), len(which)))
        together = max(1, _NUMBERS // (len(places) * size))
        for k in range(number):
            precision = nodes.precision(k)
            at_mode = self.log_joint(nodes.hyper[k : k + 1], nodes.mode[k : k + 1, None])
            for begin in range(0, len(which), together):
                lines = which[begin : begin + together]
                steps = places[:, None, None] * ways(precision, nodes.deviations[k], lines)
                points = (nodes.mode[k] + steps).reshape(1, -1, size)
                heights = self.log_joint(nodes.hyper[k : k + 1], points)
                fall = (heights - at_mode).reshape(len(places), -1)
                found[k, :, begin : begin + together] = fall
        return found


class _Marginal(NamedTuple):
    model: MarginalModel
    density: ModelDensity


def _work(density: ModelDensity, *_: Any, **__: Any) -> int:
    return numbers_in(density) * INNER


@partial(jit_quickly, work=_work, half=True, static_argnames="whole")
def _loss(density: ModelDensity, hyper: Array, whole: SparseIntegral) -> Array:
    """The negative log marginal; another program for another integral, which is in it."""
    return density.loss(hyper)[0]


@partial(jit_quickly, work=_work, half=True, static_argnames="whole")
def _loss_and_slope(
    density: ModelDensity, hyper: Array, whole: SparseIntegral
) -> tuple[Array, Array]:
    return jax.value_and_grad(lambda h: density.loss(h)[0])(hyper)
