"""A linear predictor of many rows: through it one product of matrices is the Hessian.

Rows of data mostly see the coordinates through eta = M z(u), with M the features, and else through a few numbers
k(u): an intercept, a scale, the log prior to which their own sum is added. Then f(u) = F(eta, k), and where F is a
sum over the rows its second derivatives by eta are a diagonal matrix diag(d). By the chain rule, with v = (z, k),

``H = v_u' F_vv v_u + sum_i F_v,i (v_i)_uu``, of which the block of z in F_vv is M' diag(d) M.

That is one product with M on both sides; the columns of the Hessian one by one need two.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple, TypeGuard

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from laplacebook.base.devices import platform
from laplacebook.base.jaxprs import (
    ELEMENTWISE,
    Atom,
    Constant,
    Equation,
    equations_of,
    needed,
    primitives,
    reached,
    value_of,
    values_of,
)
from laplacebook.base.namespace import Numbers, namespace

LARGE = 2**20  # entries of M: with fewer there is little to gain
_FEW = 16  # numbers k
_ROWS = 2000  # at a time: they stay in the cache of a core
_SCALED = {"neg", "mul", "div", "convert_element_type", "reduce_sum", "copy"}
_ADDED = {"add", "sub", "add_any"}
_RESHAPED = {"reshape", "broadcast_in_dim", "squeeze"}  # where there are as many numbers after it


class Split(NamedTuple):
    """A function in its parts.

    Attributes:
        features: M, shape (N, p).
        seen: v of u: z and k, shapes (p,) and (m,).
        rows: F of eta and k.
    """

    features: Array
    seen: Callable[[Array], tuple[Array, Array]]
    rows: Callable[[Array, Array], Array]


class Bends(NamedTuple):
    """The derivatives of F that the Hessian is made of: those by the predictor of each row, and those by k.

    Attributes:
        bend: the second derivatives by eta, a diagonal matrix diag(d), shape (N,).
        across: those by k and eta, shape (m, N).
        inner: those by k, shape (m, m).
        by_eta: the first derivatives by eta, shape (N,).
        by_k: those by k, shape (m,).
    """

    bend: Numbers
    across: Numbers
    inner: Numbers
    by_eta: Numbers
    by_k: Numbers


def bends(split: Split, eta: Float[Array, " N"], k: Float[Array, " m"]) -> Bends:
    """The derivatives of F at eta and k."""
    slope = jax.grad(split.rows, argnums=(0, 1))
    by_eta, by_k = slope(eta, k)
    bend, _ = jax.jvp(slope, (eta, k), (jnp.ones_like(eta), jnp.zeros_like(k)))[1]

    def column(direction: Array) -> tuple[Array, Array]:
        return jax.jvp(slope, (eta, k), (jnp.zeros_like(eta), direction))[1]

    across, inner = jax.vmap(column)(jnp.eye(k.size, dtype=k.dtype))
    return Bends(bend, across, inner, by_eta, by_k)


def hessian_by_rows(
    split: Split,
    x: Float[Array, " D"],
    hessian: Callable[[Callable, Array], Float[Array, "D D"]],
) -> Float[Array, "D D"]:
    """The Hessian of a function in its parts.

    Args:
        split: the parts.
        x: the point, shape (D,).
        hessian: that of any function at a point: here of one that does not look at the rows.
    """
    features, (z, k) = split.features, split.seen(x)
    bend, across, inner, by_eta, by_k = bends(split, features @ z, k)
    across = across @ features
    multipliers = jnp.concatenate([by_eta @ features, by_k])
    jacobian = jnp.concatenate(jax.jacfwd(split.seen)(x))
    beside = hessian(lambda u: multipliers @ jnp.concatenate(split.seen(u)), x)
    return assembled(_weighted(features, bend), across, inner, jacobian, beside)


def assembled(
    products: Float[Numbers, "p p"],
    across: Float[Numbers, "m p"],
    inner: Float[Numbers, "m m"],
    jacobian: Float[Numbers, "q D"],
    beside: Float[Numbers, "D D"],
) -> Float[Numbers, "D D"]:
    """The Hessian by the chain rule: ``v_u' F_vv v_u``, with F_vv in blocks, and what is beside it."""
    curvature = namespace(products).block([[products, across.T], [across, inner]])
    found = beside + jacobian.T @ curvature @ jacobian
    return (found + found.T) / 2


def _weighted(m: Float[Array, "N p"], d: Float[Array, " N"]) -> Float[Array, "p p"]:
    """M' diag(d) M, of so few rows at a time that diag(d) M is not written to memory."""
    if platform() != "cpu" or d.size <= _ROWS:
        return m.T @ (d[:, None] * m)
    blocks = d.size // _ROWS

    def add(total: Array, i: Array) -> tuple[Array, None]:
        rows, weights = (jax.lax.dynamic_slice_in_dim(a, i * _ROWS, _ROWS) for a in (m, d))
        return total + rows.T @ (weights[:, None] * rows), None

    left = slice(blocks * _ROWS, None)
    last = m[left].T @ (d[left, None] * m[left])
    return jax.lax.scan(add, last, jnp.arange(blocks))[0]


