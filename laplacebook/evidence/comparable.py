"""What may be compared: evidences that are finite, proper and of the same data."""

from collections.abc import Mapping, Sequence
from math import inf, isfinite
from numbers import Real
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.checks import require_numbers, require_one
from laplacebook.base.errors import LaplaceError, UnsupportedModel
from laplacebook.base.estimate import Estimate
from laplacebook.curvature.settings import DENSE_HESSIAN
from laplacebook.fit.approximation import Approximation
from laplacebook.fit.require_fit import require_converged
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.fit.summary import left_of_curvature
from laplacebook.model.observations import Observed, observed, same_numbers, scaled_sites
from laplacebook.model.plain_function import is_plain


class Contender(NamedTuple):
    """One of the models that are compared.

    Attributes:
        name: of the model.
        log_evidence: finite.
        error: its standard error; None where it is no estimate.
        approx: where the evidence comes from; None if that is not known.
    """

    name: str
    log_evidence: float
    error: float | None = None
    approx: Approximation | None = None


def contender(name: str, model: Any) -> Contender:
    """A model as :func:`~laplacebook.compare` takes it, checked.

    Raises:
        ValueError: it is a batch, or traced.
        TypeError: it is neither an approximation nor an Estimate nor a number.
        LaplaceError: the fit failed, or the log evidence or its error is not finite.
        UnsupportedModel: a prior is improper.
    """
    if isinstance(model, LaplaceApproximation):
        _refuse_batch(name, model.mode_vector, 1)
        require_converged(model, f"The fit of '{name}'")
    if isinstance(model, Approximation):
        _refuse_improper(name, model)
        _refuse_scaled(name, model)
        return Contender(name, _finite(name, model.log_evidence), approx=model)
    if isinstance(model, Estimate):
        _refuse_batch(name, model.value, 0)
        return Contender(name, _finite(name, model.value), _error(name, model.standard_error))
    if isinstance(model, bool) or not isinstance(model, Real | np.ndarray | jax.Array):
        raise TypeError(
            f"models['{name}'] is a {type(model).__name__}, not an approximation that laplace "
            "or nested returned, an Estimate of a log evidence, or a number"
        )
    _refuse_batch(name, model, 0)
    return Contender(name, _finite(name, model))


def _finite(name: str, log_evidence: Any) -> float:
    if not isfinite(log_evidence):
        raise LaplaceError(
            f"The log evidence of '{name}' is {log_evidence}: it cannot be compared."
        )
    return float(log_evidence)


def _error(name: str, error: Any) -> float:
    if not 0 <= error < inf:
        raise LaplaceError(
            f"The log evidence of '{name}' has a standard error of {error}: it cannot be compared.",
            causes=["a few draws carry the whole estimate (an effective sample size below ten)"],
            remedy="take more draws, or draw from a distribution nearer to the posterior.",
        )
    return float(error)


def _refuse_batch(name: str, number: Any, dimensions: int) -> None:
    require_numbers("compare", number)
    require_one(f"models['{name}']", np.shape(number), dimensions, mappable=False)


def _refuse_improper(name: str, approx: Approximation) -> None:
    flat = ", ".join(f"'{site}'" for site in approx.density.improper)
    if flat:
        raise UnsupportedModel(
            f"The evidence of '{name}' is defined only up to a constant, so it has no Bayes factor: "
            f"the prior of {flat} is {approx.density.without_prior}.",
            causes=[
                "a flat prior (numpyro.distributions.ImproperUniform)",
                "a mask over a latent site, which hides its prior",
                "a fit of maximum_likelihood, which leaves all priors out",
            ],
            remedy="give every latent site a proper prior and fit with laplace; without priors, "
            "compare by bic.",
        )


def _refuse_scaled(name: str, approx: Approximation) -> None:
    """A power of a density is no density."""
    scaled = [f"'{site}'" for site in scaled_sites(approx.density, _point(approx))]
    if scaled:
        raise UnsupportedModel(
            f"In '{name}' the log density of {', '.join(scaled)} is scaled: a power of a density is "
            "none, so there is no evidence to compare.",
            causes=[
                "numpyro.handlers.scale (as by weights= of lb.network), or a plate with a subsample"
            ],
            remedy="compare models of all the data, unscaled: a row that is there twice is written twice.",
        )


