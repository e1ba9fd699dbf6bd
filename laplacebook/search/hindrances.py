"""What a model computes with that leaves the search without a smooth mode to find, as its program shows it."""

import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.jaxprs import Equation, all_equations_of, reached
from laplacebook.curvature.last_layer import sites_of_last_layer
from laplacebook.model.density import ModelDensity

_KINKED = re.compile(r"\bname=(\w*relu\w*|hard_\w+)\b")
_HALF = {jnp.dtype(jnp.bfloat16), jnp.dtype(jnp.float16)}


class Hindrances(NamedTuple):
    """Causes of errors, and a remedy to put before others; none and an empty one, if nothing is seen."""

    causes: list[str]
    remedy: str


def hindrances(density: ModelDensity, u: Float[Array, " D"]) -> Hindrances:
    """What hinders a search, by the program of the log joint.

    Args:
        density: the log joint.
        u: a point, shape (D,).
    """
    program = jax.make_jaxpr(lambda u: density.loss(u)[0])(u)
    equations, _ = all_equations_of(program)
    moved = reached(equations, 0)
    of_u = [e for e in equations if moved.intersection(x for x in e.inputs if isinstance(x, int))]
    kinks = sorted(set(_KINKED.findall(str(program))))
    kinks += ["max pooling"] * _computes(of_u, "reduce_window_max")
    before = [
        f"a kink ({name}): where its units switch on or off within a posterior standard deviation, there is no smooth "
        "mode to find, however long one trains; jax.nn.softplus, jax.nn.gelu and jnp.tanh are smooth"
        if name != "max pooling"
        else f"a kink ({name}): where another pixel becomes the largest within a posterior standard deviation, there "
        "is no smooth mode to find, however long one trains; the mean is smooth"
        for name in kinks[:1]
    ]
    if _computes(of_u, "rsqrt"):
        before.append(
            "a normalisation (rsqrt), of layers, say: the outputs stay where all that enters it is scaled, so that the "
            "prior shrinks the weights before it until its epsilon is what counts"
        )
    half = [x for e in of_u for v in e.source.outvars if (x := v.aval.dtype) in _HALF]
    rounded = [
        f"layers that compute in {half[0]}, whose rounding is seen in the log joint: leave dtype= at the precision in "
        "which JAX works"
        for _ in half[:1]
    ]
    remedy = ""
    if before and not rounded and _ends_in_layer(density, u):
        remedy = (
            'structure="last_layer" with start=laplacebook.train(model, ...), or your own trained weights: the layers '
            "before the last are then taken as they are."
        )
    return Hindrances(rounded + before, remedy)


def _computes(equations: list[Equation], name: str) -> bool:
    return any(equation.source.primitive.name == name for equation in equations)


def _ends_in_layer(density: ModelDensity, u: Array) -> bool:
    try:
        return len(sites_of_last_layer(density, u)) < len(density.sites)
    except UnsupportedModel:
        return False
