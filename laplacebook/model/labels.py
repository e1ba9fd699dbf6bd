"""Labels in the data that point beside what they index.

JAX raises no error of them. Where an index is computed from the data alone, its values can be looked
at: the equations that compute it are found once, in the program of the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import ClosedJaxpr
from jaxtyping import Array, Bool

from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.jaxprs import (
    Atom,
    Constant,
    Equation,
    all_equations_of,
    evaluate,
    held_and_carried,
    needed,
)
from laplacebook.base.namespace import Numbers
from laplacebook.base.pytrees import is_traced, on_host
from laplacebook.model.indexed import Indexed, indexed

_LATENT = "laplacebook: a latent site"
# What these return is no label, in range by itself, or costs more than a look at labels may.
_UNSEEN = {"sort", "top_k", "argmax", "argmin", "while", "scan", "cond", "dot_general", "cholesky"}
_UNSEEN |= {"lu", "lu_pivots_to_permutation", "eigh", "eig", "svd", "qr", "householder_product"}
_UNSEEN |= {"triangular_solve", "custom_linear_solve", "pure_callback", "io_callback"}

Origin = (
    frozenset[int] | None
)  # the arrays of data that a variable is computed from; None if from more


class Index(NamedTuple):
    """Values that index something, and how many entries it has.

    Attributes:
        values: the variable that has them.
        size: of the axis that is indexed; None for what becomes an index by rounding.
        last: the largest that fits, one for each column of the values; None if a larger one may be.
        beside: as :class:`~laplacebook.model.indexed.Indexed` has it.
        is_count: the same.
        origin: the arrays of data that they are computed from.
    """

    values: int
    size: int | None
    last: tuple[int, ...] | None
    beside: tuple[int, int] | None
    is_count: bool
    origin: frozenset[int]

    def fits(self, values: Numbers) -> Bool[Numbers, "*B"]:
        """Which values are entries."""
        if self.is_count:
            return (values >= 0) & (values.sum() == self.size)
        if self.size is None:
            return jnp.isfinite(values)
        below, above = self.beside or (0, 0)
        fits = values >= -below
        return fits if self.last is None else fits & (values <= _columns_of(self.last) + above)


def _columns_of(last: tuple[int, ...]) -> Any:
    return np.array(last) if len(last) > 1 else last[0]


class _Loop(NamedTuple):
    """A scan or the branches of a condition in which there are indices.

    Attributes:
        equation: of JAX.
        inside: the program, or one of several.
        operands: for each variable that it begins with the operand, None where it is not known.
        carried: for each carry of a scan the variable that is carried on, None where it is not known.
    """

    equation: Equation
    inside: "Labels"
    operands: tuple[Atom | None, ...]
    carried: tuple[Atom | None, ...]

    def values(self, read: Any) -> list[Array]:
        """Those of the indices; of a scan at all its steps."""
        parameters = self.equation.source.params
        given = [None if x is None else read(x) for x in self.operands]
        if self.equation.source.primitive.name != "scan":
            return self.inside.values(dict(enumerate(given)))
        begin, number = held_and_carried(parameters)
        end = begin + number

        def step(carry: list, rows: list) -> tuple[list, list]:
            held = dict(enumerate([*given[:begin], *carry, *rows]))
            found, then = self.inside.look(held, self.carried)
            return then, found

        loop = {name: parameters[name] for name in ("length", "reverse")}
        _, found = jax.lax.scan(step, given[begin:end], given[end:], **loop)
        return found


@dataclass(frozen=True, eq=False)
class Labels:
    """The indices of a program that data alone decide.

    Attributes:
        equations: those that compute them, in order.
        indices: in this program.
        loops: in which there are others.
    """

    equations: tuple[Equation, ...] = ()
    indices: tuple[Index, ...] = ()
    loops: tuple[_Loop, ...] = ()

    @classmethod
    def of(cls, program: ClosedJaxpr) -> "Labels":
        """Those of a program whose arguments are the arrays of data."""
        equations, _ = all_equations_of(program)
        origins = {i: frozenset({i}) for i in range(len(program.jaxpr.invars))}
        return _look(equations, dict(origins))

    def all_indices(self) -> list[Index]:
        """Those of this program and those within its loops, in the order of :meth:`values`."""
        return [*self.indices, *(i for loop in self.loops for i in loop.inside.all_indices())]

    def values(self, data: Mapping[int, Any]) -> list[Numbers]:
        """What the indices are for some data, by number of the array."""
        return self.look(data, ())[0]

    def look(self, data: Mapping[int, Any], wanted: Sequence[Atom | None]) -> tuple[list, list]:
        """The same, and other variables of the program; None for None."""
        known = dict(data)

        def read(atom: Atom) -> Any:
            return atom.value if isinstance(atom, Constant) else known[atom]

        for equation in self.equations:
            found = evaluate(equation.source, [read(x) for x in equation.inputs])
            known |= zip(equation.outputs, found, strict=True)
        values = [known[index.values] for index in self.indices]
        values += [x for loop in self.loops for x in loop.values(read)]
        return values, [None if x is None else read(x) for x in wanted]

    def fit(self, data: Sequence[Any]) -> Bool[Array, ""]:
        """Whether all indices are entries of what they index."""
        pairs = zip(self.all_indices(), self.values(dict(enumerate(data))), strict=True)
        return jnp.array([jnp.all(index.fits(values)) for index, values in pairs]).all()

    def first_beside(self, data: Sequence[Any]) -> tuple[Index, Any, list[int], bool] | None:
        """The first index that is none: its value, where it stands, and whether an array of data has it there.

        Of counts the value is their sum.
        """
        for index, values in zip(
            self.all_indices(), self.values(dict(enumerate(data))), strict=True
        ):
            wrong = ~np.asarray(index.fits(on_host(values)))
            if wrong.any():
                place = np.argwhere(wrong)[0].tolist()
                if index.is_count:
                    return index, int(np.sum(np.asarray(values))), [], True
                value = np.asarray(values)[tuple(place)]
                (one, *others) = sorted(index.origin)
                same = not others and np.shape(data[one]) == np.shape(values)
                same = same and np.asarray(data[one])[tuple(place)] == value
                return index, value, place, bool(same or np.isnan(value))
        return None


def marked(value: Array) -> Array:
    """A value of a latent site, in a program in which labels are looked for."""
    return checkpoint_name(value, _LATENT)


def _look(equations: list[Equation], origins: dict[int, Origin]) -> Labels:
    """The indices among equations, given what the variables that these begin with are computed from."""

    def origin(atom: Atom) -> Origin:
        if isinstance(atom, Constant):
            return None if is_traced(atom.value) else frozenset()
        return origins[atom]

    made: dict[int, Equation] = {}
    indices: dict[tuple, Index] = {}
    loops: list[_Loop] = []
    for equation in equations:
        of_inputs = [origin(x) for x in equation.inputs]
        loops += _inside(equation, of_inputs)
        for found in indexed(equation, made):
            atom, come_from = found.values, origin(found.values)
            if isinstance(atom, Constant):
                _require_held(atom.value, found)
            elif come_from:
                indices[found] = Index(atom, *found[1:], come_from)
        origins |= dict.fromkeys(equation.outputs, _together(equation, of_inputs))
        made |= dict.fromkeys(equation.outputs, equation)
    operands = [x for loop in loops for x in loop.operands if x is not None]
    kept = needed(equations, [*(index.values for index in indices.values()), *operands])
    for equation in filter(_rounds, kept):
        (rounded,) = equation.inputs
        come_from = origin(rounded)
        if come_from and isinstance(rounded, int):
            indices[rounded, None] = Index(rounded, None, None, None, False, come_from)
    in_order = sorted(indices.values(), key=lambda index: index.size is not None)
    return Labels(tuple(kept), tuple(in_order), tuple(loops))


def _require_held(values: Any, found: Indexed) -> None:
    """Refuse labels that the model holds itself, of which a negative one may count from the end.

    Raises:
        UnsupportedModel: one is beside the entries.
    """
    _, size, last, beside, is_count = found
    if is_count and not is_traced(values) and np.sum(values) != size:
        raise UnsupportedModel(
            f"The model repeats by counts that it holds itself, which add up to {np.sum(values)}, and it makes "
            f"{size} entries of them.",
            causes=["jnp.repeat(..., total_repeat_length=N), of which JAX fills up the rest"],
            remedy="let the counts add up to the number of entries.",
        )
    if last is None or is_traced(values) or not getattr(values, "is_fully_addressable", True):
        return
    seen, (below, above) = np.asarray(values), beside or (size, 0)
    wrong = (seen < -below) | (seen > _columns_of(last) + above)
    if wrong.any():
        place = np.argwhere(wrong)[0].tolist()
        raise UnsupportedModel(
            f"The model indexes {size} entries by a number that it holds itself, "
            f"{seen[tuple(place)]}{f', first at {place}' if place else ''}: labels begin at 0 and end at {size - 1}.",
            causes=["labels 1, 2, ..., J in an array that the model reads beside its arguments"],
            remedy="number the groups from 0, and pass labels as an argument of the model.",
        )


def _together(equation: Equation, of_inputs: list[Origin]) -> Origin:
    source = equation.source
    latent = source.primitive.name == "name" and source.params["name"] == _LATENT
    known = [x for x in of_inputs if x is not None]
    if latent or source.primitive.name in _UNSEEN or len(known) < len(of_inputs):
        return None
    return frozenset().union(*known)


def _rounds(equation: Equation) -> bool:
    """Whether it makes whole numbers of others, which may be NaN."""
    if equation.source.primitive.name != "convert_element_type":
        return False
    (before,), (after,) = equation.source.invars, equation.source.outvars
    kinds = jnp.floating, jnp.integer
    return all(jnp.issubdtype(x.aval.dtype, k) for x, k in zip((before, after), kinds, strict=True))


def _inside(equation: Equation, of_inputs: list[Origin]) -> list[_Loop]:
    """The programs that a scan or a condition runs, if there are indices in them."""
    name, parameters = equation.source.primitive.name, equation.source.params
    if name == "cond":
        programs = [(p, list(equation.inputs[1:]), of_inputs[1:]) for p in parameters["branches"]]
    elif name == "scan":
        programs = [(parameters["jaxpr"], list(equation.inputs), list(of_inputs))]
    else:
        return []
    loops = []
    for program, operands, origins in programs:
        equations, results = all_equations_of(program)
        carried: list[Atom | None] = []
        if name == "scan":
            carried = _carried(equations, results, origins, parameters)
        found = _look(equations, dict(enumerate(origins)))
        if not found.all_indices():
            continue
        on = needed(equations, [x for x in carried if x is not None])
        wanted = {id(x) for x in (*found.equations, *on)}
        found = Labels(tuple(e for e in equations if id(e) in wanted), found.indices, found.loops)
        known = [x if o is not None else None for x, o in zip(operands, origins, strict=True)]
        loops.append(_Loop(equation, found, tuple(known), tuple(carried)))
    return loops


def _carried(
    equations: list[Equation], results: list[Atom], origins: list[Origin], parameters: Any
) -> list[Atom | None]:
    """What a scan carries on from step to step of what data alone decide; ``origins`` then say so too."""
    begin, number = held_and_carried(parameters)
    while True:
        known: dict[int, Origin] = dict(enumerate(origins))
        _look(equations, known)
        then = [known[x] if isinstance(x, int) else frozenset() for x in results[:number]]
        before = list(origins)
        for i, come_from in enumerate(then, begin):
            now = origins[i]
            origins[i] = None if come_from is None or now is None else now | come_from
        if origins == before:
            break
    held = [origins[begin + i] is not None for i in range(number)]
    return [x if here else None for x, here in zip(results[:number], held, strict=True)]
