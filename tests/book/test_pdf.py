"""The document that make pdf prints: all pages, links that stay in it, and contents with the numbers of pages."""

import pytest
import yaml

from tests.book.test_book import ROOT
from tests.book.test_browser import browser
from tools.pdf import captions, one_document, page_numbers, pages, with_numbers

__all__ = ["browser"]

PAGE = """<html><head><link rel="stylesheet" href="../_static/book.css"></head><body>
<article><h1 id="title">{name}<a class="headerlink" href="#title">#</a></h1>
<a href="{other}.html#title">there</a> <a href="#title">here</a> <a href="{other}.html">page</a>
<a href="../genindex.html">index</a> <a href="https://example.org/">site</a>
<img src="../_images/a.png"><script>alert()</script></article></body></html>"""


def test_pages_become_one_document(tmp_path):
    (tmp_path / "html" / "book").mkdir(parents=True)
    for name, other in (("a", "b"), ("b", "a")):
        page = PAGE.format(name=name, other=other)
        (tmp_path / "html" / "book" / f"{name}.html").write_text(page)
    text = one_document(
        tmp_path / "html", ["book/a", "book/b"], tmp_path / "pdf", {"book/b": "Part"}
    )
    assert text.index('id="a--title"') < text.index('id="b--title"')
    for address in ("#b--title", "#a--title", "#a", "#b", "https://example.org/"):
        assert f'href="{address}"' in text
    assert "../html/book/../_images/a.png" in text
    assert "genindex" not in text and "alert" not in text
    assert text.index('#a">a</a>') < text.index('class="part">Part<') < text.index('#b">b</a>')


def test_parts_are_those_of_the_menu():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    parts = captions(toc)
    assert list(parts.values()) == [part["caption"] for part in toc["parts"]]
    assert set(parts) <= set(pages(toc))


PDF = b"""%PDF-1.4
3 0 obj
<</Type /Pages
/Count 2
/Kids [5 0 R 4 0 R]
/Parent 7 0 R>>
endobj
7 0 obj
<</Type /Pages
/Count 3
/Kids [3 0 R 9 0 R]>>
endobj
8 0 obj
<</a [4 0 R /XYZ 0 800 0]
/b-2 [9 0 R /XYZ 0 800 0]>>
endobj
10 0 obj
<</Type /Catalog
/Pages 7 0 R
/Dests 8 0 R>>
endobj
"""


def test_numbers_of_pages_are_read_from_the_tree_of_pages():
    assert page_numbers(PDF) == {"a": 2, "b-2": 3}


def test_a_pdf_without_destinations_is_refused():
    with pytest.raises(ValueError, match="no catalogue with pages and destinations"):
        page_numbers(b"%PDF-1.4")


@pytest.mark.browser
def test_contents_name_the_page_on_which_a_chapter_begins(browser, tmp_path):
    lengths = {"a": 1, "b": 120, "c": 1}
    items = "".join(
        f'<li><a href="#{n}">{n}</a><span data-page="{n}"></span></li>' for n in lengths
    )
    chapters = "".join(
        f'<article id="{n}"><h1>{n}</h1>{"<p>Words.</p>" * many}</article>'
        for n, many in lengths.items()
    )
    style = (ROOT / "book" / "_static" / "print.css").read_text()
    page = browser.new_page()
    page.set_content(
        f'<style>{style}</style><nav class="book-contents"><ol>{items}</ol></nav>{chapters}'
    )
    with_numbers(page, tmp_path / "book.pdf")
    shown = page.locator("[data-page]").all_inner_texts()
    assert shown[:2] == ["2", "3"] and int(shown[2]) > 4
    assert page_numbers((tmp_path / "book.pdf").read_bytes()) == dict(
        zip("abc", map(int, shown), strict=True)
    )
    page.close()
