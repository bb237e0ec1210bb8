// The first explorer of chapters/transformer.ipynb: attention by hand, with numbers that can be dragged.
{
  const words = {
    en: {
      title: "Attention: drag the components",
      axes: ["animal", "machine", "action"],
      sentences: "The sentence",
      hint:
        "Choose the word that attends. Drag a component left or right, or press the arrow keys on it. " +
        "You can also drag the points of the picture.",
      word: "word",
      score: "score",
      weight: "weight",
      looks: "{word} attends",
      number: "{axis} of {word}",
      before: "before",
      after: "after",
      result: "{word} attends most to {most}, with an attention weight of {share}.",
      alike: "{word} attends equally to all words, with an attention weight of {share}.",
      itself: "itself",
      vectors: "Before: ({before}). After: ({after}).",
      anew: "The chapter's numbers",
      plane: "The words in two dimensions: animal to the right, machine upward. A ring shows the word " +
        "that attends, after attention.",
    },
    zh: {
      title: "注意力：拖动各个分量",
      axes: ["动物", "机器", "动作"],
      sentences: "句子",
      hint: "选一个词，让它去关注别的词。把分量左右拖动，或者在分量上按方向键。图里的点也可以拖动。",
      word: "词",
      score: "得分",
      weight: "权重",
      looks: "{word} 在关注",
      number: "{word} 的“{axis}”",
      before: "之前",
      after: "之后",
      result: "{word} 最关注的是 {most}，注意力权重为 {share}。",
      alike: "{word} 同等关注所有词，注意力权重都是 {share}。",
      itself: "它自己",
      vectors: "之前：({before})。之后：({after})。",
      anew: "本章用的数",
      plane: "词在两个维度上的位置：向右是“动物”，向上是“机器”。圆环是当前词经过注意力之后的位置。",
    },
  };

  const [LEAST, MOST, STEP] = [-1, 2, 0.1];

  const engine = ({ meaning, sentences }) => ({
    meaning,
    sentences,
    // What word t finds when it looks at all words: the three steps of the chapter, x (T, d).
    look(x, t) {
      const scores = x.map((other) => other.reduce((sum, value, i) => sum + value * x[t][i], 0));
      const weights = Array.from(play.softmax(scores));
      const after = x[t].map((_, i) => x.reduce((sum, row, s) => sum + weights[s] * row[i], 0));
      return { scores, weights, after };
    },
  });

  const mount = (box, { meaning, sentences, look }, words) => {
    const { say, make, button } = play;
    const fixed = (value) => (Math.abs(value) < 0.005 ? 0 : value).toFixed(2).replace("-", "−");
    const part = (value) => `${(100 * (value - LEAST)) / (MOST - LEAST)}%`;
    let sentence, x; // the words, and their numbers
    let looking = 1;

    // A bar from zero to the value, one color for each of the three numbers.
    const bar = (value, i) => {
      const [from, to] = [Math.min(0, value), Math.max(0, value)].map(part);
      const style = `left:${from};width:calc(${to} - ${from});background:var(--play-${[2, 1, 0][i]})`;
      return make("span", { class: "attention-bar", "aria-hidden": "true" },
        make("span", { class: "attention-zero", style: `left:${part(0)}` }), make("span", { style }));
    };

    // A number that can be dragged to the left and to the right.
    const number = (t, i) => {
      const label = say(words.number, { axis: words.axes[i], word: sentence[t] });
      const element = make("div", {
        class: "attention-number", role: "slider", tabindex: 0, "aria-label": label,
        "aria-valuemin": LEAST, "aria-valuemax": MOST, "aria-orientation": "horizontal",
      });
      const set = (value) => {
        x[t][i] = Math.round(10 * Math.min(MOST, Math.max(LEAST, value))) / 10;
        draw();
      };
      let start = null;
      element.addEventListener("pointerdown", (event) => {
        start = [event.clientX, x[t][i]];
        element.setPointerCapture(event.pointerId);
      });
      element.addEventListener("pointermove", ({ clientX }) => {
        if (start) set(start[1] + ((clientX - start[0]) / element.offsetWidth) * (MOST - LEAST));
      });
      for (const end of ["pointerup", "pointercancel"]) {
        element.addEventListener(end, () => (start = null));
      }
      element.addEventListener("keydown", (press) => {
        const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 5, PageDown: -5 };
        const to = { Home: LEAST, End: MOST };
        if (!(press.key in by) && !(press.key in to)) return;
        press.preventDefault();
        set(to[press.key] ?? x[t][i] + by[press.key] * STEP);
      });
      element.show = () => {
        element.setAttribute("aria-valuenow", x[t][i]);
        element.replaceChildren(x[t][i].toFixed(1).replace("-", "−"), bar(x[t][i], i));
      };
      return element;
    };

    const shown = (value, i) =>
      make("span", { class: "attention-number" }, fixed(value), bar(value, i));
    const grid = make("div", { class: "attention-grid" });
    const ends = make("div", { class: "attention-grid attention-ends", "aria-hidden": "true" });
    const result = make("div", { class: "attention-result", "aria-live": "polite", "aria-atomic": "true" });
    const plane = make("div", { class: "attention-plane", role: "img", "aria-label": words.plane });
    let rows = [];

    const choose = (text) => {
      sentence = text.split(" ");
      x = sentence.map((word) => [...meaning[word]]);
      rows = sentence.map((word, t) => {
        const name = button(word, () => {
          looking = t;
          draw();
        }, { "aria-label": say(words.looks, { word }) });
        const numbers = words.axes.map((_, i) => number(t, i));
        const score = make("span", { class: "attention-score" });
        const weight = make("span", { class: "attention-weight" });
        const row = make("div", { class: "attention-row", role: "group", "aria-label": word },
          name, ...numbers, score, weight);
        return { name, numbers, score, weight, row };
      });
      grid.replaceChildren(head, ...rows.map(({ row }) => row));
      draw();
    };

    const draw = () => {
      const { scores, weights, after } = look(x, looking);
      rows.forEach(({ name, numbers, score, weight }, t) => {
        name.setAttribute("aria-pressed", t === looking);
        numbers.forEach((element) => element.show());
        score.textContent = fixed(scores[t]);
        weight.replaceChildren(play.bars([weights[t]]), make("span", {}, fixed(weights[t])));
      });
      const row = (name, values) => make("div", { class: "attention-row" },
        make("span", {}, name), ...values.map(shown));
      ends.replaceChildren(row(words.before, x[looking]), row(words.after, after));
      const most = weights.indexOf(Math.max(...weights));
      const list = (values) => values.map(fixed).join(", ");
      const named = most === looking ? words.itself : sentence[most];
      const said = { word: sentence[looking], most: named, share: fixed(weights[most]) };
      const vectors = { before: list(x[looking]), after: list(after) };
      const alike = Math.max(...weights) - Math.min(...weights) < 0.005;
      result.replaceChildren(make("p", {}, say(alike ? words.alike : words.result, said)),
        make("p", {}, say(words.vectors, vectors)));
      for (const element of choices) {
        element.setAttribute("aria-pressed", element.textContent === sentence.join(" "));
      }
      picture(weights, after);
    };

    // The first two numbers of each word as a point; the points can be dragged, too.
    const svg = (tag, attributes, ...children) => {
      const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
      element.append(...children);
      return element;
    };
    const SIZE = 300;
    const place = ([a, m]) => [a, -m].map((value, i) =>
      ((value - (i ? -MOST : LEAST)) / (MOST - LEAST)) * (SIZE - 40) + 20);
    const image = svg("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, "aria-hidden": "true" });
    plane.append(image);
    let held = null;
    const picture = (weights, after) => {
      const [zero, end] = [place([0, 0]), place([MOST, MOST])];
      const at = x.map(place);
      // A name below its point, or lower where another name stands.
      const names = [];
      const own = [...at.map(([l, t]) => [l + 7, t + 17]), place(after).map((v, i) => v + [4, 22][i])];
      for (const [left, top] of own) {
        const taken = (y) => names.some(([l, t]) => Math.abs(l - left) < 55 && Math.abs(t - y) < 14);
        let y = top;
        while (taken(y)) y += 14;
        names.push([left, y]);
      }
      const text = ([left, top], word, more = {}) =>
        svg("text", { x: left, y: top, ...more }, word);
      const middle = { "text-anchor": "middle", class: "attention-axis" };
      image.replaceChildren(
        svg("path", { class: "attention-axes", d: `M20 ${zero[1]}H${end[0]}M${zero[0]} ${SIZE - 20}V20` }),
        text([end[0], zero[1] - 7], words.axes[0], { "text-anchor": "end", class: "attention-axis" }),
        text([zero[0], 14], words.axes[1], middle),
        ...at.map((to, s) => svg("line", {
          x1: at[looking][0], y1: at[looking][1], x2: to[0], y2: to[1],
          "stroke-width": 14 * weights[s], class: "attention-line",
        })),
        ...at.map(([cx, cy], t) => svg("circle", {
          cx, cy, r: 6, class: t === looking ? "attention-looks" : "attention-point",
        })),
        ...sentence.map((word, t) => text(names[t], word)),
        svg("circle", { cx: place(after)[0], cy: place(after)[1], r: 8, class: "attention-after" }),
        text(names.at(-1), words.after, { class: "attention-axis" }),
        ...at.map(([cx, cy], t) => svg("circle", { cx, cy, r: 22, class: "attention-hold", "data-t": t })),
      );
    };
    image.addEventListener("pointerdown", (event) => {
      if (!event.target.dataset?.t) return;
      held = Number(event.target.dataset.t);
      image.setPointerCapture(event.pointerId);
    });
    image.addEventListener("pointermove", ({ clientX, clientY }) => {
      if (held === null) return;
      const { left, top, width } = image.getBoundingClientRect();
      const [a, m] = [clientX - left, clientY - top].map((pixels, i) => {
        const value = (((pixels / width) * SIZE - 20) / (SIZE - 40)) * (MOST - LEAST);
        const number = i ? MOST - value : LEAST + value;
        return Math.round(10 * Math.min(MOST, Math.max(LEAST, number))) / 10;
      });
      x[held].splice(0, 2, a, m);
      draw();
    });
    for (const end of ["pointerup", "pointercancel"]) {
      image.addEventListener(end, () => (held = null));
    }

    const head = make("div", { class: "attention-row attention-head", "aria-hidden": "true" },
      ...[words.word, ...words.axes].map((name) => make("span", {}, name)),
      make("span", { class: "attention-score" }, words.score),
      make("span", { class: "attention-weight" }, words.weight));
    const choices = sentences.map((text) => button(text, () => choose(text)));
    const anew = button(words.anew, () => choose(sentence.join(" ")));
    box.append(
      make("div", { class: "play-row", role: "group", "aria-label": words.sentences }, ...choices, anew),
      make("p", { class: "play-muted" }, words.hint),
      grid, ends, make("div", { class: "attention-both" }, plane, result),
    );
    choose(sentences[0]);
  };

  play.explorer("attention", { words, engine, mount });
}
