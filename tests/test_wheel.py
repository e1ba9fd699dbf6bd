"""The wheel alone is enough for a chapter: outside the repository, with the declared dependencies.

make test-wheel does the whole of it, with every chapter in an environment of its own.
"""

import ast
import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
CHAPTERS = sorted((ROOT / "book").glob("*.ipynb"))
QUICK = "intro"
JUPYTER = {"IPython"}  # what every notebook has


def imports(source):
    """The top-level names of all modules that a source imports, in functions too."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def code(path):
    cells = nbformat.read(path, as_version=4).cells
    source = "\n\n".join(c.source for c in cells if c.cell_type == "code")
    return TransformerManager().transform_cell(source)


def closure(requirements):
    """The distributions that come with these requirements, without extras, and theirs."""
    found, waiting = set(), [Requirement(r) for r in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        try:
            waiting += [Requirement(r) for r in requires(name) or []]
        except PackageNotFoundError:
            continue
        found.add(name)
    return found


def undeclared(names, distributions, owners):
    """Modules that neither Python nor one of the distributions brings, by whose modules are whose."""
    return sorted(
        name
        for name in names - sys.stdlib_module_names - JUPYTER - {"laplacebook"}
        if not distributions & {canonicalize_name(d) for d in owners.get(name, [])}
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel):
    """A folder into which the wheel was installed, without its dependencies."""
    site = wheel.parent / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target"]
    subprocess.run([*pip, str(site), str(wheel)], check=True, capture_output=True)
    return site


def test_the_wheel_has_every_file_of_the_package(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("laplacebook/")}
    package = (
        p for p in (ROOT / "laplacebook").rglob("*") if p.is_file() and "__pycache__" not in p.parts
    )
    assert "laplacebook/py.typed" in packed
    assert packed == {p.relative_to(ROOT).as_posix() for p in package}


def test_chapters_import_what_the_wheel_brings(installed):
    (metadata,) = installed.glob("laplacebook-*.dist-info/METADATA")
    declared = re.findall(r"^Requires-Dist: (.*)$", metadata.read_text(), re.M)
    distributions = closure(r for r in declared if "extra ==" not in r)
    assert {"jax", "numpyro", "numpy"} <= distributions
    owners = packages_distributions()
    missing = {p.stem: undeclared(imports(code(p)), distributions, owners) for p in CHAPTERS}
    assert {name: modules for name, modules in missing.items() if modules} == {}
    assert undeclared({"mpmath", "os", "jax"}, distributions, owners) == ["mpmath"]


def test_a_chapter_runs_outside_the_repository(installed, tmp_path):
    script = tmp_path / "chapter.py"
    where = f"assert {str(installed)!r} in lb.__file__, lb.__file__"
    script.write_text(
        f"import laplacebook as lb\n{where}\n{code(ROOT / 'book' / f'{QUICK}.ipynb')}"
    )
    environment = {**os.environ, "PYTHONPATH": str(installed), "MPLBACKEND": "agg"}
    subprocess.run(
        [sys.executable, "-P", str(script)], cwd=tmp_path, env=environment, check=True, timeout=120
    )
