"""From the facts about an approximation to a word of trust, and the reason for it."""

from collections.abc import Callable, Mapping, Sequence
from math import expm1, inf, isfinite, log
from typing import TYPE_CHECKING, NamedTuple

from laplacebook.base.estimate import Estimate
from laplacebook.base.weights import GOOD, usable_below
from laplacebook.trust.slices import Number, Slice

if TYPE_CHECKING:
    from laplacebook.beyond.checked_integral import Integral

LEVELS = ("good", "usable", "bad")

EVIDENCE = (0.1, log(2))  # off by a factor of 1.1; of 2, which moves a Bayes factor by a class
_CHANCE = 0.2  # of it at most: an error of importance sampling may be large itself
SKEWNESS = (0.5, 1.0)  # Bulmer 1979: fairly symmetrical below, highly skewed above
SAMPLE_SIZE = 0.8  # of the draws: posterior means are then within half a standard deviation
ELSEWHERE = 0.01  # of the evidence, held by other modes
HELD = (0.85, 0.75)  # of a marginal, by the 90 % interval of q
MEDIAN = 0.3  # standard deviations, by which the median of a marginal may be off
WIDTH = 0.2  # of the exact one, by which the width of a 90 % interval may be off, and a standard deviation
OUTSIDE = (
    0.01,
    0.1,
)  # of the draws; a Gaussian of which 0.14 are cut off has a width that is off by 20 %
SHIFT = (0.25, 0.5)  # standard deviations, of a mean from its mode: what such skewnesses make
MEAN = (0.1, 0.3)  # standard deviations, by which a mean may be off
SPREAD = (log(1.1), log(1.3))  # the same of a logarithm of a standard deviation: 10 and 30 %


class Finding(NamedTuple):
    """One fact, judged.

    Attributes:
        level: one of :data:`LEVELS`.
        words: the fact and its threshold.
    """

    level: str
    words: str


def worst(findings: Sequence[Finding]) -> str:
    """The level of the worst of them."""
    return max((finding.level for finding in findings), key=LEVELS.index)


def sentence(findings: Sequence[Finding]) -> str:
    """The level of the worst of them, and the words of all that are of that level."""
    level = worst(findings)
    return f"{level}: {'; '.join(words for grade, words in findings if grade == level)}."


def of_tail(k: float, num_samples: int, dimension: int) -> Finding:
    """Pareto k-hat: whether the posterior has heavier tails than q."""
    usable = usable_below(num_samples)
    good = min(GOOD, usable)
    level = _graded(k, good, usable)
    joint = f", of all {dimension} coordinates together" if dimension > 1 else ""
    bounds = {"good": f"below {good:.2g}", "usable": f"{good:.2g} to {usable:.2g}"}
    return Finding(
        level, f"Pareto k-hat {k:.2f} ({bounds.get(level, f'above {usable:.2g}')}{joint})"
    )


def of_sample_size(fraction: float) -> Finding:
    """The effective sample size as a fraction: it falls where q is wider than the posterior, too."""
    level = "good" if fraction >= SAMPLE_SIZE else "usable"
    bound = "80% or more" if level == "good" else "below 80%"
    return Finding(level, f"effective sample size {fraction:.0%} of the draws ({bound})")


def of_support(outside: float) -> list[Finding]:
    """The share of the draws at which the posterior has no density; none where that is next to nothing."""
    level = _graded(outside, *OUTSIDE)
    bound = "beyond 1%" if level == "usable" else "beyond 10%"
    words = f"{_percent(outside)} of the draws lie outside of the support ({bound})"
    return [] if level == "good" else [Finding(level, words)]


def of_evidence(difference: Estimate, whose: str = "Laplace's", otherwise: str = "bad") -> Finding:
    """The log evidence of q less that of importance sampling.

    Args:
        difference: of the two.
        whose: the first is.
        otherwise: the level where the error of the second is so large that it tells nothing.
    """
    value, error = _parts(difference)
    if not isfinite(error):
        return Finding("bad", "importance sampling cannot check the log evidence")
    if error > EVIDENCE[1]:
        return Finding(
            otherwise, f"importance sampling cannot check the log evidence: off by {difference}"
        )
    level = _graded(abs(value) - min(2 * error, _CHANCE), *EVIDENCE)
    if level == "good" and error > _CHANCE:
        return Finding("usable", f"{whose} log evidence is off by {difference}, which tells little")
    bounds = {"good": "within 0.1", "usable": "beyond 0.1", "bad": "beyond log 2"}
    return Finding(level, f"{whose} log evidence is off by {difference} ({bounds[level]})")


def of_skewness(slices: Sequence[Slice]) -> Finding:
    """The largest skewness along a principal axis."""
    one = max(slices, key=lambda one: abs(one.skewness))
    level = _graded(abs(one.skewness), *SKEWNESS)
    bounds = {"good": "within 0.5", "usable": "beyond 0.5", "bad": "beyond 1"}
    return Finding(level, f"skewness {one.skewness:z.2f} along {one.axis} ({bounds[level]})")


