"""When may a compiled model be used again? When nothing that its trace could see has changed.

``jax.jit`` compiles a Python function once and then trusts that the function is pure. A notebook
breaks that trust all the time: a reader changes ``prior_scale = 2.0`` in one cell and runs the next.
:class:`Fixed` is a Python value with a fingerprint of all that the value can reach (code, globals,
closures, attributes, array contents), so that such a change compiles anew instead of returning the
old answer.
"""

import dis
import functools
import hashlib
import os
import pathlib
import re
import sys
import sysconfig
import types
import weakref
from collections.abc import Hashable, Iterable, Mapping, MutableSequence
from typing import Any

import jax
import numpy as np
from jax.tree_util import PyTreeDef

from laplacebook.base.errors import LaplaceError
from laplacebook.base.pytrees import classes_in

_PACKAGE = os.path.join(pathlib.Path(__file__).parents[1], "")
_LIBRARIES = (_PACKAGE, *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
# Of a user, of the system or of a parent environment too.
_INSTALLED = re.compile(r"[\\/](site|dist)-packages[\\/]")
_NUMBERS = (bool, int, float, complex, np.generic, np.dtype)
_ATOMS = (*_NUMBERS, str, bytes, type(None), type(...), range, slice, re.Pattern, pathlib.PurePath)
_EXACT = {bool, int, float, complex, str, bytes, type(None)}  # told without a longer look
# What reads a name that is a string in the code, and what reads the environment.
_BY_NAME = frozenset({"getattr", "hasattr", "attrgetter", "vars", "__dict__"})
_ENVIRONMENT = frozenset({"environ", "getenv"})
_STEPS = {
    "globals": {
        "LOAD_GLOBAL",
        "LOAD_NAME",
        "LOAD_FROM_DICT_OR_GLOBALS",
        "STORE_GLOBAL",
        "DELETE_GLOBAL",
    },
    "imports": {"IMPORT_NAME", "IMPORT_FROM"},
}
_WIDE = tuple(map(np.dtype, (np.float64, np.int64, np.uint64, np.complex128)))
_DESCRIPTORS = (
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
)
_NOT_CONTENT = {"__dict__", "__weakref__", "__module__", "__doc__", "_abc_impl"}


class Fixed:
    """A Python value that is part of a compiled program: equal while nothing has changed.

    Raises:
        LaplaceError: on reading ``value``, if the value has changed since. Within a program, if JAX would read an array
            as it was before it was changed.
    """

    __slots__ = ("_fingerprint", "_hash", "_opaque", "_value")

    def __init__(self, value: Any) -> None:
        self._value = value
        self._fingerprint, eye = _look(value)
        if eye.wide:
            from laplacebook.model.narrowed import read_anew

            read_anew(eye.wide, name_of(value))
        self._hash = hash(self._fingerprint)
        # What an extension type holds cannot be seen: such a program is not used again.
        self._opaque = object() if eye.opaque else None

    @property
    def value(self) -> Any:
        """The value, unchanged since it was fixed."""
        if _look(self._value)[0] != self._fingerprint:
            raise LaplaceError(
                f"'{name_of(self._value)}', or something that it reads, has changed since the fit.",
                causes=[
                    "a global, a list, an array or an attribute was changed after the fit",
                    "the model changes what it reads: it counts its calls, appends to a list or keeps "
                    "a value in an attribute",
                ],
                remedy="fit again; a model has to leave what it reads as it is.",
            )
        return self._value

    @property
    def as_given(self) -> Any:
        """The value without another look at it: for what it is, not for what it computes."""
        return self._value

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Fixed)
            and self._opaque is other._opaque
            and self._fingerprint == other._fingerprint
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type, tuple]:
        # A copy looks again: code objects, of which fingerprints are made, cannot be pickled.
        return Fixed, (self._value,)


class Unread:
    """Holds what a model carries along and does not read when it runs: no part of its fingerprint."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def is_data(value: Any) -> bool:
    """Whether an argument is data (an array, traced) or part of the program (any other value).

    NumPy's whole numbers and truth values count as program: they are sizes and switches.
    """
    if isinstance(value, np.generic):
        return value.dtype.kind in "fc"
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biufc"
    return isinstance(value, jax.Array)


def name_of(function: Any) -> str:
    """The name of a function, also within ``partial`` or a NumPyro handler."""
    within = getattr(function, "func", getattr(function, "fn", None))
    inner = name_of(within) if callable(within) else type(function).__name__
    return getattr(function, "__name__", inner)


class _Same:
    """Equal to itself alone; holds the object, so that its identity is not given to another."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _look(value: Any) -> tuple[Hashable, "_Eye"]:
    """The fingerprint of a value, and what else was seen in it."""
    eye = _Eye()
    return (eye.fingerprint(value), eye.of_modules()), eye


