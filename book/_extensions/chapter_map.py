"""The map of chapters as a part of its page, so that its boxes are links; in Jupyter it is a picture."""

import re

from sphinx.application import Sphinx

PICTURE = re.compile(r'<img [^>]*src="[^"]*/map\.svg"[^>]*>')


def with_links(body: str, drawing: str) -> str:
    """A page with the drawing in place of the picture, under the picture's description."""

    def drawn(picture: re.Match) -> str:
        description = re.search(r'alt="([^"]*)"', picture[0])[1]
        return re.sub(
            r'aria-label="[^"]*"',
            lambda _: f'aria-label="{description}"',
            drawing,
        )

    return PICTURE.sub(drawn, body)


def show(
    app: Sphinx, page: str, template: str, context: dict, doctree: object
) -> None:
    if "/map.svg" in context.get("body", ""):
        file = app.srcdir / "book" / "_static" / "map.svg"
        drawing = (
            f'<div class="chapter-map">{file.read_text(encoding="utf-8")}</div>'
        )
        context["body"] = with_links(context["body"], drawing)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", show)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
