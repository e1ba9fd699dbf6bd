"""Every built page in a browser, from the disk, with the network off (make book browser-test).

What a widget does when it is used belongs in a test of its own, on the fixture `browser` below.
"""

import io
import os
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from PIL import Image

from tests.book.axe import violations
from tools.chromium import chromium

HTML = Path(__file__).parents[2] / "_build" / "html"
PAGES = sorted(page for page in HTML.rglob("*.html") if "_static" not in page.parts)
CHROMIUM = chromium()
MOST_BYTES = 2_000_000

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser():
    if not (CHROMIUM and PAGES):
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse(f"needs {'make book' if CHROMIUM else 'Chromium'} first")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@contextmanager
def visit(browser, path, width=1280, scheme="light"):
    """The page, once its formulas are typeset; page.trouble is what it complained of, page.loaded what it read."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
    )
    page = context.new_page()
    page.trouble, page.loaded = [], set()
    page.on("console", lambda m: m.type == "error" and page.trouble.append(m.text))
    page.on("pageerror", lambda error: page.trouble.append(f"uncaught: {error}"))
    page.on("requestfinished", lambda r: page.loaded.add(r.url))
    page.on("request", lambda r: off_disk(r.url) and page.trouble.append(f"request: {r.url}"))
    page.goto(path.as_uri())
    page.wait_for_load_state("networkidle")
    page.evaluate("window.MathJax?.startup?.promise?.then(() => true)")
    yield page
    context.close()


def off_disk(url):
    return not url.startswith(("file:", "data:", "blob:", "about:"))


def views(**view):
    """A fixture that shows each built page in turn; tests that share it share the visit."""

    @pytest.fixture(
        scope="module", params=PAGES or [HTML / "index.html"], ids=lambda path: path.stem
    )
    def page(browser, request):
        with visit(browser, request.param, **view) as shown:
            yield shown

    return page


wide = views()
phone = views(width=390)


@pytest.fixture(scope="module")
def dark(wide):
    """The wide page after the reader's system has turned dark, as it stays: its tests come last."""
    wide.emulate_media(color_scheme="dark")
    wide.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    wide.evaluate(FINISH_FADING)
    return wide


def sees(page, script):
    """What a function that returns a list of complaints finds on the page."""
    return page.evaluate(f"() => {{ {HELPERS} return ({script})() }}")


# ground() is the first opaque colour behind an element.
HELPERS = """
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const ground = node => {
    for (let e = node; e; e = e.parentElement) {
      const [r, g, b, a = 1] = rgb(getComputedStyle(e).backgroundColor);
      if (a > 0.5) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const luminance = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = e => {
    const [a, b] = [rgb(getComputedStyle(e).color), ground(e)].map(luminance);
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };
  const shown = e => e.checkVisibility({visibilityProperty: true, opacityProperty: true});
  const name = e => `${e.tagName} ${e.className} "${(e.innerText || '').slice(0, 40)}"`;
"""

FINISH_FADING = """document.getAnimations()
  .filter(a => a.effect.getComputedTiming().endTime < Infinity).forEach(a => a.finish())"""

UNTYPESET = """() => {
  const complaints = [
    ...[...document.querySelectorAll('mjx-merror, [data-mjx-error]')]
      .map(e => `error: ${e.title || e.dataset.mjxError || e.innerText}`),
    ...[...document.querySelectorAll('.math')].filter(e => !e.querySelector('mjx-container'))
      .map(e => `not typeset: ${e.innerText}`)];
  const texts = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  for (let t = texts.nextNode(); t; t = texts.nextNode())
    if (!t.parentElement.closest('pre, code, script, style, mjx-container')
        && /\\$|\\\\[([]|\\\\begin/.test(t.data))
      complaints.push(`raw: ${t.data.trim().slice(0, 60)}`);
  return complaints;
}"""

BAD_IMAGES = """() => {
  const images = [...document.images].filter(shown);
  const described = i => !i.closest('main') || (i.alt && !/\\.(png|svg|jpe?g)$/.test(i.alt));
  return [
    ...images.filter(i => !(i.complete && i.naturalWidth)).map(i => `not loaded: ${i.src}`),
    ...images.filter(i => !described(i)).map(i => `no alternative text: ${i.src}`)];
}"""

