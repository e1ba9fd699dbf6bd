"""Draws of the hyperparameters from their posterior by NUTS, and the effects at some of them."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

from laplacebook.base.errors import NotConverged
from laplacebook.base.estimate import Estimate
from laplacebook.base.namespace import logsumexp
from laplacebook.beyond.dense_conditional import AnyConditional
from laplacebook.beyond.outer_mode import OuterMode
from laplacebook.beyond.skewed_effects import SkewedEffects
from laplacebook.beyond.smooth_points import SmoothPoints


class Chains(NamedTuple):
    """Draws of the hyperparameters, and the effects at some of them, as a grid has them at its points.

    Attributes:
        draws: h, shape (C, N, H).
        heights: the log marginal there, shape (C, N).
        conditional: the effects at K of the draws.
        which: of all draws, chain by chain, these are, shape (K,).
        mode: the highest mode of the hyperparameters.
        divergences: transitions whose energy rose too far.
        log_integral: of the marginal, by bridge sampling; NaN where that did not settle.
        its_error: the standard error.
        correction: what the mean ratio of joint density and Gaussian adds to each height, shape (C, N).
    """

    draws: np.ndarray
    heights: np.ndarray
    conditional: AnyConditional
    which: np.ndarray
    mode: OuterMode
    divergences: int
    log_integral: float
    its_error: float
    correction: np.ndarray

    @property
    def place(self) -> Float[np.ndarray, "K H"]:
        """Of the nodes, in standard deviations at the mode."""
        return self.places[self.which]

    @property
    def places(self) -> Float[np.ndarray, "S H"]:
        """Likewise of all draws."""
        flat = self.draws.reshape(-1, self.draws.shape[2])
        return np.linalg.solve(self.mode.axes, (flat - self.mode.point).T).T

    @property
    def log_weights(self) -> Float[np.ndarray, " K"]:
        """Of the nodes."""
        return self.correction.ravel()[self.which]

    @property
    def points(self) -> SmoothPoints:
        """All draws, with their weights."""
        logs = self.correction.ravel()
        heights = self.heights.ravel() + logs
        flat = self.draws.reshape(-1, self.draws.shape[2])
        return SmoothPoints(flat, np.exp(logs - logsumexp(logs)), heights - self.evidence.value)

    @property
    def evidence(self) -> Estimate:
        """The log evidence, with its standard error; NaN where it is not known."""
        weights = np.exp(self.correction)
        rise = weights.std() / weights.mean() / self.worth**0.5
        value = self.log_integral + np.log(weights.mean())
        return Estimate(float(value), float(np.hypot(self.its_error, rise)))

    @property
    def log_evidence(self) -> float:
        """The log evidence, by bridge sampling.

        Raises:
            NotConverged: that did not settle.
        """
        if not np.isfinite(self.evidence.standard_error):
            raise NotConverged(
                "The log evidence is not known: bridge sampling between the draws of the hyperparameters and a "
                "normal law did not settle.",
                causes=["a posterior of the hyperparameters far from normal, or of several modes"],
                remedy="name fewer as over=: few are not sampled; quantiles, moments and draws need no evidence.",
            )
        return float(self.evidence.value)

    @property
    def error(self) -> float:
        """Of the log evidence."""
        return float(self.evidence.standard_error)

    @property
    def r_hat(self) -> Float[np.ndarray, " H"]:
        """Split R-hat of each coordinate of h."""
        return np.asarray(split_gelman_rubin(self.draws))

    @property
    def effective(self) -> Float[np.ndarray, " H"]:
        """The effective sample size of each coordinate of h."""
        return np.asarray(effective_sample_size(self.draws))

    @property
    def worth(self) -> float:
        """How many independent draws they are worth, for the mean of each coordinate at least."""
        weights = np.exp(self.correction - self.correction.max())
        even = weights.mean() ** 2 / np.mean(weights**2)
        return float(self.effective.min() * even)

    def holds(self, hyper: Float[np.ndarray, " H"]) -> bool:
        """Whether a draw lies beside h."""
        away = self.places - np.linalg.solve(self.mode.axes, hyper - self.mode.point)
        return bool(np.linalg.norm(away, axis=1).min() < 4)

    @property
    def is_fine(self) -> bool:
        """Whether it tells itself where the mass is, as a fine grid does."""
        return True

    def corrected(self, skewed: SkewedEffects) -> "Chains":
        """With weights for what the effects given the hyperparameters differ from a Gaussian.

        Args:
            skewed: how they differ.
        """
        added = skewed.correction(self.place, self.places)
        return self._replace(correction=added.reshape(self.heights.shape))

    def told(self) -> str:
        """How they were drawn, in words."""
        chains, number, _ = self.draws.shape
        return f"by NUTS, {chains} chains of {number:,} draws"

    def checks(self, of_draws: float) -> list[str]:
        """How good they are, in words; ``of_draws`` as a grid has it."""
        number = f"{self.divergences:,}" if self.divergences else "no"
        known, estimate = np.isfinite(self.error), self.evidence + Estimate(0.0, of_draws)
        return [
            f"r-hat up to {self.r_hat.max():.3f}, effective sample size {self.worth:,.0f} or more, {number} "
            f"divergence{'s' * (self.divergences != 1)}",
            f"log evidence {estimate} (bridge sampling)"
            if known
            else "log evidence not known: bridge sampling did not settle",
        ]

    @property
    def doubt(self) -> str | None:
        """That some of the trajectories have diverged, or None."""
        if not self.divergences:
            return None
        return (
            f"{self.divergences:,} of {self.heights.size:,} draws of NUTS have diverged, so that a part of the "
            "posterior may be left out"
        )
