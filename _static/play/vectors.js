// The explorer of chapters/similarity_and_analogy.ipynb: neighbors, analogies and a map, of each model.
{
  const words = {
    en: {
      title: "Ask the vectors",
      ask: "What to ask",
      neighbors: "Neighbors of a word",
      analogy: "Analogy",
      text: "A word",
      texts: ["a", "b", "c"],
      examples: "Examples",
      one: ["bank", "rose", "quickly", "japan"],
      three: ["man woman king", "japan japanese germany", "france paris japan"],
      out: "Leave a, b and c out",
      known:
        "{n} words are here: those of the questions that all models know, and the most frequent of the others.",
      unknown: "“{word}” is not among the {n} words here.",
      some: "Try, for example: {some}.",
      read: "Neighbors of {word}: {list}.",
      answered: "{a} is to {b} as {c} is to: {list}.",
      item: "{model}: {word} {cosine}",
      choose: "{word}, cosine {cosine}. Show its neighbors",
      map: "Map of",
      mapAbout: "A map of {n} words: similar words lie close together, as far as two dimensions can show it.",
      mapHint: "Choose a point to show the neighbors of its word.",
    },
    zh: {
      title: "向词向量提问",
      ask: "问什么",
      neighbors: "一个词的近邻",
      analogy: "类比",
      text: "一个词",
      texts: ["a", "b", "c"],
      examples: "例子",
      one: ["bank", "rose", "quickly", "japan"],
      three: ["man woman king", "japan japanese germany", "france paris japan"],
      out: "排除 a、b、c",
      known: "这里有 {n} 个词：所有模型都认得的题目用词，以及最常见的其他词。",
      unknown: "“{word}”不在这里的 {n} 个词里。",
      some: "这里有的词，例如：{some}。",
      read: "{word} 的近邻：{list}。",
      answered: "{a} 之于 {b}，如同 {c} 之于：{list}。",
      item: "{model}：{word} {cosine}",
      choose: "{word}，余弦 {cosine}。查看它的近邻",
      map: "地图所用的模型",
      mapAbout: "{n} 个词的地图：在二维能表达的范围内，相似的词离得近。",
      mapHint: "选一个点，查看这个词的近邻。",
    },
  };

  const SHOWN = 5; // words in a list

  const engine = ({ words: vocab, models, maps }) => {
    const idOf = new Map(vocab.map((word, id) => [word, id]));
    const length = (row) => Math.sqrt(row.reduce((sum, x) => sum + x * x, 0)) || 1;
    const unit = Object.fromEntries(Object.entries(models).map(([name, table]) => {
      const [n, d] = table.shape;
      const rows = Array.from({ length: n }, (_, i) => table.subarray(i * d, (i + 1) * d));
      return [name, rows.map((row) => {
        const size = length(row);
        return row.map((x) => x / size);
      })];
    }));

    // The k rows of largest cosine with a target, as [row, cosine]; some are left out.
    const nearest = (name, target, k, leaveOut = []) => {
      const size = length(target);
      const cosine = unit[name].map((row) => row.reduce((sum, x, i) => sum + x * target[i], 0) / size);
      return Array.from(cosine.keys()).filter((id) => !leaveOut.includes(id))
        .sort((i, j) => cosine[j] - cosine[i] || i - j).slice(0, k).map((id) => [id, cosine[id]]);
    };

    return {
      vocab, idOf, maps, nearest,
      names: Object.keys(models),
      neighbors: (name, id, k) => nearest(name, unit[name][id], k, [id]),
      // The best answers to: a is to b as c is to what? The words of the question may be left out.
      analogy(name, [a, b, c], k, out) {
        const [x, y, z] = [a, b, c].map((id) => unit[name][id]);
        return nearest(name, y.map((value, i) => value - x[i] + z[i]), k, out ? [a, b, c] : []);
      },
    };
  };

  const mount = (box, vectors, words) => {
    const { say, make, button, textBox } = play;
    const { vocab, idOf, names } = vectors;
    const known = (list) => list.filter((text) => text.split(" ").every((word) => idOf.has(word)));
    const [singles, triples] = [known(words.one), known(words.three)];
    let mode = "analogy"; // where the models differ most
    let map = names.at(-1);
    let out = true;
    let word = idOf.get(singles[0] ?? vocab[0]);
    let three = (triples[0] ?? vocab.slice(0, 3).join(" ")).split(" ").map((w) => idOf.get(w));

    const field = (label, get, set) => {
      const made = textBox({
        label, value: vocab[get()], rows: 1, maxlength: 30,
        oninput: () => {
          const text = made.input.value.trim().toLowerCase().replace(/[.,;:!?]+$/, "");
          if (idOf.has(text)) {
            set(idOf.get(text));
            complain();
            draw();
          } else complain(text);
        },
      });
      made.refresh = () => {
        if (made.input.value.trim().toLowerCase() !== vocab[get()]) made.input.value = vocab[get()];
      };
      return made;
    };
    const one = field(words.text, () => word, (id) => (word = id));
    const fields = three.map((_, i) =>
      field(words.texts[i], () => three[i], (id) => (three[i] = id)));

    const message = make("p", { class: "vectors-message play-muted", role: "status" });
    const complain = (text = "") => {
      let begun = text; // as much of its beginning as some word has
      while (begun && !vocab.some((w) => w.startsWith(begun))) begun = begun.slice(0, -1);
      const some = vocab.filter((w) => w.startsWith(begun)).slice(0, 5).join(", ");
      const lines = [say(text ? words.unknown : words.known, { word: text, n: vocab.length })];
      if (begun.length > 1) lines.push(say(words.some, { some }));
      message.textContent = lines.join(" ");
      for (const part of [lists, said]) part.classList.toggle("vectors-old", text !== "");
    };

    const refresh = () => {
      [one, ...fields].forEach((made) => made.refresh());
      complain();
      draw();
    };
    const modes = ["analogy", "neighbors"].map((name) => button(words[name], () => {
      mode = name;
      refresh();
    }, { "data-mode": name }));
    const leave = button(words.out, () => {
      out = !out;
      draw();
    });
    const example = (text) => button(text.replace(/^(\S+) (\S+) (\S+)$/, "$1 : $2 = $3 : ?"), () => {
      const ids = text.split(" ").map((w) => idOf.get(w));
      if (ids.length === 1) [word] = ids;
      else three = ids;
      refresh();
    });
    const lists = make("div", { class: "vectors-lists" });
    const said = make("p", { class: "vectors-said", "aria-live": "polite" });
    const group = (label, ...buttons) =>
      make("div", { class: "play-row", role: "group", "aria-label": label }, ...buttons);
    const parts = {
      neighbors: make("div", {}, one.element, group(words.examples, ...singles.map(example))),
      analogy: make("div", {},
        make("div", { class: "vectors-three" }, ...fields.map(({ element }) => element)),
        group(words.examples, ...triples.map(example)), group(words.analogy, leave)),
    };
    const question = make("div", { class: "vectors-question" });

    const found = (name) => (mode === "neighbors" ? vectors.neighbors(name, word, SHOWN)
      : vectors.analogy(name, three, SHOWN, out));

    const draw = () => {
      modes.forEach((b) => b.setAttribute("aria-pressed", b.dataset.mode === mode));
      leave.setAttribute("aria-pressed", out);
      if (!parts[mode].isConnected) question.replaceChildren(parts[mode]);
      const focused = document.activeElement.closest?.(".vectors-lists")
        ? [...lists.querySelectorAll("button")].indexOf(document.activeElement) : -1;
      const best = [];
      lists.replaceChildren(...names.map((name) => {
        const rows = found(name).map(([id, cosine]) => [vocab[id], id, cosine.toFixed(2)]);
        best.push(say(words.item, { model: name, word: rows[0][0], cosine: rows[0][2] }));
        return make("div", { class: "vectors-list", role: "group", "aria-label": name },
          make("b", { "aria-hidden": "true" }, name),
          ...rows.map(([text, id, cosine]) => make("button", {
            type: "button", "data-word": text, "aria-label": say(words.choose, { word: text, cosine }),
            onclick: () => go(id),
          }, make("span", {}, text), make("span", {}, cosine.replace("-", "−")))));
      }));
      if (focused >= 0) lists.querySelectorAll("button")[focused].focus(); // the keyboard stays
      const [a, b, c] = three.map((id) => vocab[id]);
      said.textContent = say(mode === "neighbors" ? words.read : words.answered,
        { word: vocab[word], a, b, c, list: best.join("; ") });
      chart();
    };

    const go = (id) => {
      word = id;
      mode = "neighbors";
      refresh();
    };

    // The map: a point for each word; named are the word or the question, and what is found.
    const svg = (tag, attributes, ...children) => {
      const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
      element.append(...children);
      return element;
    };
    const SIZE = 640;
    const place = (id) => {
      const [x, y] = vectors.maps[map].subarray(2 * id, 2 * id + 2);
      return [x, 255 - y].map((value) => 20 + (value / 255) * (SIZE - 40));
    };
    const dots = vocab.map(() => svg("circle", { r: 2.5 }));
    const marks = svg("g", {});
    const pointed = svg("text", { class: "vectors-pointed" });
    const image = svg("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", "aria-label":
      say(words.mapAbout, { n: vocab.length }) }, ...dots, marks, pointed);
    const names_of_maps = names.map((name) => button(name, () => {
      map = name;
      draw();
    }, { "data-map": name }));
    const mapped = {};
    // The marks and names of some words; a name moves to the middle until it covers no other.
    const named = (ids, kind) => {
      const height = image.clientWidth < 400 ? 32 : 20;
      const taken = [];
      const order = ids.map((id) => [id, ...place(id)]).sort((a, b) => a[2] - b[2]);
      const way = order[order.length >> 1][2] > SIZE / 2 ? -1 : 1;
      if (way < 0) order.reverse();
      const texts = order.map(([id, x, y]) => {
        const end = x > SIZE - 160;
        let top = y + 6;
        const covers = ([u, v]) => Math.abs(u - x) < 6 * height && Math.abs(v - top) < height;
        while (taken.some(covers)) top += 2 * way;
        taken.push([x, top]);
        return svg("text", { x: x + (end ? -9 : 9), y: top, "text-anchor": end ? "end" : "start" },
          vocab[id]);
      });
      const leads = order.map(([, x1, y1], i) => [x1, y1, taken[i][1] - 6])
        .filter(([, y1, y2]) => Math.abs(y2 - y1) > 12)
        .map(([x1, y1, y2]) => svg("line", { x1, y1, x2: x1, y2, class: "vectors-lead" }));
      const circles = order.map(([id, cx, cy]) => svg("circle", { cx, cy, r: 6, class: kind(id) }));
      return [...leads, ...circles, ...texts];
    };
    const chart = () => {
      names_of_maps.forEach((b) => b.setAttribute("aria-pressed", b.dataset.map === map));
      if (mapped.name !== map) {
        dots.forEach((dot, id) => {
          const [cx, cy] = place(id);
          dot.setAttribute("cx", cx);
          dot.setAttribute("cy", cy);
        });
        mapped.name = map;
        pointed.textContent = "";
      }
      const asked = mode === "neighbors" ? [word] : three;
      const answers = found(map).map(([id]) => id);
      const shown = mode === "neighbors" ? answers : answers.slice(0, 1);
      const line = (from, to) => {
        const [[x1, y1], [x2, y2]] = [place(from), place(to)];
        return svg("line", { x1, y1, x2, y2 });
      };
      const lines = mode === "neighbors" ? answers.map((id) => line(word, id))
        : [line(three[0], three[1]), line(three[2], shown[0])];
      marks.replaceChildren(...lines, ...named([...new Set([...asked, ...shown])],
        (id) => (asked.includes(id) ? "vectors-asked" : "vectors-found")));
    };
    // The word nearest to the pointer, unless it is far.
    const under = ({ clientX, clientY }) => {
      const { left, top, width } = image.getBoundingClientRect();
      const [x, y] = [clientX - left, clientY - top].map((pixels) => (pixels / width) * SIZE);
      let [best, least] = [-1, 22 * (SIZE / width)];
      vocab.forEach((_, id) => {
        const [cx, cy] = place(id);
        const far = Math.hypot(cx - x, cy - y);
        if (far < least) [best, least] = [id, far];
      });
      return best;
    };
    image.addEventListener("pointermove", (event) => {
      const id = under(event);
      pointed.textContent = id < 0 ? "" : vocab[id];
      if (id < 0) return;
      const [x, y] = place(id);
      pointed.setAttribute("text-anchor", x > SIZE - 120 ? "end" : "start");
      pointed.setAttribute("x", x);
      pointed.setAttribute("y", y - 9);
    });
    image.addEventListener("pointerleave", () => (pointed.textContent = ""));
    image.addEventListener("click", (event) => {
      const id = under(event);
      if (id >= 0) go(id);
    });

    box.append(
      group(words.ask, ...modes), question, message, lists, said,
      group(words.map, ...names_of_maps),
      make("div", { class: "vectors-map" }, image),
      make("p", { class: "play-muted" }, words.mapHint),
    );
    complain();
    draw();
  };

  play.explorer("vectors", { words, engine, mount });
}
