"""The map of chapters says what the chapters say; every notebook says how to install the package."""

import importlib.util
import re
from itertools import combinations

import nbformat
import pytest

from tests.book.test_book import CHAPTERS, ROOT, code_cells
from tools import draw_map
from tools.draw_map import Said, said
from tools.notebooks import SOURCE, begin_with_installation, installation


def read(page):
    return nbformat.read(ROOT / "book" / f"{page}.ipynb", as_version=4)


@pytest.fixture(scope="module")
def book():
    """What each chapter says that it builds on."""
    return draw_map.chapters()


def test_committed_map_is_what_the_chapters_say(book):
    assert draw_map.MAP.read_text() == draw_map.draw(book), "run python -m tools.draw_map"
    other = book | {"scaling": Said({"taylor"}, set())}
    assert draw_map.MAP.read_text() != draw_map.draw(other)


def test_map_has_every_chapter_of_the_menu(book):
    assert set(book) == {path.stem for path in CHAPTERS} - draw_map.NO_CHAPTERS
    with pytest.raises(KeyError, match="no place on the map for .'new'"):
        draw_map.draw(book | {"new": Said({"taylor"}, set())})


def test_start_here_says_what_every_chapter_answers(book):
    (table,) = (c.source for c in read("intro").cells if c.source.startswith("| chapter |"))
    listed = re.findall(r"^\| \[[^]]+\]\((\S+)\.ipynb\)", table, re.M)
    assert sorted(listed) == sorted(set(book) - {"intro"})


def test_every_chapter_says_what_it_builds_on(book):
    first, *others = book
    assert book[first] == Said(set(), set())
    for page in others:
        needs, uses = book[page]
        assert needs and needs | uses <= set(book), page


def test_arrows_of_the_map_go_down_and_its_boxes_lie_apart(book):
    for begin, end, _ in draw_map.arrows(book):
        assert draw_map.PLACES[begin].row < draw_map.PLACES[end].row
    places = [draw_map.PLACES[page] for page in book]
    for a, b in combinations(places, 2):
        assert a.row != b.row or abs(a.column - b.column) >= 1


@pytest.mark.parametrize(
    ("text", "needs", "uses"),
    [
        ("It builds on the expansion of [T](taylor.ipynb). See [S](scaling.ipynb).", "taylor", ""),
        ("It continues [N](a.ipynb), and builds on the conditional of [L](b.ipynb).", "a", "b"),
        ("It builds on [L](a.ipynb); two facts from [G](b.ipynb) are stated.", "a", "b"),
        ("It builds on facts of [L](a.ipynb) and on [G](b.ipynb) and on [L](a.ipynb).", "a b", ""),
        ("It builds on {prf:ref}`laplace-theorem` and on derivatives.", "laplace", ""),
        ("It is about [T](taylor.ipynb).", "", ""),
    ],
)
def test_what_a_chapter_says_is_understood(text, needs, uses):
    assert said(text) == Said(set(needs.split()), set(uses.split()))


def test_an_arrow_that_follows_from_others_is_left_out():
    book = {
        "a": Said(set(), set()),
        "b": Said({"a"}, set()),
        "c": Said({"a", "b"}, set()),
        "d": Said({"c"}, {"a"}),
        "e": Said({"a"}, {"b"}),
        "f": Said({"b", "e"}, set()),
    }
    assert draw_map.arrows(book) == [
        ("a", "b", "needs"),
        ("b", "c", "needs"),
        ("c", "d", "needs"),
        ("a", "e", "needs"),
        ("b", "e", "uses"),
        ("b", "f", "needs"),
        ("e", "f", "needs"),
    ]


def test_a_weekend_leaves_out_nothing_that_it_needs(book):
    graph = {page: needs | uses for page, (needs, uses) in book.items()}
    weekend = {page for page in book if draw_map.PLACES[page].way != "course"}
    assert set().union(*(draw_map.ancestors(graph, page) for page in weekend)) <= weekend


def missing_parts(text, chapters):
    """Of the rows that name a chapter and, in italics, its parts: those that the chapter does not have."""
    complaints = []
    for line in text.splitlines():
        for page, parts in re.findall(
            r"\]\(([\w-]+)\.ipynb\): ((?:\*[^*]+\*[,;.] ?(?:and )?)+)", line
        ):
            there = set(re.findall(r"^#+ (.*)$", chapters(page), re.M))
            complaints += [
                f"{page}: {p}" for p in re.findall(r"\*([^*]+)\*", parts) if p not in there
            ]
    return complaints


def text_of(page):
    return "\n".join(cell.source for cell in read(page).cells if cell.cell_type == "markdown")


def test_the_parts_that_the_first_page_names_are_there():
    text = text_of("intro")
    named = re.findall(r"\]\([\w-]+\.ipynb\): \*", text)
    assert named
    assert missing_parts(text, text_of) == []
    assert missing_parts("[A](a.ipynb): *Here*, and *There*.", lambda page: "## Here") == [
        "a: There"
    ]


def test_the_drawing_takes_the_place_and_the_description_of_its_picture():
    spec = importlib.util.spec_from_file_location(
        "chapter_map", ROOT / "book" / "_extensions" / "chapter_map.py"
    )
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    body = '<p><img alt="A map." src="../_images/map.svg" /></p><img src="../_images/a.png">'
    drawing = '<svg aria-label="Short"><a href="b.html"></a></svg>'
    shown = '<svg aria-label="A map."><a href="b.html"></a></svg>'
    assert module.with_links(body, drawing) == f'<p>{shown}</p><img src="../_images/a.png">'


def without_installation(notebook):
    """The first code cell does not say how to install the package, hidden, and silent where it is there."""
    cells = [cell for _, cell in code_cells(notebook)]
    cell, wanted = cells[0], installation(SOURCE, "".join(other.source for other in cells))
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
