"""Why is there no mode? A failed search, turned into the error that says so."""

import numpy as np
from jaxtyping import Array, Float

from laplacebook.curvature import value_gradient_hessian
from laplacebook.density import ModelDensity
from laplacebook.errors import LaplaceError, NonFinite, NotConverged, NotPositiveDefinite
from laplacebook.mode import MAX_ITERATIONS, Certificate
from laplacebook.validity import Parameter, parameters, supports_data

__all__ = ["explain"]


def explain(density: ModelDensity, u: Float[Array, " D"], certificate: Certificate) -> LaplaceError:
    """The error for a search that ended at u without a certificate.

    Args:
        density: the log joint that was searched.
        u: where the search stood, shape (D,).
        certificate: what is known of that point.

    Returns:
        The error to raise: NonFinite, NotConverged or NotPositiveDefinite.
    """
    value, _, gradient, hessian = value_gradient_hessian(density.loss, u)
    finite = all(np.all(np.isfinite(x)) for x in (value, gradient, hessian))
    if not (finite and density.valid(u)):
        return _non_finite(density, u)
    edge = _sites_at_edge(density, u, hessian)
    if edge:
        return _boundary(edge)
    if not np.isfinite(certificate.condition_number):
        return _not_positive_definite(density, hessian)
    return _not_converged(density, u, certificate)


def _non_finite(density: ModelDensity, u: Array) -> NonFinite:
    trace, log_probs = density.trace(u)
    observed = [trace[n] for n in log_probs if trace[n]["is_observed"]]
    wrong = [p for n in log_probs for p in _invalid(trace[n])]
    missing = [s for s in observed if not np.all(np.isfinite(s["value"]))]
    outside = [s for s in observed if not supports_data(s)]
    infinite = [trace[n] for n in log_probs if not np.isfinite(log_probs[n])]
    arguments, at = density.not_finite(), _at(density, u)
    if missing and not all(np.isfinite(log_probs[s["name"]]) for s in missing):
        return _missing_data(missing[0], arguments)
    if wrong:
        return _invalid_parameter(*wrong[0], at, arguments)
    if outside:
        return _outside(outside[0])
    if infinite:
        return _no_density(infinite[0], float(log_probs[infinite[0]["name"]]), at, arguments)
    return NonFinite(
        f"The log joint is finite at the point where the search stood, {at}, but a derivative of it "
        "is not.",
        causes=[
            "sqrt, abs, log or a norm at zero",
            "an overflow within the model",
            "a log joint without bound: the scale of a centred hierarchical prior goes to zero",
        ],
        remedy="pass start= with values of the latent sites away from that point; write a hierarchical "
        "prior non-centred (numpyro.infer.reparam.LocScaleReparam).",
    )


def _invalid(site: dict) -> list[tuple[dict, Parameter]]:
    return [(site, p) for p in parameters(site["fn"]) if not np.all(p.valid)]


def _missing_data(site: dict, arguments: list[str]) -> NonFinite:
    places = int(np.sum(~np.isfinite(site["value"])))
    return NonFinite(
        f"The data of site '{site['name']}' are NaN or infinite in {places} place(s)"
        f"{_because(arguments)}.",
        causes=["missing values coded as NaN", "a division by zero before the data came here"],
        remedy="drop or impute them, or mask them with numpyro.handlers.mask.",
    )


def _invalid_parameter(
    site: dict, parameter: Parameter, at: str, arguments: list[str]
) -> NonFinite:
    owner, name, value, valid = parameter
    bad = np.ravel(np.broadcast_to(value, np.broadcast_shapes(np.shape(value), np.shape(valid))))
    if np.shape(valid) == np.shape(value):
        bad = bad[~np.ravel(valid)]
    part = "likelihood" if site["is_observed"] else "prior"
    return NonFinite(
        f"The parameters of site '{site['name']}' are not valid where the search stood, {at}: {name} = "
        f"{', '.join(f'{float(x):.4g}' for x in bad[:3])}{', ...' if bad.size > 3 else ''} is not "
        f"a {name} of {type(owner).__name__}{_because(arguments)}.",
        causes=[
            f"the {part} is not defined there: a latent site enters {name} without a link (exp, "
            "sigmoid, softmax)",
            "a sign or a unit in the model's own numbers, or among its arguments",
        ],
        remedy=f"see that {name} satisfies {owner.arg_constraints[name]} for all values of the latent sites.",
    )


