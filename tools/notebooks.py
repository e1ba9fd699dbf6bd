"""Execute notebooks and write them back in one normal form, so that a diff shows only what changed.

python -m tools.notebooks book/taylor.ipynb ...
"""

import base64
import sys
import tomllib
from pathlib import Path

import nbformat

from tools.execution import execute_all

KEPT_CELL_METADATA = {"tags", "mystnb", "jupyter"}
# What the book folds or leaves out of a page. Plain Jupyter knows no tags: it collapses a source by its metadata.
FOLDING_TAGS = {"hide-input", "hide-cell", "remove-input", "remove-cell"}
PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
SOURCE = PROJECT["urls"].get("Source", "")
SPARSE = 'structure="sparse"'  # in the code of a chapter that needs what the extra "sparse" brings
SAY_HOW_TO_INSTALL = """\
from importlib.util import find_spec

if {missing}:
    raise ModuleNotFoundError(
        "{what} is not installed for this kernel. Run one of these lines in a new cell,\\n"
        "  %pip install ..{extra}      # if this notebook lies in book/, in the folder of the book\\n"
        "  %pip install WHEEL{extra}   # with the path of the package's wheel, a file laplacebook-*.whl\\n"
        "and then this cell again."
    )"""
INSTALL_ON_COLAB = """\
import sys
from importlib.util import find_spec

if "google.colab" in sys.modules:
    %pip install -q "laplacebook{extra} @ git+{source}"
elif {missing}:
    raise ModuleNotFoundError(
        "{what} is not installed for this kernel. Run this line in a new cell,\\n"
        "  %pip install 'laplacebook{extra} @ git+{source}'\\n"
        "and then this cell again."
    )"""
NOTEBOOK_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"file_extension": ".py", "name": "python", "pygments_lexer": "ipython3"},
}


def main(paths: list[str]) -> int:
    """Execute and normalise each path; return 1 if one failed, whose file is left as it was."""
    notebooks = {path: nbformat.read(path, as_version=4) for path in map(Path, paths)}
    for notebook in notebooks.values():
        name_cells(notebook)
        begin_with_installation(notebook)
    failed = False
    for run in execute_all(notebooks, timeout=120):
        if run.failure:
            print(run.failure, file=sys.stderr)
            failed = True
            continue
        changed = write_if_changed(run.path, normalise(run.notebook))
        print(f"{run.path}: {run.seconds:.1f} s, {'written' if changed else 'unchanged'}")
    return int(failed)


def name_cells(notebook: nbformat.NotebookNode) -> None:
    """Give a cell that has no id the first free one; ids that are there stay."""
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    used = {cell.get("id") for cell in notebook.cells}
    free = (name for i in range(len(notebook.cells)) if (name := f"cell-{i:02d}") not in used)
    for cell in notebook.cells:
        if "id" not in cell:
            cell["id"] = next(free)


def installation(source: str, code: str = "") -> nbformat.NotebookNode:
    """A hidden cell that says how to install the package where it is missing, or does so on Colab, given an address.

    With the packages for a sparse precision, where the code of the notebook needs them.
    """
    extra, missing, what = "", 'find_spec("laplacebook") is None', "laplacebook"
    if SPARSE in code:
        extra, what = "[sparse]", "laplacebook[sparse]"
        missing = 'not all(map(find_spec, ("laplacebook", "asdex", "numba", "qdldl")))'
    template = INSTALL_ON_COLAB if source else SAY_HOW_TO_INSTALL
    return nbformat.v4.new_code_cell(
        template.format(source=source, extra=extra, missing=missing, what=what),
        id="installation",
        metadata={"tags": ["remove-cell"]},
    )


def begin_with_installation(notebook: nbformat.NotebookNode) -> None:
    """Put that cell below the title."""
    code = "".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    cell = installation(SOURCE, code)
    notebook.cells = [other for other in notebook.cells if other.id != cell.id]
    notebook.cells.insert(1, cell)


def folded(cell: nbformat.NotebookNode) -> bool:
    """Whether a code cell's source is out of sight on the page; the cell that says how to install is for Jupyter."""
    return bool(FOLDING_TAGS & {*cell.metadata.get("tags", [])}) and cell.id != "installation"


def collapse_folded(notebook: nbformat.NotebookNode) -> None:
    """Let plain Jupyter collapse the sources that the page folds."""
    for cell in notebook.cells:
        if cell.cell_type == "code" and folded(cell):
            cell.metadata.setdefault("jupyter", {})["source_hidden"] = True


def normalise(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Drop what differs from one machine or run to the next, and collapse what the page folds."""
    notebook.metadata = nbformat.from_dict(NOTEBOOK_METADATA)
    collapse_folded(notebook)
    for cell in notebook.cells:
        for key in cell.metadata.keys() - KEPT_CELL_METADATA:
            del cell.metadata[key]
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                data["image/png"] = without_text_chunks(data["image/png"])
    return notebook


def without_text_chunks(png_base64: str) -> str:
    """The same PNG without its tEXt chunks, in which matplotlib names its version."""
    png = base64.b64decode(png_base64)
    kept, at = [png[:8]], 8
    while at < len(png):
        end = at + 12 + int.from_bytes(png[at : at + 4], "big")
        if png[at + 4 : at + 8] != b"tEXt":
            kept.append(png[at:end])
        at = end
    return base64.b64encode(b"".join(kept)).decode()


def write_if_changed(path: Path, notebook: nbformat.NotebookNode) -> bool:
    """Write the notebook; False if the file already said exactly this."""
    text = nbformat.writes(notebook) + "\n"
    changed = path.read_text(encoding="utf-8") != text
    if changed:
        path.write_text(text, encoding="utf-8")
    return changed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
