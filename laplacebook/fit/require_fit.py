"""What a function that takes an approximation cannot do without."""

from typing import Any

import jax
import numpy as np

from laplacebook.base.errors import LaplaceError, UnsupportedModel
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.model.density import ModelDensity


def require_approximation(approx: Any) -> None:
    """Refuse what is no approximation.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(approx, LaplaceApproximation):
        raise TypeError(
            f"This takes what laplace(...) returns, not an object of type {type(approx).__name__}."
        )


def require_fit(approx: Any, *, mappable: bool = True) -> None:
    """Refuse an approximation to compute with that is none.

    Args:
        approx: what is to be an approximation.
        mappable: whether the function that takes it works within ``jax.vmap``.

    Raises:
        TypeError: it is something else.
        ValueError: it is a batch.
        LaplaceError: the fit failed.
    """
    require_approximation(approx)
    if np.ndim(approx.mode_vector) != 1:
        remedy = "call the function within jax.vmap"
        if not mappable:
            remedy = "call the function on one at a time, jax.tree.map(lambda x: x[i], approx)"
        raise ValueError(
            f"This is a batch of approximations (mode_vector has shape "
            f"{approx.mode_vector.shape}): {remedy}."
        )
    require_converged(approx, "The fit")


def require_converged(approx: LaplaceApproximation, what: str) -> None:
    """Refuse a fit without a mode, where that is known.

    Args:
        approx: what a fit returned, or a batch of them.
        what: names it.

    Raises:
        LaplaceError: a fit failed.
    """
    converged = approx.certificate.converged
    if not isinstance(converged, jax.core.Tracer) and not np.asarray(converged).all():
        raise LaplaceError(
            f"{what} failed, and every number of it is NaN.",
            remedy="fit with throw=True, which says why it failed.",
        )


def require_proper(density: ModelDensity) -> None:
    """Refuse a model whose evidence means nothing; a plain density has an integral, and passes.

    Raises:
        UnsupportedModel: a prior is improper, or left out.
    """
    if density.improper:
        sites = ", ".join(map(repr, density.improper))
        raise UnsupportedModel(
            f"The prior of {sites} is {density.without_prior}: the evidence is defined only up to a "
            "constant, and there is no number to estimate.",
            remedy="give these sites a proper prior, and fit with laplace.",
        )
