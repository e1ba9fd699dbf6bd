"""Are chunks what a fit takes them for: rows of one sum, with one prior, the same in each pass?"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.errors import LaplaceError, UnsupportedModel
from laplacebook.base.namespace import Numbers
from laplacebook.base.quick import jit_quickly
from laplacebook.model.density import ModelDensity
from laplacebook.model.not_finite import require_entries
from laplacebook.model.rows import Rows, add_up, rows_of
from laplacebook.model.trace import Terms

CHECKED = 1024  # rows of a chunk, by which it is seen whether the log likelihood is a sum over rows


def require_sum_of_chunks(
    first: ModelDensity, second: ModelDensity | None, u: Float[Array, " D"]
) -> ModelDensity:
    """Refuse a model whose log likelihood is not the sum over rows.

    The rows of two chunks are looked at together, for a single row, or equal ones, would not tell.

    Args:
        first: the model of the first chunk.
        second: of the second; None if there is none.
        u: a point, shape (D,).

    Returns:
        The model of some rows of the first chunk.

    Raises:
        UnsupportedModel: it is not such a sum, or its prior depends on the number of rows.
        NonFinite: a label points beside what it indexes.
    """
    for density in (first, second):
        if density is not None:
            require_entries(density)
    because: Exception | None = None
    try:
        rows = rows_of(first)
        some = both = _some(rows)
        if second is not None:
            both = _joined(some, _some(rows_of(second)), rows.carried)
        why = "a row has another likelihood alone than among the others"
        if add_up(both, u):
            if _same_prior(both, u):
                return some
            why = "with one row the latent sites have another prior than with several"
    except (UnsupportedModel, TypeError, ValueError) as error:
        why, because = str(error), error
    raise UnsupportedModel(
        "The log likelihood of this model is not the sum over its rows, so it is not the sum over "
        f"chunks of rows: {why}",
        causes=[
            "the model standardises its data, or computes with their mean or number",
            "an outcome depends on other outcomes (a time series, a Gaussian process)",
            "a scale or a prior that depends on the number of rows of the chunk",
        ],
        remedy="prepare the data outside of the model, or fit all of them at once by laplace.",
    ) from because


def _some(rows: Rows) -> ModelDensity:
    return _first_rows(rows, min(rows.number, CHECKED)).on_one_device()


@partial(jit_quickly, static_argnums=1)
def _first_rows(rows: Rows, number: int) -> ModelDensity:
    return rows.take(jnp.arange(number))


@partial(jit_quickly, static_argnums=2)
def _joined(one: ModelDensity, other: ModelDensity, carried: tuple[bool, ...]) -> ModelDensity:
    """Rows of two chunks as one; what is not by row is of the first."""
    leaves, structure = jax.tree.flatten(one)
    pairs = zip(leaves, jax.tree.leaves(other), carried, strict=True)
    return jax.tree.unflatten(structure, [jnp.concatenate(x[:2]) if x[2] else x[0] for x in pairs])


def _same_prior(density: ModelDensity, u: Array) -> bool:
    """Whether one row has the log prior that several have."""
    one, several = (
        np.asarray(_log_prior(x, u)) for x in (_first_rows(rows_of(density), 1), density)
    )
    return bool(abs(one - several) <= same_to(several))


@jit_quickly
def _log_prior(density: ModelDensity, u: Array) -> Array:
    return density.terms(u).log_prior


def same_to(number: Float[Numbers, "..."]) -> Float[Numbers, "..."]:
    """How far two sums that should be one number may be apart: the root of the rounding unit."""
    return np.sqrt(jnp.finfo(number.dtype).eps) * (1 + abs(number))


def changed(how: str) -> LaplaceError:
    """The error for chunks that are not the same in each pass."""
    return LaplaceError(
        f"The chunks change between passes: {how}.",
        causes=[
            "data that grow while they are read",
            "random augmentation, or a random choice of rows",
        ],
        remedy="fix the data, and the seed of what is random in them, for the whole fit.",
    )


def require_same_prior(terms: Terms, here: Terms) -> None:
    """Refuse a chunk whose latent sites have another prior, or other values at the same coordinates.

    Args:
        terms: at a point, with the prior of the first chunk.
        here: at the same point, with that of another.

    Raises:
        UnsupportedModel: they differ.
    """
    values = zip(jax.tree.leaves(terms.values), jax.tree.leaves(here.values), strict=True)
    same = all((abs(one - other) <= same_to(one)).all() for one, other in values)
    if not same or not abs(here.log_prior - terms.log_prior) <= same_to(terms.log_prior):
        raise UnsupportedModel(
            "The prior depends on the data of the chunk: the log prior is "
            f"{float(here.log_prior):.10g} with one chunk and {float(terms.log_prior):.10g} with another"
            f"{'' if same else ', and the support of a latent site differs'}.",
            causes=["a prior scaled by the features or their number (a g-prior, a prior by n)"],
            remedy="compute what the prior needs from all data first, and pass it as a keyword argument.",
        )
