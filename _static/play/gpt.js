// The explorer of chapters/gpt.ipynb: what the chapter's GPT finds probable next, beside the truth.
{
  const words = {
    en: {
      title: "What comes next?",
      text: "The text so far",
      start: "yesterday the farmer sang songs quietly near the",
      hint: "Choose or type the next word, or let the model write.",
      next: "next word",
      begun: "{word}…",
      model: "model",
      truth: "truth",
      add: "Add “{word}”: model {model}, truth {truth}",
      others: "all others",
      draw: "Write a word",
      sentence: "Write a sentence",
      back: "Undo",
      anew: "Start over",
      temperature: "Temperature",
      greedy: "0, greedy",
      topK: "Top-k",
      topP: "Top-p",
      all: "all words",
      here:
        "The next word is as hard for the model to guess as one of {likely} equally probable words; with the " +
        "true probabilities, one of {best}. In nats: cross-entropy {model}, floor {floor}.",
      far:
        "The {n} words so far: perplexity {likely}, with the true probabilities {best}. " +
        "In nats: mean cross-entropy {model}, floor {floor}.",
      some:
        "Those {n} of the {all} words up to which the sentence was possible: perplexity {likely}, with the true " +
        "probabilities {best}. In nats: mean cross-entropy {model}, floor {floor}.",
      one:
        "The word so far: perplexity {likely}, with the true probabilities {best}. " +
        "In nats: cross-entropy {model}, floor {floor}.",
      nothing: "No words yet.",
      impossible:
        "No sentence of ToyWorld goes on with “{word}” here. The model does not notice, but until the next " +
        "full stop there are no true probabilities to compare with.",
      unknown:
        "“{word}” is not among the {n} words of ToyWorld. The table is for the text before it, and the model " +
        "continues from there.",
      long: "The text is as long as it can be here: undo some words, or start over.",
      none: "–",
    },
    zh: {
      title: "接下来是什么？",
      text: "已有的文本",
      start: "yesterday the farmer sang songs quietly near the",
      hint: "选下一个词，自己键入，或者让模型来写。",
      next: "下一个词",
      begun: "{word}…",
      model: "模型",
      truth: "真实值",
      add: "加上“{word}”：模型 {model}，真实值 {truth}",
      others: "其余所有词",
      draw: "写一个词",
      sentence: "写一句话",
      back: "退回一个词",
      anew: "重新开始",
      temperature: "温度",
      greedy: "0，贪心",
      topK: "Top-k",
      topP: "Top-p",
      all: "所有词",
      here: "下一个词：模型要猜中它，相当于在 {likely} 个同样可能的词里猜一个；按真实概率是 {best} 个。以纳特计：交叉熵 {model}，下限 {floor}。",
      far: "到目前为止的 {n} 个词：困惑度 {likely}，按真实概率是 {best}。以纳特计：平均交叉熵 {model}，下限 {floor}。",
      some:
        "全部 {all} 个词里，句子还说得通的 {n} 个词：困惑度 {likely}，按真实概率是 {best}。" +
        "以纳特计：平均交叉熵 {model}，下限 {floor}。",
      one: "到目前为止的这个词：困惑度 {likely}，按真实概率是 {best}。以纳特计：交叉熵 {model}，下限 {floor}。",
      nothing: "还没有写词。",
      impossible:
        "ToyWorld 里没有哪句话会在这里接“{word}”。模型察觉不到，但在下一个句号之前，没有真实概率可以比较。",
      unknown: "“{word}”不在 ToyWorld 的 {n} 个词里。表格对应它前面的文本，模型也从那里继续写。",
      long: "文本已经到了这里允许的最大长度：请退回几个词，或者重新开始。",
      none: "–",
    },
  };

  // Weights 1 / (rank + shift), as zipf in support/data/toyworld.py.
  const zipf = (n, shift) => {
    const weights = Array.from({ length: n }, (_, i) => Math.floor(1e9 / (i + 1 + shift)));
    const total = weights.reduce((a, b) => a + b, 0);
    return weights.map((weight) => weight / total);
  };

  // Give a function from the words of a beginning to the true chances of the next, or null where no
  // sentence continues. It follows Pattern.beliefs and Pattern.next_word of ToyWorld.
  const truth = ({ kinds, patterns }) => {
    const priors = {};
    for (const [name, fields] of Object.entries(kinds)) {
      priors[name] = zipf(Object.values(fields)[0].length, 6);
    }
    const chance = (options, word) => {
      const at = options.indexOf(word);
      return at < 0 ? 0 : zipf(options.length, 0)[at];
    };
    const beliefs = (tokens, begun) => {
      if (begun.length >= tokens.length) return null;
      const found = {};
      for (const token of tokens) if (typeof token !== "string") found[token[0]] = priors[token[0]];
      for (let i = 0; i < begun.length; i++) {
        const token = tokens[i];
        if (typeof token === "string") {
          if (token !== begun[i]) return null;
          continue;
        }
        const [kind, field] = token;
        const belief = found[kind].map((p, n) => p && p * chance(kinds[kind][field][n], begun[i]));
        if (!belief.some((p) => p > 0)) return null;
        found[kind] = belief;
      }
      return found;
    };
    const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
    return (begun) => {
      const chances = new Map();
      const add = (word, p) => chances.set(word, (chances.get(word) ?? 0) + p);
      for (const [prior, tokens] of patterns) {
        const found = beliefs(tokens, begun);
        if (!found) continue;
        const prob = Object.values(found).reduce((p, belief) => p * sum(belief), prior);
        const token = tokens[begun.length];
        if (typeof token === "string") {
          add(token, prob);
          continue;
        }
        const [kind, field] = token;
        const total = sum(found[kind]);
        found[kind].forEach((share, n) => {
          if (!share) return;
          const options = kinds[kind][field][n];
          const each = zipf(options.length, 0);
          options.forEach((word, i) => add(word, ((prob * share) / total) * each[i]));
        });
      }
      const total = sum([...chances.values()]);
      if (!total) return null;
      return new Map([...chances].map(([word, p]) => [word, p / total]));
    };
  };

  const engine = ({ vocab, grammar, heads, weights }) => {
    const { linear, softmax, layerNorm, geluTanh } = play;
    const table = weights["tokens.weight"];
    const places = weights["positions.weight"];
    const [longest, d] = places.shape;
    const idOf = new Map(vocab.map((word, id) => [word, id]));
    const after = truth(grammar);
    const depth = Object.keys(weights).filter((name) => name.endsWith("qkv.weight")).length;

    const apply = (name, x, layer) =>
      layer(...(layer === linear ? [weights[`${name}.weight`], x] : [x, weights[`${name}.weight`]]),
        weights[`${name}.bias`]);

    // What each place finds when it looks at itself and at the places before, (T, d).
    const attention = (name, xs) => {
      const size = d / heads;
      const all = xs.map((x) => apply(`${name}.qkv`, x, linear)); // queries, keys, values
      return xs.map((_, t) => {
        const found = new Float32Array(d);
        for (let h = 0; h < heads; h++) {
          const from = h * size;
          const scores = [];
          for (let s = 0; s <= t; s++) {
            let score = 0;
            for (let i = from; i < from + size; i++) score += all[t][i] * all[s][d + i];
            scores.push(score / Math.sqrt(size));
          }
          softmax(scores).forEach((weight, s) => {
            for (let i = from; i < from + size; i++) found[i] += weight * all[s][2 * d + i];
          });
        }
        return apply(`${name}.out`, found, linear);
      });
    };

    // The logits (T, V) of the token after each of the ids, at most as many as the model has places.
    const logits = (ids) => {
      const add = (xs, ys) => xs.map((x, t) => x.map((value, i) => value + ys[t][i]));
      let xs = ids.map((id, t) =>
        table.slice(id * d, (id + 1) * d).map((value, i) => value + places[t * d + i]));
      for (let n = 0; n < depth; n++) {
        const name = `layers.${n}`;
        const before = xs.map((x) => apply(`${name}.attention_norm`, x, layerNorm));
        xs = add(xs, attention(`${name}.attention`, before));
        xs = add(xs, xs.map((x) => {
          const wide = apply(`${name}.feed_forward.up`,
            apply(`${name}.feed_forward_norm`, x, layerNorm), linear);
          return apply(`${name}.feed_forward.down`, geluTanh(wide), linear);
        }));
      }
      return xs.map((x) => linear(table, apply("final_norm", x, layerNorm)));
    };

    // The chapter's next_distribution: temperature 0 is the likeliest token alone.
    const rule = (logits, { temperature = 1, topK = Infinity, topP = 1 }) => {
      const coldest = temperature === 0;
      let p = softmax(coldest ? logits : logits.map((value) => value / temperature));
      const order = Array.from(p.keys()).sort((a, b) => p[b] - p[a] || a - b);
      const kept = coldest ? 1 : topK;
      order.forEach((id, rank) => (p[id] = rank < kept ? p[id] : 0));
      let total = p.reduce((a, b) => a + b, 0);
      if (topP < 1) {
        let likelier = 0;
        for (const id of order) {
          const own = p[id] / total;
          if (likelier >= topP) p[id] = 0;
          likelier += own;
        }
        total = p.reduce((a, b) => a + b, 0);
      }
      return p.map((value) => value / total);
    };

    // What is known of the next word after each beginning of a sentence: a list with one entry more
    // than words. Each sentence is read on its own, after a full stop.
    const known = new Map();
    const read = (sentence) => {
      const key = sentence.join(" ");
      if (known.has(key)) return known.get(key);
      const ids = [".", ...sentence].map((word) => idOf.get(word));
      const rows = logits(ids.slice(0, longest));
      for (let end = longest + 1; end <= ids.length; end++) {
        rows.push(logits(ids.slice(end - longest, end)).at(-1));
      }
      const entries = rows.map((row, t) => {
        const model = softmax(row);
        const exact = after(sentence.slice(0, t));
        let [cross, floor] = [0, 0];
        for (const [word, p] of exact ?? []) {
          cross -= p * Math.log(model[idOf.get(word)]);
          floor -= p * Math.log(p);
        }
        return { logits: row, model, exact, cross, floor };
      });
      known.set(key, entries);
      return entries;
    };

    return { vocab, idOf, after, logits, rule, read };
  };

  const SHOWN = 8; // words in the list
  const MOST = 120; // words of a text
  const TOP_K = [1, 2, 3, 5, 10, 20, 50, Infinity];

  const mount = (box, gpt, words) => {
    const { say, make, button, slider, textBox, bars } = play;
    const uniform = play.random(1);
    const rule = { temperature: 1, topK: Infinity, topP: 1 };
    const share = (p) => {
      if (p === undefined) return words.none;
      if (p > 0 && p < 0.0005) return "<0.001";
      return p.toFixed(p > 0 && p < 0.0095 ? 3 : 2);
    };
    let tokens = [];

    const short = (word) => (word.length > 20 ? `${[...word].slice(0, 20).join("")}…` : word);
    const split = (text) => text.toLowerCase().match(/[.,]|[^\s.,]+/g) ?? [];
    // The sentences of the tokens; the last one may be empty.
    const sentences = () => {
      const found = [[]];
      for (const token of tokens) {
        found.at(-1).push(token);
        if (token === ".") found.push([]);
      }
      return found;
    };
    const here = () => gpt.read(sentences().at(-1)).at(-1);

    const typed = textBox({ label: words.text, value: words.start, oninput: () => type() });
    const message = make("p", { class: "gpt-message", role: "status" });
    const list = make("div", { class: "gpt-next", role: "group", "aria-label": words.next });
    const cost = make("div", { class: "gpt-cost", "aria-live": "polite", "aria-atomic": "true" });

    const write = (added) => {
      tokens = [...tokens, ...added].slice(0, MOST);
      typed.input.value = tokens.join(" ");
      typed.input.scrollTop = typed.input.scrollHeight;
      complain();
      draw();
    };

    const one = () => {
      const p = gpt.rule(here().logits, rule);
      let left = uniform();
      const id = p.findIndex((value) => (left -= value) < 0);
      return gpt.vocab[id < 0 ? p.indexOf(Math.max(...p)) : id];
    };

    const sentence = () => {
      const before = tokens;
      do tokens = [...tokens, one()];
      while (tokens.at(-1) !== "." && tokens.length < before.length + 24);
      write([]);
    };

    // Take what is typed, up to the first word that ToyWorld does not have. A word that is still
    // being typed chooses among the words that begin with it.
    const type = () => {
      const all = split(typed.input.value);
      const odd = all.findIndex((word) => !gpt.idOf.has(word));
      tokens = (odd < 0 ? all : all.slice(0, odd)).slice(0, MOST);
      const last = odd >= 0 && odd === all.length - 1 && /\S$/.test(typed.input.value);
      const begun = last && gpt.vocab.some((word) => word.startsWith(all[odd]));
      if (odd >= 0 && !begun) complain(say(words.unknown, { word: short(all[odd]), n: gpt.vocab.length }));
      else complain();
      draw(begun ? all[odd] : "");
    };

    const complain = (text = tokens.length === MOST ? words.long : words.hint) => {
      if (message.textContent !== text) message.textContent = text;
    };

    // Show what is known of the next word, or of those words that begin with a part of it.
    const draw = (begun = "") => {
      const { model, exact, logits } = here();
      const p = gpt.rule(logits, rule);
      const most = (word, id) => Math.max(model[id], exact?.get(word) ?? 0);
      const order = gpt.vocab.map((word, id) => [word, id, most(word, id)])
        .filter(([word]) => word.startsWith(begun)).sort((a, b) => b[2] - a[2]).slice(0, SHOWN)
        .sort((a, b) => model[b[1]] - model[a[1]]);
      const largest = Math.max(1e-9, ...order.map(([word, id]) => Math.max(p[id], exact?.get(word) ?? 0)));
      const row = (word, q, t, drawn = bars([q / largest, (t ?? 0) / largest])) => [
        make("span", { class: "gpt-word" }, word), drawn,
        make("span", { class: "gpt-numbers" }, make("span", {}, share(q)), make("span", {}, share(t))),
      ];
      const rest = [1, 1];
      const rows = order.map(([word, id]) => {
        const [q, t] = [p[id], exact ? exact.get(word) ?? 0 : undefined];
        rest[0] -= q;
        rest[1] -= t ?? 0;
        const label = say(words.add, { word, model: share(q), truth: share(t) });
        return make("button", {
          type: "button", class: "gpt-row", "data-word": word, "aria-label": label,
          disabled: tokens.length >= MOST, onclick: () => write([word]),
        }, ...row(word, q, t));
      });
      const others = rest.map((value) => (value < 1e-6 ? 0 : value)); // less is rounding
      if (!exact) others[1] = undefined;
      const focused = rows.length && list.contains(document.activeElement)
        ? [...list.children].indexOf(document.activeElement) : -1;
      list.replaceChildren(
        make("div", { class: "gpt-row gpt-head", "aria-hidden": "true" },
          make("span", {}, begun ? say(words.begun, { word: begun }) : words.next), make("span"),
          make("span", { class: "gpt-numbers" }, make("span", {}, words.model),
            make("span", {}, words.truth))),
        ...rows,
        make("div", { class: "gpt-row gpt-others" }, ...row(words.others, ...others, make("span"))),
      );
      if (focused >= 0) list.children[focused].focus(); // the keyboard stays where it was

      const loss = (cross, floor) => ({
        model: cross.toFixed(2), floor: floor.toFixed(2), // in nats, and as equally likely words
        likely: Math.exp(cross).toFixed(1), best: Math.exp(floor).toFixed(1),
      });
      const read = sentences().flatMap((sentence) => gpt.read(sentence).slice(0, sentence.length));
      const judged = read.filter((entry) => entry.exact);
      const mean = (name) => judged.reduce((a, entry) => a + entry[name], 0) / judged.length;
      const lines = [];
      if (exact) {
        lines.push(say(words.here, loss(here().cross, here().floor)));
      } else lines.push(say(words.impossible, { word: stray() }));
      const far = { n: judged.length, all: read.length, ...loss(mean("cross"), mean("floor")) };
      if (!judged.length) lines.push(words.nothing);
      else if (judged.length < read.length) lines.push(say(words.some, far));
      else lines.push(say(judged.length > 1 ? words.far : words.one, far));
      cost.replaceChildren(...lines.map((line) => make("p", {}, line)));
      back.disabled = anew.disabled = !tokens.length;
      next.disabled = toEnd.disabled = tokens.length >= MOST;
    };

    // The word of the last sentence that the grammar does not have there.
    const stray = () => {
      const sentence = sentences().at(-1);
      return sentence[gpt.read(sentence).findIndex((entry) => !entry.exact) - 1];
    };

    const next = button(words.draw, () => write([one()]));
    const toEnd = button(words.sentence, sentence);
    const back = button(words.back, () => {
      tokens = tokens.slice(0, -1);
      write([]);
    });
    const anew = button(words.anew, () => {
      tokens = [];
      write([]);
    });
    const set = (name, value) => {
      rule[name] = value;
      draw();
    };
    const temperature = slider({
      label: words.temperature, max: 2, step: 0.1, value: 1,
      show: (x) => (x === 0 ? words.greedy : x.toFixed(1)), oninput: (x) => set("temperature", x),
    });
    const topK = slider({
      label: words.topK, max: TOP_K.length - 1, value: TOP_K.length - 1,
      show: (i) => (TOP_K[i] === Infinity ? words.all : String(TOP_K[i])),
      oninput: (i) => set("topK", TOP_K[i]),
    });
    const topP = slider({
      label: words.topP, min: 0.1, max: 1, step: 0.05, value: 1,
      show: (x) => (x === 1 ? words.all : x.toFixed(2)), oninput: (x) => set("topP", x),
    });

    box.append(
      typed.element,
      make("div", { class: "play-row" }, toEnd, next, back, anew),
      make("div", { class: "play-row gpt-rule" }, temperature.element, topK.element, topP.element),
      message, list, cost,
    );
    type();
  };

  play.explorer("gpt", { words, engine, mount });
}
