"""What a model computes with that leaves the search without a smooth mode to find, as its program shows it."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from laplacebook.base.errors import LaplaceError, UnsupportedModel
from laplacebook.base.jaxprs import all_equations_of, reached, without_idle
from laplacebook.curvature.last_layer import sites_of_last_layer
from laplacebook.curvature.outputs_and_loss import split_likelihood
from laplacebook.model.density import ModelDensity

_KINKED = re.compile(r"\w*relu\w*|hard_\w+")
# Of what these are made kinks cancel.
_SMOOTH = re.compile(
    r"\w*(softmax|softplus|logsumexp|logaddexp|sigmoid|norm)\w*|sinc|x?log\w+|entr"
)
_KINKS = {"max": "max", "min": "min", "abs": "abs", "clamp": "clip", "reduce_max": "max"}
_POOLED, _POOLING = "reduce_window_max", "max pooling"


class Hindrances(NamedTuple):
    """Causes of errors, and a remedy to put before others; none and an empty one, if nothing is seen."""

    causes: list[str]
    remedy: str


def hindrances(density: ModelDensity, u: Float[Array, " D"]) -> Hindrances:
    """What hinders a search, by the programs of the outputs and of the log joint.

    Args:
        density: the log joint.
        u: a point, shape (D,).
    """
    program = jax.make_jaxpr(lambda u: density.loss(u)[0])(u)
    equations, _ = all_equations_of(program)
    moved = reached(equations, 0)
    of_u = [e for e in equations if moved.intersection(x for x in e.inputs if isinstance(x, int))]
    kinks = sorted(set(_kinks_of(_outputs(density, u).jaxpr, {0})))
    before = [_told(name) for name in kinks[-1:]]
    if any(e.source.primitive.name == "rsqrt" for e in of_u):
        before.append(
            "a normalisation (rsqrt), of layers, say: the outputs stay where all that enters it is scaled, so that the "
            "prior shrinks the weights before it until its epsilon is what counts"
        )
    kinds = {
        x for e in of_u for v in e.source.outvars if jnp.issubdtype(x := v.aval.dtype, jnp.floating)
    }
    narrow = sorted((x for x in kinds if jnp.finfo(x).eps > jnp.finfo(u.dtype).eps), key=str)
    if narrow:
        rounded = f"layers that compute in {narrow[0]}, whose rounding is seen in the log joint of {u.dtype}"
        return Hindrances(
            [rounded, *before],
            f"leave dtype= of the layers at the precision in which JAX works, {u.dtype}",
        )
    if before and _ends_in_layer(density, u):
        return Hindrances(
            before,
            'structure="last_layer" with start= of all layers before the last, of laplacebook.train(model, ...) or of '
            "your own training: they are then taken as they are",
        )
    return Hindrances(before, "")


def _told(kink: str) -> str:
    switch, smooth = (
        "its units switch on or off",
        "jax.nn.softplus, jax.nn.gelu and jnp.tanh are smooth",
    )
    if kink == _POOLING:
        switch, smooth = "another pixel becomes the largest", "the mean is smooth"
    return (
        f"a kink ({kink}): where {switch} within a posterior standard deviation, there is no smooth mode to find, "
        f"however long one trains; {smooth}"
    )


def _outputs(density: ModelDensity, u: Array) -> Any:
    """The program of the outputs, in whose loss kinks cancel; an empty one, where there are none."""
    try:
        whole = jax.make_jaxpr(lambda u: split_likelihood(density, u)[0](density.unravel(u)))(u)
        return without_idle(whole)
    except LaplaceError:
        return jax.make_jaxpr(lambda u: jnp.zeros(()))(u)


def _kinks_of(program: Any, moved: set[int]) -> Iterator[str]:
    """The names of functions with a kink of what depends on some of the arguments of a program."""
    of_u = {program.invars[i] for i in moved}
    for equation in program.eqns:
        which = {i for i, x in enumerate(equation.invars) if not hasattr(x, "val") and x in of_u}
        if not which:
            continue
        of_u.update(equation.outvars)
        kind, name = equation.primitive.name, str(equation.params.get("name", ""))
        if _KINKED.fullmatch(name):
            yield name
        elif kind == _POOLED:
            yield _POOLING
        elif kind in _KINKS:
            yield _KINKS[kind]
        elif kind == "select_n" and 0 in which:
            yield "where"
        elif not _SMOOTH.fullmatch(name):
            for value in equation.params.values():
                inner = getattr(value, "jaxpr", value)
                if hasattr(inner, "eqns") and len(inner.invars) == len(equation.invars):
                    yield from _kinks_of(inner, which)


def _ends_in_layer(density: ModelDensity, u: Array) -> bool:
    try:
        return len(sites_of_last_layer(density, u)) < len(density.sites)
    except UnsupportedModel:
        return False
