"""The last layer of a model alone, with all that is before it held fixed."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from laplacebook.base import convolutions
from laplacebook.base.checks import require_numbers
from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.jaxprs import (
    Constant,
    Equation,
    depends_on,
    equations_of,
    evaluate,
    reached,
    sources,
)
from laplacebook.base.quick import jit_quickly
from laplacebook.curvature.dense_layers import MOVES
from laplacebook.curvature.outputs_and_loss import split_likelihood
from laplacebook.model.density import ModelDensity
from laplacebook.model.known_sites import LastLayer
from laplacebook.model.rows import rows_of

_KEPT: dict[tuple, tuple[str, ...]] = {}  # sites of the last layer, by model and shapes of its data
_PROGRAMS = 200  # of them
_PRODUCTS, _SCALES = {"dot_general", convolutions.NAME}, {"mul", "div"}


def last_layer_of(density: ModelDensity, u: Float[Array, " D"]) -> ModelDensity:
    """The model of the last layer, with the sites before it fixed at u.

    The last layer are the latent sites nearest to the outputs, in the program that computes them, in which
    they are jointly linear for fixed values of all others: the weights and biases that follow the last
    activation (Kristiadi, Hein and Hennig 2020), in whatever order they were sampled. Neither the prior of
    a fixed site nor its uncertainty enters: its values count as known.

    Args:
        density: the whole model.
        u: its mode, shape (D,).

    Returns:
        The log joint of the last layer.

    Raises:
        ValueError: u is not known, under a JAX transformation.
        UnsupportedModel: the outputs are linear in none of the sites.
    """
    require_numbers('structure="last_layer"', u)
    if isinstance(density.model, LastLayer):
        return density
    return _with_known(density, sites_of_last_layer(density, u), _values(density, u))


def last_layer_given(
    density: ModelDensity, u: Float[Array, " D"], values: Mapping[str, Array]
) -> ModelDensity | None:
    """The model of the last layer, if values of all sites before it are known.

    Args:
        density: the whole model.
        u: a point, shape (D,).
        values: of latent sites, on the scale of the model.

    Raises:
        ValueError, UnsupportedModel: as :func:`last_layer_of`.
    """
    require_numbers('structure="last_layer"', u)
    if isinstance(density.model, LastLayer):
        return density
    kept = sites_of_last_layer(density, u)
    before = {site.name for site in density.sites} - set(kept)
    return _with_known(density, kept, values) if before <= set(values) else None


def sites_of_last_layer(density: ModelDensity, u: Float[Array, " D"]) -> tuple[str, ...]:
    """The latent sites that are the last layer, by the model and the shapes of its data alone.

    Args:
        density: the whole model.
        u: a point, shape (D,).

    Raises:
        UnsupportedModel: the outputs are linear in none of the sites.
    """
    program = density.program
    if program not in _KEPT:
        while len(_KEPT) >= _PROGRAMS:
            del _KEPT[next(iter(_KEPT))]
        _KEPT[program] = _linear_sites(density, u)
    kept = _KEPT[program]
    if not kept:
        raise UnsupportedModel(
            "The outputs are linear in none of the latent sites but biases: the model has no last layer.",
            causes=[
                "an activation after the last weights that is not the link of the likelihood (a log_softmax: return "
                "the logits)",
                "weights that are normalised, or shared with another layer, or all in one site",
            ],
            remedy='use structure="block".',
        )
    return kept


def _with_known(
    density: ModelDensity, kept: tuple[str, ...], values: Mapping[str, Array]
) -> ModelDensity:
    fixed = {name: value for name, value in values.items() if name not in kept}
    args, kwargs = density.arguments
    return ModelDensity.of(LastLayer(density.model, fixed), args, kwargs, density.space)


def _linear_sites(density: ModelDensity, u: Float[Array, " D"]) -> tuple[str, ...]:
    """Which sites are the last layer, in the order of the model, by traces that compute nothing."""
    kept: list[str] = []

    def look(density: ModelDensity, u: Array) -> None:
        eta, _ = split_likelihood(density, u)
        parts, entries = density.unravel(u), _entries(density, u)
        before: frozenset[str] = frozenset()  # on which the slope along those that are kept depends
        passed: set[str] = set()  # in what a site multiplies that is not kept
        curved: set[int] = set()  # products with a site in which the outputs are not linear
        for name, entry in sorted(entries.items(), key=lambda pair: pair[1].order):
            if name in before or name in passed:
                continue
            if _linear(eta, parts, [*kept, name]):
                kept.append(name)
                before = sources(lambda parts: _slope(eta, parts, kept), parts)
            elif not entry.is_scale:
                passed |= entry.multiplies
                curved |= set() if _linear(eta, parts, [name]) else entry.products
        only_biases = not any(entries[name].is_factor for name in kept)
        if curved and (only_biases or any(curved & entries[name].products for name in kept)):
            kept.clear()

    jax.eval_shape(look, density, u)
    return tuple(site.name for site in density.sites if site.name in kept)


class _Entry(NamedTuple):
    """Where a site meets what the rows of the data decide.

    Attributes:
        away: from there to the outputs, how many operations, the most where it is at several places.
        multiplies: the other sites in what it multiplies there.
        products: the products of matrices, and convolutions, by which it does.
        is_factor: whether it multiplies anything.
    """

    away: int
    multiplies: frozenset[str]
    products: frozenset[int]
    is_factor: bool

    @property
    def is_scale(self) -> bool:
        """Whether it multiplies outputs of other sites number by number."""
        return bool(self.multiplies) and not self.products

    @property
    def order(self) -> tuple[bool, int]:
        """From the outputs backwards; scales last, as of a normalisation or of all outputs."""
        return self.is_scale, self.away


def _entries(density: ModelDensity, u: Float[Array, " D"]) -> dict[str, _Entry]:
    """Of the sites that enter the outputs, the last of the model first."""
    leaves, structure = jax.tree.flatten(density)
    names = sorted(site.name for site in density.sites)  # as JAX orders them

    def outputs(leaves: list[Any], parts: dict[str, Array]) -> Array:
        return split_likelihood(jax.tree.unflatten(structure, leaves), u)[0](parts)

    program = jax.make_jaxpr(outputs)(leaves, density.unravel(u))
    equations, output = equations_of(program)
    away: dict[Any, int] = {output: 0}
    for source, inputs, found in reversed(equations):
        steps = max(away[x] for x in found if x in away) + (source.primitive.name not in MOVES)
        for x in inputs:
            if not isinstance(x, Constant):
                away[x] = max(away.get(x, 0), steps)
    by_row = set().union(*(reached(equations, i) for i in _of_rows(density)))
    reach = {name: reached(equations, len(leaves) + i) for i, name in enumerate(names)}
    entries = {}
    for variable, name in enumerate(names, len(leaves)):
        most, others, products, is_factor = 0, set(), set(), False
        for i, (source, inputs, found) in enumerate(equations):
            variables = [x for x in inputs if not isinstance(x, Constant)]
            alone = [x for x in variables if x in reach[name] and x not in by_row]
            beside = [x for x in variables if x in by_row]
            if not alone or not (beside or output in found):
                continue
            most = max(most, *(away[x] for x in alone))
            kind = source.primitive.name
            if beside and kind in _PRODUCTS | _SCALES:
                is_factor = True
                others |= {n for n, x in reach.items() if n != name and x.intersection(beside)}
                products |= {i} if kind in _PRODUCTS else set()
        if variable in away:
            entries[name] = _Entry(most, frozenset(others), frozenset(products), is_factor)
    in_model = [site.name for site in density.sites]
    return {name: entries[name] for name in reversed(in_model) if name in entries}


def _of_rows(density: ModelDensity) -> list[int]:
    """Which arrays of a model have a row for each of its observations; all, where that is not known."""
    try:
        carried = rows_of(density).carried
    except UnsupportedModel:
        carried = ()
    return [i for i, one in enumerate(carried) if one] or list(range(len(jax.tree.leaves(density))))


@jit_quickly
def _values(density: ModelDensity, u: Array) -> dict[str, Array]:
    return density.values(u)


def _linear(eta: Callable[[Any], Array], parts: dict[str, Array], names: list[str]) -> bool:
    """Whether the derivative by some of the sites depends on none of them."""

    def along(*values: Array) -> Array:
        return _slope(eta, parts | dict(zip(names, values, strict=True)), names)

    return not depends_on(along, *(parts[name] for name in names))


def _slope(eta: Callable[[Any], Array], parts: dict[str, Array], names: list[str]) -> Array:
    """The derivative along all ones of some of the sites."""

    def of_last(*values: Array) -> Array:
        return eta(parts | dict(zip(names, values, strict=True)))

    values = tuple(parts[name] for name in names)
    return jax.jvp(_without_log_of_exp(of_last), values, tuple(map(jnp.ones_like, values)))[1]


def _without_log_of_exp(f: Callable[..., Array]) -> Callable[..., Array]:
    """The same function without exponentials of which a logarithm is taken, as of a rate that is Poisson's."""

    def shorter(*values: Array) -> Array:
        equations, result = equations_of(jax.make_jaxpr(f)(*values))
        known: dict[Any, Any] = dict(enumerate(values))
        makers: dict[Any, Equation] = {}
        for equation in equations:
            source, inputs, outputs = equation
            operands = [x.value if isinstance(x, Constant) else known[x] for x in inputs]
            is_log = source.primitive.name == "log" and not isinstance(inputs[0], Constant)
            maker = makers.get(inputs[0]) if is_log else None
            if maker is not None and maker.source.primitive.name == "exp":
                known[outputs[0]] = known[maker.inputs[0]]
            else:
                known.update(zip(outputs, evaluate(source, operands), strict=True))
            makers |= dict.fromkeys(outputs, equation)
        return result.value if isinstance(result, Constant) else known[result]

    return shorter
