"""The log joint of a model whose sites are integrated out, at many points, of which the searches go together."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from laplacebook.base.progress import progress
from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.in_lanes import LANES, hyper_values
from laplacebook.beyond.known_points import KnownPoints
from laplacebook.model.density import ModelDensity
from laplacebook.model.start import off_centre
from laplacebook.search.looks import middle

_TOGETHER = 8 * LANES  # points, after which the progress bar moves


def log_joints_at(
    density: ModelDensity, points: Float[np.ndarray, "S D"], progress_bar: bool | None = None
) -> Float[np.ndarray, " S"]:
    """The log joint at each point; not finite where the sites that are integrated out may have no mode, or several.

    Each is searched for twice: from where those at points beside lead, and from the middle of the prior given the
    point, as the integral of the model begins. Where the two end apart the answer is NaN.

    Args:
        density: of a dense :class:`~laplacebook.beyond.marginalize.MarginalModel`, in unconstrained space.
        points: shape (S, D).
        progress_bar: as in :func:`~laplacebook.importance_sampling`.
    """
    marginal: Any = density.model
    args, kwargs = density.arguments
    whole = ModelDensity.of(marginal.model, args, kwargs)
    effects = Effects(whole, tuple(site.name for site in density.sites))
    places = effects.places[1]
    nudge = off_centre(np.zeros(places.size), np.full(places.size, np.inf))
    known = KnownPoints(effects, np.asarray(middle(whole), float)[places] + nudge)
    values = hyper_values(whole, effects.over, points, known.start)
    own = jax.vmap(lambda values: marginal.density_given(values, *args, **kwargs).start())(values)
    scale, cuts = np.std(points, axis=0), range(LANES, len(points), _TOGETHER)
    scale, found = np.where(scale > 0, scale, 1), []
    same = float(jnp.finfo(jnp.result_type(float)).eps) ** 0.25
    with progress(len(points), progress_bar) as bar:
        for part, begin in zip(
            np.split(points, cuts), np.split(np.asarray(own, float) + nudge, cuts), strict=True
        ):
            near, (heights, _) = known.heights(part, scale), effects.heights(part, begin)
            found.append(np.where(np.isclose(near, heights, 0, same), heights, np.nan))
            bar.update(len(part))
    return np.concatenate(found)
