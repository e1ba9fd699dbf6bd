"""Weighted points of the hyperparameters, where there is no grid, and the effects at some."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from laplacebook.base.estimate import Estimate
from laplacebook.base.namespace import logsumexp
from laplacebook.beyond.dense_conditional import AnyConditional
from laplacebook.beyond.outer_mode import OuterMode
from laplacebook.beyond.skewed_effects import SkewedEffects
from laplacebook.beyond.smooth_points import SmoothPoints


class Cloud(NamedTuple):
    """Points of the hyperparameters, and the effects at some of them, as a grid has them at its nodes.

    Attributes:
        hyper: h, shape (P, H).
        heights: the log marginal there, interpolated or not, shape (P,).
        logs: log weights, shape (P,): of the mean weight the logarithm is that of the integral. Minus infinity where
            there are fewer points.
        conditional: the effects at K of the points.
        which: of the points these are, shape (K,).
        ratios: of the log marginal at the nodes to that by which they were drawn, logarithms, shape (K,).
        mode: of the hyperparameters.
        seen: at how many points the log marginal was computed.
        correction: what the mean ratio of joint density and Gaussian adds to each height, shape (P,).
        is_weighted: whether the points have weights by the log marginal there; else it is interpolated.
    """

    hyper: np.ndarray
    heights: np.ndarray
    logs: np.ndarray
    conditional: AnyConditional
    which: np.ndarray
    ratios: np.ndarray
    mode: OuterMode
    seen: int
    correction: np.ndarray
    is_weighted: bool = False

    @property
    def place(self) -> Float[np.ndarray, "K H"]:
        """Of the nodes, in standard deviations at the mode."""
        return self.places[self.which]

    @property
    def places(self) -> Float[np.ndarray, "P H"]:
        """Likewise of all points."""
        return np.linalg.solve(self.mode.axes, (self.hyper - self.mode.point).T).T

    @property
    def log_weights(self) -> Float[np.ndarray, " K"]:
        """Of the nodes."""
        return self.ratios + self.correction[self.which]

    @property
    def points(self) -> SmoothPoints:
        """All points, with their weights."""
        logs = self.logs + self.correction
        density = self.heights + self.correction - self.log_evidence
        return SmoothPoints(self.hyper, np.exp(logs - logsumexp(logs)), density)

    @property
    def evidence(self) -> Estimate:
        """The log evidence, with a standard error by the weights and by what was interpolated beside the nodes."""
        logs = self.logs + self.correction
        value = logsumexp(logs) - np.log(len(logs))
        ratios = np.exp(self.ratios)
        of_ratios = ratios.std() / ratios.mean() / len(ratios) ** 0.5
        of_weights = (1 / self.worth - (not self.is_weighted) / len(logs)) ** 0.5
        return Estimate(float(value), float(np.hypot(of_ratios, of_weights)))

    @property
    def log_evidence(self) -> float:
        """The log evidence."""
        return float(self.evidence.value)

    @property
    def error(self) -> float:
        """Of the log evidence."""
        return float(self.evidence.standard_error)

    @property
    def worth(self) -> float:
        """How many points of equal weight they are worth."""
        logs = self.logs + self.correction
        return float(np.exp(2 * logsumexp(logs) - logsumexp(2 * logs)))

    @property
    def is_fine(self) -> bool:
        """Whether it tells itself where the mass is, as a fine grid does."""
        return True

    @property
    def doubt(self) -> None:
        """None: where it is not foreseen what the log marginal is, there is a grid."""

    def holds(self, hyper: Float[np.ndarray, " H"]) -> bool:
        """Whether a point lies beside h, or the mode is near."""
        away = self.places - np.linalg.solve(self.mode.axes, hyper - self.mode.point)
        return self.mode.is_near(hyper) or bool(np.linalg.norm(away, axis=1).min() < 1)

    def corrected(self, skewed: SkewedEffects) -> "Cloud":
        """With weights for what the effects given the hyperparameters differ from a Gaussian.

        Args:
            skewed: how they differ.
        """
        return self._replace(correction=skewed.correction(self.place, self.places))

    def told(self) -> str:
        """What it is, in words."""
        if self.is_weighted:
            return f"at {np.isfinite(self.logs).sum():,} weighted points of {self.seen:,}"
        return f"interpolated between {self.seen:,} points"

    @property
    def by(self) -> str:
        """By what its evidence is known, in words."""
        return "importance sampling" if self.is_weighted else "interpolation"

    def checks(self, of_draws: float) -> list[str]:
        """How good it is, in words; ``of_draws`` as a grid has it."""
        return [f"log evidence {self.evidence + Estimate(0.0, of_draws)} ({self.by})"]
