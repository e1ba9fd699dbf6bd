// What scrolls sideways in its own box can be reached, and scrolled, with the keyboard.
const boxes = ".bd-article :is(mjx-container[display], mjx-container.wide-formula, div.math, .output, .pst-scrollable-table-container)";

// Where there is more to the right the box fades out.
const fade = (box) => {
  const left = box.scrollWidth - box.clientWidth - box.scrollLeft;
  box.classList.toggle("more-to-the-right", box.clientWidth > 0 && left > 1);
};

// A formula within a line that is wider than the line gets a box of its own.
const inline = ".bd-article mjx-container:not([display])";

const widen = () => {
  for (const formula of document.querySelectorAll(inline)) {
    formula.firstElementChild.style.fontSize = "";
    const line = formula.closest("p, li, dd, figcaption, h1, h2, h3, td, th") ?? formula.parentElement;
    formula.classList.toggle("wide-formula", line.clientWidth > 0 && formula.scrollWidth > line.clientWidth);
  }
};

// A formula in a box that is a little wider than the column is set smaller, to be seen whole: down to this part of its size.
const SMALLEST = 0.65;
const boxed = ".bd-article :is(mjx-container[display], mjx-container.wide-formula) > mjx-math";

const shrink = () => {
  for (const formula of document.querySelectorAll(boxed)) {
    formula.style.fontSize = "";
    const part = (formula.parentElement.clientWidth - 2) / formula.offsetWidth;
    if (part > 0 && part < 1) formula.style.fontSize = `${100 * Math.max(part, SMALLEST)}%`;
  }
};

// A line does not begin with the comma after a formula, nor end with the bracket before it.
const keep = () => {
  for (const formula of document.querySelectorAll(inline)) {
    const whole = formula.closest("span.math") ?? formula;
    const [before, after] = [whole.previousSibling, whole.nextSibling];
    const opens = before?.nodeType === Node.TEXT_NODE ? before.data.match(/[([“‘]*$/)[0] : "";
    const closes = after?.nodeType === Node.TEXT_NODE ? after.data.match(/^[-.,;:!?)\]’”%]*/)[0] : "";
    if (!opens && !closes) continue;
    if (opens) before.data = before.data.slice(0, -opens.length);
    if (closes) after.data = after.data.slice(closes.length);
    const box = document.createElement("span");
    box.className = "kept-together";
    whole.replaceWith(box);
    box.append(opens, whole, closes);
  }
};

const reach = () => {
  widen();
  shrink();
  for (const box of document.querySelectorAll(boxes)) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
    fade(box);
  }
};

addEventListener("load", async () => {
  await window.MathJax?.startup?.promise;
  keep();
  reach();
  addEventListener("resize", reach);
  document.addEventListener("toggle", reach, true); // a folded formula has no width
  document.addEventListener("click", () => setTimeout(reach)); // nor has one in a folded proof or solution
  document.addEventListener("scroll", ({ target }) => target.matches?.(boxes) && fade(target), true);
});
