// What the tests ask of an open page. The browser runs this before the page's own scripts.

window.course = {
  // Wait for the mathematics and the fonts.
  async ready() {
    await window.MathJax?.startup?.promise;
    await document.fonts.ready;
  },

  // Have all images come, also those that a reader would have to scroll to.
  async images() {
    for (const image of document.images) image.loading = "eager";
    await Promise.all([...document.images].map((image) => image.decode().catch(() => null)));
  },

  // Say which formulas are not typeset as they should be, and which images have not come.
  inspect() {
    const all = (selector) => [...document.querySelectorAll(selector)];
    const formulas = all(".math");
    const raw = formulas.filter((e) => !e.querySelector("mjx-container"));
    const fonts = [...document.fonts].filter((f) => f.status === "loaded" && /MJX/.test(f.family));
    return [
      ...raw.map((e) => `not typeset: ${e.textContent}`),
      ...all("mjx-merror").map((e) => `MathJax cannot read: ${e.dataset.mjxError}`),
      ...all("mjx-assistive-mml [mathcolor=red]").map(
        (e) => `a command that MathJax does not know: ${e.textContent}`),
      ...(formulas.length && !fonts.length ? ["the fonts of MathJax have not come"] : []),
      ...[...document.images].filter((e) => !e.naturalWidth).map(
        (e) => `did not load: ${e.src.slice(0, 200)}`),
    ];
  },

  // Click on every hidden solution and hidden cell, as a reader would; say which do not open.
  async open() {
    const HIDING = "details, .dropdown.admonition";
    const CLICK = { bubbles: true, cancelable: true };
    const stuck = [];
    for (const box of document.querySelectorAll(`main :is(${HIDING})`)) {
      const name = box.outerHTML.slice(0, 120);
      const title = box.querySelector(":scope > :is(summary, .admonition-title)");
      const own = [...box.querySelectorAll("p, pre, img, table, mjx-container")].filter(
        (e) => !title.contains(e) && !e.closest("[role=tooltip]") &&
          e.parentElement.closest(HIDING) === box &&
          (e.matches("img") || e.textContent.trim()));
      const visible = (e) =>
        e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) &&
        e.getBoundingClientRect().height > 0;
      if (own.some(visible)) stuck.push(`not hidden at first: ${name}`);
      title.scrollIntoView({ block: "center", behavior: "instant" });
      const { left, top, width, height } = title.getBoundingClientRect();
      const hit = document.elementFromPoint(left + width / 2, top + height / 2);
      if (title.contains(hit)) hit.dispatchEvent(new MouseEvent("click", CLICK));
      else stuck.push(`another thing is in front of its title: ${name}`);
      course.finish();
      if (!own.every(visible)) await course.settle();
      if (!own.length || !own.every(visible)) stuck.push(`does not open: ${name}`);
    }
    return stuck;
  },

  // Click on the first, the middle and the last of the buttons that copy code; say which copy
  // another text than their boxes show.
  async copy() {
    const all = [...document.querySelectorAll("button.copybtn")];
    const wrong = [];
    for (const button of new Set([all[0], all[all.length >> 1], all.at(-1)])) {
      if (!button) continue;
      await navigator.clipboard.writeText("nothing was copied");
      button.click();
      const copied = await navigator.clipboard.readText();
      const shown = button.parentElement.querySelector("pre").textContent.replace(/\n$/, "");
      if (copied !== shown) wrong.push(`shown ${shown}, copied ${copied}`);
    }
    return wrong;
  },

  // End the page's transitions: what fades in is pale until then, and what slides in makes its
  // neighbors wider. Say how many there were.
  finish() {
    const moving = document.getAnimations().filter(
      (animation) => animation.effect.getComputedTiming().endTime < Infinity);
    for (const animation of moving) animation.finish();
    return moving.length;
  },

  // Let the page answer to a change, and end its transitions.
  async settle() {
    for (let round = 0; round < 5; round++) {
      await new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)));
      if (!course.finish()) return;
    }
  },

  // The innermost elements that reach beyond the window, unless a box of their own scrolls them.
  async overflow() {
    await course.settle();
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    const wide = [...document.querySelectorAll("main *")].filter(
      (e) => e.getBoundingClientRect().right > width + 1);
    const names = wide.slice(0, 3).map((e) => e.outerHTML.slice(0, 120)).join("\n");
    return [`wider than ${width} px: ${names || "unknown element"}`];
  },

  // How many outputs, or tables, a reader must scroll to see whole in a window of this width.
  wide(boxes) {
    const all = [...document.querySelectorAll(`main ${boxes}`)];
    return all.filter((box) => box.clientWidth && box.scrollWidth > box.clientWidth + 1).length;
  },

  // Leave but one part on the page: axe-core looks through all the rest as well.
  alone(part) {
    for (let e = document.querySelector(part); e !== document.body; e = e.parentElement) {
      [...e.parentElement.children].forEach((other) => other !== e && other.remove());
    }
    course.thin();
  },

  // A page has ten thousand colored words of code, formulas and buttons for copying, in a dozen
  // styles. Keep one of each style and make the others plain text, which axe-core is through with
  // much sooner.
  thin() {
    const paths = new Map();
    const path = (e) => {
      if (!e) return "";
      if (!paths.has(e)) {
        const own = `${e.tagName}.${e.getAttribute("class")}.${e.style.color}`;
        paths.set(e, `${path(e.parentElement)}/${own}`);
      }
      return paths.get(e);
    };
    const seen = new Set();
    const plain = [];
    for (const e of document.querySelectorAll("mjx-container, .copybtn, pre span")) {
      const style = path(e);
      if (seen.has(style) && !(e.matches("span") && e.childElementCount)) plain.push(e);
      seen.add(style);
    }
    for (const e of plain) {
      if (e.matches("mjx-container")) e.replaceChildren("x");
      else if (e.matches(".copybtn")) e.remove();
      else e.replaceWith(...e.childNodes);
    }
  },

  // What axe-core finds serious or critical in a part of the page; with `rules`, by these alone.
  async audit(part, rules) {
    await course.settle();
    const options = { resultTypes: ["violations"], preload: false };
    options.rules = {
      region: { enabled: false },  // slow, and of moderate impact
      "label-content-name-mismatch": { enabled: true },
    };
    if (rules) options.runOnly = { type: "rule", values: rules };
    const { violations } = await axe.run(part, options);
    return violations
      .filter((found) => ["serious", "critical"].includes(found.impact))
      .flatMap((found) => found.nodes.map((node) => [found, node]))
      // What a row of numbers in an explorer is called names the columns, too.
      .filter(([{ id }, { target }]) =>
        id !== "label-content-name-mismatch" || !document.querySelector(target[0])?.closest(".play"))
      .map(([found, node]) => [
        found.id, node.html.slice(0, 160), (node.any[0] ?? node.all[0] ?? node.none[0])?.message,
      ].join(": "));
  },
};
