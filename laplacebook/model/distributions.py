"""Are the numbers that a distribution is given numbers that it can take?

NumPyro checks them where they are concrete; a fit is compiled, and there nothing is: a
``Beta(-0.5, 2)`` has a finite ``log_prob``, which is not the logarithm of a density.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool
from numpyro.distributions import (
    BernoulliProbs,
    BinomialProbs,
    Distribution,
    ExpandedDistribution,
    Independent,
    MaskedDistribution,
    Unit,
    constraints,
)

_PARTS = ("base_dist", "mixing_distribution", "component_distribution", "component_distributions")

SYMMETRIC = (constraints.positive_definite, constraints.positive_semidefinite)
LOWER = (constraints.lower_cholesky,)


class Parameter(NamedTuple):
    """A parameter of a distribution, or of one that it is made of, and where it is valid."""

    owner: Distribution
    name: str
    value: Any
    valid: Any


def parameters(fn: Distribution, unseen: Any = False) -> Iterator[Parameter]:
    """The parameters of a distribution whose constraint can be checked.

    A boundary is valid (``Poisson(0)`` of zero events): what has no density there has no finite
    one. So is whatever shows in the log density itself: a NaN, a matrix without a Cholesky factor.
    Of a matrix that is not symmetric, or of a factor that is not lower, half would go unread.

    Args:
        fn: a distribution; what it wraps or mixes is looked at too.
        unseen: where a mask hides the distribution; there any parameter is valid.

    Yields:
        A :class:`Parameter`, with ``valid`` a truth value or an array of them.
    """
    if getattr(fn, "_mask", True) is not True:
        unseen = unseen | ~jnp.asarray(fn._mask)
    for name, value in fn.get_args().items():
        constraint = fn.arg_constraints[name]
        if value is not None and _is_checked(constraint):
            yield Parameter(fn, name, value, _is_valid(constraint, value) | unseen)
    for part in _parts(fn):
        extra = len(part.batch_shape) - len(fn.batch_shape)
        yield from parameters(
            part, jnp.expand_dims(unseen, _last(extra)) if np.ndim(unseen) else unseen
        )


def supports_data(site: dict) -> Bool[Array, ""]:
    """Whether the data of an observed site lie in the support of its distribution, as it is there."""
    fn, value = site["fn"], jnp.asarray(site["value"])
    if value.ndim < fn.event_dim:  # one datum for the whole event
        value = jnp.broadcast_to(value, fn.event_shape)
    inside = satisfies(fn.support, value)
    if isinstance(unwrapped(fn), Unit):  # a factor, whose event is no number
        inside = holds(inside, _last(1))
    inside = jnp.all(inside | ~jnp.asarray(getattr(fn, "_mask", True)))
    return inside & ~jnp.any(never_seen(fn, value))


def never_seen(fn: Distribution, value: Any) -> Any:
    """Where data have probability zero, as failures have where a probability of success rounds to one.

    NumPyro clips it: in double precision the log density of each is -36 then, without a slope.

    Args:
        fn: the distribution of an observed site; only Bernoulli and binomial ones are looked at.
        value: the data.
    """
    *outer, inner = wrapped(fn)
    if not isinstance(inner, BernoulliProbs | BinomialProbs):
        return jnp.zeros((), bool)
    probs, value = jnp.asarray(inner.probs), jnp.asarray(value)
    limits = jnp.finfo(jnp.result_type(probs, float))
    total = getattr(inner, "total_count", 1)
    none, all_ = probs < limits.tiny, probs > 1 - limits.eps
    never = (none & (value > 0)) | (all_ & (value < total))
    for part in outer:
        mask = jnp.asarray(getattr(part, "_mask", True))
        never &= mask.reshape(mask.shape + (1,) * part.event_dim) if mask.ndim else mask
    return never


def innermost(constraint: constraints.Constraint) -> constraints.Constraint:
    """The constraint of one event, of which an independent one is many."""
    while isinstance(constraint, constraints.independent):
        constraint = constraint.base_constraint
    return constraint


def _is_checked(constraint: constraints.Constraint) -> bool:
    if constraints.is_dependent(constraint):
        return False
    base = innermost(constraint)
    if base.event_dim == 2:
        return base in (*SYMMETRIC, *LOWER)
    return base is constraints.simplex or (base is not constraints.real and base.event_dim == 0)


def _is_valid(constraint: constraints.Constraint, value: Any) -> Any:
    base = innermost(constraint)
    if base.event_dim != 2:
        return satisfies(constraint, value)
    value = jnp.asarray(value)
    wrong = abs(jnp.triu(value, 1) if base in LOWER else value - jnp.matrix_transpose(value))
    largest = jnp.max(abs(value), axis=(-2, -1), keepdims=True)
    if base in SYMMETRIC:
        variances = abs(jnp.diagonal(value, axis1=-2, axis2=-1))
        largest = jnp.sqrt(variances[..., :, None] * variances[..., None, :])
    # Inverses of matrices near singular are far from symmetric to rounding.
    tolerance = float(jnp.finfo(jnp.result_type(value, float)).eps) ** (1 / 3)
    return ~jnp.any(wrong > tolerance * largest, axis=(-2, -1))


def satisfies(constraint: constraints.Constraint, value: Any) -> Any:
    """Whether a value satisfies a constraint, with the ends of intervals and up to rounding.

    Args:
        constraint: a constraint of NumPyro.
        value: a number or an array.

    Returns:
        A truth value, or an array of one for each event.
    """
    if isinstance(constraint, constraints.independent):
        base = constraint.base_constraint
        inside, dims = satisfies(base, value), _last(constraint.event_dim - base.event_dim)
        return holds(inside, dims)
    if constraint is constraints.simplex:
        # NumPyro's own 1e-6 is less than what a thousand categories round to in float32.
        tolerance = max(1e-6, float(jnp.finfo(jnp.result_type(value, float)).eps) ** 0.5)
        return (value >= 0).all(axis=-1) & (abs(value.sum(axis=-1) - 1) <= tolerance)
    lower = getattr(constraint, "lower_bound", None)
    upper = getattr(constraint, "upper_bound", None)
    if constraint.is_discrete or constraint.event_dim or lower is upper is None:
        # As a JAX array: beside a traced bound NumPyro would take a number for NumPy's.
        return constraint(jnp.asarray(value))
    return (lower is None or value >= lower) & (upper is None or value <= upper)


def holds(checks: Any, axis: tuple[int, ...] | None = None) -> Any:
    """Whether all checks hold, which is ``all``, by how many do not.

    Where XLA sees that they do, as of ``exp(x) >= 0``, it evaluates ``all`` as it compiles, a number at a time: for a
    batch of points that takes longer than all the rest. A sum of zeros it knows.
    """
    return (
        jnp.sum(jnp.logical_not(checks), axis) == 0
    )  # of a reader's own constraint it may be a number


def _last(count: int) -> tuple[int, ...]:
    return tuple(range(-count, 0))


def _parts(fn: Distribution) -> list[Distribution]:
    found = [getattr(fn, name) for name in _PARTS if hasattr(fn, name)]
    return [d for part in found for d in (part if isinstance(part, list | tuple) else [part])]


def wrapped(fn: Distribution) -> Iterator[Distribution]:
    """A distribution, and those that it expands, calls independent or masks, from the outside in."""
    yield fn
    while isinstance(fn, ExpandedDistribution | Independent | MaskedDistribution):
        fn = fn.base_dist
        yield fn


def unwrapped(fn: Distribution) -> Distribution:
    """The innermost of them: the distribution before plates and ``expand`` repeated it."""
    *_, innermost = wrapped(fn)
    return innermost
