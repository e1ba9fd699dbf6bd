"""The marginals of numbers that several coordinates decide, such as those of a simplex, by weighted draws."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from laplacebook.base.weights import usable_below
from laplacebook.beyond.weighted_draws import weighted_draws
from laplacebook.fit.functions import weighted_quantiles
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.fit.summary import element_names, elementwise, values_at
from laplacebook.trust.slices import Number

_DRAWS = 10_000
_WORTH = 1_000  # draws of the posterior: an interval is then known to a few hundredths of its width
_LEVELS = np.array([0.05, 0.5, 0.95])
_CONSTANT = 1e-9  # of the largest: the diagonal of a correlation matrix


def numbers_by_draws(
    approx: LaplaceApproximation, key: Key[Array, ""], progress_bar: bool | None = None
) -> dict[str, tuple[Number, ...]]:
    """Of each site of which no number is a function of one coordinate alone, each number that is no constant.

    Args:
        approx: the approximation.
        key: of the draws.
        progress_bar: as in :func:`~laplacebook.importance_sampling`.

    Returns:
        By site. Empty where the weights of the draws do not tell: a k-hat above 0.7, or draws that are worth fewer than
        a thousand.
    """
    density = approx.density
    sites = [site for site in density.sites if site.name not in elementwise(density)]
    if not sites:
        return {}
    draws = weighted_draws(approx, key, _DRAWS, progress_bar)
    if not (draws.pareto_k <= usable_below(len(draws.u)) and draws.effective_groups >= _WORTH):
        return {}
    weights = np.exp(draws.smoothed)
    values = jax.device_get(values_at(density, jnp.asarray(draws.u, approx.mode_vector.dtype)))
    of_q, spreads = approx.quantiles(_LEVELS), approx.standard_deviation
    found = {}
    for site in sites:
        x = values[site.name].reshape(len(weights), -1).astype(float)
        exact = np.asarray(weighted_quantiles(x, weights, _LEVELS))
        ours = np.asarray(of_q[site.name], float).reshape(3, -1)
        mean = weights @ x
        deviations = np.sqrt(weights @ (x - mean) ** 2)
        held = weights @ ((ours[0] <= x) & (x <= ours[2]))
        varies = np.ptp(x, axis=0) > _CONSTANT * np.max(np.abs(x), axis=0)
        found[site.name] = tuple(
            Number(
                name,
                np.concatenate([exact[:, j], ours[:, j]]),
                float(held[j]),
                np.array([deviations[j], np.ravel(spreads[site.name])[j]]),
            )
            for j, name in enumerate(element_names(site))
            if varies[j]
        )
    return found
