// The second explorer of chapters/transformer.ipynb: a word in the chapter's trained model, and where
// its heads look.
{
  const words = {
    en: {
      title: "Attention weights of the trained model",
      text: "A word in the letters a to z",
      start: "monday",
      right: "The model writes {written}, which is right.",
      wrong: "The model writes {written}. The correct output is {wanted}.",
      nothing: "nothing",
      empty: "Type a word.",
      odd: "The model knows only the letters a to z; “{odd}” is left out.",
      long: "The model reads the first {n} letters.",
      parts: "Which attention",
      cross: "Decoder to the word",
      encoder: "Encoder to the word",
      decoder: "Decoder to itself",
      head: "Head {n}",
      heads: "Which head",
      who: "Who attends",
      whoCross: "Who attends, for writing",
      where: "Attended to",
      all: "All attention weights: one row for each letter that attends",
      start_mark: "the start mark",
      end_mark: "the end mark",
      letter: "{letter} ({n})",
      saysCross: "To write {who}, head {head} of the decoder attends to {list}.",
      saysEncoder: "In the encoder, head {head} of {who} attends to {list}.",
      saysDecoder: "To write {who}, head {head} of the decoder attends to {list}.",
    },
    zh: {
      title: "训练好的模型的注意力权重",
      text: "一个由 a 到 z 组成的词",
      start: "monday",
      right: "模型写出 {written}，写对了。",
      wrong: "模型写出 {written}。正确的是 {wanted}。",
      nothing: "什么也没有",
      empty: "请键入一个词。",
      odd: "模型只认得 a 到 z；“{odd}”略去不读。",
      long: "模型只读前 {n} 个字母。",
      parts: "哪一种注意力",
      cross: "解码器关注这个词",
      encoder: "编码器关注这个词",
      decoder: "解码器关注自身",
      head: "第 {n} 个头",
      heads: "哪一个头",
      who: "谁在关注",
      whoCross: "写哪个字母时",
      where: "关注哪里",
      all: "全部注意力权重：每个在关注的字母占一行",
      start_mark: "开始标记",
      end_mark: "结束标记",
      letter: "{letter}（{n}）",
      saysCross: "要写 {who} 时，解码器的第 {head} 个头关注 {list}。",
      saysEncoder: "在编码器里，{who} 的第 {head} 个头关注 {list}。",
      saysDecoder: "要写 {who} 时，解码器的第 {head} 个头关注 {list}。",
    },
  };

  const LONGEST = 16; // letters of a word

  // The chapter's Transformer, one block in the encoder and in the decoder, with its weights.
  const engine = ({ alphabet, heads, weights }) => {
    const { linear, softmax, layerNorm } = play;
    const [start, end] = [alphabet.indexOf("<"), alphabet.indexOf(">")];
    const d = weights["encoder.embed.tokens.weight"].shape[1];
    const depth = (side) =>
      new Set(Object.keys(weights).map((name) => name.match(`^${side}\\.layers\\.(\\d+)`)?.[1])
        .filter(Boolean)).size;

    const apply = (name, xs) =>
      xs.map((x) => linear(weights[`${name}.weight`], x, weights[`${name}.bias`]));
    const norm = (name, xs) =>
      xs.map((x) => layerNorm(x, weights[`${name}.weight`], weights[`${name}.bias`]));
    const add = (xs, ys) => xs.map((x, t) => x.map((value, i) => value + ys[t][i]));

    // The vector of each token plus that of its place, (T, d).
    const embed = (side, ids) => ids.map((id, p) => {
      const token = weights[`${side}.embed.tokens.weight`].slice(id * d, (id + 1) * d);
      return token.map((value, i) => {
        const angle = p * 10_000 ** (-(i - (i % 2)) / d);
        return value + (i % 2 ? Math.cos(angle) : Math.sin(angle));
      });
    });

    // What the places of xs find at those of ys, (T, d), and the weights of each head, (H, T, S).
    const attend = (name, xs, ys, causal) => {
      const size = d / heads;
      const [q, k, v] = [["query", xs], ["key", ys], ["value", ys]].map(([part, rows]) =>
        apply(`${name}.${part}`, rows));
      const found = xs.map(() => new Float32Array(d));
      const looks = Array.from({ length: heads }, (_, h) => q.map((query, t) => {
        const seen = causal ? k.slice(0, t + 1) : k;
        const score = (key) => {
          let sum = 0;
          for (let i = h * size; i < (h + 1) * size; i++) sum += query[i] * key[i];
          return sum / Math.sqrt(size);
        };
        const row = Array.from(softmax(seen.map(score)));
        row.forEach((weight, s) => {
          for (let i = h * size; i < (h + 1) * size; i++) found[t][i] += weight * v[s][i];
        });
        return row.concat(k.slice(row.length).map(() => 0));
      }));
      return [apply(`${name}.out`, found), looks];
    };

    const block = (name, xs, memory) => {
      let normed = norm(`${name}.attention_norm`, xs);
      const [found, self] = attend(`${name}.attention`, normed, normed, Boolean(memory));
      xs = add(xs, found);
      let cross = null;
      if (memory) {
        const looked = attend(`${name}.cross_attention`, norm(`${name}.cross_norm`, xs), memory, false);
        xs = add(xs, looked[0]);
        cross = looked[1];
      }
      normed = norm(`${name}.feed_forward_norm`, xs);
      const wide = apply(`${name}.feed_forward.up`, normed).map((x) => x.map((v) => Math.max(0, v)));
      return [add(xs, apply(`${name}.feed_forward.down`, wide)), self, cross];
    };

    const side = (name, ids, memory) => {
      let [xs, self, cross] = [embed(name, ids)];
      for (let n = 0; n < depth(name); n++) [xs, self, cross] = block(`${name}.layers.${n}`, xs, memory);
      return [norm(`${name}.final_norm`, xs), self, cross]; // the weights are those of the last block
    };

    // The logits (T, V) after each token of the target, and the weights of the three attentions.
    const run = (source, target) => {
      const [memory, encoder] = side("encoder", source);
      const [xs, decoder, cross] = side("decoder", target, memory);
      return { logits: apply("decoder.logits", xs), encoder, decoder, cross };
    };

    const toIds = (text) => Array.from(text, (letter) => alphabet.indexOf(letter));

    // Let the model write a word backward, at most as many tokens as it reads.
    const write = (word) => {
      const source = [...toIds(word), end];
      const [memory] = side("encoder", source);
      const target = [start];
      while (target.length <= source.length) {
        const [xs] = side("decoder", target, memory);
        const [row] = apply("decoder.logits", [xs.at(-1)]);
        target.push(row.indexOf(Math.max(...row)));
        if (target.at(-1) === end) break;
      }
      return target.slice(1).map((id) => alphabet[id]);
    };

    // All that there is to see of a word: what is written, and who looks where.
    const look = (word) => {
      const written = write(word);
      const looks = run([...toIds(word), end], [start, ...toIds(written.slice(0, -1).join(""))]);
      return { written, ...looks };
    };

    return { heads, run, write, look };
  };

  const mount = (box, model, words) => {
    const { say, make, button, textBox } = play;
    const PARTS = ["cross", "encoder", "decoder"];
    let [part, head, chosen] = ["cross", 0, 0];
    let word, seen; // the word, and what the model makes of it
    let chips = [];

    const typed = textBox({
      label: words.text, value: words.start, rows: 1, maxlength: 40, oninput: () => read(),
    });
    const message = make("p", { class: "heads-message", role: "status" });
    const named = (letter) => ({ "<": words.start_mark, ">": words.end_mark })[letter] ?? letter;
    // The tokens that look, and those that are looked at, as the chapter's picture names them.
    const rows = () => (part === "encoder" ? [...word, ">"] : seen.written);
    const columns = () => (part === "decoder" ? ["<", ...seen.written.slice(0, -1)] : [...word, ">"]);

    const choice = (names, show, pick) => names.map((name) => button(show(name), () => {
      pick(name);
      draw();
    }, { "data-choice": name }));
    const parts = choice(PARTS, (name) => words[name], (name) => (part = name));
    const heads = choice([...Array(model.heads).keys()], (n) => say(words.head, { n: n + 1 }),
      (n) => (head = n));
    const whoLabel = make("p", { class: "heads-label" });
    const who = make("div", { class: "heads-letters", role: "group", "aria-label": words.who });
    const where = make("div", { class: "heads-letters heads-where", "aria-hidden": "true" });
    const says = make("p", { class: "heads-says", "aria-live": "polite" });
    const map = make("div", { class: "heads-map", "aria-hidden": "true" });

    const read = () => {
      const text = typed.input.value.toLowerCase().replace(/\s/g, "");
      const odd = text.match(/[^a-z]/u)?.[0];
      const letters = text.replace(/[^a-z]/g, "");
      word = letters.slice(0, LONGEST);
      seen = model.look(word);
      chosen = 0;
      const written = seen.written.join("").replace(/>$/, "");
      const wanted = [...word].reverse().join("");
      const said = { written: written || words.nothing, wanted };
      const lines = [word ? say(written === wanted ? words.right : words.wrong, said) : words.empty];
      if (odd) lines.push(say(words.odd, { odd }));
      if (letters.length > LONGEST) lines.push(say(words.long, { n: LONGEST }));
      message.textContent = lines.join(" ");
      draw();
    };

    const draw = () => {
      const [names, pressed] = [rows(), "aria-pressed"];
      chosen = Math.min(chosen, names.length - 1);
      parts.forEach((b) => b.setAttribute(pressed, b.dataset.choice === part));
      heads.forEach((b) => b.setAttribute(pressed, Number(b.dataset.choice) === head));
      whoLabel.textContent = part === "encoder" ? words.who : words.whoCross;
      chips = names.map((letter, t) => make("button", {
        type: "button", "aria-label": named(letter), tabindex: -1,
        onclick: () => choose(t), onpointerenter: () => choose(t, false),
      }, letter));
      who.replaceChildren(...chips);
      const cells = seen[part][head].flatMap((row, t) => row.map((weight) => make("span", {
        style: `--weight:${(100 * weight).toFixed(1)}%`, "data-t": t,
      })));
      map.style.setProperty("--columns", columns().length);
      map.replaceChildren(make("span"), ...columns().map((letter) => make("b", {}, letter)),
        ...names.flatMap((letter, t) =>
          [make("b", {}, letter), ...cells.filter((cell) => Number(cell.dataset.t) === t)]));
      choose(chosen, false);
    };

    // Show where one place looks. Of the letters one is reached with Tab, the others with the arrows.
    const choose = (t, focus = true) => {
      chosen = t;
      chips.forEach((chip, i) => {
        chip.tabIndex = i === t ? 0 : -1;
        chip.setAttribute("aria-pressed", i === t);
      });
      if (focus) chips[t].focus();
      const row = seen[part][head][t];
      where.replaceChildren(...columns().map((letter, s) => make("span", { class: "heads-cell" },
        make("span", { class: "heads-bar" },
          make("span", { style: `height:${(100 * row[s]).toFixed(1)}%` })),
        make("b", {}, letter), make("small", {}, row[s].toFixed(2)))));
      const order = Array.from(row.keys()).sort((a, b) => row[b] - row[a]).slice(0, 3);
      const name = (s) => {
        const letter = columns()[s];
        const place = part === "decoder" ? s : s + 1; // the start mark has no number
        return letter in { "<": 1, ">": 1 } ? named(letter) : say(words.letter, { letter, n: place });
      };
      const list = order.filter((s) => row[s] >= 0.005)
        .map((s) => `${name(s)} ${row[s].toFixed(2)}`).join(", ");
      const sentence = { cross: "saysCross", encoder: "saysEncoder", decoder: "saysDecoder" }[part];
      says.textContent = say(words[sentence], { who: named(rows()[t]), head: String(head + 1), list });
      for (const cell of map.querySelectorAll("[data-t]")) {
        cell.classList.toggle("heads-chosen", Number(cell.dataset.t) === t);
      }
    };
    who.addEventListener("keydown", (press) => {
      const to = { ArrowRight: chosen + 1, ArrowLeft: chosen - 1, Home: 0, End: chips.length - 1 };
      if (!(press.key in to)) return;
      press.preventDefault();
      choose(Math.min(Math.max(to[press.key], 0), chips.length - 1));
    });
    for (const event of ["pointerover", "pointerdown"]) {
      map.addEventListener(event, ({ target }) => {
        if (target.dataset.t !== undefined) choose(Number(target.dataset.t), false);
      });
    }

    box.append(
      typed.element, message,
      make("div", { class: "play-row", role: "group", "aria-label": words.parts }, ...parts),
      make("div", { class: "play-row", role: "group", "aria-label": words.heads }, ...heads),
      make("div", { class: "heads-both" },
        make("div", { class: "heads-one" }, whoLabel, who, says,
          make("p", { class: "heads-label", "aria-hidden": "true" }, words.where), where),
        make("div", { class: "heads-all" },
          make("p", { class: "heads-label", "aria-hidden": "true" }, words.all), map)),
    );
    read();
  };

  play.explorer("heads", { words, engine, mount });
}
