"""What an equation of a program indexes by, and which values are entries of what it indexes.

JAX takes the last entry for a label that is too large, the last of its branches, counts a negative one
from the end, and drops what it would add there, or has a row of zeros for it.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.lax import GatherScatterMode

from laplacebook.base.jaxprs import Atom, Constant, Equation

_SHAPED = {"broadcast_in_dim", "reshape", "squeeze", "expand_dims", "copy", "transpose"}
_PICKED = _SHAPED | {"slice", "gather", "dynamic_slice", "convert_element_type", "name"}


class Indexed(NamedTuple):
    """Values that an equation indexes by, as they were before JAX counts from the end.

    Attributes:
        values: the variable that has them, or they themselves.
        size: of the axis that is indexed.
        last: the largest that fits, one for each column of the values; None if a larger one may be.
        beside: how far below and above the entries one may be, where JAX takes zeros for it; None
            where it takes another entry.
        is_count: whether they say how often each is taken, so that their sum is the size.
    """

    values: Atom
    size: int
    last: tuple[int, ...] | None
    beside: tuple[int, int] | None = None
    is_count: bool = False


def indexed(equation: Equation, made: dict[int, Equation]) -> list[Indexed]:
    """What an equation indexes by.

    Args:
        equation: of a program.
        made: by variable, the equation that computes it.
    """
    name, parameters = equation.source.primitive.name, equation.source.params
    shapes = [x.aval.shape for x in equation.source.invars]
    if name in ("cond", "select_n"):
        return _chosen(equation, made)
    if name in ("convert_element_type", "dot_general"):
        return [coded for x in equation.inputs for coded in _coded(x, equation, made)]
    if name in ("dynamic_slice", "dynamic_update_slice"):
        given = 1 if name == "dynamic_slice" else 2
        window = parameters["slice_sizes"] if given == 1 else shapes[1]
        parts = list(equation.inputs[given : given + len(window)])
        axes, mode, own = range(len(window)), GatherScatterMode.PROMISE_IN_BOUNDS, False
    elif name == "gather" or name.startswith("scatter"):
        mode, numbers = parameters["mode"], parameters["dimension_numbers"]
        gather = name == "gather"
        axes = numbers.start_index_map if gather else numbers.scatter_dims_to_operand_dims
        window = parameters["slice_sizes"] if gather else _window(numbers, *shapes[::2])
        parts = _columns(equation.inputs[1], len(axes), made)
        own = _in_own_words(equation) if gather else mode == GatherScatterMode.CLIP
    else:
        return []
    sizes, last = [shapes[0][i] for i in axes], [shapes[0][i] - window[i] for i in axes]
    if name == "scatter-add" and (counts := _counts(parts[0], made)) is not None:
        return [Indexed(counts, sizes[0], None, is_count=True)]
    if len(parts) < len(last):  # several columns that were not put together here
        return [] if own else [Indexed(parts[0], min(sizes), tuple(last))]
    found = []
    for part, size, end in zip(parts, sizes, last, strict=True):
        before = _before_wrapping(part, made)
        # What is not counted from the end is dropped by name, as segment_sum does.
        drops = name.startswith("scatter") and mode == GatherScatterMode.FILL_OR_DROP
        if before is not None:
            found.append(Indexed(before, size, None if own else (end,)))
        elif not own:
            atom = _peeled(part, made)
            beside = (1, 1) if isinstance(atom, int) and not _is_given(atom, made) else (0, 0)
            found.append(Indexed(atom, size, (end,), beside if drops else None))
    return found


def _counts(atom: Atom, made: dict[int, Equation]) -> Atom | None:
    """How often each is taken, where ``jnp.repeat`` marks the first of each: at the sums of those before it."""
    sums = _made_by("cumsum", _before_wrapping(atom, made) or atom, made)
    shifted = _made_by("scatter", sums.inputs[0], made) if sums else None
    rolled = _made_by("concatenate", shifted.inputs[0], made) if shifted else None
    slices = [_made_by("slice", x, made) for x in rolled.inputs[:2]] if rolled else []
    match slices:
        case [Equation() as last, Equation() as others] if _is_among(last.inputs[0], others):
            return last.inputs[0]
    return None


def _chosen(equation: Equation, made: dict[int, Equation]) -> list[Indexed]:
    """By which number a branch is chosen: ``lax.switch`` clamps it."""
    clamped = _made_by("clamp", _peeled(equation.inputs[0], made), made)
    if clamped is None:
        return []
    branches = equation.source.params.get("branches", equation.inputs[1:])
    low, number, high = clamped.inputs
    ends = [np.ravel(x.value) for x in (low, high) if isinstance(x, Constant)]
    if [x.tolist() for x in ends] != [[0], [len(branches) - 1]]:
        return []
    return [Indexed(_peeled(number, made), len(branches), (len(branches) - 1,))]


def _coded(truths: Atom, equation: Equation, made: dict[int, Equation]) -> list[Indexed]:
    """Of which labels an equation takes rows of zeros and ones, as ``jax.nn.one_hot`` makes them.

    A label that the model computes may be one beside: so are the rows of a reference category.
    """
    (after,), compared = equation.source.outvars, _made_by("eq", truths, made)
    if compared is None or not jnp.issubdtype(after.aval.dtype, jnp.floating):
        return []
    shapes = [x.aval.shape for x in compared.source.invars]
    for i, other in ((0, 1), (1, 0)):
        counted = _made_by("iota", _peeled(compared.inputs[other], made), made)
        before = [x.source.invars[0].aval.shape for x in _shaped(compared.inputs[i], made)]
        if counted is None or () in (shapes[i], *before):  # one number, such as a time, is no label
            continue
        size = counted.source.params["shape"][counted.source.params["dimension"]]
        atom = _peeled(compared.inputs[i], made)
        beside = (1, 0) if isinstance(atom, Constant) else (1, 1)
        if isinstance(atom, int) and _is_given(atom, made):
            beside = (0, 0)
        return [Indexed(atom, size, (size - 1,), beside)]
    return []


def _is_given(atom: int, made: dict[int, Equation]) -> bool:
    """Whether the values are among those that the program was given, picked and not computed."""
    while atom in made and made[atom].source.primitive.name in _PICKED:
        (before, *_) = made[atom].inputs
        if not isinstance(before, int):
            return False
        atom = before
    return atom not in made


def _in_own_words(equation: Equation) -> bool:
    """Whether a model says what is to be taken for a label beside the entries: "clip", or a number to fill in."""
    parameters, dtype = equation.source.params, equation.source.invars[0].aval.dtype
    if parameters["mode"] == GatherScatterMode.CLIP:
        # Of a slice that vmap makes many the axes are kept, and JAX writes "clip" for it.
        return bool(parameters["dimension_numbers"].collapsed_slice_dims)
    if parameters["mode"] != GatherScatterMode.FILL_OR_DROP:
        return False
    fill = parameters["fill_value"]
    if fill is None or not np.all(np.isfinite(fill)):
        return False
    limits = np.iinfo(dtype) if np.issubdtype(dtype, np.integer) else None
    return limits is None or fill not in (limits.min, limits.max)  # those JAX fills in by itself


def _window(numbers: Any, operand: tuple, updates: tuple) -> list[int]:
    """How much of each axis a scatter writes at a time."""
    single = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    sizes = iter([updates[i] for i in numbers.update_window_dims])
    return [1 if axis in single else next(sizes) for axis in range(len(operand))]


def _columns(atom: Atom, number: int, made: dict[int, Equation]) -> list[Atom]:
    """The values along each axis, where they were put side by side; or all of them together."""
    if number == 1:
        return [atom]
    beside = _made_by("concatenate", atom, made)
    return list(beside.inputs) if beside and len(beside.inputs) == number else [atom]


def _shaped(atom: Atom, made: dict[int, Equation]) -> Iterator[Equation]:
    """The last equations before a variable, which change its axes, or its type from one of whole numbers to another."""
    while isinstance(atom, int) and atom in made:
        source = made[atom].source
        integers = all(jnp.issubdtype(x.aval.dtype, jnp.integer) for x in source.invars)
        same = source.primitive.name == "convert_element_type" and integers
        if not same and source.primitive.name not in _SHAPED:
            break
        yield made[atom]
        atom = made[atom].inputs[0]


def _peeled(atom: Atom, made: dict[int, Equation]) -> Atom:
    """The variable before them."""
    for equation in _shaped(atom, made):
        atom = equation.inputs[0]
    return atom


def _before_wrapping(atom: Atom, made: dict[int, Equation]) -> Atom | None:
    """What JAX counts from the end where it is negative, ``where(x < 0, x + size, x)``: x, or None."""
    chosen = _made_by("select_n", _peeled(atom, made), made)
    if chosen is None or len(chosen.inputs) != 3:
        return None
    where, label, moved = chosen.inputs
    negative, added = _made_by("lt", where, made), _made_by("add", moved, made)
    # Of an array of NumPy that the model holds, NumPy has told which are negative.
    compared = isinstance(where, Constant) or (negative is not None and _is_among(label, negative))
    wraps = compared and added is not None and _is_among(label, added)
    return _peeled(label, made) if wraps else None


def _is_among(atom: Atom, equation: Equation) -> bool:
    """Whether it is an operand; two arrays are not compared by their numbers."""
    if isinstance(atom, int):
        return atom in [x for x in equation.inputs if isinstance(x, int)]
    held = [x.value for x in equation.inputs if isinstance(x, Constant)]
    return any(
        x is atom.value or np.ndim(x) == 0 == np.ndim(atom.value) and x == atom.value for x in held
    )


def _made_by(name: str, atom: Atom, made: dict[int, Equation]) -> Equation | None:
    equation = made.get(atom) if isinstance(atom, int) else None
    return equation if equation and equation.source.primitive.name == name else None
