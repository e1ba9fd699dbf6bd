"""What a model says of its observed site for other arguments than those it was fitted to."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Key
from numpyro import distributions as dist
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.distributions.distribution import validation_enabled

from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.jaxprs import sources
from laplacebook.base.pytrees import STATIC, loud, register_dataclass
from laplacebook.model.arguments import Call
from laplacebook.model.density import ModelDensity
from laplacebook.model.distributions import innermost, unwrapped
from laplacebook.model.labels import Labels, marked
from laplacebook.model.misfit import refuse_crossed_outcome, refuse_repeated_column
from laplacebook.model.trace import valid_parameters
from laplacebook.model.working_precision import InWorkingPrecision
from laplacebook.predictive.new_entries import NewEntries, known

_DRAWS = (
    "numpyro.infer.Predictive(model, approx.sample(key, (1000,)))(key, ...), with the model's "
    "arguments"
)
_OF_ROWS = "make the model's latent sites depend on no row of the data."
_MORE = (
    "predict new groups of a plate from lb.nested(model, ...), and further times of a series by simulating "
    f"on from approx.sample(key, (1000,)); else {_OF_ROWS}"
)
_FEWER = (
    "keep all groups of the fit, as many as it has, and give the labels of those that are wanted; or, where "
    "its length is that of the rows, make the model's latent sites depend on no row of the data."
)


@register_dataclass
@dataclass(frozen=True)
class Outcome:
    """The distribution of an observed site, and what is linear in many models.

    Attributes:
        kind: ``"bernoulli"``, ``"categorical"``, ``"normal"``, ``"angle"`` or ``"other"``.
        predictor: logits of shape (*N) or (*N, C), the mean of a normal, or the mean.
        mean: of the outcome, of the shape of the predictor; of a categorical one, probabilities; of
            an angle its direction. NaN where it is not within the support, or a parameter is not valid.
        variance: of the outcome, given the parameters; of an angle 1 - |E exp(i y)|. NaN where it
            is negative.
        grown: whether it has more axes than the data of the fit.
        to_come: the other outcomes that the new arguments leave out, with their shapes and types.
    """

    kind: str = field(metadata=STATIC)
    predictor: Any  # an array, or what a JAX transformation puts in its place
    mean: Any
    variance: Any
    grown: bool = field(metadata=STATIC, default=False)
    to_come: tuple[tuple[str, Any], ...] = field(metadata=STATIC, default=())


def outcome_at(
    density: ModelDensity,
    new: Call,
    u: Float[Array, " D"],
    site: str | None = None,
    key: Key[Array, ""] | None = None,
) -> Outcome:
    """The outcome of new arguments, given u.

    Args:
        density: the model and the arguments that it was fitted to.
        new: a call of the same model with the new arguments.
        u: the latent sites, shape (D,).
        site: the observed site; needed if there are several.
        key: for the new entries of larger plates; without one there may be none.

    Raises:
        ValueError: the model cannot run with the new arguments, or has no such site.
        UnsupportedModel: with them it has other latent sites, or the site has no mean.
    """
    values, observed = latent_values(density, u)
    return outcome_given(new, with_new_entries(new, values, key), observed, site)


def latent_values(
    density: ModelDensity, u: Float[Array, " D"] | Mapping
) -> tuple[dict[str, Array], dict[str, int]]:
    """The latent sites at u, on the scale of the model, and its observed sites with how many axes their data have.

    A factor is one only where there is nothing else.

    Args:
        density: the model and the arguments that it was fitted to.
        u: shape (D,), or a dict of its parts by site.
    """
    trace, _ = density.trace(u)
    observed = density.observed(trace)
    outcomes = [
        name for name in observed if not isinstance(unwrapped(trace[name]["fn"]), dist.Unit)
    ]
    axes = {name: jnp.ndim(trace[name]["value"]) for name in outcomes or observed[:1]}
    return {s.name: trace[s.name]["value"] for s in density.sites}, axes


def outcome_given(
    new: Call,
    values: dict[str, Array],
    observed: Mapping[str, int],
    site: str | None = None,
    others: Mapping[str, Array] = MappingProxyType({}),
) -> Outcome:
    """The outcome of new arguments, given the latent sites.

    Args:
        new: a call of the model with the new arguments.
        values: of the latent sites, on the scale of the model.
        observed: the sites that the fit observed, with how many axes their data have.
        site: the one of them to predict; needed if there are several.
        others: values of outcomes that the new arguments leave out; without one NaN.

    Raises:
        ValueError: the model cannot run with the new arguments, or has no such site.
        UnsupportedModel: with them it has other latent sites, or the site has no mean.
    """
    name = _observed(list(observed), site)
    trace = _run_given(new, values, known(values, others))
    fit = labels_given(new, values).fit(new.arrays)
    for other, entry in trace.items():
        unknown = entry["type"] == "sample" and not entry["is_observed"]
        if unknown and other not in (*values, *observed):
            raise UnsupportedModel(
                f"With the new arguments the model has a latent site '{other}', which the fit knows "
                "nothing of.",
                remedy=_OF_ROWS,
            )
    for other, was, now in _other_shapes(trace, values):
        raise UnsupportedModel(
            f"The latent site '{other}' has shape {was} in the fit, and {now} with the new arguments.",
            remedy=_FEWER if prod(now) < prod(was) else _MORE,
        )
    if name not in trace:
        raise ValueError(f"With the new arguments the model has no site '{name}' to predict.")
    fn = trace[name]["fn"]
    fit &= valid_parameters({name: trace[name]})
    grown = len(fn.shape()) > max(observed[name], fn.event_dim)
    if grown:
        refuse_repeated_column(trace[name])
    to_come = tuple(
        (other, jax.typeof(entry["value"]))
        for other, entry in trace.items()
        if entry["type"] == "sample" and not entry["is_observed"] and other not in (*values, name)
    )
    try:
        outcome = _outcome(fn)
        outcome = jax.tree.map(lambda x: x * loud(fit, x.dtype), outcome)
        return replace(outcome, grown=grown, to_come=to_come)
    except NotImplementedError as error:
        if _is_direction(fn):
            raise UnsupportedModel(
                f"The outcome '{name}' is a direction, which has no mean as a number has one, and "
                f"for {type(unwrapped(fn)).__name__} none is known here.",
                remedy=f"average the cosine and the sine of draws of it: {_DRAWS}; a VonMises "
                "outcome alone has a prediction.",
            ) from error
        raise UnsupportedModel(
            f"The mean of '{name}', {type(unwrapped(fn)).__name__}, is not known: NumPyro has no "
            "formula for it, or it is a numpyro.factor, which adds to the log joint and is no outcome.",
            remedy=f"name another observed site as site=, or average draws of it: {_DRAWS}.",
        ) from error


def with_new_entries(
    new: Call, values: dict[str, Array], key: Key[Array, ""] | None
) -> dict[str, Array]:
    """The latent sites, those in plates that are larger with new arguments with draws from their priors.

    Args:
        new: a call of the model with the new arguments.
        values: of the latent sites, on the scale of the model.
        key: of the draws; without one the sites are returned as they are.

    Raises:
        UnsupportedModel: the new entries of a site are not drawn from its own prior.
    """
    if key is None:
        return values
    entries = NewEntries(values, key)
    entries.refuse_factors(_run_given(new, values, entries.value_of))
    return {**values, **entries.drawn}


def labels_given(new: Call, values: dict[str, Array]) -> Labels:
    """The indices that new arguments decide.

    Args:
        new: a call of the model with the new arguments.
        values: of the latent sites, on the scale of the model.
    """

    def run(*arrays: Any) -> list[Any]:
        _run(new.with_arrays(arrays), known(jax.tree.map(marked, values)))
        return []

    return Labels.of(jax.make_jaxpr(run)(*new.arrays))


def refuse_crossed_arguments(
    density: ModelDensity, new: Call, u: Float[Array, " D"], site: str | None, **key: Any
) -> None:
    """Refuse new arguments of which a column, of shape (N, 1), meets a vector, of shape (N,), in the outcome.

    Args:
        density: the model and the arguments that it was fitted to.
        new: a call of the same model with the new arguments.
        u: the latent sites, shape (D,).
        site: the observed site; needed if there are several.
        key: as :func:`outcome_at` has it.

    Raises:
        UnsupportedModel: they do.
    """

    def run(u: Array, *arrays: Any) -> Array:
        outcome = outcome_at(density, new.with_arrays(arrays), u, site, **key)
        return outcome.mean + outcome.variance

    refuse_crossed_outcome(jax.make_jaxpr(run)(u, *new.arrays))


def refuse_unknown_outcomes(
    density: ModelDensity,
    new: Call,
    u: Float[Array, " D"],
    site: str | None,
    to_come: Mapping[str, Any],
    **key: Any,
) -> None:
    """Refuse an outcome that depends on others which the new arguments leave out.

    By the program that computes it: a comparison with what is not known is false, and no NaN.

    Args:
        density: the model and the arguments that it was fitted to.
        new: a call of the same model with the new arguments.
        u: the latent sites, shape (D,).
        site: the observed site.
        to_come: the others that are left out, with their shapes and types.
        key: as :func:`outcome_at` has it.

    Raises:
        UnsupportedModel: it does.
    """
    values, observed = latent_values(density, u)
    values = with_new_entries(new, values, key.get("key"))

    def numbers(others: dict[str, Array]) -> list[Array]:
        outcome = outcome_given(new, values, observed, site, others)
        return [outcome.predictor, outcome.mean, outcome.variance]

    found = sources(numbers, {n: jnp.zeros(x.shape, x.dtype) for n, x in to_come.items()})
    needed = sorted(frozenset().union(*found))
    if needed:
        name, listed = _observed(list(observed), site), ", ".join(map(repr, needed))
        raise UnsupportedModel(
            f"The outcome '{name}' depends on {listed}, which the new arguments leave out.",
            remedy=f"give what {listed} is observed as, too; or average over draws of it: {_DRAWS}.",
        )


def _observed(names: list[str], site: str | None) -> str:
    if site in names:
        return site
    if site is not None or len(names) != 1:
        asked = "" if site is None else f", and '{site}' is none of them"
        raise ValueError(f"Name one observed site as site=: there are {names}{asked}.")
    return names[0]


def _other_shapes(
    trace: dict, values: dict[str, Array]
) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Latent sites with their shapes in the fit and with new arguments, where these differ."""
    for name, value in values.items():
        if name in trace and trace[name]["type"] == "sample":
            was, now = jnp.shape(value), trace[name]["fn"].shape()
            if was != now:
                yield name, was, now


