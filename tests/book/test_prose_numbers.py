"""No number in the prose of a chapter is only typed: see prose_numbers.py for the rule."""

import tomllib
from pathlib import Path

import nbformat
import pytest

from tests.book.prose_numbers import unbacked

ROOT = Path(__file__).parents[2]
CHAPTERS = sorted((ROOT / "book").glob("*.ipynb"))
GIVENS = tomllib.loads((ROOT / "tests" / "book" / "prose_givens.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_numbers_in_prose(path):
    complaints = unbacked(nbformat.read(path, as_version=4), GIVENS.get(path.stem, {}))
    assert not complaints, f"book/{path.name}: " + "; ".join(complaints)


def test_givens_are_of_chapters_and_say_why():
    assert GIVENS.keys() <= {path.stem for path in CHAPTERS}
    assert all(len(why) > 10 for chapter in GIVENS.values() for why in chapter.values())


def a_notebook(prose, *outputs, code="assert error < 0.02", alt=""):
    new = nbformat.v4
    cell = new.new_code_cell(code, metadata={"mystnb": {"image": {"alt": alt}}})
    cell.outputs = [new.new_output("stream", name="stdout", text=text) for text in outputs]
    return new.new_notebook(cells=[new.new_markdown_cell(prose), cell])


RIGHT = {
    "rounded": ("It is $0.43$.", "0.4312"),
    "in tables": ("| a | -1.5 |", "[-1.52, 3]"),
    "fraction as percentage": (r"It is 4.3 % and $12\,\%$.", "0.0431 0.1199"),
    "percentage as fraction": ("It is 0.043.", "+4.31%"),
    "exponents": (r"$2\cdot10^{-8}$ or 2e-8 or $10^{-3}$", "1.96e-08 1.2e-03"),
    "ratio": ("Ten times as many, a factor of three, twelve per cent.", "10.2 2.98 12%"),
    "thousands": ("eight thousand times fewer", "8,446"),
    "three digits in another part": ("It is 0.431.\n\n## Next", "0.4312"),
    "bound": ("It is below 2 %.", ""),
    "given": ("The prior has 7.25.", ""),
    "not prose": (
        "```python\n1.1\n```\n`1.2` [a](b1.3) section 4.5.1 doi:10.6/7.8 sections 2.1 and 3.2",
        "",
    ),
}
WRONG = {
    "digit": ("It is $0.44$.", "0.4312"),
    "more digits than printed": ("It is 0.43.", "0.4"),
    "sign": ("It is $-0.43$.", "0.4312"),
    "not printed": (r"\approx0.43", ""),
    "percentage": ("It is 44 %.", "0.4312 44"),
    "spelled": ("It is five per cent.", "0.0431"),
    "exponent": (r"$10^{-7}$", "1.2e-08"),
    "ratio": ("It takes 12 times as long.", "12 12.6"),
    "factor": ("a factor of three", "2.4"),
    "bound": ("It is below 3 %.", ""),
    "another part": ("It is 0.4.\n\n## Next", "0.4312"),
}


@pytest.mark.parametrize("case", RIGHT)
def test_accepts(case):
    prose, output = RIGHT[case]
    givens = {"7.25": "prior mean"} if case == "given" else {}
    assert unbacked(a_notebook(prose, output), givens) == []


@pytest.mark.parametrize("case", WRONG)
def test_notices(case):
    assert unbacked(a_notebook(*WRONG[case]), {})


def test_notices_a_stale_given_and_reads_alternative_texts():
    notebook = a_notebook("It is 0.43.", "0.4312", code="x = 1.5", alt="From 0 to 1.5.")
    assert unbacked(notebook, {}) == []
    assert unbacked(notebook, {"7.25": "prior mean"})
    notebook.cells[1].metadata.mystnb.image.alt = "From 0 to 1.7."
    assert unbacked(notebook, {})
