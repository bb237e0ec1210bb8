// The explorer of chapters/training.ipynb: the chapter's valley, and four rules that walk down it.
{
  const words = {
    en: {
      title: "Four ways down a valley",
      names: { sgd: "SGD", momentum: "momentum", rmsprop: "RMSProp", adam: "Adam" },
      rules: "Choose whose learning rate to change",
      map: "The valley from above, with the paths of the four optimizers. The star is the minimum.",
      losses: "The losses of the four optimizers over the steps, on a logarithmic axis.",
      across: "first weight",
      up: "second weight",
      loss: "loss",
      step: "step",
      start: "Start",
      at: "first weight {x}, second weight {y}",
      card: "η = {rate}",
      rate: "Learning rate of {name}",
      beta: "β of {name}",
      noBeta: "none",
      steps: "Steps",
      all: "This rate for all",
      chapter: "As in the chapter",
      here: "{name} with learning rate {rate}: the loss is {loss} at step {n}.",
      zero: "All four stand at the start, and the loss is {loss}.",
      best: "Lowest of all: {name}.",
      lost: "{name} with learning rate {rate} diverges.",
      over: "over {n}",
    },
    zh: {
      title: "下山谷的四种走法",
      names: { sgd: "SGD", momentum: "动量", rmsprop: "RMSProp", adam: "Adam" },
      rules: "选择改哪一个的学习率",
      map: "从上方看山谷，以及四种优化器走过的路径。星号是最小值点。",
      losses: "四种优化器的损失随步数的变化，纵轴为对数。",
      across: "第一个权重",
      up: "第二个权重",
      loss: "损失",
      step: "步数",
      start: "起点",
      at: "第一个权重 {x}，第二个权重 {y}",
      card: "η = {rate}",
      rate: "{name} 的学习率",
      beta: "{name} 的 β",
      noBeta: "无",
      steps: "步数",
      all: "四种都用这个学习率",
      chapter: "恢复本章的设置",
      here: "{name}，学习率 {rate}：第 {n} 步的损失是 {loss}。",
      zero: "四种优化器都在起点，损失是 {loss}。",
      best: "其中最低的是 {name}。",
      lost: "{name} 用学习率 {rate} 发散了。",
      over: "超过 {n}",
    },
  };

  // One step of each rule, as the chapter has them: weights, gradients and memory are lists of
  // numbers, one for each direction. Each returns the new weights.
  const STEPS = {
    sgd: (w, g, { rate }) => w.map((x, i) => x - rate * g[i]),
    momentum: (w, g, { rate, beta }, memory) => {
      memory.m = g.map((x, i) => beta * (memory.m?.[i] ?? 0) + x);
      return w.map((x, i) => x - rate * memory.m[i]);
    },
    rmsprop: (w, g, { rate, beta }, memory) => {
      memory.s = g.map((x, i) => beta * (memory.s?.[i] ?? 0) + (1 - beta) * x * x);
      return w.map((x, i) => x - (rate * g[i]) / (Math.sqrt(memory.s[i]) + 1e-8));
    },
    adam: (w, g, { rate, beta, beta2 }, memory) => {
      const t = (memory.t = (memory.t ?? 0) + 1);
      memory.m = g.map((x, i) => beta * (memory.m?.[i] ?? 0) + (1 - beta) * x);
      memory.s = g.map((x, i) => beta2 * (memory.s?.[i] ?? 0) + (1 - beta2) * x * x);
      return w.map((x, i) => {
        const [m, s] = [memory.m[i] / (1 - beta ** t), memory.s[i] / (1 - beta2 ** t)];
        return x - (rate * m) / (Math.sqrt(s) + 1e-8);
      });
    },
  };

  const engine = (given) => {
    const { curvature, lowest } = given;
    return {
      ...given,
      loss: (w) => w.reduce((sum, x, i) => sum + (curvature[i] * (x - lowest[i]) ** 2) / 2, 0),
      // The places that a rule visits: the start, and one after each step.
      walk: (name, start, steps, sizes) => {
        const [path, memory] = [[start], {}];
        while (path.length <= steps) {
          const w = path.at(-1);
          const gradient = w.map((x, i) => curvature[i] * (x - lowest[i]));
          path.push(STEPS[name](w, gradient, sizes, memory));
        }
        return path;
      },
    };
  };

  const DASHES = { sgd: "", momentum: "7 3", rmsprop: "7 3 2 3", adam: "2 3" };
  const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [360, 240, 58, 8, 8, 40]; // of a drawing
  const [ACROSS, UP] = [[-3, 4.4], [-0.4, 2.4]]; // what the map shows
  const [LEAST, MOST] = [-8, 2]; // powers of ten of the losses
  const GRID = 0.1; // on which the start lies

  const mount = (box, valley, words) => {
    const { say, make, button, slider } = play;
    const names = Object.keys(valley.rules);
    const color = (name) => `var(--play-${names.indexOf(name)})`;
    const scale = (low, high, from, to) => (x) => {
      const y = from + ((x - low) / (high - low)) * (to - from);
      return Math.min(Math.max(y, -1e4), 1e4); // a rule that is lost leaves the drawing
    };
    const x = scale(...ACROSS, LEFT, WIDTH - RIGHT);
    const y = scale(...UP, HEIGHT - BOTTOM, TOP);
    let sizes, start, chosen, paths, n;

    const anew = () => {
      sizes = Object.fromEntries(names.map((name) => [name, { ...valley.rules[name] }]));
      start = [...valley.start];
      n = valley.steps;
    };
    const minus = (value) => String(value).replace("-", "−");
    const short = (loss) => {
      if (loss > 9999) return say(words.over, { n: 9999 });
      if (loss >= 0.001 || loss === 0) return String(Number(loss.toPrecision(2)));
      return minus(loss.toExponential(0));
    };
    const lossOf = (name) => valley.loss(paths[name][n]);
    // Lost is a rule whose highest loss of the last steps is far above that of the steps before.
    const lost = (name) => {
      const highest = (from, to) =>
        Math.max(...paths[name].slice(Math.max(0, from), to).map((w) => valley.loss(w)));
      return n > 5 && highest(n - 9, n + 1) > 2 * Math.max(valley.loss(start), highest(n - 19, n - 9));
    };

    // ---- The two drawings

    const frame = (id, inside, [below, beside]) => `
      <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" aria-hidden="true">
        <clipPath id="optimizers-${id}">
          <rect x="${LEFT}" y="${TOP}" width="${WIDTH - LEFT - RIGHT}" height="${HEIGHT - TOP - BOTTOM}"/>
        </clipPath>
        ${inside}
        <text x="${(LEFT + WIDTH - RIGHT) / 2}" y="${HEIGHT - 4}" text-anchor="middle">${below}</text>
        <text transform="translate(12 ${(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)"
          text-anchor="middle">${beside}</text>
      </svg>`;
    const tick = (at, text, below) => below
      ? `<text x="${at}" y="${HEIGHT - BOTTOM + 15}" text-anchor="middle">${text}</text>`
      : `<text x="${LEFT - 5}" y="${at + 4}" text-anchor="end">${text}</text>`;
    // The line of a rule and where it ends; that of the chosen one is above, with all its points.
    const lines = (id, points) => [...names.filter((name) => name !== chosen), chosen]
      .map((name) => {
        const own = points(name);
        const look = `stroke="${color(name)}" stroke-dasharray="${DASHES[name]}"`;
        const dots = (name === chosen ? own : own.slice(-1)).map(([a, b]) => `<circle cx="${a}" cy="${b}" r="1.9" fill="${color(name)}"/>`);
        return `<g clip-path="url(#optimizers-${id})" class="${name === chosen ? "optimizers-own" : ""}">
          <polyline ${look} points="${own.map((point) => point.join()).join(" ")}"/>
          ${dots.join("")}</g>`;
      }).join("");

    const drawMap = () => {
      const [a, b] = valley.lowest;
      const rings = valley.rings.map((level) => {
        const [rx, ry] = valley.curvature.map((c) => Math.sqrt((2 * level) / c));
        return `<ellipse cx="${x(a)}" cy="${y(b)}" rx="${x(a + rx) - x(a)}" ry="${y(b) - y(b + ry)}"/>`;
      });
      return frame("map", `
        <g clip-path="url(#optimizers-map)" class="optimizers-rings">${rings.join("")}</g>
        <text class="optimizers-star" x="${x(a)}" y="${y(b) + 6}" text-anchor="middle">★</text>
        ${lines("map", (name) => paths[name].slice(0, n + 1).map(([p, q]) => [x(p), y(q)]))}
        ${[-2, 0, 2, 4].map((at) => tick(x(at), minus(at), true)).join("")}
        ${[0, 1, 2].map((at) => tick(y(at), at)).join("")}`, [words.across, words.up]);
    };

    const drawLosses = () => {
      const right = scale(0, valley.steps, LEFT + 4, WIDTH - RIGHT - 4);
      const height = scale(LEAST, MOST, HEIGHT - BOTTOM, TOP);
      const up = (w) => height(Math.log10(Math.max(valley.loss(w), 10 ** (LEAST - 2))));
      const tens = [2, 0, -2, -4, -6, -8];
      return frame("losses", `
        <g class="optimizers-rings">${tens.map((ten) => `<line x1="${LEFT}" x2="${WIDTH - RIGHT}"
          y1="${height(ten)}" y2="${height(ten)}"/>`).join("")}</g>
        ${lines("losses", (name) => paths[name].slice(0, n + 1).map((w, t) => [right(t), up(w)]))}
        ${[0, 20, 40, 60].filter((t) => t <= valley.steps).map((t) => tick(right(t), t, true)).join("")}
        ${tens.map((ten) => tick(height(ten), ten === 2 ? 100 : ten ? `1e−${-ten}` : 1)).join("")}`,
      [words.step, words.loss]);
    };

    const ground = make("div", { role: "img", "aria-label": words.map });
    const handle = make("div", {
      class: "optimizers-start", role: "slider", tabindex: 0, "aria-label": words.start,
      "aria-valuemin": ACROSS[0], "aria-valuemax": ACROSS[1],
    });
    const map = make("div", { class: "optimizers-map" }, ground, handle);
    const losses = make("div", { role: "img", "aria-label": words.losses });

    // ---- The start, moved by pointer, finger or arrow keys

    const place = (p, q) => {
      const inside = (value, [low, high]) => {
        const most = Math.min(Math.max(value, low + 2 * GRID), high - 2 * GRID);
        return Number((Math.round(most / GRID) * GRID).toFixed(3));
      };
      start = [inside(p, ACROSS), inside(q, UP)];
      draw();
    };
    const point = ({ clientX, clientY }) => {
      const { left, top, width, height } = ground.firstElementChild.getBoundingClientRect();
      const back = (value, from, to, [low, high]) => low + ((value - from) / (to - from)) * (high - low);
      place(back(((clientX - left) / width) * WIDTH, LEFT, WIDTH - RIGHT, ACROSS),
        back(((clientY - top) / height) * HEIGHT, HEIGHT - BOTTOM, TOP, UP));
    };
    handle.addEventListener("pointerdown", (press) => handle.setPointerCapture(press.pointerId));
    handle.addEventListener("pointermove", (move) => {
      if (handle.hasPointerCapture(move.pointerId)) point(move);
    });
    ground.addEventListener("click", point);
    handle.addEventListener("keydown", (press) => {
      const by = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
      if (!(press.key in by)) return;
      press.preventDefault();
      const [right, up] = by[press.key].map((sign) => sign * GRID);
      place(start[0] + right, start[1] + up);
    });

    // ---- The rules and their sizes

    const cards = Object.fromEntries(names.map((name) => {
      const line = make("span", { class: "optimizers-line" });
      line.innerHTML = `<svg viewBox="0 0 36 8" aria-hidden="true"><line x1="0" x2="36" y1="4" y2="4"
        stroke="${color(name)}" stroke-dasharray="${DASHES[name]}"/></svg>`;
      const rate = make("small");
      const loss = make("small");
      const card = make("button", {
        type: "button", class: "optimizers-card", "data-rule": name, onclick: () => choose(name),
      }, make("strong", {}, words.names[name]), line, rate, loss);
      return [name, { card, rate, loss }];
    }));
    const choose = (name) => {
      chosen = name;
      update();
      draw();
    };
    const own = () => ({ name: words.names[chosen] });
    const rate = slider({
      label: words.rate, max: valley.rates.length - 1, value: 0,
      show: (i) => String(valley.rates[i]),
      oninput: (i) => {
        sizes[chosen].rate = valley.rates[i];
        draw();
      },
    });
    const beta = slider({
      label: words.beta, max: valley.betas.length - 1, value: 0,
      show: (i) => (chosen && sizes[chosen].beta !== undefined ? String(valley.betas[i]) : words.noBeta),
      oninput: (i) => {
        sizes[chosen].beta = valley.betas[i];
        draw();
      },
    });
    const steps = slider({
      label: words.steps, max: valley.steps, value: valley.steps,
      oninput: (value) => {
        n = value;
        draw();
      },
    });
    // Put the sliders where the chosen rule has them.
    const update = () => {
      const { rate: r, beta: b } = sizes[chosen];
      for (const [part, value, said] of [
        [rate, valley.rates.indexOf(r), words.rate],
        [beta, valley.betas.indexOf(b ?? 0), words.beta],
        [steps, n, words.steps],
      ]) {
        part.input.value = value;
        part.element.querySelector("label").textContent = say(said, own());
        part.update();
      }
      beta.input.disabled = b === undefined;
    };
    const all = button(words.all, () => {
      for (const name of names) sizes[name].rate = sizes[chosen].rate;
      draw();
    });
    const chapter = button(words.chapter, () => {
      anew();
      update();
      draw();
    });
    const summary = make("p", { class: "optimizers-said", "aria-live": "polite", "aria-atomic": "true" });

    const draw = () => {
      paths = Object.fromEntries(names.map((name) =>
        [name, valley.walk(name, start, valley.steps, sizes[name])]));
      ground.innerHTML = drawMap();
      losses.innerHTML = drawLosses();
      const [a, b] = start;
      handle.style.left = `${(100 * x(a)) / WIDTH}%`;
      handle.style.top = `${(100 * y(b)) / HEIGHT}%`;
      handle.setAttribute("aria-valuenow", a);
      handle.setAttribute("aria-valuetext", say(words.at, { x: a, y: b }));
      for (const name of names) {
        const { card, rate, loss } = cards[name];
        card.setAttribute("aria-pressed", name === chosen);
        rate.textContent = say(words.card, { rate: String(sizes[name].rate) });
        loss.textContent = `${words.loss} ${short(lossOf(name))}`;
      }
      const values = { ...own(), rate: String(sizes[chosen].rate), n, loss: short(lossOf(chosen)) };
      const best = names.reduce((one, two) => (lossOf(two) < lossOf(one) ? two : one));
      const said = [say(lost(chosen) ? words.lost : n ? words.here : words.zero, values)];
      if (n) said.push(say(words.best, { name: words.names[best] }));
      summary.textContent = said.join(" ");
    };

    box.append(
      make("div", { class: "optimizers-drawings" }, map, losses),
      make("div", { class: "optimizers-cards", role: "group", "aria-label": words.rules },
        ...names.map((name) => cards[name].card)),
      make("div", { class: "play-row optimizers-sizes" }, rate.element, beta.element, steps.element),
      make("div", { class: "play-row" }, all, chapter), summary,
    );
    anew();
    choose(names[0]);
  };

  play.explorer("optimizers", { words, engine, mount });
}
