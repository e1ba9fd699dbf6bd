"""The log joint of a model whose sites are integrated out, at many points, of which the searches go together."""

from typing import Any

import numpy as np
from jaxtyping import Float

from laplacebook.base.progress import progress
from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.in_lanes import LANES
from laplacebook.beyond.known_points import KnownPoints
from laplacebook.model.density import ModelDensity
from laplacebook.model.start import off_centre
from laplacebook.search.looks import middle

_TOGETHER = 8 * LANES  # points, after which the progress bar moves


def log_joints_at(
    density: ModelDensity, points: Float[np.ndarray, "S D"], progress_bar: bool | None = None
) -> Float[np.ndarray, " S"]:
    """The log joint at each point; minus infinity where the sites that are integrated out have no mode.

    The searches at some points begin in the middle of the prior, those at the others where these lead.

    Args:
        density: of a dense :class:`~laplacebook.beyond.marginalize.MarginalModel`, in unconstrained space.
        points: shape (S, D).
        progress_bar: as in :func:`~laplacebook.importance_sampling`.
    """
    marginal: Any = density.model
    args, kwargs = density.arguments
    whole = ModelDensity.of(marginal.model, args, kwargs)
    effects = Effects(whole, tuple(site.name for site in density.sites))
    start = np.asarray(middle(whole), float)
    start = off_centre(start, np.full(start.shape, np.inf))[effects.places[1]]
    known, scale = KnownPoints(effects, start), np.std(points, axis=0)
    scale, found = np.where(scale > 0, scale, 1), []
    with progress(len(points), progress_bar) as bar:
        for part in np.split(points, range(LANES, len(points), _TOGETHER)):
            found.append(known.heights(part, scale))
            bar.update(len(part))
    return np.concatenate(found)
