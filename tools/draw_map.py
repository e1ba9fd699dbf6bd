"""Draw the map of chapters: book/_static/map.svg, of the chapters that _toc.yml names.

python -m tools.draw_map

Its arrows are what the chapters say: the sentences of a first cell in which a chapter "builds on" or "continues"
others. Where the phrase before a link speaks of a theorem, a fact or a conditional, the chapter needs only that. An
arrow that follows from others is left out. A new chapter needs a line in `PLACES`.
"""

import re
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

import nbformat
import yaml

ROOT = Path(__file__).parent.parent
MAP = ROOT / "book" / "_static" / "map.svg"
NO_CHAPTERS = {"corrections"}


class Place(NamedTuple):
    """Where the box of a chapter stands, the shortest way through the book that it is on, and what it says."""

    column: float
    row: int
    way: str
    title: str


PLACES = {
    "intro": Place(1, 0, "hour", "Start here"),
    "taylor": Place(1, 1, "weekend", "Taylor series"),
    "laplace": Place(1, 2, "weekend", "The Laplace approximation"),
    "beta-bernoulli": Place(0, 3, "hour", "A coin with a known answer"),
    "model-comparison": Place(1, 3, "weekend", "Evidence, Occam and BIC"),
    "linear-gaussian": Place(2, 3, "weekend", "Linear-Gaussian models"),
    "sigmoid-coin": Place(0.5, 4, "course", "A coin without a known answer"),
    "logistic-regression": Place(1.5, 4, "weekend", "Logistic regression"),
    "accuracy": Place(0, 5, "course", "How wrong, and why"),
    "computing-evidence": Place(1, 5, "course", "The evidence in other ways"),
    "neural-network": Place(2, 5, "course", "Neural networks"),
    "kl-divergence": Place(0.5, 6, "course", "Divergence between Gaussians"),
    "hierarchical": Place(0, 7, "course", "Hierarchical models"),
    "latent-fields": Place(0, 8, "course", "Ten thousand unknowns"),
    "scaling": Place(1.5, 6, "course", "Ten million rows"),
    "trust": Place(1, 8, "course", "Can I trust it?"),
    "structured-curvature": Place(2, 7, "course", "When the Hessian is too big"),
    "digits": Place(2, 8, "course", "Classes of images"),
}
# Of a box: what fills it, its edge and its text. All are opaque, so that they look the same on either theme.
WAYS = {
    "hour": ("in an hour", "#0072b2", "#0072b2", "#ffffff"),
    "weekend": ("in a weekend", "#d3e6f2", "#0072b2", "#1a1a1a"),
    "course": ("in a course", "#ececec", "#797979", "#1a1a1a"),
}
ARROWS = {"needs": ("is needed for", ""), "uses": ("gives a result to", ' stroke-dasharray="5 4"')}
STEP, PITCH, WIDE, HIGH = 146, 66, 134, 44
LINK = re.compile(r"\[[^]]*\]\((?P<page>[\w-]+)\.ipynb\)|\{prf:ref\}`(?P<of>[\w-]+)-theorem`")
FACTS = re.compile(r"\b(theorems?|facts?|results?|conditional|lemma)\b")


class Said(NamedTuple):
    """The pages that a chapter says it needs, and those of which it says that it uses a result."""

    needs: set[str]
    uses: set[str]


def said(text: str) -> Said:
    """What the first cell of a chapter says."""
    needs, uses = set(), set()
    for sentence in re.split(r"(?<=[.?!])\s+", text):
        if not re.search(r"\b(builds on|continues)\b", sentence):
            continue
        start = 0
        for link in LINK.finditer(sentence):
            phrase = re.split("[,;(]", sentence[start : link.start()])[-1]
            (uses if FACTS.search(phrase) else needs).add(link["page"] or link["of"])
            start = link.end()
    return Said(needs, uses - needs)


def ancestors(graph: dict[str, set[str]], page: str) -> set[str]:
    """All pages from which a way leads to one."""
    return set(graph[page]).union(*(ancestors(graph, other) for other in graph[page]))


def arrows(book: dict[str, Said]) -> list[tuple[str, str, str]]:
    """(from, to, kind): what is said, without what follows from the rest."""
    needs = {page: said.needs for page, said in book.items()}
    both = {page: said.needs | said.uses for page, said in book.items()}
    drawn = []
    for page in book:
        for kind, graph in (("needs", needs), ("uses", both)):
            for other in sorted(getattr(book[page], kind)):
                if not any(other in ancestors(graph, p) for p in graph[page] - {other}):
                    drawn.append((other, page, kind))
    return drawn


