"""Whether the log likelihood of a model is the sum over its rows."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
from numpyro import distributions as dist
from numpyro.distributions.distribution import validation_enabled

from laplacebook.density import ModelDensity
from laplacebook.errors import UnsupportedModel
from laplacebook.rows import Rows, rows_of

__all__ = ["add_up", "require_sum", "rows_add_up"]

AWAY = 0.125  # of 1 + |u|: where the rows are compared, since at 0 a model may not see its data


def row_log_likelihoods(
    density: ModelDensity, u: Float[Array, " D"] | Mapping, number: int
) -> Float[Array, " N"]:
    """The log likelihood of each row, as the model with all of them has it.

    Args:
        density: a model and its arguments.
        u: a point, shape (D,), or a dict of its parts by site.
        number: N, how many rows the model has.

    Returns:
        Shape (N,); NaN if a distribution is of all rows jointly.
    """
    trace, _ = density.trace(u)
    parts = []
    for name in density.observed(trace):
        site = trace[name]
        fn = site["fn"]
        while isinstance(fn, dist.Independent):
            fn = fn.base_dist
        with validation_enabled(False):
            log_prob = fn.log_prob(site["value"])
        if log_prob.shape[:1] != (number,):
            return jnp.full(number, jnp.nan)
        scaled = log_prob if site["scale"] is None else site["scale"] * log_prob
        parts.append(jnp.sum(scaled.reshape(number, -1), axis=1))
    return jnp.sum(jnp.stack(parts), axis=0)


def rows_add_up(rows: Rows, u: Float[Array, " D"]) -> Bool[Array, ""]:
    """Whether each row has the same log likelihood alone as among all the others.

    Compared at a point beside u, row by row, to the cube root of the rounding unit, in nats or of
    the value: 6e-6 in double precision.

    Args:
        rows: the rows of a model.
        u: a point, shape (D,).

    Returns:
        Shape ().
    """
    sign = jax.random.rademacher(jax.random.key(0), u.shape, u.dtype)
    far = AWAY * (1 + jnp.abs(u)) * jax.random.uniform(jax.random.key(1), u.shape, u.dtype, 0.5)
    beside = u + sign * jnp.minimum(far, rows.density.room(u) / 2)
    together = row_log_likelihoods(rows.density, beside, rows.number)
    other = rows.over_shards(_other_alone, beside, by_row=(together,))
    return jnp.any(jnp.isfinite(together)) & (other == 0)


def _other_alone(rows: Rows, u: Array, together: Array) -> Array:
    """How many rows have another log likelihood alone than together."""

    def alone(index: Array) -> Array:
        return row_log_likelihoods(rows.take(index[None]), u, 1)[0]

    apart = jax.lax.map(alone, jnp.arange(rows.number), batch_size=min(rows.number, 1024))
    tolerance = jnp.cbrt(jnp.finfo(u.dtype).eps)
    same = jnp.abs(apart - together) <= tolerance * (1 + jnp.abs(together))
    return jnp.sum(~jnp.where(jnp.isfinite(together), same, ~jnp.isfinite(apart)))


@jax.jit
def add_up(density: ModelDensity, u: Float[Array, " D"]) -> Bool[Array, ""]:
    """Whether the log likelihood of a model is the sum over its rows, as :func:`rows_add_up` sees it.

    Raises:
        UnsupportedModel: the observations cannot be taken one by one.
    """
    return rows_add_up(rows_of(density), u)


def require_sum(density: ModelDensity, u: Float[Array, " D"]) -> None:
    """Refuse a model whose log likelihood is not the sum over its rows; not under ``jit``.

    Args:
        density: a model and its arguments.
        u: a point, shape (D,).

    Raises:
        UnsupportedModel: it is not, or the observations cannot be taken one by one.
    """
    if not add_up(density, u):
        raise UnsupportedModel(
            "The log likelihood of this model is not the sum over its observations: alone, an "
            "observation has another likelihood than among the others.",
            causes=[
                "the model standardises its data, or computes with their mean or number",
                "an outcome depends on other outcomes (a time series, a Gaussian process)",
                "an array among the arguments has as many entries as there are observations, and is "
                "not by observation",
            ],
            remedy='prepare the data outside of the model; or use curvature="hessian" or, with '
            'structure="dense", "gauss_newton" with all observations at once.',
        )
