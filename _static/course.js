// What the theme and its extensions leave out, above all for a keyboard or a screen reader.

// A box that is wider than its place is reached with Tab and scrolled with the arrows. The theme
// looks for such boxes once and when the window changes; this also sees what a reader opens later.
const boxes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    target.tabIndex = target.scrollWidth > target.clientWidth ? 0 : -1;
  }
});

// A hidden solution opens at a click on the title itself. So that it also does at one on a link or a
// formula within the title, where the extension fails, such a click becomes one on the button.
document.addEventListener(
  "click",
  (click) => {
    const title = click.target.closest(".toggle > .admonition-title");
    if (title && click.target !== title && !click.target.closest(".toggle-button")) {
      click.stopPropagation();
      title.querySelector(".toggle-button").click();
    }
  },
  true,
);

document.addEventListener("DOMContentLoaded", () => {
  document
    .querySelectorAll("main :is(pre, .output, .pst-scrollable-table-container)")
    .forEach((box) => boxes.observe(box));
  window.MathJax?.startup?.promise.then(() => {
    document.querySelectorAll(".math mjx-container").forEach((box) => boxes.observe(box));
  });

  // The arrow beside a chapter in the sidebar has no text of its own.
  document.querySelectorAll("li > details > summary").forEach((arrow) => {
    const chapter = arrow.closest("li").querySelector("a");
    if (chapter && !arrow.textContent.trim()) {
      arrow.setAttribute("aria-label", `Pages of ${chapter.textContent.trim()}`);
    }
  });

  // A folded cell says what it is, but its label is the same for all: a screen reader reads that.
  document.querySelectorAll("details.hide > summary").forEach((title) => {
    title.removeAttribute("aria-label");
  });

  // What the search field in the sidebar shows is its name: "Search Ctrl + K".
  document.querySelector(".search-button-field")?.removeAttribute("aria-label");

  // The switch to the other edition leads to the section that is being read.
  document.querySelectorAll("a.edition").forEach((link) => {
    link.removeAttribute("target");
    link.lang = link.hreflang = document.documentElement.lang.startsWith("zh") ? "en" : "zh-CN";
    link.addEventListener("click", () => {
      const top = (element) => element.getBoundingClientRect().top;
      const asked = document.getElementById(decodeURIComponent(location.hash.slice(1)));
      const inView = asked && top(asked) > -50 && top(asked) < innerHeight;
      const seen = (section) => top(section) < innerHeight / 3;
      const sections = [...document.querySelectorAll("article section[id]")].filter(seen);
      const scrolled = scrollY && sections.length && !inView;
      link.hash = scrolled ? sections.at(-1).id : location.hash;
    });
  });

  // What has not been translated yet is read aloud as the English that it is.
  document.querySelectorAll(".untranslated").forEach((text) => {
    text.lang = "en";
    text.title = "尚未翻译";
  });

  // The list of works has entries of a deprecated role, which is none of a list's.
  document.querySelectorAll(".citation-list > .citation").forEach((entry) => {
    entry.setAttribute("role", "listitem");
  });
});

// Escape puts the tooltip of a term away; it comes back at the next term.
document.addEventListener("keydown", (press) => {
  if (press.key === "Escape") document.body.classList.add("no-tooltip");
});
for (const event of ["pointerout", "focusout"]) {
  document.addEventListener(event, () => document.body.classList.remove("no-tooltip"));
}