def chapters() -> dict[str, Said]:
    """What each chapter that _toc.yml names says, in the order of the menu; the first builds on Start here."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    files = [toc["root"]] + [c["file"] for part in toc["parts"] for c in part["chapters"]]
    paths = [ROOT / f"{file}.ipynb" for file in files]
    found = {
        path.stem: said(nbformat.read(path, as_version=4).cells[0].source)
        for path in paths
        if path.is_file() and path.stem not in NO_CHAPTERS
    }
    begin, first = list(found)[:2]
    found[first].needs.add(begin)
    return found


def middle(page: str) -> tuple[float, float]:
    """The middle of a box."""
    place = PLACES[page]
    return 74 + STEP * place.column, 26 + PITCH * place.row


def arrow(begin: str, end: str, kind: str) -> str:
    """From the lower edge of one box to the upper edge of another."""
    (x, y), (a, b) = middle(begin), middle(end)
    y, b = y + HIGH / 2, b - HIGH / 2 - 3
    bend = min(b - y, PITCH) / 2
    line = f"M{x:g} {y:g}V{b - 2 * bend:g}C{x:g} {b - bend:g} {a:g} {b - bend:g} {a:g} {b:g}"
    return f'<path d="{line}" marker-end="url(#head)"{ARROWS[kind][1]}/>'


def box(page: str, said: Said) -> str:
    """A link to a page, with what it needs for who points at it."""
    x, y = middle(page)
    titles = {name: place.title for name, place in PLACES.items()}
    builds_on = ", ".join(titles[p] for p in titles if p in said.needs | said.uses) or "nothing"
    _, fill, edge, ink = WAYS[PLACES[page].way]
    lines = wrap(PLACES[page].title, 17)
    down = y + 5 - 8.5 * (len(lines) - 1)
    text = "".join(
        f'<tspan x="{x:g}" y="{down + 17 * n:g}">{line}</tspan>' for n, line in enumerate(lines)
    )
    return (
        f'<a href="{page}.html"><title>Builds on: {builds_on}</title>'
        f'<rect x="{x - WIDE / 2:g}" y="{y - HIGH / 2:g}" width="{WIDE}" height="{HIGH}" rx="7" '
        f'fill="{fill}" stroke="{edge}" stroke-width="1.5"/><text fill="{ink}">{text}</text></a>'
    )


def key(top: float, width: float) -> str:
    """What the colours and the arrows mean."""
    parts = [f'<rect x="7" y="{top:g}" width="{width - 14:g}" height="66" rx="7" fill="#f7f7f7"/>']
    for n, (text, fill, edge, ink) in enumerate(WAYS.values()):
        x = 18 + 138 * n
        parts.append(
            f'<rect x="{x}" y="{top + 9:g}" width="128" height="22" rx="7" fill="{fill}" '
            f'stroke="{edge}"/><text x="{x + 64}" y="{top + 24.5:g}" fill="{ink}">{text}</text>'
        )
    for n, (text, dashes) in enumerate(ARROWS.values()):
        x, y = 48 + 190 * n, top + 49
        parts.append(
            f'<path d="M{x} {y:g}h32" stroke="#797979" marker-end="url(#head)"{dashes}/>'
            f'<text x="{x + 44}" y="{y + 4.5:g}" text-anchor="start" fill="#1a1a1a">{text}</text>'
        )
    return "\n".join(parts)


def draw(book: dict[str, Said]) -> str:
    """The map as SVG."""
    if strangers := book.keys() - PLACES.keys():
        raise KeyError(f"no place on the map for {sorted(strangers)}: add it to tools/draw_map.py")
    width, top = 148 + 2 * STEP, 40 + PITCH * (1 + max(PLACES[page].row for page in book))
    lines = "\n".join(arrow(*line) for line in arrows(book))
    boxes = "\n".join(box(page, said) for page, said in book.items())
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top + 40}" role="group" aria-label="Map of the chapters" \
font-family="system-ui, sans-serif" font-size="13" text-anchor="middle">
<defs><marker id="head" viewBox="0 0 8 8" refX="5" refY="4" markerWidth="5" markerHeight="5" orient="auto">\
<path d="M0 0L8 4L0 8Z" fill="#797979"/></marker></defs>
<g fill="none" stroke="#797979" stroke-width="1.5">
{lines}
</g>
{boxes}
<g fill="none" stroke-width="1.5">
{key(top - 30, width)}
</g>
</svg>
"""


def main() -> None:
    MAP.write_text(draw(chapters()), encoding="utf-8")


if __name__ == "__main__":
    main()
