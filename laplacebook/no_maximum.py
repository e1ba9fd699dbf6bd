"""Why is there no maximum of the evidence? The error that says so."""

import numpy as np
from jaxtyping import Array, Float

from laplacebook.ascent import FAR, Peak
from laplacebook.errors import LaplaceError, NonFinite, NotConverged
from laplacebook.hyperparameters import Hyperparameters

__all__ = ["explain_no_maximum"]


def explain_no_maximum(
    hyperparameters: Hyperparameters, start: Float[Array, " H"], peak: Peak
) -> LaplaceError:
    """The error for an ascent that ended at no maximum.

    Args:
        hyperparameters: what was varied.
        start: where the ascent began, shape (H,).
        peak: where it ended.

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
            causes=["an argument that the model does not use with this likelihood"],
            remedy="leave it out of hyperparameters.",
        )
    moved = np.asarray(peak.x - start)
    running = np.abs(moved) > FAR / 2
    if peak.level or np.any(running):
        widest = running if np.any(running) else np.abs(moved) == np.max(np.abs(moved))
        ends = [
            f"{name} goes to {'infinity' if up else 'zero'}"
            for name, up in zip(names[widest], moved[widest] > 0, strict=True)
        ]
        return NotConverged(
            f"The evidence has no maximum that can be told from a level stretch: it rises, by less "
            f"and less, as {' and '.join(ends)}. The search stood at {at}.",
            causes=[
                "data that say nothing of these parameters: their prior may be as narrow as it likes",
                "a model that fits its data exactly: the noise may be as small as it likes",
                "with refit=False a mode that was fitted with a quite different hyperparameter",
            ],
            remedy="fix that hyperparameter, or give the model fewer parameters; or begin elsewhere.",
        )
    steepest = int(np.argmax(np.abs(slopes)))
    return NotConverged(
        f"No maximum after {peak.history.size - 1} steps: at {at} the derivative with respect to the "
        f"logarithm of {names[steepest]} is {slopes[steepest]:.2g} nats.",
        causes=[
            "too few steps",
            "an evidence too noisy for a smaller derivative, in single precision",
        ],
        remedy="raise steps=, use numpyro.enable_x64(), or begin nearer.",
    )
