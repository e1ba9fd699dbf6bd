"""Which file of the package imports what from which, read off the source without running it."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = {path.stem: path for path in sorted((ROOT / "laplacebook").glob("*.py"))}
#: what a reader imports: there ``__all__`` is the documented part, which no other file need import
PUBLIC = {"__init__", "datasets", "exercises", "models", "plotting", "slider"}
#: where NumPyro's handlers run a model, as the docstring of density.py says
HANDLERS = {"density", "guide", "last_layer", "outcomes", "sites"}
#: of two files that list more, beside the functions that choose between them
ALTERNATIVES = {"gauss_newton": {"dense_at_once"}}
MOST_LINES = 300


@cache
def nodes_of(path):
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def imported(path):
    """(module, name) for each name that a file imports from the package; name is None for a module."""
    found, aliases = set(), {}
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("laplacebook."):
            found |= {(node.module.split(".")[1], alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "laplacebook":
            for alias in node.names:
                module = alias.name if alias.name in MODULES else "__init__"
                aliases[alias.asname or alias.name] = module
        elif isinstance(node, ast.Import):
            for alias in node.names:
                package, _, module = alias.name.partition(".")
                if package == "laplacebook":
                    aliases[alias.asname or alias.name] = module or "__init__"
    found |= {(module, None) for module in aliases.values()}
    for node in nodes_of(path):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found |= {(module, node.attr) for a, module in aliases.items() if a == node.value.id}
    return found


def listed(module):
    """``__all__`` of a module."""
    (names,) = (
        node.value
        for node in nodes_of(MODULES[module])
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    return set(ast.literal_eval(names))


def test_no_import_goes_up():
    """The files are a stack: none imports itself by way of others, nor the root of the package."""
    below = {name: {module for module, _ in imported(path)} for name, path in MODULES.items()}
    assert not [name for name in below if "__init__" in below[name]]
    stacked = set()
    while free := {name for name in below.keys() - stacked if below[name] <= stacked}:
        stacked |= free
    assert not below.keys() - stacked


def test_all_is_what_other_files_of_the_package_import():
    used = {name: set() for name in MODULES}
    for path in MODULES.values():
        for module, name in imported(path):
            if name is not None and MODULES[module] != path:
                used[module].add(name)
    missing = {name: used[name] - listed(name) for name in MODULES}
    assert not {name: names for name, names in missing.items() if names}
    idle = {name: listed(name) - used[name] for name in MODULES.keys() - PUBLIC}
    assert not {n: names for n, names in idle.items() if names - ALTERNATIVES.get(n, set())}


def test_numpyros_handlers_are_where_the_density_says():
    using = {
        name
        for name, path in MODULES.items()
        for node in nodes_of(path)
        if isinstance(node, ast.ImportFrom) and node.module == "numpyro"
        if "handlers" in {alias.name for alias in node.names}
    }
    assert using == HANDLERS
    said = ast.get_docstring(ast.parse(MODULES["density"].read_text()))
    assert all(f"``{name}``" in said for name in HANDLERS - {"density"})


@pytest.mark.parametrize("folder", ["laplacebook", "tests", "tools", "benchmarks"])
def test_no_file_is_long(folder):
    lengths = {p.name: len(p.read_text().splitlines()) for p in (ROOT / folder).glob("*.py")}
    assert not {name: lines for name, lines in lengths.items() if lines > MOST_LINES}
