"""Looks at a log joint that has exact gradients and no more: its Hessian is that of differences of them."""

from functools import partial
from warnings import catch_warnings, simplefilter

import jax
import numpy as np
from jaxtyping import Float

from laplacebook.gaussian.precision import DensePrecision
from laplacebook.model.density import ModelDensity
from laplacebook.search.certificate import Search
from laplacebook.search.driven import LookAt, drive, looks_as_its_gradient
from laplacebook.search.looks import slope_look
from laplacebook.search.metric import units

_STEP = 0.01  # standard deviations
_FIRST = 0.1  # of a coordinate, or of one: what stands for these before they are known
_LAST = 0.03  # standard deviations, for the rule of four points: its error is a millionth
_NEAR = 0.1  # nats for a step of one: from there Newton's method needs few steps
_TWO = {1: 1 / 2, -1: -1 / 2}
_FOUR = {1: 2 / 3, -1: -2 / 3, 2: -1 / 12, -2: 1 / 12}


def search_by_differences(
    density: ModelDensity, start: Float[np.ndarray, " D"]
) -> tuple[Search, bool]:
    """Where damped Newton steps from ``start`` end, with the Hessian there, and whether that is sound.

    Args:
        density: the log joint.
        start: shape (D,).

    Returns:
        The search, in NumPy, with the terms of the log joint beside it.
    """
    slope_at = partial(slope_look, density)
    differences = _Differences(slope_at, start)
    found = drive(slope_at, _near(slope_at, start), differences.hessian, estimated=True)
    terms, valid = jax.tree.map(np.asarray, found.beside)
    found = found._replace(beside=terms)
    if not (found.certificate.converged and valid):
        return found, False
    found = found._replace(curvature=differences.finely(found.point))
    seen = found._replace(curvature=DensePrecision.of_symmetric(found.curvature))
    return found, looks_as_its_gradient(slope_at, seen)


def hessian_by_differences(
    density: ModelDensity, u: Float[np.ndarray, " D"]
) -> Float[np.ndarray, "D D"]:
    """The Hessian of the negative log joint at u of shape (D,), by differences of gradients."""
    return _Differences(partial(slope_look, density), u).hessian(u)


def _near(slope_at: LookAt, start: np.ndarray) -> np.ndarray:
    """Where BFGS leads, which needs a gradient for each step and no Hessian; else the start."""
    from scipy.optimize import minimize

    def value(u: np.ndarray) -> tuple[float, np.ndarray]:
        look = slope_at(u)
        if not (np.isfinite(look.f) and np.all(np.isfinite(look.gradient))):
            return np.inf, np.zeros_like(u)
        return float(look.f), look.gradient

    with catch_warnings():
        simplefilter("ignore", RuntimeWarning)  # of infinite values, from which it steps back
        found = minimize(value, start, jac=True, method="BFGS", options={"gtol": _NEAR})
    return found.x.astype(start.dtype) if np.isfinite(found.fun) else start


class _Differences:
    """Hessians, each of which knows from the last one how far apart gradients are taken."""

    def __init__(self, slope_at: LookAt, start: np.ndarray) -> None:
        self.slope_at = slope_at
        self.deviations = _FIRST * np.maximum(abs(start), 1)

    def hessian(self, u: np.ndarray) -> np.ndarray:
        """At u of shape (D,), by the rule of two points."""
        found = self._by_rule(u, _STEP * self.deviations, _TWO)
        if np.all(np.isfinite(found)):
            self.deviations = np.asarray(units(found))
        return found

    def finely(self, u: np.ndarray) -> np.ndarray:
        """By the rule of four points, where another one was taken before."""
        return self._by_rule(u, _LAST * self.deviations, _FOUR)

    def _by_rule(self, u: np.ndarray, steps: np.ndarray, rule: dict[int, float]) -> np.ndarray:
        columns = [
            sum(w * self.slope_at(u + k * side).gradient for k, w in rule.items()) / side.sum()
            for side in np.diag(steps)
        ]
        hessian = np.array(columns)
        return (hessian + hessian.T) / 2
