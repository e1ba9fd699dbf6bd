"""What a function that takes an approximation cannot do without, or not without a word."""

from typing import Any
from warnings import warn

import numpy as np

from laplacebook.base.checks import require_one, require_working_precision
from laplacebook.base.errors import DoubtfulFit, UnsupportedModel, failed_fit
from laplacebook.base.pytrees import is_traced
from laplacebook.fit.approximation import Approximation
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.model.density import LikelihoodDensity, ModelDensity


def require_fit(approx: Any, *, mappable: bool = True) -> None:
    """Refuse an approximation to compute with that is none.

    Args:
        approx: what is to be an approximation.
        mappable: whether the function that takes it works within ``jax.vmap``.

    Raises:
        TypeError: it is something else, another :class:`Approximation` among them.
        ValueError: it is a batch.
        NotConverged: the fit failed.
        LaplaceError: it is in double precision, and JAX has been told since to leave that.
    """
    if not isinstance(approx, LaplaceApproximation):
        if isinstance(approx, Approximation):
            raise TypeError(
                f"This needs one Gaussian, with a mode and a precision, and {type(approx).__name__} is more than "
                "that. Its doubt, and lb.diagnose, tell how far it may be trusted."
            )
        raise TypeError(
            f"This takes what laplace(...) returns, not an object of type {type(approx).__name__}."
        )
    require_one("This fit", np.shape(approx.mode_vector), 1, mappable)
    require_working_precision("This fit", approx.mode_vector)
    require_converged(approx, "The fit")


def require_approximation(approx: Any, *, mappable: bool = True) -> None:
    """Refuse an approximation to compute with that is none, where one Gaussian is not needed.

    Args:
        approx: what is to be an approximation.
        mappable: whether the function that takes it works within ``jax.vmap``.

    Raises:
        TypeError: it is something else.
        NotConverged: the fit failed.
    """
    if not isinstance(approx, LaplaceApproximation) and isinstance(approx, Approximation):
        return
    require_fit(approx, mappable=mappable)


def require_converged(approx: LaplaceApproximation, what: str) -> None:
    """Refuse a fit without a mode, where that is known.

    Args:
        approx: what a fit returned, or a batch of them.
        what: names it.

    Raises:
        NotConverged: a fit failed.
    """
    converged = approx.certificate.converged
    if not is_traced(converged) and not np.asarray(converged).all():
        raise failed_fit(what)


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


def require_posterior(density: ModelDensity) -> None:
    """Refuse a likelihood without priors, which has a maximum and no draws.

    Raises:
        UnsupportedModel: it is one.
    """
    if isinstance(density, LikelihoodDensity):
        raise UnsupportedModel(
            f"This is a maximum likelihood fit of {density.name}: without priors there is no posterior.",
            remedy="fit with laplace.",
        )


def warn_of_modes(approx: LaplaceApproximation, by: str) -> None:
    """Warn who asked for the evidence about one mode where others are known.

    Args:
        approx: the fit.
        by: how the evidence is computed.

    Warns:
        DoubtfulFit: other modes are known, with more than 1 % of the evidence.
    """
    if approx.unseen is not None:
        warn(
            f"The log evidence of {approx.density.name} by {by} about one mode is doubtful: {approx.unseen}.",
            DoubtfulFit,
            stacklevel=3,
        )