class _Eye:
    """One walk over all that a value can reach.

    Attributes:
        opaque: whether something cannot be seen into.
        wide: the arrays of NumPy of 64 bits a number, which JAX may narrow.
    """

    def __init__(self) -> None:
        self.opaque = False
        self.wide: list[np.ndarray] = []
        self.seen: dict[int, tuple[int, Any]] = {}  # with the object, so that no id is used twice
        self.names: dict[str, None] = {}
        self.modules: dict[_Same, None] = {}

    def fingerprint(self, value: Any) -> Hashable:
        kind = type(value)
        if kind in _EXACT or (isinstance(value, _ATOMS) and _is_library(kind)):
            return kind, repr(value)
        if isinstance(value, Unread):
            return Unread
        if isinstance(value, PyTreeDef):
            return PyTreeDef, value, classes_in(value)
        if isinstance(value, jax.Array | np.ufunc) or _is_compiled(value) or _is_library(value):
            return _Same(value)
        if isinstance(value, types.ModuleType):
            self.modules[_Same(value)] = None
            return _Same(value)
        if id(value) in self.seen:
            return "seen", self.seen[id(value)][0]
        self.seen[id(value)] = len(self.seen), value
        if isinstance(value, np.ndarray):
            attributes = self.fingerprint(_attributes(value))
            if value.dtype in _WIDE and not isinstance(value, np.ma.MaskedArray):
                self.wide.append(value)
            return type(value), str(value.dtype), value.shape, self.contents(value), attributes
        # A table fills caches of its own when it is read.
        if _is_table(value):
            self.opaque = True
            of_many = isinstance(value, Mapping)  # which xarray's are, that are no array
            numbers = self.fingerprint(dict(value)) if of_many else self.contents(np.asarray(value))
            return type(value), numbers, self.fingerprint(_names_in(value))
        parts = self.parts(value)
        if parts is None and _is_value(value):
            return type(value), value, repr(value)  # equal times may be of two zones
        if parts is None:
            self.opaque |= not _is_library(getattr(value, "__wrapped__", None))
            return _Same(value)
        return parts[0], tuple(self.fingerprint(part) for part in parts[1:])

    def of_modules(self) -> Hashable:
        """What the code that was met reads in the modules that were met.

        Last, and until there is nothing new: a function met late may read a name in a module met early.
        """
        read: dict[tuple[_Same, str], Hashable] = {}
        while new := [
            (module, name)
            for module in self.modules
            for name in self.names
            if name in vars(module.value) and (module, name) not in read
        ]:
            for module, name in new:
                read[module, name] = self.fingerprint(vars(module.value)[name])
        return tuple(read.items())

    def contents(self, array: np.ndarray) -> Hashable:
        if array.dtype.hasobject:
            return tuple(self.fingerprint(item) for item in array.ravel().tolist())
        return hashlib.blake2b(np.asarray(array).tobytes(), digest_size=16).digest()

    def parts(self, value: Any) -> list[Any] | None:
        """What tells a value of this kind, and the values that it holds; None if unknown."""
        kind = type(value)
        if isinstance(value, types.FunctionType):
            names, strings = (_told(value.__code__, what) for what in ("names", "strings"))
            self.names |= dict.fromkeys(names)
            if not _BY_NAME.isdisjoint(names):
                self.names |= dict.fromkeys(strings)
            read = strings if not _ENVIRONMENT.isdisjoint(names) else ()
            told = {name: os.environ.get(name) for name in read}
            reached = [value.__defaults__, value.__kwdefaults__, vars(value), told]
            return [_Same(value.__code__), *reached, *_globals(value), *_cells(value)]
        if isinstance(value, types.MethodType):
            return [kind, value.__func__, value.__self__]
        if isinstance(value, types.BuiltinFunctionType):
            return [_Same(kind), value.__name__, value.__self__]
        if isinstance(value, functools.partial):
            return [kind, value.func, value.args, value.keywords]
        if isinstance(value, staticmethod | classmethod):
            return [kind, value.__func__]
        if isinstance(value, property):
            return [kind, value.fget, value.fset]
        if isinstance(value, type):
            content = {k: v for k, v in vars(value).items() if k not in _NOT_CONTENT}
            return [_Same(value), content, value.__bases__]
        attributes = _attributes(value)
        if isinstance(value, _ATOMS):
            atom: Any = next(one for one in _ATOMS if isinstance(value, one))
            return ["of a class of its own", kind, atom.__repr__(value), attributes]
        if isinstance(value, list | tuple):
            return [kind, attributes, *value]
        if isinstance(value, set | frozenset):
            return [kind, attributes, *sorted(value, key=repr)]
        if isinstance(value, dict | types.MappingProxyType):
            return [kind, attributes, *value, *value.values()]
        if _is_seen(kind, attributes):
            return ["instance", kind, attributes]
        return [kind, attributes, *value] if isinstance(value, MutableSequence) else None


