"""The last layer of a model alone, with all that is before it held fixed."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from laplacebook.base.checks import require_numbers
from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.jaxprs import Constant, Equation, depends_on, equations_of, evaluate, sources
from laplacebook.base.quick import jit_quickly
from laplacebook.curvature.outputs_and_loss import split_likelihood
from laplacebook.model.density import ModelDensity
from laplacebook.model.known_sites import LastLayer

_KEPT: dict[tuple, tuple[str, ...]] = {}  # sites of the last layer, by model and shapes of its data
_PROGRAMS = 200  # of them


def last_layer_of(density: ModelDensity, u: Float[Array, " D"]) -> ModelDensity:
    """The model of the last layer, with the sites before it fixed at u.

    The last layer is the longest row of latent sites at the end of the model in which the outputs
    are linear, for fixed values of all sites before: the weights and biases that follow the last
    activation (Kristiadi, Hein and Hennig 2020). With them go those before in which, together with
    these, the outputs are linear, too, such as a bias that was sampled first. Neither the prior of a
    fixed site nor its uncertainty enters: its values count as known.

    Args:
        density: the whole model.
        u: its mode, shape (D,).

    Returns:
        The log joint of the last layer.

    Raises:
        ValueError: u is not known, under a JAX transformation.
        UnsupportedModel: the outputs are not linear in the last site.
    """
    require_numbers('structure="last_layer"', u)
    if isinstance(density.model, LastLayer):
        return density
    program = density.program
    if program not in _KEPT:
        while len(_KEPT) >= _PROGRAMS:
            del _KEPT[next(iter(_KEPT))]
        _KEPT[program] = _linear_sites(density, u)
    kept = _KEPT[program]
    if not kept:
        raise UnsupportedModel(
            f"The outputs are not linear in the last latent site, '{density.sites[-1].name}': the "
            "model has no last layer.",
            causes=[
                "a scale or another parameter that is sampled after the weights",
                "an activation after the last weights that is not the link of the likelihood",
            ],
            remedy='sample the last weights last, or use structure="block".',
        )
    values = _values(density, u)
    fixed = {name: value for name, value in values.items() if name not in kept}
    args, kwargs = density.arguments
    return ModelDensity.of(LastLayer(density.model, fixed), args, kwargs, density.space)


def _linear_sites(density: ModelDensity, u: Float[Array, " D"]) -> tuple[str, ...]:
    """Which sites are the last layer, by a trace that computes nothing."""
    kept: list[str] = []

    def look(density: ModelDensity, u: Array) -> None:
        eta, _ = split_likelihood(density, u)
        parts = density.unravel(u)
        names = list(parts)
        while names and _linear(eta, parts, [*kept, names[-1]]):
            kept.append(names.pop())
        if kept:
            slope = sources(lambda parts: _slope(eta, parts, kept), parts)
            enter = sources(eta, parts) - slope
            for name in reversed(names):
                if name in enter and _linear(eta, parts, [*kept, name]):
                    kept.append(name)

    jax.eval_shape(look, density, u)
    return tuple(kept)


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
