"""Where a prediction averages over a fit that is not to be trusted."""

from typing import Any
from warnings import warn

from laplacebook.base.errors import DoubtfulFit
from laplacebook.base.pytrees import is_traced
from laplacebook.fit.approximation import Approximation
from laplacebook.fit.glance import doubt_at_a_glance
from laplacebook.fit.result import LaplaceApproximation


def warn_of_doubt(approx: Approximation, method: str | None, stacklevel: int = 3) -> None:
    """Where the average is over a q that is known to be bad or to leave out modes, or over draws and a few look so.

    Args:
        approx: what is averaged over.
        method: how, by the names of :func:`~laplacebook.predict`, or None for what components have by default.
        stacklevel: of the caller of :func:`~laplacebook.predict`.
    """
    if is_traced(approx) or method == "plug_in":
        return
    doubt, one = approx.known_doubt, isinstance(approx, LaplaceApproximation)
    highest: Any = approx if one else next(iter(getattr(approx, "components", ())), None)
    if doubt is None and method == "monte_carlo":
        doubt = approx.doubt
        if highest is not None and doubt is None:
            doubt = _doubt_of_draws(highest)
    if doubt:
        more = "" if "lb." in doubt or not one else "lb.diagnose says more. "
        warn(
            f"The fit of {approx.density.name} is doubtful, and so are averages over it: "
            f"{doubt.removesuffix('.')}. {more}A sampler such as NumPyro's NUTS does not need the fit.",
            DoubtfulFit,
            stacklevel=stacklevel,
        )


def _doubt_of_draws(approx: LaplaceApproximation) -> str | None:
    """Of a curvature that stands for the linearised model, where the posterior is another one."""
    exact = approx.settings.curvature == "hessian"
    if exact or not approx.density.has_data or approx.mode_vector.ndim > 1:
        return None
    seen = doubt_at_a_glance(approx.density, approx.mode_vector, approx.precision, by_values=True)
    return seen and (
        "its curvature is that of the model linearised at the mode, over which the other methods average, where its "
        f"outcome has them, and {seen}"
    )
