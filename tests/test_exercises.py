"""The self-checks of the exercises: starter code and known mistakes fail, the solutions pass."""

from __future__ import annotations

import io
import random
import re
from contextlib import redirect_stdout
from itertools import chain
from math import log
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from support import exercises
from tools.address import ROOT
from tools.format_notebooks import read

SOLUTIONS = sorted((ROOT / "solutions").glob("*.ipynb"))


def run(path: Path, last: str | None = None) -> str:
    """Return what the code cells print, up to the first that holds the text `last`."""
    matplotlib.use("agg")
    printed, values = io.StringIO(), {"__name__": "__main__"}
    _, *cells = [cell.source for cell in read(path).cells if cell.cell_type == "code"]
    with redirect_stdout(printed):
        for source in cells:
            exec(compile(source, path.name, "exec"), values)  # noqa: S102
            if last and last in source:
                return printed.getvalue()
    assert last is None, f"no cell of {path.name} has {last}"
    return printed.getvalue()


def reports(text: str) -> list[tuple[str, str]]:
    """Return (exercise, report) for each of the lines that exercises.report makes."""
    lines = [line.partition(": ") for line in text.splitlines()]
    return [(start, rest) for start, _, rest in lines if start in exercises.CHECKS]


@pytest.fixture(autouse=True)
def smoke(monkeypatch):
    monkeypatch.setenv("PRETRAIN_PROFILE", "smoke")


def test_starter_code_runs_and_fails():
    # The first report is of an answer that shows how a self-check speaks.
    _, *found = reports(run(ROOT / "chapters" / "exercises.ipynb"))
    assert [exercise for exercise, _ in found] == list(exercises.CHECKS)
    assert all(report.startswith("not yet. ") for _, report in found), found


def test_every_exercise_has_a_solution():
    names = [path.stem for path in SOLUTIONS]
    assert names == [f"exercise_{key.replace('.', '_')}" for key in exercises.CHECKS]


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_solution_passes(path):
    exercise = path.stem.removeprefix("exercise_").replace("_", ".")
    first, *_ = reports(run(path, "exercises.report("))  # wrong answers may come after it
    assert first == (exercise, "passed")


def statement(path: Path, exercise: str) -> str:
    """Return the words of an exercise: below its label, or in the box that opens its solution."""
    text = "\n".join(c.source for c in read(path).cells if c.cell_type == "markdown")
    label = f":label: exercise-{exercise.replace('.', '-')}\n:nonumber:\n"
    if path.stem.startswith("exercise_"):
        label = "{admonition} The exercise\n:class: note\n"
    words = re.search(re.escape(label) + r"(.*?)\n```", text, re.S)[1]
    return re.sub(r"\s+", " ", re.sub(r"\{term\}`([^`<]+?)(?: <[^>]*>)?`", r"\1", words))


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_solution_repeats_the_statement(path):
    exercise = path.stem.removeprefix("exercise_").replace("_", ".")
    asked = statement(ROOT / "chapters" / "exercises.ipynb", exercise)
    assert statement(path, exercise) == asked and len(asked) > 60


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_solution_opens_with_the_answer(path):
    text = [c.source for c in read(path).cells if c.cell_type == "markdown"]
    headings = re.findall(r"^## (.+)$", "\n".join(text), re.M)
    assert headings[0] == "The answer"


def test_unknown_exercise():
    with pytest.raises(ValueError, match="no exercise '27.7': there are 27.1, "):
        exercises.report("27.7", None)


@pytest.mark.parametrize("exercise", exercises.CHECKS)
@pytest.mark.parametrize(
    "answer", [None, 5, lambda *args, **kwargs: None], ids=["none", "number", "function"]
)
def test_no_answer(exercise, answer):
    report = exercises.report(exercise, answer)
    assert report.startswith(f"{exercise}: not yet. ") and len(report) > 20


# 27.1


