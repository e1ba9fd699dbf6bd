// What scrolls sideways in its own box can be reached, and scrolled, with the keyboard.
const boxes = ".bd-article :is(mjx-container[display], mjx-container.wide-formula, div.math, .output, .pst-scrollable-table-container)";

// Where there is more to the right the box fades out.
const fade = (box) => {
  const left = box.scrollWidth - box.clientWidth - box.scrollLeft;
  box.classList.toggle("more-to-the-right", box.clientWidth > 0 && left > 1);
};

// A displayed formula that is a little wider than its column is set smaller, to be seen whole: down to this part of its size.
const SMALLEST = 0.65;
const displayed = ".bd-article mjx-container[display] > mjx-math";

const shrink = () => {
  for (const formula of document.querySelectorAll(displayed)) {
    formula.style.fontSize = "";
    const part = (formula.parentElement.clientWidth - 2) / formula.offsetWidth;
    if (part > 0 && part < 1) formula.style.fontSize = `${100 * Math.max(part, SMALLEST)}%`;
  }
};

// A formula within a line that is wider than the line gets a box of its own.
const inline = ".bd-article mjx-container:not([display])";

const widen = () => {
  for (const formula of document.querySelectorAll(inline)) {
    const line = formula.closest("p, li, dd, figcaption, h1, h2, h3, td, th") ?? formula.parentElement;
    formula.classList.toggle("wide-formula", line.clientWidth > 0 && formula.scrollWidth > line.clientWidth);
  }
};

const reach = () => {
  shrink();
  widen();
  for (const box of document.querySelectorAll(boxes)) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
    fade(box);
  }
};

addEventListener("load", async () => {
  await window.MathJax?.startup?.promise;
  reach();
  addEventListener("resize", reach);
  document.addEventListener("toggle", reach, true); // a folded formula has no width
  document.addEventListener("click", () => setTimeout(reach)); // nor has one in a folded proof or solution
  document.addEventListener("scroll", ({ target }) => target.matches?.(boxes) && fade(target), true);
});
