"""The maximum of a log evidence over the logarithms of hyperparameters, with a certificate."""

from abc import ABC, abstractmethod
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.errors import LaplaceError, NonFinite, NotConverged
from laplacebook.base.progress import progress
from laplacebook.base.quick import jit_quickly, numbers_in
from laplacebook.evidence.hyperparameters import Hyperparameters
from laplacebook.search.looks import LOOKS

FAR = 20  # of a logarithm from its start: a factor of 5e8
AWAY = 0.1  # of the logarithms: from here Newton steps end what rounding keeps a line search from
POLISH = 5  # of them
TOGETHER = 0.01  # of a direction: hyperparameters that move along it


class Objective(ABC):
    """The log evidence as a differentiable function of logarithms; a pytree."""

    @abstractmethod
    def __call__(
        self, x: Float[Array, " H"], u: Float[Array, " D"]
    ) -> tuple[Float[Array, ""], Float[Array, " D"]]:
        """The log evidence at x, and the mode there; a search for it, if there is one, begins at u."""


class Peak(NamedTuple):
    """Where an ascent ended.

    Attributes:
        x: the logarithms, shape (H,).
        value: the log evidence.
        gradient: of it with respect to x, shape (H,).
        hessian: by central differences of the gradient, shape (H, H).
        history: the log evidence at the start and after each step.
        level: whether no derivative exceeds 1e-6 (0.01 in single precision).
        distance: the largest element of the Newton step that is left; infinite if not concave.
        mode: where the search at the highest evidence ended, shape (D,); the one that was given, if there was none.
        converged: the Hessian is negative definite, beyond what its differences tell, and the
            distance at most 1e-6 (0.01 in single precision).
        ridge: a direction of x, shape (H,), along which the evidence is level as far as they tell;
            None if there is none.
    """

    x: Array
    value: float
    gradient: np.ndarray
    hessian: np.ndarray
    history: np.ndarray
    level: bool
    distance: float
    mode: Array
    converged: bool
    ridge: np.ndarray | None = None


