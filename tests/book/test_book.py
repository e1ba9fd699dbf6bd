"""The chapters as committed: executed, short cells, described figures, exercises with solutions.

Each check takes a notebook and returns its complaints, so that a bad one can be shown to it too.
"""

import base64
import copy
import io
import re
from pathlib import Path

import nbformat
import pytest
import yaml
from PIL import Image

from tools.notebooks import collapse_folded, folded

ROOT = Path(__file__).parents[2]
CHAPTERS = sorted((ROOT / "book").glob("*.ipynb"))
WITHOUT_EXERCISES = {"corrections", "intro"}
MOST_LINES = 20
MOST_IMAGE_BYTES = 150_000
GATES = ("exercise-start", "exercise-end", "solution-start", "solution-end")
FEWEST_WORDS = 20  # of an alternative text
IMAGES = ("image/png", "image/jpeg", "image/svg+xml")
MOST_VISIBLE_CODE = 32  # cells, outside solutions
MOST_WORDS = 3_600  # outside solutions, displays and code
FIRST_CELLS = 3  # among which the first figure stands
WITHOUT_FIGURES = {"corrections"}


def code_cells(notebook):
    """(number from 1, cell) of each code cell."""
    return list(enumerate((c for c in notebook.cells if c.cell_type == "code"), 1))


def not_executed(notebook):
    return [
        f"cell {n}: execution count {cell.execution_count}, not {n}: run make notebooks"
        for n, cell in code_cells(notebook)
        if cell.execution_count != n
    ]


def errors_and_warnings(notebook):
    return [
        f"cell {n}: an output of kind {output.get('name', output.output_type)}"
        for n, cell in code_cells(notebook)
        for output in cell.outputs
        if output.output_type == "error" or output.get("name") == "stderr"
    ]


def long_cells(notebook):
    return [
        f"cell {n}: {lines} lines, at most {MOST_LINES}"
        for n, cell in code_cells(notebook)
        if (lines := len(cell.source.splitlines())) > MOST_LINES
    ]


def undescribed_figures(notebook):
    complaints = []
    for n, cell in code_cells(notebook):
        images = [
            o.data[kind] for o in cell.outputs for kind in IMAGES if kind in o.get("data", {})
        ]
        meta = cell.metadata.get("mystnb", {})
        if images and not meta.get("figure", {}).get("caption", "").strip():
            complaints.append(f"cell {n}: no caption in metadata mystnb.figure.caption")
        alt = meta.get("image", {}).get("alt", "").strip()
        if images and (words := len(alt.split())) < FEWEST_WORDS:
            say = f"{words} words in metadata mystnb.image.alt, at least {FEWEST_WORDS}"
            complaints.append(f"cell {n}: {say}")
        if images and alt == meta.get("figure", {}).get("caption", "").strip():
            complaints.append(f"cell {n}: the alternative text repeats the caption")
        complaints += [
            f"cell {n}: an image of {size:.0f} bytes, at most {MOST_IMAGE_BYTES}"
            for image in images
            if (size := 3 / 4 * len(image)) > MOST_IMAGE_BYTES
        ]
    return complaints


def opaque_figures(notebook):
    """A figure with a background would be a slab on the dark theme."""
    return [
        f"cell {n}: a PNG with a background: call lb.plotting.use_style"
        for n, cell in code_cells(notebook)
        for output in cell.outputs
        if "image/png" in output.get("data", {}) and corner(output.data["image/png"])[3] > 0
    ]


def corner(png):
    """Red, green, blue and opacity of the first pixel of a PNG in base 64."""
    return Image.open(io.BytesIO(base64.b64decode(png))).convert("RGBA").getpixel((0, 0))


def missing_exercises(notebook):
    """A summary and 3 to 6 exercises, each with a gated, folded solution; code in one at least."""
    text = "\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    exercises = re.findall(r"^[`:]{3,}\{exercise(?:-start)?\}.*\n:label: (\S+)", text, re.M)
    solutions = re.findall(
        r"^[`:]{3,}\{solution-start\} (\S+)\n(?::.*\n)*?:class: dropdown", text, re.M
    )
    complaints = [] if re.search(r"^## Summary", text, re.M) else ["no heading ## Summary"]
    if not 3 <= len(exercises) <= 6:
        complaints.append(f"{len(exercises)} exercises, not 3 to 6")
    complaints += [f"{x}: no gated, folded solution" for x in exercises if solutions.count(x) != 1]
    if not code_in_solutions(notebook):
        complaints.append("no solution with code")
    return complaints


def code_in_solutions(notebook):
    """Number of code cells between a solution-start and its solution-end."""
    inside, count = False, 0
    for cell in notebook.cells:
        if cell.cell_type == "code":
            count += inside
        elif marks := re.findall(r"\{solution-(start|end)\}", cell.source):
            inside = marks[-1] == "start"
    return count


def outside_solutions(notebook):
    """The cells between solutions, in which a reader goes from the question to the answer."""
    inside, found = False, []
    for cell in notebook.cells:
        marks = cell.cell_type == "markdown" and re.findall(
            r"\{solution-(start|end)\}", cell.source
        )
        inside = marks[-1] == "start" if marks else inside
        if not inside:
            found.append(cell)
    return found