class LanguageModel(nn.Module):
    """A right answer, and ways to spoil it."""

    def __init__(self, vocab_size, d_embedding, d_hidden, mistake=""):
        super().__init__()
        self.mistake = mistake
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        self.forward_lstm = nn.LSTM(d_embedding, d_hidden, batch_first=True)
        self.backward_lstm = nn.LSTM(d_embedding, d_hidden, batch_first=True)
        self.output = nn.Linear(2 * d_hidden, vocab_size)

    def forward(self, ids, lengths):
        rows = [self.row(row[:n]) for row, n in zip(ids, lengths, strict=True)]
        if self.mistake == "padding":
            rows = [self.row(row) for row in ids]
        logits = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        if self.mistake == "batch":
            logits = logits + logits.mean(0)
        if self.mistake == "order":
            logits = logits + torch.arange(len(ids))[:, None, None]
        return logits[:, :-1] if self.mistake == "short" else logits

    def row(self, ids):
        x = self.embedding(ids)[None]
        before = F.pad(self.forward_lstm(x)[0], (0, 0, 1, 0))[0, :-1]
        after = F.pad(self.backward_lstm(x.flip(1))[0].flip(1), (0, 0, 0, 1))[0, 1:]
        if self.mistake == "one side":
            after = torch.zeros_like(after)
        if self.mistake == "own word":
            before = self.forward_lstm(x)[0][0]
        return self.output(torch.cat((before, after), -1))


# 27.2


def matching_loss(model, head, first, second, labels, lm_weight, mistake=""):
    """A right answer, and ways to spoil it: both orders, row by row, their last states summed."""
    states, nats = [], []
    for a, b in zip(first, second, strict=True):
        for one, two in ((a, b), (b, a)):
            row = torch.tensor([[0, *one, 1, *two, 2]])
            out = model.states(row)
            early = {"mean of states": out[0].mean(0), "separator": out[0, len(one) + 1]}
            states.append(early.get(mistake, out[0, -1]))
            loss = F.cross_entropy(out[0, :-1] @ model.tokens.weight.T, row[0, 1:], reduction="none")
            if mistake == "second text only":
                loss = loss[len(one) + 1 :]
            nats.append(loss.sum() if mistake == "sum of tokens" else loss)
    pairs = torch.stack(states).view(len(labels), 2, -1).sum(1)
    if mistake == "wrong order":
        pairs = torch.stack(states).view(len(labels), 2, -1)[:, 1]
    loss = F.cross_entropy(head(pairs), labels, reduction="sum" if mistake == "sum" else "mean")
    if mistake == "per pair":
        return F.cross_entropy(head(pairs), labels, reduction="none")
    if mistake == "both losses":
        loss = sum(
            F.cross_entropy(head(x), labels) for x in torch.stack(states).view(-1, 2, 16).unbind(1)
        )
    language = torch.stack(nats).mean() if mistake == "sum of tokens" else torch.cat(nats).mean()
    return loss + (lm_weight**2 if mistake == "square" else lm_weight) * language


def average_over_places(model, head, first, second, labels, lm_weight):
    """A wrong answer: the label is asked for at every place of the row."""
    losses = []
    for a, b, label in zip(first, second, labels, strict=True):
        logits = head(model.states(torch.tensor([[0, *a, 1, *b, 2]]))[0])  # (T, classes)
        losses.append(F.cross_entropy(logits, label.expand(len(logits))))
    return torch.stack(losses).mean() + lm_weight * log(30)


def in_batches(first, second, padding=2):
    """Return rows (N, T), padded, and which places are real."""
    rows = [torch.tensor([0, *a, 1, *b, 2]) for a, b in zip(first, second, strict=True)]
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=padding)
    lengths = torch.tensor([len(row) for row in rows])
    return ids, torch.arange(ids.shape[1]) < lengths[:, None]


def one_order(model, head, first, second, labels, lm_weight, padding=2, padded=False):
    """A right answer for directed pairs, in a batch; padded: the padding counts, which is wrong."""
    ids, real = in_batches(first, second, padding)
    states = model.states(ids)
    last = states[torch.arange(len(ids)), real.sum(1) - 1]
    counted = torch.ones_like(real) if padded else real
    nats = F.cross_entropy(model(ids)[:, :-1][counted[:, 1:]], ids[:, 1:][counted[:, 1:]])
    return F.cross_entropy(head(last), labels) + lm_weight * nats


def mean_of_orders(model, head, first, second, labels, lm_weight):
    """A right answer for pairs without order: each order is a row with the label."""
    return sum(
        one_order(model, head, a, b, labels, lm_weight, padding=0) / 2
        for a, b in ((first, second), (second, first))
    )


def mean_of_probabilities(model, head, first, second, labels, lm_weight):
    """A right answer: two orders vote; the language model reads one of them, pair by pair."""
    p, nats = 0, []
    for a, b in ((first, second), (second, first)):
        ids, real = in_batches(a, b)
        p = p + head(model.states(ids)[torch.arange(len(ids)), real.sum(1) - 1]).softmax(-1) / 2
    for a, b in zip(first, second, strict=True):
        row = torch.tensor([[0, *a, 1, *b, 2]])
        nats.append(F.cross_entropy(model(row)[0, :-1], row[0, 1:]))
    return F.nll_loss(p.log(), labels) + lm_weight * torch.stack(nats).mean()


