"""The curvature of a log likelihood as a sum over rows of J'HJ, accumulated a batch at a time."""

from collections.abc import Callable
from functools import partial
from math import ceil, prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from laplacebook.batches import NUMBERS
from laplacebook.density import ModelDensity
from laplacebook.outputs import slope, split_likelihood
from laplacebook.rows import Rows

__all__ = ["RowFactors", "require_kind", "row_factors", "sum_over_rows"]

KINDS = ("gauss_newton", "empirical_fisher")
FEWEST = 16  # rows of a batch, however many coordinates there are


class RowFactors(NamedTuple):
    """J and H of B rows, whose share of the curvature is the sum of J'HJ.

    Attributes:
        jacobians: J, one part a latent site in the order of ``density.sites``, of shape (B, C, d)
            for a site of d coordinates.
        hessians: H, shape (B, C, C).
    """

    jacobians: list[Float[Array, "B C _"]]
    hessians: Float[Array, "B C C"]

    def bent(self) -> list[Float[Array, "B C _"]]:
        """H J, in the parts of J."""
        if self.hessians.shape[-1] == 1:
            return [self.hessians * jacobian for jacobian in self.jacobians]
        return [jnp.einsum("bij,bjd->bid", self.hessians, part) for part in self.jacobians]


def require_kind(kind: str) -> None:
    """Refuse what is no kind of curvature.

    Raises:
        ValueError: there is no such kind.
    """
    if kind not in KINDS:
        raise ValueError(f"kind is one of {', '.join(map(repr, KINDS))}, not {kind!r}")


def row_factors(
    rows: Rows, u: Float[Array, " D"], kind: str, index: Int[Array, " B"]
) -> RowFactors:
    """The factors of some rows.

    Args:
        rows: the rows of a model.
        u: the point, shape (D,).
        kind: ``"gauss_newton"``: J is the Jacobian of the row's outputs, and H the Hessian of their
            loss (:func:`~laplacebook.outputs.split_likelihood`); ``"empirical_fisher"``: J' is the
            gradient of the row's log likelihood, and H is 1.
        index: which rows, shape (B,).

    Returns:
        The :class:`RowFactors`.
    """
    one = _gauss_newton if kind == "gauss_newton" else _empirical_fisher
    return jax.vmap(lambda i: one(rows.take(i[None]), u))(index)


def _gauss_newton(density: ModelDensity, u: Array) -> RowFactors:
    eta, loss = split_likelihood(density, u)
    # Of the parts and not of the vector: what J is made of stays apart, and need not be stored.
    outputs, pull = jax.vjp(eta, density.unravel(u))
    (jacobian,) = jax.vmap(pull)(jnp.eye(outputs.size, dtype=outputs.dtype))
    parts = [jacobian[s.name].reshape(outputs.size, s.size) for s in density.sites]
    return RowFactors(parts, jax.hessian(loss)(outputs))


def _empirical_fisher(density: ModelDensity, u: Array) -> RowFactors:
    eta, loss = split_likelihood(density, u)
    outputs, pull = jax.vjp(eta, density.unravel(u))
    (gradient,) = pull(slope(loss, outputs))
    jacobians = [gradient[s.name].reshape(1, s.size) for s in density.sites]
    return RowFactors(jacobians, jnp.ones((1, 1), u.dtype))


def sum_over_rows(
    rows: Rows,
    u: Float[Array, " D"],
    kind: str,
    batch_size: int | None,
    share: Callable[[RowFactors], Any],
) -> Any:
    """The sum over batches of rows of what ``share`` makes of their factors.

    Args:
        rows: the rows of a model.
        u: the point, shape (D,).
        kind: ``"gauss_newton"`` or ``"empirical_fisher"``.
        batch_size: how many rows at a time; by default so many that their Jacobians are no larger
            than the sum, or than what a processor keeps at hand.
        share: a function of :class:`RowFactors` that returns a pytree of arrays.

    Returns:
        A pytree of arrays.

    Raises:
        ValueError: there is no such kind.
    """
    require_kind(kind)
    return rows.over_shards(partial(_sum, kind=kind, batch_size=batch_size, share=share), u)


def _sum(
    rows: Rows, u: Array, kind: str, batch_size: int | None, share: Callable[[RowFactors], Any]
) -> Any:
    def of_batch(index: Int[Array, " B"]) -> Any:
        # The last batch is made up by rows taken again, with weight zero.
        factors = row_factors(rows, u, kind, index % rows.number)
        counted = (index < rows.number).astype(u.dtype)[:, None, None]
        return share(factors._replace(hessians=factors.hessians * counted))

    def add(total: Any, index: Array) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, of_batch(index)), None

    shapes = jax.eval_shape(of_batch, jnp.zeros(1, int))
    if batch_size is None:
        outputs = jax.eval_shape(lambda: row_factors(rows, u, kind, jnp.zeros(1, int)).hessians)
        numbers = max(NUMBERS, sum(prod(x.shape) for x in jax.tree.leaves(shapes)))
        batch_size = max(FEWEST, numbers // max(outputs.shape[-1] * u.size, 1))
    batches = ceil(rows.number / batch_size)
    index = jnp.arange(batches * ceil(rows.number / batches)).reshape(batches, -1)
    start = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return jax.lax.scan(add, start, index)[0]
