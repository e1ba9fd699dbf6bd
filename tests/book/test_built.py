"""The built pages as files: links that lead somewhere, and what they weigh together (make book browser-test)."""

from functools import cache
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

from tests.book.test_browser import HTML, PAGES

MOST_BYTES = 60_000_000

pytestmark = pytest.mark.browser


class Page(HTMLParser):
    """What a page can be linked to by, links to, and loads."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.loads = {"", "top"}, [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = {name: value or "" for name, value in attributes}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(values["href"])
        elif "src" in values:
            self.loads.append(values["src"])


@cache
def read(path):
    return Page(path.read_text(encoding="utf-8"))


def target(path, address):
    """(file, anchor) that an address on a page leads to; None if that is another site."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return None
    return (path.parent / unquote(parts.path)).resolve() if parts.path else path, parts.fragment


def broken_links(path):
    complaints = []
    for address in {*read(path).links, *read(path).loads}:
        if (found := target(path, address)) is None:
            continue
        file, anchor = found
        if not file.is_file():
            complaints.append(f"{address}: no such file")
        elif file.suffix == ".html" and unquote(anchor) not in read(file).anchors:
            complaints.append(f"{address}: no such anchor")
    return sorted(complaints)


@pytest.fixture(params=PAGES or [HTML / "index.html"], ids=lambda path: path.stem)
def path(request):
    if not PAGES:
        pytest.skip("needs make book first")
    return request.param


def test_links_lead_somewhere(path):
    assert broken_links(path) == []


def test_book_is_light():
    assert sum(f.stat().st_size for f in HTML.rglob("*") if f.is_file()) <= MOST_BYTES


def test_checks_notice(tmp_path):
    page, other = tmp_path / "page.html", tmp_path / "other.html"
    other.write_text('<h1 id="there">x</h1>')
    page.write_text(
        '<a href="other.html#there">a</a><a href="#top">b</a><a href="https://example.org/x">c</a>'
        '<a href="gone.html">d</a><a href="other.html#gone">e</a><img src="gone.png">'
    )
    assert broken_links(page) == [
        "gone.html: no such file",
        "gone.png: no such file",
        "other.html#gone: no such anchor",
    ]