def split_at_predictor(f: Callable[[Array], Array], x: Float[Array, " D"]) -> Split | None:
    """The parts of a scalar function that has a large linear predictor and sums over its rows; else None.

    By its program, so that nothing is computed to find out.

    Args:
        f: a function of a vector of shape (D,).
        x: such a vector.
    """
    if jax.device_count() > 1:  # the rows may be spread over them
        return None
    equations, result = equations_of(jax.make_jaxpr(f)(x))
    of_u = reached(equations, 0)
    products = (e for e in equations if _is_product(e, of_u))
    product = max(products, key=_entries, default=None)
    if product is None or isinstance(result, Constant) or _entries(product) < LARGE:
        return None
    (eta,), (length,) = product.outputs, _shape(product)
    of_rows = reached(equations, eta)
    behind = [e for e in equations if e is not product and of_rows.issuperset(e.outputs)]
    if result not in of_rows or not all(_keeps_apart(e, of_rows, length) for e in behind):
        return None
    return _split(equations, of_u, product, [e.outputs for e in behind], result)


def _split(
    equations: Sequence[Equation],
    of_u: set[int],
    product: Equation,
    behind: list[tuple[int, ...]],
    result: int,
) -> Split | None:
    """The parts, if what the rows see beside the product is few numbers; ``behind`` is what depends on it."""
    (eta,), (length,) = product.outputs, _shape(product)
    bound = [e for e in equations if of_u.issuperset(e.outputs)]
    # What is as long as the rows, and used by them, belongs to them.
    long = {e.outputs for e in bound if prod(_shape(e)) >= length} - {product.outputs}
    rows = needed([e for e in bound if e.outputs in long.union(behind)], [result])
    inside = {eta, *(i for e in rows for i in e.outputs)}
    operands = [pair for e in rows for pair in zip(e.inputs, e.source.invars, strict=True)]
    few = {i: v.aval for i, v in operands if _among(i, of_u - inside)}
    real = all(jnp.issubdtype(aval.dtype, jnp.inexact) for aval in few.values())
    if not real or sum(prod(aval.shape) for aval in few.values()) > _FEW:
        return None

    known = values_of([e for e in equations if of_u.isdisjoint(e.outputs)], {})
    first = _among(product.inputs[0], of_u)
    vector, matrix = product.inputs if first else product.inputs[::-1]
    (axis,) = product.source.params["dimension_numbers"][0][first]
    features = jnp.asarray(value_of(matrix, known))
    before = needed(bound, [vector, *few])

    def seen(u: Array) -> tuple[Array, Array]:
        values = values_of(before, {**known, 0: u})
        numbers = [jnp.ravel(values[i]).astype(u.dtype) for i in few]
        return value_of(vector, values), jnp.concatenate([jnp.zeros(0, u.dtype), *numbers])

    def of_the_rows(predictor: Array, k: Array) -> Array:
        values, begin = {**known, eta: predictor}, 0
        for i, aval in few.items():
            end = begin + prod(aval.shape)
            values[i] = k[begin:end].reshape(aval.shape).astype(aval.dtype)
            begin = end
        return values_of(rows, values)[result]

    return Split(features if axis == 1 else features.T, seen, of_the_rows)


def _shape(equation: Equation) -> tuple[int, ...]:
    return equation.source.outvars[0].aval.shape


def _entries(product: Equation) -> int:
    return max(prod(v.aval.shape) for v in product.source.invars)


def _is_product(equation: Equation, of_u: set[int]) -> bool:
    """Whether this is a matrix that does not depend on u times a vector that does."""
    if equation.source.primitive.name != "dot_general":
        return False
    operands = zip(equation.inputs, equation.source.invars, strict=True)
    return sorted((_among(i, of_u), v.aval.ndim) for i, v in operands) == [(False, 2), (True, 1)]


def _among(atom: Atom, variables: set[int]) -> TypeGuard[int]:
    return not isinstance(atom, Constant) and atom in variables


def _keeps_apart(equation: Equation, of_rows: set[int], length: int) -> bool:
    """Whether the second derivatives by the rows stay diagonal: each by itself, then a sum."""
    source = equation.source
    name, shape = source.primitive.name, _shape(equation)
    operands = zip(equation.inputs, source.invars, strict=True)
    shapes = [v.aval.shape for i, v in operands if _among(i, of_rows)]
    if name in _RESHAPED and {prod(s) for s in [*shapes, shape]} == {length}:  # an event of NumPyro
        return True
    if set(shapes) == {(length,)}:
        return name == "reduce_sum" or (shape == (length,) and _is_elementwise(source, length))
    first = _among(equation.inputs[0], of_rows)
    linear = name in _ADDED or (name in _SCALED and first and len(shapes) == 1)
    return set(shapes) == {()} and shape == () and (linear or (name == "mul" and len(shapes) == 1))


def _is_elementwise(source: Any, length: int) -> bool:
    if source.primitive.name != "custom_jvp_call":
        return source.primitive.name in ELEMENTWISE
    program = source.params["call_jaxpr"]
    return primitives(program) <= ELEMENTWISE | {"jit", "pjit", "broadcast_in_dim"}
