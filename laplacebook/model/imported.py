"""The modules that a function imports when it runs, by its own names or relative to its package."""

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable, Iterable


def imported(
    names: Iterable[str], package: str, is_installed: Callable[[str], bool]
) -> list[types.ModuleType]:
    """Those that a reader may edit. What was not imported yet is: else the first run would seem to change the function.

    Args:
        names: in its import statements, of modules, and after a dot what is taken from the last one.
        package: that of the function, empty if it has none.
        is_installed: whether a file belongs to a library, which is left alone.
    """
    above = package.split(".") if package else []
    parents = ["", *(".".join(above[:k]) + "." for k in range(len(above), 0, -1))]
    found, module = [], ""
    for name in names:
        is_taken = name.startswith(".")
        module = module if is_taken else name
        whole = (module + name).lstrip(".") if is_taken else name
        for full in (parent + whole for parent in parents if whole):
            one = sys.modules.get(full) or _first_import(full, is_installed)
            if one is not None:
                found.append(one)
    return found


def _first_import(name: str, is_installed: Callable[[str], bool]) -> types.ModuleType | None:
    try:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.has_location or is_installed(spec.origin or ""):
            return None
        return importlib.import_module(name)
    except Exception:
        return None  # no module, or one that fails: if the function gets there, it says so itself
