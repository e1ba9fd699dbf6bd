"""A name in a cell that can be seen, folded or not, is set in one that can be."""

import ast
from pathlib import Path

import nbformat
import pytest

CHAPTERS = sorted((Path(__file__).parents[2] / "book").glob("*.ipynb"))


def names(tree, context):
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, context)}


def set_by(tree):
    """Names that code sets, but for imports."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return names(tree, ast.Store) | {n.name for n in ast.walk(tree) if isinstance(n, kinds)}


def set_out_of_sight(notebook):
    """Names in cells of the page that only cells set which are not on it."""
    seen, unseen, complaints = set(), set(), []
    for cell in notebook.cells:
        if cell.cell_type != "code" or cell.id == "installation":
            continue
        tree = ast.parse(cell.source)
        if "remove-cell" in cell.metadata.get("tags", []):
            unseen |= set_by(tree)
            continue
        seen |= set_by(tree)
        arguments = {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
        lost = (names(tree, ast.Load) & unseen) - seen - arguments
        complaints += [f"cell {cell.id}: {name} is set in a removed cell" for name in lost]
    return complaints


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter(path):
    assert not set_out_of_sight(nbformat.read(path, as_version=4))


@pytest.mark.parametrize(
    ("tags", "source", "number"),
    [
        (["remove-cell"], "fit = 1", 1),
        (["remove-cell"], "def fit():\n    pass", 1),
        (["remove-cell"], "import fit", 0),
        (["hide-input"], "fit = 1", 0),
    ],
)
def test_what_is_noticed(tags, source, number):
    first = nbformat.v4.new_code_cell(source, metadata={"tags": tags})
    second = nbformat.v4.new_code_cell("print(fit)", metadata={"tags": ["hide-input"]})
    notebook = nbformat.v4.new_notebook(cells=[first, second])
    assert len(set_out_of_sight(notebook)) == number