def words(text):
    """The number of words outside displays, formulas and code."""
    text = re.sub(r"\$\$.*?\$\$", "", text, flags=re.S)
    return len(re.findall(r"[A-Za-z]{2,}", re.sub(r"`[^`]*`|\$[^$]*\$", "", text)))


def too_much_for_a_page(notebook):
    """More visible code cells, or more words, than one reads to the end."""
    cells = outside_solutions(notebook)
    seen = [c for c in cells if c.cell_type == "code" and c.id != "installation" and not folded(c)]
    written = sum(words(c.source) for c in cells if c.cell_type == "markdown")
    complaints = [f"{len(seen)} visible code cells, at most {MOST_VISIBLE_CODE}"]
    complaints += [f"{written} words, at most {MOST_WORDS}"]
    over = (len(seen) > MOST_VISIBLE_CODE, written > MOST_WORDS)
    return [text for text, is_over in zip(complaints, over, strict=True) if is_over]


def shows_a_figure(cell):
    """Whether a cell draws one, moves one, or is prose with one."""
    if cell.cell_type == "markdown":
        return bool(re.search(r"!\[[^]]*\]\(|<svg\b|\{figure\}", cell.source))
    data = [output.get("data", {}) for output in cell.outputs]
    return any(kind in d for d in data for kind in IMAGES) or any(
        "<svg" in d.get("text/html", "") for d in data
    )


def late_picture(notebook):
    """The first cells that a reader sees, folded ones aside, without a figure."""
    on_page = [c for c in notebook.cells if "remove-cell" not in c.metadata.get("tags", [])]
    seen = [c for c in on_page if shows_a_figure(c) or c.cell_type == "markdown" or not folded(c)]
    if any(shows_a_figure(cell) for cell in seen[:FIRST_CELLS]):
        return []
    return [f"no figure among the first {FIRST_CELLS} cells"]


def open_in_plain_jupyter(notebook):
    """Folded on the page, and not collapsed where there is no page."""
    return [
        f"cell {n}: folded, but jupyter.source_hidden is not set: run make notebooks"
        for n, cell in code_cells(notebook)
        if folded(cell) and cell.metadata.get("jupyter", {}).get("source_hidden") is not True
    ]


def lost_in_plain_jupyter(notebook):
    """Links without a text, and directives with text within backticks.

    Without MyST the first show nothing, and the second their source; within colons it is typeset.
    """
    complaints = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            links = re.findall(r"\[\s*\]\([^)]*\)", cell.source)
            fences = re.findall(r"^ *`{3,}\{([^}]*)\}", cell.source, re.M)
            complaints += [f"cell {cell.id}: {link}: a link without a text" for link in links]
            complaints += [
                f"cell {cell.id}: write :::{{{directive}}}, with colons"
                for directive in fences
                if directive not in GATES
            ]
    return complaints


