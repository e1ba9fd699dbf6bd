"""Which file of the package imports what from which, read off the source without running it."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import laplacebook

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "laplacebook"
#: what a file may import: its own folder, and those in the lines above its own; side by side, nothing
STOREYS = [
    {"base"},
    {"gaussian", "model"},
    {"curvature"},
    {"search"},
    {"fit"},
    {"predictive", "evidence"},
    {"beyond"},
    {"trust"},
    {""},
]
#: where NumPyro's handlers run a model, as the docstring of density.py says
HANDLERS = {
    "density",
    "marginalize",
    "other_starts",
    "known_sites",
    "numpyro_and_arviz",
    "outcomes",
    "sites",
}
MOST_LINES = 400
#: what few sessions use, and every import of the package would pay for
LATE = {
    *("arviz", "arviz_stats", "equinox", "flax", "jax.experimental.jet", "matplotlib", "optax"),
    *("asdex", "numba", "qdldl"),  # of the extra "sparse"
    *("scipy.integrate", "scipy.optimize", "scipy.stats"),
    *("laplacebook.beyond", "laplacebook.evidence", "laplacebook.predictive", "laplacebook.trust"),
}
MOST_MODULES = 84  # of the package, of which an import of it takes so many: there are 208


def module_of(path):
    """The name of a file, as ``fit.laplace``; of the package and of a folder, that of its ``__init__``."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts).removesuffix("__init__").removesuffix(".")


MODULES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}
FOLDERS = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}


def folder_of(module):
    folder = module.partition(".")[0]
    return folder if folder in FOLDERS else ""


@cache
def imports(path):
    """The modules of the package that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [n if n.removeprefix("laplacebook.") in MODULES else node.module for n in names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        ours = [n for n in names if re.match(r"laplacebook(\.|$)", n)]
        found |= {n.removeprefix("laplacebook").removeprefix(".") for n in ours}
    return found


def arrows(imported=imports):
    """(from, to) for each import of one file of the package in another."""
    return {(m, to) for m, path in MODULES.items() for to in imported(path) if m}


def upwards(arrows):
    """Those that do not go down, or stay within a folder."""
    storey = {folder: i for i, folders in enumerate(STOREYS) for folder in folders}
    ends = {(one, other): (folder_of(one), folder_of(other)) for one, other in arrows}
    return {a for a, (one, other) in ends.items() if one != other and storey[other] >= storey[one]}


def in_a_circle(arrows):
    """The files that import themselves by way of others, or what does."""
    below = {name: {to for one, to in arrows if one == name} for name in MODULES}
    stacked = set()
    while free := {name for name in below.keys() - stacked if below[name] <= stacked}:
        stacked |= free
    return below.keys() - stacked


def test_every_folder_has_its_storey():
    assert FOLDERS | {""} == set.union(*STOREYS)


def test_no_import_goes_up():
    assert not upwards(arrows())
    assert not in_a_circle(arrows())
    assert "" not in {to for _, to in arrows()}  # the root of the package


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("base.errors", "model.density"),
        ("gaussian.precision", "model.sites"),
        ("search.mode", "fit.result"),
        ("evidence.bic", "predictive.predict"),
        ("fit.result", "plotting"),
    ],
)
def test_an_import_upwards_between_folders_is_seen(one, other):
    assert {one, other} <= MODULES.keys()
    assert upwards(arrows() | {(one, other)}) == {(one, other)}


def test_no_folder_takes_the_name_of_what_a_reader_calls():
    """A folder that is imported late would stand in its place: ``lb.predict`` would be a module."""
    assert not FOLDERS & set(laplacebook.__all__)


def test_numpyros_handlers_are_where_the_density_says():
    using = {
        path.stem
        for path in MODULES.values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "numpyro"
        if "handlers" in {alias.name for alias in node.names}
    }
    assert using == HANDLERS
    said = ast.get_docstring(ast.parse(MODULES["model.density"].read_text()))
    assert all(f"``{name}``" in said for name in HANDLERS - {"density"})


@pytest.mark.parametrize("folder", ["laplacebook", "tests", "tools", "benchmarks"])
def test_no_file_is_long(folder):
    lengths = {p.name: len(p.read_text().splitlines()) for p in (ROOT / folder).rglob("*.py")}
    assert not {name: lines for name, lines in lengths.items() if lines > MOST_LINES}


def names_at_top(tree):
    for node in tree.body:
        if isinstance(node, ast.Assign):
            yield from (one.id for one in node.targets if isinstance(one, ast.Name))
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            overloads = [one for one in node.decorator_list if ast.unparse(one) == "overload"]
            yield from () if overloads else (node.name,)


def test_no_file_gives_a_name_twice():
    """The second would change what the functions above it mean."""
    given = {m: list(names_at_top(ast.parse(path.read_text()))) for m, path in MODULES.items()}
    assert not {m: names for m, names in given.items() if len(names) > len(set(names))}


IMPORTED = """
import sys, numpyro
before = set(sys.modules)
import laplacebook
print(*(set(sys.modules) - before))
print(*dir(laplacebook))
from laplacebook import maximize_evidence, models, plotting, predict
print(predict.__module__)
"""


@pytest.fixture(scope="module")
def printed():
    """What a fresh process prints, line by line: the modules of an import, the names, where one of them is from."""
    command = [sys.executable, "-c", IMPORTED]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    return [line.split() for line in done.stdout.splitlines()]


def test_an_import_takes_what_a_fit_needs_and_no_more(printed):
    found = printed[0]
    assert "laplacebook.search.newton" in found
    assert not LATE & set(found)
    assert sum(name.startswith("laplacebook") for name in found) <= MOST_MODULES


def test_a_name_that_is_imported_late_is_there_like_any_other(printed):
    _, names, where = printed
    assert set(laplacebook.__all__) <= set(names)
    assert where == ["laplacebook.predictive.predict"]
    assert all(hasattr(laplacebook, name) for name in laplacebook.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'predicts'"):
        _ = laplacebook.predicts


def test_what_is_imported_late_is_what_a_type_checker_is_told():
    (told,) = (node for node in ast.parse(MODULES[""].read_text()).body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in told.body for alias in node.names}
    late = {name: f"laplacebook.{module}" for name, module in laplacebook._LATER.items()}
    assert seen == late | dict.fromkeys(laplacebook._MODULES, "laplacebook")