def _names_in(table: Any) -> list[Any]:
    """What a table says beside its numbers: names of rows and columns, the order of categories, coordinates."""
    names = [getattr(table, name, None) for name in ("name", "columns", "index", "dims")]
    kinds = table.dtypes if hasattr(table, "columns") else [getattr(table, "dtype", None)]
    categories = [getattr(kind, "categories", None) for kind in kinds]
    known = (x for x in (*names, *categories) if isinstance(x, str | tuple) or _is_table(x))
    coordinates = getattr(table, "coords", {})
    return [*map(np.asarray, known), {str(n): np.asarray(coordinates[n]) for n in coordinates}]


def _is_table(value: Any) -> bool:
    return hasattr(type(value), "__array__")


def _attributes(value: Any) -> dict[str, Any] | None:
    """Attributes of an instance, but for weak references: caches, as of a transform's inverse."""
    slots = _slots(type(value))
    if not slots and not hasattr(value, "__dict__"):
        return None
    unset = object()
    held = getattr(value, "__dict__", {}) | {n: getattr(value, n, unset) for n in slots}
    return {
        k: v for k, v in held.items() if v is not unset and not isinstance(v, weakref.ReferenceType)
    }


def _slots(kind: type) -> list[str]:
    """The names under which a class keeps values outside of the instance's dict."""
    members = types.MemberDescriptorType
    found = [n for base in kind.__mro__ for n, m in vars(base).items() if isinstance(m, members)]
    return [name for name in found if name != "__dict__"]


def _is_seen(kind: type, attributes: dict[str, Any] | None) -> bool:
    """Whether the attributes are all: an instance of an extension type is larger, and holds more."""
    if attributes is None:
        return False
    pointers = len(_slots(kind)) + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    return kind.__basicsize__ <= object.__basicsize__ + pointers * tuple.__itemsize__


def _is_value(value: Any) -> bool:
    """Whether it is compared by what it says, as dates, periods and decimals are: a table makes them anew."""
    kind = type(value)
    if not _is_library(kind) or {kind.__eq__, kind.__hash__} & {object.__eq__, object.__hash__}:
        return False
    try:
        hash(value)
    except (TypeError, ValueError):
        return False
    return True


def _is_compiled(value: Any) -> bool:
    """Whether ``jax.jit`` made it; that protocol takes long to ask, and it is asked of all that is reached."""
    return hasattr(type(value), "lower") and isinstance(value, jax.stages.Wrapped)


def _is_library(value: Any) -> bool:
    """Installed code, which no notebook edits; a function made there may hold a reader's data."""
    if isinstance(value, types.FunctionType):
        return _is_installed(value.__code__.co_filename) and not value.__closure__
    if isinstance(value, type):
        value = sys.modules.get(value.__module__)
    if isinstance(value, types.ModuleType):
        file = getattr(value, "__file__", None) or ""
        return _is_installed(file) or value.__name__ in sys.builtin_module_names
    return isinstance(value, _DESCRIPTORS)


def _is_installed(file: str) -> bool:
    if file.startswith(_LIBRARIES) or _INSTALLED.search(file) is not None:
        return True
    folders = (os.path.join(folder, "") for folder in sys.path if folder)
    return any(file.startswith(folder) and _holds_libraries(folder) for folder in folders)


@functools.cache
def _holds_libraries(folder: str) -> bool:
    """Whether pip has installed into it, as with --target, by a record that it leaves there."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return any(name.endswith(".dist-info") for name in names)


def _cells(function: types.FunctionType) -> list[Any]:
    cells = function.__closure__ or ()
    return [cell.cell_contents for cell in cells if cell != types.CellType()]


def _globals(function: types.FunctionType) -> list[Any]:
    """What the names in the code can mean: globals, and modules imported within the function."""
    scope, code = function.__globals__, function.__code__
    readers = []
    if _told(code, "imports"):
        from laplacebook.model.imported import imported  # of few models

        # Without the libraries, which the call that is looked at may import for the first time.
        found = imported(_told(code, "imports"), scope.get("__package__") or "", _is_installed)
        readers = [module for module in found if not _is_library(module)]
    read = (
        *_told(code, "globals"),
        *(_told(code, "strings") if "globals" in _told(code, "names") else ()),
    )
    return [(name, scope[name]) for name in read if name in scope] + readers


@functools.lru_cache(maxsize=4096)
def _told(code: types.CodeType, what: str) -> tuple[str, ...]:
    """Names in a function's code and in the functions within it.

    All of them; those that are looked up as globals, and not as attributes; strings that may be names; or what is
    imported: modules, and after a dot what is taken from them.
    """
    nested = [_told(const, what) for const in code.co_consts if isinstance(const, types.CodeType)]
    own: Iterable[str] = code.co_names
    if what == "strings":
        own = (x for x in code.co_consts if isinstance(x, str) and x.isidentifier())
    elif what != "names":
        steps = [one for one in dis.get_instructions(code) if one.opname in _STEPS[what]]
        own = ("." * (one.opname == "IMPORT_FROM") + one.argval for one in steps)
    return tuple(dict.fromkeys([*own, *(name for names in nested for name in names)]))
