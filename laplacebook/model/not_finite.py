"""Why is the log joint not finite? The site, the data, the parameter or the argument to blame."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro.distributions import Distribution, Independent
from numpyro.distributions.distribution import validation_enabled

from laplacebook.base.errors import NonFinite, or_in_double
from laplacebook.base.pytrees import is_traced
from laplacebook.base.quick import at_once
from laplacebook.model.arguments import Call, is_network
from laplacebook.model.density import ModelDensity
from laplacebook.model.distributions import (
    LOWER,
    SYMMETRIC,
    Parameter,
    innermost,
    never_seen,
    parameters,
    supports_data,
    unwrapped,
)
from laplacebook.model.edges import at_edge
from laplacebook.model.hierarchy import integrate_out
from laplacebook.model.labels import Labels

SHOWN = 4  # coordinates of a point


def not_finite(density: ModelDensity, u: Float[Array, " D"]) -> NonFinite:
    """The error for a log joint that is not finite, or not a log joint, at u of shape (D,)."""
    if not all(x.is_fully_addressable for x in jax.tree.leaves(density)):
        return _elsewhere(density, u)
    beside = no_entry(density.call, density.labels)
    if beside is not None:
        return beside
    trace, log_probs = density.trace(u)
    observed = [trace[n] for n in log_probs if trace[n]["is_observed"]]
    wrong = [p for n in log_probs for p in _invalid(trace[n])]
    missing = [s for s in observed if not np.all(np.isfinite(s["value"]))]
    outside = [s for s in observed if not supports_data(s)]
    infinite = [trace[n] for n in log_probs if not np.isfinite(log_probs[n])]
    arguments, at = density.call.not_finite(), print_point(density, u)
    if missing and not all(np.isfinite(log_probs[s["name"]]) for s in missing):
        return _missing_data(density, missing[0], arguments)
    if wrong:
        return _invalid_parameter(*wrong[0], at, arguments)
    if outside:
        return _impossible(outside[0], at) or _outside(outside[0])
    if infinite:
        at_site = float(log_probs[infinite[0]["name"]])
        return _no_density(infinite[0], at_site, at, arguments, or_in_double(u))
    return _no_derivative(density, u, at, arguments)


def _no_derivative(
    density: ModelDensity, u: Float[Array, " D"], at: str, arguments: list[str]
) -> NonFinite:
    zeros = _zeros_to_blame(density, u)
    remedy = "pass start= with values of the latent sites away from that point."
    if arguments:
        remedy = (
            "put a number there, such as 0: a row of weight 0, or behind a mask, has derivatives."
        )
    if zeros:
        name = zeros[0][0]
        remedy = (
            f"give the rows with a zero in {name} a term of their own, and the function another number there, such as "
            f"jnp.where({name} > 0, d.cdf(jnp.where({name} > 0, {name}, 1.0)), 0.0)."
        )
    return NonFinite(
        f"The {density.function} is finite at the point where the search stood, {at}, but a derivative of it "
        "is not.",
        causes=[
            *arguments,
            *(
                f"argument '{name}' is 0{f', first at {place}' if place else ''}: with another number there the "
                "derivatives are finite, so that a log, a root or a distribution function is taken of it"
                for name, place in zeros
            ),
            "sqrt, abs, log or a norm at zero",
            "an overflow within the model",
            f"a {density.function} without bound: the scale of a centred hierarchical prior goes to zero",
        ],
        remedy=remedy + or_in_double(u) + ("" if zeros else integrate_out(density)),
    )


def _zeros_to_blame(density: ModelDensity, u: Float[Array, " D"]) -> list[tuple[str, list[int]]]:
    """Real arguments with zeros that alone leave derivatives without a value, and where the first zero is."""
    arrays, found = density.call.arrays, []
    for i, (name, x) in enumerate(zip(density.call.array_names, arrays, strict=True)):
        if not jnp.issubdtype(x.dtype, jnp.floating):
            continue
        zero = np.asarray(x) == 0
        if not zero.any():
            continue
        least = np.min(np.abs(np.asarray(x)), where=~zero, initial=1.0)
        others = [jnp.where(zero, least / 2, x) if k == i else one for k, one in enumerate(arrays)]
        other = ModelDensity(density.call.with_arrays(others), density.space)
        slope = jax.grad(lambda u, other=other: other.loss(u)[0])
        if all(np.all(np.isfinite(d)) for d in jax.jvp(slope, (u,), (jnp.ones_like(u),))):
            found.append((name, np.argwhere(zero)[0].tolist()))
    return found


def require_entries(density: ModelDensity) -> None:
    """Refuse labels that point beside what they index, where the data are known and here.

    Raises:
        NonFinite: there is one.
    """
    leaves = jax.tree.leaves(density)
    if is_traced(leaves) or not all(x.is_fully_addressable for x in leaves):
        return
    with at_once():  # within a program that knows its data as well
        beside = no_entry(density.call, density.labels)
    if beside is not None:
        raise beside


def no_entry(call: Call, labels: Labels) -> NonFinite | None:
    """The error for labels in the arguments of a model that point beside what they index; None if none do."""
    found = labels.first_beside(call.arrays)
    if found is None:
        return None
    index, value, place, is_given = found
    names = " and ".join(f"'{call.array_names[i]}'" for i in sorted(index.origin))
    if index.is_count:
        return _not_as_many(names, value, index.size)
    at = f", first at {place}" if place else ""
    if is_given:
        what = f"Argument {names} has the label {value}{at}"
    else:
        what = f"An index that is computed from argument {names} is {value}{at}"
    where = "and NaN is no label"
    if index.size is not None:
        where = f"and it indexes {index.size} entries, of which labels begin at 0 and end at {index.size - 1}"
    return NonFinite(
        f"{what}, {where}.",
        causes=[
            "labels 1, 2, ..., J, where labels begin at 0: subtract 1",
            "-1 or NaN, the code of a missing category in a table",
            "a group that the model has no entry for, such as one that the fit has not seen",
        ],
        remedy="number the groups from 0, np.unique(g, return_inverse=True)[1], and make as many entries "
        "as there are groups; leave out rows without a label, or give them label 0 and hide them with "
        "numpyro.handlers.mask." + (_WITH_ZEROS if index.beside is not None else ""),
    )


def _not_as_many(names: str, total: int, size: int | None) -> NonFinite:
    return NonFinite(
        f"The counts of argument {names} add up to {total}, and the model makes {size} entries of them.",
        causes=[
            "jnp.repeat(..., total_repeat_length=N) with counts of other rows than the outcomes: JAX repeats "
            "the last until there are N, or drops what is more",
        ],
        remedy="let the counts add up to the number of outcomes; entries beyond those that are meant get a group "
        "of their own, as a count more, and are hidden with numpyro.handlers.mask.",
    )


_WITH_ZEROS = (
    " JAX takes zeros for such a label; where they are meant, say so by an entry more, which is left out: "
    "jax.nn.one_hot(g + 1, J + 1)[:, 1:], jax.ops.segment_sum(x, g, J + 1)[:J]."
)


def _elsewhere(density: ModelDensity, u: Array) -> NonFinite:
    here = f" ({' and '.join(found)})" if (found := density.call.not_finite()) else ""
    return NonFinite(
        f"The {density.function} is not finite at the point where the search stood, {print_point(density, u)}, "
        f"and its data lie on several hosts, of which each sees its own rows{here}.",
        causes=[
            "NaN or infinity in the rows of one host",
            "data outside the support of the likelihood",
        ],
        remedy="look at the rows of each host before shard, or fit those of one host alone.",
    )


def _invalid(site: dict) -> list[tuple[dict, Parameter]]:
    return [(site, p) for p in parameters(site["fn"]) if not np.all(p.valid)]


def _missing_data(density: ModelDensity, site: dict, arguments: list[str]) -> NonFinite:
    places = int(np.sum(~np.isfinite(site["value"])))
    return NonFinite(
        f"The data of site '{site['name']}' are NaN or infinite in {places} place(s)"
        f"{because(arguments)}.",
        causes=["missing values coded as NaN", "a division by zero before the data came here"],
        remedy="drop or impute them, or "
        + (
            "give them weight 0: weights=np.isfinite(t)."
            if is_network(density.call.fixed_function.value)
            else f"mask them with numpyro.handlers.mask around the site '{site['name']}' alone."
        ),
    )


def _invalid_parameter(
    site: dict, parameter: Parameter, at: str, arguments: list[str]
) -> NonFinite:
    owner, name, value, valid = parameter
    bad, valid = np.asarray(value), np.asarray(valid)
    if valid.ndim and valid.shape == bad.shape[: valid.ndim]:
        bad = bad[~valid]
    if innermost(owner.arg_constraints[name]) in (*SYMMETRIC, *LOWER):
        return _invalid_matrix(site, owner, name, bad.reshape(-1, *bad.shape[-2:])[0])
    bad = np.ravel(bad)
    part = "likelihood" if site["is_observed"] else "prior"
    return NonFinite(
        f"The parameters of site '{site['name']}' are not valid where the search stood, {at}: {name} = "
        f"{', '.join(f'{float(x):.4g}' for x in bad[:3])}{', ...' if bad.size > 3 else ''} is not "
        f"a {name} of {type(owner).__name__}{because(arguments)}.",
        causes=[
            f"the {part} is not defined there: a latent site enters {name} without a link (exp, "
            "sigmoid, softmax)",
            "a sign or a unit in the model's own numbers, or among its arguments",
        ],
        remedy=f"see that {name} satisfies {owner.arg_constraints[name]} for all values of the latent sites.",
    )


def _invalid_matrix(site: dict, owner: Distribution, name: str, matrix: np.ndarray) -> NonFinite:
    lower = innermost(owner.arg_constraints[name]) in LOWER
    apart = abs(np.triu(matrix, 1) if lower else matrix - matrix.T)
    i, j = np.unravel_index(np.argmax(apart), apart.shape)
    here, there = f"its entry ({i}, {j}) is {matrix[i, j]:.4g}", f"({j}, {i}) is {matrix[j, i]:.4g}"
    wrong = f"lower triangular: {here}" if lower else f"symmetric: {here}, and {there}"
    return NonFinite(
        f"The {name} of site '{site['name']}', {type(owner).__name__}, is not {wrong}.",
        causes=[
            "an upper Cholesky factor, which scipy.linalg.cholesky gives, where a lower one is meant",
            "a factor where the matrix is meant, or the matrix where its factor is",
            "a formula that fills half of the matrix, or the rounding of an inverse",
        ],
        remedy="a covariance matrix S is passed as covariance_matrix=S, and a factor L with "
        "S = L L' as scale_tril=L (numpy.linalg.cholesky); against rounding take (S + S.T) / 2.",
    )


def _impossible(site: dict, at: str) -> NonFinite | None:
    places = int(np.sum(never_seen(site["fn"], site["value"])))
    if not places:
        return None
    return NonFinite(
        f"What was observed of site '{site['name']}' has probability zero in {places} place(s) where the "
        f"search stood, {at}: probs is 1, or 0, there, and the outcome is the other one.",
        causes=[
            "a probability that rounds to 1 far out, as sigmoid(40) and the normal Phi(9) do",
            "an outlier, or labels that are exchanged",
            "predictors that were not scaled",
        ],
        remedy="pass logits= instead of probs=: a for sigmoid(a), log_ndtr(a) - log_ndtr(-a) for the normal "
        "Phi(a), with jax.scipy.special.log_ndtr.",
    )


def _outside(site: dict) -> NonFinite:
    fn = unwrapped(site["fn"])
    support: Any = fn.support
    law = f"{type(fn).__name__}: {support}"
    told = f"The data of site '{site['name']}' lie outside the support of its likelihood, {law}"
    if support.event_dim == 0 and not support.is_discrete:
        return NonFinite(
            f"{told}, where the search stood.",
            causes=[
                "data beyond a bound that is known, or in another unit",
                "a bound that is a latent site, as in Uniform(0, t): the density is highest where it touches the data, "
                "and there is no interior mode",
            ],
            remedy="a bound that is known needs no latent site; of one that is not, the posterior is no Gaussian: "
            "integrate it by quadrature, or sample it with NumPyro's NUTS.",
        )
    return NonFinite(
        f"{told}.",
        causes=["classes coded 1, 2 or -1, 1 where 0, 1 is meant", "a count with a fraction"],
        remedy="code the data as the likelihood expects, or choose another likelihood.",
    )


def _no_density(
    site: dict, log_density: float, at: str, arguments: list[str], or_else: str
) -> NonFinite:
    part = "likelihood" if site["is_observed"] else "prior or the transform of its support"
    outcome, is_at_edge = _without_density(site) if site["is_observed"] else ("", False)
    if is_at_edge:
        return _on_the_edge(site, outcome)
    first = f", first for the outcome {outcome}" if outcome and not arguments else ""
    return NonFinite(
        f"The log density of site '{site['name']}' is {log_density} at the point where the search "
        f"stood, {at}{first}{because(arguments)}.",
        causes=[
            f"the {part} is not defined there (a negative scale, a probability above one)",
            "data outside the support of the likelihood",
            "NaN or infinity among the model's arguments",
        ],
        remedy="check the model and its data there, or pass start= with values of the latent sites."
        + or_else,
    )


def _without_density(site: dict) -> tuple[str, bool]:
    """The first outcome whose log density is not finite, with its place, and whether all such are on the edge."""
    fn, value = site["fn"], site["value"]
    while isinstance(fn, Independent):
        fn = fn.base_dist
    with validation_enabled(False):
        wrong = ~np.isfinite(np.asarray(fn.log_prob(value)))
    if not wrong.any() or not np.size(value):  # of a factor there is no outcome
        return "", False
    place = np.argwhere(wrong)[0].tolist()
    outcomes = np.broadcast_to(value, np.broadcast_shapes(np.shape(value), fn.shape()))[wrong]
    where = f" at {place}" if place else ""
    on_edge = np.asarray(at_edge(fn, outcomes)).reshape(len(outcomes), -1).any(1)
    is_continuous = not fn.support.is_discrete
    return f"{outcomes[0].tolist()}{where}", is_continuous and bool(on_edge.all())


def _on_the_edge(site: dict, outcome: str) -> NonFinite:
    if type(unwrapped(site["fn"])).__name__ == "IntervalCensoredDistribution":
        return NonFinite(
            f"The interval {outcome} of site '{site['name']}' begins at the edge of the support of what is censored, "
            "where a derivative of the distribution function is not finite.",
            causes=["a time that was seen to lie below the first visit"],
            remedy="say of these intervals that they are open to the left, left_censored=lower == 0: of them the upper "
            "end is all that counts.",
        )
    return NonFinite(
        f"The outcome {outcome} of site '{site['name']}' lies at the edge of the support of its likelihood, "
        f"{type(site['fn']).__name__}, where the density is zero or infinite.",
        causes=[
            "a number that was rounded, or one below what can be detected",
            "zeros of another kind than the rest, such as days without rain",
        ],
        remedy="say of what was rounded that it is censored (numpyro.distributions.LeftCensoredDistribution), or "
        "put half of the unit there; of zeros of another kind observe whether it is one at a Bernoulli site, and "
        "the rest at this one.",
    )


def because(arguments: list[str]) -> str:
    """The end of a sentence that says which arguments may be to blame, of phrases about them."""
    return f"; {' and '.join(arguments[:3])}" if arguments else ""


def print_point(density: ModelDensity, u: Float[Array, " D"]) -> str:
    """The first coordinates of a point, by name."""
    names = [n for site in density.sites for n in site.coordinate_names(SHOWN)][:SHOWN]
    shown = [f"{n} = {float(x):.4g}" for n, x in zip(names, np.asarray(u)[:SHOWN], strict=True)]
    where = "" if density.space == "constrained" else " (unconstrained)"
    return ", ".join(shown) + (", ..." if density.dimension > SHOWN else "") + where
