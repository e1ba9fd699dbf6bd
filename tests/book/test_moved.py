"""Links to what has moved to another page lead there, and a page that is not there says where the book begins."""

import http.server
import importlib.util
import io
import threading
import tomllib
from functools import partial

import pytest
from sphinx.application import Sphinx

from tests.book.test_book import ROOT
from tests.book.test_browser import HTML, browser, visit
from tests.book.test_built import read as read_page

__all__ = ["browser"]

PATH = ROOT / "book" / "_extensions" / "moved.py"
FILE = ROOT / "book" / "moved.toml"
MOVED = [
    (page, anchor, target)
    for page, anchors in (tomllib.loads(FILE.read_text()) if FILE.is_file() else {}).items()
    for anchor, target in anchors.items()
]


@pytest.fixture(scope="module")
def moved():
    spec = importlib.util.spec_from_file_location("moved", PATH)
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module


def build(folder, table):
    """The pages and the warnings of a book of two pages, of which the first has lost a section to the second."""
    (folder / "book").mkdir()
    (folder / "index.rst").write_text("Book\n====\n\n.. toctree::\n\n   book/old\n   book/new\n")
    (folder / "book" / "old.rst").write_text("Old\n===\n\nKept\n----\n\nWords.\n")
    (folder / "book" / "new.rst").write_text(
        "New\n===\n\n" + "Words.\n\n" * 80 + "Gone\n----\n\nHere.\n"
    )
    (folder / "book" / "moved.toml").write_text(table)
    settings = {"extensions": ["moved"], "html_theme": "basic"}
    out, warned = folder / "out", io.StringIO()
    Sphinx(
        folder, None, out, folder / "tree", "html", settings, status=None, warning=warned
    ).build()
    return out / "book", warned.getvalue()


@pytest.fixture
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(PATH.parent))


def test_a_page_that_lost_a_section_sends_its_readers_on(tmp_path, on_path):
    pages, warned = build(tmp_path, '[old]\n"gone" = "new"\n')
    assert warned == ""
    assert '{"gone": "new"}' in (pages / "old.html").read_text()
    assert "location.replace" not in (pages / "new.html").read_text()


@pytest.mark.parametrize(
    ("page", "target", "missing"), [("old", "nowhere", "nowhere"), ("odl", "new", "odl")]
)
def test_a_page_that_is_not_in_the_book_is_a_warning(tmp_path, on_path, page, target, missing):
    _, warned = build(tmp_path, f'[{page}]\n"gone" = "{target}"\n')
    assert f"there is no page book/{missing}" in warned
    assert warned.count("there is no page") == 1


def test_an_anchor_cannot_end_the_script(moved):
    assert "</script>" not in moved.script({"</script>": "new"})


def test_a_book_in_which_nothing_moved_has_no_table(moved, tmp_path):
    assert moved.read(tmp_path / "moved.toml") == {}


@pytest.mark.browser
def test_the_browser_follows(browser, tmp_path, on_path):
    pages, _ = build(tmp_path, '[old]\n"gone" = "new"\n')
    page = browser.new_page()
    page.goto((pages / "old.html").as_uri() + "#kept")
    assert page.url.endswith("old.html#kept")
    page.evaluate("location.hash = 'gone'")
    page.wait_for_url("**/new.html#gone")
    page.goto((pages / "old.html").as_uri() + "#gone")
    page.wait_for_url("**/new.html#gone")
    assert page.evaluate("scrollY") > 0
    page.close()


@pytest.mark.browser
@pytest.mark.parametrize(("page", "anchor", "target"), MOVED)
def test_what_moved_is_on_the_other_page_and_no_longer_on_its_own(page, anchor, target):
    old, new = (HTML / "book" / f"{name}.html" for name in (page, target))
    if not HTML.is_dir():
        pytest.skip("needs make book first")
    assert anchor in read_page(new).anchors
    assert anchor not in read_page(old).anchors


class NoSuchPage(http.server.SimpleHTTPRequestHandler):
    """A server that answers with 404.html, as those of static pages do, for a book in the folder /laplace/."""

    def translate_path(self, path):
        found = super().translate_path(path.removeprefix("/laplace"))
        there = path.startswith("/laplace/") and not path.endswith(("missing.html", "missing"))
        return found if there else str(HTML / "404.html")

    def log_message(self, *arguments):
        """Say nothing."""


@pytest.fixture(scope="module")
def address():
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(NoSuchPage, directory=str(HTML))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/laplace"
    server.shutdown()
    server.server_close()


@pytest.mark.browser
@pytest.mark.parametrize("path", ["missing", "book/missing.html", "book/a/b/missing.html"])
def test_a_page_that_is_not_there_leads_to_the_beginning_from_any_depth(browser, address, path):
    page = browser.new_page(color_scheme="dark")
    page.goto(f"{address}/{path}")
    assert page.evaluate("document.images[0].naturalWidth") > 0
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.click("text=Start here")
    page.wait_for_url(f"{address}/book/intro.html")
    page.close()


@pytest.mark.browser
def test_a_page_that_is_not_there_opens_from_the_disk_too(browser):
    with visit(browser, HTML / "404.html") as page:
        page.fill("input[name=q]", "Laplace")
        page.keyboard.press("Enter")
        page.wait_for_selector("#search-results li")
        assert page.trouble == []
