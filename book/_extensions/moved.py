"""Links to what has moved to another page lead there.

`book/moved.toml` has a table for each page that sections or labels have left, of anchors and the pages that they
stand on now:

    ["sigmoid-coin"]
    "some-anchor" = "computing-evidence"

A page with a table sends a reader who asks for one of these anchors to the other page, at the same anchor.
"""

import json
import tomllib
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

logger = logging.getLogger(__name__)

SCRIPT = """(() => {{
  const moved = {moved};
  const follow = () => {{
    const anchor = decodeURIComponent(location.hash.slice(1));
    if (Object.hasOwn(moved, anchor)) location.replace(`${{moved[anchor]}}.html#${{anchor}}`);
  }};
  addEventListener("hashchange", follow);
  follow();
}})()"""


def script(anchors: dict[str, str]) -> str:
    """What sends a reader on; `<` could end the script."""
    return SCRIPT.format(moved=json.dumps(anchors).replace("<", "\\u003c"))


def read(file: Path) -> dict[str, dict[str, str]]:
    """The tables of a file, of which there is none where nothing has moved."""
    return (
        tomllib.loads(file.read_text(encoding="utf-8"))
        if file.is_file()
        else {}
    )


def send_on(
    app: Sphinx, page: str, template: str, context: dict, doctree: object
) -> None:
    """Put the script into a page that something has left."""
    folder, _, name = page.rpartition("/")
    anchors = app.config.moved_anchors.get(name, {}) if folder == "book" else {}
    if anchors:
        app.add_js_file(None, body=script(anchors))


def check_pages(app: Sphinx, env: BuildEnvironment) -> None:
    """Complain about a page that is not in the book; whether it has the anchor, a test of the built pages says."""
    for page, anchors in app.config.moved_anchors.items():
        for name in sorted({page, *anchors.values()}):
            if f"book/{name}" not in env.found_docs:
                logger.warning(f"book/moved.toml: there is no page book/{name}")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value(
        "moved_anchors", read(app.srcdir / "book" / "moved.toml"), "html"
    )
    app.connect("env-updated", check_pages)
    app.connect("html-page-context", send_on)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