def _run_given(new: Call, values: dict[str, Array], value: Callable[[dict], Array | None]) -> dict:
    """The trace of new arguments; where it cannot be, latent sites that they give other shapes are told."""
    try:
        return _run(new, value)
    except ValueError as error:
        with suppress(ValueError):  # nor can that of draws from the prior
            for name, was, now in _other_shapes(_run(new, lambda site: None), values):
                told = f"\nWith them the latent site '{name}' has the shape {now}, and {was} in the fit."
                error.args = (f"{error}{told}",)
        raise


def _run(new: Call, value: Callable[[dict], Array | None]) -> dict:
    args, kwargs = new.arguments
    substituted = handlers.substitute(new.function, substitute_fn=value)
    seeded = handlers.seed(substituted, jax.random.key(0))
    try:
        with validation_enabled(False), InWorkingPrecision(), new.arrays_blamed():
            return handlers.trace(seeded).get_trace(*args, **kwargs)
    except (TypeError, ValueError, IndexError, AssertionError) as error:
        shapes = [tuple(jnp.shape(a)) for a in jax.tree.leaves((args, kwargs))]
        of_one_row = any(len(shape) == 1 for shape in shapes) and "[:1]" not in str(error)
        raise ValueError(
            f"The model cannot run with the new arguments, of shapes {shapes}: {error}\n"
            "They must be like those of the fit, but for the number of rows, on which no latent site may "
            "depend. What the model observes is left out: its argument needs the default None."
            + " A single row is x[:1], with its axis of rows."
            * of_one_row
        ) from error


