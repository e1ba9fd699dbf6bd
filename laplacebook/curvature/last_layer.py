"""The last layer of a model alone, with all that is before it held fixed."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from laplacebook.base.checks import require_numbers
from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.jaxprs import Constant, Equation, depends_on, equations_of, evaluate, sources
from laplacebook.base.quick import jit_quickly
from laplacebook.curvature.dense_layers import MOVES
from laplacebook.curvature.outputs_and_loss import split_likelihood
from laplacebook.model.density import ModelDensity
from laplacebook.model.known_sites import LastLayer

_KEPT: dict[tuple, tuple[str, ...]] = {}  # sites of the last layer, by model and shapes of its data
_PROGRAMS = 200  # of them


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
            "The outputs are linear in none of the latent sites: the model has no last layer.",
            causes=["an activation after the last weights that is not the link of the likelihood"],
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
        parts = density.unravel(u)
        before: frozenset[str] = frozenset()  # on which the slope along those that are kept depends
        for name in _from_the_end(eta, parts):
            if name not in before and _linear(eta, parts, [*kept, name]):
                kept.append(name)
                before = sources(lambda parts: _slope(eta, parts, kept), parts)

    jax.eval_shape(look, density, u)
    return tuple(site.name for site in density.sites if site.name in kept)


def _from_the_end(eta: Callable[[Any], Array], parts: dict[str, Array]) -> list[str]:
    """The sites that enter the outputs, by the number of operations from there; of equals the last sampled first."""
    equations, output = equations_of(jax.make_jaxpr(eta)(parts))
    away: dict[Any, int] = {output: 0}
    for source, inputs, outputs in reversed(equations):
        steps = max(away[x] for x in outputs if x in away) + (source.primitive.name not in MOVES)
        for x in inputs:
            if not isinstance(x, Constant):
                away[x] = max(away.get(x, 0), steps)
    steps_of = {name: away[i] for i, name in enumerate(sorted(parts)) if i in away}  # as JAX sorts
    return sorted((name for name in reversed(parts) if name in steps_of), key=steps_of.__getitem__)


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
            maker = makers.get(inputs[0]) if source.primitive.name == "log" else None
            if maker is not None and maker.source.primitive.name == "exp":
                known[outputs[0]] = known[maker.inputs[0]]
            else:
                known.update(zip(outputs, evaluate(source, operands), strict=True))
            makers |= dict.fromkeys(outputs, equation)
        return result.value if isinstance(result, Constant) else known[result]

    return shorter
