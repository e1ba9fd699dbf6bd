"""What to do about what a diagnosis found: lines of code for this fit, by what they cost."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Array, Key

from laplacebook.base.errors import LaplaceError, UnsupportedModel
from laplacebook.base.table import Table
from laplacebook.base.weights import usable_below
from laplacebook.beyond.by_draws import ByDraws
from laplacebook.beyond.grid import WITHOUT_NUTS
from laplacebook.beyond.hyperparameters import hyperparameters_of
from laplacebook.beyond.mixture import MixtureApproximation, mixture
from laplacebook.beyond.nested import nested
from laplacebook.beyond.resampled import resampled
from laplacebook.beyond.skewed import EXACT, LARGE, cubic_term, skewed
from laplacebook.evidence.corrected_evidence import DIMENSIONS
from laplacebook.evidence.expansion import why_not_expanded
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.fit.summary import element_names
from laplacebook.model.arguments import as_called
from laplacebook.model.density import LikelihoodDensity, ModelDensity
from laplacebook.model.plain_function import is_plain
from laplacebook.trust.verdict import (
    ELSEWHERE,
    EVIDENCE,
    MEDIAN,
    OUTSIDE,
    WIDTH,
    of_integral,
    of_site,
)

_SKEW = 0.1  # of an axis: below it nothing is to be put right
_FEW = 10  # coordinates, in which heavier tails may reach what draws of the Gaussian do not


@dataclass(frozen=True)
class Remedy:
    """One thing to do about it.

    Attributes:
        line: of code, for this fit.
        reason: what it is for.
        make: what the line makes, of a random key; None where it is another's work to judge.
    """

    line: str
    reason: str
    make: Callable[[Key[Array, ""]], ByDraws] | None = None


def remedies(found: Any) -> tuple[Remedy, ...]:
    """What applies to what was found, by what it costs; none where the fit is good.

    Nor where sites that were integrated out have modes which no line for the others reaches.

    Args:
        found: a ``Diagnosis``, whose class imports this module to have the property.
    """
    density, approx = found.approx.density, "approx"
    plain = found.level == "good" or isinstance(density, LikelihoodDensity)
    if plain or found.inner_modes is not None:
        return ()
    if of_integral(found.integral):
        return (_whole_model(found),)
    rows = []
    is_inside = found.outside <= OUTSIDE[0]
    if found.share_elsewhere > ELSEWHERE and found.approx.settings.structure != "last_layer":
        approx = "lb.mixture([approx, *diagnosis.other_modes])"
        reason = f"{found.share_elsewhere:.0%} of the evidence lies in other modes"
        rows.append(Remedy(approx, reason, lambda key: _whole(found)))
    elif is_inside and _is_skew(found):
        reason = "moves means and quantiles towards the longer tail"
        rows.append(Remedy("lb.skewed(approx)", reason, lambda key: skewed(found.approx)))
    off = abs(float(found.evidence_difference.value))
    expanded = why_not_expanded(found.approx, DIMENSIONS) is None and not density.improper
    has_tail = not found.pareto_k <= usable_below(found.num_samples)
    if off > EVIDENCE[0] and expanded and is_inside and not has_tail:
        reason = "adds the next term of the log evidence, and tells what that leaves out"
        rows.append(Remedy("lb.corrected_evidence(approx)", reason))
    if not has_tail or density.dimension <= _FEW:
        reason = "weights put all of it right, if their k-hat allows"
        line = f"lb.resampled({approx}, key)"
        whole = _whole if "mixture" in approx else _own
        rows.append(Remedy(line, reason, lambda key: resampled(whole(found), key)))
    scales = _hyperparameters(found)
    over = None if scales else _furthest(found)
    if scales or over:
        line = _call_of_nested(density, over)
        rest = "the others" if over else "the effects"
        numerically = " and ".join(map(repr, scales or [over]))
        reason = f"integrates {numerically} numerically, {rest} by Laplace's method"
        args, kwargs = density.arguments
        rows.append(
            Remedy(line, reason, lambda key: nested(density.model, *args, over=over, **kwargs))
        )
    if density.space == "unconstrained":
        reason = "samples the posterior, begun at draws of the fit"
        rows.append(Remedy(f"lb.nuts({approx}, key)", reason))
    return tuple(rows)


def _whole_model(found: Any) -> Remedy:
    """Of an integral that is off, which every line for the fit of the marginal model would take over."""
    sites = " and ".join(map(repr, found.integral.sites))
    name = getattr(found.approx.density.model.model, "__name__", "model")
    reason = f"samples the whole model, with {sites}, which the others would take as integrated"
    return Remedy(f"numpyro.infer.MCMC(numpyro.infer.NUTS({name}), ...)", reason)


def _whole(found: Any) -> MixtureApproximation:
    """All modes that are known."""
    return mixture([found.approx, *found.other_modes])


def _hyperparameters(found: Any) -> tuple[str, ...]:
    """What ``nested`` would integrate numerically, in whatever form the effects are written; empty if nothing."""
    density = found.approx.density
    whole = density.space == "unconstrained" and found.approx.settings.structure != "last_layer"
    if is_plain(density) or not whole:
        return ()
    try:
        names = hyperparameters_of(density, None)
    except LaplaceError:
        return ()
    return names if sum(s.size for s in density.sites if s.name in names) <= WITHOUT_NUTS else ()


def _furthest(found: Any) -> str | None:
    """The site of the number whose marginal is off most, of a bad one, where it may be integrated numerically."""
    density = found.approx.density
    whole = density.space == "unconstrained" and found.approx.settings.structure != "last_layer"
    bad = [one for one in found.judged_of_sites if of_site(one).level == "bad" and one.is_known]
    if is_plain(density) or not whole or not bad or found.share_elsewhere > ELSEWHERE:
        return None
    furthest = max(
        bad, key=lambda one: max(abs(one.median_off) / MEDIAN, abs(one.width_ratio - 1) / WIDTH)
    )
    (name,) = [
        site.name
        for site in density.sites
        if furthest.axis in (*site.coordinate_names(), *element_names(site))
    ]
    try:
        hyperparameters_of(density, name)
    except (LaplaceError, ValueError):
        return None
    size = sum(site.size for site in density.sites if site.name == name)
    return name if size <= WITHOUT_NUTS else None


def _call_of_nested(density: ModelDensity, over: str | None) -> str:
    """The line of code, with each argument by the name that the model has for it; dots where it has none."""
    (args, kwargs), name = density.arguments, getattr(density.model, "__name__", "")
    given = [
        name if name.isidentifier() else "approx.density.model",
        *as_called(density.model, args, kwargs),
        *([f"over={over!r}"] if over else []),
    ]
    return f"lb.nested({', '.join(given)})"


def _own(found: Any) -> LaplaceApproximation:
    return found.approx


def _is_exact(found: Any) -> bool:
    """Whether the precision is the whole Hessian."""
    settings = found.approx.settings
    return settings.curvature == "hessian" and settings.structure in EXACT


def _is_skew(found: Any) -> bool:
    """Whether there is a skewness to put right, small enough for an expansion in it."""
    if not _is_exact(found) or max(abs(one.skewness) for one in found.slices) <= _SKEW:
        return False
    try:
        return cubic_term(found.approx) <= LARGE
    except UnsupportedModel:
        return False


def tried(
    found: tuple[Remedy, ...],
    key: Key[Array, ""],
    judge: Callable[[ByDraws], tuple[str, float]],
) -> Table:
    """What each remedy gives.

    Args:
        found: the remedies.
        key: a JAX random key.
        judge: of an approximation its level and its log evidence.

    Returns:
        A table with a row for each: the line, the level of its own diagnosis or why it was refused, and its
        log evidence.
    """
    columns: dict[str, list] = {"remedy": [], "verdict": [], "log evidence": []}
    for one in found:
        level, evidence = "not tried", None
        if one.make is not None:
            try:
                level, evidence = judge(one.make(key))
            except (LaplaceError, ValueError, TypeError) as refused:
                level = f"refused: {str(refused).splitlines()[0]}"
        for name, value in zip(columns, (one.line, level, evidence), strict=True):
            columns[name].append(value)
    return Table("Remedies", columns)
