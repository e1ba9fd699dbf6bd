"""Each file whose functions have shapes is checked while the tests run: a wrong one is an error."""

import inspect
import types
from importlib import import_module
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
from beartype import beartype

PACKAGE = Path(__file__).parents[1] / "laplacebook"
#: a model within a check would be read anew at every trace; see conftest.py
UNCHECKED = PACKAGE / "models.py"


def named(path):
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def with_shapes(module):
    """Each function of a module of which a parameter has a shape, with the names of all of them."""
    for function in vars(module).values():
        if isinstance(function, types.FunctionType) and function.__module__ == module.__name__:
            known = inspect.signature(function).parameters.values()
            named = [p for p in known if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
            kinds = [p.annotation for p in named if isinstance(p.annotation, type)]
            if any(issubclass(kind, jaxtyping.AbstractArray) for kind in kinds):
                yield function, [p.name for p in named]


FUNCTIONS = [
    found
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.stem != "__init__" and path != UNCHECKED
    for found in with_shapes(import_module(named(path)))
]


def test_every_folder_has_such_functions():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders <= {function.__module__.split(".")[1] for function, _ in FUNCTIONS}


def name_of(value):
    return f"{value.__module__}.{value.__qualname__}" if callable(value) else ",".join(value)


@pytest.mark.parametrize(("function", "names"), FUNCTIONS, ids=name_of)
def test_what_has_no_shape_is_caught(function, names):
    with pytest.raises(jaxtyping.TypeCheckError) as error:
        function(**dict.fromkeys(names, "no array"))
    assert any(name in str(error.value) for name in names)


def test_a_size_is_one_within_a_call_and_another_within_the_next():
    """As the checks are made in conftest.py: among the arguments, and with what is returned."""
    Row = jaxtyping.Float[np.ndarray, " K"]

    @jaxtyping.jaxtyped(typechecker=beartype)
    def first(x: Row, y: Row, number: int) -> Row:
        return x[:number] if number else first(np.ones(5), np.ones(5), 5)[: x.size]

    two, three = np.ones(2), np.ones(3)
    for x, number in ((two, 2), (three, 3), (two, 0)):
        assert first(x, x, number).size == x.size
    for args in ((two, three, 2), (three, three, 2), (two, two, "2"), (two, two, 0.0)):
        with pytest.raises(jaxtyping.TypeCheckError):
            first(*args)
