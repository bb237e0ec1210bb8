"""The self-checks of the exercises: correct answers of several kinds pass, each mistake is named.

That the solutions pass and the starter code does not is seen where their notebooks are run.
"""

from __future__ import annotations

import copy
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from support import labs
from support.labs import exercises
from tools.address import ROOT
from tools.format_notebooks import read


def text(name: str) -> str:
    """Return the prose of a notebook, terms as the reader sees them."""
    prose = "\n".join(c.source for c in read(ROOT / name).cells if c.cell_type == "markdown")
    return re.sub(r"\{term\}`([^`<]+?)(?: <[^>]*>)?`", r"\1", prose)


@pytest.mark.parametrize("exercise", exercises.CHECKS)
def test_solution_repeats_the_statement_and_opens_with_the_answer(exercise):
    key = exercise.replace(".", "-")
    asked = text("chapters/exercises.ipynb").split(f":label: exercise-{key}\n:nonumber:\n")[1]
    solution = text(f"solutions/exercise_{key.replace('-', '_')}.ipynb")
    repeated = solution.split("{admonition} The exercise\n:class: note\n")[1]
    asked, repeated = (part.split("\n```")[0].split() for part in (asked, repeated))
    assert repeated == asked and len(asked) > 10
    assert re.search("^## (.+)$", solution, re.M)[1] == "The answer"


@pytest.mark.parametrize("exercise", exercises.CHECKS)
@pytest.mark.parametrize(
    "answer", [None, 5, lambda *args, **kwargs: None], ids=["none", "number", "function"]
)
def test_no_answer(exercise, answer):
    report = labs.check(exercise, answer)
    assert report.startswith(f"{exercise}: not yet. ") and len(report) > 20


def test_an_answer_may_fail_in_any_way():
    def bare(*args):
        raise AssertionError

    def unfinished(*args):
        raise NotImplementedError

    def misspelled(*sizes):
        return torch.zeros(2, 3) @ torch.zeros(2, 3)

    for answer, line in (
        (bare, r"AssertionError \(in bare, line \d+: raise AssertionError\)"),
        (misspelled, r"RuntimeError: .*\(in misspelled, line \d+: return torch.zeros.*\)"),
    ):
        assert re.fullmatch(f"27.6: not yet. {line}", labs.check("27.6", answer))
    unwritten = r"27.6: not written yet \(in unfinished, line \d+: raise NotImplementedError\)"
    assert re.fullmatch(unwritten, labs.check("27.6", unfinished))
    with pytest.raises(ValueError, match="no check '27.7': there are 27.1, "):
        labs.check("27.7", None)


def test_a_check_draws_the_same_numbers_in_each_call():
    def answer(x, corrupt, predict, compare):
        return predict(corrupt(x)[0]).sum()

    reports = []
    for seed in range(2):
        torch.manual_seed(seed)
        reports.append(labs.check("27.5", answer))
    assert "continuous: " in reports[0] and reports[0] == reports[1]


class LanguageModel(nn.Module):
    """A correct answer, and ways to spoil it."""

    def __init__(self, vocab_size, d_embedding, d_hidden, mistake=""):
        super().__init__()
        self.mistake = mistake
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        self.forward_lstm = nn.LSTM(d_embedding, d_hidden, batch_first=True)
        self.backward_lstm = nn.LSTM(d_embedding, d_hidden, batch_first=True)
        self.output = nn.Linear(2 * d_hidden, vocab_size)
        nn.init.zeros_(self.output.weight)
        if mistake == "stacked":
            self.deep = nn.LSTM(
                d_embedding, d_hidden, num_layers=2, bidirectional=True, batch_first=True
            )

    def forward(self, ids, lengths):
        rows = [self.row(row[:n]) for row, n in zip(ids, lengths, strict=True)]
        if self.mistake == "padding":
            rows = [self.row(row) for row in ids]
        if self.mistake == "order":
            rows.sort(key=len, reverse=True)
        logits = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        if self.mistake == "batch":
            logits = logits + logits.mean(0)
        return logits[:, :-1] if self.mistake == "short" else logits

    def row(self, ids):
        x = self.embedding(ids)[None]
        before = F.pad(self.forward_lstm(x)[0], (0, 0, 1, 0))[0, :-1]
        after = F.pad(self.backward_lstm(x.flip(1))[0].flip(1), (0, 0, 0, 1))[0, 1:]
        if self.mistake == "one side":
            after = torch.zeros_like(after)
        if self.mistake == "bag":
            before = F.pad(x.cumsum(1), (0, 0, 1, 0))[0, :-1, : before.shape[-1]]
        if self.mistake == "stacked":
            ahead, back = self.deep(x)[0][0].chunk(2, -1)
            before, after = F.pad(ahead, (0, 0, 1, 0))[:-1], F.pad(back, (0, 0, 0, 1))[1:]
        if self.mistake == "own word":
            before = self.forward_lstm(x)[0][0]
        return self.output(torch.cat((before, after), -1))


