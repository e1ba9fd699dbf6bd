"""How far skewness moves the mean of each of thousands of coordinates."""

import numpy as np
from jaxtyping import Float

from laplacebook.base.pytrees import on_host
from laplacebook.beyond.expansion_at_mode import mean_at
from laplacebook.beyond.kept_integrals import keep_integral, kept_integral
from laplacebook.fit.result import LaplaceApproximation

Shifts = dict[str, Float[np.ndarray, " n"]]


def shifts(approx: LaplaceApproximation) -> Shifts | None:
    """By how many standard deviations of q the mean of each coordinate is above the mode, to first order.

    That is -A^-1 times the slope of (1/2) log |A| at the mode, from third derivatives of the log joint, the term of
    order N^-1 of the posterior mean (Tierney, Kass and Kadane 1989, Journal of the American Statistical Association
    84, 710-716). It takes one gradient and one solve for all coordinates.

    Args:
        approx: the approximation.

    Returns:
        Of each site its coordinates, shape (n,); None where the precision is not the sparse Hessian.
    """
    if approx.settings.structure != "sparse":
        return None
    density, mode = approx.density, np.asarray(approx.mode_vector)
    keep_integral(density)
    whole = kept_integral(density)
    assert whole is not None
    moved = mean_at(whole, density, mode) / np.sqrt(on_host(approx.precision).diagonal_of_inverse())
    ends = np.cumsum([site.size for site in density.sites])
    each = np.split(moved, ends[:-1])
    return {site.name: one for site, one in zip(density.sites, each, strict=True)}
