"""The verb ``nested(model, ...)``: hyperparameters integrated numerically, the rest by Laplace's method."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from laplacebook.base.checks import require_numbers
from laplacebook.base.errors import LaplaceError, NotConverged, UnsupportedModel
from laplacebook.base.one_thread import by_one_thread
from laplacebook.base.quick import in_full_precision, is_eager
from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.grid import DEPTH, MOST, SPACING, At, Grid, explore
from laplacebook.beyond.hyperparameters import hyperparameters_of
from laplacebook.beyond.known_points import KnownPoints
from laplacebook.beyond.marginalize import MarginalModel
from laplacebook.beyond.nested_approximation import NestedApproximation
from laplacebook.beyond.other_outer_modes import other_modes, prior_draws
from laplacebook.beyond.outer_mode import OuterMode, outer_mode
from laplacebook.beyond.skewed_by_shifts import skewed_by_shifts
from laplacebook.beyond.skewed_effects import SkewedEffects
from laplacebook.beyond.sparse_effects import SparseEffects
from laplacebook.fit.summary import values_at
from laplacebook.model.density import ModelDensity
from laplacebook.model.not_finite import require_entries
from laplacebook.model.start import off_centre
from laplacebook.search.looks import middle

# Standard deviations, where other modes are looked for; of one hyperparameter, where that costs little, farther.
_FAR = np.array([5.0, 8.0, 12.0, 18.0])
_FARTHER = np.array([25.0, 32.0, 39.0])
# From draws of the prior, for other modes.
_SEARCHES = {"dense": 8, "sparse": 4}
_REFINEMENTS = 3  # of the spacing
_FINER = 0.7
_BEYOND = 0.01  # of the mass: where more lies beyond the grid, a deeper one is laid
_DEEPER = 2.0  # nats
_GROWTH = 2**0.25  # of the number of points with that, for each hyperparameter, as was seen
# Standard deviations, where tails are long: what is wide enough for a Gaussian is not for a cliff beside them.
_LONG_TAILED = (1.0, 1.25)
_SMALL = {"dense": 8000, "sparse": 1000}  # points, whatever they hold
_NUMBERS = 2**26  # of the Cholesky factors of all points: 512 MiB
_RISK = 1e-3  # of the mass, beside points at which the effects have no mode
_ENDLESS = 30.0  # units of the unconstrained space from the start: 13 digits of a scale
_ON_THE_WAY = np.array([0.2, 0.4])  # there, where the log marginal is the same, it does not fall
_TAIL = 20.0  # standard deviations, or units if these are more: from there to twice as far it has to fall
_ROUGH = 0.1  # nats: what the log evidence may differ by with half of the points


@by_one_thread
@in_full_precision
def nested(
    model: Callable,
    *args: Any,
    over: str | Sequence[str] | None = None,
    structure: str = "dense",
    **kwargs: Any,
) -> NestedApproximation:
    """The posterior of a hierarchical model: hyperparameters numerically, effects by Laplace's method.

    With the hyperparameters h, such as the standard deviation of effects, and all other latent sites z,

    ``p(h | D) ~ p(D, h)``, with z integrated out of p(D, h, z) by Laplace's method at each h,

    on a grid of h that is laid in the unconstrained space along the principal axes at its mode, and goes on
    wherever the density does, skew tails included; and p(z | D) is the mixture over the grid of the
    approximations of z given h (Tierney and Kadane 1986, Journal of the American Statistical Association
    81, 82-86; Rue, Martino and Chopin 2009, Journal of the Royal Statistical Society B 71, 319-392). Where the
    log joint given h is not quadratic, each marginal of the mixture is made skew (:class:`NestedApproximation`
    says how), and the log marginal of h is corrected by the mean ratio of the joint density to its Gaussian, a
    quadratic function of h fitted to 4,096 pairs of draws, if their Pareto k-hat is at most 0.7. Where it is
    quadratic, nothing is approximated but an integral by a grid.

    Other modes of p(h, D) are searched for from eight draws of the prior (sparse: four), and the grid is laid about
    those that hold a hundredth of the mass, too. Of the effects given h one mode is counted. Where a few searches, at
    points of the grid, find others with a hundredth of the mass there, as where signs may change, the fit is doubtful
    and ``diagnose`` calls it bad. That none is found proves nothing; :func:`~laplacebook.diagnose` searches again.

    What is integrated numerically, unless ``over`` says it: every site outside the largest set of Gaussian
    effects, fixed effects included, in which the predictor is affine; where there is none, the sites on
    which another one's prior depends.

    With ``structure="sparse"`` the exact Hessian of the effects is found from the program and kept sparse, as
    :func:`~laplacebook.laplace` keeps it, and the search at each point of the grid begins at the mode of its
    neighbour. The mean of each effect given h is then known to first order from the third derivatives, without
    draws (at 50 states of a series of counts, within 0.007 conditional standard deviations of importance
    sampling at eight values of h), and up to 4,096 effects are made skew about it along the same lines. Of more
    effects each stays Gaussian given h about that mean, and the print says so; and each draw of ``sample`` is a
    search of its own. Of so many effects ratios of
    densities have no mean (a k-hat above 0.7), although each effect is near a Gaussian, and the log marginal of
    h is not corrected. The print then says what a correction to second order would do, by third derivatives and
    the even part of the log joint along pairs of draws, and where that moves the mean of a hyperparameter by more
    than a quarter of a standard deviation, the fit is doubtful. It is no correction itself: of 900 effects with
    one small count each it says 0.23, and quadrature 0.03.

    In the book: :eq:`hierarchical-marginal` of :doc:`/book/hierarchical`.

    Args:
        model: any NumPyro model with continuous latent sites, called as ``model(*args, **kwargs)``. One with
            an argument named ``over`` or ``structure`` takes it through ``functools.partial``.
        args: its positional arguments.
        over: the names of the hyperparameters; with up to six coordinates together.
        structure: of the precision of the effects: ``"dense"``; or ``"sparse"``, for hundreds to tens of
            thousands of them (``pip install "laplacebook[sparse]"``): below.
        kwargs: its keyword arguments.

    Returns:
        A :class:`NestedApproximation`.

    Raises:
        ValueError: ``over`` names no latent site, or leaves none; there is no such structure; the model has no
            hyperparameter; within a compiled program.
        UnsupportedModel: as :func:`~laplacebook.laplace` says, of a Hessian that should be sparse, too; the
            prior of a hyperparameter depends on an effect; they have more than six coordinates.
        NotConverged: the posterior of the hyperparameters has no mode, does not fall on all sides (so it
            may be improper), or is too rough for a grid.
        LaplaceError: where the hyperparameters have some of their mass, the effects have no mode: as
            :func:`~laplacebook.laplace` says there.

    >>> import numpyro, numpyro.distributions as dist
    >>> def groups(y):
    ...     tau = numpyro.sample("tau", dist.HalfNormal(2))
    ...     with numpyro.plate("groups", y.size):
    ...         z = numpyro.sample("z", dist.Normal(0, tau))
    ...         numpyro.sample("y", dist.Normal(z, 1), obs=y)
    >>> nested(groups, jnp.array([2.0, -1.0, 0.5, -3.0]))
    Nested Laplace approximation of groups, D = 5
      site     mean      sd       5 %     95 %
      tau     1.699  0.8082    0.5549    3.179
      z[0]    1.337  0.9150  -0.07249    2.900
      z[1]  -0.6683  0.8429    -2.110   0.6492
      z[2]   0.3341  0.8239   -0.9984    1.737
      z[3]   -2.005   1.024    -3.706  -0.2898
      tau on a grid of 35 points, the others given each exactly Gaussian
      log evidence -8.8413 (error of the grid about 1e-03)
    """
    if not is_eager():
        raise ValueError(
            "nested looks at numbers, and does not work within jit, vmap or grad; marginalize does."
        )
    if structure not in ("dense", "sparse"):
        raise ValueError(f'structure is "dense" or "sparse", not {structure!r}')
    require_numbers("nested", (args, kwargs))
    density = ModelDensity.of(model, args, kwargs)
    names = hyperparameters_of(density, over)
    require_entries(density)
    return _Search(density, names, structure).result()


class _Search:
    """The steps of one call, and what its errors need to know."""

    def __init__(self, density: ModelDensity, over: tuple[str, ...], structure: str) -> None:
        self.density = density
        self.structure = structure
        self.effects = (SparseEffects if structure == "sparse" else Effects)(density, over)
        of_hyper, of_effects = self.effects.places
        self.size = of_hyper.size
        self.of_hyper = of_hyper
        if self.size not in SPACING:
            raise UnsupportedModel(
                f"{', '.join(over)} have {self.size} coordinates together: a grid is laid over six at most.",
                remedy=f"name fewer as over=, if the others are near Gaussian; or sample them, with the "
                f"effects integrated out: NUTS(marginalize({density.name}, {self._effect_names})).",
            )
        start = np.asarray(middle(density), float)
        start = off_centre(start, np.full(start.shape, np.inf))
        self.start = start[of_hyper]
        self.known = KnownPoints(self.effects, start[of_effects])

    @property
    def _effect_names(self) -> list[str]:
        return [site.name for site in self.density.sites if site.name not in self.effects.over]

    def result(self) -> NestedApproximation:
        grid = self._whole_grid()
        law = skewed_by_shifts if self.structure == "sparse" else SkewedEffects.of
        skewed = law(self.effects, grid.conditional)
        heights = grid.conditional.log_marginal + skewed.correction(grid.place)
        grid = grid._replace(conditional=grid.conditional._replace(log_marginal=heights))
        return NestedApproximation(self.effects, grid, skewed.corrected(heights), self.known.start)

    def _mode(self) -> OuterMode:
        starts, heights = self._sound(self.start[None])
        if not starts.size:
            starts, heights = self._sound(prior_draws(self.effects, jax.random.key(0)))
        if not starts.size:
            raise self._no_effects(self.start)
        mode = outer_mode(self.known.heights, starts[np.argmax(heights)])
        if mode.failed is not None:
            raise self._no_effects(mode.failed)
        self._require_effects(mode)
        if not mode.found:
            raise self._no_mode(mode.point, mode.way)
        return mode

    def _sound(self, hyper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those points at which the effects have a mode, and the log marginal there."""
        heights = self.known.heights(hyper, np.ones(self.size))
        return hyper[np.isfinite(heights)], heights[np.isfinite(heights)]

    def _require_effects(self, mode: OuterMode) -> None:
        """Refuse a mode of the hyperparameters at which that of the effects is none."""
        there = self.known.conditional(mode.point[None], np.ones(self.size))
        if not (self.effects.falls(there) and self.effects.follows_gradient(there)):
            raise self._no_effects(mode.point)

    def _whole_grid(self) -> Grid:
        """A grid about the mode, and about those that other searches end at."""
        mode = self._mode()
        grid = self._grid(mode)
        searches = _SEARCHES[self.structure]
        others = other_modes(self.known, grid, jax.random.key(0), searches)
        if not others:
            return self._smooth(grid)
        for other in others:
            self._require_effects(other)
        narrow, *wider = sorted([mode, *others], key=lambda one: one.log_volume)
        cells = sum(np.exp(one.log_volume - narrow.log_volume) for one in (mode, *others))
        if cells * len(grid.place) > self._most:
            raise self._not_held([mode, *others])
        try:
            whole = self._smooth(self._grid(narrow, wider))
        except NotConverged as refused:
            raise self._not_held([mode, *others]) from refused
        if not all(whole.holds(one.point) for one in (mode, *others)):
            raise self._not_held([mode, *others])
        return whole

    def _grid(self, mode: OuterMode, others: Sequence[OuterMode] = ()) -> Grid:
        scale = np.linalg.norm(mode.axes, axis=1)
        at = partial(self.known.conditional, scale=scale)
        ways = np.concatenate([mode.axes.T, -mode.axes.T])
        far = np.append(_FAR, _FARTHER) if self.size == 1 else _FAR
        seeds = mode.point + np.multiply.outer(far, ways).reshape(-1, self.size)
        widths = [np.linalg.norm(np.linalg.solve(mode.axes, one.axes), -2) for one in others]
        spacing = SPACING[self.size] * min([1.0, *map(float, widths)])
        most = self._most
        middles = np.array([one.point for one in (mode, *others)])
        heights = [one.height for one in (mode, *others)]
        depth = DEPTH + max(heights) - min(heights)
        grid = explore(at, mode, spacing, np.concatenate([middles, seeds]), most, depth)
        for _ in range(_REFINEMENTS):
            if grid.is_fine or not grid.ends or grid.is_full:
                break
            spacing *= _FINER
            grid = explore(at, mode, spacing, grid.conditional.hyper[grid.peaks], most, depth)
        while grid.beyond > _BEYOND and grid.ends and not grid.is_full:
            deeper = _deeper(at, grid, self._roomy)
            if deeper is None:
                break
            grid = deeper
        if grid.at_risk > _RISK:
            halfway = self.known.heights((grid.failed + mode.point) / 2, scale)
            raise self._no_effects(grid.failed[np.argmax(halfway)])
        if not grid.ends:
            raise self._does_not_fall(grid)
        if grid.is_full:
            raise NotConverged(
                f"The posterior of {self._over} reaches further than a grid of {len(grid.place)} points.",
                causes=["a ridge along which they hardly matter", "too many hyperparameters"],
                remedy=self._sampler,
            )
        self._require_tails(mode, scale)
        return grid

    @property
    def _roomy(self) -> int:
        """How many points there may be, of so many effects."""
        return min(MOST, _NUMBERS // self.effects.held)

    @property
    def _most(self) -> int:
        return max(_SMALL[self.structure], self._roomy)

    def _smooth(self, grid: Grid) -> Grid:
        """Refuse a grid of which half tells another log evidence."""
        if grid.roughness > _ROUGH:
            raise NotConverged(
                f"The posterior of {self._over} is too rough for a grid: with half of its "
                f"{len(grid.place)} points the log evidence differs by {grid.roughness:.2g}.",
                causes=["a kink or a jump in the model", "several narrow modes"],
                remedy=self._sampler,
            )
        return grid

    def _require_tails(self, mode: OuterMode, scale: np.ndarray) -> None:
        """Refuse an improper prior under which the log marginal is level again far below its highest."""
        if not set(self.density.improper) & set(self.effects.over):
            return
        out = _TAIL * np.diag(np.maximum(scale, 1))
        for way in (*out, *-out):
            near, far = self.known.heights(mode.point + np.multiply.outer([1, 2], way), scale)
            if np.isfinite(far) and far > near - 1:
                raise self._no_mode(mode.point + way, way)

    @property
    def _over(self) -> str:
        return " and ".join(map(repr, self.effects.over))

    @property
    def _sampler(self) -> str:
        return (
            f"sample {self._over} with the effects integrated out: "
            f"NUTS(marginalize({self.density.name}, {self._effect_names})); or sample everything."
        )

    def _not_held(self, modes: list[OuterMode]) -> LaplaceError:
        places = "; ".join(_listed(self._values(one.point)) for one in modes)
        return NotConverged(
            f"The posterior of {self._over} has {len(modes)} modes, whose widths are so different that no grid "
            f"of equal distances holds them: {places}.",
            causes=["a mixture of regimes, one much narrower than the other"],
            remedy=self._sampler,
        )

    def _values(self, hyper: np.ndarray) -> dict[str, np.ndarray]:
        """The hyperparameters on the scale of the model."""
        u = self.effects.joined(hyper, self.known.start)
        values = jax.device_get(values_at(self.density, jnp.asarray(u, float)[None]))
        return {name: np.asarray(values[name][0]) for name in self.effects.over}

    def _no_effects(self, hyper: np.ndarray) -> LaplaceError:
        """Why the effects have no mode there, in the words of a fit of them alone."""
        way = hyper - self.start
        on_it = self.start + np.multiply.outer(_ON_THE_WAY, way)
        if abs(way).max() > _ENDLESS and abs(np.diff(self.known.heights(on_it, 1 + abs(way)))) < 1:
            return self._no_mode(on_it[-1], way)
        marginal = MarginalModel(self.density.model, tuple(self._effect_names), self.structure)
        args, kwargs = self.density.arguments
        values = self._values(hyper)
        try:
            found = marginal.given(values, *args, **kwargs)
        except LaplaceError as refused:
            return marginal.refusal(values, refused)
        there = self.effects.given(hyper[None], np.asarray(found.mode_vector, float)[None])
        where, names = "to all sides", found.density.coordinate_names()
        if np.isfinite(there.log_marginal[0]) and (level := self.effects.level(there)) is not None:
            where = f"along {names[level]}"
        words = f"Newton's method found no mode beside which the log joint falls {where}."
        causes = ["a second mode", "a log joint that levels off"]
        failed = NotConverged(words, causes=causes, remedy=self._sampler)
        return marginal.refusal(values, failed)

    def _no_mode(self, point: np.ndarray, way: np.ndarray) -> LaplaceError:
        names = [
            name
            for s in self.density.sites
            if s.name in self.effects.over
            for name in s.coordinate_names()
        ]
        farthest = int(np.argmax(abs(way)))
        return NotConverged(
            f"The posterior of {self._over}, with the effects integrated out, has no mode: it does not fall "
            f"along {names[farthest]} beyond {_listed(self._values(point))}.",
            causes=[
                "an improper or very vague prior of a scale, under which the posterior is improper, too",
                "a prior of a scale on which the data say nothing",
            ],
            remedy="give the hyperparameters proper priors, such as HalfNormal of a scale that is plausible.",
        )

    def _does_not_fall(self, grid: Grid) -> LaplaceError:
        heights = grid.conditional.log_marginal
        far = int(np.argmax(abs(grid.place).max(axis=1) * (heights > heights.max() - 8)))
        fallen = heights.max() - heights[far]
        return NotConverged(
            f"The posterior of {self._over} does not fall on all sides: at "
            f"{_listed(self._values(grid.conditional.hyper[far]))} its logarithm is only {fallen:.1f} below the "
            "highest, so that a grid does not hold its mass.",
            causes=[
                "an improper prior of a hyperparameter, under which the posterior is improper, too",
                "a prior with a very long tail, on which the data say nothing",
            ],
            remedy="give the hyperparameters proper priors, such as HalfNormal of a scale that is plausible.",
        )


def _deeper(at: At, grid: Grid, most: int) -> Grid | None:
    """The finest of those that are one step deeper, if one has no more points than it may."""
    number, size = grid.place.shape
    finer = [spacing for spacing in _LONG_TAILED if spacing < grid.spacing]
    for spacing in (*finer, grid.spacing):
        if number * (_GROWTH * grid.spacing / spacing) ** size <= most:
            seeds, depth = grid.conditional.hyper[grid.peaks], grid.depth + _DEEPER
            deeper = explore(at, grid.mode, spacing, seeds, most, depth)
            if deeper.ends and not deeper.is_full:
                return deeper
    return None


def _listed(values: dict[str, np.ndarray]) -> str:
    return ", ".join(f"{k} = {np.array2string(v, precision=3)}" for k, v in values.items())
