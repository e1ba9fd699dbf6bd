"""Why a log joint, or a likelihood without its prior, may have no maximum, and what helps."""

from typing import NamedTuple

from laplacebook.density import ModelDensity
from laplacebook.likelihood import LikelihoodDensity

__all__ = ["reasons"]


class Reasons(NamedTuple):
    """Likely causes and remedies, in words.

    Attributes:
        flat: why it may be flat.
        unbounded: why it may grow without bound.
        edge: why it may rise at the edge of the support.
        no_maximum: what it means that there is no maximum.
        remedy: what helps where it is flat or unbounded.
        inside: what helps at the edge.
        check: what to look at first.
    """

    flat: tuple[str, ...]
    unbounded: tuple[str, ...]
    edge: tuple[str, ...]
    no_maximum: str
    remedy: str
    inside: str
    check: str


_MASKED = "elements of a latent site that a mask hides (obs_mask=, handlers.mask)"
_UNBOUNDED = (
    "a scale that can shrink to zero around equal values: a centred hierarchical model, a repeated or "
    "single observation",
    "an improper prior where the data do not bound the parameter",
)
_PROPER = (
    "give those sites a proper prior (one that keeps a scale from zero), write a hierarchical model "
    "in its non-centred form (numpyro.infer.reparam.LocScaleReparam), or remove what is redundant."
)
_ONE_KIND = "the data are all of one kind (all heads) and the prior is flat"
_JOINT = Reasons(
    flat=(
        "parameters of which the data and the prior fix only a combination (collinear, redundant)",
        "a flat prior where the data say nothing",
        "a mode at infinity (separable data without a prior)",
        _MASKED,
    ),
    unbounded=_UNBOUNDED,
    edge=(_ONE_KIND, *_UNBOUNDED),
    no_maximum="an improper posterior, or a mode at infinity",
    remedy=_PROPER,
    inside=_PROPER,
    check="check the priors",
)
_CONSTRAINED = _JOINT._replace(
    edge=(_ONE_KIND, "a scale or variance whose posterior piles up at zero"),
    inside='use space="unconstrained", where the log Jacobian moves the mode inside, or a prior that '
    "vanishes at the edge.",
)
_WITH_PRIOR = (
    "the likelihood alone does not determine those sites: use laplace, where the priors help to, or "
    "remove what is redundant."
)
_LIKELIHOOD = Reasons(
    flat=(
        "parameters of which the data fix only a combination (collinear, redundant)",
        "a parameter that enters only the prior of another one (a hierarchical model): maximum "
        "likelihood leaves priors out",
        "a maximum at infinity (separable data)",
        _MASKED,
    ),
    unbounded=(
        "a scale that can shrink to zero around equal values: a repeated or single observation, a "
        "mixture component on one point",
        "data that do not bound the parameter",
    ),
    edge=(
        "the data are all of one kind (all heads), or separable",
        "a support that ends before the maximum",
        "a scale that fits best at zero",
    ),
    no_maximum="it rises towards infinity (separable data), or is flat",
    remedy=_WITH_PRIOR,
    inside=_WITH_PRIOR,
    check="check that the data determine all latent sites",
)


def reasons(density: ModelDensity) -> Reasons:
    """The words for a density that was searched without finding its maximum."""
    if isinstance(density, LikelihoodDensity):
        return _LIKELIHOOD
    return _CONSTRAINED if density.space == "constrained" else _JOINT
