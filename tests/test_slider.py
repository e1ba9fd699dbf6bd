"""The degree slider of the Taylor chapter in the built page: from the disk, by keyboard."""

import pytest

from tests.test_browser import HTML, browser, visit

__all__ = ["browser"]

pytestmark = pytest.mark.browser

CHAPTER = HTML / "book" / "taylor.html"
SHOWN = "[data-degree]:not([style*=none])"


@pytest.mark.parametrize("width", [1280, 390])
def test_keyboard_moves_the_slider(browser, width):
    with visit(browser, CHAPTER, width=width) as page:
        slider = page.get_by_role("slider", name="Degree")
        captions, curves = page.locator(f"span{SHOWN}"), page.locator(f"path{SHOWN}")
        seen = []
        slider.focus()
        for key in ["Home", *["ArrowRight"] * 7]:
            page.keyboard.press(key)
            assert captions.count() == curves.count() == 1
            assert captions.inner_text().startswith(f"Degree {slider.input_value()}:")
            seen.append(curves.get_attribute("d"))
        assert slider.input_value() == "7"
        assert len(set(seen)) == 8
        assert page.trouble == []


def test_without_javascript_one_degree_is_shown(browser):
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(CHAPTER.as_uri())
    assert page.locator(f"span{SHOWN}").count() == page.locator(f"path{SHOWN}").count() == 1
    context.close()
