"""The program of a function as a list of equations, and its evaluation one by one.

After JAX's guide "Writing custom Jaxpr interpreters".
"""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple

from jax.extend.core import ClosedJaxpr, Literal

_CALLS = {"pjit", "jit", "closed_call", "checkpoint"}  # of a program within a program


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
    (output,) = _inline(program.jaxpr, inputs, program.consts, equations, numbers)
    return _needed(equations, output), output


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
) -> list[Atom]:
    """Append the equations of a program, and of the programs that it calls; its results."""
    names: dict[Any, Atom] = dict(zip(program.invars, inputs, strict=True))
    names |= zip(program.constvars, map(Constant, constants), strict=True)

    def read(atom: Any) -> Atom:
        return Constant(atom.val) if isinstance(atom, Literal) else names[atom]

    for source in program.eqns:
        operands = [read(x) for x in source.invars]
        results: list[Atom]
        if source.primitive.name in _CALLS:
            called = source.params["jaxpr"]
            inner = getattr(called, "jaxpr", called)
            held = getattr(called, "consts", ())
            results = _inline(inner, operands, held, equations, numbers)
        else:
            new = [next(numbers) for _ in source.outvars]
            equations.append(Equation(source, tuple(operands), tuple(new)))
            results = [*new]
        names |= zip(source.outvars, results, strict=True)
    return [read(x) for x in program.outvars]


def _needed(equations: list[Equation], output: Atom) -> list[Equation]:
    """The equations on which the output depends."""
    wanted, kept = {output} if isinstance(output, int) else set(), []
    for equation in reversed(equations):
        if wanted.intersection(equation.outputs):
            kept.append(equation)
            wanted.update(x for x in equation.inputs if isinstance(x, int))
    return kept[::-1]
