// The explorer of chapters/compression.ipynb: the chapter's JPEG, on a block that the reader chooses.
{
  const words = {
    en: {
      title: "JPEG, block by block",
      quality: "Quality",
      size: "{bytes} bytes instead of {all}: {rate} bits a pixel, {decibels} dB.",
      original: "Show the photograph",
      place: "The block: drag it, or use the arrow keys",
      at: "row {row}, column {column}",
      waves: "Waves added up",
      of: "{n} of {all}",
      back: "One wave back",
      forth: "One wave forth",
      pixels: "pixels",
      sum: "sum so far",
      wave: "this wave",
      grid: "The 64 waves of the block, each at its amplitude there; {n} of 64 coefficients are not 0",
      block: "Block in row {row}, column {column}: {bits} bits instead of 512, {n} of 64 coefficients " +
        "are not 0, typical error {error}.",
      none: "No wave yet: every pixel has the gray value 128.",
      nothing: "All coefficients of this block are 0: every pixel has the gray value 128.",
      one: "Wave {n} of {all}, {i} half waves down and {j} to the right: quantized coefficient {number} times " +
        "step {step} is {amount}.",
      bits: "The bits of the block",
      first: "{number}, difference from the block before",
      zero: "a zero, then {number}",
      run: "{run} zeros, then {number}",
      straight: "{number}",
      zeros: "16 zeros",
      end: "only zeros follow",
      credit: "Photograph: danielbuechele, CC BY 2.0, shown in gray at half its size.",
    },
    zh: {
      title: "一块一块地看 JPEG",
      quality: "质量",
      size: "{bytes} 字节，原来是 {all}：每像素 {rate} 比特，{decibels} dB。",
      original: "显示原照片",
      place: "图块：拖动它，或者用方向键",
      at: "第 {row} 行，第 {column} 列",
      waves: "已经叠加的波",
      of: "{n} / {all}",
      back: "减一个波",
      forth: "加一个波",
      pixels: "像素",
      sum: "目前的和",
      wave: "这个波",
      grid: "这一块的 64 个波，各按其振幅；64 个系数里有 {n} 个不是 0",
      block: "第 {row} 行第 {column} 列的图块：{bits} 比特，原来是 512；64 个系数里有 {n} 个不是 0，" +
        "典型误差 {error}。",
      none: "还没有波：每个像素的灰度值都是 128。",
      nothing: "这一块的系数全是 0：每个像素的灰度值都是 128。",
      one: "第 {n} 个波（共 {all} 个），向下 {i} 个半波，向右 {j} 个半波：量化系数 {number} 乘以步长 {step} " +
        "等于 {amount}。",
      bits: "这一块的比特",
      first: "与上一块相差 {number}",
      zero: "一个零，然后 {number}",
      run: "{run} 个零，然后 {number}",
      straight: "{number}",
      zeros: "16 个零",
      end: "后面全是零",
      credit: "照片：danielbuechele，CC BY 2.0，这里转为灰度，缩小一半。",
    },
  };

  const BLACK = -128; // the gray values are counted from the middle
  const range = (n) => Array.from({ length: n }, (_, i) => i);
  const COSINES = range(64).map((k) => { // C[i][j] at 8 * i + j
    const [i, j] = [k >> 3, k & 7];
    return Math.sqrt((i ? 2 : 1) / 8) * Math.cos(((2 * j + 1) * i * Math.PI) / 16);
  });
  // The places of a block, 8 * row + column, along its diagonals.
  const ZIGZAG = range(64).sort((a, b) => {
    const [one, two] = [a, b].map((k) => [(k >> 3) + (k & 7), k >> 3, k & 7]);
    return one[0] - two[0] || (one[0] % 2 ? one[1] - two[1] : one[2] - two[2]);
  });

  // Round as NumPy does: a half goes to the even neighbor.
  const rint = (x) => {
    const low = Math.floor(x);
    if (x - low !== 0.5) return Math.round(x);
    return low % 2 ? low + 1 : low;
  };
  const bitLength = (number) => 32 - Math.clz32(Math.abs(number));
  const toBits = (number) => {
    const size = bitLength(number);
    const code = number > 0 ? number : number + 2 ** size - 1;
    return size ? code.toString(2).padStart(size, "0") : "";
  };

  // The code words of symbols, of which counts (a Map) says how often each stands there.
  const huffman = (counts) => {
    const found = new Map([...counts.keys()].map((symbol) => [symbol, ""]));
    let trees = [...counts].map(([symbol, n]) => [n, [symbol]]);
    while (trees.length > 1) {
      trees.sort((a, b) => a[0] - b[0]);
      const [[n, zeros], [m, ones], ...rest] = trees;
      for (const symbol of zeros) found.set(symbol, `0${found.get(symbol)}`);
      for (const symbol of ones) found.set(symbol, `1${found.get(symbol)}`);
      trees = [...rest, [n + m, [...zeros, ...ones]]];
    }
    return found;
  };

  // The symbols of a block: [symbol, number, the place in the zigzag], of 64 numbers in its order.
  const symbolsOf = (row, previous) => {
    const first = row[0] - previous;
    const found = [[`first ${bitLength(first)}`, first, 0]];
    let run = 0;
    for (let place = 1; place < 64; place++) {
      const number = row[place];
      if (!number) {
        run++;
        continue;
      }
      for (; run > 15; run -= 16) found.push(["16 zeros", 0, place]);
      found.push([`${run} ${bitLength(number)}`, number, place]);
      run = 0;
    }
    if (run) found.push(["end", 0, 64]);
    return found;
  };

  // Give the code: photo (height, width) are gray values, standard (8, 8) the steps of quality 50.
  const engine = ({ photo, standard }) => {
    const [height, width] = photo.shape;
    const [rows, columns] = [height / 8, width / 8];

    // The product of two 8 x 8 matrices, the first or the second of them transposed.
    const times = (a, b, { first = false, second = false } = {}) => {
      const c = new Float64Array(64);
      for (let i = 0; i < 8; i++) {
        for (let j = 0; j < 8; j++) {
          let sum = 0;
          for (let k = 0; k < 8; k++) {
            sum += a[first ? 8 * k + i : 8 * i + k] * b[second ? 8 * j + k : 8 * k + j];
          }
          c[8 * i + j] = sum;
        }
      }
      return c;
    };
    const forth = (block) => times(times(COSINES, block), COSINES, { second: true });
    const back = (waves) => times(times(COSINES, waves, { first: true }), COSINES);

    const pixels = (b) => {
      const start = Math.floor(b / columns) * 8 * width + (b % columns) * 8;
      return Float64Array.from({ length: 64 }, (_, k) => photo[start + (k >> 3) * width + (k & 7)]);
    };
    const blocks = range(rows * columns);
    const waves = blocks.map((b) => forth(pixels(b).map((x) => x + BLACK)));

    const table = (quality) => {
      const s = quality < 50 ? Math.floor(5000 / quality) : 200 - 2 * quality;
      return Array.from(standard, (step) =>
        Math.min(Math.max(Math.floor((step * s + 50) / 100), 1), 255));
    };

    const quantize = (steps) =>
      waves.map((amounts) => Int16Array.from(amounts, (y, k) => rint(y / steps[k])));

    // The whole photograph in one quality: its steps, the numbers of its blocks, the words of its
    // symbols, its bits with those for the trees, the copy and its decibels.
    const code = (quality, numbers = quantize(table(quality))) => {
      const steps = table(quality);
      const symbols = (b) =>
        symbolsOf(ZIGZAG.map((k) => numbers[b][k]), b ? numbers[b - 1][0] : 0);
      const counts = [new Map(), new Map()]; // of the first symbol of a block, of the others
      let bits = 0;
      for (const b of blocks) {
        symbols(b).forEach(([symbol, number], i) => {
          const kind = counts[i ? 1 : 0];
          kind.set(symbol, (kind.get(symbol) ?? 0) + 1);
          bits += bitLength(number);
        });
      }
      const word = new Map(counts.flatMap((kind) => [...huffman(kind)]));
      for (const [symbol, n] of counts.flatMap((kind) => [...kind])) bits += n * word.get(symbol).length;
      bits += 8 * (word.size + 2 * 17);
      const copy = new Uint8ClampedArray(photo.length); // rounds, and cuts off
      for (const b of blocks) {
        const start = Math.floor(b / columns) * 8 * width + (b % columns) * 8;
        back(Float64Array.from(numbers[b], (x, k) => x * steps[k]))
          .forEach((x, k) => (copy[start + (k >> 3) * width + (k & 7)] = x - BLACK));
      }
      const square = photo.reduce((sum, x, i) => sum + (x - copy[i]) ** 2, 0) / photo.length;
      const decibels = 10 * Math.log10(255 ** 2 / square);
      return { steps, numbers, symbols, word, bits, copy, decibels };
    };

    return { height, width, rows, columns, photo, pixels, code, forth, back, symbolsOf, toBits };
  };

  const CONTRAST = 3; // of a single wave, which is faint
  const START = { row: 5, column: 9, quality: 50 }; // the chapter's block

  const mount = (box, jpeg, words) => {
    const { say, make, button, slider, surface } = play;
    const { height, width, rows, columns } = jpeg;
    let { row, column, quality } = START;
    let code, order; // of the quality; the places of the block's numbers other than 0, in zigzag

    const canvas = (w, h, attributes = {}) => make("canvas", { width: w, height: h, ...attributes });
    // Draw gray values on a canvas of as many pixels.
    const paint = (element, values) => {
      const image = new ImageData(element.width, element.height);
      values.forEach((x, i) => image.data.set([x, x, x, 255], 4 * i));
      element.getContext("2d").putImageData(image, 0, 0);
    };

    const picture = canvas(width, height, { "aria-hidden": "true" });
    const placed = () => [(column + 0.5) / columns, (row + 0.5) / rows];
    const at = () => ({ row: row + 1, column: column + 1 });
    const place = ([x, y]) => {
      column = Math.min(Math.floor(x * columns), columns - 1);
      row = Math.min(Math.floor(y * rows), rows - 1);
    };
    const photo = surface({
      label: words.place, picture, value: placed(), step: [1 / columns, 1 / rows],
      show: ([x, y]) => {
        place([x, y]);
        return say(words.at, at());
      },
      oninput: () => {
        photo.set(placed()); // in the middle of the block
        choose();
      },
    });
    photo.element.classList.add("jpeg-photo");
    photo.handle.append(make("span", { style: `width:${100 / columns}%` }));

    const moved = slider({
      label: words.quality, min: 1, max: 100, value: quality, oninput: (value) => {
        quality = value;
        encode();
      },
    });
    const original = button(words.original, () => {
      original.setAttribute("aria-pressed", original.getAttribute("aria-pressed") !== "true");
      look();
    }, { "aria-pressed": "false" });
    const size = make("p", { "aria-live": "polite" });
    const look = () =>
      paint(picture, original.getAttribute("aria-pressed") === "true" ? jpeg.photo : code.copy);

    const encode = () => {
      code = jpeg.code(quality);
      const numbers = {
        bytes: Math.ceil(code.bits / 8), all: height * width,
        rate: (code.bits / height / width).toFixed(2), decibels: code.decibels.toFixed(1),
      };
      size.textContent = say(words.size, numbers);
      look();
      choose();
    };

    const small = [words.pixels, words.sum, words.wave].map((name) => {
      const element = canvas(8, 8);
      return { element, figure: make("div", { class: "jpeg-small" }, element, name) };
    });
    const tiles = range(64).map(() => {
      const element = canvas(8, 8);
      const number = make("span");
      return { element, number, tile: make("div", { class: "jpeg-tile" }, element, number) };
    });
    const grid = make("div", { class: "jpeg-grid", role: "img" }, ...tiles.map(({ tile }) => tile));
    grid.addEventListener("click", ({ target }) => { // the slider does the same for the keyboard
      const k = tiles.findIndex(({ tile }) => tile.contains(target));
      const last = ZIGZAG.indexOf(k);
      if (k >= 0) go(order.filter((place) => place <= last).length);
    });
    const added = slider({
      label: words.waves, max: 64, value: 64, oninput: () => draw(),
      show: (n) => say(words.of, { n, all: order?.length ?? 64 }),
    });
    const go = (n) => {
      added.input.value = n;
      added.update();
      draw();
    };
    const less = button("−", () => go(Number(added.input.value) - 1), { "aria-label": words.back });
    const more = button("+", () => go(Number(added.input.value) + 1), { "aria-label": words.forth });
    const about = make("p");
    const wave = make("p");
    const bits = make("div", {
      class: "jpeg-bits", role: "group", tabindex: 0, "aria-label": words.bits,
    });

    // Show the block that is chosen, with all of its waves.
    const choose = () => {
      const numbers = code.numbers[row * columns + column];
      order = range(64).filter((place) => numbers[ZIGZAG[place]]);
      added.input.max = order.length;
      added.input.disabled = !order.length;
      go(order.length);
    };

    const minus = (x) => (x < 0 ? `−${-x}` : String(x));
    const draw = () => {
      const b = row * columns + column;
      const n = Number(added.input.value);
      const last = n ? order[n - 1] : -1; // the place in the zigzag that was added last
      const amounts = Float64Array.from(code.numbers[b], (x, k) => x * code.steps[k]);
      const known = n < order.length ? ZIGZAG.slice(0, last + 1) : ZIGZAG;
      const some = amounts.map((x, k) => (known.includes(k) ? x : 0));
      const gray = (waves) => jpeg.back(waves).map((x) => Math.min(Math.max(x - BLACK, 0), 255));
      const only = (k) => gray(amounts.map((x, other) => (other === k ? CONTRAST * x : 0)));
      const pixels = jpeg.pixels(b);
      paint(small[0].element, pixels);
      paint(small[1].element, gray(some));
      paint(small[2].element, n ? only(ZIGZAG[last]) : pixels.map(() => 128));
      tiles.forEach(({ element, number, tile }, k) => {
        const x = code.numbers[b][k];
        paint(element, only(k));
        number.textContent = minus(x);
        tile.className = `jpeg-tile${x ? " jpeg-on" : ""}${known.includes(k) ? "" : " jpeg-later"}` +
          `${k === ZIGZAG[last] ? " jpeg-now" : ""}`;
      });
      grid.setAttribute("aria-label", say(words.grid, { n: order.length }));
      const symbols = code.symbols(b);
      const chip = ([symbol, value, place]) => {
        const [run] = symbol.split(" ");
        const name = { "16": "zeros", end: "end", first: "first", 0: "straight", 1: "zero" }[run];
        const meaning = say(words[name ?? "run"], { run, number: minus(value) });
        return make("span", { class: place === last ? "jpeg-chip jpeg-now" : "jpeg-chip" },
          make("code", {}, make("b", {}, code.word.get(symbol)), toBits(value)),
          make("small", {}, meaning));
      };
      bits.replaceChildren(...symbols.map(chip));
      const now = bits.querySelector(".jpeg-now");
      if (now) bits.scrollTop = now.offsetTop - bits.firstChild.offsetTop; // the page stays
      const length = symbols.reduce(
        (sum, [symbol, value]) => sum + code.word.get(symbol).length + bitLength(value), 0);
      const error = Math.sqrt(pixels.reduce((sum, x, k) => sum + (x - gray(some)[k]) ** 2, 0) / 64);
      about.textContent = say(words.block,
        { ...at(), bits: length, n: order.length, error: error.toFixed(1) });
      if (n) {
        const k = ZIGZAG[last];
        const [number, amount] = [code.numbers[b][k], amounts[k]].map(minus);
        const values = { number, step: code.steps[k], amount };
        wave.textContent = say(words.one, { n, all: order.length, i: k >> 3, j: k & 7, ...values });
      } else wave.textContent = order.length ? words.none : words.nothing;
      // A button that is pressed keeps the focus, so at an end it is only said to be disabled.
      less.setAttribute("aria-disabled", n === 0);
      more.setAttribute("aria-disabled", n === order.length);
    };

    box.append(
      make("div", { class: "jpeg-top" }, photo.element,
        make("div", {}, moved.element, size, make("div", { class: "play-row" }, original))),
      make("div", { class: "jpeg-block" },
        grid, make("div", { class: "jpeg-smalls" }, ...small.map(({ figure }) => figure))),
      make("div", { class: "play-row play-steps" }, less, added.element, more),
      make("div", { class: "jpeg-about", "aria-live": "polite", "aria-atomic": "true" }, about, wave),
      bits, make("p", { class: "play-muted" }, words.credit),
    );
    encode();
  };

  play.explorer("jpeg", { words, engine, mount });
}
