"""Long predictors that are affine in the coordinates: through them few products hold a Hessian.

Rows of data beside crossed effects couple each effect with hundreds of others, but each row through one number,
eta = c(u), which is affine. So f(u) = F(u, c(u)) has the Hessian

``F_uu + J' diag(d) J``, with J = dc/du, and d the second derivatives of F by each number of eta,

where F_uu is that of the priors, J has a few entries in each row and d is one product.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.jaxprs import Equation
from laplacebook.base.quick import jit_quickly
from laplacebook.curvature.affine import is_affine
from laplacebook.curvature.bottlenecks import Bottlenecks, on_coordinates, program_of, run
from laplacebook.curvature.sparse_pattern import UNKNOWN
from laplacebook.gaussian.sparse_layout import optional
from laplacebook.model.density import ModelDensity

_MANY = 32  # coordinates: of fewer each may be moved alone
_PAIRS = 2**26  # of entries of J in a row, in all rows


@dataclass(frozen=True)
class Predictor:
    """The predictors of a model, and where their Jacobian has entries.

    Attributes:
        which: the equations of the program of f that compute them.
        seed: for each coordinate the product in which it is moved, shape (D,).
        number: of these products.
        one: for each pair of entries in a row of J where the first stands among the products, shape (P,).
        other: where the second stands, shape (P,).
        row: of the pair, shape (P,).
        rows: of the place in the Hessian to which the pair adds, shape (P,); the larger one.
        cols: of that place, shape (P,).
    """

    which: Bottlenecks
    seed: np.ndarray
    number: int
    one: np.ndarray
    other: np.ndarray
    row: np.ndarray
    rows: np.ndarray
    cols: np.ndarray


def predictor_of(density: ModelDensity, u: Float[np.ndarray, " D"]) -> Predictor | None:
    """The predictors longer than u, if f depends on each of their numbers apart from the others; else None.

    Args:
        density: the log joint, with its data.
        u: a point in its domain, shape (D,).
    """
    asdex = optional("asdex")
    equations, _ = program_of(density, u)
    which = _frontier(equations, len(jax.tree.leaves(density)), u.size)
    if not which or u.size < _MANY:
        return None
    eta = np.asarray(_predicted(density, u, which=which))
    both = np.concatenate([u, eta])
    try:
        pattern = asdex.hessian_sparsity(
            lambda x: run(density, x[: u.size], which, x[u.size :])[0], jnp.asarray(both)
        )
        jacobian = asdex.jacobian_sparsity(
            lambda v: run(density, v, which, None)[1], jnp.asarray(u)
        )
    except UNKNOWN:
        return None
    rows, cols = np.asarray(pattern.rows), np.asarray(pattern.cols)
    apart = (rows < u.size) & (cols < u.size) | (rows == cols)
    if not apart.all():
        return None
    return _paired(which, jacobian, u.size)


def _paired(which: Bottlenecks, jacobian: Any, size: int) -> Predictor | None:
    asdex = optional("asdex")
    row, col = np.asarray(jacobian.rows), np.asarray(jacobian.cols)
    order = np.lexsort((col, row))
    row, col = row[order], col[order]
    length = np.bincount(row, minlength=jacobian.shape[0])
    if np.sum(length.astype(np.int64) * (length + 1) // 2) > _PAIRS:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", asdex.DenseColoringWarning)
        coloring = asdex.jacobian_coloring_from_sparsity(jacobian, mode="fwd")
    seed = np.asarray(coloring.colors)
    begin = np.cumsum(length) - length
    # Each entry with itself and those before it in its row.
    before = np.arange(row.size) - begin[row] + 1
    one = np.repeat(np.arange(row.size), before)
    step = np.arange(one.size) - np.repeat(np.cumsum(before) - before, before)
    other = begin[row[one]] + step
    stands = seed[col].astype(np.int64) * jacobian.shape[0] + row
    return Predictor(
        *(which, seed, coloring.num_colors, stands[one], stands[other]),
        *(row[one], col[one], col[other]),
    )


def predictor_terms(
    density: ModelDensity, u: Float[Array, " D"], which: Bottlenecks, seed: Array, number: int
) -> tuple[Float[Array, " N"], Float[Array, "C N"]]:
    """d, and the products of J with the seeds.

    Args:
        density: the log joint.
        u: shape (D,).
        which: the equations that compute the predictors.
        seed: for each coordinate the product in which it is moved, shape (D,).
        number: of the products.
    """
    eta, push = jax.linearize(lambda v: run(density, v, which, None)[1], u)
    slope = jax.grad(lambda eta: run(density, u, which, eta)[0])
    bend = jax.jvp(slope, (eta,), (jnp.ones_like(eta),))[1]
    moved = jax.lax.map(lambda k: push((seed == k).astype(u.dtype)), jnp.arange(number))
    return bend, moved


def beside_predictors(
    density: ModelDensity, u: Float[Array, " D"], which: Bottlenecks
) -> Callable[[Array], Float[Array, ""]]:
    """The function of u of which F_uu is the Hessian: the predictors are what they are at ``u``."""
    eta = _predicted(density, u, which=which)
    return lambda v: run(density, v, which, eta)[0]


@partial(jit_quickly, static_argnames="which")
def _predicted(density: ModelDensity, u: Array, *, which: Bottlenecks) -> Array:
    return run(density, u, which, None)[1]


def _frontier(equations: Sequence[Equation], of_u: int, size: int) -> Bottlenecks:
    """The equations whose results are affine in u, longer than u, and used otherwise than affinely."""
    affine = {of_u}
    made: dict[int, int] = {}
    found: set[int] = set()
    for k, (equation, used) in enumerate(on_coordinates(equations, of_u)):
        source, _, outputs = equation
        if is_affine(equation, used) and affine.issuperset(used):
            affine.update(outputs)
            if len(outputs) == 1 and prod(source.outvars[0].aval.shape) > size:
                made[outputs[0]] = k
        else:
            found.update(made[i] for i in used if i in made)
    return tuple(sorted(found))