# 27.3


class Autoencoder(nn.Module):
    """A right answer, and ways to spoil it."""

    def __init__(self, mistake=""):
        super().__init__()
        code = 16 if mistake == "wide" else 4
        last = nn.Conv2d(8, code, 3, 2, 1)
        if mistake == "dense":
            last = nn.Sequential(
                nn.Flatten(), nn.Linear(8 * 14 * 14, 196), nn.Unflatten(1, (4, 7, 7))
            )
        self.encoder = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), last)
        extra = 0 if mistake == "size" else 1
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(code, 8, 3, 2, 1, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(8, 1, 3, 2, 1, extra),
            nn.Identity() if mistake == "range" else nn.Sigmoid(),
        )
        if mistake == "three":
            self.encoder.append(nn.Conv2d(code, code, 1))
        if mistake == "upsampling":
            self.decoder[0] = nn.Sequential(
                nn.Upsample(scale_factor=2), nn.Conv2d(code, 8, 3, 1, 1)
            )
        self.stuck = mistake == "stuck"

    def forward(self, images):
        output = self.decoder(self.encoder(images))
        return output * 0 + output.detach() + 0 * images if self.stuck else output


# 27.4


def linear_autoencoder(x, k, mistake=""):
    """A right answer, and ways to spoil it."""
    mean = x.mean(0) if mistake != "not centered" else torch.zeros_like(x[0])
    axes = torch.linalg.svd(x - mean, full_matrices=False)[2]
    axes = axes[1 : k + 1] if mistake == "other components" else axes[:k]
    mix = torch.randn(k, k, dtype=x.dtype)
    decode = axes.T @ torch.linalg.inv(mix)
    encode = mix @ axes
    if mistake == "shrunk":
        encode = 0.9 * encode
    if mistake == "turned":
        encode, decode = encode.T, decode.T
    bias = mean if mistake != "bias forgotten" else torch.zeros_like(mean)
    return encode, -encode @ mean if mistake != "turned" else mean, decode, bias


# 27.5


def denoising_loss(x, corrupt, predict, compare, mistake=""):
    """A right answer, and ways to spoil it."""
    noisy, counted = corrupt(x)
    if mistake == "without noise":
        noisy = x
    target = noisy if mistake == "noisy target" and noisy.is_floating_point() else x
    loss = compare(predict(noisy), target)
    if mistake == "all count":
        return loss.mean()
    if mistake == "mean of none":
        return loss[counted].mean()
    if mistake == "divided by all":
        return (loss * counted).mean()
    return (loss * counted).sum() / counted.sum().clamp(min=1)


# 27.6


def parameter_table(v, d, f, n, longest, mistake=""):
    """A right answer, and ways to spoil it."""
    shared = {
        "tokens": (v * d,) * 2,
        "attention": (n * 4 * (d * d + d),) * 2,
        "feed-forward": (n * (2 * d * f + d + f),) * 2,
        "layer norms": (n * 4 * d,) * 2,
    }
    table = shared | {
        "positions": (longest * d, longest * d if mistake == "learned sinusoids" else 0),
        "segments": (2 * d, 0),
        "embedding norm": (2 * d, 0),
        "pooler": (d * d + d, 0),
    }
    if mistake == "no biases":
        table["attention"] = (n * 4 * d * d,) * 2
    if mistake == "usual width":
        table["feed-forward"] = (n * (8 * d * d + 5 * d),) * 2
    if mistake == "part left out":
        del table["pooler"]
    return table


# The same exercises, answered in other ways.


class PackedLanguageModel(nn.Module):
    """27.1 with a library's bidirectional LSTM on a packed batch; its output begins at zero."""

    def __init__(self, vocab_size, d_embedding, d_hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        self.lstm = nn.LSTM(d_embedding, d_hidden, batch_first=True, bidirectional=True)
        self.output = nn.Linear(2 * d_hidden, vocab_size)
        nn.init.zeros_(self.output.weight)

    def forward(self, ids, lengths):
        x = nn.utils.rnn.pack_padded_sequence(self.embedding(ids), lengths, True, False)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(x)[0], batch_first=True)
        ahead, back = states.chunk(2, -1)  # padded with zeros
        return self.output(torch.cat([F.pad(ahead, (0, 0, 1, -1)), F.pad(back, (0, 0, -1, 1))], -1))