def refuse_other_data(rows: Sequence[Contender]) -> list[str]:
    """A line that names the models whose data are not known.

    Raises:
        LaplaceError: two models were fitted to different data.
    """
    known = {row.name: data for row in rows if (data := _data(row)) is not None}
    names = list(known)
    for name in names[1:]:
        pair = {n: known[n] for n in (names[0], name)}
        one, other = pair.values()
        if not same_numbers(one.numbers, other.numbers):
            raise _other_data({n: data.numbers for n, data in pair.items()})
        if not same_numbers(one.counted, other.counted):
            raise _mass_with_density({n: data.counted.size for n, data in pair.items()})
        _refuse_other_totals({n: data.of_totals for n, data in pair.items()})
    unknown = ", ".join(sorted(f"'{row.name}'" for row in rows if row.name not in known))
    return [f"not checked to be of the same data: {unknown}"] if unknown else []


def refuse_other_curvature(rows: Sequence[Contender]) -> None:
    """Refuse evidences that leave out different parts of the curvature.

    Raises:
        LaplaceError: two models were fitted with different curvatures or structures.
    """
    kinds = {row.name: _curvature(row.approx) for row in rows if row.approx is not None}
    if len({*kinds.values()}) > 1:
        listed = ", ".join(f"'{name}' with {kind}" for name, kind in kinds.items())
        raise LaplaceError(
            f"The models were fitted with different curvatures, {listed}: what a structure leaves out "
            "of the curvature is missing in the evidence, by more than most Bayes factors.",
            causes=["structure= or curvature= differs between the fits"],
            remedy="fit all models in the same way. Where you know what you compare, pass the number "
            "approx.log_evidence instead of approx.",
        )


def _curvature(approx: Approximation) -> str:
    """Of a mixture that of its components."""
    return left_of_curvature(next((one.settings for one in approx.gaussians), DENSE_HESSIAN))


def _data(row: Contender) -> Observed | None:
    if row.approx is None or is_plain(row.approx.density):
        return None
    return observed(row.approx.density, _point(row.approx))


def _point(approx: Approximation) -> Float[Array, " D"]:
    """Where a model is run to see its data, on which they do not depend."""
    if isinstance(approx, LaplaceApproximation):
        return approx.mode_vector
    return approx.density.start()


def _other_data(data: Mapping[str, np.ndarray]) -> LaplaceError:
    listed = " and ".join(f"'{name}' to {_described(numbers)}" for name, numbers in data.items())
    return LaplaceError(
        f"The models were fitted to different data, {listed}: a Bayes factor compares densities of "
        "the same data.",
        causes=[
            "y in one model and log(y), or y in other units, in another: a density of transformed "
            "data lacks the Jacobian of the transform",
            "rows dropped, added or masked in one model only",
            "the same data coded in two ways (tosses one by one, and their number): their densities "
            "differ by a constant",
            "obs= depends on a latent site",
        ],
        remedy="observe the same numbers in all models, with the transform within the distribution "
        "(LogNormal, TransformedDistribution). Where you know that the densities are of the same "
        "data, pass the number approx.log_evidence instead of approx.",
    )


def _mass_with_density(counted: Mapping[str, int]) -> LaplaceError:
    listed = " and ".join(f"'{name}' {number:,}" for name, number in counted.items())
    return LaplaceError(
        f"The models take different numbers of the data for counts, {listed}: of a count there is a "
        "probability, of a real number a density, which depends on its unit; their ratio says nothing.",
        causes=[
            "a normal or another continuous distribution of counts in one model, a Poisson or another "
            "discrete one in the other",
            "data that were rounded, and have a density in one model and a probability in the other",
        ],
        remedy="give the continuous one the probability of what was rounded, cdf(y + 1/2) - cdf(y - 1/2), "
        "as a distribution with a discrete support. Where the unit of the data is the width of what was "
        "rounded, and narrow, the density is nearly that: then pass the number approx.log_evidence "
        "instead of approx.",
    )


def _refuse_other_totals(of_totals: Mapping[str, np.ndarray]) -> None:
    one, other = of_totals.values()
    if one.shape != other.shape or np.array_equal(one, other):
        return  # a count that is out of nothing, such as a Poisson's, is the same count
    listed = " and ".join(f"'{name}' {_totals(rows)}" for name, rows in of_totals.items())
    raise LaplaceError(
        f"The models were fitted to different data: the same counts, but in {listed}. Totals are data too.",
        causes=[
            "total_count differs between the models, or belongs to the counts in another order"
        ],
        remedy="give all models the same totals.",
    )


def _totals(rows: np.ndarray) -> str:
    low, high = rows[:, 1].min(), rows[:, 1].max()
    return f"out of {low:.6g}" if low == high else f"out of {low:.6g} to {high:.6g}"


def _described(numbers: np.ndarray) -> str:
    if not numbers.size:
        return "no number"
    return f"{numbers.size} numbers from {numbers[0]:.6g} to {numbers[-1]:.6g}"
