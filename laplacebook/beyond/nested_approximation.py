"""What ``nested`` returns: hyperparameters on a grid, or drawn, and effects as a mixture over that."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from os import PathLike
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Key

from laplacebook.base.one_thread import by_one_thread
from laplacebook.base.progress import progress
from laplacebook.base.pytrees import own_copy
from laplacebook.base.quick import in_full_precision
from laplacebook.beyond.by_draws import ByDraws
from laplacebook.beyond.chains import Chains
from laplacebook.beyond.cloud import Cloud
from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.dense_conditional import Conditional
from laplacebook.beyond.grid import Grid
from laplacebook.beyond.grid_moments import is_known, squares_of, unbounded
from laplacebook.beyond.hyper_marginals import (
    DENSE,
    HyperMarginal,
    hyper_marginals,
    plot_hyper_marginals,
    width_of,
)
from laplacebook.beyond.in_lanes import hyper_values
from laplacebook.beyond.known_points import between_nodes
from laplacebook.beyond.nested_doubts import MANY, doubt_of
from laplacebook.beyond.other_inner_modes import InnerModes, other_inner_modes
from laplacebook.beyond.saved_nested import save
from laplacebook.beyond.skewed_effects import SkewedEffects, systematic
from laplacebook.beyond.smooth_points import SmoothPoints, parts_of_draws, smooth_points
from laplacebook.beyond.sparse_conditional import SparseConditional
from laplacebook.fit.functions import average, require_levels, spread
from laplacebook.fit.summary import improper_evidence
from laplacebook.model.density import ModelDensity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROWS = 10  # of a printed approximation
_JOINT = 2048  # draws of all sites together, each with a fit of the effects
_SEARCHES = {Conditional: 8, SparseConditional: 4}  # for other modes of the effects
_TOGETHER = 2**23  # numbers of draws, at one time
_SEARCHED = 16  # draws of sparse effects, between which a progress bar moves


def _rows(number: int, each: int) -> list[slice]:
    """So many draws in parts of few numbers, of which each draw takes so many."""
    together = max(1, _TOGETHER // each)
    return [slice(begin, begin + together) for begin in range(0, number, together)]


@dataclass(frozen=True, repr=False)
class NestedApproximation(ByDraws):
    """A posterior whose hyperparameters h are integrated numerically, and the rest z by Laplace's method.

    p(h | D) is known at the points of a grid (of four to six coordinates at fewer points), and between them by a
    spline; p(z | D) is the mixture over the grid of the Gaussian approximations of z given h. Of seven or eight
    coordinates of h they are known at weighted points, z at up to 512 of these; of more at draws of NUTS, z at up to
    2,048. Each marginal of it has the shape of the log joint along the line on which this effect moves and the others
    follow with their conditional means, tilted by a slope for their determinant: the simplified Laplace approximation
    of Rue, Martino and Chopin (2009, section 3.2.3). Together the effects keep the Gaussian copula.

    Moments and quantiles of the hyperparameters are those of 8,192 weighted points that fill the cells of the grid or
    stand for what is interpolated, of up to 3,000 at which p(h | D) was computed, or of the draws of NUTS. Over a grid
    those of other sites without bounds are of the mixture itself; what else is told of these comes from 8,192
    draws (of more than 2,048 effects fewer) with a fixed key, in pairs to both sides, with a standard error of about a
    hundredth of the standard deviation (over weighted points and draws of NUTS :attr:`moment_error` says it). Of skewed
    effects :attr:`skewness_error` says what is to add.

    In the book: :eq:`hierarchical-marginal` of :doc:`/book/hierarchical`.

    Attributes:
        effects: the log joint, and the names of the hyperparameters.
        grid: the grid, and the effects at its points; or weighted points, or draws by NUTS, and those at some of them.
        skewed: how the effects given the hyperparameters differ from a Gaussian.
        start: of a search for the effects that has no neighbour, shape (d,).
    """

    effects: Effects
    grid: Grid | Cloud | Chains
    skewed: SkewedEffects
    start: np.ndarray

    @property
    def title(self) -> str:
        """What it is, in words."""
        return "Nested Laplace approximation"

    @property
    def density(self) -> ModelDensity:
        """The log joint that is approximated."""
        return self.effects.density

    @property
    def over(self) -> tuple[str, ...]:
        """The names of the hyperparameters."""
        return self.effects.over

    @property
    def log_evidence(self) -> float:
        """The log evidence, by the trapezoidal rule over a grid, by weighted points, or of draws by bridge sampling.

        Raises:
            NotConverged: bridge sampling did not settle.
        """
        return self.grid.log_evidence

    @property
    def moment_error(self) -> float:
        """The standard error of its means, in standard deviations, of draws of the hyperparameters."""
        by_number = super().moment_error
        return by_number if isinstance(self.grid, Grid) else max(by_number, self.grid.worth**-0.5)

    @property
    def skewness_error(self) -> float:
        """The standard error of its means by pairs of draws for the skewness, about; a diagnosis allows for none."""
        return float(np.hypot(self.skewed.error, self.skewed.evidence_error(self.grid.place)))

    @property
    def mean(self) -> dict[str, Array]:
        """Posterior means by site, on the scale on which the user wrote the model.

        NaN where a tail of the hyperparameters is so long that the outermost points of the grid still count.
        """
        if not isinstance(self.grid, Grid):
            return super().mean
        return self._moment(self.grid, 1, average)

    @property
    def standard_deviation(self) -> dict[str, Array]:
        """Posterior standard deviations by site, on the scale on which the user wrote the model.

        NaN as :attr:`mean`.
        """
        if not isinstance(self.grid, Grid):
            return super().standard_deviation
        return self._moment(self.grid, 2, spread)

    def quantiles(self, probabilities: ArrayLike | Sequence[float]) -> dict[str, Array]:
        """Marginal quantiles by site, as :class:`~laplacebook.Approximation` has them."""
        found = super().quantiles(probabilities)
        if not isinstance(self.grid, Grid):
            return found
        return self._with_mixture(found, self.skewed.quantiles(np.asarray(probabilities, float)))

    @by_one_thread
    def _draw(self, key: Key[Array, ""], number: int) -> Float[np.ndarray, "S D"]:
        uniform, order, normal = jax.device_get(parts_of_draws(key, number, self.start.size))
        index = self._points.drawn(float(uniform), number)
        hyper, normal = self._points.points[index[order]], normal.astype(float)
        u = np.empty((number, self.density.dimension))
        is_sparse = isinstance(self.grid.conditional, SparseConditional)
        held = max(self.effects.held, _TOGETHER // _SEARCHED if is_sparse else 0)
        with progress(number, None, unit="draw") as bar:
            for rows in _rows(number, held):
                given = between_nodes(self.effects, self.grid, self.start, hyper[rows])
                index = np.arange(len(given.mode))
                u[rows] = self.skewed.draws_given(given, index, normal[rows])
                bar.update(len(index))
        return u

    @in_full_precision
    def save(self, path: str | PathLike) -> None:
        """Write the numbers of the approximation to a file that :func:`~laplacebook.load` reads.

        Args:
            path: of the file, which is a NumPy ``.npz`` archive without pickled objects. The model
                and its data are not in it.
        """
        save(self, path)

    @property
    def pareto_k(self) -> float:
        """Pareto k-hat of the effects given the hyperparameters, of pairs of draws against the log joint.

        Minus infinity where they are exactly Gaussian; up to 0.8 (of sparse effects 0.7) the log marginal of the
        hyperparameters is corrected by the pairs.
        """
        return self.skewed.pareto_k

    @cached_property
    def marginals(self) -> tuple[HyperMarginal, ...]:
        """The posterior density of each hyperparameter, in the unconstrained space."""
        scale = np.linalg.norm(self.grid.mode.axes, axis=1)
        width = DENSE if isinstance(self.grid, Grid) else width_of(self.grid.worth)
        return hyper_marginals(self._hyper_names, *self._points[:2], scale, width)

    def plot(self, site: str | None = None, probability: float = 0.9) -> "Figure":
        """The posterior densities of the hyperparameters, in the unconstrained space; or of a site, by draws.

        Args:
            site: the name of one, of which a histogram or a band is drawn as ``plot`` of the others does.
            probability: of the interval of a band.

        Returns:
            The Matplotlib figure: the last value of a notebook's cell shows it, and ``savefig`` writes it to a file.

        Raises:
            ValueError: no such site, it has more than six numbers and is no vector, or ``probability`` not in (0, 1).
        """
        if site is None:
            return plot_hyper_marginals(self.marginals)
        return super().plot(site, probability)

    @by_one_thread
    def search_inner_modes(self, key: Key[Array, ""], searches: int) -> InnerModes | None:
        """Other modes of the effects, at points of the hyperparameters that stand for their posterior.

        Args:
            key: of the draws at which searches begin.
            searches: how many, one at each point.
        """
        at = self.grid.conditional
        drawn = systematic(self.grid.log_weights, searches)
        drawn[0] = np.argmax(at.log_marginal)
        return other_inner_modes(self.effects, at.at(drawn), self.start, key, searches)

    @cached_property
    def inner_modes(self) -> InnerModes | None:
        """Other modes of the effects that a few searches have found, of which nothing is counted."""
        return self.search_inner_modes(jax.random.key(0), _SEARCHES[type(self.grid.conditional)])

    @property
    def unseen(self) -> str | None:
        """What is known of modes elsewhere, by a diagnosis or a search that was made; or None."""
        searched = vars(self).get("inner_modes")
        return self._unseen or (None if searched is None else searched.told(self.effects))

    @property
    def doubt_at_a_glance(self) -> str | None:
        """What :attr:`doubt` says where no diagnosis was asked, or one said usable.

        That the effects given the hyperparameters have other modes with a hundredth of their mass or more, by a few
        searches. That a hundredth of their draws lies beyond a bound. That the skewness of an effect given the
        hyperparameters moves its mean by more than 0.75 of its conditional standard deviations from the mode: the
        correction for it is of first order, and not to be trusted so far. That the correction by mean ratios moves the
        mean or the standard deviation of a hyperparameter by more than half of one, or a quarter where :attr:`pareto_k`
        is above 0.75: then a few of the pairs of draws decide; or that it leaves the log evidence an error above 0.25.
        Or that :attr:`pareto_k` is above 0.8: the mean of the
        ratios hardly exists (unless all are equal to 10 %, as where rounding alone parts them). Below that it is no
        such reason by itself: it is of all effects together, so in hundreds of them small errors add up where each
        marginal is right. Of more than 500 sparse effects it is none above 0.8 either, but that a correction to second
        order, which is not made, would move the mean of a hyperparameter by more than a quarter of a standard
        deviation. Or that more than 3 % of the posterior of the hyperparameters lies beyond the grid, in long tails;
        or, of draws, that some have diverged.
        """
        if self.inner_modes is not None:
            return self.inner_modes.told(self.effects)
        moved = 0.0 if self._second_order is None else float(abs(self._second_order[0]).max())
        return doubt_of(self.effects, self.grid, self.skewed, moved)

    def _lines(self) -> list[str]:
        k, skewed, grid = self.skewed.pareto_k, self.skewed, self.grid
        return [
            f"{' and '.join(self.over)} {grid.told()}, the others given each "
            + ("exactly Gaussian" if k == -inf else f"by Laplace's method, Pareto k-hat {k:.2f}")
            + ("" if skewed.is_corrected or k == -inf else " (too high: not corrected)"),
            *self._told_second_order(),
            *(["no skewness of so many effects is kept, but for their means"] * skewed.is_shift),
            *grid.checks(skewed.evidence_error(grid.place)),
            *improper_evidence(self.density),
            *self._told_modes(),
        ]

    def _told_second_order(self) -> list[str]:
        if self._second_order is None:
            return []
        moved, raised = self._second_order
        name = self._hyper_names[np.argmax(abs(moved))]
        return [
            f"a correction to second order would move the mean of {name} by {abs(moved).max():.2f} standard "
            f"deviations, and the log evidence by {raised:+.2f}"
        ]

    def _told_modes(self) -> list[str]:
        if not isinstance(self.grid, Grid):
            return []
        peaks = self.grid.conditional.log_marginal[self.grid.peaks]
        higher = peaks[peaks > peaks.max() - 3]
        return [f"{len(higher)} modes on the grid, all counted"] if len(higher) > 1 else []

    @property
    def _hyper_names(self) -> list[str]:
        sites = [site for site in self.density.sites if site.name in self.over]
        return [name for site in sites for name in site.coordinate_names()]

    @cached_property
    def _second_order(self) -> tuple[Float[np.ndarray, " H"], float] | None:
        """What a correction to second order would do.

        By how many standard deviations it would move the means of h, and the log evidence by how much.
        """
        at, correction = self.grid.conditional, self.skewed.second_order(self.grid.place)
        if correction is None:
            return None
        logs = self.grid.log_weights + np.stack([np.zeros_like(correction), correction])
        sums = np.logaddexp.reduce(logs, axis=1)
        weights = np.exp(logs - sums[:, None])
        before, after = weights @ at.hyper
        spread = np.sqrt(weights[0] @ (at.hyper - before) ** 2)
        return (after - before) / spread, float(sums[1] - sums[0])

    def _moment(self, grid: Grid, power: int, function: Callable) -> dict[str, Array]:
        """Of hyperparameters where the grid tells it, of effects without bounds as the mixture has it."""
        *told, squares = self.skewed.moments
        moment = np.where(is_known(grid, squares, power), told[power - 1], np.nan)
        found = self._each(function)
        for name in self.over:
            is_told = is_known(grid, squares_of(grid, self._at_nodes[name]), power)
            found[name] = jnp.where(is_told, found[name], np.nan)
        return self._with_mixture(found, moment)

    @cached_property
    def _at_nodes(self) -> dict[str, np.ndarray]:
        """The sites beside the modes at the points of the grid, on the model's scale."""
        at = self.grid.conditional
        return self._values(self.effects.joined(at.hyper, at.mode + self.skewed.deviations))

    @cached_property
    def _without_bounds(self) -> dict[str, slice]:
        """The effects of which the mixture over a grid tells moments and quantiles."""
        if not isinstance(self.grid, Grid):
            return {}
        at = self.grid.conditional
        rest = [site for site in self.density.sites if site.name not in self.over]
        return unbounded(rest, at.mode + self.skewed.deviations, self._at_nodes)

    def _with_mixture(self, found: dict[str, Array], of_effects: np.ndarray) -> dict[str, Array]:
        """What is told of each site, with the numbers of the mixture, shape (..., d), of effects without bounds."""
        shapes = {site.name: site.value_shape for site in self.density.sites}
        for name, part in self._without_bounds.items():
            numbers = of_effects[..., part]
            found[name] = own_copy(numbers.reshape((*numbers.shape[:-1], *shapes[name])), float)
        return {name: found[name] for name in shapes}

    @cached_property
    def _of_hyper(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Weighted points of the hyperparameters on the model's scale."""
        points, weights, _ = self._points
        at = own_copy(points, float), own_copy(self.start, float)
        values = jax.device_get(hyper_values(self.density, self.over, *at))
        return {name: (values[name], weights) for name in self.over}

    @cached_property
    def _weighted(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Weighted draws of each site on the model's scale, in the order of the model."""
        equal = self._equal
        of_effects = {name: (drawn, equal) for name, drawn in self._values(self._draws).items()}
        both = of_effects | self._of_hyper
        return {site.name: both[site.name] for site in self.density.sites}

    @property
    def _told_by_draws(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Those of which the mixture tells nothing."""
        known = self._without_bounds
        if len(known) + len(self.over) == len(self.density.sites):
            return self._of_hyper
        return {name: drawn for name, drawn in self._weighted.items() if name not in known}

    def _require_levels(self, levels: Float[np.ndarray, " P"]) -> None:
        is_drawn = isinstance(self.grid, Chains)
        require_levels(levels, self._joint[1] if is_drawn else self._equal)

    @cached_property
    def _joint(self) -> tuple[np.ndarray, np.ndarray]:
        if self.start.size > MANY:  # of so many each fit takes too long
            u = self._draws
        else:
            u = np.asarray(self.sample_vector(jax.random.key(0), (_JOINT,)), float)
        return u, np.full(len(u), 1 / len(u))

    @cached_property
    def _points(self) -> SmoothPoints:
        return smooth_points(self.grid) if isinstance(self.grid, Grid) else self.grid.points

    @cached_property
    @by_one_thread
    def _draws(self) -> Float[np.ndarray, "S D"]:
        return self.skewed.draws()

    @property
    def _equal(self) -> Float[np.ndarray, " S"]:
        number = 2 * self.skewed.pairs
        return np.full(number, 1 / number)
