"""The log marginal of the hyperparameters wherever it is asked for, each point begun where its neighbour ended."""

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from laplacebook.base.errors import LaplaceError
from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.dense_conditional import AnyConditional, in_order
from laplacebook.beyond.outer_mode import OuterMode

_AROUND = 2  # times the number of hyperparameters and one: known points that foresee a mode
_SAME = 1e-6  # relative to the distances of these: directions in which they lie no way apart
_FARTHEST = 5.0  # times as far as they are: beyond that no line is believed
_BENT = 0.2  # of their moves, that no linear function tells, as where they are on several branches


@runtime_checkable
class Nodes(Protocol):
    """A grid, or draws of the hyperparameters."""

    @property
    def conditional(self) -> AnyConditional:
        """The effects at its points."""

    @property
    def mode(self) -> OuterMode:
        """The mode of the hyperparameters."""


@dataclass
class KnownPoints:
    """The log marginal p(D, h), and the conditional modes that were found on the way.

    Attributes:
        effects: the log joint as one of the effects given the hyperparameters.
        start: z where a search begins that has no neighbour, shape (d,).
        hyper: h of the points with a mode so far, shape (K, H).
        mode: z there, shape (K, d).
        branches: what is known of other modes of the effects; at each point the highest counts.
    """

    effects: Effects
    start: np.ndarray
    branches: list["KnownPoints"] = field(default_factory=list)
    hyper: np.ndarray = field(init=False)
    mode: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        of_hyper, of_effects = self.effects.dimensions
        self.hyper, self.mode = np.empty((0, of_hyper)), np.empty((0, of_effects))

    @classmethod
    def of_grid(
        cls, effects: Effects, grid: Nodes, start: Float[np.ndarray, " d"]
    ) -> "KnownPoints":
        """Those of a grid.

        Args:
            effects: the log joint.
            grid: with the effects at its points.
            start: z where a search begins that fails from a node, shape (d,).
        """
        points = cls(effects, start)
        points.hyper, points.mode = grid.conditional.hyper, grid.conditional.mode
        return points

    def conditional(
        self, hyper: Float[np.ndarray, "K H"], scale: Float[np.ndarray, " H"]
    ) -> AnyConditional:
        """The effects at these points; what fails from a neighbour is tried from the start.

        Args:
            hyper: h, shape (K, H).
            scale: of each coordinate of h, by which a neighbour is near; shape (H,).
        """
        ways = [
            self._conditional(hyper, scale),
            *(b.conditional(hyper, scale) for b in self.branches),
        ]
        if len(ways) == 1:
            return ways[0]
        best = np.argmax([np.nan_to_num(one.log_marginal, nan=-np.inf) for one in ways], axis=0)
        rows = [np.flatnonzero(best == k) for k in range(len(ways))]
        return in_order([one.at(at) for one, at in zip(ways, rows, strict=True)], rows)

    def _conditional(self, hyper: np.ndarray, scale: np.ndarray) -> AnyConditional:
        near, middle = self._starts(hyper, scale)
        found = self.effects.given(hyper, near)
        failed = np.flatnonzero(np.isnan(found.log_marginal) & np.any(near != middle, axis=1))
        if failed.size:
            again = self.effects.given(hyper[failed], middle[failed])
            others = np.delete(np.arange(len(hyper)), failed)
            found = in_order([found.at(others), again], [others, failed])
        self._keep(hyper, found.log_marginal, found.mode)
        return found

    def heights(
        self, hyper: Float[np.ndarray, "K H"], scale: Float[np.ndarray, " H"]
    ) -> Float[np.ndarray, " K"]:
        """The log marginal alone; minus infinity where the effects have no mode."""
        heights = self._heights(hyper, scale)
        return np.max([heights, *(b.heights(hyper, scale) for b in self.branches)], axis=0)

    def _heights(self, hyper: np.ndarray, scale: np.ndarray) -> np.ndarray:
        near, middle = self._starts(hyper, scale)
        heights, mode = self.effects.heights(hyper, near)
        failed = np.flatnonzero(np.isnan(heights) & np.any(near != middle, axis=1))
        if failed.size:
            heights[failed], mode[failed] = self.effects.heights(hyper[failed], middle[failed])
        self._keep(hyper, heights, mode)
        return np.where(np.isnan(heights), -np.inf, heights)

    def _keep(self, hyper: np.ndarray, heights: np.ndarray, mode: np.ndarray) -> None:
        sound = np.isfinite(heights)
        self.hyper = np.concatenate([self.hyper, hyper[sound]])
        self.mode = np.concatenate([self.mode, mode[sound]])

    def _starts(self, hyper: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where searches begin: at the mode of the nearest point, and in the middle of the prior."""
        middle = np.broadcast_to(self.start, (len(hyper), self.start.size)).copy()
        return self._foreseen(hyper / scale, scale, middle), middle

    def _foreseen(self, points: np.ndarray, scale: np.ndarray, middle: np.ndarray) -> np.ndarray:
        """Modes at these points by a linear function through those of the nearest known ones."""
        if not len(self.hyper):
            return middle
        from scipy.spatial import KDTree  # slow to import

        known = self.hyper / scale
        few = np.arange(1, 1 + min(len(known), _AROUND * (1 + known.shape[1])))
        index = KDTree(known).query(points, few)[1]
        first, others = index[:, 0], index[:, 1:]
        near = self.mode[first]
        away = points - known[first]
        ways, moves = known[others] - known[first, None], self.mode[others] - near[:, None]
        back = np.linalg.pinv(ways, _SAME)
        shares = (away[:, None] @ back)[:, 0]
        shares *= np.minimum(1, _FARTHEST / np.maximum(abs(shares).sum(axis=1, keepdims=True), 1))
        left = np.linalg.norm(moves - ways @ (back @ moves), axis=(1, 2))
        bent = left > _BENT * np.linalg.norm(moves, axis=(1, 2))
        shares[bent | (few.size < 2 + known.shape[1])] = 0  # fewer cannot tell
        return near + (shares[:, None] @ moves)[:, 0]


def between_nodes(
    effects: Effects, grid: Nodes, start: Float[np.ndarray, " d"], hyper: Float[np.ndarray, "S H"]
) -> AnyConditional:
    """The effects at draws of the hyperparameters, from fits of their own that begin at the nodes of a grid.

    Args:
        effects: the log joint.
        grid: with the effects at its points.
        start: z where a search begins that fails from a node, shape (d,).
        hyper: h, shape (S, H).

    Raises:
        LaplaceError: at one of them the effects have no mode.
    """
    nodes = KnownPoints.of_grid(effects, grid, start)
    given = nodes.conditional(hyper, np.linalg.norm(grid.mode.axes, axis=1))
    if np.isnan(given.log_marginal).any():
        raise LaplaceError(
            f"At {np.isnan(given.log_marginal).sum()} of {len(hyper)} draws of "
            f"{', '.join(effects.over)} the effects have no mode.",
            remedy="sample the posterior with NumPyro's NUTS.",
        )
    return given