def _outcome(fn: dist.Distribution) -> Outcome:
    shape, inner = fn.shape(), unwrapped(fn)
    if isinstance(inner, dist.BernoulliLogits | dist.BernoulliProbs):
        logits = inner.logits
        probability = jax.nn.sigmoid(logits)
        return _broadcast("bernoulli", shape, logits, probability, probability * (1 - probability))
    if isinstance(inner, dist.CategoricalLogits | dist.CategoricalProbs):
        logits = inner.logits
        p = jax.nn.softmax(logits)
        return _broadcast("categorical", (*shape, p.shape[-1]), logits, p, p * (1 - p))
    if isinstance(inner, dist.Normal):
        return _broadcast("normal", shape, inner.loc, inner.loc, _float(inner.scale) ** 2)
    if isinstance(inner, dist.VonMises):
        spread = _float(inner.variance)
        directed = spread < 1 - 8 * jnp.finfo(spread.dtype).eps  # a uniform angle has no direction
        mean = jnp.where(directed, inner.mean, jnp.nan)
        return _broadcast("angle", shape, mean, mean, spread)
    if _is_direction(fn):
        raise NotImplementedError
    mean, variance = _float(inner.mean), _float(inner.variance)
    mean = jnp.where(_in_support(inner.support, mean), mean, jnp.nan)
    variance = jnp.where(variance >= 0, variance, jnp.nan)
    return _broadcast("other", shape, mean, mean, variance)


def _is_direction(fn: dist.Distribution) -> bool:
    return innermost(fn.support) in (constraints.circular, constraints.sphere)


def _in_support(support: constraints.Constraint, mean: Array) -> Array | bool:
    """Whether a mean lies between the ends of the support, up to rounding."""
    ends = innermost(support)
    low = getattr(ends, "lower_bound", -jnp.inf)
    high = getattr(ends, "upper_bound", jnp.inf)
    if ends.event_dim and jnp.ndim(high):  # totals of rows
        high = jnp.expand_dims(high, range(-ends.event_dim, 0))
    slack = 8 * jnp.finfo(mean.dtype).eps * abs(mean)
    return (mean >= low - slack) & (mean <= high + slack)


def _broadcast(kind: str, shape: tuple, *parts: ArrayLike) -> Outcome:
    predictor, mean, variance = (jnp.broadcast_to(_float(part), shape) for part in parts)
    return Outcome(kind, predictor, mean, variance)


def _float(part: ArrayLike) -> Array:
    """A whole number is a parameter too, such as the scale of ``Normal(mean, 1)``."""
    return jnp.asarray(part, jnp.result_type(part, float))
