"""The precision where a search without a Hessian stands, and the metric of its steps from there."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from laplacebook.base.errors import UnsupportedModel
from laplacebook.curvature.precision_at import (
    metric_costs_little,
    metric_of,
    whole_metric_of,
)
from laplacebook.curvature.settings import Settings
from laplacebook.gaussian.precision import Precision
from laplacebook.model.density import ModelDensity
from laplacebook.search.looks import precision_and_metric_seen, precision_seen
from laplacebook.search.rounds import ROUNDS

BY_PART = 6  # rounds: as many as the weights of digits take


class Curvatures:
    """The two of a fit: where both cost little, one program computes them.

    Args:
        density: the log joint.
        settings: of the fit; its curvature is not the Hessian.
        layers: whether its matrices are the weights of layers, as far as is known.
    """

    def __init__(self, density: ModelDensity, settings: Settings, layers: bool) -> None:
        self.layers = layers
        self._density, self._settings = density, settings
        self._metric = metric_of(density, settings)
        self._whole = whole_metric_of(density, settings)
        self._judges = self._metric is not None and self._metric.structure == "dense"
        self._together = (
            settings.structure == "diagonal"
            and self._metric == replace(settings, structure="kronecker")
            and metric_costs_little(density)
        )
        self._held: tuple[np.ndarray, Callable[[], Precision]] | None = None

    @property
    def rounds(self) -> int:
        """How many to make before the steps are by the whole matrix; all, where they are, or it is too costly."""
        return BY_PART if self._whole not in (None, self._metric) else ROUNDS

    def take_the_whole(self) -> None:
        """From now on the steps are by the whole matrix."""
        self._metric, self._held, self._together = self._whole, None, False

    def precision_at(self, u: Float[np.ndarray, " D"]) -> Precision:
        """That of the fit."""
        if not self.layers or not self._together:
            return precision_seen(self._density, u, self._settings)
        try:
            precision, metric = precision_and_metric_seen(self._density, u, self._settings)
        except UnsupportedModel:
            self.layers = False
            return self.precision_at(u)
        self._held = u, metric
        return precision

    def judge_at(self, u: Float[np.ndarray, " D"]) -> Precision | None:
        """That of the steps, where it judges the distance as well."""
        return self.metric_at(u) if self._judges else None

    def metric_at(self, u: Float[np.ndarray, " D"]) -> Precision | None:
        """That of the steps; None where the one of the fit will do, or the model has no other."""
        if self._metric is None or not (self.layers or self._metric.structure == "dense"):
            return None
        if self._held is not None and np.array_equal(self._held[0], u):
            return self._held[1]()
        try:
            return precision_seen(self._density, u, self._metric)
        except UnsupportedModel:
            self.layers = False
            return None