def ascend(
    objective: Objective,
    start: Float[Array, " H"],
    u: Float[Array, " D"],
    steps: int,
    progress_bar: bool | None,
) -> Peak:
    """Climb by L-BFGS (Liu and Nocedal 1989) as SciPy has it, which compiles the objective once.

    The last steps are Newton's, with central differences of the gradient.

    Args:
        objective: the log evidence.
        start: x, shape (H,).
        u: the mode there, shape (D,).
        steps: how many at most.
        progress_bar: whether to show one; by default if the standard error stream is a terminal.

    Returns:
        Where it ended. Nothing is raised.
    """
    from scipy.optimize import OptimizeResult, minimize  # here, because it is slow to import

    def at(x: np.ndarray) -> tuple[float, np.ndarray, Array]:
        (value, mode), slope = _value_and_gradient(objective, jnp.asarray(x, start.dtype), u)
        return float(value), np.asarray(slope, float), mode

    value, slope, _ = at(np.asarray(start))
    history = [value]
    # The first step is as long as the slope, and that of many rows would lead to where there is no mode.
    unit = max(1.0, float(np.nan_to_num(np.max(np.abs(slope)))))
    best = value

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal u, best
        value, slope, mode = at(x)
        if not (np.isfinite(value) and np.all(np.isfinite(slope))):
            return 1 - best / unit, np.zeros_like(x)  # a step that is too long, and no end
        # A step that is too long may lead to another mode, from which there is no way back.
        if value >= best:
            u, best = mode, value
        return -value / unit, -slope / unit

    eps = float(jnp.finfo(start.dtype).eps)
    width = eps**0.2

    def bend(x: np.ndarray, e: np.ndarray, width: float) -> np.ndarray:
        """The Hessian times e."""
        ahead, behind = (at(x + sign * width * e)[1] for sign in (1, -1))
        return (ahead - behind) / (2 * width)

    def newton(x: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The Hessian, and the step to the maximum; infinite if it is not negative definite."""
        hessian = np.array([bend(x, e, width) for e in np.eye(x.size)])
        hessian = (hessian + hessian.T) / 2
        if not np.all(np.isfinite(hessian)):
            return hessian, np.full_like(slope, np.inf)
        bends = np.linalg.eigvalsh(hessian)
        if not bends[-1] < -np.sqrt(eps) * abs(bends[0]):
            return hessian, np.full_like(slope, np.inf)
        return hessian, -np.linalg.solve(hessian, slope)

    def ridge(x: np.ndarray, hessian: np.ndarray) -> np.ndarray | None:
        """The direction that bends least downwards, where that is rounding, or the error of the differences."""
        if not np.all(np.isfinite(hessian)):
            return None
        bends, directions = np.linalg.eigh(hessian)
        along = directions[:, -1]
        near, far = (along @ bend(x, along, times * width) for times in (1, 4))
        lost = abs(bends[-1]) <= np.sqrt(eps) * np.max(np.abs(bends))
        return along if lost or abs(near - far) > abs(far) / 2 else None

    tolerance = 1e-6 if start.dtype == jnp.float64 else 0.01
    with progress(steps, progress_bar) as bar:

        def told(intermediate_result: OptimizeResult) -> None:
            history.append(-float(intermediate_result.fun) * unit)
            bar.update()

        end = minimize(
            loss,
            np.asarray(start, float),
            method="L-BFGS-B",
            jac=True,
            bounds=[(x - FAR, x + FAR) for x in start.tolist()],
            callback=told,
            options={"maxiter": steps, "gtol": tolerance / (2 * unit), "ftol": 0.0},
        )
    x, (value, slope, _) = end.x, at(end.x)
    hessian, step = newton(x, slope)
    for _ in range(POLISH):
        distance = np.max(np.abs(step))
        if not tolerance < distance < AWAY:
            break
        trial = at(x + step)
        if not np.max(np.abs(trial[1])) < np.max(np.abs(slope)):
            break
        x, (value, slope, _) = x + step, trial
        hessian, step = newton(x, slope)
    distance = float(np.max(np.abs(step)))
    level = bool(np.max(np.abs(slope)) <= tolerance)
    along = ridge(x, hessian) if level or distance <= tolerance else None
    return Peak(
        jnp.asarray(x, start.dtype),
        value,
        slope,
        hessian,
        np.array(history),
        level,
        distance,
        u,
        distance <= tolerance and along is None,
        along,
    )


def _work(objective: Objective, *_: Array) -> int:
    return numbers_in(objective) * LOOKS


@partial(jit_quickly, work=_work, half=True)
def _value_and_gradient(objective: Objective, x: Array, u: Array) -> tuple:
    return jax.value_and_grad(objective, has_aux=True)(x, u)


def explain_no_maximum(
    hyperparameters: Hyperparameters,
    start: Float[Array, " H"],
    peak: Peak,
    steps: int,
    refit: bool,
    curvature: str,
) -> LaplaceError:
    """The error for an ascent that ended at no maximum.

    Args:
        hyperparameters: what was varied.
        start: where the ascent began, shape (H,).
        peak: where it ended.
        steps: how many there might have been.
        refit: whether the mode was found again at every step.
        curvature: of the fits.

    Returns:
        The error to raise.
    """
    names, slopes = np.array(hyperparameters.elements), peak.gradient
    values = np.exp(np.asarray(peak.x))
    at = ", ".join(f"{name} = {value:.3g}" for name, value in zip(names, values, strict=True))
    if not (np.isfinite(peak.value) and np.all(np.isfinite(slopes))):
        return NonFinite(
            f"The evidence or its gradient is not finite at {at}.",
            causes=[
                "a curvature that is not positive definite there, of a loss that is not convex",
                "a search that finds no mode there (refit=True)",
                "a hyperparameter so large or small that the density overflows",
            ],
            remedy="begin elsewhere: fit at better values, and maximise from there.",
        )
    flat = (slopes == 0) & np.all(peak.hessian == 0, axis=1)
    if np.any(flat):
        return NotConverged(
            f"The evidence does not depend on {' and '.join(names[flat])}.",
            causes=[
                "an argument that the model does not use with this likelihood",
                'one of what the fit holds fixed: the layers before the last (structure="last_layer")',
            ],
            remedy="leave it out of hyperparameters"
            + (
                "; what is an element of an array stays where a function around the model builds the array from "
                "those arguments that are to move."
                if any(name.endswith("]") for name in names[flat])
                else "."
            ),
        )
    moved = np.asarray(peak.x - start)
    running = np.abs(moved) > FAR / 2
    along = np.zeros(names.size) if peak.ridge is None else peak.ridge
    together = np.abs(along) > TOGETHER * np.max(np.abs(along))
    if np.sum(together) > 1 and not np.any(running):
        share = along / along[np.argmax(np.abs(along))]
        moves = " and ".join(
            f"{s:+.2g} in that of {n}"
            for n, s in zip(names[together], share[together], strict=True)
        )
        return NotConverged(
            f"The evidence does not tell {' and '.join(names[together])} apart: at {at} it is level, as far as "
            f"can be told, along {moves} (in logarithms). Where a search ends on that ridge depends on where "
            "it began.",
            causes=[
                "arguments of which the likelihood sees a product, or a sum of variances, alone"
            ],
            remedy="leave one of them out of hyperparameters: it keeps the value that the fit has.",
        )
    if np.sum(together) == 1 and not np.any(running):
        return NotConverged(
            f"The evidence is level, as far as can be told, as a function of {names[together][0]}. The search stood "
            f"at {at}.",
            causes=[
                "a start so far away that nothing depends on it: a prior so narrow that it alone decides, or so wide "
                "that it says nothing",
                "data that say nothing of it",
                *(["rounding, in single precision"] * bool(start.dtype == jnp.float32)),
            ],
            remedy="begin elsewhere, or fix that hyperparameter"
            + (", or use numpyro.enable_x64()." if start.dtype == jnp.float32 else "."),
        )
    if peak.level or np.any(running):
        widest = running if np.any(running) else np.abs(moved) == np.max(np.abs(moved))
        ends = [
            f"{name} goes to {'infinity' if up else 'zero'}"
            for name, up in zip(names[widest], moved[widest] > 0, strict=True)
        ]
        stopped = bool(np.any(np.abs(moved) > 0.999 * FAR))
        return NotConverged(
            f"The evidence has no maximum that can be told from a level stretch: it rises, by less "
            f"and less, as {' and '.join(ends)}. The search stood at {at}.",
            causes=[
                *(
                    [
                        f"a start so far from the maximum: no search goes beyond a factor of {np.exp(FAR):.0e}"
                    ]
                    * stopped
                ),
                *(
                    ["rounding, in single precision: numpyro.enable_x64()"]
                    * (start.dtype == jnp.float32)
                ),
                "data that say nothing of these parameters: their prior may be as narrow as it likes",
                "a model that fits its data exactly: the noise may be as small as it likes",
                "with refit=False a mode that was fitted with a quite different hyperparameter",
            ],
            remedy="fix that hyperparameter, or give the model fewer parameters; or begin elsewhere.",
        )
    steepest = int(np.argmax(np.abs(slopes)))
    taken, single = peak.history.size - 1, start.dtype == jnp.float32
    causes = [
        *(["too few steps"] * (taken >= steps)),
        "searches that end at different modes, between which the evidence jumps: one mode may be none any more "
        "as the hyperparameters move"
        if refit
        else "a Hessian at the mode held fixed that is not positive definite beside this point",
        *(["an evidence too noisy for a smaller derivative, in single precision"] * single),
    ]
    remedies = [
        *(["raise steps="] * (taken >= steps)),
        f"use refit={not refit}",
        *(['a fit with curvature="gauss_newton"'] * (curvature == "hessian")),
        *(["begin at another mode (of a network, after training with another key)"] * refit),
        *(["use numpyro.enable_x64()"] * single),
        "begin nearer",
    ]
    return NotConverged(
        f"No maximum after {taken} of at most {steps} steps: at {at} the derivative with respect to the "
        f"logarithm of {names[steepest]} is {slopes[steepest]:.2g} nats.",
        causes=causes,
        remedy=f"{', or '.join(remedies)}.",
    )
