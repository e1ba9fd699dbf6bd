"""Functions of the latent sites, and deterministic values of the model, as rows of a summary."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.many_points import at_many
from laplacebook.base.namespace import Numbers
from laplacebook.base.pytrees import on_host
from laplacebook.base.table import Table, percentages, tails
from laplacebook.gaussian.precision import Precision
from laplacebook.model.density import ModelDensity
from laplacebook.model.sites import Site

#: names of ``numpyro.deterministic`` sites, or functions of the dict of sites by the names of their rows
Of = str | Sequence[str] | Mapping[str, Callable[[dict[str, Array]], Any]]
_MOST, _FEWEST = 8192, 256  # draws that stand for an approximation
_NUMBERS = 2**25  # in all of them: a quarter of a gigabyte


def number_of_draws(size: int) -> int:
    """How many draws stand for an approximation of so many numbers: 8,192, or what memory allows."""
    return int(np.clip(_NUMBERS // max(size, 1), _FEWEST, _MOST))


def symmetric_draws(mode: Float[Numbers, " D"], precision: Precision) -> Float[np.ndarray, "S D"]:
    """Draws of N(mode, A^-1) with a fixed key, in pairs to both sides of the mode, 16,384 or what memory allows."""
    normal = np.random.default_rng(1).standard_normal((number_of_draws(mode.size), mode.size))
    mode, precision = on_host((mode, precision))
    offset = np.asarray(precision.whitened(normal.T.astype(mode.dtype))).T
    return np.concatenate([mode + offset, mode - offset])


def weighted_mean(
    values: Float[np.ndarray, "S n"], weights: Float[np.ndarray, " S"]
) -> Float[np.ndarray, " n"]:
    """Of draws with weights that sum to one."""
    return weights @ values


def weighted_deviation(
    values: Float[np.ndarray, "S n"], weights: Float[np.ndarray, " S"]
) -> Float[np.ndarray, " n"]:
    """The standard deviation of draws with weights that sum to one."""
    return np.sqrt(weights @ (values - weights @ values) ** 2)


def weighted_quantiles(
    values: Float[np.ndarray, "S n"],
    weights: Float[np.ndarray, " S"],
    levels: Float[np.ndarray, " P"],
) -> Float[np.ndarray, "P n"]:
    """The quantiles of draws with weights that sum to one, at probabilities ``levels``."""
    order = np.argsort(values, axis=0)
    rising = np.take_along_axis(values, order, axis=0)
    mass = np.cumsum(weights[order], axis=0) - weights[order] / 2
    columns = [np.interp(levels, m, v) for m, v in zip(mass.T, rising.T, strict=True)]
    return np.stack(columns, axis=1) if columns else np.empty((len(levels), 0))


def functions_table(
    density: ModelDensity,
    u: Float[Numbers, "S D"],
    weights: Float[np.ndarray, " S"],
    of: Of,
    probability: float,
) -> Table:
    """Mean, standard deviation and a central interval of each number of each function.

    Args:
        density: the model.
        u: draws, shape (S, D).
        weights: of the draws, which sum to one, shape (S,).
        of: names of deterministic sites, or functions by the names of their rows.
        probability: of the interval.

    Raises:
        ValueError: there is no such site; ``probability`` is not between 0 and 1.
        UnsupportedModel: a function returns no numbers.
    """
    ends = tails(probability)
    functions = _functions(density, of)
    shapes = jax.eval_shape(functions.values, density, u[0])
    flat = np.asarray(at_many(functions, (density,), u, progress_bar=False), float)
    columns: dict[str, Any] = {
        "site": [
            row
            for name, one in shapes.items()
            for row in Site(name, one.shape, one.shape).coordinate_names()
        ],
        "mean": weighted_mean(flat, weights),
        "sd": weighted_deviation(flat, weights),
    }
    quantiles = weighted_quantiles(flat, weights, np.asarray(ends))
    columns |= dict(zip(percentages(ends), quantiles, strict=True))
    return Table(f"Functions of {density.name}", {k: list(v) for k, v in columns.items()})


class _Functions:
    """Functions of one draw, as one vector."""

    def __init__(self, functions: Mapping[str, Callable]) -> None:
        self.functions = functions

    def values(self, density: ModelDensity, u: Array) -> dict[str, Array]:
        """By name, at a vector of all coordinates."""
        trace, _ = density.trace(u)
        sites = density.terms(u).values | {
            name: site["value"] for name, site in trace.items() if site["type"] == "deterministic"
        }
        return {name: _numbers(name, function(sites)) for name, function in self.functions.items()}

    def __call__(self, density: ModelDensity, u: Array) -> Array:
        return jnp.concatenate([jnp.ravel(x) for x in self.values(density, u).values()])


def _functions(density: ModelDensity, of: Of) -> _Functions:
    if isinstance(of, Mapping):
        return _Functions(of)
    names = [of] if isinstance(of, str) else list(of)
    known: set[str] = set()

    def look(u: Array) -> None:
        trace, _ = density.trace(u)
        known.update(n for n, site in trace.items() if site["type"] == "deterministic")

    jax.eval_shape(look, jax.ShapeDtypeStruct((density.dimension,), jnp.result_type(float)))
    known |= {site.name for site in density.sites}
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ValueError(
            f"{density.name} has no site {', '.join(map(repr, unknown)) or '(none is named)'}; it has "
            f"{', '.join(sorted(known))}. Other numbers are functions of the sites: "
            'of={"ratio": lambda sites: sites["a"] / sites["b"]}.'
        )
    return _Functions({name: lambda sites, name=name: sites[name] for name in names})


def _numbers(name: str, value: Any) -> Array:
    try:
        return jnp.asarray(value, float)
    except (TypeError, ValueError) as error:
        raise UnsupportedModel(
            f"The function '{name}' returns a {type(value).__name__}, and no array of numbers.",
            remedy="return a number or an array; several go under names of their own.",
        ) from error