class Classifier(nn.Module):
    """A correct answer to part 3 of 27.1, and ways to spoil it."""

    def __init__(self, model, n_classes, mistake=""):
        super().__init__()
        self.body, self.mistake = copy.deepcopy(model), mistake
        self.head = nn.Linear(2 * model.forward_lstm.hidden_size, n_classes)
        if mistake == "not loaded":
            self.body.backward_lstm.reset_parameters()
        if mistake == "frozen":
            self.body.embedding.requires_grad_(False)

    def forward(self, ids, lengths):
        rows = [
            row if self.mistake == "padding" else row[:n]
            for row, n in zip(ids, lengths, strict=True)
        ]
        return torch.stack([self.head(self.states(row)) for row in rows])

    def states(self, row):
        x = self.body.embedding(row)[None]
        ahead, back = self.body.forward_lstm(x)[0], self.body.backward_lstm(x.flip(1))[0]
        back = back * 0 if self.mistake == "one direction" else back
        return torch.cat((ahead[0].mean(0), back[0].mean(0)), -1)


def matching_loss(model, head, first, second, labels, lm_weight, mistake=""):
    """A correct answer, and ways to spoil it: both orders, row by row, their last states summed."""
    if mistake == "padding counts":
        return one_order(model, head, first, second, labels, lm_weight, padding_counts=True)
    states, nats = [], []
    for a, b in zip(first, second, strict=True):
        a = [] if mistake == "second text alone" else a
        for one, two in ((a, b), (b, a)):
            row = torch.tensor([[0, *one, 1, *two, 2]])
            out = model.states(row)
            early = {"mean of states": out[0].mean(0), "separator": out[0, len(one) + 1]}
            states.append(early.get(mistake, out[0, -1]))
            loss = F.cross_entropy(model(row)[0, :-1], row[0, 1:], reduction="none")
            if mistake == "second text only":
                loss = loss[len(one) + 1 :]
            nats.append(loss)
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
    return loss + (lm_weight**2 if mistake == "square" else lm_weight) * torch.cat(nats).mean()


def one_order(model, head, first, second, labels, lm_weight, padding_counts=False):
    """A correct answer for directed pairs, in a batch."""
    rows = [torch.tensor([0, *a, 1, *b, 2]) for a, b in zip(first, second, strict=True)]
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=2)
    lengths = torch.tensor([len(row) for row in rows])
    last = model.states(ids)[torch.arange(len(ids)), lengths - 1]
    counted = (torch.arange(ids.shape[1]) < lengths[:, None]) | padding_counts
    nats = F.cross_entropy(model(ids)[:, :-1][counted[:, 1:]], ids[:, 1:][counted[:, 1:]])
    return F.cross_entropy(head(last), labels) + lm_weight * nats


class Autoencoder(nn.Module):
    """A correct answer, and ways to spoil it."""

    def __init__(self, mistake=""):
        super().__init__()
        code = {"wide": 16, "bytes": 5}.get(mistake, 4)
        last = nn.Conv2d(8, code, 3, 2, 1)
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
        self.mistake = mistake

    def forward(self, images):
        output = self.decoder(self.encoder(images))
        if self.mistake == "around":
            return 0 * output + images
        stuck = self.mistake == "stuck"
        return output * 0 + output.detach() + 0 * images if stuck else output


def linear_autoencoder(x, k, mistake=""):
    """A correct answer, and ways to spoil it."""
    mean = x.mean(0) if mistake != "not centered" else torch.zeros_like(x[0])
    axes = torch.linalg.svd(x - mean, full_matrices=False)[2]
    axes = axes[1 : k + 1] if mistake == "other components" else axes[:k]
    if mistake == "not converged":
        axes = axes.clone()
        axes[-1] += 0.04 * torch.linalg.svd(x - mean, full_matrices=False)[2][k]
    mix = torch.randn(k, k, dtype=x.dtype)
    decode = axes.T @ torch.linalg.inv(mix)
    encode = mix @ axes
    if mistake == "shrunk":
        encode = 0.9 * encode
    if mistake == "turned":
        encode, decode = encode.T, decode.T
    bias = mean if mistake != "bias forgotten" else torch.zeros_like(mean)
    return encode, -encode @ mean if mistake != "turned" else mean, decode, bias


