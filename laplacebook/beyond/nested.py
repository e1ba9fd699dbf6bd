"""The verb ``nested(model, ...)``: hyperparameters integrated numerically, the rest by Laplace's method."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from laplacebook.base.checks import require_numbers
from laplacebook.base.errors import LaplaceError, NotConverged
from laplacebook.base.one_thread import by_one_thread
from laplacebook.base.quick import in_full_precision, is_eager, uncollected
from laplacebook.beyond.chains import Chains
from laplacebook.beyond.cloud import Cloud
from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.grid import DEPTH, MOST, SPACING, At, Grid, explore
from laplacebook.beyond.hyperparameters import hyperparameters_of
from laplacebook.beyond.interpolated import COARSE, interpolated
from laplacebook.beyond.known_points import KnownPoints
from laplacebook.beyond.nested_approximation import NestedApproximation
from laplacebook.beyond.nested_refusals import Refusals
from laplacebook.beyond.other_outer_modes import Alone, modes_on, other_modes, prior_draws
from laplacebook.beyond.outer_mode import OuterMode, outer_mode, together
from laplacebook.beyond.run_chains import chains_of, run_chains
from laplacebook.beyond.skewed_by_shifts import skewed_by_shifts
from laplacebook.beyond.skewed_effects import SkewedEffects
from laplacebook.beyond.sparse_effects import SparseEffects
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
# Conditional standard deviations, by which skewness moves a fixed effect, whose sd was then 5 to 35 % short; by the
# number of hyperparameters: beside two, where a grid of three takes longer, as many as are a doubt.
_FIXED = {1: 0.4, 2: 0.75}
_RISK = (
    1e-3  # of the mass, beside points at which the effects have no mode; or of the points of chains
)
_DIVERGED = 0.01  # of the draws: fewer are told
_TAIL = 20.0  # standard deviations, or units if these are more: from there to twice as far it has to fall
_ROUGH = 0.1  # nats: what the log evidence may differ by with half of the points


@uncollected
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
    wherever the density does, skew tails included. Of four to eight coordinates the grid is a coarse one, and log
    p(h | D) is interpolated between its points, some hundreds, by radial basis functions: rounds of new points are
    added where the posterior has its mass. Of four to six that is until they have foreseen p(h | D) to 15 % (in
    root mean square at new points; of six to 20 %). Of seven or eight, and where it does not become so good, 3,000
    points are drawn from what is interpolated and weighted by p(h | D) there, if they are worth 600 points of
    equal weight and nine tenths of what they would be worth were it right. The log evidence has the standard error
    that these tell. Where so few points do not suffice, or there are several modes, a fine grid is laid over up to
    six. And p(z | D) is the mixture over the grid of the approximations of z given h (Tierney and Kadane 1986,
    Journal of the American Statistical Association 81, 82-86; Rue, Martino and Chopin 2009, Journal of the Royal
    Statistical Society B 71, 319-392). Where the log joint given h is not quadratic, each marginal of the mixture
    is made skew (:class:`NestedApproximation` says how), and the log marginal of h is corrected by the mean ratio
    of the joint density to its Gaussian, whose logarithm is a polynomial of h (cubic of one or two coordinates,
    quadratic of more) fitted to 4,096 pairs of draws, if their Pareto k-hat is at most 0.8 (sparse: 0.7). Where
    that moves a mean or a standard deviation of h by more than 0.15 standard deviations, as many pairs are drawn
    again where it leads, and it is fitted to all of them. Where the log joint is quadratic, nothing is
    approximated but an integral by a grid.

    Of more than eight coordinates, and of seven or eight where such points do not suffice, h is drawn instead, by
    the No-U-Turn sampler on the same log marginal, in eight chains with a fixed key that begin about its mode,
    until split R-hat is at most 1.01 and each coordinate is worth 1,000 independent draws, or for 1,000 draws of
    each chain. Each draw then is what a point of the grid is, with the same corrections; the print says how many
    there are, what they are worth, and that NUTS drew them. The log evidence is that of bridge sampling, with its
    standard error.

    Other modes of p(h, D) are searched for from eight draws of the prior (sparse: four), and the grid is laid about
    those that hold a hundredth of the mass, too; chains begin at each. One of the effects that has moved together with
    h, as where two components of a mixture change places, is looked for from other modes of the effects at the mode of
    h, and then at each h the higher of both counts. Given h one mode of the effects is counted. Where a few searches,
    at points of the grid, find others with a hundredth of the mass there, as where signs may change, the fit is
    doubtful and ``diagnose`` calls it bad. That none is found proves nothing; :func:`~laplacebook.diagnose` searches
    again.

    What is integrated numerically, unless ``over`` says it: every site outside the largest set of Gaussian
    effects, fixed effects included, in which the predictor is affine, but for what is normal in each
    group given other sites (the bend of a curve, the logarithm of a variance), where these are too many for
    a grid; where there is none, the sites on which another one's prior depends. And beside one or two of them
    a single effect, such as the intercept of rare counts, if skewness moves its mean given these by more than 0.4,
    or 0.75, conditional standard deviations, and there is no doubt of the result.

    With ``structure="sparse"`` the exact Hessian of the effects is found from the program and kept sparse, as
    :func:`~laplacebook.laplace` keeps it, and the search at each point of the grid begins where the modes of its
    neighbours lead. The mean of each effect given h is then known to first order from the third derivatives, without
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
        over: the names of the hyperparameters; of up to six coordinates together there is no sampling, and of up to
            eight seldom.
        structure: of the precision of the effects: ``"dense"``; or ``"sparse"``, for hundreds to tens of
            thousands of them (``pip install "laplacebook[sparse]"``): below.
        kwargs: its keyword arguments.

    Returns:
        A :class:`NestedApproximation`.

    Raises:
        ValueError: ``over`` names no latent site, or leaves none; there is no such structure; the model has no
            hyperparameter; within a compiled program.
        UnsupportedModel: as :func:`~laplacebook.laplace` says, of a Hessian that should be sparse, too; the
            prior of a hyperparameter depends on an effect.
        NotConverged: the posterior of the hyperparameters has no mode, does not fall on all sides (so it
            may be improper), or is too rough for a grid; chains disagree (R-hat above 1.01), are worth fewer than
            400 draws, or more than a hundredth of their draws have diverged.
        LaplaceError: where the hyperparameters have some of their mass, the effects have no mode: as
            :func:`~laplacebook.laplace` says there.

    >>> import numpyro, numpyro.distributions as dist
    >>> def groups(y):
    ...     tau = numpyro.sample("tau", dist.HalfNormal(2))
    ...     with numpyro.plate("groups", y.size):
    ...         z = numpyro.sample("z", dist.Normal(0, tau))
    ...         numpyro.sample("y", dist.Normal(z, 1), obs=y)
    >>> nested(groups, np.array([2.0, -1.0, 0.5, -3.0]))
    Nested Laplace approximation of groups, D = 5
      site     mean      sd       5 %     95 %
      tau     1.699  0.8082    0.5549    3.179
      z[0]    1.337  0.9150  -0.07112    2.900
      z[1]  -0.6683  0.8429    -2.110   0.6489
      z[2]   0.3342  0.8239   -0.9917    1.726
      z[3]   -2.005   1.024    -3.710  -0.2948
      tau on a grid of 28 points, the others given each exactly Gaussian
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
    fit = _Search(density, names, structure).result()
    return fit if over is not None else _with_fixed_effect(fit, structure)


def _with_fixed_effect(fit: NestedApproximation, structure: str) -> NestedApproximation:
    """With the single effect in the grid that skewness moves farthest beside few hyperparameters, if that is better."""
    sites, (of_hyper, of_effects) = fit.density.sites, fit.effects.places
    of_site = np.repeat(np.arange(len(sites)), [site.size for site in sites])[of_effects]
    alone = np.array([site.size == 1 for site in sites])[of_site]
    shifts = np.where(alone, abs(fit.skewed.shifts), 0)
    if shifts.max() <= _FIXED.get(of_hyper.size, np.inf) or len(fit.effects.names) == 1:
        return fit
    beside = sites[of_site[np.argmax(shifts)]].name
    try:
        names = hyperparameters_of(fit.density, [*fit.over, beside])
        other = _Search(fit.density, names, structure).result()
    except LaplaceError:
        return fit  # with its own doubt, if it has one
    return fit if other.doubt_at_a_glance else other


class _Search(Refusals):
    """The steps of one call."""

    def __init__(self, density: ModelDensity, over: tuple[str, ...], structure: str) -> None:
        self.density = density
        self.structure = structure
        self.size = sum(site.size for site in density.sites if site.name in over)
        kind = SparseEffects if structure == "sparse" else Effects
        self.effects = kind(density, over, often=self.size not in SPACING)
        of_hyper, of_effects = self.effects.places
        start = np.asarray(middle(density), float)
        start = off_centre(start, np.full(start.shape, np.inf))
        self.start = start[of_hyper]
        self.known = KnownPoints(self.effects, start[of_effects])

    def result(self) -> NestedApproximation:
        grid = self._whole_grid() if self.size in SPACING else self._without_grid()
        law = skewed_by_shifts if self.structure == "sparse" else SkewedEffects.of
        skewed = law(self.effects, grid.conditional, grid.log_weights)
        grid = grid.corrected(skewed)
        skewed = skewed.corrected(grid.log_weights)
        return NestedApproximation(self.effects, grid, skewed, self.known.start)

    def _without_grid(self) -> Cloud | Chains:
        mode = self._mode()
        cloud = self._cloud(mode) if self.size in COARSE else None
        searches = _SEARCHES[self.structure]
        if cloud is not None and not other_modes(self.known, cloud, jax.random.key(0), searches):
            return cloud
        return self._chains(mode)

    def _chains(self, mode: OuterMode) -> Chains:
        """Draws by NUTS, with chains that begin at the mode and at those that other searches end at."""
        scale = np.linalg.norm(mode.axes, axis=1)
        self._require_tails(mode, scale)
        searches = _SEARCHES[self.structure]
        others = other_modes(self.known, Alone(mode), jax.random.key(0), searches)
        for other in others:
            self._require_effects(other)
        modes = sorted([mode, *others], key=lambda one: -one.height)
        run = run_chains(self.known, modes)
        if len(run.failed) > _RISK * run.points:
            raise self._no_effects(run.failed[0])
        if run.divergences > _DIVERGED * run.heights.size or not run.is_sound:
            raise self._no_agreement(run)
        return chains_of(self.known, run, modes[0])

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
            raise self._not_found(mode)
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

    def _whole_grid(self) -> Grid | Cloud:
        """A grid about the mode, and about those that other searches end at; or few points, where these tell it."""
        mode = self._mode()
        cloud = self._cloud(mode) if self.size in COARSE else None
        grid = self._grid(mode) if cloud is None else cloud
        searches = _SEARCHES[self.structure]
        others = other_modes(self.known, grid, jax.random.key(0), searches)
        if isinstance(grid, Grid):
            others += modes_on(self.known, grid)
        if not others:
            return grid if isinstance(grid, Cloud) else self._smooth(grid)
        for other in others:
            self._require_effects(other)
        modes = [mode, *others]
        held = together(modes)
        cells = sum(np.exp(one.log_volume - held.log_volume) for one in modes)
        grid = self._grid(mode) if isinstance(grid, Cloud) else grid
        if cells * len(grid.place) > self._most:
            raise self._not_held(modes)
        try:
            whole = self._smooth(self._grid(held, modes))
        except NotConverged as refused:
            raise self._not_held(modes) from refused
        if not all(whole.holds(one.point) for one in modes):
            raise self._not_held(modes)
        return whole

    def _cloud(self, mode: OuterMode) -> Cloud | None:
        cloud = interpolated(self.known, mode, np.array([mode.point, *self._seeds(mode)]))
        if cloud is not None:
            self._require_tails(mode, np.linalg.norm(mode.axes, axis=1))
        return cloud

    def _seeds(self, mode: OuterMode) -> np.ndarray:
        ways = np.concatenate([mode.axes.T, -mode.axes.T])
        far = np.append(_FAR, _FARTHER) if self.size == 1 else _FAR
        return np.asarray(mode.point + np.multiply.outer(far, ways).reshape(-1, self.size))

    def _grid(self, mode: OuterMode, others: Sequence[OuterMode] = ()) -> Grid:
        scale = np.linalg.norm(mode.axes, axis=1)
        at = partial(self.known.conditional, scale=scale)
        seeds = self._seeds(mode)
        spacing = SPACING[self.size]
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
