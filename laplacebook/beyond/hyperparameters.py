"""The latent sites that are integrated numerically, and those that Laplace's method integrates out."""

from collections.abc import Collection, Sequence

from laplacebook.base.checks import names_of_sites
from laplacebook.base.errors import UnsupportedModel
from laplacebook.beyond.gaussian_effects import gaussian_effects, gaussian_priors
from laplacebook.beyond.grid import SPACING
from laplacebook.curvature.hessian import twice_differentiable
from laplacebook.model.density import ModelDensity
from laplacebook.model.hierarchy import sources_of
from laplacebook.model.not_finite import require_entries


def hyperparameters_of(density: ModelDensity, over: str | Sequence[str] | None) -> tuple[str, ...]:
    """The latent sites to integrate numerically, in the order of the model; the others are the effects.

    Args:
        density: a model and its arguments, in the unconstrained space.
        over: their names. If None, all sites outside the largest set of Gaussian effects of an affine
            predictor (:func:`~laplacebook.beyond.gaussian_effects.gaussian_effects`), but for those that
            are normal in each group where the sites are too many for a grid; if there is no such set, the sites on
            which the prior of another depends.

    Raises:
        ValueError: ``over`` names none of them, all of them, or what is no latent site.
        TypeError: ``over`` is no name.
        UnsupportedModel: the prior of one depends on an effect. Or ``over`` is None, and no site, or every
            one, is an effect. Or JAX cannot differentiate the model in forward mode. Or it is a marginal one
            with a sparse integral.
    """
    if density.only_gradients:
        raise UnsupportedModel(
            f"{density.name} is a marginal model with a sparse integral, of which second derivatives are not known.",
            remedy='pass the model with all its sites: nested integrates the effects itself, structure="sparse".',
        )
    if over is None:
        with twice_differentiable(
            "in forward mode, which tells the hyperparameters if over= does not"
        ):
            return _found(density)
    names = names_of_sites("over", over)
    effects = others_than(names, density, "none would be left as an effect, given the others.")
    chosen = tuple(site.name for site in density.sites if site.name in names)
    refuse_dependence(
        density, chosen, effects, "name {hidden} in over as well, or leave {left} out."
    )
    return chosen


def _found(density: ModelDensity) -> tuple[str, ...]:
    require_entries(density)  # beside what they index nothing is known of the model
    latent, effects = [site.name for site in density.sites], gaussian_effects(density)
    if len(effects) == len(latent):
        raise UnsupportedModel(
            f"All latent sites of {density.name} are Gaussian effects of an affine predictor, {latent}: there "
            "is no hyperparameter to integrate numerically.",
            remedy=f"use laplace({density.name}, ...); or name with over= what you doubt to be near Gaussian.",
        )
    priors = sources_of(density).priors
    chosen = set(latent) - set(effects) if effects else frozenset().union(*priors.values())
    if effects and _size(density, chosen) not in SPACING:
        chosen -= _of_groups(density, chosen)
    if not chosen:
        raise UnsupportedModel(
            f"Of the latent sites of {density.name}, {latent}, none is a Gaussian effect of an affine predictor, "
            "and the prior of none depends on another: nothing tells hyperparameters and effects apart.",
            remedy=f"name with over= the sites to integrate numerically; or use laplace({density.name}, ...).",
        )
    return tuple(name for name in latent if name in chosen)


def _size(density: ModelDensity, names: Collection[str]) -> int:
    return sum(site.size for site in density.sites if site.name in names)


def _of_groups(density: ModelDensity, names: Collection[str]) -> set[str]:
    """Those that are normal given a hyperparameter for all their entries, and are none of another site."""
    priors = sources_of(density).priors
    several = {site.name for site in density.sites if site.size > 1 and priors[site.name]}
    return gaussian_priors(density, (several & set(names)) - frozenset().union(*priors.values()))


def others_than(names: Sequence[str], density: ModelDensity, if_none: str) -> list[str]:
    """The latent sites of a model that are not named.

    Args:
        names: latent sites.
        density: the model and its arguments.
        if_none: what is wrong if there are none.

    Raises:
        ValueError: there are none, or a name is of no latent site.
    """
    latent = [site.name for site in density.sites]
    unknown = [name for name in names if name not in latent]
    left = [name for name in latent if name not in names]
    if unknown or not left:
        raise ValueError(
            f"The latent sites of {density.name} are {latent}: "
            + (f"{unknown} is none of them." if unknown else if_none)
        )
    return left


def refuse_dependence(
    density: ModelDensity, left: Sequence[str], hidden: Sequence[str], remedy: str
) -> None:
    """Refuse a prior of what is left that depends on what is integrated out.

    Args:
        density: a model and its arguments.
        left: latent sites.
        hidden: the others, which are integrated out.
        remedy: what to do, with ``{left}`` and ``{hidden}`` for the names.

    Raises:
        UnsupportedModel: there is one; or JAX cannot differentiate the model in forward mode.
    """
    with twice_differentiable("in forward mode"):
        priors = sources_of(density).priors
    for name in hidden:
        wrong = ", ".join(repr(one) for one in left if name in priors[one])
        if wrong:
            raise UnsupportedModel(
                f"The prior of {wrong} depends on '{name}', which would be integrated out before it.",
                remedy=remedy.format(left=wrong, hidden=f"'{name}'"),
            )
