"""Looks at a log joint that has exact gradients and no more: its Hessian is that of differences of them."""

from functools import partial
from warnings import catch_warnings, simplefilter

import jax
import numpy as np
from jaxtyping import Float

from laplacebook.gaussian.precision import DensePrecision
from laplacebook.model.density import ModelDensity
from laplacebook.search.certificate import Search
from laplacebook.search.driven import LookAt, along, drive, looks_as_its_gradient
from laplacebook.search.looks import remembered, slope_look
from laplacebook.search.metric import units

_STEP = 0.002  # standard deviations: the error of the rule of two points is below a millionth
_FIRST = 0.1  # of a coordinate, or of one: what stands for these before they are known
_LAST = 0.03  # standard deviations, for the rule of four points: its error is a millionth too
_NOISE = 1e-5  # by how much two triangles may differ that are one but for errors of the gradients
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
    differences = _Differences(partial(slope_look, density), start)
    found = drive(
        differences.slope_at, _near(differences, start), differences.hessian, estimated=True
    )
    terms, valid = jax.tree.map(np.asarray, found.beside)
    found = found._replace(beside=terms)
    if not (found.certificate.converged and valid):
        return found, False
    found = found._replace(curvature=differences.finely(found.point))
    seen = found._replace(curvature=DensePrecision.of_symmetric(found.curvature))
    return found, looks_as_its_gradient(along(differences.slope_at), seen)


def hessian_by_differences(
    density: ModelDensity, u: Float[np.ndarray, " D"]
) -> Float[np.ndarray, "D D"]:
    """The Hessian of the negative log joint at u of shape (D,), by differences of gradients."""
    differences = _Differences(partial(slope_look, density), u)
    return _symmetric(differences.by_rule(u, _STEP * differences.deviations, _TWO))


def _near(differences: "_Differences", start: np.ndarray) -> np.ndarray:
    """Where BFGS leads, which needs a gradient for each step and no Hessian; else the start."""
    from scipy.optimize import minimize

    def value(u: np.ndarray) -> tuple[float, np.ndarray]:
        look = differences.slope_at(u)
        if not (np.isfinite(look.f) and np.all(np.isfinite(look.gradient))):
            return np.inf, np.zeros_like(u)
        return float(look.f), look.gradient

    with catch_warnings():
        simplefilter("ignore", RuntimeWarning)  # of infinite values, from which it steps back
        found = minimize(value, start, jac=True, method="BFGS", options={"gtol": _NEAR})
    if not np.isfinite(found.fun):
        return start
    if found.nit >= start.size:
        differences.deviations = np.sqrt(np.diag(found.hess_inv))  # positive definite, by its steps
    return found.x.astype(start.dtype)


class _Differences:
    """Hessians, each of which knows from the last one how far apart gradients are taken."""

    def __init__(self, look_at: LookAt, start: np.ndarray) -> None:
        self.slope_at = remembered(look_at)
        self.deviations = _FIRST * np.maximum(abs(start), 1)
        self._scaled = False
        self._fine: tuple[np.ndarray, np.ndarray] | None = None

    def hessian(self, u: np.ndarray) -> np.ndarray:
        """At u of shape (D,): of one side the first time, which serves for steps, and then of both."""
        steps = _STEP * self.deviations
        columns = self.by_rule(u, steps, _TWO) if self._scaled else self._of_one_side(u, steps)
        found = _symmetric(columns)
        if np.all(np.isfinite(found)):
            known, self.deviations = self.deviations, np.asarray(units(found))
            apart = self.deviations * np.abs(columns - columns.T) * self.deviations[:, None]
            close = np.abs(np.log2(self.deviations / known)).max() <= 1 and apart.max() <= _NOISE
            # Of one coordinate there are no two triangles that would show errors of the gradients.
            self._fine = (u.copy(), found) if self._scaled and close and u.size > 1 else None
            self._scaled = True
        return found

    def finely(self, u: np.ndarray) -> np.ndarray:
        """To about a millionth: what is known of u, or by the rule of four points."""
        if self._fine is not None and np.array_equal(self._fine[0], u):
            return self._fine[1]
        return _symmetric(self.by_rule(u, _LAST * self.deviations, _FOUR))

    def by_rule(self, u: np.ndarray, steps: np.ndarray, rule: dict[int, float]) -> np.ndarray:
        """The columns of the Hessian at u of shape (D,), from gradients along each coordinate."""
        columns = [
            sum(w * self.slope_at(u + k * side).gradient for k, w in rule.items()) / side.sum()
            for side in np.diag(steps)
        ]
        return np.array(columns)

    def _of_one_side(self, u: np.ndarray, steps: np.ndarray) -> np.ndarray:
        here = self.slope_at(u).gradient
        columns = [
            (self.slope_at(u + side).gradient - here) / side.sum() for side in np.diag(steps)
        ]
        return np.array(columns)


def _symmetric(columns: np.ndarray) -> np.ndarray:
    return (columns + columns.T) / 2
