"""The exact density along the principal axes of an approximation."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.many_points import at_many
from laplacebook.base.pytrees import on_host
from laplacebook.base.weights import defined
from laplacebook.curvature.eigenvalues import ritz
from laplacebook.fit.log_joints import log_joints, searches_together
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.model.density import ModelDensity

_REACH = 6  # standard deviations to both sides
_POINTS = 241  # on each axis
_DIGITS = 4  # of a correlation that matter; it keeps rounding from turning axes of equal length
DENSE = 2000  # coordinates of which all correlations are computed
_LANCZOS = 60  # products with the correlations of more
_NAMED = 3  # coordinates in the name of an axis, at most
_SHARE = 0.9  # of the length of an axis that its name should cover
INTERVAL = 1.6448536269514722  # standard deviations to both sides: 90 % of a normal number


@dataclass(frozen=True)
class Slice:
    """The density on a line through the mode, where the approximation is a standard normal.

    Attributes:
        axis: the coordinates along which the line runs, such as ``"a - b"``, those of most weight
            first.
        t: the distance from the mode, in standard deviations of q along the line, shape (G,).
        density: the exact density at t, normalised over the line, shape (G,).
        scale: of a coordinate that alone decides a number of a site, that number at the quantiles of 5, 50
            and 95 % of the density and at those of the approximation, shape (6,); None: t itself.
        spread_of_number: of that number the standard deviation under the density and under the approximation, both
            cut ten nats below their highest, shape (2,); None: that of t.
    """

    axis: str
    t: Float[np.ndarray, " G"] = field(repr=False)
    density: Float[np.ndarray, " G"] = field(repr=False)
    scale: Float[np.ndarray, "6"] | None = field(default=None, repr=False)
    spread_of_number: Float[np.ndarray, "2"] | None = field(default=None, repr=False)

    @property
    def mean(self) -> float:
        """Of t; 0 under the approximation."""
        return self._moment(1, 0.0)

    @property
    def standard_deviation(self) -> float:
        """Of t; 1 under the approximation."""
        return self._moment(2, self.mean) ** 0.5

    @property
    def skewness(self) -> float:
        """The third central moment over the cube of the standard deviation; 0 of a Gaussian."""
        with np.errstate(divide="ignore", invalid="ignore"):  # of a density between two points
            return float(np.divide(self._moment(3, self.mean), self.standard_deviation**3))

    @property
    def ends(self) -> Float[np.ndarray, "6"]:
        """Quantiles of 5, 50 and 95 % of t, of the density and then of the approximation."""
        middles = (self.density[1:] + self.density[:-1]) / 2
        below = np.concatenate([[0], np.cumsum(middles * np.diff(self.t))])
        quantiles = np.interp([0.05, 0.5, 0.95], below, self.t)
        return np.concatenate([quantiles, [-INTERVAL, 0, INTERVAL]])

    @property
    def is_known(self) -> bool:
        """Whether there is a density at all."""
        return bool(np.isfinite(self.mean))

    @property
    def median_off(self) -> float:
        """How far the median of the approximation is off, in standard deviations as the exact interval tells them."""
        return _median_off(self.ends if self.scale is None else self.scale)

    @property
    def width_ratio(self) -> float:
        """The width of the central 90 % interval of the approximation over that of the density."""
        return _width_ratio(self.ends if self.scale is None else self.scale)

    @property
    def spread_ratio(self) -> float:
        """The standard deviation of the approximation over that of the density."""
        if self.spread_of_number is None:
            return 1 / self.standard_deviation
        exact, ours = self.spread_of_number
        return float(ours / exact)

    @property
    def held(self) -> float:
        """The share of it within the central 90 % interval of the approximation."""
        return self.mass(INTERVAL)

    def mass(self, reach: float) -> float:
        """Of the interval from -reach to reach, whose mass is known under the approximation."""
        inside = np.linspace(-reach, reach, _POINTS)
        density = np.interp(inside, self.t, self.density, left=0, right=0)
        return float(np.trapezoid(density, inside))

    def _moment(self, order: int, center: float) -> float:
        return float(np.trapezoid((self.t - center) ** order * self.density, self.t))


@dataclass(frozen=True)
class Number:
    """A number of a site that several coordinates decide: its marginal, as weighted draws tell it.

    Attributes:
        axis: its name.
        scale: its quantiles of 5, 50 and 95 %, and then those under the approximation, shape (6,).
        held: the share of it within the central 90 % interval of the approximation.
        spread_of_number: its standard deviation, and that under the approximation, shape (2,).
    """

    axis: str
    scale: Float[np.ndarray, "6"] = field(repr=False)
    held: float
    spread_of_number: Float[np.ndarray, "2"] = field(repr=False)
    is_known: ClassVar[bool] = True

    @property
    def median_off(self) -> float:
        """As of a :class:`Slice`."""
        return _median_off(self.scale)

    @property
    def width_ratio(self) -> float:
        """As of a :class:`Slice`."""
        return _width_ratio(self.scale)

    @property
    def spread_ratio(self) -> float:
        """As of a :class:`Slice`."""
        exact, ours = self.spread_of_number
        return float(ours / exact)


def _median_off(ends: Float[np.ndarray, "6"]) -> float:
    low, middle, high, _, ours, _ = ends
    return float((ours - middle) / abs(high - low) * 2 * INTERVAL)


def _width_ratio(ends: Float[np.ndarray, "6"]) -> float:
    low, _, high, from_, _, to = ends
    return float((to - from_) / (high - low))


def principal_slices(
    approx: LaplaceApproximation, most: int, progress_bar: bool | None = None
) -> tuple[Slice, ...]:
    """The density along the principal axes of q, six standard deviations to both sides of the mode.

    The axes are those of the coordinates scaled to unit variance, so that units do not matter: the
    eigenvectors of the correlation matrix of q. Of more than 2,000 coordinates half of them are found by 60
    products with that matrix, and the others are single coordinates, the least known of the largest sites.

    Args:
        approx: the approximation.
        most: how many axes at most, the longest.
        progress_bar: as in :func:`~laplacebook.importance_sampling`.

    Returns:
        The slices, by falling length of their axes.

    Raises:
        NonFinite: the log joint is NaN on one of the lines.
    """
    directions, names = _principal_axes(approx, most)
    t = np.linspace(-_REACH, _REACH, _POINTS)
    along = np.kron(np.eye(len(names)), t[:, None]).astype(approx.mode_vector.dtype)
    directions = directions.astype(along.dtype)
    if searches_together(approx.density):
        points = np.asarray(approx.mode_vector) + along @ directions
        values = log_joints(approx.density, points, progress_bar)
    else:
        operands = approx.density, approx.mode_vector, directions
        values = at_many(_log_joint_along, operands, along, progress_bar)
    values = defined(values, approx.density.name, "points on the principal axes")
    rows = np.asarray(values, float).reshape(len(names), -1)
    return tuple(Slice(name, t, _normalised(t, row)) for name, row in zip(names, rows, strict=True))


def _log_joint_along(
    density: ModelDensity, mode: Array, directions: Array, distance: Array
) -> Array:
    return density.log_joint(mode + distance @ directions)


def _normalised(t: np.ndarray, log_density: np.ndarray) -> np.ndarray:
    density = np.exp(log_density - log_density.max())
    return density / np.trapezoid(density, t)


def _principal_axes(approx: LaplaceApproximation, most: int) -> tuple[np.ndarray, list[str]]:
    """Steps of one standard deviation of q along the longest axes, shape (K, D), and their names."""
    find = _some_axes if approx.density.dimension > DENSE else _axes
    deviations, vectors = find(approx, most)
    vectors *= np.array([[np.sign(v[_heaviest(v)[0]])] for v in vectors])
    steps = vectors * deviations
    images = np.array([on_host(approx.precision).matvec(step) for step in steps])
    lengths = np.sqrt(np.sum(images * steps, axis=1))
    coordinates = approx.density.coordinate_names()
    return steps / lengths[:, None], [_name(v, coordinates) for v in vectors]


def _axes(approx: LaplaceApproximation, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Standard deviations of q, and the eigenvectors of its correlations in rows, the longest first."""
    covariance = np.asarray(approx.covariance, float)
    deviations = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(deviations, deviations)
    return deviations, np.linalg.eigh(np.round(correlation, _DIGITS))[1].T[::-1][:most]


