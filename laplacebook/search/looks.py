"""Looks at a log joint: small programs, between which Python decides where to look next."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.namespace import Numbers
from laplacebook.base.pytrees import on_host
from laplacebook.base.quick import at_least_some, jit_quickly, numbers_in
from laplacebook.curvature.hessian import value_gradient_hessian
from laplacebook.curvature.precision_at import entries_at, precision_of
from laplacebook.curvature.settings import Settings
from laplacebook.gaussian.precision import Precision
from laplacebook.model.density import ModelDensity
from laplacebook.search.newton_step import Look

INNER = 200  # looks at the log joint behind each look at its integral
LOOKS = 128  # at each number of the data, in a compiled search: a hundred gradients or so


def work_of_search(density: ModelDensity, *_: Any, often: bool = False, **__: Any) -> int:
    """How many numbers a search computes, about; and more than a few if it is one of many."""
    each = INNER if density.only_gradients else 1
    return at_least_some(numbers_in(density) * LOOKS * each, often)


def look(density: ModelDensity, u: Float[np.ndarray, " D"]) -> Look:
    """f at u, beside it its terms and whether u is valid, its gradient and its Hessian: in NumPy."""
    value, beside, gradient, hessian = _bend(density, u)
    return Look(np.asarray(value), beside, np.asarray(gradient), np.asarray(hessian))


def slope_look(density: ModelDensity, u: Float[np.ndarray, " D"], often: bool = False) -> Look:
    """The same without the Hessian; compiled with more care if it is looked at often."""
    value, beside, gradient = _slope(density, u, often=often)
    return Look(np.asarray(value), beside, np.asarray(gradient), None)


def precision_seen(
    density: ModelDensity, u: Float[Numbers, " D"], settings: Settings, often: bool = False
) -> Precision:
    """The precision at u by a curvature other than the Hessian: in NumPy; ``often`` as above.

    Raises:
        UnsupportedModel: the model has no such curvature, or no such structure.
    """
    entries = _entries(density, u, replace(settings, tolerance=None), often=often)
    return on_host(_factorised(entries, settings.structure))


@jit_quickly
def middle(density: ModelDensity) -> Float[Array, " D"]:
    """Where a search begins that is given no start: in the middle of the prior."""
    return density.start()


@jit_quickly
def _bend(density: ModelDensity, u: Array) -> tuple:
    return value_gradient_hessian(density.loss_and_validity, u)


@partial(jit_quickly, work=work_of_search, half=True, static_argnames="often")
def _slope(density: ModelDensity, u: Array, often: bool) -> tuple:
    (value, beside), gradient = jax.value_and_grad(density.loss_and_validity, has_aux=True)(u)
    return value, beside, gradient


@partial(jit_quickly, work=work_of_search, half=True, static_argnames=("settings", "often"))
def _entries(density: ModelDensity, u: Array, settings: Settings, often: bool) -> Any:
    return entries_at(density, u, settings)


# Little but LAPACK, which is compiled already; in NumPy its threads would compete with those of XLA.
_factorised = jit_quickly(precision_of, lambda *_: 0, static_argnums=1)
