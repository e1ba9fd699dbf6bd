"""The way to a mode without a Hessian, for a fit by a whole matrix: of many coordinates it would cost far more."""

from collections.abc import Callable
from functools import partial

import numpy as np
from jaxtyping import Float

from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.namespace import Numbers
from laplacebook.curvature.hessian import hessian_product, twice_differentiable
from laplacebook.curvature.precision_at import ends_in_minutes, may_have_layers
from laplacebook.curvature.settings import Settings
from laplacebook.gaussian.precision import Precision
from laplacebook.model.density import ModelDensity
from laplacebook.search.driven import LookAt
from laplacebook.search.driven_rounds import drive_rounds
from laplacebook.search.looks import precision_seen, remembered, slope_look
from laplacebook.search.newton_step import Look
from laplacebook.search.rounds import ridge, whitened

GAUSS_NEWTON = Settings("gauss_newton", "dense")


def approached(
    look_at: LookAt,
    metric_at: Callable,
    start: Float[np.ndarray, " D"],
    tolerance: float,
) -> tuple[Float[np.ndarray, " D"], Numbers]:
    """Where rounds end that look at the metric of the steps alone, and the steps: at a mode, a saddle or on the way.

    Args:
        look_at: f and its gradient at a point.
        metric_at: the metric there.
        start: shape (D,).
        tolerance: the Newton decrement that is small enough.
    """

    def level(x: np.ndarray, _: Precision) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros_like(x), np.zeros((), x.dtype)

    end = drive_rounds(look_at, metric_at, lambda _: None, level, start, tolerance)
    return end.point, end.certificate.iterations


def ridges_of(
    density: ModelDensity, product_at: Callable = hessian_product
) -> Callable[[np.ndarray, Precision], tuple[np.ndarray, np.ndarray]]:
    """The direction of least curvature at a point by the precision there, and that curvature.

    Args:
        density: the log joint.
        product_at: the program for the product of its Hessian at a point with a vector.
    """

    def ridge_at(u: np.ndarray, precision: Precision) -> tuple[np.ndarray, np.ndarray]:
        def product(v: np.ndarray) -> np.ndarray:
            return np.asarray(product_at(density, u, v))

        return ridge(partial(whitened, product, precision), u, precision)

    return ridge_at


def approached_by_gauss_newton(
    density: ModelDensity, start: Float[np.ndarray, " D"]
) -> Float[np.ndarray, " D"] | None:
    """A point near a mode of a model with matrices, as of a network, from where a few Newton steps lead to it.

    From afar they are hundreds of short ones, since the Hessian of a network is indefinite nearly everywhere; its
    Gauss-Newton matrix never is.

    Args:
        density: the log joint.
        start: shape (D,).

    Returns:
        Shape (D,); None of a model that has no Gauss-Newton matrix, or none that costs little, or no matrix as a site.
    """
    if not (may_have_layers(density) and ends_in_minutes(density)):
        return None

    def metric_at(u: np.ndarray) -> Precision:
        return precision_seen(density, u, GAUSS_NEWTON)

    def look_at(u: np.ndarray) -> Look:
        return slope_look(density, u)

    def no_other(_: np.ndarray) -> None:
        return None

    ways = remembered(look_at), metric_at, no_other, ridges_of(density)
    # To where a step along a ridge is a Newton step: a tenth of a deviation leaves a hundred of them.
    near = float(np.finfo(start.dtype).eps ** (1 / 3))
    try:
        with np.errstate(all="ignore"), twice_differentiable():
            return drive_rounds(*ways, start, near, patient=True).point
    except UnsupportedModel:
        return None