def of_site(marginal: Slice | Number) -> Finding:
    """How much of a coordinate's marginal the 90 % interval of q holds, and whether its moments are right."""
    held = marginal.held
    if not isfinite(held):
        return Finding("bad", f"the marginal of {marginal.axis} is not known")
    off, width = marginal.median_off, marginal.width_ratio - 1
    is_off = not (abs(off) <= MEDIAN and abs(width) <= WIDTH)
    level = "bad" if is_off else _graded(-held, *(-least for least in HELD))
    words = (
        f"the 90% interval of {marginal.axis} holds {held:.0%} of its marginal, its width is off by {width:+.0%} "
        f"(up to {WIDTH:.0%}) and the median by {off:+.2f} sd (up to {MEDIAN})"
    )
    spread = marginal.spread_ratio - 1
    if is_off or abs(spread) <= WIDTH:
        return Finding(level, words)
    # Where the interval is right it is a long tail, of which a standard deviation tells little.
    worse = worst([Finding(level, words), Finding("usable", words)])
    return Finding(worse, f"{words}; its sd is off by {spread:+.0%} (up to {WIDTH:.0%})")


def of_sites(marginals: Sequence[Slice | Number]) -> list[Finding]:
    """The worst of them, unless all are good."""
    known = [one for one in marginals if one.is_known]
    if not known or worst([of_site(one) for one in known]) == "good":
        return []
    # Of the same level the one that is told is that of whose marginal least is held.
    order = sorted(known, key=lambda one: (-LEVELS.index(of_site(one).level), one.held))
    return [of_site(order[0])]


def of_shifts(shifts: Mapping[str, float]) -> list[Finding]:
    """The mean that skewness moves farthest, to first order; none where means are not looked at.

    Args:
        shifts: by the name of the coordinate, in standard deviations of q.
    """
    if not shifts:
        return []
    name = max(shifts, key=lambda one: abs(shifts[one]))
    level = _graded(abs(shifts[name]), *SHIFT)
    bounds = {"good": "within 0.25", "usable": "beyond 0.25", "bad": "beyond 0.5"}
    return [
        Finding(
            level, f"skewness moves the mean of {name} by {shifts[name]:+z.2f} sd ({bounds[level]})"
        )
    ]


def of_weights(k: float, number: int, dimension: int, known: bool, otherwise: str) -> Finding:
    """Pareto k-hat of the weighted draws by which an approximation is checked.

    Args:
        k: k-hat.
        number: of draws.
        dimension: of the draws.
        known: whether a mean of the weights has an error that can be told.
        otherwise: the level if it has none.
    """
    usable = usable_below(number)
    if k == -inf:
        return Finding("good", "weights of draws even, without a tail")
    if known:
        return Finding("good", f"Pareto k-hat {k:.2f} of weighted draws (up to {usable:.2g})")
    return Finding(
        otherwise,
        f"weighted draws cannot check the means, the sds and the log evidence: their Pareto k-hat is {k:.2f} "
        f"(reliable up to {usable:.2g}, of all {dimension} coordinates together)",
    )


def of_means(off: Mapping[str, Estimate], errors: float) -> list[Finding]:
    """The mean that is off most, of an approximation beside weighted draws; none where none is known.

    Args:
        off: by name, by how many posterior standard deviations each mean is off.
        errors: how many standard errors may be chance.
    """

    def words(name: str, x: Estimate) -> str:
        return (
            f"the mean of {name} is off by {float(x.value):+.2f} ± {float(x.standard_error):.2f} sd"
        )

    return _of_moments(off, MEAN, errors, words, ("0.1", "0.3"))


def of_spreads(off: Mapping[str, Estimate], errors: float) -> list[Finding]:
    """The standard deviation that is off most, likewise.

    Args:
        off: by name, the logarithm of the factor by which each is too large.
        errors: how many standard errors may be chance.
    """

    def words(name: str, x: Estimate) -> str:
        return f"the sd of {name} is off by {expm1(x.value):+.0%} ± {float(x.standard_error):.0%}"

    return _of_moments(off, SPREAD, errors, words, ("10%", "30%"))


def _of_moments(
    off: Mapping[str, Estimate],
    bounds: tuple[float, float],
    errors: float,
    words: Callable[[str, Estimate], str],
    named: tuple[str, str],
) -> list[Finding]:
    good, bad = bounds
    found = []
    for name, x in off.items():
        size, chance = abs(float(x.value)), errors * float(x.standard_error)
        level = "good" if size <= good else "bad" if size - chance > bad else "usable"
        passed = {"good": f"within {named[0]}", "usable": f"beyond {named[0]}"}
        more = "; more draws tell it better" if good < size <= good + chance else ""
        told = f"{words(name, x)} ({passed.get(level, f'beyond {named[1]}')}{more})"
        found.append((LEVELS.index(level), size, Finding(level, told)))
    return [max(found)[2]] if found else []


