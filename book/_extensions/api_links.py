"""Links from the code of chapters to the API page, also from within proofs, exercises and solutions.

sphinx-codeautolink takes every title to be that of a section, and every section to have one. The
search finds what chapters write, such as lb.laplace.
"""

import ast
import gc

from docutils import nodes
from sphinx.application import Sphinx
from sphinx_codeautolink import extension
from sphinx_codeautolink.extension import block
from sphinx_codeautolink.extension.backref import SummaryNode
from sphinx_codeautolink.parse import ImportTrackerVisitor, Name


def has_title(section: nodes.section) -> bool:
    return any(isinstance(child, nodes.title) for child in section)


class NamesInContinuedCode:
    """Names in code: of code that continues the last, those of the rest. sphinx-codeautolink parses all of it again."""

    def __init__(self) -> None:
        self.source = self.visitor = None

    def __call__(self, source: str, node: nodes.Node) -> list[Name]:
        if self.source is None or not source.startswith(self.source + "\n"):
            self.source, self.visitor = "", ImportTrackerVisitor(node)
        rest = source.removeprefix(self.source)
        tree = ast.parse(rest)
        ast.increment_lineno(tree, self.source.count("\n"))
        known = len(self.visitor.accessed)
        self.visitor.visit(tree)
        self.source = source
        return self.visitor.accessed[known:]


class Analyser(extension.CodeBlockAnalyser):
    """Knows the sections of a page by their titles: all others belong to the one around them."""

    def visit_section(self, node: nodes.section) -> None:
        if has_title(node):
            super().visit_section(node)

    def depart_section(self, node: nodes.section) -> None:
        if has_title(node):
            super().depart_section(node)

    def visit_title(self, node: nodes.title) -> None:
        if isinstance(node.parent, nodes.section):
            super().visit_title(node)


def index_as_imported(app, what, name, obj, options, lines: list[str]) -> None:
    """Put laplacebook.laplace into the index as lb.laplace."""
    if what in ("function", "class", "exception"):
        lines[:0] = [f".. index:: ! {name.replace('laplacebook', 'lb', 1)}", ""]


def without_a_number(app, what, name, obj, options, lines: list[str]) -> None:
    """Of a field of a named tuple leave out what Python has for its docstring."""
    if lines and lines[0].startswith("Alias for field number"):
        lines.clear()


def without_a_link(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """What folds out may not hold a link, which a screen reader would not reach."""
    for summary in doctree.findall(SummaryNode):
        summary.children = [nodes.Text("Where the chapters use it")]


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("sphinx_codeautolink")
    extension.CodeBlockAnalyser = Analyser
    block.parse_names = NamesInContinuedCode()
    # Sphinx keeps what it makes: a quarter of its time went into the search for garbage.
    gc.set_threshold(200_000)
    # After napoleon, which takes what comes first for the summary.
    app.connect("autodoc-process-docstring", index_as_imported, priority=900)
    app.connect("autodoc-process-docstring", without_a_number)
    app.connect("doctree-resolved", without_a_link, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
