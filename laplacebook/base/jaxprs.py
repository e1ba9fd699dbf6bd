"""The program of a function, as JAX traces it: its equations, what depends on what, how large it is.

After JAX's guide "Writing custom Jaxpr interpreters".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from math import prod
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Literal
from jax.interpreters import partial_eval
from jaxtyping import Array

_CALLS = {"pjit", "jit", "closed_call", "checkpoint"}  # of a program within a program
# With rules for their derivatives.
_WITH_RULES = {"custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "remat", "remat2"}
_LINEAR_ALGEBRA = {
    "cholesky",
    "triangular_solve",
    "lu",
    "qr",
    "geqrf",
    "eigh",
    "eig",
    "svd",
    "schur",
}
# Operations that compute each number from those at its place.
ELEMENTWISE = frozenset(
    name
    for names in (
        "add sub mul div max min pow integer_pow rem atan2 add_any neg abs sign square sqrt rsqrt cbrt",
        "exp exp2 expm1 log log1p logistic tanh sin cos erf erfc erf_inv floor round clamp",
        "lgamma digamma igamma igammac regularized_incomplete_beta bessel_i0e bessel_i1e",
        "eq ne lt le gt ge and or xor not is_finite select_n copy name convert_element_type stop_gradient",
    )
    for name in names.split()
)
_PROGRAM = ("jaxpr", "call_jaxpr", "fun_jaxpr")  # what an equation calls it


class Constant(NamedTuple):
    """A value that a program holds."""

    value: Any


Atom = int | Constant  # a variable by its number, or a value


class Equation(NamedTuple):
    """The numbers of the variables that an equation computes, and from what.

    Attributes:
        source: the equation of JAX.
        inputs: its operands.
        outputs: the variables.
    """

    source: Any
    inputs: tuple[Atom, ...]
    outputs: tuple[int, ...]


def equations_of(program: ClosedJaxpr) -> tuple[list[Equation], Atom]:
    """The equations of a program and of the programs that it calls, as far as its result needs them.

    Args:
        program: what ``jax.make_jaxpr`` returns of a function that returns one array.

    Returns:
        The equations, in order; the arguments are the variables 0, 1, ... And the result.
    """
    equations: list[Equation] = []
    numbers = count()
    inputs = [next(numbers) for _ in program.jaxpr.invars]
    (output,) = _inline(program.jaxpr, inputs, program.consts, equations, numbers, _CALLS)
    return needed(equations, [output]), output


def all_equations_of(program: ClosedJaxpr) -> tuple[list[Equation], list[Atom]]:
    """All equations of a program and of the programs that it calls, whatever their derivatives.

    Args:
        program: what ``jax.make_jaxpr`` returns.

    Returns:
        The equations, in order; the arguments are the variables 0, 1, ... And the results.
    """
    equations: list[Equation] = []
    numbers = count()
    inputs = [next(numbers) for _ in program.jaxpr.invars]
    calls = _CALLS | _WITH_RULES
    found = _inline(program.jaxpr, inputs, program.consts, equations, numbers, calls)
    return equations, found


def depends_on(f: Callable[..., Any], *args: Any) -> Any:
    """Which of the arrays that f returns depend on its arguments, by the program that computes them.

    Args:
        f: a function of pytrees of arrays, which returns one.
        args: the arguments.

    Returns:
        What f returns, with a truth value for each array.
    """
    return jax.tree.map(bool, _sources(f, *args), is_leaf=_is_set)


def sources(f: Callable[[dict[str, Array]], Any], arrays: Mapping[str, Any]) -> Any:
    """On which of its arrays each array that f returns depends, by the program that computes them.

    Args:
        f: a function of a dict of arrays, which returns a pytree of arrays.
        arrays: the dict, or its shapes and types.

    Returns:
        What f returns, with a frozenset of names for each array.
    """
    names = sorted(arrays)  # as JAX orders them
    found = _sources(f, dict(arrays))
    return jax.tree.map(lambda which: frozenset(names[i] for i in which), found, is_leaf=_is_set)


def _sources(f: Callable[..., Any], *args: Any) -> Any:
    """What f returns, with the numbers of the arrays among its arguments on which each array depends."""
    program, shapes = jax.make_jaxpr(f, return_shape=True)(*args)
    # A print returns nothing, and would count as what every result needs.
    silent = program.jaxpr.replace(eqns=[e for e in program.jaxpr.eqns if e.outvars])
    leaves, structure = jax.tree.flatten(shapes)
    found = []
    for i in range(len(leaves)):
        alone = [i == j for j in range(len(leaves))]
        _, needed = partial_eval.dce_jaxpr(silent, alone, False)
        found.append(frozenset(j for j, used in enumerate(needed) if used))
    return jax.tree.unflatten(structure, found)


def _is_set(part: Any) -> bool:
    return isinstance(part, frozenset)


def without_idle(program: ClosedJaxpr) -> ClosedJaxpr:
    """The same program without the equations that no output needs."""
    needed, _ = partial_eval.dce_jaxpr(program.jaxpr, [True] * len(program.out_avals), True)
    return ClosedJaxpr(needed, program.consts)


def array_sizes(program: Any) -> list[int]:
    """The sizes of all arrays that a program computes, those of the programs in it included."""
    return [prod(v.aval.shape) for equation in _every(program) for v in equation.outvars]


def linear_algebra(program: Any) -> Iterator[int]:
    """The arithmetic of each factorisation and solve in a program, about, those of the programs in it included."""
    for equation in _every(program):
        if equation.primitive.name in _LINEAR_ALGEBRA:
            order = max(variable.aval.shape[-1] for variable in equation.invars)
            yield order * max(prod(variable.aval.shape) for variable in equation.invars)


def primitives(program: ClosedJaxpr) -> set[str]:
    """The names of the operations of a program, those of the programs in it included."""
    return {equation.primitive.name for equation in _every(program.jaxpr)}


def _every(program: Any) -> list[Any]:
    """The equations of a program and of the programs in it."""
    found, programs = [], [program]
    while programs:
        equations = programs.pop().eqns
        found += equations
        for value in (value for equation in equations for value in equation.params.values()):
            for part in value if isinstance(value, tuple | list) else (value,):
                part = getattr(part, "jaxpr", part)
                if hasattr(part, "eqns"):
                    programs.append(part)
    return found


def held_and_carried(scan: Mapping[str, Any]) -> tuple[int, int]:
    """How many operands of a scan are the same at every step, and how many, which come next, it carries on.

    Args:
        scan: the parameters of its equation.
    """
    if "num_consts" in scan:  # before JAX 0.11
        return scan["num_consts"], scan["num_carry"]
    held, carried, _ = scan["ft_in"].unpack()
    return len(list(held)), len(list(carried))


def evaluate(source: Any, operands: Sequence[Any]) -> list[Any]:
    """What an equation of JAX computes from the values of its operands."""
    primitive = source.primitive
    bound = primitive.get_bind_params(source.params)
    # Older versions of JAX return the functions that a primitive calls apart from its parameters.
    functions, parameters = bound if isinstance(bound, tuple) else ((), bound)
    results = primitive.bind(*functions, *operands, **parameters)
    return list(results) if primitive.multiple_results else [results]


def _inline(
    program: Any,
    inputs: Sequence[Atom],
    constants: Sequence[Any],
    equations: list[Equation],
    numbers: Iterator[int],
    calls: set[str],
) -> list[Atom]:
    """Append the equations of a program, and of the programs that it calls; its results."""
    names: dict[Any, Atom] = dict(zip(program.invars, inputs, strict=True))
    names |= zip(program.constvars, map(Constant, constants), strict=True)

    def read(atom: Any) -> Atom:
        return Constant(atom.val) if isinstance(atom, Literal) else names[atom]

    for source in program.eqns:
        operands = [read(x) for x in source.invars]
        results: list[Atom]
        if source.primitive.name in calls:
            called = next(source.params[name] for name in _PROGRAM if name in source.params)
            inner = getattr(called, "jaxpr", called)
            held = getattr(called, "consts", ())
            results = _inline(inner, operands, held, equations, numbers, calls)
        else:
            new = [next(numbers) for _ in source.outvars]
            equations.append(Equation(source, tuple(operands), tuple(new)))
            results = [*new]
        names |= zip(source.outvars, results, strict=True)
    return [read(x) for x in program.outvars]


def needed(equations: Sequence[Equation], outputs: Sequence[Atom]) -> list[Equation]:
    """The equations on which the outputs depend, in order."""
    wanted, kept = {x for x in outputs if isinstance(x, int)}, []
    for equation in reversed(equations):
        if wanted.intersection(equation.outputs):
            kept.append(equation)
            wanted.update(x for x in equation.inputs if isinstance(x, int))
    return kept[::-1]


def values_of(equations: Sequence[Equation], known: dict[int, Any]) -> dict[int, Any]:
    """What equations compute, beside what is known."""
    values = dict(known)
    for source, inputs, outputs in equations:
        operands = [value_of(i, values) for i in inputs]
        values.update(zip(outputs, evaluate(source, operands), strict=True))
    return values


def value_of(atom: Atom, values: dict[int, Any]) -> Any:
    """Of a variable, or of a constant."""
    return atom.value if isinstance(atom, Constant) else values[atom]


def reached(equations: Sequence[Equation], start: int) -> set[int]:
    """The variables that depend on one."""
    found = {start}
    for equation in equations:
        if any(not isinstance(i, Constant) and i in found for i in equation.inputs):
            found.update(equation.outputs)
    return found


def closed_over(f: Callable, *args: Any) -> tuple[Callable, list[Any]]:
    """The function of its arguments and of the tracers that it closes over, and these.

    As ``jax.closure_convert``, which leaves those in the function that have no derivative, such as ``vmap``'s; the rule
    of a custom derivative must not close over any.

    Args:
        f: a function of pytrees of arrays, which returns one.
        args: such pytrees.
    """
    structures = []

    def flat(*args: Any) -> list[Any]:
        leaves, structure = jax.tree.flatten(f(*args))
        structures.append(structure)
        return leaves

    program, number = jax.make_jaxpr(flat)(*args), len(args)
    traced = [isinstance(x, jax.core.Tracer) for x in program.consts]

    def converted(*given: Any) -> Any:
        tracers = iter(given[number:])
        held = [
            next(tracers) if is_traced else x
            for x, is_traced in zip(program.consts, traced, strict=True)
        ]
        leaves = jax.core.eval_jaxpr(program.jaxpr, held, *jax.tree.leaves(given[:number]))
        return jax.tree.unflatten(structures[0], leaves)

    return converted, [x for x, is_traced in zip(program.consts, traced, strict=True) if is_traced]


def ahead(f: Callable[[Array], Any], x: Array) -> Callable[[Array], Any]:
    """The function, of which all that does not depend on its argument is computed here, once.

    Within the program of the caller, of whose arrays f may make use.

    Args:
        f: a function of an array, which returns a pytree of arrays.
        x: such an array.
    """
    program, shapes = jax.make_jaxpr(f, return_shape=True)(x)
    equations, results = all_equations_of(program)
    later = reached(equations, 0)
    waits = [any(i in later for i in e.inputs if not isinstance(i, Constant)) for e in equations]
    rest = [e for e, is_later in zip(equations, waits, strict=True) if is_later]
    known = values_of([e for e, is_later in zip(equations, waits, strict=True) if not is_later], {})
    structure = jax.tree.structure(shapes)

    def at(x: Array) -> Any:
        values = values_of(rest, {**known, 0: x})
        return jax.tree.unflatten(structure, [value_of(i, values) for i in results])

    return at
