"""What the built site offers: its notebooks, and with a public address its cards, site map and buttons."""

import os
import re
from functools import cache
from html.parser import HTMLParser
from urllib.parse import parse_qs, urlparse
from xml.etree import ElementTree

import pytest
from bs4 import BeautifulSoup

from tests.book.test_book import CHAPTERS, ROOT
from tests.test_packaging import PROJECT
from tools.draw_map import chapters

HTML = ROOT / "_build" / "html"
SOURCE = PROJECT["urls"].get("Source", "")
BASE = PROJECT["urls"].get("Documentation", "")
PAGES = sorted(page.relative_to(HTML).as_posix() for page in (HTML / "book").glob("*.html"))
CARD = ["title", "type", "url", "site_name", "description", "image", "image:alt"]

pytestmark = pytest.mark.browser


class Tags(HTMLParser):
    """The attributes of each tag of a page, by the tag's name."""

    def __init__(self, text):
        super().__init__()
        self.found = {}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.setdefault(tag, []).append(dict(attributes))


@cache
def tags(page):
    return Tags((HTML / page).read_text()).found


def links(page, part):
    """The addresses on a page that contain a text."""
    return [a["href"] for a in tags(page)["a"] if part in a.get("href", "")]


@pytest.fixture(scope="module", autouse=True)
def built():
    if not PAGES:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("needs make book first")


def test_site_map_lists_every_page_of_an_address():
    file = HTML / "sitemap.xml"
    assert file.is_file() == bool(BASE)
    if BASE:
        listed = [
            address.text for address in ElementTree.parse(file).getroot().findall(".//{*}loc")
        ]
        assert sorted(listed) == [BASE + page for page in PAGES]


def test_every_page_of_an_address_has_a_card():
    for page in PAGES:
        meta = {m["property"][3:]: m["content"] for m in tags(page)["meta"] if "property" in m}
        assert list(meta) == (CARD if BASE else []), page
        if BASE:
            assert meta["url"] == BASE + page
            assert len(meta["description"]) > 60, page
            assert (HTML / meta["image"].removeprefix(BASE)).is_file()


def test_every_notebook_can_be_downloaded_and_with_an_address_launched_and_edited():
    for notebook in CHAPTERS:
        page, path = f"book/{notebook.stem}.html", f"book/{notebook.name}"
        launched = [parse_qs(urlparse(a).query) for a in links(page, "mybinder.org")]
        assert launched == [{"urlpath": [f"lab/tree/{path}"]}] * bool(SOURCE)
        assert len(links(page, f"/edit/main/{path}")) == bool(SOURCE)
        assert len(links(page, "/issues/new")) == bool(SOURCE)
        assert links(page, "/_sources/") == [f"../_sources/{path}"]
        assert (HTML / "_sources" / path).read_bytes() == notebook.read_bytes()


def test_map_of_chapters_leads_to_every_chapter():
    page = BeautifulSoup((HTML / "book" / "intro.html").read_text(), "html.parser")
    boxes = page.select(".chapter-map svg a")
    assert [a["href"].removesuffix(".html") for a in boxes] == list(chapters())
    assert {f"book/{a['href']}" for a in boxes} <= set(PAGES)


def test_execution_times_name_every_notebook():
    rows = re.findall(r"<tr.*?</tr>", (HTML / "book" / "execution.html").read_text(), re.S)
    timed = {
        m[1]: float(m[2])
        for row in rows
        if (m := re.search(r'href="(.+?)\.html".*?<p>(\d+\.\d+)', row, re.S))
    }
    assert timed.keys() == {notebook.stem for notebook in CHAPTERS}