CHECKS = [
    not_executed,
    errors_and_warnings,
    long_cells,
    undescribed_figures,
    opaque_figures,
    missing_exercises,
    lost_in_plain_jupyter,
    open_in_plain_jupyter,
    too_much_for_a_page,
    late_picture,
]
EXCUSED = {
    missing_exercises: WITHOUT_EXERCISES,
    late_picture: WITHOUT_FIGURES,
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter(path, check):
    if path.stem in EXCUSED.get(check, ()):
        return
    complaints = check(nbformat.read(path, as_version=4))
    assert not complaints, f"book/{path.name}: " + "; ".join(complaints)


def test_toc_names_every_chapter_and_no_other():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    sections = toc.get("chapters", []) + [c for p in toc.get("parts", []) for c in p["chapters"]]
    named = [toc["root"]] + [section["file"] for section in sections]
    pages = {
        p.relative_to(ROOT).with_suffix("").as_posix()
        for p in (ROOT / "book").iterdir()
        if p.suffix in (".ipynb", ".md")
    }
    assert sorted(named) == sorted(pages)


# A good chapter, and what each check has to notice in it once it is spoilt.


def png(color, padding=0):
    file = io.BytesIO()
    Image.new("RGBA", (1, 1), color).save(file, "PNG")
    return base64.b64encode(file.getvalue() + bytes(padding)).decode()


ALT = "A curve over the line of the real numbers. " * 3


def good_chapter():
    figure = {"mystnb": {"figure": {"caption": "A bell."}, "image": {"alt": ALT}}}
    image = nbformat.v4.new_output("display_data", data={"image/png": png("#0000")})
    text, code = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell
    cells = [
        text("# A title"),
        code("plot()", metadata=figure, outputs=[image]),
        text("## Summary"),
    ]
    for i in "abc":
        cells += [
            text(f"```{{exercise-start}} Title\n:label: {i}\n```\nDo.\n```{{exercise-end}}\n```"),
            text(f"```{{solution-start}} {i}\n:label: sol-{i}\n:class: dropdown\n```\nDone."),
            code("1 + 1"),
            text("```{solution-end}\n```"),
        ]
    notebook = nbformat.v4.new_notebook(cells=cells)
    for n, cell in code_cells(notebook):
        cell.execution_count = n
    return notebook


def swap(number, old, new):
    def spoil(notebook):
        cell = notebook.cells[number]
        assert old in cell.source
        cell.source = cell.source.replace(old, new)

    return spoil


def fold(notebook):
    notebook.cells[1].metadata.tags = ["hide-input"]


def add(*cells, at):
    def spoil(notebook):
        notebook.cells[at:at] = cells
        for n, cell in code_cells(notebook):
            cell.execution_count = n

    return spoil


def output(*arguments, **fields):
    return lambda notebook: notebook.cells[1].outputs.append(
        nbformat.v4.new_output(*arguments, **fields)
    )


def remove_code_of_solutions(notebook):
    notebook.cells = [c for i, c in enumerate(notebook.cells) if c.cell_type != "code" or i == 1]


SPOILT = {
    "never run": (not_executed, lambda nb: nb.cells[1].update(execution_count=None)),
    "run out of order": (not_executed, lambda nb: nb.cells[1].update(execution_count=7)),
    "raises": (errors_and_warnings, output("error", ename="ValueError", evalue="", traceback=[])),
    "warns": (errors_and_warnings, output("stream", name="stderr", text="careful")),
    "21 lines": (long_cells, lambda nb: nb.cells[1].update(source="x = 1\n" * 21)),
    "no caption": (undescribed_figures, lambda nb: nb.cells[1].metadata.mystnb.pop("figure")),
    "short alternative text": (
        undescribed_figures,
        lambda nb: nb.cells[1].metadata.mystnb.image.update(alt="Two curves"),
    ),
    "alternative text for a caption": (
        undescribed_figures,
        lambda nb: nb.cells[1].metadata.mystnb.figure.update(caption=ALT),
    ),
    "heavy image": (
        undescribed_figures,
        output("display_data", data={"image/png": png("#0000", padding=150_001)}),
    ),
    "white image": (opaque_figures, output("display_data", data={"image/png": png("#ffff")})),
    "no summary": (missing_exercises, swap(2, "Summary", "End")),
    "two exercises": (missing_exercises, swap(3, "exercise-start", "exercise-end")),
    "solution of another": (missing_exercises, swap(4, "} a", "} z")),
    "solution open": (missing_exercises, swap(4, ":class: dropdown\n", "")),
    "empty link": (lost_in_plain_jupyter, swap(0, "A title", "[](taylor.ipynb)")),
    "theorem in backticks": (
        lost_in_plain_jupyter,
        swap(0, "A title", "A title\n\n```{prf:theorem} Title\n$x$\n```"),
    ),
    "folded and open in Jupyter": (open_in_plain_jupyter, fold),
    "33 cells of code": (
        too_much_for_a_page,
        add(*(nbformat.v4.new_code_cell("x = 1") for _ in range(MOST_VISIBLE_CODE)), at=2),
    ),
    "too many words": (too_much_for_a_page, swap(0, "A title", "word " * MOST_WORDS)),
    "figure in the fourth cell": (
        late_picture,
        add(*(nbformat.v4.new_markdown_cell("Words.") for _ in range(FIRST_CELLS)), at=0),
    ),
    "solutions without code": (missing_exercises, remove_code_of_solutions),
}


@pytest.mark.parametrize("fault", SPOILT)
def test_check_notices(fault):
    check, spoil = SPOILT[fault]
    notebook = good_chapter()
    assert [complaint for c in CHECKS for complaint in c(notebook)] == []
    spoilt = copy.deepcopy(notebook)
    spoil(spoilt)
    assert check(spoilt)
    assert not [c.__name__ for c in CHECKS if c is not check and c(spoilt)]


def test_solutions_and_folded_cells_are_not_counted():
    notebook = good_chapter()
    cells = [nbformat.v4.new_code_cell("x = 1") for _ in range(MOST_VISIBLE_CODE + 1)]
    add(*cells, nbformat.v4.new_markdown_cell("word " * MOST_WORDS), at=5)(notebook)
    assert too_much_for_a_page(notebook) == []
    notebook = good_chapter()
    add(*cells, at=2)(notebook)
    assert too_much_for_a_page(notebook)
    for cell in cells:
        cell.metadata.tags = ["hide-input"]
    assert too_much_for_a_page(notebook) == []


def test_what_the_page_folds_is_collapsed_by_make_notebooks():
    notebook = good_chapter()
    fold(notebook)
    collapse_folded(notebook)
    assert open_in_plain_jupyter(notebook) == []
    assert "jupyter" not in notebook.cells[5].metadata


@pytest.mark.parametrize(
    "cell",
    [
        nbformat.v4.new_markdown_cell("![A map.](map.svg)"),
        nbformat.v4.new_code_cell(
            outputs=[nbformat.v4.new_output("execute_result", data={"text/html": "<svg></svg>"})]
        ),
    ],
    ids=["in prose", "that moves"],
)
def test_a_figure_opens_a_chapter(cell):
    assert shows_a_figure(cell)
