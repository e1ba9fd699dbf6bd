// What scrolls sideways in its own box can be reached, and scrolled, with the keyboard.
const boxes = ".bd-article :is(mjx-container[display], mjx-container.wide-formula, div.math, .output, .pst-scrollable-table-container)";

// A formula within a line that is wider than the line gets a box of its own.
const inline = ".bd-article mjx-container:not([display])";

const widen = () => {
  for (const formula of document.querySelectorAll(inline)) {
    const line = formula.closest("p, li, dd, figcaption, h1, h2, h3, td, th") ?? formula.parentElement;
    formula.classList.toggle("wide-formula", line.clientWidth > 0 && formula.scrollWidth > line.clientWidth);
  }
};

const reach = () => {
  widen();
  for (const box of document.querySelectorAll(boxes)) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
};

addEventListener("load", async () => {
  await window.MathJax?.startup?.promise;
  reach();
  addEventListener("resize", reach);
  document.addEventListener("toggle", reach, true); // a folded formula has no width
});
