"""Which of several models do the data speak for?"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, SupportsFloat

import numpy as np

from laplacebook.base.estimate import Estimate
from laplacebook.base.table import Table
from laplacebook.evidence.comparable import (
    Contender,
    contender,
    refuse_other_curvature,
    refuse_other_data,
)
from laplacebook.fit.approximation import Approximation
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.fit.summary import rounding_told

_DECIMALS = dict.fromkeys(
    ("log evidence", "log Bayes factor", "log likelihood", "log Occam factor"), 4
)


def compare(models: Mapping[str, Any], prior: Mapping[str, SupportsFloat] | None = None) -> Table:
    """Posterior probabilities of models that were fitted to the same data.

    The same data are the same numbers, in whatever order, shape and sites; if they are counts, then
    in all models, and out of the same totals (a Binomial's ``total_count``). The log Bayes factor of
    a model is the log evidence less that of the best one (Kass and Raftery 1995); the probability
    of a model is proportional to its prior probability times its evidence.

    In the book: :eq:`model-comparison-posterior` and :eq:`model-comparison-bayes-factor` of
    :doc:`/book/model-comparison`.

    Args:
        models: name -> an approximation that :func:`~laplacebook.laplace` or
            :func:`~laplacebook.nested` returned, or a log evidence: an
            :class:`~laplacebook.Estimate`, or a number that is known exactly.
        prior: name -> weight, not negative, of each model; all equal by default.

    Returns:
        A :class:`~laplacebook.Table`, by falling log evidence, with the columns ``model``,
        ``log evidence``, ``log Bayes factor`` against the first row and ``probability``; and, if
        there is an approximation, ``log likelihood``, ``log Occam factor`` and ``D``, None for a
        model without: a nested fit has no more than the last. Where a log evidence is an Estimate,
        so are the factors and, by the delta method, the probabilities.

    Raises:
        ValueError: there is no model, a batch of them, or a ``prior`` that is none.
        TypeError: a model is none of the above.
        LaplaceError: a fit failed, a log evidence or its error is not finite, the data differ, or one
            model has probabilities of what has densities in another.
        UnsupportedModel: a prior within a model is improper.

    >>> fair, biased = 9 * np.log(0.5), -np.log(110)  # of eight heads and a tail
    >>> compare({"fair": fair, "Beta(2, 2)": biased})
    Comparison of 2 models, log Bayes factors against the first row
      model       log evidence  log Bayes factor  probability
      Beta(2, 2)       -4.7005            0.0000       0.8232
      fair             -6.2383           -1.5378       0.1768
      not checked to be of the same data: 'Beta(2, 2)', 'fair'
    """
    if not isinstance(models, Mapping):
        raise TypeError(f"models is a dict of name -> model, not a {type(models).__name__}")
    if not models:
        raise ValueError("compare takes one model or more, as a dict of name -> model")
    rows = [contender(name, model) for name, model in models.items()]
    rows.sort(key=lambda row: (-row.log_evidence, row.name))
    weights = _weights([row.name for row in rows], prior)
    refuse_other_curvature(rows)
    unchecked = refuse_other_data(rows)
    return Table(
        f"Comparison of {len(rows)} models, log Bayes factors against the first row",
        _columns(rows, weights),
        (
            *_told_prior(rows, weights, prior),
            *_told_modes(rows),
            *_told_doubts(rows),
            *_told_rounding(rows),
            *unchecked,
        ),
        _DECIMALS,
    )


def _weights(names: Sequence[str], prior: Mapping[str, SupportsFloat] | None) -> np.ndarray:
    """The prior probabilities of the models."""
    if prior is None:
        return np.full(len(names), 1 / len(names))
    if set(prior) != set(names):
        raise ValueError(f"prior must name the models {sorted(names)}, not {sorted(prior)}")
    weights = np.array([float(prior[name]) for name in names])
    if not (np.all(weights >= 0) and 0 < weights.sum() < inf):
        raise ValueError(f"prior needs weights that are not negative, and not all 0: {dict(prior)}")
    return weights / weights.sum()


def _columns(rows: Sequence[Contender], weights: np.ndarray) -> dict[str, list]:
    best = rows[0]
    columns: dict[str, list] = {
        "model": [row.name for row in rows],
        "log evidence": [_number(row.log_evidence, row.error) for row in rows],
        "log Bayes factor": [0.0, *(_log_bayes_factor(row, best) for row in rows[1:])],
        "probability": _probabilities(rows, weights),
    }
    approxs = [row.approx for row in rows]
    if any(approxs):
        for name in ("log_likelihood", "log_occam_factor"):
            parts = [getattr(approx, name, None) for approx in approxs]
            if any(part is not None for part in parts):
                columns[name.replace("_", " ").replace("occam", "Occam")] = [
                    None if part is None else float(part) for part in parts
                ]
        columns["D"] = [approx and _dimension(approx) for approx in approxs]
    return columns


def _dimension(approx: Approximation) -> int:
    if isinstance(approx, LaplaceApproximation):
        return approx.mode_vector.size
    return approx.density.dimension


def _number(value: float, error: float | None) -> float | Estimate:
    return value if error is None else Estimate(value, error)


def _log_bayes_factor(row: Contender, best: Contender) -> float | Estimate:
    return _number(row.log_evidence, row.error) - _number(best.log_evidence, best.error)


def _probabilities(rows: Sequence[Contender], weights: np.ndarray) -> list[float] | list[Estimate]:
    """The softmax of log prior + log evidence; the errors by its derivative."""
    with np.errstate(divide="ignore"):
        log_joint = np.log(weights) + [row.log_evidence for row in rows]
    joint = np.exp(log_joint - log_joint.max())
    probabilities = joint / joint.sum()
    if all(row.error is None for row in rows):
        return probabilities.tolist()
    slopes = np.diag(probabilities) - np.outer(probabilities, probabilities)
    errors = np.hypot.reduce(slopes * [row.error or 0 for row in rows], axis=1)
    return [Estimate(p, e) for p, e in zip(probabilities.tolist(), errors.tolist(), strict=True)]


def _told_prior(
    rows: Sequence[Contender], weights: np.ndarray, prior: Mapping[str, SupportsFloat] | None
) -> list[str]:
    """A line with the prior probabilities, unless they are all equal."""
    if prior is None or np.all(weights == weights[0]):
        return []
    listed = ", ".join(f"{row.name} {w:.4g}" for row, w in zip(rows, weights, strict=True))
    return [f"prior probability: {listed}"]


def _told_doubts(rows: Sequence[Contender]) -> list[str]:
    """A line that names the models of which a diagnosis said bad, or where none was asked a few draws."""
    doubts = {row.name: row.approx.doubt for row in rows if row.approx and row.approx.doubt}
    told = [f"'{name}' ({why.partition(':')[0]})" for name, why in sorted(doubts.items())]
    return [f"doubtful, the evidence may be far off: {', '.join(told)}"] if told else []


def _told_rounding(rows: Sequence[Contender]) -> list[str]:
    parts = [getattr(row.approx, "log_likelihood", None) for row in rows]
    return rounding_told([part for part in parts if part is not None])


def _told_modes(rows: Sequence[Contender]) -> list[str]:
    """Lines that name the models of which one of several modes is counted, and those of which a sum over modes is."""
    one, all_found = (
        ", ".join(
            sorted(f"'{row.name}'" for row in rows if len(getattr(row.approx, name, ())) > least)
        )
        for name, least in (("other_modes", 0), ("components", 1))
    )
    told = [f"one mode of several counts, the highest: {one}"] if one else []
    whole = (
        "all modes that were found count, copies by symmetry among them, more with more searches"
    )
    return [*told, *([f"{whole}: {all_found}"] if all_found else [])]
