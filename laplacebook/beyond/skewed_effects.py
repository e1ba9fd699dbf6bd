"""Draws of the effects given the hyperparameters, with the skewness that the log joint has."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Real

from laplacebook.base.weights import of_heavy_tail, pareto_k
from laplacebook.beyond.along_lines import FINE, FLOOR, Lines, image_of, interpolated, nearest
from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.dense_conditional import AnyConditional
from laplacebook.beyond.fitted_log_mean import (
    fitted_log_mean,
    moved,
    polynomial,
    shares,
    standardized,
)
from laplacebook.beyond.grid_moments import mixture_moments, moments_of_images
from laplacebook.beyond.grid_quantiles import mixture_quantiles
from laplacebook.beyond.tilts import NormalVectors, has_fallen, tilts

PAIRS = 4096
_HELD, _FEWEST_PAIRS = 2**23, 256  # numbers of all pairs of draws: fewer of many effects
TOGETHER = 16  # of them at one point of the hyperparameters
LINES = 2048  # along which the log joint is followed, of all effects together
FEWEST, MOST = 4, 32  # points of the hyperparameters at which it is
HOPELESS = 0.8  # k-hat: effects of single binary outcomes, none near a Gaussian, have 0.9
_LOWEST = np.log(0.1)  # of a mean ratio: less is noise
_FAR = 0.15  # standard deviations of h: where the correction moves less, the first pairs are where it leads
_EVENER = 0.5  # power of the weights by which others are spread: the edge of the mass matters to a polynomial
_CUBIC = 2  # coordinates
_FEW = 6  # coordinates: of more a whole quadratic function would have a term for every few pairs
ROUNDING = 1e-3  # nats: a Gaussian has no more


@dataclass(frozen=True)
class SkewedEffects:
    """How the marginal of each effect given the hyperparameters differs from a normal one.

    Along the line on which effect i moves and the others follow with their conditional means, the log joint is
    -x^2/2 + r(x), x in standard deviations from the mode; the determinant of the others adds a slope, to
    first order (Rue, Martino and Chopin 2009, section 3.2.3, their simplified Laplace approximation). The
    slope is that which the log joint has at pairs of draws to both sides of the mode, less that along the
    line; pairs of which one has next to no density tell none, nor does a line that meets a bound. Together draws
    keep the Gaussian copula: each normal number x goes to the quantile of the skewed marginal at its own
    probability.

    Attributes:
        effects: the log joint.
        nodes: the effects' Gaussian approximations at K points of the hyperparameters.
        chosen: of which of them the lines are, shape (J,).
        image: of G normal numbers at equal distances from -6 to 6, for each of these and each effect, shape
            (J, d, G), of a shift alone G = 2; None where the log joint is Gaussian given the hyperparameters.
        index: at which of the points each pair of draws is, shape (P,): of the first 4,096 as often as its weight
            says, and others where the correction leads.
        log_ratios: of each pair, the logarithm of the mean of p over q at both, shape (P,).
        expansion: of that logarithm to second order, a value with the same mean for each pair, shape (P,);
            None where the mean of ratios serves, or it is not known.
        outside: the share of the draws that lie beyond a bound that some effect meets.
        error: the standard error of the means of the effects by the number of pairs, in standard deviations.
    """

    effects: Effects
    nodes: AnyConditional
    chosen: Int[np.ndarray, " J"]
    image: Float[np.ndarray, "J d G"] | None
    index: Int[np.ndarray, " P"]
    log_ratios: Float[np.ndarray, " P"]
    expansion: Float[np.ndarray, " P"] | None = None
    outside: float = 0.0
    error: float = 0.0

    @classmethod
    def of(
        cls, effects: Effects, nodes: AnyConditional, log_weights: Float[np.ndarray, " K"]
    ) -> "SkewedEffects":
        """Looked at where the nodes have their mass.

        Args:
            effects: the log joint.
            nodes: the approximations at the points of a grid, or at draws.
            log_weights: of the nodes, shape (K,): of a grid the log marginal.
        """
        order = np.lexsort(nodes.hyper.T)
        picked = order[systematic(log_weights[order], PAIRS // TOGETHER)]
        index = np.repeat(picked, TOGETHER)
        ratios, odd, offset, normal = pairs_at(effects, nodes, picked, 0)
        if max(abs(ratios).max(), abs(odd).max()) < ROUNDING:
            return cls(effects, nodes, index[:0], None, index, np.zeros(PAIRS))
        number = int(np.clip(LINES // offset.shape[1], FEWEST, MOST))
        chosen = np.unique(order[systematic(log_weights[order], number)])
        residuals, cliffs = Lines.of(effects, nodes.at(chosen))
        near = nearest(nodes.hyper[chosen], nodes.hyper)[index]
        bounded = cliffs.any(axis=0)
        sides = has_fallen(ratios, odd)
        whole = ~sides.any(axis=0)  # where one of a pair has no density they tell no slope
        is_whole = bool(whole.all())
        some = slice(None) if is_whole else whole
        pairs = index[some], offset[some], odd[some], residuals, near[some]
        slope, error = tilts(nodes, nodes.deviations, *pairs, normal if is_whole else None)
        slope[bounded] = 0
        images = np.stack([image_of(one, slope) for one in residuals])
        outside = float(sides.mean()) if bounded.any() else 0.0
        found = cls(effects, nodes, chosen, images, index, ratios, None, outside, error)
        return found.led_on(log_weights, lambda picked: pairs_at(effects, nodes, picked, 1)[0])

    def led_on(
        self,
        log_weights: Float[np.ndarray, " K"],
        ratios_at: Callable[[Int[np.ndarray, " n"]], Float[np.ndarray, " P"]],
    ) -> "SkewedEffects":
        """The same, with as many pairs again where the correction leads, if that is far.

        The first lie where the log marginal without it has its mass, and few of them where it has it then.

        Args:
            log_weights: of the nodes, shape (K,).
            ratios_at: the log ratios of the pairs at some nodes.
        """
        hyper = self.nodes.hyper
        places = standardized(hyper, log_weights)
        corrected = log_weights + self.correction(places)
        if moved(places, corrected) <= _FAR:
            return self
        order = np.lexsort(hyper.T)
        picked = order[systematic(_EVENER * corrected[order], PAIRS // TOGETHER)]
        return replace(
            self,
            index=np.concatenate([self.index, np.repeat(picked, TOGETHER)]),
            log_ratios=np.concatenate([self.log_ratios, ratios_at(picked)]),
        )

    @cached_property
    def deviations(self) -> Float[np.ndarray, "K d"]:
        """Those of the nodes."""
        return self.nodes.deviations

    @cached_property
    def pareto_k(self) -> float:
        """Pareto k-hat of the first pairs as importance weights of all effects given the hyperparameters."""
        return pareto_k(self.log_ratios[:PAIRS])

    @property
    def is_shift(self) -> bool:
        """Whether each marginal given the hyperparameters is Gaussian about a mean beside the mode."""
        return self.image is not None and self.image.shape[-1] == 2

    @cached_property
    def shifts(self) -> Float[np.ndarray, " d"]:
        """How far the mean of each effect is from its mode given the hyperparameters, over these.

        In conditional standard deviations.
        """
        if self.image is None:
            return np.zeros(self.nodes.mode.shape[1])
        return moments_of_images(self.image)[0].mean(axis=0)

    @cached_property
    def moments(self) -> tuple[np.ndarray, ...]:
        """What :func:`mixture_moments` returns."""
        near = None if self.image is None else self._near(self.nodes)
        return mixture_moments(self.nodes, self.deviations, self.image, near)

    def quantiles(self, levels: Float[np.ndarray, " P"]) -> Float[np.ndarray, "P d"]:
        """What :func:`mixture_quantiles` returns."""
        near = None if self.image is None else self._near(self.nodes)
        return mixture_quantiles(self.nodes, self.deviations, self.image, near, levels)

    @property
    def pairs(self) -> int:
        """Of how many pairs :meth:`draws` are."""
        return int(np.clip(_HELD // self.nodes.mode.shape[1], _FEWEST_PAIRS, PAIRS))

    @property
    def is_corrected(self) -> bool:
        """Whether the log marginal of the hyperparameters is."""
        known = self.image is not None and self.expansion is None
        return known and bool(self.pareto_k <= HOPELESS)

    def evidence_error(self, places: Real[np.ndarray, "K H"]) -> float:
        """The standard error of the log evidence by the number of pairs that correct it.

        Args:
            places: of the nodes, shape (K, H).
        """
        if not self.is_corrected:
            return 0.0
        here, there = self._terms(places, places)
        left = np.exp(self.log_ratios - self.correction(places)[self.index])
        of_pairs = np.linalg.lstsq(here.T, shares(self.nodes.log_marginal) @ there, rcond=None)[0]
        wider = of_heavy_tail(self.pareto_k, len(left))
        return float(wider * left.std() * np.linalg.norm(of_pairs))

    @cached_property
    def led(self) -> float:
        """How far the correction moves a mean or a standard deviation of the hyperparameters, in these."""
        after = self.nodes.log_marginal
        places = standardized(self.nodes.hyper, after)
        before = after - self.correction(places)
        return moved(standardized(self.nodes.hyper, before), after)

    def correction(
        self, places: Real[np.ndarray, "K H"], at: Real[np.ndarray, "P H"] | None = None
    ) -> Float[np.ndarray, " P"]:
        """What to add to the log marginal of each point: the logarithm of the mean ratio of its pairs.

        As a polynomial of the place, fitted to the ratios of all pairs, so that it has little noise: of one or two
        coordinates cubic, of up to six quadratic, of more without products of two of them. Beyond the middle 98 % of
        the pairs it is that at the edge. Zero where the ratios have too heavy a tail for a mean (a k-hat above 0.8;
        above 0.7 where :attr:`expansion` is known).

        Args:
            places: of the nodes, as on a grid, shape (K, H).
            at: places of other points, shape (P, H); by default those of the nodes.
        """
        at = places if at is None else at
        if not self.is_corrected:
            return np.zeros(len(at))
        here, there = self._terms(places, at)
        return np.maximum(there @ fitted_log_mean(here, self.log_ratios), _LOWEST)

    def second_order(self, places: Real[np.ndarray, "K H"]) -> Float[np.ndarray, " K"] | None:
        """That logarithm by its expansion to second order, fitted likewise, where it is zero in :meth:`correction`.

        Its terms are sums over the effects, which a ratio is not. None where it is not known.

        Args:
            places: of the nodes, shape (K, H).
        """
        if self.expansion is None:
            return None
        here, there = self._terms(places, places)
        return there @ np.linalg.lstsq(here, self.expansion, rcond=None)[0]

    def _terms(
        self, places: Real[np.ndarray, "K H"], at: Real[np.ndarray, "Q H"]
    ) -> tuple[Float[np.ndarray, "P T"], Float[np.ndarray, "Q T"]]:
        """Of a function of the place: at the pairs, and at other points, beyond most pairs at the edge."""
        low, high = np.quantile(places[self.index], [0.01, 0.99], axis=0)
        here, there = (_polynomial(np.clip(x, low, high)) for x in (places, at))
        return here[self.index], there

    def corrected(self, log_weights: Float[np.ndarray, " K"]) -> "SkewedEffects":
        """The same, with these log weights of its nodes."""
        return replace(self, nodes=self.nodes._replace(log_marginal=log_weights))

    def draws(self) -> Float[np.ndarray, "S D"]:
        """Of all coordinates, 8,192 of equal weight, or fewer of many, with hyperparameters at the nodes."""
        order, size = np.lexsort(self.nodes.hyper.T), self.nodes.mode.shape[1]
        index = order[systematic(self.nodes.log_marginal[order], self.pairs)]
        normal = np.random.default_rng(1).standard_normal((self.pairs, size))
        offset = self.nodes.offsets(index, normal)
        # Of a mixture of unequal spreads chance takes too much or too little: its variance is known.
        deviations = self.deviations[index]
        offset *= np.sqrt(np.mean(deviations**2, axis=0) / np.mean(offset**2, axis=0))
        sides = [self._at(self.nodes, index, way * offset, deviations) for way in (1, -1)]
        return np.concatenate(sides)

    def draws_given(
        self, given: AnyConditional, index: Int[np.ndarray, " S"], normal: Float[np.ndarray, "S d"]
    ) -> Float[np.ndarray, "S D"]:
        """S draws of the effects.

        Args:
            given: the Gaussian approximations at K points of the hyperparameters.
            index: at which of them each draw is, shape (S,).
            normal: standard normal vectors, one for each draw, shape (S, d).
        """
        return self._at(given, index, given.offsets(index, normal), given.deviations[index])

    def log_densities(
        self, given: AnyConditional, index: Int[np.ndarray, " S"], offset: Float[np.ndarray, "S d"]
    ) -> Float[np.ndarray, "K S"]:
        """Of the Gaussian, and of the law of :meth:`draws_given` if that is another, so far from the modes.

        Args:
            given: the Gaussian approximations at some points of the hyperparameters.
            index: at which of them each point is, shape (S,).
            offset: of each point from the mode, shape (S, d).
        """
        gaussian = _log_gaussian(given, index, offset)
        if self.image is None:
            return gaussian[None]
        deviations = given.deviations[index]
        x, log_slopes = offset / deviations, np.zeros(len(offset))
        if self.is_shift:
            skewed = offset - self._shift(given, index) * deviations
            return np.stack([gaussian, _log_gaussian(given, index, skewed)])
        for j, i, rows in _parts(self._near(given)[index], x):
            image, y = self.image[j, i], x[rows, i]
            k = np.clip(np.searchsorted(image, y) - 1, 0, len(image) - 2)
            slopes = np.maximum(np.diff(image), np.finfo(float).tiny) / np.diff(FINE)
            log_slopes[rows] += np.log(slopes[k])
            log_slopes[rows[(y < image[0]) | (y > image[-1])]] = np.inf  # where it has no draws
            x[rows, i] = np.interp(y, image, FINE)
        skewed = _log_gaussian(given, index, x * deviations) - log_slopes
        return np.stack([gaussian, skewed])

    def _shift(self, given: AnyConditional, index: np.ndarray) -> Float[np.ndarray, "S d"]:
        assert self.image is not None
        return self.image[self._near(given)[index], :, 0] - FINE[0]

    def _near(self, given: AnyConditional) -> Int[np.ndarray, " K"]:
        return nearest(self.nodes.hyper[self.chosen], given.hyper)

    def _at(
        self, given: AnyConditional, index: np.ndarray, offset: np.ndarray, deviations: np.ndarray
    ) -> np.ndarray:
        """The draws that lie so far from the modes by the Gaussian, with their skewness."""
        if self.is_shift:
            offset = offset + self._shift(given, index) * deviations
        elif self.image is not None:
            x, near = offset / deviations, self._near(given)[index]
            for j in np.unique(near):
                x[near == j] = interpolated(self.image[j], x[near == j])
            offset = x * deviations
        return self.effects.joined(given.hyper[index], given.mode[index] + offset)


def _polynomial(x: Float[np.ndarray, "K H"]) -> Float[np.ndarray, "K T"]:
    """The terms of a cubic function of few coordinates, of more of a quadratic, of many without their products."""
    size = x.shape[1]
    if size <= _FEW:
        return polynomial(x, 3 if size <= _CUBIC else 2)
    return np.concatenate([np.ones((len(x), 1)), x, x**2], axis=1)


def pairs_at(
    effects: Effects, nodes: AnyConditional, picked: Int[np.ndarray, " n"], seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, NormalVectors]:
    """What :func:`ratios_of` says of pairs at some nodes, how far they are from the modes, and their normal vectors.

    Args:
        effects: the log joint.
        nodes: the Gaussian approximations at K points of the hyperparameters.
        picked: which of them, 16 pairs for each, shape (n,).
        seed: of the draws.
    """
    index = np.repeat(picked, TOGETHER)
    normal = NormalVectors.of(len(index), nodes.mode.shape[1], seed)
    offset = nodes.offsets(index, normal.rows)
    away = offset.reshape(len(picked), TOGETHER, -1)
    middle = nodes.mode[picked][:, None]
    points = np.empty((len(picked), 2 * TOGETHER, middle.shape[2]), jnp.result_type(float))
    np.add(middle, away, out=points[:, :TOGETHER], casting="same_kind")
    np.subtract(middle, away, out=points[:, TOGETHER:], casting="same_kind")
    heights = effects.log_joint(nodes.hyper[picked], points)
    squares = np.einsum("ij,ij->i", normal.rows, normal.rows)
    return *ratios_of(nodes, index, squares, heights), offset, normal


def ratios_of(
    nodes: AnyConditional, index: np.ndarray, squares: np.ndarray, heights: np.ndarray
) -> tuple[Float[np.ndarray, " P"], Float[np.ndarray, " P"]]:
    """Of pairs of draws the logarithm of the mean of p over q at both, and half of the difference of log p.

    Args:
        nodes: the Gaussian approximations at K points of the hyperparameters.
        index: at which of them each pair is, shape (P,).
        squares: of the length of the normal vector of each pair, shape (P,).
        heights: the log joint at the pairs of one point: first to one side, then to the other.
    """
    up, down = heights[:, :TOGETHER].ravel(), heights[:, TOGETHER:].ravel()
    volume = nodes.log_roots - nodes.mode.shape[1] / 2 * np.log(2 * np.pi)
    log_q = (nodes.log_marginal + volume)[index] - squares / 2
    with np.errstate(invalid="ignore"):
        ratios = np.nan_to_num(np.logaddexp(up, down) - np.log(2) - log_q, nan=-np.inf)
        odd = np.nan_to_num((up - down) / 2, nan=0.0, posinf=-FLOOR, neginf=FLOOR)
    return ratios, odd


def systematic(logs: np.ndarray, number: int) -> Int[np.ndarray, " P"]:
    """So many indices, each as often as its weight says, up to one."""
    mass = np.cumsum(np.exp(logs - logs.max()))
    places = (np.arange(number) + 0.5) / number * mass[-1]
    return np.minimum(np.searchsorted(mass, places), len(logs) - 1)


def _log_gaussian(nodes: AnyConditional, index: np.ndarray, offset: np.ndarray) -> np.ndarray:
    volume = nodes.log_roots[index] - offset.shape[1] / 2 * np.log(2 * np.pi)
    return volume - nodes.squares(index, offset) / 2


def _parts(near: np.ndarray, x: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
    """Of each chosen point and each effect, the rows that are nearest to that point."""
    for j in np.unique(near):
        rows = np.flatnonzero(near == j)
        for i in range(x.shape[1]):
            yield j, i, rows
