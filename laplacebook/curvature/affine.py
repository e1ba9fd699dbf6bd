"""Which equations of a program are affine in what depends on the coordinates."""

from collections.abc import Iterable

from laplacebook.base.jaxprs import Constant, Equation

# Affine in all operands together, and in one of them alone.
_ALL = {
    *(
        "add",
        "sub",
        "neg",
        "reshape",
        "broadcast_in_dim",
        "squeeze",
        "slice",
        "concatenate",
        "transpose",
    ),
    *(
        "convert_element_type",
        "reduce_sum",
        "copy",
        "pad",
        "rev",
        "expand_dims",
        "add_any",
        "cumsum",
    ),
}
_ONE = {"mul", "dot_general", "gather", "dynamic_slice", "scatter-add", "select_n"}


def is_affine(equation: Equation, used: set[int]) -> bool:
    """Whether the results of an equation are affine in some of its operands.

    Args:
        equation: of a program.
        used: the variables among its inputs that depend on the coordinates.
    """
    inputs, name = equation.inputs, equation.source.primitive.name
    times = sum(not isinstance(i, Constant) and i in used for i in inputs)
    if name == "div" and times == 1:
        return not isinstance(inputs[0], Constant) and inputs[0] in used
    return name in _ALL or (name in _ONE and times == 1)


def bent(equations: Iterable[tuple[Equation, set[int]]]) -> set[int]:
    """The variables in which the result of a program is not affine, as far as its equations tell.

    Args:
        equations: in order, each with the variables among its inputs that depend on the coordinates.
    """
    found: set[int] = set()
    for equation, used in reversed(list(equations)):
        if found.intersection(equation.outputs) or not is_affine(equation, used):
            found.update(used)
    return found