class TwoLanguageModels(nn.Module):
    """27.1 as a product of experts: two models of one direction each, their logits added."""

    def __init__(self, vocab_size, d_embedding, d_hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        self.start = nn.Parameter(torch.zeros(2, 1, 1, d_embedding))
        self.lstms = nn.ModuleList(nn.LSTM(d_embedding, d_hidden, 2) for _ in range(2))
        self.outputs = nn.ModuleList(nn.Linear(d_hidden, vocab_size) for _ in range(2))

    def forward(self, ids, lengths):
        logits = torch.zeros(*ids.shape, self.outputs[0].out_features, dtype=self.start.dtype)
        for i, n in enumerate(lengths.tolist()):
            x = self.embedding(ids[i, :n])[:, None]  # (n, 1, d_embedding)
            ahead = self.lstms[0](torch.cat([self.start[0], x[:-1]]))[0]
            back = self.lstms[1](torch.cat([self.start[1], x[1:].flip(0)]))[0].flip(0)
            logits[i, :n] = (self.outputs[0](ahead) + self.outputs[1](back))[:, 0]
        return logits


class AutoencoderOfVector(nn.Module):
    """27.3 with kernels of 5 and 4, batch norm, and a code that is a vector of few numbers."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 12, 5, 2, 2), nn.BatchNorm2d(12), nn.LeakyReLU(),
            nn.Conv2d(12, 2, 4, 2, 1),
            nn.Flatten(),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.Unflatten(1, (2, 7, 7)), nn.ConvTranspose2d(2, 12, 4, 2, 1), nn.BatchNorm2d(12),
            nn.LeakyReLU(), nn.ConvTranspose2d(12, 1, 4, 2, 1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, images):
        return self.decoder(self.encoder(images))


class AutoencoderWithPooling(nn.Module):
    """27.3 with pooling in place of strides, and an output that is cut off at 0 and 1."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding=1), nn.MaxPool2d(2),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(8, 16, 2, 2), nn.ReLU(), nn.ConvTranspose2d(16, 1, 2, 2)
        )

    def forward(self, images):
        return (self.decoder(self.encoder(images)) + 0.5).clamp(0, 1)


def by_eigenvectors(x, k):
    """27.4 with transposed weights; all of the shift is in the decoder, and NumPy is returned."""
    mean, x = x.mean(0).numpy(), x.numpy()
    axes = np.linalg.eigh(np.cov(x.T))[1][:, -k:]
    return axes.T, np.zeros(k), axes, mean - axes @ axes.T @ mean


def by_descent(x, k):
    """27.4 by training, alternating between the best decoder and the best encoder."""
    mean = x.mean(0)
    centered = x - mean
    decode = torch.randn(x.shape[1], k, dtype=x.dtype)
    for _ in range(300):
        encode = torch.linalg.pinv(decode)
        decode = torch.linalg.lstsq(centered @ encode.T, centered).solution.T
    return encode.float(), -(encode @ mean).float(), decode.float(), mean.float()


def loss_by_index(x, corrupt, predict, compare):
    """27.5 by picking the elements that count."""
    noisy, counted = corrupt(x)
    each = compare(predict(noisy), x)[counted]
    return each.mean() if len(each) else each.sum()


def loss_by_where(x, corrupt, predict, compare):
    """27.5 by a mean that is nothing where nothing counts."""
    noisy, counted = corrupt(x)
    each = compare(predict(noisy), x)
    return each.masked_fill(~counted, torch.nan).nanmean().nan_to_num()


def table_by_counting(v, d, f, n, longest):
    """27.6 by counting PyTorch's layers, in another order, as lists."""
    count = lambda *modules: sum(p.numel() for m in modules for p in m.parameters())  # noqa: E731
    linear, norm = nn.Linear, nn.LayerNorm
    attention = n * count(nn.MultiheadAttention(d, 1))
    return {
        "pooler": [count(linear(d, d)), 0],
        "layer norms": [n * count(norm(d), norm(d))] * 2,
        "feed-forward": [n * count(linear(d, f), linear(f, d))] * 2,
        "attention": [attention, attention],
        "embedding norm": [count(norm(d)), 0],
        "segments": [2 * d, 0],
        "positions": [longest * d, 0],
        "tokens": [v * d, v * d],
    }


