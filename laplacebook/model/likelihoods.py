"""What the outputs of a network say of its targets: normal, Bernoulli, categorical or Poisson."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.extend.core import ClosedJaxpr
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from laplacebook.base.jaxprs import Atom, Constant, Equation, all_equations_of
from laplacebook.base.pytrees import is_traced

_LIKELIHOODS = ("normal", "bernoulli", "categorical", "poisson")
_ONE_OUTPUT = {"bernoulli": "the logit", "poisson": "the logarithm of the rate"}
_OUTPUTS = _ONE_OUTPUT | {"categorical": "the logits"}
#: by likelihood, what has no place at the end of a network, and what it makes of the outputs
_ENDS = {
    "bernoulli": dict.fromkeys(("sigmoid", "softmax", "exp"), "probabilities"),
    "categorical": dict.fromkeys(("sigmoid", "softmax", "exp"), "probabilities"),
    "poisson": {"exp": "rates"},
}
_CUTS = {"max", "min", "clamp"}
_SHAPES = {
    "reshape",
    "squeeze",
    "slice",
    "broadcast_in_dim",
    "transpose",
    "convert_element_type",
    "copy",
}


def targets_of(
    targets: ArrayLike | None,
    likelihood: str,
    N: int,
    outputs: int,
    weights: Float[Array, "*N"] | None = None,
) -> Array | None:
    """The targets of a network as an array, if they fit the likelihood.

    Args:
        targets: shape (N,), or (N, outputs) for several normal outputs; None to predict them.
        likelihood: ``"normal"``, ``"bernoulli"``, ``"categorical"`` or ``"poisson"``.
        N: the number of rows.
        outputs: the number of outputs.
        weights: of the targets; where one is 0 there may be anything, and zero is returned.

    Raises:
        ValueError: the likelihood is none of these, a shape does not fit, or targets are no classes,
            or no counts.
    """
    require_likelihood(likelihood)
    if likelihood in _ONE_OUTPUT and outputs != 1:
        raise ValueError(
            f'outputs must be 1, {_ONE_OUTPUT[likelihood]}, for likelihood="{likelihood}", not {outputs}'
        )
    if likelihood == "categorical" and outputs < 2:
        raise ValueError(
            f'outputs must be the number of classes for likelihood="categorical", not {outputs}'
        )
    if targets is None:
        return None
    targets = jnp.asarray(targets)
    several = likelihood == "normal" and outputs > 1
    shape = (N, outputs) if several else (N,)
    if targets.shape != shape:
        raise ValueError(
            f"targets must have shape {shape}, not {targets.shape}"
            + _flat(targets.shape, shape, likelihood)
        )
    if weights is not None:
        unseen = weights.reshape(weights.shape + (1,) * (targets.ndim - weights.ndim)) == 0
        targets = jnp.where(unseen, jnp.zeros_like(targets), targets)
    if likelihood == "normal":
        return targets
    if likelihood == "poisson":
        if not is_traced(targets):
            known = np.asarray(targets)
            other = np.unique(known[~((known >= 0) & (known == np.floor(known)))])
            if other.size:
                raise ValueError(
                    f"targets must be counts 0, 1, 2, ..., not {other[:3].tolist()}{_seen(other)}"
                )
        return targets
    if likelihood == "categorical" and jnp.issubdtype(targets.dtype, jnp.inexact):
        raise ValueError(
            f"targets must be classes as integers, not {targets.dtype} numbers: t.astype(int), once rows without a "
            "class (NaN) are left out, x[np.isfinite(t)], t[np.isfinite(t)]; with weights= there may be any class "
            "where one is 0"
        )
    classes = max(outputs, 2)
    if not is_traced(targets):
        other = np.setdiff1d(targets, np.arange(classes))
        if other.size:
            raise ValueError(
                f"targets must be classes 0, ..., {classes - 1}, not {other[:3].tolist()}{_seen(other)}"
            )
    return targets.astype(int) if likelihood == "categorical" else targets


def _flat(shape: tuple[int, ...], wanted: tuple[int, ...], likelihood: str) -> str:
    """How targets of another shape become those that are wanted, where that is known."""
    if len(shape) != 2 or wanted != shape[:1]:
        return ""
    if shape[1] == 1:
        return "; a column becomes one by np.ravel(targets)"
    if likelihood == "categorical" or (likelihood == "bernoulli" and shape[1] == 2):
        return "; of one-hot classes they are np.asarray(targets).argmax(axis=1)"
    return ""


def _seen(other: np.ndarray) -> str:
    """How to leave out what is missing, if some of the targets are NaN."""
    if other.dtype.kind != "f" or not np.isnan(other).any():
        return ""
    return "; leave rows without a target out, x[np.isfinite(t)], t[np.isfinite(t)]"


def features_of(
    features: ArrayLike,
) -> Float[Array, "N D"] | Int[Array, "N D"] | Bool[Array, "N D"]:
    """Features in the rows as an array.

    Raises:
        ValueError: they are no matrix.
    """
    features = jnp.asarray(features)
    if features.ndim != 2:
        one = "; a single feature is a column, features[:, None], and a single row X[:1]"
        raise ValueError(
            f"features must have shape (N, D), not {features.shape}{one * (features.ndim == 1)}"
        )
    return features


def weights_of(
    weights: ArrayLike | None, likelihood: str, N: int, outputs: int
) -> Float[Array, "*N"] | None:
    """The weights of the targets of a network as an array.

    Args:
        weights: shape (N,), or (N, outputs) for several normal outputs; None if all are one.
        likelihood: as in :func:`targets_of`, like the rest.
        N: the number of rows.
        outputs: the number of outputs.

    Raises:
        ValueError: a shape does not fit, or a weight is negative or not finite.
    """
    if weights is None:
        return None
    weights = jnp.asarray(weights, float)
    several = likelihood == "normal" and outputs > 1
    if weights.shape != (N,) and not (several and weights.shape == (N, outputs)):
        raise ValueError(
            f"weights must have shape ({N},), one for each row{f', or ({N}, {outputs})' * several}, "
            f"not {weights.shape}"
        )
    if not is_traced(weights):
        known = np.asarray(weights)
        other = known[~((known >= 0) & np.isfinite(known))]
        if other.size:
            raise ValueError(f"weights must be 0 or positive, and finite, not {other[:3].tolist()}")
    return weights


def observe_weighted(
    name: str,
    rows: numpyro.plate,
    law: dist.Distribution,
    targets: Array,
    weights: Float[Array, "*N"],
) -> None:
    """Observe targets whose log densities are multiplied by weights.

    Args:
        name: of the observed site.
        rows: their plate, along the first axis of the weights.
        law: the distribution of the targets.
        targets: as :func:`targets_of` returns them.
        weights: shape (N,), or that of the targets.
    """
    unseen = weights == 0
    # A handler refuses a scale of 0: where the log density is masked stands the largest of the row, or 1.
    largest = jnp.max(weights.reshape(len(weights), -1), axis=1)
    largest = largest.reshape(len(weights), *[1] * (weights.ndim - 1))
    scale = jnp.where(unseen, jnp.where(largest == 0, 1, largest), weights)
    with rows, numpyro.handlers.mask(mask=~unseen), numpyro.handlers.scale(scale=scale):
        of_outputs = law.event_dim and weights.ndim == targets.ndim
        numpyro.sample(name, law.base_dist if of_outputs else law, obs=targets)


def require_likelihood(likelihood: str) -> None:
    """Refuse what is no likelihood of a network.

    Raises:
        ValueError: it is none.
    """
    if likelihood not in _LIKELIHOODS:
        raise ValueError(f"likelihood must be one of {', '.join(_LIKELIHOODS)}, not {likelihood!r}")


def require_link(program: ClosedJaxpr, likelihood: str) -> None:
    """Refuse a network that ends with the inverse of the link, so that it would be applied twice.

    Args:
        program: of the network, with its outputs as the one result.
        likelihood: as in :func:`targets_of`.

    Raises:
        ValueError: it does, as JAX, Equinox and Flax compute a softmax, a sigmoid and an exponential, or as they are
            written by hand, cut off or not.
    """
    equations, (output,) = all_equations_of(program)
    made = {variable: equation for equation in equations for variable in equation.outputs}

    def maker(atom: Atom) -> Equation | None:
        found = made.get(atom) if isinstance(atom, int) else None
        if found is None or found.source.primitive.name not in _SHAPES | _CUTS:
            return found
        makers = [maker(x) for x in found.inputs]
        return next((equation for equation in makers if equation is not None), None)

    def name(equation: Equation | None) -> str:
        return "" if equation is None else equation.source.primitive.name

    def operands(equation: Equation | None) -> list[str]:
        return [] if equation is None else [name(maker(x)) for x in equation.inputs]

    last = maker(output)
    end = {"logistic": "sigmoid", "exp": "exp"}.get(name(last), "")
    if last is not None and name(last) == "div":
        below = maker(last.inputs[1])
        if operands(last)[0] == "exp":
            end = "sigmoid" if name(below) == "add" else "softmax"
        elif operands(last)[0] == "" and name(below) == "add" and "exp" in operands(below):
            end = "sigmoid"
    half_by = {"mul": 0.5, "div": 2.0}.get(name(last))
    if last is not None and half_by and "add" in operands(last):
        half = any(isinstance(x, Constant) and np.all(x.value == half_by) for x in last.inputs)
        inner = next(maker(x) for x in last.inputs if name(maker(x)) == "add")
        end = "sigmoid" if half and "tanh" in operands(inner) else end
    made_of_them = _ENDS.get(likelihood, {}).get(end)
    if made_of_them is not None:
        raise ValueError(
            f'apply ends with {end}, so that its outputs are {made_of_them}: for likelihood="{likelihood}" they are '
            f"{_OUTPUTS[likelihood]}; leave {end} out"
        )


def outcome(
    likelihood: str, output: Float[Array, "N C"], noise_precision: Float[Array, " C"]
) -> dist.Distribution:
    """The distribution of the targets of N rows, given the outputs.

    Args:
        likelihood: as in :func:`targets_of`.
        output: f.
        noise_precision: beta, of normal targets.
    """
    if likelihood == "categorical":
        return dist.Categorical(logits=output)
    if likelihood == "bernoulli":
        return dist.Bernoulli(logits=output[:, 0])
    if likelihood == "poisson":
        return dist.Poisson(jnp.exp(output[:, 0]))
    if output.shape[1] == 1:
        return dist.Normal(output[:, 0], noise_precision[0] ** -0.5)
    return dist.Normal(output, noise_precision**-0.5).to_event(1)


def require_positive(name: str, precision: Any) -> None:
    """Refuse a precision that is known and is none.

    Args:
        name: of the argument.
        precision: a number, or a pytree of numbers and arrays of them.

    Raises:
        TypeError: it is no number.
        ValueError: it is not positive, or infinite.
    """
    for value in jax.tree.leaves(precision):
        if is_traced(value):
            continue
        if not np.issubdtype(np.asarray(value).dtype, np.number):
            raise TypeError(f"{name} must be a number, one over a variance, not {value!r}")
        if not np.all((np.asarray(value) > 0) & np.isfinite(value)):
            raise ValueError(
                f"{name} must be positive and finite, one over a variance, not {value}"
            )


def one_for_each(
    what: str, number: int, name: str, value: ArrayLike | Sequence[ArrayLike]
) -> Float[Array, " K"]:
    """So many numbers, where one may be given for all.

    Args:
        what: there is one for, such as ``"layer"``.
        number: of these.
        name: of the argument.
        value: one number, or a sequence of them.

    Raises:
        ValueError: there are neither one nor as many.
    """
    numbers = jnp.asarray(value, float)
    if numbers.shape not in [(), (number,)]:
        raise ValueError(
            f"{name} must be one number, or one for each {what}, of shape ({number},), "
            f"not {numbers.shape}"
        )
    return jnp.broadcast_to(numbers, (number,))