def denoising_loss(x, corrupt, predict, compare, mistake=""):
    """A correct answer, and ways to spoil it."""
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


def parameter_table(v, d, f, n, longest, mistake=""):
    """A correct answer, and ways to spoil it."""
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
    if mistake == "one norm":
        table["layer norms"] = (n * 2 * d,) * 2
    if mistake == "one layer":
        table["attention"] = (4 * (d * d + d),) * 2
    if mistake == "pooler in both":
        table["pooler"] = (d * d + d,) * 2
    if mistake == "one number":
        return {part: in_bert for part, (in_bert, _) in table.items()}
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
        "stacked": "token 0 itself: bidirectional layers are stacked",
        "bag": "on the left does not matter: that is a bag of words",
        "batch": "of one sequence depend on another",
        "padding": "depend on padding",
        "order": "depend on the order of the batch",
        "short": r"\(3, 7, 20\), got \(3, 6, 20\)",
    },
    "27.2": {
        "mean of states": "without access to the whole pair",
        "separator": "without access to the whole pair",
        "second text alone": "the first text is not read",
        "wrong order": "swapping the texts changes the loss",
        "second text only": "all tokens but the first",
        "sum": "mean over the pairs",
        "both losses": "log 3, not",
        "square": "not a factor",
        "padding counts": "length of the pairs",
        "per pair": r"one number: expected \(\), got \(3,\)",
    },
    "27.3": {
        "wide": "nothing is compressed: 784 numbers",
        "bytes": "245 numbers of 4 bytes are 980 bytes",
        "around": r"not decoder\(encoder\(images\)\)",
        "size": r"came \(64, 1, 27, 27\)",
        "range": "from 0 to 1",
        "three": "two layers Conv2d, got 3",
        "stuck": "does not learn",
    },
    "27.4": {
        "not centered": "PCA reaches",
        "other components": "PCA reaches",
        "shrunk": "PCA reaches",
        "turned": r"W_E must be \(3, 12\)",
        "not converged": "principal subspace is 2.3°",
        "bias forgotten": "PCA reaches",
    },
    "27.5": {
        "without noise": "must have the noise",
        "noisy target": "the target is x without noise",
        "all count": "only chosen positions count",
        "divided by all": "only chosen positions count",
        "mean of none": "must be 0, got nan",
    },
    "27.6": {
        "learned sinusoids": r"d_model = 768: positions \(sinusoids are computed, not learned",
        "no biases": r"768: attention \(the biases are missing",
        "usual width": r"d_model = 12: feed-forward \(d_ff need not be 4",
        "one norm": r"layer norms \(a layer has two norms",
        "one layer": r"attention \(that is one layer",
        "pooler in both": r"pooler \(the encoder has none",
        "one number": r"tokens needs two numbers, \(in BERT, in the encoder\), got 23440896",
        "part left out": "extra parts: pooler",
    },
}


@pytest.mark.parametrize(("exercise", "answer"), [*ANSWERS.items(), ("27.2", one_order)])
def test_every_correct_answer_passes_and_leaves_the_random_numbers(exercise, answer):
    before = torch.get_rng_state()
    assert labs.check(exercise, answer) == f"{exercise}: passed"
    assert before.equal(torch.get_rng_state())


@pytest.mark.parametrize(
    ("mistake", "reason"),
    [
        ("", ": passed"),
        ("not loaded", "does not start with the language model's backward_lstm.weight_ih_l0"),
        ("frozen", "does not change body.embedding.weight"),
        ("padding", "the classifier depends on padding"),
        ("one direction", "does not change body.backward_lstm.weight_ih_l0"),
    ],
)
def test_classifier_of_a_language_model(mistake, reason):
    answer = LanguageModel, lambda *args: Classifier(*args, mistake=mistake)
    assert reason in labs.check("27.1", answer)


@pytest.mark.parametrize(
    ("exercise", "mistake", "reason"),
    [(key, *pair) for key, made in MISTAKES.items() for pair in made.items()],
)
def test_mistake_is_named(exercise, mistake, reason):
    def answer(*args):
        return ANSWERS[exercise](*args, mistake=mistake)

    assert re.match(f"{exercise}: not yet. .*({reason})", labs.check(exercise, answer))