def table_by_layers(v, d, f, n, longest):
    """27.6 by one layer at a time."""
    bert, encoder = {"tokens": v * d, "positions": longest * d}, {"tokens": v * d, "positions": 0}
    for part, size in (("segments", 2 * d), ("embedding norm", 2 * d), ("pooler", d**2 + d)):
        bert[part], encoder[part] = size, 0
    for table in (bert, encoder):
        table |= {"attention": 0, "feed-forward": 0, "layer norms": 0}
        for _ in range(n):
            table["attention"] += 4 * d**2 + 4 * d
            table["feed-forward"] += d * f + f + f * d + d
            table["layer norms"] += 2 * d + 2 * d
    return {part: (bert[part], encoder[part]) for part in bert}


OTHERS = {
    "27.1": [PackedLanguageModel, TwoLanguageModels],
    "27.2": [one_order, mean_of_orders, mean_of_probabilities],
    "27.3": [AutoencoderOfVector, AutoencoderWithPooling],
    "27.4": [by_eigenvectors, by_descent],
    "27.5": [loss_by_index, loss_by_where],
    "27.6": [table_by_counting, table_by_layers],
}
ANSWERS = {
    "27.1": LanguageModel,
    "27.2": matching_loss,
    "27.3": Autoencoder,
    "27.4": linear_autoencoder,
    "27.5": denoising_loss,
    "27.6": parameter_table,
}
MISTAKES = {
    "27.1": {
        "own word": "depends on token 0 itself",
        "one side": "not every other prediction",
        "batch": "of one text depend on another",
        "order": "order of the batch",
        "padding": "depend on padding",
        "short": r"\(3, 7, 20\), got \(3, 6, 20\)",
    },
    "27.2": {
        "mean of states": "have not read the whole pair",
        "separator": "have not read the whole pair",
        "wrong order": "swapping the texts changes the loss",
        "second text only": "all tokens but the first",
        "sum": "mean over the pairs",
        "both losses": "log 3, not",
        "sum of tokens": "all tokens but the first|length of the pairs",
        "square": "not a factor",
        "per pair": r"one number, got a tensor \(3,\)",
    },
    "27.3": {
        "wide": "nothing is compressed: 784 numbers",
        "dense": "encoder must have two layers Conv2d",
        "size": r"came \(256, 1, 27, 27\)",
        "range": "from 0 to 1",
        "three": "two layers Conv2d, got 3",
        "upsampling": "two layers ConvTranspose2d",
        "stuck": "does not learn",
    },
    "27.4": {
        "not centered": "PCA reaches",
        "other components": "PCA reaches",
        "shrunk": "PCA reaches",
        "turned": r"W_E must be \(3, 12\)",
        "bias forgotten": "PCA reaches",
    },
    "27.5": {
        "without noise": "must have the noise",
        "noisy target": "the target is x without noise",
        "all count": "only chosen places count",
        "divided by all": "only chosen places count",
        "mean of none": "must be 0, got nan",
    },
    "27.6": {
        "learned sinusoids": "wrong numbers with d_model = 768: positions",
        "no biases": "768: attention",
        "usual width": "wrong numbers with d_model = 12: feed-forward",
        "part left out": "too many: pooler",
    },
}


@pytest.mark.parametrize(
    ("exercise", "answer"),
    [(key, answer) for key in ANSWERS for answer in (ANSWERS[key], *OTHERS[key])],
)
def test_every_right_answer_passes(exercise, answer):
    assert exercises.report(exercise, answer) == f"{exercise}: passed"


def test_the_label_asked_for_at_every_place_is_refused():
    report = exercises.report("27.2", average_over_places)
    assert report.endswith("states that have not read the whole pair")


def test_padding_that_counts_is_refused():
    report = exercises.report("27.2", lambda *args: one_order(*args, padded=True))
    assert "length of the pairs" in report


@pytest.mark.parametrize(
    ("exercise", "mistake", "reason"),
    list(chain(*([(key, *pair) for pair in made.items()] for key, made in MISTAKES.items()))),
)
def test_mistake_is_named(exercise, mistake, reason):
    def answer(*args):
        return ANSWERS[exercise](*args, mistake=mistake)

    with pytest.raises(AssertionError, match=reason):
        exercises.CHECKS[exercise](answer)
    assert exercises.report(exercise, answer).startswith(f"{exercise}: not yet. ")


def test_the_readers_random_numbers_stay_as_they_are():
    def state():
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    def unfinished(*args):
        random.random(), np.random.rand(), torch.rand(1)
        raise NotImplementedError

    before = state()
    for exercise in exercises.CHECKS:
        exercises.report(exercise, unfinished)
        exercises.report(exercise, ANSWERS[exercise])
    assert state() == before
