"""The self-checks of the exercises: starter code and known mistakes fail, the solutions pass."""

from __future__ import annotations

import io
import random
from contextlib import redirect_stdout
from itertools import chain
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
    found = reports(run(ROOT / "chapters" / "exercises.ipynb"))
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
    """A right answer, and ways to spoil it."""
    states, nats = [], []
    for a, b in zip(first, second, strict=True):
        for one, two in ((a, b), (b, a)):
            row = torch.tensor([[0, *one, 1, *two, 2]])
            out = model(row)
            states.append(out[0].mean(0) if mistake == "mean of states" else out[0, -1])
            loss = F.cross_entropy(model.logits(out[0, :-1]), row[0, 1:], reduction="none")
            nats.append(loss.sum() if mistake == "sum of tokens" else loss)
    pairs = torch.stack(states).view(len(labels), 2, -1)
    pairs = pairs[:, 0] if mistake == "one order" else pairs.sum(1)
    pairs = pairs / 2 if mistake == "mean of orders" else pairs
    loss = F.cross_entropy(head(pairs), labels, reduction="sum" if mistake == "sum" else "mean")
    if mistake == "per pair":
        return F.cross_entropy(head(pairs), labels, reduction="none")
    language = torch.stack(nats).mean() if mistake == "sum of tokens" else torch.cat(nats).mean()
    return loss + (lm_weight**2 if mistake == "square" else lm_weight) * language


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
        "one order": "swapping",
        "mean of states": "sum of the two last states",
        "mean of orders": "sum of the two last states",
        "sum": "pairs beside it",
        "sum of tokens": "log 30, not",
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


@pytest.mark.parametrize("exercise", ANSWERS)
def test_another_right_answer_passes(exercise):
    assert exercises.report(exercise, ANSWERS[exercise]) == f"{exercise}: passed"


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
