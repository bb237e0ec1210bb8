// What the theme and the bibliography leave out for readers who use a keyboard or a screen reader.

// A box whose text is wider than itself is reached with Tab and scrolled with the arrows. The theme
// looks once and after a change of the window; this also sees what a reader opens later.
const boxes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    target.tabIndex = target.scrollWidth > target.clientWidth ? 0 : -1;
  }
});

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("main pre").forEach((box) => boxes.observe(box));

  // The arrow beside a chapter in the sidebar has no text of its own.
  document.querySelectorAll("li > details > summary").forEach((arrow) => {
    const chapter = arrow.closest("li").querySelector("a");
    if (chapter && !arrow.textContent.trim()) {
      arrow.setAttribute("aria-label", `Pages of ${chapter.textContent.trim()}`);
    }
  });

  // The list of works has entries of a deprecated role, which is none of a list's.
  document.querySelectorAll(".citation-list > .citation").forEach((entry) => {
    entry.setAttribute("role", "listitem");
  });
});
