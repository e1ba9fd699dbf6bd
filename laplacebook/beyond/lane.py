"""Newton's method on the effects, at one point of the hyperparameters."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from laplacebook.beyond.leaves import Factor, Layout

SLACK = 1e-3  # nats above the lowest so far: rounding, and no more
_SAME = 1e-6  # relative: a curvature that changes by no more does not change
_NEAR = 10.0  # posterior standard deviations, from which the curvature may be told not to change
_LEFT = 0.3  # of the gradient
_FLAT = 1e-3  # of the largest curvature: less does not carry a step
_STALLED = 0.9  # of the distance to the mode that the last Hessian told, where it told less than
_CLOSE = 0.5  # standard deviations
_LONGER = 1.05  # than the step before: so it leaves a saddle, however slowly at first
_STILL = 8  # Hessians in a row that tell of no way on: rounding does


@dataclass(slots=True)
class Lane:
    """Newton's method at one point of the hyperparameters.

    The Hessian serves for the steps that follow as long as each leaves less than a third of the gradient, and is
    taken anew at the end, unless the gradient has shown that it does not change. A step that does not lower
    the negative log joint is halved. Where the Hessian is not positive definite its eigenvalues are taken as
    if they were positive, for the next step and nowhere else. Where rounding leaves no way on it ends, without a mode.
    """

    z: np.ndarray
    tolerance: float
    layout: Layout | None = None  # of the Hessians, where they are no matrices
    lowest: float = np.inf
    step: np.ndarray | float = 0.0
    factor: Factor | None = None
    decrement: float = np.inf
    told: float = np.inf  # the decrement by the last Hessian of its own
    still: int = 0
    change: float = np.inf  # of the curvature along the last step by a Hessian of its own, relative
    is_going: bool = True
    found: bool = False
    wants_hessian: bool = True

    @property
    def root(self) -> np.ndarray:
        """The inverse Cholesky factor of the Hessian that was seen last; where there are leaves, of the others."""
        assert self.factor is not None
        return lapack.dtrtri(self.factor.lower, lower=1)[0]

    @property
    def is_whole(self) -> bool:
        """Whether a mode was found, and its Hessian factorised as a matrix."""
        return self.found and self.factor is not None and self.factor.layout is None

    @property
    def log_root(self) -> float:
        """Half of the log determinant of that Hessian."""
        assert self.factor is not None
        return self.factor.log_root

    def take(self, f: float, gradient: np.ndarray, hessian: np.ndarray | None = None) -> None:
        """What was seen at z."""
        if not f <= self.lowest + SLACK * max(1, abs(f) * SLACK):
            before, self.step = self.z, self.step / 2
            self.z = self.z - self.step
            self.is_going = bool((self.z != before).any())
            return
        fell, self.lowest = f < self.lowest, float(f)
        if hessian is not None:
            self._bend(gradient, hessian, fell)
            self.is_going &= self.still < _STILL
        else:
            self._follow(gradient)

    def _bend(self, gradient: np.ndarray, hessian: np.ndarray, fell: bool) -> None:
        factor = Factor.of(hessian, self.layout)
        if factor is None and not np.isfinite(hessian).all():
            self.is_going = False
        elif factor is None:
            if self.layout is not None and hessian.ndim < 2:
                hessian = self.layout.matrix(hessian)
            bends, axes = np.linalg.eigh(hessian)
            bends = np.maximum(abs(bends), _FLAT * abs(bends).max())
            step = -axes @ (axes.T @ gradient / bends)
            longer = np.max(np.abs(step)) > _LONGER * np.max(np.abs(self.step))
            self.still = 0 if fell or longer else self.still + 1
            before = self.z
            self._go(step)
            self.is_going &= bool((self.z != before).any())
        else:
            self.factor, self.change = factor, np.inf
            move = self._move(gradient)
            stalled = _STALLED * self.told < self.decrement < _CLOSE
            self.still = self.still + 1 if stalled else 0
            self.told = self.decrement
            if self.decrement <= self.tolerance:
                self._end()
            else:
                self.wants_hessian = False
                self._go(move)

    def _follow(self, gradient: np.ndarray) -> None:
        before = self.decrement
        move = self._move(gradient)
        self.change = min(self.change, 2 * self.decrement / before)
        if self.decrement <= self.tolerance and before <= _NEAR and self.change <= _SAME:
            self._end()
        elif self.tolerance < self.decrement < _LEFT * before:
            self._go(move)
        else:
            self.wants_hessian, self.step = True, 0.0

    def _move(self, gradient: np.ndarray) -> np.ndarray:
        assert self.factor is not None
        move = -self.factor.solved(gradient)
        self.decrement = float(np.sqrt(-(gradient @ move)))
        return move

    def _go(self, step: np.ndarray) -> None:
        self.z, self.step = self.z + step, step
        self.is_going = bool(np.isfinite(self.z).all())

    def _end(self) -> None:
        self.is_going, self.found = False, True
