"""Data in the precision that JAX works in, whatever they come in.

Narrow types compute narrowly, and silently: minus an unsigned 1 is a large number, and the logarithm
of a factorial of a 16-bit count has half the digits of a float64.
"""

from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import (
    CategoricalLogits,
    CategoricalProbs,
    Distribution,
    MultivariateNormal,
    WishartCholesky,
)
from numpyro.primitives import Messenger

from laplacebook.base.errors import UnsupportedModel
from laplacebook.model.distributions import unwrapped
from laplacebook.model.edges import right_at_edges
from laplacebook.model.tails import right_in_tails


def widened(array: Any) -> Any:
    """The same numbers: whole ones as signed integers, real ones as floats, each as wide as JAX has them.

    Args:
        array: any array; truth values and random keys stay as they are.
    """
    wide = wider_type(array)
    return array if wide is None else jnp.asarray(array, wide)


def wider_type(leaf: Any) -> Any:
    """The data type in which to compute with an argument or a parameter; None if it is its own."""
    if isinstance(leaf, bool | int | float | complex) or not hasattr(leaf, "dtype"):
        return None
    for kind, like in ((jnp.integer, int), (jnp.floating, float), (jnp.complexfloating, complex)):
        if jnp.issubdtype(leaf.dtype, kind):
            wide = jnp.result_type(like)
            narrow = jnp.issubdtype(leaf.dtype, jnp.unsignedinteger) or (
                leaf.dtype.itemsize < wide.itemsize
            )
            return wide if narrow else None
    return None


class InWorkingPrecision(Messenger):
    """Around a run of a model: what its sites are given, whether as arguments or from elsewhere.

    Labels and truth values become whole numbers, as NumPyro reads them; a label with a fraction
    becomes -1, which no distribution of labels supports.

    It is the outermost handler of a run, also of a model whose density has a fit of another in it.
    """

    def process_message(self, message: dict) -> None:
        """Widen the distribution and the value of a site, and compute its tails by what keeps digits.

        Handlers further out do not see it.
        """
        message["stop"] = True
        if message["type"] != "sample":
            return
        fn = message["fn"]
        if any(wider_type(leaf) is not None for leaf in jax.tree.leaves(fn)):
            fn = jax.tree.map(_widened_law, fn, is_leaf=_has_matrices)
        message["fn"] = right_in_tails(fn)
        if message["is_observed"] and message["value"] is not None:
            if jnp.iscomplexobj(message["value"]) and fn.support.is_discrete:
                raise UnsupportedModel(
                    f"The data of site '{message['name']}' are complex numbers, and counts are not.",
                    remedy="pass their real part, if that is what was counted.",
                )
            message["value"] = _read(fn, message["value"])
            message["fn"] = right_at_edges(message["fn"])


def _has_matrices(part: Any) -> bool:
    return isinstance(part, MultivariateNormal | WishartCholesky)


def _widened_law(part: Any) -> Any:
    if not _has_matrices(part):
        return widened(part)
    new = jax.tree.map(widened, part)
    for name, value in part.get_args().items():  # JAX passes the factor on, and not its matrix
        vars(new).setdefault(name, widened(value))
    return new


def _read(fn: Distribution, value: Any) -> Any:
    dtype = jnp.result_type(value)
    if jnp.issubdtype(dtype, jnp.bool_):
        return jnp.asarray(value, int)
    if jnp.issubdtype(dtype, jnp.floating) and isinstance(
        unwrapped(fn), CategoricalLogits | CategoricalProbs
    ):
        value = jnp.asarray(value)
        return jnp.where(value == jnp.floor(value), value, -1).astype(int)
    return widened(value)
