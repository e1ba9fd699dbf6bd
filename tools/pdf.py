"""Print the built pages as one book: _build/pdf/laplace-book.pdf.

All pages become one document, in which a link from page to page is a link within it; Chromium
typesets its formulas, as on the pages, and prints it with an outline of its headings. It is printed
twice: the first print says on which page each chapter begins, and the second has it in its contents.

python -m tools.pdf
"""

import os
import re
import sys
from pathlib import Path

import yaml
from bs4 import BeautifulSoup, Tag
from playwright.sync_api import Page, sync_playwright

from tools.chromium import chromium

ROOT = Path(__file__).parent.parent
# The width of the text on A4 between margins of 20 mm, in CSS pixels.
TEXT_WIDTH = round((210 - 40) / 25.4 * 96)

# A formula or a table that is wider than the text is scaled down to it.
FIT = """() => {
  for (const box of document.querySelectorAll('mjx-container[display="true"], article table')) {
    const width = Math.max(box.scrollWidth, ...[...box.children].map(c => c.scrollWidth));
    const room = box.parentElement.clientWidth - (box.parentElement.querySelector('.eqno')?.offsetWidth ?? 0);
    if (width > room) box.style.fontSize = `${parseFloat(getComputedStyle(box).fontSize) * room / width}px`;
  }
}"""

# The numbers of pages, in the contents.
NUMBER = """numbers => {
  for (const place of document.querySelectorAll('.book-contents [data-page]'))
    place.innerText = numbers[place.dataset.page];
}"""


def pages(toc: dict) -> list[str]:
    """The names of all pages in reading order."""
    chapters = toc.get("chapters", []) + [c for p in toc.get("parts", []) for c in p["chapters"]]
    return [toc["root"], *(chapter["file"] for chapter in chapters)]


def captions(toc: dict) -> dict[str, str]:
    """What the part is called that begins with a page."""
    return {part["chapters"][0]["file"]: part["caption"] for part in toc.get("parts", [])}


def one_document(html: Path, names: list[str], pdf: Path, parts: dict[str, str]) -> str:
    """The source of one document, to be stored in the folder `pdf`, with the articles of all pages."""
    articles, contents, mathjax = [], [], []
    for name in names:
        page = BeautifulSoup((html / f"{name}.html").read_text(), "html.parser")
        article = page.select_one("article")
        folder = os.path.relpath((html / name).parent, pdf)
        belong_to(article, name, names, folder)
        title = article.select_one("h1").get_text().rstrip("#")
        if name in parts:
            contents.append(f'<li class="part">{parts[name]}</li>')
        contents.append(
            f'<li><a href="#{prefix(name)}">{title}</a><span data-page="{prefix(name)}"></span></li>'
        )
        article["id"] = prefix(name)
        articles.append(str(article))
        relocate(page.head, folder)
        # Each page loads MathJax, with the same settings, or has no formula.
        mathjax = [
            s for s in page.head.find_all("script") if "mathjax" in str(s).lower()
        ] or mathjax
        styles = page.head.find_all("link", rel="stylesheet")
    static = os.path.relpath(html / "_static", pdf)
    config = yaml.safe_load((ROOT / "_config.yml").read_text())
    return f"""<!DOCTYPE html>
<html lang="en" data-theme="light" data-mode="light">
<head><meta charset="utf-8"><title>{config["title"]}</title>
{"".join(map(str, styles))}
<link rel="stylesheet" href="{static}/print.css">
{"".join(map(str, mathjax))}</head>
<body>
<div class="title-page"><img src="{static}/logo.svg" alt=""><h1>{config["title"]}</h1>
<p>{config["author"]}</p></div>
<nav class="book-contents"><h2>Contents</h2><ol>{"".join(contents)}</ol></nav>
<main class="bd-content">{"".join(articles)}</main>
</body></html>"""


def prefix(name: str) -> str:
    """What the anchors of a page begin with."""
    return name.rpartition("/")[2]


