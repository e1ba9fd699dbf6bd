"""Links from the code of chapters: each cell is parsed once, and has the names that parsing the page again finds."""

import importlib.util

import nbformat
import pytest
from sphinx_codeautolink.parse import parse_names

from tests.book.test_book import CHAPTERS, ROOT

PATH = ROOT / "book" / "_extensions" / "api_links.py"


@pytest.fixture
def parse():
    spec = importlib.util.spec_from_file_location("api_links", PATH)
    spec.loader.exec_module(api_links := importlib.util.module_from_spec(spec))
    return api_links.NamesInContinuedCode()


def test_cells_of_a_chapter_have_the_names_of_the_chapter(parse):
    for path in CHAPTERS:
        cells = nbformat.read(path, as_version=4).cells
        sources = [cell.source for cell in cells if cell.cell_type == "code"]
        pages = ["\n".join(sources[: n + 1]) for n in range(len(sources))]
        found = [name for page in pages for name in parse(page, None)]
        assert found == parse_names(pages[-1], None) != [], path.stem


def test_what_is_no_code_leaves_the_names_before_and_after_it(parse):
    first, page = "import numpy as np", "import numpy as np\nnp.zeros(2)"
    before = parse(first, None)
    with pytest.raises(SyntaxError):
        parse(f"{first}\nnp.", None)
    assert before + parse(page, None) == parse_names(page, None)
