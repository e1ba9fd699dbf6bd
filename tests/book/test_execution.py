"""What make book and make notebooks say of chapters that do not run: which cell of each, and why."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = Path(__file__).parents[2]
RUNS = {"computes": ["print(6 * 7)"]}
DOES_NOT = {
    "raises": ["x = 1", "1 / 0"],
    "warns": ["import sys", "print('careful', file=sys.stderr)"],
    "waits": ["import time\n\ntime.sleep(60)"],
    "dies": ["import os", "import sys", "os._exit(1)"],
}


def write(folder, chapters):
    """Notebooks whose committed outputs are those of other code."""
    for name, sources in chapters.items():
        stale = [new_output("stream", text="41\n")]
        code = [new_code_cell(source, outputs=stale) for source in sources]
        notebook = new_notebook(cells=[new_markdown_cell(f"# A title: {name}"), *code])
        nbformat.write(notebook, folder / f"{name}.ipynb")


def build(folder, chapters):
    """Build a book of these chapters, as text, with the settings of this one but for the most seconds of a cell."""
    for name in ("tools", "pyproject.toml"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "book").mkdir()
    for name in ("_extensions", "_static", "_templates", "references.bib"):
        (folder / "book" / name).symlink_to(ROOT / "book" / name)
    settings = (ROOT / "_config.yml").read_text()
    assert "timeout: 120" in settings
    (folder / "_config.yml").write_text(settings.replace("timeout: 120", "timeout: 5"))
    first, *others = chapters
    toc = ["format: jb-book", f"root: book/{first}", "chapters:" * bool(others)]
    toc += [f"- file: book/{name}" for name in others]
    (folder / "_toc.yml").write_text("\n".join(toc))
    write(folder / "book", chapters)
    program = Path(sys.executable).with_name("jupyter-book")
    strict = ["-W", "-n", "--keep-going", "--builder", "custom", "--custom-builder", "text"]
    return run(folder, program, "build", ".", *strict)


def run(folder, *command, **environment):
    environment = {**os.environ, "JUPYTER_PREFER_ENV_PATH": "1", **environment}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=110
    )


def test_chapters_show_what_this_build_computed(tmp_path):
    built = build(tmp_path, RUNS)
    assert built.returncode == 0, built.stdout + built.stderr
    text = (tmp_path / "_build" / "text" / "book" / "computes.txt").read_text()
    assert "42" in text and "41" not in text


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    return build(tmp_path_factory.mktemp("failed"), RUNS | DOES_NOT)


def test_a_build_fails_and_names_every_chapter_that_does_not_run(failed):
    assert failed.returncode != 0
    assert "a cell failed in " in failed.stderr
    named = failed.stderr.split("a cell failed in ")[1].splitlines()[0]
    assert set(named.split(", ")) == {"book/raises", "book/waits", "book/dies"}


@pytest.mark.parametrize(
    "chapter, says",
    {
        "raises": ["raises.ipynb, cell 2:", "1 / 0", "ZeroDivisionError", "division by zero"],
        "warns": ["warns.ipynb:", "ERROR: stderr was found in the cell outputs of cell 3"],
        "waits": ["waits.ipynb, cell 1:", "timed out", "time.sleep(60)"],
        "dies": ["dies.ipynb, cell 3:", "Kernel died"],
    }.items(),
)
def test_a_build_says_which_cell_and_why(failed, chapter, says):
    assert [part for part in says if part not in failed.stderr] == []


def test_a_warning_alone_fails_a_build(tmp_path):
    built = build(tmp_path, {"warns": DOES_NOT["warns"]})
    assert built.returncode != 0 and "warns.ipynb" in built.stderr


def test_make_notebooks_leaves_a_chapter_that_fails_and_writes_the_others(tmp_path):
    write(tmp_path, RUNS | {"raises": DOES_NOT["raises"]})
    paths = [tmp_path / "raises.ipynb", tmp_path / "computes.ipynb"]
    before = paths[0].read_bytes()
    ran = run(ROOT, sys.executable, "-m", "tools.notebooks", *map(str, paths))
    assert ran.returncode == 1
    assert f"{paths[0]}, cell 3:" in ran.stderr and "ZeroDivisionError" in ran.stderr
    assert paths[0].read_bytes() == before
    cells = nbformat.read(paths[1], as_version=4).cells
    assert cells[-1].outputs[0].text == "42\n" and cells[1].id == "installation"
