// The ground of the explorers: it loads one when it comes near the screen, unpacks its numbers, and
// holds what several of them need. The extension _ext/play.py puts it on the pages that have one.
//
// The explorer NAME stands in the place of the figure of a cell that is tagged play-NAME. Its script
// play/NAME.js calls play.explorer(NAME, {words, engine, mount}), its numbers play/NAME.data.js call
// play.data(NAME, …). These are classic scripts, as a page opened from a folder may load no others.
const play = (() => {
  const home = document.currentScript.src;
  const parts = {}; // by name: what its scripts have registered
  const promises = {}; // by address or name

  const once = (key, make) => (promises[key] ??= make());
  const part = (name) => (parts[name] ??= {});

  const script = (name) =>
    once(name, () => new Promise((resolve, reject) => {
      const element = document.createElement("script");
      element.src = new URL(name, home);
      element.onload = resolve;
      element.onerror = () => reject(new Error(`${name} did not load`));
      document.head.append(element);
    }));

  // What an explorer computes with: engine(data), made once for a page.
  const engine = (name) =>
    once(`engine of ${name}`, async () => {
      await Promise.all([script(`${name}.js`), script(`${name}.data.js`)]);
      part(name).unpacked = await unpack(part(name).data);
      return part(name).engine(part(name).unpacked);
    });

  // ---- Numbers

  const half = (bits) => {
    const [sign, exponent, rest] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
    return sign * (exponent ? 2 ** (exponent - 15) * (1 + rest / 1024) : rest * 2 ** -24);
  };

  const inflate = async (base64) => {
    const packed = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).arrayBuffer();
  };

  // Give the values as support/play.py was given them: the length of the JSON in four bytes, the
  // JSON, the tensors. A tensor of decimals becomes a Float32Array, one of whole numbers an array of
  // its type; both know their shape.
  const unpack = async (base64) => {
    const all = await inflate(base64);
    const start = 4 + new DataView(all).getUint32(0, true);
    const values = JSON.parse(new TextDecoder().decode(new Uint8Array(all, 4, start - 4)));
    const buffer = all.slice(start);
    const types = { int8: Int8Array, uint8: Uint8Array, uint16: Uint16Array, int32: Int32Array };
    const read = ({ type, shape, at, scale }) => {
      const size = shape.reduce((a, b) => a * b, 1);
      let array;
      if (type === "float16") array = Float32Array.from(new Uint16Array(buffer, at, size), half);
      else array = new types[type](buffer, at, size);
      if (scale !== undefined) {
        const rows = new Uint16Array(buffer, scale, shape[0]);
        const width = size / shape[0];
        array = Float32Array.from(array, (x, i) => x * half(rows[Math.floor(i / width)]));
      }
      array.shape = shape;
      return array;
    };
    const walk = (value) => {
      if (Array.isArray(value)) return value.map(walk);
      if (value === null || typeof value !== "object") return value;
      if ("tensor" in value) return read(value.tensor);
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, walk(item)]));
    };
    return walk(values);
  };

  // Return weight (n, d) times x (d,) plus bias (n,).
  const linear = (weight, x, bias) => {
    const [n, d] = weight.shape;
    const y = new Float32Array(n);
    for (let i = 0, at = 0; i < n; i++) {
      let sum = 0;
      for (let j = 0; j < d; j++) sum += weight[at++] * x[j];
      y[i] = bias ? sum + bias[i] : sum;
    }
    return y;
  };

  const softmax = (x) => {
    const most = x.reduce((a, b) => Math.max(a, b), -Infinity);
    const e = Float64Array.from(x, (value) => Math.exp(value - most));
    const sum = e.reduce((a, b) => a + b, 0);
    return e.map((value) => value / sum);
  };

  const layerNorm = (x, weight, bias, eps = 1e-5) => {
    const mean = x.reduce((a, b) => a + b, 0) / x.length;
    const variance = x.reduce((a, b) => a + (b - mean) ** 2, 0) / x.length;
    return x.map((value, i) => ((value - mean) / Math.sqrt(variance + eps)) * weight[i] + bias[i]);
  };

  const geluTanh = (x) =>
    x.map((v) => 0.5 * v * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (v + 0.044715 * v ** 3))));

  // A generator of numbers in [0, 1), the same for the same seed (mulberry32).
  const random = (seed) => () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };

  // ---- What a reader sees

  const language = document.documentElement.lang || "en";

  // Put values into a sentence of the table of words: say("{n} tokens", {n: 3}).
  const say = (sentence, values = {}) =>
    sentence.replace(/\{(\w+)\}/g, (_, name) => {
      const value = values[name];
      return typeof value === "number" ? value.toLocaleString(language) : value;
    });

  // Make an element: attributes by name, handlers as onclick, then text or elements.
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== undefined && value !== false) element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  };

  const button = (text, onclick, attributes = {}) =>
    make("button", { type: "button", class: "play-button", onclick, ...attributes }, text);

  let ids = 0;

  // A labeled slider; show(value) is what stands beside it and what a screen reader says. Set .value
  // and call .update() to move it from outside.
  const slider = ({ label, min = 0, max, step = 1, value, show = String, oninput }) => {
    const id = `play-${++ids}`;
    const output = make("span", { "aria-hidden": "true" }); // aria-valuetext says it
    const input = make("input", { id, type: "range", min, max, step });
    const element = make("div", { class: "play-slider" },
      make("label", { for: id }, label), output, input);
    const update = () => {
      output.textContent = show(Number(input.value));
      input.setAttribute("aria-valuetext", output.textContent);
    };
    input.value = value;
    input.addEventListener("input", () => {
      update();
      oninput(Number(input.value));
    });
    update();
    return { element, input, update };
  };

  // A labeled box for text.
  const textBox = ({ label, value, rows = 2, maxlength = 1000, oninput }) => {
    const id = `play-${++ids}`;
    const plain = { autocomplete: "off", autocapitalize: "off", spellcheck: "false" };
    const onkeydown = (press) => {
      if (rows === 1 && press.key === "Enter") press.preventDefault(); // one line stays one
    };
    const input = make("textarea", { id, rows, maxlength, oninput, onkeydown, ...plain });
    input.value = value;
    const element = make("div", { class: "play-text" }, make("label", { for: id }, label), input);
    return { element, input };
  };

  // A picture with a handle, which is dragged, or moved with the arrow keys (with Shift, five steps);
  // with Home it goes back to where it began. Places are [x, y], from 0 to 1, to the right and down.
  const surface = ({ label, picture, value, step, show, oninput }) => {
    let place = value;
    const handle = make("div", {
      class: "play-handle", role: "slider", tabindex: 0, "aria-label": label,
      "aria-valuemin": 0, "aria-valuemax": 100,
    });
    const element = make("div", { class: "play-surface" }, picture, handle);
    const set = (to) => {
      place = to.map((x) => Math.min(Math.max(x, 0), 1));
      [handle.style.left, handle.style.top] = place.map((x) => `${100 * x}%`);
      handle.setAttribute("aria-valuenow", Math.round(100 * place[0]));
      handle.setAttribute("aria-valuetext", show(place));
    };
    const go = (to) => {
      set(to);
      oninput(place);
    };
    const at = ({ clientX, clientY }) => {
      const { left, top, width, height } = picture.getBoundingClientRect();
      return [(clientX - left) / width, (clientY - top) / height];
    };
    element.addEventListener("pointerdown", (press) => {
      if (press.pointerType === "touch" && press.target !== handle) return; // may scroll the page
      press.preventDefault();
      element.setPointerCapture(press.pointerId);
      handle.focus({ preventScroll: true });
      if (press.target !== handle) go(at(press));
    });
    element.addEventListener("pointermove", (move) => {
      if (element.hasPointerCapture(move.pointerId)) go(at(move));
    });
    element.addEventListener("click", (press) => {
      if (press.target !== handle && press.detail) go(at(press));
    });
    handle.addEventListener("keydown", (press) => {
      const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      if (!(press.key in arrows) && press.key !== "Home") return;
      press.preventDefault();
      const far = press.shiftKey ? 5 : 1;
      const by = arrows[press.key];
      go(by ? place.map((x, i) => x + far * by[i] * step[i]) : value);
    });
    set(value);
    return { element, handle, set };
  };

  // Bars beside each other, one for each share in [0, 1]; the numbers stand beside them as text.
  const bars = (shares) => make("span", { class: "play-bars", "aria-hidden": "true" },
    ...shares.map((share) => make("span", { style: `width:${(100 * share).toFixed(1)}%` })));

  // ---- Loading

  const mount = async (place, name) => {
    const made = await engine(name);
    const { words, mount } = part(name);
    const said = words[language.slice(0, 2)] ?? words.en;
    const box = make("section", { class: "play", "aria-label": said.title, "data-play": name });
    mount(box, made, said);
    place.querySelector(".cell_output").before(box);
    place.classList.add("played");
  };

  const near = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        near.unobserve(target);
        const name = [...target.classList].find((c) => c.startsWith("tag_play-")).slice(9);
        mount(target, name).catch((error) => {
          target.classList.add("unplayed"); // the figure stays
          console.warn(error);
        });
      }
    },
    { rootMargin: "100%" },
  );

  document.documentElement.classList.add("plays"); // before the page is seen, to keep the room
  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("[class*=tag_play-]").forEach((place) => near.observe(place));
  });

  return {
    explorer: (name, what) => Object.assign(part(name), what),
    data: (name, data) => Object.assign(part(name), { data }),
    unpacked: (name) => part(name).unpacked,
    engine, linear, softmax, layerNorm, geluTanh, random,
    say, make, button, slider, textBox, surface, bars,
  };
})();
