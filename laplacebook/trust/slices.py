"""The exact density along the principal axes of an approximation."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.many_points import at_many
from laplacebook.base.weights import defined
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.model.density import ModelDensity

_REACH = 6  # standard deviations to both sides
_POINTS = 241  # on each axis
_DIGITS = 4  # of a correlation that matter; it keeps rounding from turning axes of equal length
_NAMED = 3  # coordinates in the name of an axis, at most
_SHARE = 0.9  # of the length of an axis that its name should cover


@dataclass(frozen=True)
class Slice:
    """The density on a line through the mode, where the approximation is a standard normal.

    Attributes:
        axis: the coordinates along which the line runs, such as ``"a - b"``, those of most weight
            first.
        t: the distance from the mode, in standard deviations of q along the line, shape (G,).
        density: the exact density at t, normalised over the line, shape (G,).
    """

    axis: str
    t: Float[np.ndarray, " G"] = field(repr=False)
    density: Float[np.ndarray, " G"] = field(repr=False)

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
        return self._moment(3, self.mean) / self.standard_deviation**3

    def mass(self, reach: float) -> float:
        """Of the interval from -reach to reach, whose mass is known under the approximation."""
        inside = np.linspace(-reach, reach, _POINTS)
        density = np.interp(inside, self.t, self.density, left=0, right=0)
        return float(np.trapezoid(density, inside))

    def _moment(self, order: int, center: float) -> float:
        return float(np.trapezoid((self.t - center) ** order * self.density, self.t))


def principal_slices(
    approx: LaplaceApproximation, most: int, progress_bar: bool | None = None
) -> tuple[Slice, ...]:
    """The density along the principal axes of q, six standard deviations to both sides of the mode.

    The axes are those of the coordinates scaled to unit variance, so that units do not matter: the
    eigenvectors of the correlation matrix of q.

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
    operands = (approx.density, approx.mode_vector, directions.astype(along.dtype))
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
    covariance = np.asarray(approx.covariance, float)
    deviations = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(deviations, deviations)
    vectors = np.linalg.eigh(np.round(correlation, _DIGITS))[1].T[::-1][:most]
    vectors *= np.array([[np.sign(v[_heaviest(v)[0]])] for v in vectors])
    steps = vectors * deviations
    lengths = np.sqrt(np.sum(steps @ np.asarray(approx.precision.matrix, float) * steps, axis=1))
    coordinates = approx.density.coordinate_names()
    return steps / lengths[:, None], [_name(v, coordinates) for v in vectors]


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
