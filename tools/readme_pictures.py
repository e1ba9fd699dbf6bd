"""Take the pictures of the README from the built pages: book/_static/page.png and comparison.png.

python -m tools.readme_pictures
"""

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from tools.chromium import chromium

ROOT = Path(__file__).parent.parent
HTML = ROOT / "_build" / "html" / "book"
PICTURES = ROOT / "book" / "_static"


def main() -> None:
    """A page as a reader sees it, and what lb.compare shows."""
    if (found := chromium()) is None:
        sys.exit("The pictures need Chromium: install it, or name it with CHROMIUM=/path")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        page.goto((HTML / "beta-bernoulli.html").as_uri())
        page.evaluate("window.MathJax.startup.promise.then(() => true)")
        page.locator("figcaption").nth(1).evaluate(
            "e => e.scrollIntoView({block: 'end', behavior: 'instant'})"
        )
        page.screenshot(path=PICTURES / "page.png")
        page.set_viewport_size({"width": 1100, "height": 800})
        page.goto((HTML / "model-comparison.html").as_uri())
        cell = page.locator(
            "div.cell", has_text='lb.compare({"constant risk": constant_risk, "temp'
        )
        cell.first.screenshot(path=PICTURES / "comparison.png")
        browser.close()


if __name__ == "__main__":
    main()
