// The explorer of chapters/vae.ipynb: what the chapter's VAE draws from a code, and reads in a digit.
{
  const words = {
    en: {
      title: "The plane of codes",
      digit: "A digit from the test set, or yours",
      draw: "Draw a digit: the arrow keys move the pen, the space bar sets it down and lifts it",
      drawn: "Decoded from the code",
      place: "The code: drag it, or use the arrow keys",
      at: "{a} and {b}",
      another: "Another digit",
      clear: "Draw one",
      back: "To its cloud",
      prior: "A code from the prior",
      axes: ["first dimension of the code", "second dimension"],
      here: "The loss of this image is {here} nats at the code ({a}, {b}) and {there} at the center of its cloud.",
      none: "Draw a digit with the pen, about as large as the frame.",
      down: "The pen is down.",
      up: "The pen is up.",
    },
    zh: {
      title: "编码的平面",
      digit: "测试集里的一个数字，或者你写的",
      draw: "写一个数字：方向键移动笔，空格键落笔和提笔",
      drawn: "由编码解码出的图",
      place: "编码：拖动它，或者用方向键",
      at: "{a} 和 {b}",
      another: "换一个数字",
      clear: "自己写",
      back: "回到它的云",
      prior: "从先验里抽一个编码",
      axes: ["编码的第一维", "第二维"],
      here: "这张图的损失在编码 ({a}, {b}) 处是 {here} 纳特，在它的云的中心是 {there} 纳特。",
      none: "用笔写一个数字，大小和框差不多。",
      down: "笔已落下。",
      up: "笔已提起。",
    },
  };

  const SIDE = 28;

  // Move what is drawn so that the middle of its ink is the middle of the picture, as in MNIST.
  const centered = (ink) => {
    let [n, row, column] = [0, 0, 0];
    ink.forEach((x, i) => {
      n += x;
      row += x * Math.floor(i / SIDE);
      column += x * (i % SIDE);
    });
    const [down, right] = [row, column].map((sum) => Math.round((SIDE - 1) / 2 - sum / n));
    return ink.map((_, i) => {
      const [y, x] = [Math.floor(i / SIDE) - down, (i % SIDE) - right];
      return x >= 0 && x < SIDE && y >= 0 && y < SIDE ? ink[y * SIDE + x] : 0;
    });
  };

  const engine = ({ weights, digits, labels, clouds }) => {
    const relu = (x) => x.map((value) => Math.max(value, 0));
    const layers = (name, x) => {
      for (const i of [0, 2, 4]) {
        if (i) x = relu(x);
        x = play.linear(weights[`${name}.${i}.weight`], x, weights[`${name}.${i}.bias`]);
      }
      return x;
    };
    const softplus = (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
    return {
      clouds, centered,
      digits: Array.from(labels, (label, i) => ({
        label, pixels: digits.slice(i * SIDE * SIDE, (i + 1) * SIDE * SIDE),
      })),
      // The cloud of a picture, and its price in nats.
      encode(x) {
        const [a, b, c, d] = layers("encoder", x);
        const [mu, sigma] = [[a, b], [Math.exp(c / 2), Math.exp(d / 2)]];
        const cost = mu.reduce(
          (sum, m, i) => sum + (m ** 2 + sigma[i] ** 2 - 1) / 2 - Math.log(sigma[i]), 0);
        return { mu, sigma, cost };
      },
      decode: (z) => layers("decoder", z), // logits
      draw: (logits) => logits.map((value) => 1 / (1 + Math.exp(-value))),
      price: (x, logits) => logits.reduce((sum, value, i) => sum + softplus(value) - value * x[i], 0),
    };
  };

  const REACH = 4.2; // of the plane to each side, as in the chapter's figure
  const SIZE = 640; // pixels of its canvas
  const COLORS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2",
    "#7f7f7f", "#bcbd22", "#17becf"]; // a digit's, as in the chapter's figure
  const PEN = 1.2; // its radius in pixels of a digit

  const mount = (box, vae, words) => {
    const { say, make, button, surface } = play;
    const uniform = play.random(1);
    const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
    const number = (x, digits = 0) => x.toFixed(digits).replace("-", "−");
    let shown = 0; // which digit of the test set; with a drawing, the one before
    let ink = null; // the drawing
    let cloud = null;
    let z = [0, 0];

    const canvas = (size, attributes = {}) =>
      make("canvas", { width: size, height: size, ...attributes });
    const paint = (element, values) => {
      const image = new ImageData(SIDE, SIDE);
      values.forEach((x, i) => image.data.set([255 * x, 255 * x, 255 * x, 255], 4 * i));
      element.getContext("2d").putImageData(image, 0, 0);
    };

    // ---- The plane: fractions of its sides and codes.
    const toCode = ([x, y]) => [REACH * (2 * x - 1), REACH * (1 - 2 * y)];
    const toPlace = ([a, b]) => [(a / REACH + 1) / 2, (1 - b / REACH) / 2];
    const plane = canvas(SIZE, { "aria-hidden": "true" });
    const brush = plane.getContext("2d");
    const ellipse = ([a, b], [c, d], scale = 1) => {
      const [x, y] = toPlace([a, b]).map((share) => share * SIZE);
      const radius = (spread) => Math.max((scale * spread * SIZE) / (2 * REACH), 1.5);
      brush.beginPath();
      brush.ellipse(x, y, radius(c), radius(d), 0, 0, 2 * Math.PI);
    };
    const background = () => {
      brush.fillStyle = "white";
      brush.fillRect(0, 0, SIZE, SIZE);
      const { mu, sigma, labels } = vae.clouds;
      const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];
      brush.globalAlpha = 0.45;
      labels.forEach((label, i) => {
        brush.fillStyle = COLORS[label];
        ellipse([mu[0][i], mu[1][i]], [sigma[0][i], sigma[1][i]]);
        brush.fill();
      });
      brush.globalAlpha = 1;
      brush.strokeStyle = "black";
      brush.setLineDash([6, 6]);
      for (const radius of [1, 2, 3]) {
        ellipse([0, 0], [radius, radius]);
        brush.stroke();
      }
      brush.setLineDash([]);
      brush.fillStyle = "#444";
      brush.font = "22px system-ui, sans-serif";
      [brush.textAlign, brush.textBaseline] = ["center", "bottom"];
      brush.fillText(words.axes[0], SIZE / 2, SIZE - 30);
      for (const at of [-4, -3, -2, -1, 0, 1, 2, 3, 4]) {
        const [x, y] = toPlace([at, at]).map((share) => share * SIZE);
        brush.fillRect(x - 1, SIZE - 8, 2, 8);
        brush.fillRect(0, y - 1, 8, 2);
        if (at % 2 || at === -4) continue;
        [brush.textAlign, brush.textBaseline] = ["center", "bottom"];
        brush.fillText(number(at), x, SIZE - 8);
        [brush.textAlign, brush.textBaseline] = ["left", "middle"];
        brush.fillText(number(at), 12, y);
      }
      brush.rotate(-Math.PI / 2);
      [brush.textAlign, brush.textBaseline] = ["center", "top"];
      brush.fillText(words.axes[1], -SIZE / 2, 40);
      brush.resetTransform();
      brush.font = "bold 30px system-ui, sans-serif";
      [brush.textAlign, brush.textBaseline] = ["center", "middle"];
      [brush.lineWidth, brush.strokeStyle, brush.lineJoin] = [7, "white", "round"];
      const taken = []; // a digit moves to the middle of the plane until it covers no other
      COLORS.forEach((color, digit) => {
        const own = [0, 1].map((k) => median([...mu[k]].filter((_, i) => labels[i] === digit)));
        let [x, y] = toPlace(own).map((share) => share * SIZE);
        const way = y < SIZE / 2 ? 2 : -2;
        while (taken.some(([a, b]) => Math.abs(a - x) < 20 && Math.abs(b - y) < 30)) y += way;
        taken.push([x, y]);
        brush.fillStyle = color;
        brush.strokeText(digit, x, y);
        brush.fillText(digit, x, y);
      });
      return brush.getImageData(0, 0, SIZE, SIZE);
    };
    const still = background();
    const code = surface({
      label: words.place, picture: plane, value: toPlace(z), step: [0.05, 0.05].map((x) => x / REACH / 2),
      show: (place) => {
        const [a, b] = toCode(place).map((x) => number(x, 2));
        return say(words.at, { a, b });
      },
      oninput: (place) => {
        z = toCode(place);
        draw();
      },
    });
    code.element.classList.add("vae-plane");
    const moveTo = (to) => {
      code.set(toPlace(to));
      z = to.map((x) => Math.min(Math.max(x, -REACH), REACH));
      draw();
    };

    // ---- The digit, which is drawn with the pointer or with the keys.
    const digit = canvas(SIDE, {
      class: "vae-pad", tabindex: 0, role: "application", "aria-label": words.draw,
    });
    const pen = { x: 14, y: 6, down: false };
    const stroke = (from, to) => {
      ink ??= new Float32Array(SIDE * SIDE);
      const steps = Math.max(1, Math.ceil(4 * Math.hypot(to.x - from.x, to.y - from.y)));
      for (let step = 0; step <= steps; step++) {
        const [x, y] = ["x", "y"].map((k) => from[k] + ((to[k] - from[k]) * step) / steps);
        ink.forEach((_, i) => {
          if (Math.hypot((i % SIDE) - x, Math.floor(i / SIDE) - y) <= PEN) ink[i] = 1;
        });
      }
      read();
    };
    const at = ({ clientX, clientY }) => {
      const { left, top, width, height } = digit.getBoundingClientRect();
      return { x: ((clientX - left) / width) * SIDE - 0.5, y: ((clientY - top) / height) * SIDE - 0.5 };
    };
    let last = null;
    digit.addEventListener("pointerdown", (press) => {
      press.preventDefault();
      digit.setPointerCapture(press.pointerId);
      last = at(press);
      stroke(last, last);
    });
    digit.addEventListener("pointermove", (move) => {
      if (!digit.hasPointerCapture(move.pointerId)) return;
      stroke(last, at(move));
      last = at(move);
    });
    digit.addEventListener("keydown", (press) => {
      const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      if (!(press.key in arrows) && press.key !== " ") return;
      press.preventDefault();
      const before = { ...pen };
      if (press.key === " ") {
        pen.down = !pen.down;
        message.textContent = pen.down ? words.down : words.up;
      } else {
        const [right, down] = arrows[press.key];
        pen.x = Math.min(Math.max(pen.x + right, 2), SIDE - 3);
        pen.y = Math.min(Math.max(pen.y + down, 2), SIDE - 3);
      }
      if (pen.down) stroke(before, pen);
      else look();
    });
    for (const event of ["focus", "blur"]) digit.addEventListener(event, () => look());

    const message = make("p", { role: "status", class: "play-muted" });
    const result = canvas(SIDE, { role: "img", "aria-label": words.drawn });
    const about = make("div", { class: "vae-about", "aria-live": "polite", "aria-atomic": "true" });

    const pixels = () => ink ?? Float32Array.from(vae.digits[shown].pixels);
    const empty = () => ink && !ink.some((x) => x);
    // What the encoder reads: a drawing is moved to the middle.
    const input = () => (ink ? vae.centered(ink) : pixels());

    const look = () => {
      paint(digit, pixels());
      const brush = digit.getContext("2d");
      if (ink) {
        brush.fillStyle = "#0072b266";
        for (let i = 4; i < 24; i++) { // the frame in which MNIST's digits are written
          for (const [x, y] of [[i, 3], [i, 24], [3, i], [24, i]]) brush.fillRect(x, y, 1, 1);
        }
      }
      if (document.activeElement === digit) {
        brush.fillStyle = pen.down ? "#e69f00" : "#56b4e9";
        brush.fillRect(pen.x, pen.y, 1, 1);
      }
    };
    const read = () => {
      cloud = empty() ? null : vae.encode(input());
      look();
      if (cloud) moveTo(cloud.mu);
      else draw();
    };

    const draw = () => {
      const logits = vae.decode(z);
      paint(result, vae.draw(logits));
      brush.putImageData(still, 0, 0);
      let line = words.none;
      if (cloud) {
        [brush.lineWidth, brush.strokeStyle] = [3, "black"];
        for (const scale of [1, 2]) {
          ellipse(cloud.mu, cloud.sigma, scale);
          brush.stroke();
        }
        const [a, b] = z.map((x) => number(x, 2));
        const price = (logits) => vae.price(input(), logits).toFixed(1);
        line = say(words.here, { a, b, here: price(logits), there: price(vae.decode(cloud.mu)) });
      }
      about.replaceChildren(make("p", {}, line));
      home.setAttribute("aria-disabled", !cloud); // not disabled, which would take the focus away
    };

    const another = button(words.another, () => {
      shown = (shown + 1) % vae.digits.length;
      ink = null;
      message.textContent = "";
      read();
    });
    const clear = button(words.clear, () => {
      ink = new Float32Array(SIDE * SIDE);
      read();
    });
    const home = button(words.back, () => cloud && moveTo(cloud.mu));
    const prior = button(words.prior, () => moveTo([normal(), normal()]));

    const figure = (element, name) => make("div", { class: "vae-picture" }, element, name);
    box.append(
      make("div", { class: "vae-top" }, figure(digit, words.digit), code.element,
        figure(result, words.drawn)),
      message,
      make("div", { class: "play-row" }, another, clear, home, prior),
      about,
    );
    read();
  };

  play.explorer("vae", { words, engine, mount });
}
