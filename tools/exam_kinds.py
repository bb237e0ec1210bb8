"""The kinds of questions of an exam: each draws numbers, and computes its answers in two ways.

`answers` holds what the sheet gives; `again` computes it by other means, often from a definition
where the first is a formula, or by finite differences where it is a derivative.
"""

from __future__ import annotations

import ast
import difflib
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from random import Random

from tools import address
from tools.format_notebooks import read


@dataclass(frozen=True)
class Kind:
    """A kind of question: what draws one, its chapter, and what each is worth."""

    name: str
    draw: Callable[[Random], Question]
    title: str
    chapter: str
    points: int
    minutes: int


@dataclass(frozen=True)
class Question:
    """A question, its answers by name, another way to them, and what is given and marked."""

    statement: str
    answers: dict[str, object]  # whole numbers, fractions, floats (to be rounded), text, tuples
    again: Callable[[], dict[str, object]]
    marking: str
    given: str = ""
    ranked: tuple = ()  # lists of numbers, each of which must have a single largest one
    kind: Kind | None = None

    @property
    def values(self) -> list:
        """All single values of the answers."""
        return [x for v in self.answers.values() for x in (v if isinstance(v, tuple) else (v,))]

    @property
    def text(self) -> str:
        """What the student reads."""
        floats = [
            part
            for part, v in self.answers.items()
            if isinstance(v[0] if isinstance(v, tuple) else v, float)
        ]
        which = "" if len(floats) == len(self.answers) else f" {' and '.join(floats)}"
        rounding = f" Round{which} to three significant digits." if floats else ""
        return self.statement + rounding + (f"\n\n**Given:** {self.given}." if self.given else "")


KINDS: dict[str, Kind] = {}


def kind(title: str, chapter: str, points: int, minutes: int) -> Callable:
    """Return a decorator that enters a function into KINDS, in the order of the book."""

    def enter(draw: Callable[[Random], Question]) -> Callable[[Random], Question]:
        KINDS[draw.__name__] = Kind(draw.__name__, draw, title, chapter, points, minutes)
        return draw

    return enter


def sigmoid(x: float) -> float:
    """Return the logistic function of x."""
    return 1 / (1 + math.exp(-x))


def vector(values: list) -> str:
    """Return a vector for a formula."""
    return f"({', '.join(f'{x:g}' for x in values)})"


def logs(*numbers: int) -> str:
    """Return natural logarithms to five places."""
    return ", ".join(rf"$\log {n} = {math.log(n):.5f}$" for n in numbers)


def slope(loss: Callable[..., float], at: list[float], i: int) -> float:
    """Return the derivative by argument i as a central difference."""
    ends = [loss(*(x + e * (j == i) for j, x in enumerate(at))) for e in (1e-5, -1e-5)]
    return (ends[0] - ends[1]) / 2e-5


def dot(a: list, b: list) -> float:
    """Return the dot product."""
    return sum(x * y for x, y in zip(a, b, strict=True))


SIGMOIDS = ", ".join(rf"$\sigma({x:g}) = {sigmoid(x):.5f}$" for x in (0.5, 1, 1.5, 2))
SIGMOIDS += r", $\sigma(-x) = 1 - \sigma(x)$"
WORDS = (  # few letters, so that their pairs occur in several words
    "banana ananas nana cocoa onion noon moon soon potato tomato total tote tattoo tent ten net "
    "nest test rest enter tenet tender render order tan tanned ant nut nun none tone note onto"
).split()


@kind("Backpropagation through one neuron", "training", 6, 8)
def neuron(rng: Random) -> Question:
    """Draw a neuron with a sigmoid: the gradient is (p - y) x."""
    x, w, eta = rng.choice((2, 3, 4, -2)), rng.choice((0.5, -0.5, 1)), rng.choice((0.1, 0.2, 0.5))
    z, y = rng.choice((-2, -1.5, -1, -0.5, 0.5, 1, 1.5, 2)), rng.randint(0, 1)
    b, by_hand = z - w * x, (sigmoid(z) - y) * x
    by_slope = slope(lambda w: -math.log(abs(1 - y - sigmoid(w * x + b))), [w], 0)
    return Question(
        f"A neuron computes $p = \\sigma(wx + b)$ with $w = {w:g}$ and $b = {b:g}$. For the input "
        f"$x = {x}$ the true label is $y = {y}$, and the loss $L$ is the cross-entropy. Compute "
        r"(a) $\partial L / \partial w$ and (b) $w$ after one step of gradient descent with the "
        rf"learning rate $\eta = {eta:g}$.",
        {"(a)": by_hand, "(b)": w - eta * by_hand},
        lambda: {"(a)": by_slope, "(b)": w - eta * by_slope},
        rf"$z = {z:g}$: 1 point; $\partial L / \partial z = \sigma(z) - y$: 2; times $x$: 1; the "
        "step against the gradient: 2.",
        SIGMOIDS,
    )