def _outside(site: dict) -> NonFinite:
    return NonFinite(
        f"The data of site '{site['name']}' lie outside the support of its likelihood, "
        f"{type(site['fn']).__name__}: {site['fn'].support}.",
        causes=["classes coded 1, 2 or -1, 1 where 0, 1 is meant", "a count with a fraction"],
        remedy="code the data as the likelihood expects, or choose another likelihood.",
    )


def _no_density(site: dict, log_density: float, at: str, arguments: list[str]) -> NonFinite:
    part = "likelihood" if site["is_observed"] else "prior or the transform of its support"
    return NonFinite(
        f"The log density of site '{site['name']}' is {log_density} at the point where the search "
        f"stood, {at}{_because(arguments)}.",
        causes=[
            f"the {part} is not defined there (a negative scale, a probability above one)",
            "data outside the support of the likelihood",
            "NaN or infinity among the model's arguments",
        ],
        remedy="check the model and its data there, or pass start= with values of the latent sites.",
    )


def _because(arguments: list[str]) -> str:
    return f"; {' and '.join(arguments[:3])}" if arguments else ""


def _sites_at_edge(density: ModelDensity, u: Array, hessian: Array) -> list[str]:
    """The sites with an element within a thousandth of its curvature's width of its edge."""
    diagonal = np.abs(np.diagonal(hessian))
    width = 1 / np.sqrt(np.where(diagonal > 0, diagonal, np.inf))
    near = np.asarray(density.terms(u).room) <= np.maximum(1e-3 * width, 1e-6 * np.abs(u))
    owners = [site.name for site in density.sites for _ in range(site.size)]
    return list(dict.fromkeys(name for name, at_edge in zip(owners, near, strict=True) if at_edge))


def _boundary(sites: list[str]) -> NotConverged:
    names = ", ".join(f"'{name}'" for name in sites)
    return NotConverged(
        f"The log joint still rises at the edge of the support of {names}: there is no interior mode.",
        causes=[
            "the data are all of one kind (all heads) and the prior is flat",
            "a scale or variance whose posterior piles up at zero",
        ],
        remedy='use space="unconstrained", where the log Jacobian moves the mode inside, or a prior that '
        "vanishes at the edge.",
    )


def _not_positive_definite(density: ModelDensity, hessian: Array) -> NotPositiveDefinite:
    diagonal = np.abs(np.diagonal(hessian))
    scale = np.where(diagonal > 0, 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1)), 1)
    values, vectors = np.linalg.eigh(scale[:, None] * np.asarray(hessian) * scale)
    direction = scale * vectors[:, 0]
    direction = direction / np.max(np.abs(direction))
    names = density.coordinate_names()
    parts = [f"{w:+.2g} {name}" for w, name in zip(direction, names, strict=True) if abs(w) > 0.05]
    upward = values[0] < -len(names) * np.finfo(values.dtype).eps
    bend = "curves upwards" if upward else "is flat"
    return NotPositiveDefinite(
        f"The log joint {bend} along {' '.join(parts[:6])}{' ...' if len(parts) > 6 else ''}: "
        "the point that was found is not a mode with a Gaussian around it.",
        causes=[
            "parameters of which the data and the prior fix only a combination (collinear, redundant)",
            "a flat prior where the data say nothing",
            "a mode at infinity (separable data without a prior)",
        ],
        remedy="give those sites a proper prior, or remove the redundant one. Nothing was added to the diagonal.",
    )


def _not_converged(density: ModelDensity, u: Array, certificate: Certificate) -> NotConverged:
    precision = "float64" if u.dtype == np.float64 else "float32"
    single = "; in float32 also try numpyro.enable_x64()" if precision == "float32" else ""
    return NotConverged(
        f"No mode after {int(certificate.iterations)} of at most {MAX_ITERATIONS} iterations: the search stood at "
        f"{_at(density, u)}, {float(certificate.newton_decrement):.2g} posterior standard deviations "
        f"from the nearest stationary point by its curvature ({precision}).",
        causes=[
            "the log joint has no maximum: an improper posterior, or a mode at infinity",
            "the log joint has a kink (abs, clip, where) or is noisy at the scale of the machine precision",
            "the start is too far away",
        ],
        remedy=f"check the priors, or pass start= with values of the latent sites{single}.",
    )


def _at(density: ModelDensity, u: Array) -> str:
    shown = [f"{n} = {float(x):.4g}" for n, x in zip(density.coordinate_names(), u, strict=True)]
    where = "" if density.space == "constrained" else " (unconstrained)"
    return ", ".join(shown[:4]) + (", ..." if len(shown) > 4 else "") + where
