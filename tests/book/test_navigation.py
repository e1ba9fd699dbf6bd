"""The map of chapters says what the chapters say; every notebook says how to install the package."""

import re
from types import SimpleNamespace

import nbformat
import pytest

from tests.book.test_book import CHAPTERS, ROOT, WITHOUT_EXERCISES, code_cells
from tools.notebooks import SOURCE, begin_with_installation, installation


def read(page):
    return nbformat.read(ROOT / "book" / f"{page}.ipynb", as_version=4)


@pytest.fixture(scope="module")
def chapter_map():
    """The titles, ways and prerequisites that the first page draws."""
    names = {}
    for cell in read("intro").cells:
        if cell.id in ("ways-titles", "ways-lines"):
            exec(cell.source, names)
    return SimpleNamespace(**names)


def ancestors(builds_on, page):
    return set(builds_on[page]).union(*(ancestors(builds_on, other) for other in builds_on[page]))


def said_to_build_on(text):
    """The chapters in the sentences of a title cell that say what the chapter builds on."""
    sentences = re.split(r"(?<=\.)\s", text)
    said = " ".join(s for s in sentences if re.search(r"\b(builds on|continues)\b", s))
    return set(re.findall(r"\]\(([\w-]+)\.ipynb\)", said)) | set(
        re.findall(r"\{prf:ref\}`([\w-]+)-theorem`", said)
    )


def complaints_about_map(chapter_map, titles):
    """What the map and the chapters' first cells say differently."""
    builds_on, complaints = chapter_map.builds_on, []
    for page, text in titles.items():
        said = said_to_build_on(text)
        complaints += [f"{page}: a line from {p}" for p in set(builds_on[page]) - said - {"intro"}]
        missing = said - ancestors(builds_on, page)
        complaints += [f"{page}: no line from {other}" for other in missing]
    return complaints


def test_map_has_every_chapter(chapter_map):
    chapters = {path.stem for path in CHAPTERS} - WITHOUT_EXERCISES
    assert set(chapter_map.titles) == set(chapter_map.builds_on) == chapters | {"intro"}


def test_map_agrees_with_the_chapters(chapter_map):
    titles = {page: read(page).cells[0].source for page in chapter_map.titles}
    assert complaints_about_map(chapter_map, titles) == []
    assert complaints_about_map(chapter_map, titles | {"taylor": "It builds on [](scaling.ipynb)."})
    assert complaints_about_map(chapter_map, titles | {"scaling": "It builds on nothing."})


def test_a_weekend_leaves_out_nothing_that_it_needs(chapter_map):
    weekend = {page for page, way in chapter_map.way.items() if way != "course"}
    needed = set().union(*(ancestors(chapter_map.builds_on, page) for page in weekend))
    assert needed <= weekend


def without_installation(notebook):
    """The first code cell does not say how to install the package, hidden, and silent where it is there."""
    (_, cell), wanted = code_cells(notebook)[0], installation(SOURCE)
    same = all(cell[key] == wanted[key] for key in ("id", "source", "metadata", "outputs"))
    return [] if same else ["the first code cell is not that of tools/notebooks.py"]


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_notebook_says_how_to_install_the_package(path):
    assert without_installation(read(path.stem)) == []


def test_missing_installation_is_noticed_and_repaired():
    notebook = read("taylor")
    del notebook.cells[1]
    assert without_installation(notebook)
    begin_with_installation(notebook)
    assert without_installation(notebook) == []
