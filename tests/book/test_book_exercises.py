"""The exercises of the book: text, solution and table name the same answers, and show none of them."""

import json
import re
from pathlib import Path

import pytest
import yaml

import laplacebook as lb
from laplacebook import exercises

BOOK = Path(__file__).parents[2] / "book"
CALL = re.compile(r'lb\.exercises\.check\(\s*"([^"]+)"')


@pytest.fixture(scope="module")
def chapters():
    """Chapter -> (text of the exercise, code cells of its solution) in page order."""
    return {path.stem: sections(json.loads(path.read_text())) for path in BOOK.glob("*.ipynb")}


def sections(notebook):
    texts, solutions, open_for = {}, {}, None
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            assert open_for or not CALL.search(source), source
            solutions.get(open_for, []).append(cell)
        elif found := re.search(r"\{exercise-start\}.*\n:label: (\S+)", source):
            texts[found[1]] = source
        else:
            assert not CALL.search(source), source
            if found := re.search(r"\{solution-start\} (\S+)", source):
                open_for = found[1]
                solutions[open_for] = []
            if "{solution-end}" in source:
                open_for = None
    return [(texts[label], solutions[label]) for label in texts]


def test_every_answer_is_asked_for_once_where_its_name_says_and_its_solution_is_right(chapters):
    asked, solved = [], []
    for chapter, exercises_of_chapter in chapters.items():
        for number, (text, solution) in enumerate(exercises_of_chapter, 1):
            for name in CALL.findall(text):
                assert re.fullmatch(rf"{chapter}-{number}[a-z]?", name), name
                asked.append(name)
            for cell in solution:
                for name in CALL.findall("".join(cell["source"])):
                    assert name in text, f"{name} is checked in the solution of another exercise"
                    (output,) = cell["outputs"]
                    assert "".join(output["data"]["text/plain"]) == f"{name}: right"
                    solved.append(name)
    assert sorted(asked) == sorted(solved) == list(lb.exercises.names())


def test_every_chapter_with_exercises_has_an_answer_to_check(chapters):
    assert [c for c, found in chapters.items() if found and not lb.exercises.names(c)] == []


def test_no_answer_can_be_read(chapters):
    for name, entry in exercises._table().items():
        (text,) = (t for found in chapters.values() for t, _ in found if f'"{name}"' in t)
        mistakes = entry["mistakes"]
        assert entry.keys() == {"decimals", "shape", "digests", "hint", "mistakes"}
        for digest in sum((m["digests"] for m in mistakes), entry["digests"]):
            assert re.fullmatch("[0-9a-f]{16}", digest)
        for readable in (text, entry["hint"], *(m["hint"] for m in mistakes)):
            numbers = map(float, re.findall(r"-?\d+(?:\.\d+)?", readable))
            assert entry["shape"] or not any(lb.exercises.check(name, x) for x in numbers), name


def test_the_page_for_teachers():
    page = (BOOK / "teaching.md").read_text()
    checks, assertion, data = re.findall(r"```python\n(.*?)```", page, re.S)
    shown = {}
    exec(checks, shown)
    assert f"# {bool(shown['result'])}" in checks and f"# {shown['result'].hint}" in checks
    with pytest.raises(AssertionError, match="The derivative of order K"):
        exec(assertion, {"lb": lb})
    exec(data, {})
    assert {*re.findall(r"`([a-z-]+-\d+[a-z]?)`", page)} <= {*lb.exercises.names()}
    citation = yaml.safe_load((BOOK.parent / "CITATION.cff").read_text())
    entry = " ".join(re.sub("[{}]", "", re.search(r"```bibtex\n(.*?)```", page, re.S)[1]).split())
    for field in ("title", "version", "license"):
        assert f"= {citation[field]}" in entry
