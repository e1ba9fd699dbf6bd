"""The Bayesian information criterion of Schwarz."""

from math import inf, log

import numpy as np
from jaxtyping import Array, ArrayLike, Float

from laplacebook.base.errors import UnsupportedModel
from laplacebook.fit.require_fit import require_converged
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.model.known_sites import LastLayer
from laplacebook.model.plain_function import is_plain


def bic(approx: LaplaceApproximation, num_observations: ArrayLike) -> Float[Array, "*B"]:
    """The Bayesian information criterion, -2 log p(D | mode) + D log N; smaller is better.

    -BIC/2 approximates the log evidence up to a term that stays bounded as N grows (Schwarz 1978;
    Bishop, Pattern Recognition and Machine Learning, equation 4.139, which is -BIC/2).

    In the book: :prf:ref:`model-comparison-bic` and :eq:`model-comparison-bic-definition` of
    :doc:`/book/model-comparison`.

    Args:
        approx: what :func:`~laplacebook.maximum_likelihood` returns, for the classical criterion,
            as statsmodels and R have it; or what :func:`~laplacebook.laplace` returns: then the
            likelihood is that at the posterior mode, as Bishop's is. D counts the coordinates of
            all latent sites, an unknown noise scale among them.
        num_observations: N, of independent observations: rows, not numbers within a row.

    Returns:
        The criterion, a scalar; one for each fit of a batch.

    Raises:
        TypeError: ``approx`` is no fit.
        ValueError: ``num_observations`` is not a number of 1 or more.
        LaplaceError: the fit failed.
        UnsupportedModel: the approximation is of a plain density, whose likelihood is not known, or
            of the last layer alone, which is not all that was fitted.
    """
    if not isinstance(approx, LaplaceApproximation):
        raise TypeError(f"bic takes a fit, not an object of type {type(approx).__name__}")
    number = np.asarray(num_observations)
    if number.ndim or number.dtype.kind not in "iuf" or not 1 <= number < inf:
        raise ValueError(f"num_observations is N, 1 or more, not {num_observations!r}")
    if is_plain(approx.density):
        raise UnsupportedModel(
            "This is the approximation of a plain density: which part of it is the likelihood is not known.",
            remedy="write it as a NumPyro model and fit that with laplace or maximum_likelihood.",
        )
    if isinstance(approx.density.model, LastLayer):
        raise UnsupportedModel(
            "This is the approximation of the last layer: the layers before it were fitted too, and D "
            "does not count them.",
            remedy="fit the whole model, with another structure; the criterion is the same for all.",
        )
    require_converged(approx, "The fit")
    dimension = approx.mode_vector.shape[-1]
    return dimension * log(float(number)) - 2 * approx.log_likelihood
