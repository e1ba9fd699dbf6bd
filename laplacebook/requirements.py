"""What a function that takes an approximation cannot do without."""

from typing import Any

import jax
import numpy as np

from laplacebook.errors import LaplaceError
from laplacebook.result import LaplaceApproximation

__all__ = ["require_converged", "require_fit"]


def require_fit(approx: Any) -> None:
    """Refuse an approximation to compute with that is none.

    Raises:
        TypeError: it is something else.
        ValueError: it is a batch.
        LaplaceError: the fit failed.
    """
    if not isinstance(approx, LaplaceApproximation):
        raise TypeError(f"This takes what laplace(...) returns, not a {type(approx).__name__}.")
    if np.ndim(approx.mode_vector) != 1:
        raise ValueError(
            f"This is a batch of approximations (mode_vector has shape "
            f"{approx.mode_vector.shape}): call the function within jax.vmap."
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
