// The explorer of chapters/bpe.ipynb: any text, cut by the merges that the chapter has learned.
{
  const words = {
    en: {
      title: "Split a text into tokens",
      text: "Your text",
      start: "What is the city but the people?",
      examples: [
        ["a rare word", "How unmerciful!"],
        ["Chinese", "词元化 tokens"],
        ["emoji", "Hello 🙂 naïve café 👩‍👩‍👧"],
        ["a program", "for i in range(10):\n    print(i == 3)"],
      ],
      merges: "Merges in this text",
      of: "{n} of {all}",
      back: "One merge back",
      forth: "One merge forward",
      none: "No merge yet: every byte is a token.",
      nothing: "No merge changes this text: every byte is a token.",
      merge: "Merge {rank} of {all}: {a} + {b} → {ab}. When it was learned, this pair occurred {count} times in the plays.",
      pieces: "The tokens of the text, each with its token id",
      summary: "Tokens: {tokens}. Characters: {characters}. Bytes: {bytes}.",
      one: "{piece} has the number {id} and the bytes {bytes}.",
      made: "{piece} has the number {id} and the bytes {bytes}. Merge {rank} makes it from {a} and {b}.",
      choose: "Choose a token to see its bytes and the merge that makes it.",
    },
    zh: {
      title: "把文本切成词元",
      text: "你的文本",
      start: "What is the city but the people?",
      examples: [
        ["生僻词", "How unmerciful!"],
        ["中文", "词元化 tokens"],
        ["表情符号", "Hello 🙂 naïve café 👩‍👩‍👧"],
        ["程序", "for i in range(10):\n    print(i == 3)"],
      ],
      merges: "这段文本里的合并",
      of: "{n} / {all}",
      back: "退一次合并",
      forth: "进一次合并",
      none: "还没有合并：每个字节自成一个词元。",
      nothing: "没有哪次合并会改变这段文本：每个字节自成一个词元。",
      merge: "第 {rank} 次合并（共 {all} 次）：{a} + {b} → {ab}。学到它的时候，这一对符号在剧本里出现了 {count} 次。",
      pieces: "文本的各个词元，带着词元编号",
      summary: "词元：{tokens}。字符：{characters}。字节：{bytes}。",
      one: "{piece} 的编号是 {id}，字节是 {bytes}。",
      made: "{piece} 的编号是 {id}，字节是 {bytes}。第 {rank} 次合并用 {a} 和 {b} 得到它。",
      choose: "选一个词元，看它的字节和得到它的那次合并。",
    },
  };

  const after16 = // letters and numbers that Unicode has since version 16, as in support/text/bpe.py
    "558 58B-58C 88F C5C CDC 208F 209D-209F A7CE-A7CF A7D2 A7D4 A7DD-A7F1 AB6C-AB6D " +
    "107BB-107BF 10940-10959 10EC5-10EEE 11B0A 11DB0-11DF1 1246F-1247F 12550-12686 " +
    "16EA0-16ED3 16FF2-16FF6 187F8-187FF 18CD6-18CDA 18D09-191D2 1B123-1B128 1B168 1D6A6 " +
    "1DF1F-1DF24 1DF2B-1DFFF 1E6C0-1E6FF 2B73A-2B73F 2B81E 2CEA2-2CEAD 323B0-3FC3F";
  const later = after16.replace(/[0-9A-F]+/g, "\\u{$&}").replaceAll(" ", "");
  const space = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
  const [letter, number] = ["L", "N"].map((kind) => `(?:(?![${later}])\\p{${kind}})`);
  const mark = `(?:[${later}]|[^${space}\\p{L}\\p{N}])`;
  const pattern = new RegExp(
    `'s|'t|'re|'ve|'m|'ll|'d| ?${letter}+| ?${number}+| ?${mark}+|[${space}]+(?![^${space}])|[${space}]+`,
    "gu",
  );

  // Give the tokenizer: alphabet are the bytes in the order of their numbers, merges (n, 2) pairs of
  // numbers in the order of learning, counts (n,) how often each pair stood in the text by then.
  const engine = ({ alphabet, merges, counts }) => {
    const pieces = Array.from(alphabet, (byte) => String.fromCharCode(byte)); // a character a byte
    const idOf = new Map(pieces.map((piece, id) => [piece, id]));
    const key = (a, b) => a * 65536 + b;
    const ranks = new Map();
    const results = []; // of each merge
    const makers = new Map(); // by piece, the first merge that makes it
    const n = merges.shape[0];
    for (let rank = 0; rank < n; rank++) {
      const [a, b] = [merges[2 * rank], merges[2 * rank + 1]];
      const piece = pieces[a] + pieces[b];
      if (!idOf.has(piece)) {
        idOf.set(piece, pieces.length);
        makers.set(pieces.length, rank);
        pieces.push(piece);
      }
      results.push(idOf.get(piece));
      ranks.set(key(a, b), rank);
    }

    // Cut a pre-token with the first merges; note in `used` which ones.
    const cut = (preToken, most, used) => {
      const bytes = new TextEncoder().encode(preToken);
      const ids = Array.from(bytes, (byte) => idOf.get(String.fromCharCode(byte)));
      for (;;) {
        let [best, at] = [most, -1];
        for (let i = 0; i + 1 < ids.length; i++) {
          const rank = ranks.get(key(ids[i], ids[i + 1])) ?? n;
          if (rank < best) [best, at] = [rank, i];
        }
        if (at < 0) return ids;
        ids.splice(at, 2, results[best]);
        used?.add(best);
      }
    };

    return {
      merges: n,
      count: (rank) => counts[rank],
      pair: (rank) => [merges[2 * rank], merges[2 * rank + 1], results[rank]],
      maker: (id) => makers.get(id),
      bytes: (id) => Array.from(pieces[id], (c) => c.charCodeAt(0)),
      preTokens: (text) => text.match(pattern) ?? [],
      // The numbers of a text after the first merges, one list for each pre-token.
      encode(text, most = n, used = undefined) {
        const known = new Map();
        return this.preTokens(text).map((preToken) => {
          if (!known.has(preToken)) known.set(preToken, cut(preToken, most, used));
          return known.get(preToken);
        });
      },
    };
  };

  // Show bytes as the chapter does: a dot for a space, numbers where they are no whole characters.
  const shown = (bytes) => {
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(bytes));
      const visible = text.replaceAll(" ", "·").replaceAll("\n", "⏎").replaceAll("\t", "⇥");
      if (!/[\p{C}\p{Zl}\p{Zp}]/u.test(visible.replace(/\u200d/g, ""))) return visible || "∅";
    } catch {} // no whole characters
    return `‹${bytes.join(" ")}›`;
  };

  const mount = (box, bpe, words) => {
    const { say, make, button, slider, textBox } = play;
    const piece = (id) => shown(bpe.bytes(id));
    let text = words.start;
    let steps = []; // the ranks of the merges that change the text
    let chips = [];
    let chosen = 0;

    const typed = textBox({ label: words.text, value: text, oninput: () => read(typed.input.value) });
    const examples = make("div", { class: "play-row" }, ...words.examples.map(([name, example]) =>
      button(name, () => {
        typed.input.value = example;
        read(example);
      })));
    const moved = slider({
      label: words.merges, max: 1, value: 1, oninput: () => draw(),
      show: (n) => say(words.of, { n, all: steps.length }),
    });
    const go = (by) => () => {
      moved.input.value = Number(moved.input.value) + by;
      moved.update();
      draw();
    };
    const back = button("−", go(-1), { "aria-label": words.back });
    const forth = button("+", go(1), { "aria-label": words.forth });
    const merge = make("p", { class: "bpe-merge" });
    const row = make("div", { class: "bpe-pieces", role: "group", "aria-label": words.pieces });
    const summary = make("p");
    const detail = make("p", { class: "bpe-detail play-muted", "aria-live": "polite" }, words.choose);

    const read = (value) => {
      text = value;
      const used = new Set();
      bpe.encode(text, bpe.merges, used);
      steps = [...used].sort((a, b) => a - b);
      moved.input.max = steps.length;
      moved.input.value = steps.length;
      moved.input.disabled = !steps.length;
      moved.update();
      draw();
    };

    const draw = () => {
      const n = Number(moved.input.value);
      const rank = n ? steps[n - 1] : -1;
      back.disabled = n === 0;
      forth.disabled = n === steps.length;
      if (n) {
        const [a, b, ab] = bpe.pair(rank);
        const names = { a: piece(a), b: piece(b), ab: piece(ab) };
        const numbers = { rank: rank + 1, all: bpe.merges, count: bpe.count(rank) };
        merge.textContent = say(words.merge, { ...names, ...numbers });
      } else merge.textContent = steps.length ? words.none : words.nothing;
      const cut = bpe.encode(text, rank + 1);
      const fresh = n ? bpe.pair(rank)[2] : -1;
      chips = cut.flatMap((ids, word) => ids.map((id) => {
        const made = id === fresh ? " bpe-fresh" : "";
        return make("button", {
          type: "button", class: `bpe-piece bpe-${word % 6}${made}`, tabindex: -1, "data-id": id,
          onclick: (event) => choose(chips.indexOf(event.currentTarget)),
        }, make("span", {}, piece(id)), make("small", {}, String(id)));
      }));
      row.replaceChildren(...chips);
      if (chips.length) chips[0].tabIndex = 0;
      const bytes = new TextEncoder().encode(text).length;
      const characters = [...text].length;
      summary.textContent = say(words.summary, { tokens: chips.length, characters, bytes });
      detail.textContent = words.choose;
    };

    // Of the pieces one is reached with Tab, the others from there with the arrows.
    const choose = (i) => {
      chosen = i;
      chips.forEach((chip, j) => {
        chip.tabIndex = i === j ? 0 : -1;
        chip.setAttribute("aria-pressed", i === j);
      });
      chips[i].focus();
      const id = Number(chips[i].dataset.id);
      const rank = bpe.maker(id);
      const about = { piece: piece(id), id: String(id), bytes: bpe.bytes(id).join(" ") };
      if (rank === undefined) detail.textContent = say(words.one, about);
      else {
        const [a, b] = bpe.pair(rank).map(piece);
        detail.textContent = say(words.made, { ...about, rank: rank + 1, a, b });
      }
    };
    row.addEventListener("focusin", ({ target }) => (chosen = chips.indexOf(target)));
    row.addEventListener("keydown", (press) => {
      const to = { ArrowRight: chosen + 1, ArrowLeft: chosen - 1, Home: 0, End: chips.length - 1 };
      if (!(press.key in to)) return;
      press.preventDefault();
      choose(Math.min(Math.max(to[press.key], 0), chips.length - 1));
    });

    box.append(
      typed.element, examples,
      make("div", { class: "play-row bpe-steps" }, back, moved.element, forth),
      make("div", { "aria-live": "polite", "aria-atomic": "true" }, merge, summary), row, detail,
    );
    read(text);
  };

  play.explorer("bpe", { words, engine, mount });
}
