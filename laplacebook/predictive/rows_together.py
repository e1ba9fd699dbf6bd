"""Does a model compute with all of its rows at once, as to standardise them? Then new rows are not what they seem."""

from warnings import warn

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from laplacebook.base.errors import DoubtfulFit, UnsupportedModel
from laplacebook.base.jaxprs import all_equations_of
from laplacebook.base.pytrees import is_traced
from laplacebook.base.quick import is_eager, most_rows
from laplacebook.model.arguments import Call
from laplacebook.model.density import ModelDensity
from laplacebook.model.rows import add_up
from laplacebook.search.looks import middle

_OVER_ROWS = {
    *("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "argmax", "argmin", "sort"),
    *("cumsum", "cumprod", "cummax", "cummin", "dot_general"),
}
_KEPT = 128
_found: dict[object, bool] = {}


def warn_of_rows_together(density: ModelDensity, new: Call) -> None:
    """Warn where rows of the fit have another likelihood alone than among the others, and other rows are predicted.

    Args:
        density: of the fit.
        new: its model, with the arguments for which it predicts.

    Warns:
        DoubtfulFit: it computes with the mean of its rows, say, which of new rows is another one.
    """
    leaves = [*jax.tree.leaves(density), *jax.tree.leaves(new)]
    is_known = density.has_data and density.placement is None
    if not (is_known and is_eager()) or any(map(is_traced, leaves)):
        return
    if density.program not in _found:
        while len(_found) >= _KEPT:
            del _found[next(iter(_found))]
        _found[density.program] = _sums_data(density) and _are_together(density)
    if _found[density.program]:
        warn(
            f"{density.name} computes with all of its rows together: alone, one has another likelihood than among the "
            "others. With the rows that are given here it computes anew, so that it predicts others than were meant if "
            "it takes their mean or their spread, to standardise them, say: do that before, with the numbers of the "
            "fit's rows.",
            DoubtfulFit,
            stacklevel=3,
        )


def _sums_data(density: ModelDensity) -> bool:
    """Whether the log joint sums, or sorts, over rows something that depends on no latent site."""
    u = jax.ShapeDtypeStruct((density.dimension,), jnp.result_type(float))
    program = jax.make_jaxpr(lambda density, u: density.loss(u)[0])(density, u)
    number = most_rows(density)
    equations, _ = all_equations_of(program)
    moving = {len(program.jaxpr.invars) - 1}
    for equation in equations:
        if moving.intersection(x for x in equation.inputs if isinstance(x, int)):
            moving.update(equation.outputs)
        elif equation.source.primitive.name in _OVER_ROWS and any(
            number in np.shape(x.val) if isinstance(x, Literal) else number in x.aval.shape
            for x in equation.source.invars
        ):
            return True
    return False


def _are_together(density: ModelDensity) -> bool:
    try:
        return not add_up(density, middle(density))
    except UnsupportedModel:
        return False  # of a series or a process there are no rows to be taken one by one
