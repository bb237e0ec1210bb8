// The explorer of chapters/bert.ipynb: words of a sentence hidden, and what the chapter's BERT finds
// probable in the gaps, beside the best possible guess.
{
  const words = {
    en: {
      title: "Hide words, and let BERT guess",
      text: "The sentence",
      hint: "Press a word to hide it. Press a gap to see its guesses, and again to show its word.",
      sees: "BERT’s input",
      another: "Another sentence",
      place: "word {n}",
      model: "BERT",
      truth: "best",
      others: "all others",
      hidden:
        "Word {n} is hidden. BERT’s first guess is “{guess}” with probability {p}; the best possible one is “{best}” with {q}.",
      shown: "Word {n} is shown: BERT’s input has “{word}” there, and BERT gives this word probability {p}.",
      loss: "Expected loss for word {n}: BERT {model} nats, best possible {floor}.",
      impossible: "ToyWorld has no sentence like this, so there is no best possible guess here.",
      nothing: "Type a sentence.",
      unknown: "“{word}” is not among the {n} words of this ToyWorld. BERT reads only the words before it.",
      long: "A sentence can have at most {n} words here. The rest is not read.",
      typed: "You typed this gap, so there is no word to show.",
      none: "–",
    },
    zh: {
      title: "遮住词，让 BERT 来猜",
      text: "句子",
      hint: "点一个词就遮住它。点一个空缺看它的猜测，再点一次就显示原词。",
      sees: "BERT 的输入",
      another: "换一句",
      place: "第 {n} 个词",
      model: "BERT",
      truth: "最优",
      others: "其余所有词",
      hidden: "第 {n} 个词被遮住了。BERT 最先猜“{guess}”，概率 {p}；最优的猜测是“{best}”，概率 {q}。",
      shown: "第 {n} 个词没有遮住：BERT 的输入在那里是“{word}”，它给这个词的概率是 {p}。",
      loss: "第 {n} 个词的期望损失：BERT {model} 纳特，最优 {floor} 纳特。",
      impossible: "ToyWorld 里没有这样的句子，所以这里没有最优的猜测。",
      nothing: "请键入一个句子。",
      unknown: "“{word}”不在这个 ToyWorld 的 {n} 个词里。BERT 只读它前面的词。",
      long: "这里一句话最多 {n} 个词，其余的没有读。",
      typed: "这个空缺是键入的，所以没有原词可以显示。",
      none: "–",
    },
  };

  const MASK = "[MASK]";
  const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

  // Weights 1 / (rank + shift), as zipf in support/data/toyworld.py.
  const zipf = (n, shift) => {
    const weights = Array.from({ length: n }, (_, i) => Math.floor(1e9 / (i + 1 + shift)));
    const total = sum(weights);
    return weights.map((weight) => weight / total);
  };

  const draw = (chances, uniform) => {
    let left = uniform();
    const found = chances.findIndex((p) => (left -= p) < 0);
    return found < 0 ? 0 : found;
  };

  // The language: what can stand in the gaps of a sentence, and sentences drawn at random.
  const language = ({ kinds, patterns }) => {
    const priors = {};
    for (const [name, fields] of Object.entries(kinds)) {
      priors[name] = zipf(Object.values(fields)[0].length, 6);
    }
    const chance = (options, word) => {
      const at = options.indexOf(word);
      return at < 0 ? 0 : zipf(options.length, 0)[at];
    };

    // What the words that are not hidden (null) tell of the records that a pattern has drawn, and the
    // chance of all these words with it.
    const beliefs = (prior, tokens, seen) => {
      const found = {};
      for (const token of tokens) if (typeof token !== "string") found[token[0]] = priors[token[0]];
      for (let k = 0; k < tokens.length; k++) {
        if (seen[k] === null) continue;
        if (typeof tokens[k] === "string") {
          if (tokens[k] !== seen[k]) return [found, 0];
          continue;
        }
        const [kind, field] = tokens[k];
        found[kind] = found[kind].map((p, n) => p && p * chance(kinds[kind][field][n], seen[k]));
      }
      return [found, Object.values(found).reduce((p, belief) => p * sum(belief), prior)];
    };

    // The chances of the words at each hidden place, or null if there is no such sentence. At the
    // other places the word that is seen is certain.
    const posterior = (seen) => {
      const chances = seen.map(() => new Map());
      let total = 0;
      for (const [prior, tokens] of patterns) {
        if (tokens.length !== seen.length) continue;
        const [found, prob] = beliefs(prior, tokens, seen);
        if (!prob) continue;
        total += prob;
        tokens.forEach((token, k) => {
          const add = (word, p) => chances[k].set(word, (chances[k].get(word) ?? 0) + p);
          if (seen[k] !== null || typeof token === "string") {
            add(seen[k] ?? token, prob);
            return;
          }
          const [kind, field] = token;
          const all = sum(found[kind]);
          found[kind].forEach((share, n) => {
            if (!share) return;
            const options = kinds[kind][field][n];
            const each = zipf(options.length, 0);
            options.forEach((word, i) => add(word, ((prob * share) / all) * each[i]));
          });
        });
      }
      if (!total) return null;
      return chances.map((own) => new Map([...own].map(([word, p]) => [word, p / total])));
    };

    // A sentence, and a place in it where a word was drawn.
    const sentence = (uniform) => {
      const [, tokens] = patterns[draw(patterns.map(([prior]) => prior), uniform)];
      const records = {};
      const words = tokens.map((token) => {
        if (typeof token === "string") return token;
        const [kind, field] = token;
        const options = kinds[kind][field][(records[kind] ??= draw(priors[kind], uniform))];
        return options[draw(zipf(options.length, 0), uniform)];
      });
      const drawn = [...tokens.keys()].filter((k) => typeof tokens[k] !== "string");
      return { words, at: drawn[Math.floor(uniform() * drawn.length)] ?? 0 };
    };

    return { posterior, sentence };
  };

  // The error function, to seven decimals: Abramowitz and Stegun, formula 7.1.26.
  const erf = (x) => {
    const t = 1 / (1 + 0.3275911 * Math.abs(x));
    const row = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592];
    return Math.sign(x) * (1 - row.reduce((a, b) => a * t + b, 0) * t * Math.exp(-x * x));
  };
  const gelu = (x) => x.map((v) => (v / 2) * (1 + erf(v / Math.SQRT2)));

  const engine = ({ vocab, grammar, heads, weights, sentences }) => {
    const { linear, softmax, layerNorm } = play;
    const table = weights["bert.tokens.weight"];
    const places = weights["bert.positions.weight"];
    const [longest, d] = places.shape;
    const idOf = new Map(vocab.map((word, id) => [word, id]));
    const depth = Object.keys(weights).filter((name) => name.endsWith("qkv.weight")).length;
    const world = language(grammar);

    const apply = (name, x, layer) =>
      layer(...(layer === linear ? [weights[`${name}.weight`], x] : [x, weights[`${name}.weight`]]),
        weights[`${name}.bias`]);

    // What each place finds when it looks at all places, (T, d).
    const attention = (name, xs) => {
      const size = d / heads;
      const all = xs.map((x) => apply(`${name}.qkv`, x, linear)); // queries, keys, values
      return all.map((own) => {
        const found = new Float32Array(d);
        for (let from = 0; from < d; from += size) {
          const scores = all.map((other) => {
            let score = 0;
            for (let i = from; i < from + size; i++) score += own[i] * other[d + i];
            return score / Math.sqrt(size);
          });
          softmax(scores).forEach((weight, s) => {
            for (let i = from; i < from + size; i++) found[i] += weight * all[s][2 * d + i];
          });
        }
        return apply(`${name}.out`, found, linear);
      });
    };

    // The logits (T, V) of the token at each place.
    const logits = (ids) => {
      const add = (xs, ys) => xs.map((x, t) => x.map((value, i) => value + ys[t][i]));
      let xs = ids.map((id, t) => {
        const row = table.slice(id * d, (id + 1) * d);
        return row.map((v, i) => v + weights["bert.segments.weight"][i] + places[t * d + i]);
      }).map((x) => apply("bert.norm", x, layerNorm));
      for (let n = 0; n < depth; n++) {
        const name = `bert.layers.${n}`;
        const norm = (part) => (x) => apply(`${name}.${part}_norm`, x, layerNorm);
        xs = add(xs, attention(`${name}.attention`, xs)).map(norm("attention"));
        xs = add(xs, xs.map((x) => {
          const wide = apply(`${name}.feed_forward.up`, x, linear);
          return apply(`${name}.feed_forward.down`, gelu(wide), linear);
        })).map(norm("feed_forward"));
      }
      return xs.map((x) => {
        const y = apply("transform_norm", gelu(apply("transform", x, linear)), layerNorm);
        return linear(table, y, weights.token_bias);
      });
    };

    // What is known of each word of a sentence in which some are hidden (null): the model's
    // probabilities (V,), the best ones by word or null, the expected loss and the lowest one.
    const read = (seen) => {
      const ids = ["[CLS]", ...seen.map((word) => word ?? MASK), "[SEP]"].map((w) => idOf.get(w));
      const best = world.posterior(seen);
      return logits(ids).slice(1, -1).map((row, k) => {
        const model = softmax(row);
        const exact = best && best[k];
        let [cross, floor] = [0, 0];
        for (const [word, q] of exact ?? []) {
          cross -= q * Math.log(model[idOf.get(word)]);
          floor -= q * Math.log(q);
        }
        return { model, exact, cross, floor };
      });
    };

    const ordinary = vocab.filter((word) => !/^\[.*\]$/.test(word));
    return { ...world, vocab, ordinary, idOf, logits, read, sentences, longest: longest - 2 };
  };

  const SHOWN = 8; // words in the list

  const mount = (box, bert, words) => {
    const { say, make, button, textBox, bars } = play;
    const uniform = play.random(5);
    const share = (p) => {
      if (p === undefined) return words.none;
      if (p > 0 && p < 0.0005) return "<0.001";
      return p.toFixed(p > 0 && p < 0.0095 ? 3 : 2);
    };
    let asked = []; // the words that are typed, null for a gap
    let tokens = []; // those of them that the model reads
    let hidden = new Set();
    let at = 0; // the place that is asked for
    let chips = [];

    const typed = textBox({ label: words.text, value: "", maxlength: 300, oninput: () => type() });
    const message = make("p", { class: "bert-message", role: "status" });
    const row = make("div", { class: "bert-words", role: "group", "aria-label": words.sees });
    const list = make("div", { class: "bert-guesses" });
    const said = make("div", { class: "bert-said", "aria-live": "polite", "aria-atomic": "true" });

    // Take what is typed, up to the first word that the model does not have. A word that was hidden
    // stays so, unless the reader types gaps.
    const type = () => {
      const before = asked;
      const all = typed.input.value.match(/\[mask\]|[.,]|[^\s.,]+/gi) ?? [];
      asked = all.map((word) => (/^\[mask\]$|^_+$/i.test(word) ? null : word.toLowerCase()));
      const odd = asked.findIndex((word) => word !== null && !bert.ordinary.includes(word));
      tokens = (odd < 0 ? asked : asked.slice(0, odd)).slice(0, bert.longest);
      let text = words.hint;
      if (odd >= 0) text = say(words.unknown, { word: all[odd], n: bert.ordinary.length });
      else if (asked.length > bert.longest) text = say(words.long, { n: bert.longest });
      if (message.textContent !== text) message.textContent = text;
      const gaps = [...tokens.keys()].filter((k) => tokens[k] === null);
      const kept = [...hidden].filter((k) => k < asked.length && asked[k] === before[k]);
      hidden = new Set(gaps.length ? gaps : kept);
      if (gaps.length && !hidden.has(at)) at = gaps.at(-1);
      at = Math.max(0, Math.min(at, tokens.length - 1));
      show();
    };

    const take = (sentence, places) => {
      typed.input.value = sentence;
      type();
      [hidden, at] = [new Set(places), places[0]];
      show();
    };

    // Hide a word and ask for it, ask for a gap, or show the word of the gap that is asked for.
    const toggle = (k) => {
      if (!hidden.has(k)) hidden.add(k);
      else if (k === at && tokens[k] === null) message.textContent = words.typed;
      else if (k === at) hidden.delete(k);
      at = k;
      show();
      chips[k].focus();
    };

    const first = (chances) => chances.reduce((a, b) => (b[1] > a[1] ? b : a));
    const named = (model) => Array.from(model, (p, id) => [bert.vocab[id], p]);

    const show = () => {
      const known = tokens.length
        ? bert.read(tokens.map((word, k) => (hidden.has(k) ? null : word))) : [];
      chips = tokens.map((word, k) => {
        const gap = hidden.has(k);
        const [guess, p] = first(named(known[k].model));
        return make("button", {
          type: "button", class: "bert-word", "aria-pressed": gap, "aria-current": k === at,
          tabindex: k === at ? 0 : -1, onclick: () => toggle(k),
        }, make("span", {}, gap ? MASK : word),
        make("small", {}, gap ? `${guess} ${share(p)}` : "\u00a0"));
      });
      row.replaceChildren(...chips);
      if (tokens.length) showGuesses(known[at]);
      else {
        list.replaceChildren();
        said.replaceChildren(make("p", {}, words.nothing));
      }
    };

    const showGuesses = ({ model, exact, cross, floor }) => {
      const best = (word) => (exact ? exact.get(word) ?? 0 : undefined);
      const most = ([word, p]) => Math.max(p, best(word) ?? 0);
      const likely = named(model).sort((a, b) => most(b) - most(a)).slice(0, SHOWN)
        .sort((a, b) => b[1] - a[1]);
      const line = (kind, word, p, q) => make("div", { class: `gpt-row ${kind}` },
        make("span", {}, word), bars([p, q ?? 0]),
        make("span", { class: "gpt-numbers" }, make("span", {}, share(p)), make("span", {}, share(q))));
      const rest = (values) => Math.max(0, 1 - sum(values));
      const heads = [words.model, words.truth].map((text) => make("span", {}, text));
      list.replaceChildren(
        make("div", { class: "gpt-row gpt-head" }, make("span", {}, say(words.place, { n: at + 1 })),
          make("span"), make("span", { class: "gpt-numbers" }, ...heads)),
        ...likely.map(([word, p]) => line("bert-guess", word, p, best(word))),
        line("gpt-others", words.others, rest(likely.map(([, p]) => p)),
          exact ? rest(likely.map(([word]) => best(word))) : undefined),
      );
      const lines = [];
      const n = at + 1;
      if (hidden.has(at) && exact) {
        const [[guess, p], [right, q]] = [first(named(model)), first([...exact])];
        lines.push(say(words.hidden, { n, guess, best: right, p: share(p), q: share(q) }));
      } else if (!hidden.has(at)) {
        const p = share(model[bert.idOf.get(tokens[at])]);
        lines.push(say(words.shown, { n, word: tokens[at], p }));
      }
      const nats = (x) => Math.abs(x).toFixed(2);
      if (exact) lines.push(say(words.loss, { n, model: nats(cross), floor: nats(floor) }));
      else lines.push(words.impossible);
      said.replaceChildren(...lines.map((text) => make("p", {}, text)));
    };

    // Of the words one is reached with Tab, the others from there with the arrows.
    row.addEventListener("keydown", (press) => {
      const now = chips.indexOf(document.activeElement);
      const to = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: chips.length - 1 };
      if (!(press.key in to) || now < 0) return;
      press.preventDefault();
      const next = Math.min(Math.max(to[press.key], 0), chips.length - 1);
      chips.forEach((chip, k) => (chip.tabIndex = k === next ? 0 : -1));
      chips[next].focus();
    });

    const examples = Object.entries(bert.sentences).map(([name, [sentence, ...places]]) =>
      button(name, () => take(sentence, places)));
    const another = button(words.another, () => {
      const { words: drawn, at: place } = bert.sentence(uniform);
      take(drawn.join(" "), [place]);
    });
    box.append(typed.element, make("div", { class: "play-row" }, ...examples, another), message, row,
      list, said);
    const [[sentence, ...places]] = Object.values(bert.sentences);
    take(sentence, places);
  };

  play.explorer("bert", { words, engine, mount });
}