def _some_axes(approx: LaplaceApproximation, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The same where all correlations would be too many: half of the axes, and the least known coordinates.

    The axes are those of Lanczos; the coordinates are the ones of the largest standard deviations in each of the
    largest sites, since along a mixture of thousands everything looks like a Gaussian.
    """
    precision, density = on_host(approx.precision), approx.density
    deviations = np.sqrt(np.asarray(precision.diagonal_of_inverse(), float))

    def product(v: np.ndarray) -> np.ndarray:
        """C v with the correlations C = S A^-1 S, of which 1 / S are the standard deviations."""
        return precision.solve(v / deviations) / deviations

    axes = ritz(product, deviations, _LANCZOS)[1][::-1][: most - most // 2]
    ends = np.cumsum([site.size for site in density.sites])
    sites = sorted(zip(density.sites, ends, strict=True), key=lambda one: -one[0].size)[: most // 2]
    least = [
        (end - site.size + np.argsort(-deviations[end - site.size : end]))[
            : most // 2 // len(sites)
        ]
        for site, end in sites
    ]
    units = np.zeros((sum(map(len, least)), deviations.size))
    units[np.arange(len(units)), np.concatenate(least)] = 1
    # Where all eigenvalues are alike there are fewer directions than steps.
    return deviations, np.concatenate([axes[np.any(axes, axis=1)], units])


def _heaviest(vector: np.ndarray) -> np.ndarray:
    """The coordinates by falling weight; of equal ones the first is first."""
    return np.argsort(-np.round(np.abs(vector), _DIGITS), kind="stable")


def _name(vector: np.ndarray, coordinates: Sequence[str]) -> str:
    """The coordinates that make up a unit vector, with their signs."""
    order = _heaviest(vector)
    covered = np.cumsum(vector[order] ** 2)
    number = int(np.searchsorted(covered, _SHARE)) + 1
    first, *rest = order[: min(number, _NAMED)]
    signed = [f"{'+' if vector[i] > 0 else '-'} {coordinates[i]}" for i in rest]
    more = ["..."] if number > _NAMED else []
    return " ".join([coordinates[first], *signed, *more])
