"""Sums over many coordinates that a log joint uses: held apart, what is left of its Hessian is sparse.

A soft sum to zero, or a mean over a site, couples every coordinate with every other one. But it does so through
a single number w = c(u), so f(u) = F(u, w) has the Hessian

``L_uu + L_uw J + J' L_wu + J' L_ww J``, with L(u, w) = F(u, w) + l' c(u, w), J = dw/du and l = dF/dw,

of which the first term is as sparse as the rest of the model, and the others have the rank of w: twice the
chain rule, for several such numbers of which later ones may use earlier ones.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.jaxprs import Atom, Constant, Equation, equations_of, evaluate
from laplacebook.base.namespace import Numbers
from laplacebook.base.quick import jit_quickly
from laplacebook.curvature.affine import bent
from laplacebook.model.density import ModelDensity

_WIDE = 32  # numbers that become few
_FEW = 16
_MOST = 64  # of these few, in all
_SUMS = {"reduce_sum", "dot_general", "scatter-add"}
_ZERO = 1e-13  # of the largest: rounding

Bottlenecks = tuple[int, ...]  # the equations that compute them, among those of f that depend on u


class Lagrangian(NamedTuple):
    """The Hessian of f by its parts, at a point u.

    Attributes:
        w: what the bottlenecks are there, shape (m,).
        multipliers: l, shape (m,).
        jacobian: J, shape (m, D).
    """

    w: Array
    multipliers: Array
    jacobian: Array


def bottlenecks_of(density: ModelDensity, u: Float[np.ndarray, " D"]) -> Bottlenecks:
    """Those through which the Hessian of the negative log joint is not zero.

    Args:
        density: the log joint.
        u: a point at which no entry of the Hessian vanishes by accident, shape (D,).
    """
    equations, _ = program_of(density, u)
    found, sizes = _candidates(equations, len(jax.tree.leaves(density)))
    if not found:
        return ()
    left, middle = jax.device_get(_by_rank(density, u, found))
    number = len(middle) // 2
    bent, across = np.abs(middle[:number, :number]), np.abs(left[:, number:])
    rounding = _ZERO * max(bent.max(), across.max())
    # One that meets few coordinates couples no others: these have a row of their own.
    used = (bent > rounding).any(axis=0) | ((across > rounding).sum(axis=0) > _WIDE)
    parts = np.split(used, np.cumsum(sizes)[:-1])
    return tuple(k for k, part in zip(found, parts, strict=True) if part.any())


def lagrangian(density: ModelDensity, u: Float[Array, " D"], which: Bottlenecks) -> Lagrangian:
    """The parts of the Hessian of the negative log joint at u.

    Args:
        density: the log joint.
        u: shape (D,).
        which: the bottlenecks.
    """
    _, w = run(density, u, which, None)
    of_f, of_c = jax.jacobian(lambda w: run(density, u, which, w))(w)
    inner = jnp.eye(w.size, dtype=u.dtype) - of_c
    of_u = jax.jacrev(lambda u: run(density, u, which, w)[1])(u)
    return Lagrangian(w, jnp.linalg.solve(inner.T, of_f), jnp.linalg.solve(inner, of_u))


def apart(
    density: ModelDensity, which: Bottlenecks, at: Lagrangian
) -> Callable[[Array, Array], Float[Array, ""]]:
    """L, a function of u and w, of shapes (D,) and (m,)."""

    def value(u: Array, w: Array) -> Array:
        f, c = run(density, u, which, w)
        return f + at.multipliers @ c

    return value


def low_rank(
    density: ModelDensity, u: Float[Array, " D"], which: Bottlenecks, at: Lagrangian
) -> tuple[Float[Array, "D R"], Float[Array, "R R"]]:
    """W and K of the terms of low rank, W K W', with R = 2m."""
    slopes = jax.grad(apart(density, which, at), (0, 1))

    def column(direction: Array) -> tuple[Array, Array]:
        return jax.jvp(slopes, (u, at.w), (jnp.zeros_like(u), direction))[1]

    identity = jnp.eye(at.w.size, dtype=u.dtype)
    across, inner = jax.lax.map(column, identity)
    left = jnp.concatenate([at.jacobian.T, across.T], axis=1)
    return left, jnp.block([[(inner + inner.T) / 2, identity], [identity, 0 * identity]])


@partial(jit_quickly, static_argnames="which")
def _by_rank(density: ModelDensity, u: Array, which: Bottlenecks) -> tuple[Array, Array]:
    return low_rank(density, u, which, lagrangian(density, u, which))


def program_of(density: ModelDensity, u: Float[Numbers, " D"]) -> tuple[list[Equation], Atom]:
    """The program of f at u of shape (D,): its equations, and the result."""
    return equations_of(jax.make_jaxpr(lambda density, u: density.loss(u)[0])(density, u))


def on_coordinates(equations: Sequence[Equation], of_u: int) -> Iterator[tuple[Equation, set[int]]]:
    """The equations that depend on u, with the variables among their inputs that do.

    By their number among these an equation is known: others may be computed before a program is traced.

    Args:
        equations: of a program.
        of_u: the number of the variable u.
    """
    touched = {of_u}
    for equation in equations:
        used = {i for i in equation.inputs if not isinstance(i, Constant) and i in touched}
        if used:
            touched.update(equation.outputs)
            yield equation, used


def _candidates(equations: Sequence[Equation], of_u: int) -> tuple[Bottlenecks, list[int]]:
    """The equations that make few numbers of many that depend on u, and how many they make.

    Those in which f is affine, such as the sum of a log likelihood, have no part in its Hessian.
    """
    found, sizes, numbered = [], [], list(on_coordinates(equations, of_u))
    curved = bent(numbered)
    for k, ((source, inputs, outputs), used) in enumerate(numbered):
        pairs = zip(inputs, source.invars, strict=True)
        avals = [x.aval for i, x in pairs if not isinstance(i, Constant) and i in used]
        size = prod(source.outvars[0].aval.shape)
        wide = max(prod(aval.shape) for aval in avals) >= max(_WIDE, 2 * size)
        matters = curved.issuperset(outputs)
        if source.primitive.name in _SUMS and matters and wide and size <= _FEW:
            found.append(k)
            sizes.append(size)
    return (tuple(found), sizes) if sum(sizes) <= _MOST else ((), [])


def run(
    density: ModelDensity, u: Float[Array, " D"], which: Bottlenecks, w: Float[Array, " m"] | None
) -> tuple[Float[Array, ""], Float[Array, " m"]]:
    """f, and what the bottlenecks compute, where each is taken to be what w says, if that is given."""
    equations, result = program_of(density, u)
    leaves = jax.tree.leaves(density)
    values = dict(enumerate([*leaves, u]))
    numbered = [equation.outputs for equation, _ in on_coordinates(equations, len(leaves))]
    cut = {numbered[k] for k in which}
    computed, offset = [], 0
    for source, inputs, outputs in equations:
        operands = [i.value if isinstance(i, Constant) else values[i] for i in inputs]
        results = evaluate(source, operands)
        if outputs in cut:
            (here,) = results
            computed.append(jnp.ravel(here))
            if w is not None:
                results = [w[offset : offset + here.size].reshape(here.shape)]
            offset += here.size
        values.update(zip(outputs, results, strict=True))
    f = result.value if isinstance(result, Constant) else values[result]
    return f, jnp.concatenate(computed)
