"""What a mixture says of new data: the predictions of its components, joined by their shares."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from laplacebook.base.estimate import Estimate
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.predictive.prediction import Prediction


def components_to_ask(approx: Any, method: str | None) -> tuple[LaplaceApproximation, ...]:
    """Those of a mixture, where each answers by a method of its own, without what is known against it; else none.

    By default they do where draws are of no use: their curvature is that of models linearised at their modes.

    Args:
        approx: any approximation.
        method: by its name, or None for the default.
    """
    components = getattr(approx, "components", ())
    if method == "monte_carlo" or not components:
        return ()
    if method is None and components[0].settings.curvature == "hessian":
        return ()
    return tuple(replace(one, other_modes=()) for one in components)


def joined(approx: Any, parts: Sequence[Any]) -> Array | Estimate | Prediction:
    """One prediction of several: the variance of a mixture is the mean variance and that of the means.

    Args:
        approx: the mixture.
        parts: what each of them says, by the same method: arrays, estimates or predictions.

    Raises:
        ValueError: they are directions, which have no mean on the line.
    """
    with jax.ensure_compile_time_eval():  # of a mixture that a compiled function closes over
        shares = approx.shares

    def mean(values: Sequence[Any]) -> Any:
        return sum(share * value for share, value in zip(shares, values, strict=True))

    def error(values: Sequence[Any]) -> Any:
        return jnp.sqrt(sum((w * e) ** 2 for w, e in zip(shares, values, strict=True)))

    if isinstance(parts[0], Estimate):
        return Estimate(mean([p.value for p in parts]), error([p.standard_error for p in parts]))
    if not isinstance(parts[0], Prediction):
        return mean(parts)
    if parts[0].angle:
        raise ValueError(
            'The directions that components tell are joined by method="monte_carlo" alone.'
        )
    centre = mean([p.mean for p in parts])
    apart = [p.mean - centre for p in parts]
    covariance = None
    if parts[0].epistemic_covariance is not None:
        outer = [a[..., :, None] * a[..., None, :] for a in apart]
        covariance = mean([p.epistemic_covariance + o for p, o in zip(parts, outer, strict=True)])
    return Prediction(
        centre,
        mean([p.epistemic + a**2 for p, a in zip(parts, apart, strict=True)]),
        mean([p.noise for p in parts]),
        error([p.standard_error for p in parts]),
        covariance,
    )
