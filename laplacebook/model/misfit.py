"""Data and parameters that repeat each other: a column of shape (N, 1) beside a vector of shape (N,).

Their N^2 pairs have a log density too, in which each datum counts N times.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr
from numpyro.distributions import Distribution, MaskedDistribution

from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.jaxprs import ELEMENTWISE, Atom, Constant, Equation, all_equations_of
from laplacebook.model.distributions import unwrapped, wrapped

Shape = tuple[int, ...]


def refuse_crossed(site: dict) -> None:
    """Refuse an observed site whose data and distribution repeat each other.

    One mean may serve for all data, one number, of shape (), for all means; what has several numbers
    is repeated only where plates declare all axes, and an array of one number nowhere. A mask and a
    scale count as the distribution does. What is one event is not repeated.

    Args:
        site: an observed site of NumPyro's trace of a model.

    Raises:
        UnsupportedModel: the shapes do not fit together, or fit only crosswise.
    """
    fn, shape = site["fn"], jnp.shape(site["value"])
    base = unwrapped(fn)
    cut = max(len(shape) - base.event_dim, 0)
    # A plate counts axes of the batch, to which the events of to_event do not belong.
    inner = fn.event_dim - base.event_dim
    plates = {frame.dim - inner: frame.size for frame in site["cond_indep_stack"]}
    if shape[cut:] != base.event_shape:
        raise _misfit(
            site["name"], shape, "distribution", base.batch_shape + base.event_shape, True
        )
    if any(_size(shape[:cut], i) not in (1, size) for i, size in plates.items()):
        sizes = tuple(plates.get(i, 1) for i in range(min(plates), 0))
        raise _misfit(site["name"], shape, "plates", sizes + base.event_shape, True)
    together: Shape = ()
    for what, own in {"distribution": base.batch_shape, **_beside(site, base)}.items():
        event = base.event_shape if what == "distribution" else ()
        if not _fit(together, own):
            raise _misfit(site["name"], shape, what, own + event, apart=True)
        together = np.broadcast_shapes(together, own)
        apart = not _fit(shape[:cut], together)
        if apart or _repeat(shape[:cut], together, plates, shape):
            raise _misfit(site["name"], shape, what, own + event, apart)


def _beside(site: dict, base: Distribution) -> dict[str, Shape]:
    """The shapes of the masks and of the scale of a site, along the axes of one datum."""
    found: dict[str, Shape] = {}
    for layer in wrapped(site["fn"]):
        if isinstance(layer, MaskedDistribution):
            events = (1,) * (layer.event_dim - base.event_dim)
            own = jnp.shape(layer._mask) + events
            found["mask"] = np.broadcast_shapes(found.get("mask", ()), own)
    if site["scale"] is not None:
        found["scale"] = jnp.shape(site["scale"]) + (1,) * (site["fn"].event_dim - base.event_dim)
    return found


def _fit(one: Shape, other: Shape) -> bool:
    """Whether shapes broadcast."""
    return all(a == b or 1 in (a, b) for a, b in zip(one[::-1], other[::-1], strict=False))


def _repeat(data: Shape, own: Shape, plates: dict[int, int], shape: Shape) -> bool:
    """Whether a distribution repeats an array of data; if of several numbers, along an axis of no plate."""
    axes = range(min(-len(data), -len(own), *plates, -1), 0)
    sizes = {i: (_size(data, i), _size(own, i)) for i in axes}
    repeated = any(d < o for d, o in sizes.values())
    idle = any(max(sizes[i]) < size for i, size in plates.items())
    if max(shape, default=1) == 1:
        return shape != () and (repeated or idle)
    return (repeated or idle) and any(max(s) > 1 and i not in plates for i, s in sizes.items())


def _size(shape: Shape, axis: int) -> int:
    return shape[axis] if -axis <= len(shape) else 1


def _misfit(name: str, data: Shape, what: str, own: Shape, apart: bool) -> UnsupportedModel:
    how = "do not fit together" if apart else "repeat each other: each datum would count many times"
    return UnsupportedModel(
        f"The data of site '{name}', of shape {data}, and its {what}, of shape {own}, {how}.",
        causes=[
            "a column of shape (N, 1) where a vector of shape (N,) is meant: y[:, None], "
            "table[['y']].to_numpy(), X @ w with w of shape (D, 1)",
            "parameters of one distribution, its mask or its scale, of which one is such a column",
            "features and outcomes with different numbers of rows, or a plate of another size",
        ],
        remedy="flatten the column (np.ravel(y), y.reshape(-1), (X @ w)[:, 0]), or give each axis a "
        "numpyro.plate.",
    )


_SHAPES = {"broadcast_in_dim", "reshape", "transpose", "expand_dims", "squeeze"}


def refuse_crossed_factors(program: ClosedJaxpr, names: Sequence[str]) -> None:
    """Refuse a factor with the pairs of a column, of shape (N, 1), and of a vector, of shape (N,).

    Whether it has them still, or is their sum. A column that the model itself makes of a vector,
    ``x[:, None]``, is meant; and so are pairs that enter a product of matrices or a sum along one axis.

    Args:
        program: of a model.
        names: of the factors, whose values are its first results.

    Raises:
        UnsupportedModel: there are such pairs in a factor.
    """
    if not names:
        return
    equations, results = all_equations_of(program)
    crossed = _crossings(equations)
    for name, result in zip(names, results, strict=False):
        found = crossed.get(_key(result))
        if found is not None:
            raise UnsupportedModel(
                f"The factor '{name}' computes with the pairs of a column of shape {(found, 1)} and of "
                f"a vector of shape {(found,)}: each datum would count many times.",
                causes=[
                    "a column of shape (N, 1) where a vector of shape (N,) is meant: y[:, None], "
                    "table[['y']].to_numpy(), X @ w with w of shape (D, 1)",
                ],
                remedy="flatten the column (np.ravel(y), y.reshape(-1), (X @ w)[:, 0]); where all "
                "pairs are meant, pass a vector x and write x[:, None] in the model.",
            )


def refuse_crossed_outcome(program: ClosedJaxpr) -> None:
    """Refuse an outcome of new arguments that has such pairs.

    Args:
        program: whose result is computed from the mean and the variance of the outcome.

    Raises:
        UnsupportedModel: it has.
    """
    equations, results = all_equations_of(program)
    crossed = _crossings(equations)
    found = crossed.get(_key(results[0]))
    if found is not None:
        raise _pairs(f"a column of shape {(found, 1)} and of a vector of shape {(found,)}", found)


def refuse_repeated_column(site: dict) -> None:
    """Refuse an outcome of new arguments whose column a plate of the rows repeats along another axis.

    Args:
        site: of NumPyro's trace, with more axes than the data of the fit.

    Raises:
        UnsupportedModel: it does.
    """
    base = unwrapped(site["fn"])
    inner = site["fn"].event_dim - base.event_dim
    plates = {frame.dim - inner: frame.size for frame in site["cond_indep_stack"]}
    own = base.batch_shape
    repeated = [size for i, size in plates.items() if size > 1 and _size(own, i) == 1]
    loose = any(_size(own, i) > 1 and i not in plates for i in range(-len(own), 0))
    if repeated and loose:
        raise _pairs(f"a column of shape {own} and of a plate of size {repeated[0]}", repeated[0])


def _pairs(of: str, number: int) -> UnsupportedModel:
    return UnsupportedModel(
        f"With the new arguments the outcome has the pairs of {of}: {number} predictions for each row.",
        causes=["an argument of shape (N, 1) where a vector of shape (N,) was fitted"],
        remedy="flatten the column: np.ravel(x), or table['x'] for table[['x']].",
    )


def _key(atom: Atom) -> int | tuple[str, int]:
    return ("held", id(atom.value)) if isinstance(atom, Constant) else atom


def _crossings(equations: Sequence[Equation]) -> dict[Any, int]:
    """The variables that are the N^2 pairs of a column and a vector, or computed from their sum: with N."""
    columns: set = set()
    rows: set = set()
    plain: set = set()  # made of fewer axes, or of others
    pairs: dict[Any, int] = {}
    sums: dict[Any, int] = {}
    for source, inputs, outputs in equations:
        out, name = outputs[0], source.primitive.name
        shape = source.outvars[0].aval.shape
        known = [_key(x) for x in inputs]
        shapes = {x: v.aval.shape for x, v in zip(known, source.invars, strict=True)}
        columns |= {x for x in known if _is_column(shapes[x]) and x not in plain}
        summed = [sums[x] for x in known if x in sums]
        if summed:
            sums |= dict.fromkeys(outputs, summed[0])
        elif name == "reduce_sum" and known and known[0] in pairs:
            if shape == ():
                sums[out] = pairs[known[0]]
        elif name in _SHAPES and known:
            before = shapes[known[0]]
            if len(before) == 2 and before == shape and known[0] in pairs:
                pairs[out] = pairs[known[0]]
            elif _is_column(before) and known[0] in columns and shape == (before[0],) * 2:
                columns.add(out)
            elif _is_row(before, shape, known[0] in rows) and _along(source):
                rows.add(out)
            else:
                plain.add(out)
        elif name in ELEMENTWISE:
            several = [x for x in known if shapes[x] != ()]
            if any(x in pairs for x in several):
                pairs[out] = next(pairs[x] for x in several if x in pairs)
            elif len(shape) == 2 and shape[0] == shape[1] > 1 and {*several} & columns:
                if {*several} & rows:
                    pairs[out] = shape[0]
                elif all(x in columns for x in several):
                    columns.add(out)
            elif several and all(x in rows for x in several):
                rows.add(out)
            elif several and all(x in plain for x in several):
                plain.add(out)
    return pairs | sums


def _is_row(before: Shape, shape: Shape, was: bool) -> bool:
    """Whether a vector becomes a row, or a row is repeated."""
    return len(shape) == 2 and (before == shape[1:] or (was and before == (1, *shape[1:])))


def _is_column(shape: Shape) -> bool:
    return len(shape) == 2 and shape[0] > 1 == shape[1]


def _along(source: object) -> bool:
    """Whether a vector becomes a row of a matrix, or all of its rows."""
    return source.params.get("broadcast_dimensions", (1,))[-1:] == (1,)  # type: ignore[attr-defined]
