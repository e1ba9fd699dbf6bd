"""Another start for a hierarchical model: its effects first, at the middle of the priors of their scales."""

from jaxtyping import Array, Float
from numpyro import handlers

from laplacebook.base.quick import jit_quickly
from laplacebook.curvature.settings import Settings
from laplacebook.model.density import ModelDensity
from laplacebook.model.hierarchy import scales_of_effects
from laplacebook.search.search import search


def start_by_effects(density: ModelDensity, settings: Settings) -> Float[Array, " D"] | None:
    """The mode of all other sites given the scales of priors, with these in the middle of their own.

    A search for all together may shrink a scale before the data have moved the effects apart.

    Args:
        density: a log joint of which a search has failed.
        settings: of that search.

    Returns:
        A point of shape (D,); None if no latent site is a scale of others, or there is no such mode.
    """
    scales = scales_of_effects(density)
    if not scales:
        return None
    known = {name: value for name, value in _centre(density).items() if name in scales}
    args, kwargs = density.arguments
    model = handlers.condition(density.model, known)
    given = search(ModelDensity.of(model, args, kwargs, density.space), None, settings)
    return density.start({**known, **given.mode}) if given.certificate.converged else None


@jit_quickly
def _centre(density: ModelDensity) -> dict[str, Array]:
    """The latent sites in the middle of their priors."""
    return density.values(density.start())
