"""What a slider writes, and how those of the built pages move: from the disk, by keyboard."""

import re

import numpy as np
import pytest

from laplacebook.slider import Axis, Curve, Slider
from tests.book.test_browser import HTML, browser, visit

__all__ = ["browser"]

# Chapter, and what its slider is called.
SLIDERS = {
    "taylor": "Degree",
    "beta-bernoulli": "Number of tosses",
    "neural-network": "Prior precision",
}
FIGURE = ".text_html:has(input[type=range])"
SHOWN = "[data-position]:not([style*=none])"
LOOKS = """(figure, shown) => [
  [...figure.querySelectorAll(`span${shown}`)].map(e => e.innerText),
  [...figure.querySelectorAll(`svg g${shown}`)].map(e => e.innerHTML),
  figure.querySelector('input[type=range]').getAttribute('aria-valuetext')]"""


@pytest.fixture
def html():
    x = np.linspace(-1, 1, 3)
    curves = [
        Curve("points", "data", x, x),
        Curve("fixed", "exact", x, x),
        Curve("a < b", "approximation", x, np.stack([0 * x, x]), np.stack([1 + 0 * x, x + 1])),
    ]
    slider = Slider(
        name="Switch",
        description="A line.",
        captions={"off": "is flat", "on": "is not"},
        curves=curves,
        across=Axis("time, s", (-1, 0, 1)),
        up=Axis("height, m", (-2, 0, 2)),
        start=1,
    )
    assert repr(slider) == "Slider(name='Switch', start=1)"
    return slider._repr_html_()


def test_shows_its_start_and_hides_the_rest(html):
    assert re.findall(r'<span data-position="(\d)">(.*?)</span>', html) == [
        ("1", "<b>on</b>: is not")
    ]
    assert re.findall(r'data-position="(\d)" style="display: none"', html) == ["0", "0"]
    assert 'aria-valuetext="on" data-positions="off|on"' in html


def test_draws_to_scale_in_the_roles_of_the_style(html):
    line = "0.0,150.0 180.0,100.0 360.0,50.0"
    assert html.count(f'd="M{line}" fill="none" stroke="#0072b2" stroke-dasharray="none"') == 1
    assert html.count(f'd="M{line}" fill="none" stroke="#d55e00" stroke-dasharray="7 4"') == 1
    assert "M0.0,150.0h0M180.0,100.0h0M360.0,50.0h0" in html
    lower, upper = "0.0,150.0 180.0,150.0 360.0,150.0", "360.0,-50.0 180.0,50.0 0.0,150.0"
    assert f'd="M{lower} {upper}Z" fill="#d55e00"' in html


def test_is_described_and_needs_nothing_else(html):
    for text in ("time, s", "height, m", "a &lt; b", 'aria-label="A line."', 'aria-live="polite"'):
        assert text in html
    assert "http" not in html


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start": -1}, "one of the 2 positions, from 0, not -1"),
        ({"start": 2}, "one of the 2 positions, from 0, not 2"),
        ({"captions": {}}, "'bell' .* 2 positions, and there are 0"),
        ({"captions": {"a": ""}}, "'bell' .* 2 positions, and there are 1"),
        ({"captions": dict.fromkeys("abc", "")}, "'bell' .* 2 positions, and there are 3"),
        ({"captions": {"a|b": "", "c": ""}}, "cannot be in 'a|b'"),
        ({"role": "exakt"}, "'bell' has the role 'exakt'; there are .*exact"),
        ({"x": np.zeros(2)}, r"x of shape \(2,\), y of \(2, 3\)"),
        ({"half_width": np.zeros(3)}, r"half_width of \(3,\)"),
    ],
)
def test_refuses_what_it_could_not_show(change, message):
    x, axis = np.linspace(-1, 1, 3), Axis("x", (-1, 1))
    curve = {"role": "exact", "x": x, "y": np.stack([x, x])}
    slider = {"captions": {"a": "", "b": ""}}
    (slider if {*change} <= {"captions", "start"} else curve).update(change)
    with pytest.raises(ValueError, match=message):
        curves = [Curve("bell", **curve)]
        Slider("s", "d", curves=curves, across=axis, up=axis, **slider)


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("chapter", SLIDERS)
def test_keyboard_moves_the_slider(browser, chapter, width):
    with visit(browser, HTML / "book" / f"{chapter}.html", width=width) as page:
        figure = page.locator(FIGURE)
        slider = figure.get_by_role("slider", name=SLIDERS[chapter])
        last, drawn = int(slider.get_attribute("max")), figure.locator(f"svg g{SHOWN}").count()
        seen = set()
        slider.focus()
        for key in ["Home", *["ArrowRight"] * last]:
            page.keyboard.press(key)
            captions, curves, value = figure.evaluate(LOOKS, SHOWN)
            assert (len(captions), len(curves)) == (1, drawn)
            assert captions[0].startswith(value + ":")
            seen.add((captions[0], *curves))
        assert slider.input_value() == str(last)
        assert len(seen) == last + 1
        assert page.trouble == []


@pytest.mark.browser
@pytest.mark.parametrize("chapter", SLIDERS)
def test_without_javascript_one_position_is_shown(browser, chapter):
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto((HTML / "book" / f"{chapter}.html").as_uri())
    positions = page.locator(f"{FIGURE} {SHOWN}").evaluate_all(
        "all => all.map(e => e.dataset.position)"
    )
    assert len(positions) > 1
    assert len(set(positions)) == 1
    context.close()
