// What the tests ask of an open page. The browser runs this before the page's own scripts.

window.course = {
  // Wait for the mathematics, the images and the fonts.
  async ready() {
    if (window.MathJax) await window.MathJax.startup.promise;
    for (const image of document.images) image.loading = "eager";
    await Promise.all([...document.images].map((image) => image.decode().catch(() => null)));
    await document.fonts.ready;
  },

  // What the page says about itself once its mathematics is typeset.
  inspect() {
    const prose = document.querySelector("main").cloneNode(true);
    prose.querySelectorAll("pre, code, script, style, mjx-container").forEach((e) => e.remove());
    const formulas = [...document.querySelectorAll(".math")];
    const texts = (selector) => [...document.querySelectorAll(selector)].map((e) => e.textContent);
    return {
      formulas: formulas.length,
      raw: formulas.filter((e) => !e.querySelector("mjx-container")).map((e) => e.textContent),
      broken: [...document.querySelectorAll("mjx-merror")].map((e) =>
        e.getAttribute("data-mjx-error")),
      unknown: texts("mjx-assistive-mml [mathcolor=red]"),
      fonts: [...document.fonts].filter((f) => f.status === "loaded" && /MJX/.test(f.family))
        .length,
      prose: prose.textContent,
      images: [...document.images].map((e) => ({
        source: e.src, width: e.naturalWidth, alt: e.getAttribute("alt") || "",
      })),
      links: [...document.querySelectorAll("a[href]")].map((e) => e.href),
      downloads: [...document.querySelectorAll("a.btn-download-source-button")].map((e) => e.href),
      ids: [...document.querySelectorAll("[id]")].map((e) => e.id),
    };
  },

  // Click on every hidden solution and hidden cell, as a reader would; say which do not open.
  async open() {
    const HIDING = "details, .dropdown.admonition";
    const CLICK = { bubbles: true, cancelable: true };
    const boxes = [...document.querySelectorAll(`main :is(${HIDING})`)];
    const stuck = [];
    for (const box of boxes) {
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
    return { boxes: boxes.length, stuck };
  },

  // The buttons that copy a box of code, and that of the first output: those of outputs are alike.
  buttons() {
    const all = [...document.querySelectorAll("button.copybtn")];
    const output = all.find((e) => e.closest(".cell_output"));
    return all.filter((e) => e === output || !e.closest(".cell_output"));
  },

  // Click on the buttons of these numbers; give what each copies, and what its box shows. The text
  // is caught on its way to the clipboard, and of the page's first button it is read there.
  async copy(first, end) {
    const texts = [];
    for (const button of course.buttons().slice(first, end)) {
      const alone = !first && !texts.length;
      if (alone) await navigator.clipboard.writeText("nothing was copied");
      let caught = "nothing was copied";
      const listen = ({ target }) => {
        caught = target.value?.slice(target.selectionStart, target.selectionEnd);
      };
      document.addEventListener("copy", listen);
      button.click();
      document.removeEventListener("copy", listen);
      texts.push({
        copied: alone ? await navigator.clipboard.readText() : caught,
        shown: button.parentElement.querySelector("pre").textContent,
        input: Boolean(button.closest(".cell_input")),
      });
    }
    return texts;
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
    if (document.documentElement.scrollWidth <= width) return "";
    const wide = [...document.querySelectorAll("main *")].filter(
      (e) => e.getBoundingClientRect().right > width + 1);
    return wide.slice(0, 3).map((e) => e.outerHTML.slice(0, 120)).join("\n") || "unknown element";
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

  // Mark one element of each look that is not among those `seen` on other pages: its colors and its
  // font, upon all that lies behind it. Give all looks.
  mark(seen) {
    const grounds = new Map();
    const ground = (e) => {
      if (!e) return "";
      if (!grounds.has(e)) {
        const { backgroundColor, backgroundImage, opacity, filter, position } = getComputedStyle(e);
        const own = [backgroundColor, backgroundImage, opacity, filter, position].join();
        const plain = "rgba(0, 0, 0, 0),none,1,none,static";
        grounds.set(e, ground(e.parentElement) + (own === plain ? "" : `/${own}`));
      }
      return grounds.get(e);
    };
    const looks = new Set(seen);
    for (const e of document.querySelectorAll("body, body *")) {
      e.removeAttribute("data-look");
      const written = [...e.childNodes].some((c) => c.nodeType === Node.TEXT_NODE && c.data.trim());
      if (!(written || e.matches("input, select, textarea")) || !e.checkVisibility()) continue;
      const { color, fontSize, fontWeight, textShadow } = getComputedStyle(e);
      const look = [color, fontSize, fontWeight, textShadow, ground(e)].join();
      if (!looks.has(look)) e.setAttribute("data-look", "");
      looks.add(look);
    }
    return [...looks];
  },

  // What axe-core finds serious or critical; with `rules`, by these alone. The contrast of looks that
  // were `seen` on other pages is known.
  async audit(rules, seen) {
    await course.settle();
    const looks = course.mark(seen);
    axe.configure({ rules: [{ id: "color-contrast", selector: "[data-look]" }] });
    const options = { resultTypes: ["violations"], preload: false };
    options.rules = { region: { enabled: false } };  // slow, and of moderate impact
    if (rules) options.runOnly = { type: "rule", values: rules };
    const { violations } = await axe.run(document, options);
    const faults = violations
      .filter((found) => ["serious", "critical"].includes(found.impact))
      .flatMap((found) => found.nodes.map((node) => [
        found.id, node.html.slice(0, 160), (node.any[0] ?? node.all[0] ?? node.none[0])?.message,
      ].join(": ")));
    return { faults, looks };
  },
};