def of_grid(error: float, of: str = "grid") -> Finding:
    """The error of the log evidence that the grid of a nested approximation tells, or its interpolation."""
    level = _graded(error, *EVIDENCE)
    bounds = {"good": "within 0.1", "usable": "beyond 0.1", "bad": "beyond log 2"}
    return Finding(level, f"error of the {of} {error:.1g} ({bounds[level]})")


def of_chains(worth: float, divergences: int, error: float) -> Finding:
    """How well the draws of NUTS tell the hyperparameters of a nested approximation.

    Args:
        worth: how many independent draws they are worth.
        divergences: transitions whose energy rose too far.
        error: of the log evidence by bridge sampling.
    """
    level = _graded(error, *EVIDENCE) if divergences == 0 else "usable"
    number = f"{divergences:,}" if divergences else "none"
    told = f"draws of NUTS worth {worth:,.0f}, of which {number} diverged"
    return Finding(level, f"{told}; log evidence by bridge sampling to {error:.1g}")


def of_modes(number: int, share: float, rise: float, starts: int) -> Finding:
    """What other modes there are.

    Args:
        number: how many.
        share: of the evidence summed over all modes, that of the others.
        rise: how much higher the log joint is at the highest of them; minus infinity if none is.
        starts: how many searches there were.
    """
    if not number:
        searched = f"no other mode from {starts} starts"
        return Finding("good", searched if starts > 1 else "other modes not searched for")
    modes = "1 other mode holds" if number == 1 else f"{number} other modes hold"
    higher = f"; this is not the highest mode: the log joint rises by {rise:.2g}"
    equal = ", at the same height, as exchangeable labels or signs put them"
    words = f"{modes} {_percent(share)} of the evidence ({{}} 1%)"
    words += higher if rise > 0 else equal if rise == 0 else ""
    if rise > 0 or share > ELSEWHERE:
        words += "; fit with starts=8, or take other_modes[0] of this diagnosis"
    if share > ELSEWHERE:
        return Finding("bad", words.format("above"))
    return Finding("usable" if rise > 0 else "good", words.format("up to"))


def of_other_grids(share: float, searches: int) -> Finding:
    """Modes of the hyperparameters that the grid of a nested approximation does not hold.

    Args:
        share: of the mass, that these hold.
        searches: how many looked for them.
    """
    if share > ELSEWHERE:
        return Finding(
            "bad",
            f"modes beside the grid hold {_percent(share)} of the evidence (above 1%); nested did not find them",
        )
    searched = f"no other mode of the hyperparameters from {searches} searches"
    return Finding("good", searched if searches else "other modes not searched for")


def of_inner_modes(words: str | None) -> list[Finding]:
    """Modes of the effects given the hyperparameters that are not counted, if some were found."""
    return [] if words is None else [Finding("bad", words)]


def of_integral(integral: "Integral | None") -> list[Finding]:
    """How far the integral behind a marginal model is off; none where it is not looked at, or good."""
    if integral is None:
        return []
    sites, (value, error) = " and ".join(integral.sites), _parts(integral.off)
    what = f"the integral over {sites} by Laplace's method, at the mode,"
    if not error <= EVIDENCE[1]:
        return [
            Finding(
                "usable",
                f"draws cannot check {what} since their Pareto k-hat is {integral.pareto_k:.2f}",
            )
        ]
    level = _graded(abs(value) - min(2 * error, _CHANCE), *EVIDENCE)
    level = worst([Finding(level, ""), Finding("usable" if error > _CHANCE else "good", "")])
    bound = "beyond 0.1, or not told" if level == "usable" else "beyond log 2"
    told = Finding(level, f"the logarithm of {what} is off by {integral.off} ({bound})")
    return [] if level == "good" else [told]


def _parts(estimate: Estimate) -> tuple[float, float]:
    return float(estimate.value), float(estimate.standard_error)


def of_bound(excess: float, certified: bool) -> list[Finding]:
    """By how much the log evidence exceeds the maximum log likelihood, which is impossible.

    Args:
        excess: the excess; at most 0 where there is none.
        certified: whether the maximum is one; else there may be a higher likelihood.
    """
    if excess <= 0:
        return []
    level = "bad" if certified and excess > EVIDENCE[0] else "usable"
    bound = "the maximum log likelihood" if certified else "all log likelihoods found"
    return [Finding(level, f"the log evidence exceeds {bound} by {excess:.2g}: impossible")]


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= ELSEWHERE else f"{100 * share:.1g}%"


def _graded(value: float, good: float, usable: float) -> str:
    return "good" if value <= good else "usable" if value <= usable else "bad"
