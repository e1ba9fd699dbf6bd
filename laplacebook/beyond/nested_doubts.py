"""Where a nested approximation cannot be trusted, by what it knows of itself."""

import numpy as np

from laplacebook.beyond.chains import Chains
from laplacebook.beyond.cloud import Cloud
from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.grid import Grid
from laplacebook.beyond.skewed_effects import HOPELESS, SkewedEffects

_BEYOND = 0.03  # of the mass
_EVEN = 0.1  # nats: ratios that differ by less have no tail that matters, as those of rounding
_OUTSIDE = 0.01  # of the draws
_SHIFT = 0.75  # conditional standard deviations: the expansion is of first order
_ERROR = 0.25  # nats, of the log evidence by the draws that correct it
_UNEVEN = 0.75  # k-hat: above it half as far
_LED = 0.5  # standard deviations of a hyperparameter, by the correction: robust trends then are off by up to 0.25
_MOVED = 0.25  # standard deviations of a hyperparameter, by a correction that is not made
MANY = 500  # effects, of which ratios are too uneven though each is near a Gaussian


def doubt_of(
    effects: Effects, grid: Grid | Cloud | Chains, skewed: SkewedEffects, moved: float
) -> str | None:
    """The first reason for a doubt; None if there is none.

    Args:
        effects: the log joint, and the names of the hyperparameters.
        grid: the hyperparameters.
        skewed: how the effects given these differ from a Gaussian.
        moved: by how many standard deviations a correction to second order would move a hyperparameter.
    """
    over, size = " and ".join(effects.over), skewed.nodes.mode.shape[1]
    if skewed.outside > _OUTSIDE:
        share = f"{skewed.outside:.0%} of the draws given {over}"
        return f"{share} lie beyond a bound, as of a factor, unseen by Laplace's method"
    shifts = abs(skewed.shifts)
    if shifts.max() > _SHIFT:
        name = effects.density.coordinate_names()[effects.places[1][np.argmax(shifts)]]
        sites = [site for site in effects.density.sites if name in site.coordinate_names()]
        more = sites[0].size == 1 and len(effects.names) > 1
        told = f"; over={[*effects.over, sites[0].name]} integrates it numerically" if more else ""
        return (
            f"skewness moves the mean of {name} by {shifts.max():.2g} conditional standard deviations, too far "
            f"for a correction of first order{told}"
        )
    if skewed.led > (_LED if skewed.pareto_k <= _UNEVEN else _LED / 2):
        return (
            f"the correction by mean ratios moves {over} by {skewed.led:.1f} standard deviations, too far "
            "for ratios to a Gaussian"
        )
    error = skewed.evidence_error(grid.place)
    if error > _ERROR:
        return f"the draws that correct the log evidence leave it an error of {error:.1g}, so uneven are they"
    by_ratios = skewed.expansion is None or size <= MANY
    far = by_ratios and np.ptp(skewed.log_ratios) > _EVEN
    if moved > _MOVED or (skewed.pareto_k > HOPELESS and far):
        k = f"Pareto k-hat {skewed.pareto_k:.2f} of pairs of draws"
        also = f", {moved:.2f} standard deviations to second order" if moved else ""
        return f"the others given {over} are far from Gaussian: {k}{also}"
    if not isinstance(grid, Grid):
        return grid.doubt
    if grid.beyond > _BEYOND:
        return (
            f"about {100 * grid.beyond:.0f} % of the posterior of {over} lies beyond the "
            f"grid of {len(grid.place)} points, which cuts its tails: standard deviations may be "
            "too small, and intervals too short, by several times that"
        )
    return None