def belong_to(article: Tag, name: str, names: list[str], folder: str) -> None:
    """Make anchors and links of a page those of the book."""
    for element in article.find_all("script"):
        element.decompose()
    for element in article.find_all(id=True):
        element["id"] = f"{prefix(name)}--{element['id']}"
    for link in article.find_all("a", href=True):
        file, _, anchor = link["href"].partition("#")
        target = os.path.normpath(Path(name).parent / file).removesuffix(".html") if file else name
        if re.match(r"[a-z]+:", file):
            continue
        if target in names:
            link["href"] = f"#{prefix(target)}" + (f"--{anchor}" if anchor else "")
        else:
            del link["href"]
    relocate(article, folder)


def relocate(tree: Tag, folder: str) -> None:
    """Make addresses relative to a page's folder relative to that of the book."""
    for element in tree.find_all(["img", "link", "script"]):
        relocate_one(element, folder)


def relocate_one(element: Tag, folder: str) -> None:
    """The same for one element."""
    for attribute in ("src", "href"):
        address = element.get(attribute)
        if address and not re.match(r"[a-z]+:|#", address):
            element[attribute] = f"{folder}/{address}"


def page_numbers(pdf: bytes) -> dict[str, int]:
    """The page, counted from 1, of each anchor that something in a PDF of Chromium leads to.

    Chromium writes the objects of a PDF as plain text, streams apart: a tree of pages, and a table
    of destinations, `/anchor [page 0 R /XYZ ...]`, each a reference to its page.
    """
    kids = {
        number: re.findall(rb"(\d+) 0 R", children)
        for number, children in re.findall(
            rb"(\d+) 0 obj\n<</Type /Pages\n[^>]*?/Kids \[([^]]*)\]", pdf
        )
    }
    root = re.search(rb"/Type /Catalog\n/Pages (\d+) 0 R", pdf)
    table = re.search(rb"/Dests (\d+) 0 R", pdf)
    if not (root and table):
        raise ValueError("this PDF has no catalogue with pages and destinations")

    def leaves(number: bytes) -> list[bytes]:
        """The pages below an object of the tree, in order."""
        below = kids.get(number)
        return [number] if below is None else [leaf for kid in below for leaf in leaves(kid)]

    place = {page: n for n, page in enumerate(leaves(root[1]), 1)}
    start = pdf.index(b"\n%s 0 obj\n<<" % table[1])
    destinations = pdf[start : pdf.index(b"endobj", start)]
    found = re.findall(rb"/(\S+) \[(\d+) 0 R /XYZ", destinations)
    return {name.decode(): place[page] for name, page in found}


def print_book(source: Path, target: Path) -> None:
    """Print the document, once its formulas are typeset and fit the page."""
    if (found := chromium()) is None:
        sys.exit("make pdf needs Chromium: install it, or name it with CHROMIUM=/path")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": TEXT_WIDTH, "height": 1000}, color_scheme="light"
        )
        page.set_default_timeout(0)
        page.goto(source.as_uri())
        page.emulate_media(media="print")
        page.evaluate("window.MathJax.startup.promise.then(() => true)")
        page.evaluate("Promise.all([...document.images].map(image => image.decode()))")
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        page.evaluate(FIT)
        with_numbers(page, target)
        browser.close()


def with_numbers(page: Page, target: Path) -> None:
    """Print a document with the numbers of pages in its contents, which have their place from the start."""
    numbers = page_numbers(page.pdf(prefer_css_page_size=True))
    page.evaluate(NUMBER, numbers)
    printed = page.pdf(
        path=target, prefer_css_page_size=True, outline=True, tagged=True, print_background=True
    )
    if page_numbers(printed) != numbers:
        sys.exit("make pdf: the contents changed the pages that they number")


def main() -> None:
    """Print the book that make book has built."""
    html, folder = ROOT / "_build" / "html", ROOT / "_build" / "pdf"
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    folder.mkdir(parents=True, exist_ok=True)
    source, target = folder / "laplace-book.html", folder / "laplace-book.pdf"
    source.write_text(one_document(html, pages(toc), folder, captions(toc)))
    print_book(source, target)
    print(f"{target}: {target.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
