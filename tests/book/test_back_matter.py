"""The bibliography, the API page and the docstrings point at what is there, and at all of it."""

import inspect
import json
import re
from functools import cached_property
from pathlib import Path

import pytest

import laplacebook

BOOK = Path(__file__).parents[2] / "book"
ENTRIES = dict(
    re.findall(r"^@\w+\{(\S+),\n(.*?)^\}", (BOOK / "references.bib").read_text(), re.M | re.S)
)
MODULES = {"datasets", "exercises", "gallery", "models", "plotting"}
PUBLIC = [name for name in laplacebook.__all__ if name not in MODULES]


def pages():
    """Name -> Markdown of each page."""
    texts = {path.stem: path.read_text() for path in BOOK.glob("*.md")}
    for path in BOOK.glob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        texts[path.stem] = "\n".join(
            "".join(c["source"]) for c in cells if c["cell_type"] == "markdown"
        )
    return texts


PAGES = pages()


def test_every_entry_is_cited_and_every_citation_has_an_entry():
    roles = re.findall(r"\{cite:[tp]\}`([^`]+)`", "\n".join(PAGES.values()))
    cited = {key for keys in roles for key in keys.split(",")}
    assert cited == ENTRIES.keys()


@pytest.mark.parametrize("key", ENTRIES)
def test_entry_is_named_by_author_and_year_and_says_where_it_is(key):
    entry = ENTRIES[key]
    surname = re.search(r"author\s*= \{(.*?),", entry)[1]
    surname = re.sub(r"\\\W|[^A-Za-z]|^van der", "", surname)
    year = re.search(r"year\s*= \{(\d+)\}", entry)[1]
    assert re.fullmatch(f"{surname}{year}[a-z]?", key)
    assert re.search(r"doi\s*= \{10\.\d{4,}/\S+\}|url\s*= \{https://\S+\}", entry)


@pytest.mark.parametrize("name", PUBLIC)
def test_docstring_cites_the_book(name):
    doc = " ".join(inspect.getdoc(getattr(laplacebook, name)).split())
    assert re.search(r"In the book: .*:doc:`/book/[a-z-]+`", doc)
    text = "\n".join(PAGES.values())
    for role, label in re.findall(r":(doc|eq|prf:ref):`([^`]+)`", doc):
        if role == "doc":
            assert label.removeprefix("/book/") in PAGES
        else:
            assert (f"$$ ({label})" if role == "eq" else f":label: {label}\n") in text


def test_api_page_has_every_public_name_once_and_no_other():
    documented = re.findall(r"^\.\. auto(?:function|class|exception):: (\S+)", PAGES["api"], re.M)
    assert sorted(documented) == sorted(PUBLIC)
    modules = re.findall(r"^\.\. automodule:: laplacebook\.(\S+)", PAGES["api"], re.M)
    assert sorted(modules) == sorted(MODULES | {"slider"})


@pytest.mark.parametrize("name", PUBLIC)
def test_no_colon_in_the_first_line_of_a_property(name):
    """Sphinx takes the words before it for a type, to which there is no link."""
    found = getattr(laplacebook, name)
    members = inspect.getmembers(found) if inspect.isclass(found) else []
    for member, value in members:
        if isinstance(value, property | cached_property) and not member.startswith("_"):
            first = (value.__doc__ or "").split("\n")[0]
            assert ": " not in first, f"{name}.{member}: {first}"