# A caption, which is smaller than the text and says what to conclude, needs more contrast than the least.
FAINT = """() => ['p', 'li', 'td', 'th', 'h1', 'h2', 'h3', 'a', 'figcaption', 'pre', 'pre span',
    'mjx-container'].flatMap(tag => [...document.querySelectorAll(`main ${tag}`)])
  .concat([...document.querySelectorAll('.bd-sidebar-primary a')])
  .concat([...document.querySelectorAll('main figcaption *:not(a, a *, mjx-container *)')])
  .filter(e => shown(e) && (e.innerText || '').trim()
    && contrast(e) < (e.closest('figcaption') && !e.closest('a') ? 7 : 4.5))
  .map(e => `${contrast(e).toFixed(2)}: ${name(e)}`)"""

CUT_OFF = """() => [...document.querySelectorAll('.bd-article :is(p, li) mjx-container:not([display])')]
  .filter(e => shown(e) && e.getBoundingClientRect().right > e.closest('p, li').getBoundingClientRect().right + 1)
  .map(name)"""

ADRIFT = """() => [...document.querySelectorAll('.bd-article mjx-container:not([display], .wide-formula)')]
  .filter(formula => {
    const next = (formula.closest('span.math') ?? formula).nextSibling;
    if (!shown(formula) || next?.nodeType !== Node.TEXT_NODE || !/^[.,;:!?)]/.test(next.data)) return false;
    const first = document.createRange();
    first.setStart(next, 0);
    first.setEnd(next, 1);
    return first.getBoundingClientRect().top > formula.getBoundingClientRect().bottom - 2;
  }).map(formula => formula.closest('p, li, td, figcaption')?.innerText.slice(0, 80))"""

SEARCH_FIELDS = """() => [...document.querySelectorAll('input[type=search], .search-button-field')]
  .filter(shown).map(name)"""


def test_loads_in_silence_and_off_the_network(wide):
    assert wide.trouble == []


def test_formulas_are_typeset(wide):
    assert sees(wide, UNTYPESET) == []


def test_images_load_and_are_described(wide):
    assert sees(wide, BAD_IMAGES) == []


def test_has_one_search_field(wide):
    assert len(sees(wide, SEARCH_FIELDS)) == 1


def test_is_readable_in_the_light(wide):
    assert wide.evaluate("document.documentElement.dataset.theme") == "light"
    assert sees(wide, FAINT) == []


def test_does_not_scroll_sideways_on_a_phone(phone):
    phone.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    page = "document.documentElement"
    assert phone.evaluate(f"{page}.scrollWidth") <= phone.evaluate(f"{page}.clientWidth")


def test_is_light(wide):
    """MathJax, which all pages share and no page can do without, is not counted."""
    files = {unquote(urlsplit(url).path) for url in wide.loaded if url.startswith("file:")}
    assert any("mathjax" in f for f in files) or not wide.locator(".math").count()
    weight = sum(Path(f).stat().st_size for f in files if "mathjax" not in f)
    assert weight <= MOST_BYTES


def test_is_accessible(wide):
    assert violations(wide, "structure", "contrast") == []


def test_is_accessible_on_a_phone(phone):
    """Its structure is that of a wide page but for the menus, which all pages share."""
    with_menus = ["structure"] * phone.url.endswith("intro.html")
    assert violations(phone, *with_menus, "scrolling") == []


def test_formulas_within_a_line_are_not_cut_off_on_a_phone(phone):
    phone.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    phone.evaluate(
        "document.querySelectorAll('.toggle-hidden button.toggle-button').forEach(b => b.click())"
    )
    phone.wait_for_timeout(100)
    assert sees(phone, CUT_OFF) == []


def test_no_line_begins_with_the_comma_after_a_formula(wide):
    assert sees(wide, ADRIFT) == []


def test_no_line_begins_with_the_comma_after_a_formula_on_a_phone(phone):
    assert sees(phone, ADRIFT) == []


def test_where_a_formula_goes_on_to_the_right_it_fades_out_on_a_phone(phone):
    script = """() => [...document.querySelectorAll('main mjx-container[display]')].map(f =>
        [f.scrollWidth > f.clientWidth + 1, f.classList.contains('more-to-the-right')])"""
    assert all(wider == fades for wider, fades in phone.evaluate(script))


