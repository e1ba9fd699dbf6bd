"""When may a compiled model be used again? When nothing that its trace could see has changed.

``jax.jit`` compiles a Python function once and then trusts that the function is pure. A notebook
breaks that trust all the time: a reader changes ``prior_scale = 2.0`` in one cell and runs the next.
:class:`Fixed` is a Python value with a fingerprint of all that the value can reach (code, globals,
closures, attributes, array contents), so that such a change compiles anew instead of returning the
old answer.
"""

import functools
import hashlib
import sys
import sysconfig
import types
from collections.abc import Hashable
from typing import Any

import jax
import numpy as np

__all__ = ["Fixed", "is_data"]

_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_ATOMS = (bool, int, float, complex, str, bytes, type(None), type(...), np.generic, np.dtype)
_OPAQUE = (types.BuiltinFunctionType, jax.Array, jax.stages.Wrapped)


class Fixed:
    """A Python value that is part of a compiled program: hashable, equal while nothing has changed."""

    __slots__ = ("_fingerprint", "_hash", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self._fingerprint = _fingerprint(value, {})
        self._hash = hash(self._fingerprint)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fixed) and self._fingerprint == other._fingerprint

    def __hash__(self) -> int:
        return self._hash


def is_data(value: Any) -> bool:
    """Whether an argument is data (an array, traced) or part of the program (any other value)."""
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in "biufc"
    return isinstance(value, jax.Array)


class _Same:
    """Equal to itself alone; holds the object, so that its identity is not given to another."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _fingerprint(value: Any, seen: dict[int, int]) -> Hashable:
    if isinstance(value, _ATOMS):
        return type(value), repr(value)
    if isinstance(value, _OPAQUE) or _is_library(value):
        return _Same(value)
    if id(value) in seen:
        return "seen", seen[id(value)]
    seen[id(value)] = len(seen)

    def each(values: Any) -> Hashable:
        return tuple(_fingerprint(v, seen) for v in values)

    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, _contents(value)
    if isinstance(value, types.FunctionType):
        reached = [value.__defaults__, value.__kwdefaults__, _globals(value), _cells(value)]
        return _Same(value.__code__), each(reached)
    if isinstance(value, types.MethodType):
        return each([value.__func__, value.__self__])
    if isinstance(value, functools.partial):
        return "partial", each([value.func, value.args, value.keywords])
    if isinstance(value, types.ModuleType):
        return _Same(value)
    if isinstance(value, type):
        plain = {k: v for k, v in vars(value).items() if not k.startswith("__")}
        return _Same(value), each([plain])
    if isinstance(value, list | tuple):
        return type(value), each(value)
    if isinstance(value, dict):
        return type(value), each(value), each(value.values())
    if hasattr(value, "__dict__"):
        return each([type(value), vars(value)])
    # What an extension type holds cannot be seen: never the same, so always compiled anew.
    return _Same(object())


def _is_library(value: Any) -> bool:
    """Installed code, which no notebook edits; a function made there may still hold a reader's data."""
    if isinstance(value, types.FunctionType):
        return value.__code__.co_filename.startswith(_LIBRARIES) and not value.__closure__
    if isinstance(value, type):
        value = sys.modules.get(value.__module__)
    if isinstance(value, types.ModuleType):
        file = getattr(value, "__file__", None) or ""
        return file.startswith(_LIBRARIES) or value.__name__ in sys.builtin_module_names
    return False


def _contents(array: np.ndarray) -> Hashable:
    if array.dtype.hasobject:
        return repr(array.tolist())
    return hashlib.blake2b(array.tobytes(), digest_size=16).digest()


def _cells(function: types.FunctionType) -> list[Any]:
    cells = function.__closure__ or ()
    return [cell.cell_contents for cell in cells if cell != types.CellType()]


def _globals(function: types.FunctionType) -> dict[str, Any]:
    """What the names in a function's code can mean: its globals, and theirs in the reader's modules."""
    names = _names(function.__code__)
    found = {name: function.__globals__[name] for name in names if name in function.__globals__}
    for module in [v for v in found.values() if isinstance(v, types.ModuleType)]:
        if not _is_library(module):
            inside = vars(module)
            found |= {f"{module.__name__}.{n}": inside[n] for n in names if n in inside}
    return found


@functools.lru_cache(maxsize=1024)
def _names(code: types.CodeType) -> tuple[str, ...]:
    nested = [_names(const) for const in code.co_consts if isinstance(const, types.CodeType)]
    return tuple(dict.fromkeys([*code.co_names, *(name for names in nested for name in names)]))
