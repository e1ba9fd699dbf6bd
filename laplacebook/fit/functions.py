"""Functions of the latent sites, and deterministic values of the model, as rows of a summary."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.errors import NonFinite
from laplacebook.base.many_points import at_many
from laplacebook.base.namespace import Numbers
from laplacebook.base.pytrees import on_host
from laplacebook.base.table import Table, percentages, tails
from laplacebook.fit.function_of_sites import traced_shape
from laplacebook.gaussian.precision import Precision
from laplacebook.model.density import ModelDensity
from laplacebook.model.sites import Site

#: names of ``numpyro.deterministic`` sites, or functions of the dict of sites by the names of their rows
Of = str | Sequence[str] | Mapping[str, Callable[[dict[str, Array]], Any]]
_MOST, _FEWEST = 8192, 256  # draws that stand for an approximation
_CARRIED = 25  # draws that are to carry a mean: then it is off by a fifth of its spread, about
_TAIL = 3  # draws beyond a quantile
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


def average(
    values: Float[np.ndarray, "S n"], weights: Float[np.ndarray, " S"]
) -> Float[np.ndarray, " n"]:
    """The mean of points with weights that sum to one, such as those of a quadrature."""
    return weights @ values


def spread(
    values: Float[np.ndarray, "S n"], weights: Float[np.ndarray, " S"]
) -> Float[np.ndarray, " n"]:
    """The standard deviation of such points."""
    return np.sqrt(weights @ (values - average(values, weights)) ** 2)


def weighted_mean(
    values: Float[np.ndarray, "S n"], weights: Float[np.ndarray, " S"]
) -> Float[np.ndarray, " n"]:
    """The mean of draws with weights that sum to one; NaN where a few carry it, as in a very long tail."""
    mean = average(values, weights)
    return np.where(_is_carried(weights[:, None] * abs(values - mean)), np.nan, mean)


def weighted_deviation(
    values: Float[np.ndarray, "S n"], weights: Float[np.ndarray, " S"]
) -> Float[np.ndarray, " n"]:
    """The standard deviation of draws with weights that sum to one; NaN where a few of them carry it."""
    parts = weights[:, None] * (values - average(values, weights)) ** 2
    return np.where(_is_carried(parts), np.nan, spread(values, weights))


def _is_carried(parts: Float[np.ndarray, "S n"]) -> np.ndarray:
    """Whether a few of the parts are most of their sum."""
    squares = np.sum(parts**2, axis=0)
    return (parts.sum(axis=0) ** 2 < _CARRIED * squares) & (squares > 0)


def require_levels(levels: Float[np.ndarray, " P"], weights: Float[np.ndarray, " S"]) -> None:
    """Refuse quantiles that lie beyond the draws.

    Args:
        levels: their probabilities, shape (P,).
        weights: of the draws, which sum to one, shape (S,).

    Raises:
        ValueError: a tail has fewer than three draws of equal weight.
    """
    worth = float(1 / np.sum(weights**2))
    extreme = levels[np.minimum(levels, 1 - levels) * worth < _TAIL]
    if extreme.size:
        raise ValueError(
            f"The quantile at {extreme[0]:g} lies beyond the draws, which are worth {worth:,.0f}: ask for "
            f"probabilities between {_TAIL / worth:.2g} and 1 - {_TAIL / worth:.2g}."
        )


def weighted_quantiles(
    values: Float[np.ndarray, "S n"],
    weights: Float[np.ndarray, " S"],
    levels: Float[np.ndarray, " P"],
) -> Float[np.ndarray, "P n"]:
    """The quantiles of draws with weights that sum to one, at probabilities ``levels``."""
    columns = np.ascontiguousarray(values.T)
    if np.ptp(weights):
        order = np.argsort(columns, axis=1)
        rising, ordered = np.take_along_axis(columns, order, axis=1), weights[order]
    else:  # what is only sorted takes a tenth of the time
        rising, ordered = np.sort(columns, axis=1), weights[None]
    mass = np.broadcast_to(np.cumsum(ordered, axis=1) - ordered / 2, rising.shape)
    found = [np.interp(levels, m, v) for m, v in zip(mass, rising, strict=True)]
    return np.stack(found, axis=1) if found else np.empty((len(levels), 0))


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
        UnsupportedModel: a function returns no numbers, or asks for some.
        NonFinite: it is not finite at a draw.
    """
    ends = tails(probability)
    require_levels(np.asarray(ends), weights)
    functions = _Functions(of if isinstance(of, Mapping) else _named(density, of))
    shapes = functions.shapes(density, jnp.asarray(u[0]))
    flat = np.asarray(at_many(functions, (density,), u, progress_bar=False), float)
    bad = np.mean(~np.isfinite(flat).all(axis=1))
    if bad:
        raise NonFinite(
            f"A function of the sites of {density.name} is NaN or infinite at {bad:.2%} of the draws.",
            causes=[
                "a logarithm or a root of what may be negative",
                "a quotient by what may be zero",
            ],
            remedy="write it so that it is finite wherever the sites have draws.",
        )
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
        for name, function in functions.items():
            if not callable(function):
                raise TypeError(
                    f"of[{name!r}] is a function of the dict of sites, such as lambda s: s['a'] ** 2, not an "
                    f"object of type {type(function).__name__}."
                )
        if not functions:
            raise ValueError("of= names no function")
        self.functions = functions

    def shapes(self, density: ModelDensity, u: Array) -> dict[str, jax.ShapeDtypeStruct]:
        """Of what they return, by name."""
        names = [site.name for site in density.sites] + deterministic(density)

        def shape(name: str, function: Callable) -> jax.ShapeDtypeStruct:
            return traced_shape(name, lambda u: function(_sites(density, u)), density, names, u)

        return {name: shape(name, function) for name, function in self.functions.items()}

    def __call__(self, density: ModelDensity, u: Array) -> Array:
        sites = _sites(density, u)
        found = [jnp.ravel(jnp.asarray(f(sites), float)) for f in self.functions.values()]
        return jnp.concatenate(found)


def deterministic(density: ModelDensity) -> list[str]:
    """The names of the deterministic sites of a model that holds its data."""
    if not density.has_data:
        return []
    known: list[str] = []

    def look(u: Array) -> None:
        known.extend(_deterministic(density, u))

    jax.eval_shape(look, jax.ShapeDtypeStruct((density.dimension,), jnp.result_type(float)))
    return known


def _deterministic(density: ModelDensity, u: Array) -> dict[str, Array]:
    trace = density.run(u)
    return {name: site["value"] for name, site in trace.items() if site["type"] == "deterministic"}


def _sites(density: ModelDensity, u: Array) -> dict[str, Array]:
    """The latent sites and, of a model that holds its data, the deterministic ones."""
    more = _deterministic(density, u) if density.has_data else {}
    return density.values(u) | more


def _named(density: ModelDensity, of: Any) -> dict[str, Callable]:
    """The functions that take the sites of these names."""
    if callable(of):
        raise TypeError('of= takes functions by the names of their rows: of={"name": function}')
    names = [of] if isinstance(of, str) else list(of)
    known = [site.name for site in density.sites] + deterministic(density)
    unknown = [name for name in names if name not in known]
    if unknown and not density.has_data:
        raise density.without_data()  # type: ignore[attr-defined]
    if unknown:
        raise ValueError(
            f"{density.name} has no site {', '.join(map(repr, unknown))}; it has "
            f"{', '.join(sorted(known))}. Other numbers are functions of the sites: "
            'of={"ratio": lambda sites: sites["a"] / sites["b"]}.'
        )
    return {name: lambda sites, name=name: sites[name] for name in names}