@kind("Two steps of Adam", "training", 6, 8)
def adam(rng: Random) -> Question:
    """Draw two gradients such that the root is whole (Kingma and Ba, 2015, algorithm 1)."""
    w, eta = rng.choice((1, 2, 3, -1)), rng.choice((0.05, 0.1, 0.2))
    a = b = root = 0  # the gradients, and the root of the corrected mean of their squares
    while abs(a) == abs(b) or 3 * root * root != a * a + 2 * b * b:
        a, b = (rng.choice((-1, 1)) * rng.randint(1, 15) for _ in "ab")
        root = math.isqrt((a * a + 2 * b * b) // 3)
    one = w - math.copysign(eta, a)

    def again() -> dict[str, object]:
        m, s, path = 0, 0, [w]
        for t, g in enumerate((a, b), 1):
            m, s = (m + g) / 2, (s + g * g) / 2
            path.append(path[-1] - eta * m / (1 - 0.5**t) / math.sqrt(s / (1 - 0.5**t)))
        return {"(a)": path[1], "(b)": path[2]}

    return Question(
        f"Adam starts from $w = {w}$ with $\\beta_1 = \\beta_2 = 0.5$ and $\\eta = {eta:g}$. The "
        f"gradients of the first two steps are ${a}$ and ${b}$. Both running means are corrected "
        "for their start at zero; leave out the $10^{-8}$. What is $w$ (a) after one step, (b) "
        "after two?",
        {"(a)": one, "(b)": one - eta * (a + 2 * b) / 3 / root},
        again,
        rf"The first step is $\eta$, whatever the size of the gradient: 2 points; "
        rf"$m / (1 - \beta_1^2) = {Fraction(a + 2 * b, 3)}$: 1; "
        rf"$s / (1 - \beta_2^2) = {root * root}$, with the root {root}: 2; the second step: 1. "
        "Without the corrections: at most 3.",
        "the square root that you need is a whole number",
    )


@kind("Skip-gram with negative sampling", "word2vec", 8, 12)
def negative_sampling(rng: Random) -> Question:
    """Draw a pair and one noise word (Mikolov et al., 2013, equation 4)."""
    scores, eta = (0, 0), rng.choice((0.1, 0.2, 0.5))
    while not {*map(abs, scores)} <= {0.5, 1, 1.5, 2} or abs(scores[0]) == abs(scores[1]):
        v, u, n = ([rng.choice((-1, -0.5, 0.5, 1, 1.5, 2)) for _ in "12"] for _ in "vun")
        scores = dot(v, u), dot(v, n)
    yes, no = sigmoid(scores[0]) - 1, sigmoid(scores[1])  # probability minus label
    names = r"$\mathbf v_c$", r"$\mathbf u_o$"

    def loss(*x: float) -> float:
        return -math.log(sigmoid(dot(x[:2], x[2:4]))) - math.log(sigmoid(-dot(x[:2], x[4:])))

    def again() -> dict[str, object]:
        at = [*v, *u, *n]
        new = [x - eta * slope(loss, at, i) for i, x in enumerate(at)]
        return {names[0]: tuple(new[:2]), names[1]: tuple(new[2:4])}

    return Question(
        rf"The center word $c$ has $\mathbf v_c = {vector(v)}$, the context word $o$ has "
        rf"$\mathbf u_o = {vector(u)}$, and the only noise word $n$ has $\mathbf u_n = "
        rf"{vector(n)}$."
        r" What are $\mathbf v_c$ and $\mathbf u_o$ after one step of gradient descent on the loss "
        rf"of negative sampling, with the learning rate $\eta = {eta:g}$? Both gradients are "
        "computed before any vector moves.",
        {
            names[0]: tuple(v[i] - eta * (yes * u[i] + no * n[i]) for i in (0, 1)),
            names[1]: tuple(u[i] - eta * yes * v[i] for i in (0, 1)),
        },
        again,
        rf"The scores ${scores[0]:g}$ and ${scores[1]:g}$: 2 points; $\sigma - 1$ for $o$ and "
        r"$\sigma$ for $n$: 2; each vector: 2. Without the noise word: at most 5.",
        SIGMOIDS,
    )


@kind("One cell of GloVe", "glove", 5, 7)
def glove(rng: Random) -> Question:
    """Draw a count and its vectors (Pennington et al., 2014, equations 8 and 9)."""
    x, x_max = rng.choice(((2, 32), (3, 48), (4, 64), (5, 80), (2, 162), (16, 81), (32, 162)))
    v, u = ([rng.choice((-1, 1, 2, 0.5)) for _ in "12"] for _ in "vu")
    b, c = rng.choice((0.1, 0.3, -0.2)), rng.choice((0.4, 0.2, -0.5))
    root = Fraction(math.isqrt(math.isqrt(1296 * x // x_max)), 6)  # the fourth, of x / x_max
    error = dot(v, u) + b + c - math.log(x)
    return Question(
        rf"Two words occur together $x_{{ij}} = {x}$ times, and $x_{{\max}} = {x_max}$. The "
        rf"vectors are $\mathbf v_i = {vector(v)}$ and $\mathbf u_j = {vector(u)}$, the biases "
        rf"$b_i = {b:g}$ and $\tilde b_j = {c:g}$. Compute (a) the weight $f(x_{{ij}})$, as a "
        "fraction, and (b) the term of this pair in GloVe's loss, its weight included.",
        {"(a)": root**3, "(b)": float(root**3) * error**2},
        lambda: {
            "(a)": (x / x_max) ** 0.75,
            "(b)": (x / x_max) ** 0.75 * (math.log(x) - c - b - v[1] * u[1] - v[0] * u[0]) ** 2,
        },
        rf"The weight $(x_{{ij}} / x_{{\max}})^{{0.75}}$: 2 points; the error ${error:.5f}$: 2; "
        "its square, weighted: 1. Without the logarithm: at most 3.",
        rf"{logs(2, 3, 5)}, $\log ab = \log a + \log b$, $a^{{0.75}} = (\sqrt{{\sqrt a}})^3$",
    )


def merged(symbols: list[str], pair: tuple[str, str]) -> list[str]:
    """Return the symbols with each occurrence of the pair joined."""
    out = []
    for symbol in symbols:
        if out and (out[-1], symbol) == pair:
            out[-1] += symbol
        else:
            out.append(symbol)
    return out


def learn(frequencies: dict[str, int], n: int) -> tuple[list[tuple[str, str]], list[list[int]]]:
    """Return the first n merges of BPE, and the counts of all pairs before each."""
    words, merges, ranked = {w: [*w, "_"] for w in frequencies}, [], []
    for _ in range(n):
        counts = Counter()
        for word, symbols in words.items():
            for pair in pairwise(symbols):
                counts[pair] += frequencies[word]
        merges.append(max(counts, key=counts.get))
        ranked.append([*counts.values()])
        words = {word: merged(symbols, merges[-1]) for word, symbols in words.items()}
    return merges, ranked


@kind("BPE: the first merges", "bpe", 6, 9)
def bpe_learn(rng: Random) -> Question:
    """Draw three words (Sennrich, Haddow and Birch, 2016, algorithm 1)."""
    words = {w: rng.randint(2, 9) for w in rng.sample(WORDS, 3)}
    merges, ranked = learn(words, 3)

    def again() -> dict[str, object]:
        text, said = " | ".join(f"{' '.join(w)} _" for w, n in words.items() for _ in range(n)), []
        for _ in merges:  # by replacing in the whole text, written out
            found = Counter(re.findall(r"(?<!\S)(?=([^\s|]+ [^\s|]+)(?!\S))", text))
            said.append(found.most_common(1)[0][0])
            text = re.sub(rf"(?<!\S){said[-1]}(?!\S)", said[-1].replace(" ", ""), text)
        return {f"{i}.": f"`{pair}`" for i, pair in enumerate(said, 1)}

    return Question(
        "A text consists of the words "
        + ", ".join(f"*{w}* ({n} times)" for w, n in words.items())
        + ". Each is split into its letters, with `_` at the end of the word. Which three pairs "
        "does BPE merge first, and in which order?",
        {f"{i}.": f"`{a} {b}`" for i, (a, b) in enumerate(merges, 1)},
        again,
        f"2 points a merge. Counts: {', '.join(str(max(counts)) for counts in ranked)}. A mistake "
        "that is carried along counts once.",
        ranked=ranked,
    )


@kind("BPE: encoding a new word", "bpe", 4, 5)
def bpe_apply(rng: Random) -> Question:
    """Draw merges and a word to which at least two of them apply."""
    symbols, new = [], ""
    while not 2 <= len(symbols) < len(new):
        new, *known = rng.sample(WORDS, 6)
        merges, _ = learn({w: rng.randint(2, 9) for w in known}, rng.randint(5, 7))
        symbols = [*new, "_"]
        for pair in merges:
            symbols = merged(symbols, pair)

    def again() -> dict[str, object]:
        said = [*new, "_"]  # as GPT-2's encoder: of the pairs that there are, the earliest merge
        while left := [pair for pair in pairwise(said) if pair in merges]:
            said = merged(said, min(left, key=merges.index))
        return {"tokens": f"`{' '.join(said)}`"}

    return Question(
        "A tokenizer has learned these merges, in this order: "
        + ", ".join(f"`{a}\u00a0{b}`" for a, b in merges)
        + f". Into which tokens does it split the word *{new}*, with `_` at its end?",
        {"tokens": f"`{' '.join(symbols)}`"},
        again,
        "Starting from letters and `_`: 1 point; merging in the order learned: 2; the result: 1.",
    )


@kind("Attention to two keys", "transformer", 5, 7)
def attention(rng: Random) -> Question:
    """Draw keys whose exponential scores are whole (Vaswani et al., 2017, equation 1)."""
    (a, b), x = rng.sample((2, 3, 4, 5, 6, 7), 2), [rng.randint(-3, 6) for _ in range(4)]
    c, d = rng.choice((-2, 1, 3)), rng.choice((-1, 2, 4))  # what the query does not attend to
    p = Fraction(a, a + b)

    def again() -> dict[str, object]:
        q, keys = [2, 0, 0, 1], ([math.log(a), c, 0, 0], [0, 0, d, 2 * math.log(b)])
        e = [math.exp(dot(q, key) / math.sqrt(4)) for key in keys]
        return {"(a)": e[0] / sum(e), "(b)": tuple(dot(e, x[i::2]) / sum(e) for i in (0, 1))}

    return Question(
        r"The query $\mathbf q = (2, 0, 0, 1)$ attends to the keys "
        rf"$\mathbf k_1 = (\log {a}, {c}, 0, 0)$ and $\mathbf k_2 = (0, 0, {d}, 2\log {b})$ with "
        rf"the values $\mathbf v_1 = {vector(x[:2])}$ and $\mathbf v_2 = {vector(x[2:])}$. Compute "
        "(a) the attention weight of the first key and (b) the output, both in fractions. The "
        "scores are scaled as in the Transformer.",
        {"(a)": p, "(b)": tuple(p * x[i] + (1 - p) * x[i + 2] for i in (0, 1))},
        again,
        rf"The scores $\log {a}$ and $\log {b}$, after division by $\sqrt4$: 2 points; the softmax "
        f"of {a} and {b}: 2; the output: 1. Without the division: at most 3.",
        r"$\exp(\log a) = a$, $\sqrt 4 = 2$",
    )


@kind("A causal mask with padding", "transformer", 4, 5)
def mask(rng: Random) -> Question:
    """Draw a sequence padded in front or behind."""
    n, front = rng.randint(3, 5), rng.random() < 0.5
    T = n + rng.randint(2, 4)
    first = T - n if front else 0
    t = rng.randint(first + 2 if front else n + 1, T)  # a row that the padding changes
    row = range(first + 1, min(t, first + n) + 1)
    rows = [[s for s in range(i + 1) if first <= s < first + n] for i in range(T)]
    return Question(
        f"Of the {T} positions of a sequence, the {'first' if front else 'last'} {T - n} are "
        "padding. The mask is causal, and no position, padding or not, may attend to padding. (a) "
        f"How many of the ${T} \\times {T}$ entries of the mask are true (may attend)? (b) To "
        f"which positions may position {t} attend? They are counted from 1.",
        {"(a)": n * (n + 1) // 2 + (0 if front else (T - n) * n), "(b)": ", ".join(map(str, row))},
        lambda: {
            "(a)": sum(map(len, rows)),
            "(b)": ", ".join(str(s + 1) for s in rows[t - 1]),
        },
        "The count: 3 points, 2 of them for counting row by row; the positions: 1. Without the "
        "diagonal: at most 2."
        + ("" if front else " The rows of the padding are not empty; without them, at most 3."),
    )


@kind("Masking in BERT", "bert", 4, 5)
def bert_mask(rng: Random) -> Question:
    """Draw how many words are chosen, and what is shown for them (Devlin et al., 2019, 3.1)."""
    words, chosen, epochs = rng.choice((200, 400, 600)), rng.choice((15, 20, 30)), rng.randint(2, 4)
    masked, other = rng.choice(((80, 10), (60, 20), (70, 20), (50, 30)))
    p, kept = chosen * masked / 1e4, 100 - masked - other
    return Question(
        f"In each epoch, {chosen} % of the {words} words of a text are chosen at random. Of these, "
        f"{masked} % are replaced by `[MASK]`, {other} % by a different random word, and the "
        "others are left as they are. (a) How many words of the text are shown as they are in an "
        f"epoch, on average? (b) With what probability is a given word shown as `[MASK]` at least "
        f"once in {epochs} epochs, if the choices are independent?",
        {
            "(a)": Fraction(words * (10**4 - chosen * (masked + other)), 10**4),
            "(b)": 1 - (1 - p) ** epochs,
        },
        lambda: {
            "(a)": words * ((100 - chosen) / 100 + chosen / 100 * kept / 100),
            "(b)": sum(p * (1 - p) ** epoch for epoch in range(epochs)),
        },
        f"(a) 2 points: those not chosen, and {kept} % of those chosen. (b) ${p:g}$ in an epoch: "
        f"1; $1 - {1 - p:g}^{epochs}$: 1.",
    )


@kind("Perplexity of a sentence", "gpt", 5, 6)
def perplexity(rng: Random) -> Question:
    """Draw probabilities that are powers of one base: the perplexity is one, too."""
    base, powers = rng.choice((2, 3, 5, 6)), [rng.randint(1, 3) for _ in range(4)]
    powers[3] += sum(powers) % 2
    pairs = ("the", "a"), ("moon", "sun"), ("rises", "sets"), ("slowly", "again")
    chosen = [rng.sample(pair, 2) for pair in pairs]
    words = [word for word, _ in chosen]
    p = [Fraction(1, base**e) for e in powers]
    rows = [
        sorted([(words[t], p[t]), (chosen[t][1], Fraction(1, rng.choice((5, 10, 20))))])
        for t in range(4)
    ]
    mean = sum(powers) / 4
    return Question(
        f"A language model reads the sentence *{' '.join(words)}*. At each position it assigns "
        "to two of the possible words these probabilities, given the words before:\n\n"
        "| position | word | probability | word | probability |\n|---|---|---|---|---|\n"
        + "\n".join(
            f"| {t} | {a} | {x} | {b} | {y} |" for t, ((a, x), (b, y)) in enumerate(rows, 1)
        )
        + "\n\nCompute (a) the mean loss in nats per word and (b) the perplexity.",
        {"(a)": mean * math.log(base), "(b)": base**mean},
        lambda: {"(a)": -sum(map(math.log, p)) / 4, "(b)": float(1 / math.prod(p)) ** 0.25},
        rf"The probabilities of the sentence's own words: 1 point; the mean of $-\log p$, "
        rf"${mean:g} \log {base}$: 2; its exponential ${base}^{{{mean:g}}}$: 2.",
        rf"{logs(base)}, $\sqrt {base} = {math.sqrt(base):.5f}$",
    )


@kind("A bigram model", "gpt", 5, 7)
def bigram(rng: Random) -> Question:
    """Draw a text to count pairs in, and a sentence of pairs that occur in it."""
    words, steps, p = rng.sample("sun sea wind rain sand".split(), 3), [], [0]
    while (
        0 in p or sum(x < 1 for x in p) < 2 or 900 % math.prod(p).denominator or len({*steps}) < 3
    ):
        text, sentence = ([rng.choice(words) for _ in range(n)] for n in (13, 4))
        steps, pairs, first = [*pairwise(sentence)], Counter(pairwise(text)), Counter(text[:-1])
        p = [Fraction(pairs[step], first[step[0]] or 1) for step in steps]

    def again() -> dict[str, object]:
        line = f"{' '.join(text)} "
        found = [[re.findall(rf"\b{a} (?={then})", line) for then in (b, ".")] for a, b in steps]
        q = [len(pair) / len(all_) for pair, all_ in found]
        return {"(a)": q[0], "(b)": -sum(map(math.log, q)) / 3}

    return Question(
        "A bigram model is estimated by counting, without smoothing, on the text\n\n"
        f"> {' '.join(text)}\n\n(a) What is $P(\\text{{{steps[0][1]}}} \\mid "
        f"\\text{{{steps[0][0]}}})$, as a fraction? (b) What is the cross-entropy of the sentence "
        f"*{' '.join(sentence)}* in nats per predicted word? Its first word is not predicted.",
        {"(a)": p[0], "(b)": -math.log(math.prod(p)) / 3},
        again,
        "(a) 2 points: the pair, divided by how often another word follows the first. (b) The "
        rf"probabilities {', '.join(map(str, p))}: 1; the mean of $-\log p$ over three: 2.",
        logs(2, 3, 5),
    )


@kind("Parameters of a GPT", "gpt", 4, 5)
def gpt_size(rng: Random) -> Question:
    """Draw sizes (Radford et al., 2019, for the architecture): the output layer is the table."""
    V, T, L = rng.choice((500, 1000, 2000)), rng.choice((64, 128, 256)), rng.choice((2, 3, 4, 6))
    d, heads = rng.choice((32, 64, 96, 128)), rng.choice((2, 4))
    block = [(d, d), (d,)] * 4 + [(d, 4 * d), (4 * d,), (4 * d, d), (d,)] + [(d,)] * 4
    return Question(
        f"A GPT like GPT-2 has a vocabulary of {V} tokens, learned embeddings of {T} positions, "
        f"{L} layers, {heads} heads and $d = {d}$. The feed-forward networks have the width $4d$. "
        "In the blocks all linear layers have biases. Each block has two LayerNorms with weight "
        "and bias, and one more follows the last block. The output layer is the embedding matrix, "
        "without a bias. How many parameters does the model have?",
        {"parameters": (V + T) * d + L * (12 * d * d + 13 * d) + 2 * d},
        lambda: {"parameters": sum(map(math.prod, [(V, d), (T, d), (2, d)] + L * block))},
        "The tables $(V + T)d$: 1 point; a block $12 d^2 + 13 d$: 2; the last norm $2d$: 1. With "
        "an output layer of its own, or with the heads in the count: at most 3.",
    )


@kind("Top-k and top-p sampling", "generation", 4, 5)
def sampling(rng: Random) -> Question:
    """Draw a distribution (top-k: Fan et al., 2018; top-p: Holtzman et al., 2020)."""
    cuts = [0, *sorted(rng.sample(range(1, 20), 4)), 20]
    p = dict(
        zip("moon sun rain wind sea".split(), (5 * (b - a) for a, b in pairwise(cuts)), strict=True)
    )
    order = sorted(p, key=p.get, reverse=True)
    k, limit = rng.choice((2, 3)), rng.choice((62, 72, 82, 92))
    n = next(n for n in range(1, 6) if sum(p[w] for w in order[:n]) >= limit)

    def again() -> dict[str, object]:
        k_left = [x for x in p.values() if sum(y > x for y in p.values()) < k]
        left = {w: x for w, x in p.items() if sum(y for y in p.values() if y > x) < limit}
        names = ", ".join(sorted(left, key=lambda w: -left[w]))
        return {
            "(a)": max(k_left) / sum(k_left),
            "(b)": names,
            "(c)": max(left.values()) / sum(left.values()),
        }

    return Question(
        "A language model gives the next token these probabilities: "
        + ", ".join(f"*{w}* {x / 100:.2f}" for w, x in p.items())
        + f". (a) With what probability is the most probable token drawn by top-k with $k = {k}$? "
        f"(b) Which tokens does top-p with $p = {limit / 100:g}$ keep, the most probable first? "
        "(c) With what probability is the most probable token drawn then? Give fractions.",
        {
            "(a)": Fraction(p[order[0]], sum(p[w] for w in order[:k])),
            "(b)": ", ".join(order[:n]),
            "(c)": Fraction(p[order[0]], sum(p[w] for w in order[:n])),
        },
        again,
        "(a) 1 point. (b) 2: the fewest tokens that sum to at least $p$; stopping below $p$ loses "
        "1. (c) 1. Without renormalizing, none for (a) and (c).",
        ranked=[[p[w] for w in order[i:]] for i in range(5)],
    )


@kind("The key-value cache with grouped queries", "modern_gpt", 4, 4)
def cache(rng: Random) -> Question:
    """Draw sizes: keys and values for each layer and KV head (Ainslie et al., 2023)."""
    L, heads, kv = rng.choice((16, 24, 32, 40)), rng.choice((16, 32)), rng.choice((2, 4, 8))
    size, T = rng.choice((64, 128)), rng.choice((1024, 2048, 4096, 8192))
    return Question(
        f"A language model has {L} layers, {heads} query heads and {kv} KV heads, all heads of "
        f"{size} "
        "dimensions. Its key-value cache takes 2 bytes per number. How large is the cache of a "
        f"text of {T} tokens in MiB ($2^{{20}} = 1{{,}}048{{,}}576$ bytes), (a) as described and "
        "(b) if each query head had keys and values of its own?",
        {"(a)": 4 * L * kv * size * T // 2**20, "(b)": 4 * L * heads * size * T // 2**20},
        lambda: {
            name: sum(2 * T * n * size for _ in range(L) for _ in ("key", "value")) / 2**20
            for name, n in (("(a)", kv), ("(b)", heads))
        },
        "(a) Keys and values: 1 point; all other factors: 2. (b) 1. Query heads counted in (a) "
        "lose 1.",
    )


@kind("LoRA: how many weights are trained", "finetuning", 4, 5)
def lora(rng: Random) -> Question:
    """Draw where LoRA is put (Hu et al., 2022): r numbers for each input and each output."""
    L, d, r = rng.choice((4, 6, 8, 12)), rng.choice((128, 256, 384, 512)), rng.choice((2, 4, 8))
    shapes, where = rng.choice((
        ([(d, d)] * 2, "$W^Q$ and $W^V$"),
        ([(d, d)] * 4, "all four matrices of attention"),
        ([(d, d)] * 2 + [(d, 4 * d)] * 2, "$W^Q$, $W^V$ and both feed-forward matrices"),
    ))  # fmt: skip
    trained, frozen = r * sum(a + b for a, b in shapes), sum(a * b for a, b in shapes)
    return Question(
        f"An encoder has {L} layers with $d = {d}$ and $d_\\text{{ff}} = {4 * d}$. LoRA of rank "
        f"{r} is put beside {where} in each layer. (a) How many numbers does it train? (b) What "
        "percentage of the weights in these matrices is that?",
        {"(a)": L * trained, "(b)": 100 * trained / frozen},
        lambda: {
            "(a)": L * sum(map(math.prod, [x for a, b in shapes for x in ((r, a), (b, r))])),
            "(b)": 100 * sum((r / a + r / b) * a * b / frozen for a, b in shapes),
        },
        r"$r\,(d_\text{in} + d_\text{out})$ for a matrix: 2 points; matrices and layers: 1; the "
        "percentage: 1. $A$ without $B$ loses 1.",
    )


@kind("Memory for training", "scaling_out", 4, 5)
def memory(rng: Random) -> Question:
    """Draw a model: weight, gradient and two running means (Rajbhandari et al., 2020)."""
    L, d, n = rng.choice((16, 24, 32)), rng.choice((1024, 2048, 4096)), rng.choice((4, 8, 16))
    weights = 12 * L * d * d
    room = rng.choice([gb for gb in (2, 6, 10, 20) if 1e9 * gb < 16 * weights])
    return Question(
        f"Count only the $12 d^2$ weights of each layer of a GPT with {L} layers and $d = {d}$. It "
        "is trained by AdamW, all numbers are in `float32`, and activations are left out. How many "
        f"GB ($10^9$ bytes) does training need (a) on one GPU and (b) on each of {n} GPUs with "
        f"FSDP? (c) How many GPUs are needed at least, if each has {room} GB for this?",
        {
            "(a)": 16 * weights / 1e9,
            "(b)": 16 * weights / n / 1e9,
            "(c)": math.ceil(16 * weights / room / 1e9),
        },
        lambda: {
            "(a)": sum([4 * weights / 1e9] * 4),
            "(b)": sum([4 * weights / 1e9 / n] * 4),
            "(c)": next(m for m in range(1, 10**4) if 16 * weights <= m * room * 10**9),
        },
        "(a) 16 bytes per parameter: 2 points. (b) All of them are divided: 1. (c) Rounded up: 1.",
    )


@kind("Sizes of convolutions", "autoencoders", 4, 5)
def convolution(rng: Random) -> Question:
    """Draw kernels and strides (Dumoulin and Visin, 2016, relationships 6 and 14)."""
    one = back = 0
    while one == back:  # the transposed convolution must not lead back to the size before
        n, k, s, p = rng.randint(20, 60), rng.randint(3, 5), rng.randint(2, 3), rng.randint(0, 1)
        one = (n + 2 * p - k) // s + 1
        two = (one + 2 * p - k) // s + 1
        back = (two - 1) * s + k - 2 * p

    def again() -> dict[str, object]:
        a = len(range(0, n + 2 * p - k + 1, s))  # where the kernel can begin
        b = len(range(0, a + 2 * p - k + 1, s))
        covered = {start + i for start in range(0, b * s, s) for i in range(k)}
        return {"(a)": a, "(b)": b, "(c)": max(covered) + 1 - 2 * p}

    return Question(
        f"An image of {n} × {n} pixels goes through two convolutions and one transposed "
        f"convolution, each with kernels of {k} × {k}, stride {s} and padding {p}. How many pixels "
        "has each side (a) after the first, (b) after the second, (c) after the transposed "
        "convolution?",
        {"(a)": one, "(b)": two, "(c)": back},
        again,
        r"(a) 1 point: $\lfloor (n + 2p - k)/s \rfloor + 1$. (b) 1. (c) 2: $(n - 1)s + k - 2p$.",
    )


@kind("KL divergence to the prior", "vae", 4, 6)
def kl(rng: Random) -> Question:
    """Draw a diagonal Gaussian (Kingma and Welling, 2014, appendix B)."""
    mu = rng.sample((-2, -1, -0.5, 0.5, 1, 1.5, 2), 2)
    sigma = rng.sample([Fraction(1, 2), Fraction(1, 3), Fraction(1, 4), 2, 3], 2)

    def integral(m: float, s: float) -> float:
        grid = [m + s * (i / 50) for i in range(-400, 401)]  # eight standard deviations each way
        q = [math.exp(-((z - m) ** 2) / (2 * s * s)) / s / math.sqrt(2 * math.pi) for z in grid]
        gain = [z * z / 2 - (z - m) ** 2 / (2 * s * s) - math.log(s) for z in grid]
        return dot(q, gain) * s / 50

    return Question(
        "An encoder maps an image to a normal distribution $q$ with the means "
        rf"$\mu_1 = {mu[0]:g}$, $\mu_2 = {mu[1]:g}$ and the standard deviations "
        rf"$\sigma_1 = {sigma[0]}$, $\sigma_2 = {sigma[1]}$; the components are independent. What "
        "is $\\mathrm{KL}(q \\,\\|\\, p)$ in nats, where $p$ is the prior of the VAE?",
        {
            "KL": sum(
                (m**2 + float(s) ** 2 - 1) / 2 - math.log(s) for m, s in zip(mu, sigma, strict=True)
            )
        },
        lambda: {"KL": sum(integral(m, float(s)) for m, s in zip(mu, sigma, strict=True))},
        r"$\frac12(\mu^2 + \sigma^2 - 1) - \log\sigma$ for each component: 2 points; both values: "
        "1; the sum: 1. A wrong sign of the logarithm loses 1.",
        rf"{logs(2, 3)}, $\log \frac1a = -\log a$",
    )


@lru_cache
def bugs() -> tuple[dict[str, object], ...]:
    """Return the listings of the silent bugs in which a single line is wrong, with their repairs.

    The line is where the two differ, and the text quotes it under *Wrong and right*.
    """
    cells, found = read(address.ROOT / "chapters" / "silent_bugs.ipynb").cells, []
    for said, code, answer, repair in zip(cells, cells[1:], cells[2:], cells[3:], strict=False):
        parts = re.findall(r"^- \*\*(?:Wrong and|Why no).*?\*\* (.*)", answer.source, re.M)
        quoted = re.search(r"`(.+?)`", parts[0]) if parts else None
        if not quoted or not re.search(r"\{exercise-start\}.*\n:label: bug-", said.source):
            continue
        wrong, right = (a.id for a in ast.parse(repair.source).body[-1].value.args[1:3])
        here, there = (
            next(n for n in ast.parse(cell.source).body if getattr(n, "name", "") == name)
            for cell, name in ((code, wrong), (repair, right))
        )
        lines = code.source.splitlines()
        old = lines[here.lineno : here.end_lineno]  # below the line with its name
        new = repair.source.splitlines()[there.lineno : there.end_lineno]
        blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        same = {b.a + i for b in blocks for i in range(b.size)}
        changed = [here.lineno + i for i in range(len(old)) if i not in same]
        if len(changed) == 1 == sum(quoted[1] in line for line in lines):
            repaired = lines[: here.lineno] + new + lines[here.end_lineno :]
            before = spaced(lines[: changed[0] + 1])
            about = plain(said.source.split("````")[-1].strip()).replace("cell", "program")
            found.append({
                "wrong": spaced(lines), "right": spaced(repaired),
                "changed": len(before) - 1, "quoted": quoted[1],
                "name": wrong, "about": about, "answer": [plain(part) for part in parts],
            })  # fmt: skip
    return tuple(found)


def spaced(lines: list[str]) -> list[str]:
    """Return the lines with one blank line where there are several."""
    return [line for i, line in enumerate(lines) if line or lines[i - 1]]


def plain(text: str) -> str:
    """Return a text without the book's roles and links."""
    text = re.sub(r" ?\(?\{(?:numref|cite:p)\}`[^`]*`\)?", "", text)
    return re.sub(r"\{term\}`([^`<]*?)(?: <[^`]*)?`|\[([^]]*)\]\([^)]*\)", r"\1\2", text)


@kind("Which line is wrong?", "silent_bugs", 8, 10)
def listing(rng: Random) -> Question:
    """Draw three listings of the silent bugs, as the chapter has them: two of them repaired."""
    bug, *others = rng.sample(bugs(), 3)
    shown = [(bug, bug["wrong"]), *((other, other["right"]) for other in others)]
    rng.shuffle(shown)
    before = sum(len(lines) + 1 for _, lines in shown[: shown.index((bug, bug["wrong"]))])
    lines = "\n\n".join("\n".join(lines) for _, lines in shown).splitlines()
    about = "\n".join(f"- `{of['name']}`: {of['about']}" for of, _ in shown)
    numbered = "\n".join(f"{i:2}  {line}".rstrip() for i, line in enumerate(lines, 1))
    return Question(
        f"Of these three programs, one has a wrong line. None raises an error.\n\n{about}\n\n"
        f"```text\n{numbered}\n```\n\n(a) Which line is wrong? (b) Write it correctly. (c) Why is "
        "no error raised?",
        {"(a)": f"line {before + bug['changed'] + 1}"},
        lambda: {
            "(a)": " and ".join(f"line {i}" for i, x in enumerate(lines, 1) if bug["quoted"] in x)
        },
        f"(a) 4 points. (b) 2: {bug['answer'][0]} (c) 2: {bug['answer'][1]}",
    )
