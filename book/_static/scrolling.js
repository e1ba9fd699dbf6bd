// What scrolls sideways in its own box can be reached, and scrolled, with the keyboard.
const boxes = ".bd-article :is(mjx-container[display], div.math, .output, .pst-scrollable-table-container)";

const reach = () => {
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
