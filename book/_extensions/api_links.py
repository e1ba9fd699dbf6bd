"""Links from the code of chapters to the API page, also from exercises and solutions.

sphinx-codeautolink takes every section to have a title; those that sphinx-exercise makes have none.
"""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx_codeautolink import extension


class Analyser(extension.CodeBlockAnalyser):
    """Gives a section without a title that of the section around it."""

    def visit_section(self, node: nodes.section) -> None:
        super().visit_section(node)
        if not any(isinstance(child, nodes.title) for child in node):
            self.title_stack.append(self.title_stack[-1])


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("sphinx_codeautolink")
    extension.CodeBlockAnalyser = Analyser
    return {"parallel_read_safe": True, "parallel_write_safe": True}
