"""The mode of the hyperparameters, and the curvature there: where a grid is laid."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

_STEP = 0.1  # standard deviations: of differences
_ROUNDS = 60
_FAR = 3.0  # standard deviations: a longer step is tried shorter, too
_LEVEL = 1.0  # nats to be gained, by curvatures as large as these: from here a ridge is followed
_NEAR = 1e-3  # nats below the maximum: a grid needs no more
_LENGTHS = np.array([1, 0.5, 0.2, 0.05, 0.01])  # of a step of _FAR at most, all tried at once
_LONGER = np.array([1, 0.75, 0.5, 0.25])  # powers, from such a step to the whole of Newton's
_FLAT = 1e-2  # of the largest curvature
_IN_SCALE = 0.1, 10.0  # of a curvature in units of the scale: else differences may be rounding
_NEARBY = 4.0  # standard deviations: another search would end at the same mode
_WIDER = 5.0  # than the last scale: so the search sees what it stands before

Heights = Callable[[np.ndarray, np.ndarray], np.ndarray]


class OuterMode(NamedTuple):
    """Where the log marginal has its maximum.

    Attributes:
        point: h there, shape (H,).
        height: the log marginal.
        axes: of the inverse curvature, as the columns of a square root of it, shape (H, H).
        found: whether it is a maximum; else where the search stood.
        way: the direction in which it was going, shape (H,).
        failed: a point beside it at which the log marginal is not finite, if the search stood before one.
    """

    point: np.ndarray
    height: float
    axes: np.ndarray
    found: bool
    way: np.ndarray
    failed: np.ndarray | None = None

    @property
    def log_volume(self) -> float:
        """The logarithm of the determinant of the axes."""
        return float(np.linalg.slogdet(self.axes)[1])

    @property
    def log_mass(self) -> float:
        """The logarithm of the integral about the mode, by Laplace's method."""
        return self.height + self.log_volume + len(self.point) / 2 * np.log(2 * np.pi)

    def least_width(self, other: "OuterMode") -> float:
        """Of another mode in some direction, in the standard deviations of this one there."""
        return float(np.linalg.norm(np.linalg.solve(self.axes, other.axes), -2))

    def is_near(self, hyper: Float[np.ndarray, " H"]) -> bool:
        """Whether h lies some standard deviations from it at most."""
        return bool(np.linalg.norm(np.linalg.solve(self.axes, hyper - self.point)) < _NEARBY)


def outer_mode(
    heights: Heights,
    start: Float[np.ndarray, " H"],
    rounds: int = _ROUNDS,
    known: Callable[[np.ndarray], bool] = lambda point: False,
) -> OuterMode:
    """The maximum of a smooth function by Newton's method with differences, many points at a time.

    Args:
        heights: of points of shape (K, H), whose coordinates have the scales of shape (H,): the log
            marginal, of shape (K,).
        start: where its value is finite, shape (H,).
        rounds: of differences and a step, at most.
        known: whether a point, shape (H,), is in a region where the search may end without a mode.
    """
    point, step = start.astype(float), np.zeros(start.size)
    axes = frame = np.eye(start.size)  # whose columns are the units of differences
    height = float(_heights_at(heights, point[None], frame)[0])
    for _ in range(rounds):
        if known(point):
            return OuterMode(point, height, axes, False, step)
        gradient, curvature, failed = _differences(heights, point, frame)
        if failed is not None:
            frame = frame / 4
            continue
        bends, ways = np.linalg.eigh(curvature)
        peaked = bends.min() > 0
        is_ridge = peaked and bends.min() < _FLAT * bends.max()
        bends = np.maximum(abs(bends), _FLAT * max(abs(bends).max(), _FLAT))
        axes = frame @ ways / np.sqrt(bends)
        move = ways @ (ways.T @ gradient / bends)
        gain = move @ gradient / 2
        if not peaked and gain < _NEAR:
            move = move + ways[:, 0] / np.sqrt(bends[0])  # off a saddle
        step = frame @ move
        bent = np.diag(curvature)
        in_scale = _IN_SCALE[0] <= bent.min() and bent.max() <= _IN_SCALE[1]
        if in_scale and peaked and not is_ridge and gain < _NEAR:
            return OuterMode(point, height, axes, True, step)
        far = np.sqrt(2 * gain) / _FAR
        lengths = np.concatenate([far ** (_LONGER - 1), _LENGTHS / far]) if far > 1 else _LENGTHS
        tried = point + lengths[:, None] * step
        seen = _heights_at(heights, tried, frame)
        best = int(np.argmax(seen))
        # Differences are taken on a scale that follows the curvature, but not at once; of a ridge, along and across it.
        turns = in_scale and is_ridge and gain < _LEVEL
        unit, bent = (frame @ ways, bends) if turns else (frame, np.maximum(abs(bent), 1e-8))
        frame = unit * np.clip(1 / np.sqrt(bent), 1 / _WIDER, _WIDER)
        if seen[best] > height:
            point, height = tried[best], float(seen[best])
    _, _, failed = _differences(heights, point, _WIDER * frame)
    return OuterMode(point, height, axes, False, step, failed)


def together(modes: Sequence[OuterMode]) -> OuterMode:
    """The narrowest of some modes, with axes in whose units none of them is narrower than one in any direction.

    Those of the sum of their precisions, as long as that allows.
    """
    narrow = min(modes, key=lambda one: one.log_volume)
    seen = [np.linalg.solve(narrow.axes, one.axes) for one in modes]
    values, ways = np.linalg.eigh(sum(np.linalg.inv(axes @ axes.T) for axes in seen))
    root = ways / np.sqrt(values)
    least = min(np.linalg.norm(np.linalg.solve(root, axes), -2) for axes in seen)
    return narrow._replace(axes=narrow.axes @ (least * root))


def _heights_at(heights: Heights, points: np.ndarray, frame: np.ndarray) -> np.ndarray:
    return heights(points, np.linalg.norm(frame, axis=1))


def _differences(
    heights: Heights, point: np.ndarray, frame: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The gradient, and the Hessian of the negative function, by differences in units of a frame.

    And the first of the points at which the function is not finite, if there is one.
    """
    size = point.size
    unit = np.eye(size)
    pairs = [(i, j) for i in range(size) for j in range(i)]
    both = np.array([unit[i] + unit[j] for i, j in pairs]).reshape(-1, size)
    ways = np.concatenate([np.zeros((1, size)), unit, -unit, both, -both])
    points = point + _STEP * ways @ frame.T
    values = _heights_at(heights, points, frame)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        return np.zeros(size), np.zeros((size, size)), points[bad[0]]
    middle, up, down, *rest = np.split(values, np.cumsum([1, size, size, len(pairs)]))
    gradient = (up - down) / (2 * _STEP)
    second = up + down - 2 * middle
    hessian = np.diag(second)
    for (i, j), plus, minus in zip(pairs, *rest, strict=True):
        hessian[i, j] = hessian[j, i] = (plus + minus - 2 * middle[0] - second[i] - second[j]) / 2
    return gradient, -hessian / _STEP**2, None