def test_a_formula_that_fits_does_not_fade_out(wide):
    """A hidden copy for screen readers may be wider than the formula."""
    script = """() => [...document.querySelectorAll('main mjx-container.more-to-the-right')]
        .filter(f => f.querySelector('mjx-math').offsetWidth <= f.clientWidth + 1)
        .map(f => f.textContent)"""
    assert wide.evaluate(script) == []


def test_a_displayed_formula_is_whole_on_a_phone_or_as_small_as_it_may_be(phone):
    script = """() => [...document.querySelectorAll('main mjx-container[display] > mjx-math')]
        .filter(f => f.offsetWidth > f.parentElement.clientWidth + 1 && f.style.fontSize !== '65%')
        .map(f => f.textContent)"""
    assert phone.evaluate(script) == []


def test_is_readable_in_the_dark(dark):
    assert sees(dark, FAINT) == []


def test_figures_have_no_card_in_the_dark(dark):
    for figure in dark.locator("article img:visible").all():
        corner = Image.open(io.BytesIO(figure.screenshot())).convert("L").getpixel((3, 3))
        assert corner < 80, figure.get_attribute("alt")


def test_is_accessible_in_the_dark(dark):
    assert violations(dark, "contrast") == []


def test_a_page_that_is_opened_in_the_dark_is_dark(browser):
    with visit(browser, HTML / "book" / "intro.html", scheme="dark") as page:
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert sees(page, FAINT) == []


def test_first_page_is_the_introduction(browser):
    with visit(browser, HTML / "index.html") as page:
        page.wait_for_url("**/book/intro.html")
        assert page.locator("article h1").count() == 1


@pytest.mark.parametrize("words", ["Laplace", "laplace_of_density"])
def test_search_works_from_the_disk(browser, words):
    with visit(browser, HTML / "search.html") as page:
        page.fill("main input[name=q]", words)
        page.keyboard.press("Enter")
        page.wait_for_selector("#search-results li")
        assert page.trouble == []


FAULTS = {
    CUT_OFF: '<main class="bd-article"><p style="width: 9px"><mjx-container>x=1</mjx-container></p></main>',
    UNTYPESET: "<main><p>As $x^2$ shows</p></main>",
    BAD_IMAGES: '<main><img src="nowhere.png" width="9" height="9"></main>',
    ADRIFT: '<main class="bd-article"><p style="width: 9px">'
    '<mjx-container style="display: inline-block">long</mjx-container>, y</p></main>',
    FAINT: '<main><p style="color: #aaa; background: #fff">Faint</p></main>',
}


CAPTION = '<main><figure><figcaption style="color: {}; background: #fff">A bell.</figcaption></figure></main>'


def test_a_caption_needs_more_contrast_than_text(browser):
    page = browser.new_page()
    page.set_content(CAPTION.format("#595959"))
    assert sees(page, FAINT) == []
    page.set_content(CAPTION.format("#666"))
    assert sees(page, FAINT)
    page.close()


@pytest.mark.parametrize(
    "check", FAULTS, ids=["cut off", "formulas", "images", "adrift", "contrast"]
)
def test_check_notices(browser, check):
    page = browser.new_page()
    page.set_content(FAULTS[check])
    assert sees(page, check)
    page.close()


INACCESSIBLE = [
    ("structure", '<button></button><img src="data:,">'),
    ("structure", '<pre><span>a</span> <span><a href="x"></a></span></pre>'),
    ("structure", '<pre><span>a</span> <span role="nosuch">b</span></pre>'),
    ("contrast", '<p style="color: #aaa">Faint</p>'),
    ("contrast", '<pre><span>a</span> <span><i style="color: #aaa">faint</i></span></pre>'),
    (
        "scrolling",
        '<div style="width: 9px; height: 99px; overflow: auto"><p>Unreachable</p></div>',
    ),
]


@pytest.mark.parametrize(("part", "body"), INACCESSIBLE)
def test_accessibility_check_notices(browser, part, body):
    page = browser.new_page()
    page.set_content(f'<html lang="en"><title>A page</title><main>{body}</main>')
    shown = page.inner_html("main")
    assert violations(page, part)
    assert page.inner_html("main") == shown
    page.close()
