"""What axe-core finds wrong with the accessibility of a page, in a few seconds a page.

A rule is never turned off. What costs time is left out where it cannot change the answer: the
glyphs of formulas, half of a page's elements, are looked at by the rule on scrolling alone, since
MathJax gives them no roles, names or colours of their own; of all texts of one colour and size on
one ground the rule on contrast measures the first; and the other words of code, a third of the
elements, are plain text meanwhile, unless they are more than a span with a class.
"""

from importlib.resources import files

AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text()
SCROLLING, CONTRAST = "scrollable-region-focusable", "color-contrast"

VIOLATIONS = """async ({parts, scrolling, contrast}) => {
  const options = {
    structure: {rules: {[contrast]: {enabled: false}, [scrolling]: {enabled: false}}},
    scrolling: {runOnly: [scrolling]},
    contrast: {runOnly: [contrast]}};
  const look = async (part, context) => (await axe.run(
      context, {...options[part], resultTypes: ['violations']})).violations
    .filter(v => ['serious', 'critical'].includes(v.impact))
    .flatMap(v => v.nodes.map(n => `${v.id}: ${n.html.slice(0, 150)}`));

  const firstOfEachColour = () => {
    const first = new Map();
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let t = texts.nextNode(); t; t = texts.nextNode()) {
      const e = t.parentElement;
      if (!t.data.trim() || e.closest('script, style, mjx-container') || !e.checkVisibility()) continue;
      const {color, fontSize, fontWeight} = getComputedStyle(e);
      const key = [color, fontSize, fontWeight];
      for (let a = e; a; a = a.parentElement) {
        const {backgroundColor, backgroundImage, opacity} = getComputedStyle(a);
        key.push(backgroundColor, backgroundImage, opacity);
      }
      const seen = key.filter(v => !['rgba(0, 0, 0, 0)', 'none', '1'].includes(v)).join();
      if (!first.has(seen)) first.set(seen, e);
    }
    return [...first.values()];
  };

  const folded = [...document.querySelectorAll('details:not([open])')];
  folded.forEach(d => d.open = true);
  // What unfolds fades in, and is faint meanwhile.
  document.getAnimations().filter(a => a.effect.getComputedTiming().endTime < Infinity).forEach(a => a.finish());
  const coloured = firstOfEachColour();
  const more = e => e.localName !== 'span' || e.getAttributeNames().some(a => a !== 'class');
  const kept = [...coloured, ...[...document.querySelectorAll('pre *')].filter(more)];
  const replaced = [...document.querySelectorAll('pre')].map(e => [e, [...e.childNodes]]);
  replaced.forEach(([code, words]) => code.replaceChildren(
    ...words.map(w => kept.some(e => w.contains(e)) ? w : w.textContent)));
  const found = parts.includes('scrolling') ? await look('scrolling', document) : [];
  for (const formula of document.querySelectorAll('mjx-container')) {
    replaced.push([formula, [...formula.childNodes]]);
    formula.replaceChildren();
  }
  try {
    if (parts.includes('structure')) found.push(...await look('structure', document));
    if (parts.includes('contrast'))
      found.push(...await look('contrast', {include: coloured}));
  } finally {
    replaced.forEach(([e, children]) => e.replaceChildren(...children));
    folded.forEach(d => d.open = false);
  }
  return found;
}"""


def violations(page, *parts):
    """The serious and critical violations, solutions unfolded.

    Args:
        page: a page of Playwright.
        parts: "structure" (every rule but two), "contrast" and "scrolling": those two.

    Returns:
        A line for each element at fault: the name of the rule, and the element.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    what = {"parts": parts, "scrolling": SCROLLING, "contrast": CONTRAST}
    return page.evaluate(VIOLATIONS, what)
