"""The lab on word2vec."""

import random
from contextlib import contextmanager
from math import log
from unittest.mock import patch

import numpy as np
import torch
from torch.nn import functional as F

from support.labs import expect
from support.text.vocab import Vocab


@contextmanager
def _world(function, **names):
    """Give a function other globals, and the same random numbers in each call."""
    state = random.getstate()
    random.seed(0)
    with patch.dict(function.__globals__, names):
        yield
    random.setstate(state)


def windows(windows):
    """Both ends of a sentence, windows longer than it, a word that occurs twice."""

    def tried(sentence, size):
        words = sentence.split()

        def rows(pick):
            return [(word, pick(max(0, i - size), i, i + 1 + size)) for i, word in enumerate(words)]

        wrong = {
            "near the start begin at max(0, i - size): a negative index counts from the end":
                rows(lambda a, i, b: words[i - size : i] + words[i + 1 : b]),
            "the center is not its own neighbor": rows(lambda a, i, b: words[a:b]),
            "the window reaches size words to the right, too: up to i + 1 + size":
                rows(lambda a, i, b: words[a:i] + words[i + 1 : b - 1]),
            "take the words on both sides": rows(lambda a, i, b: words[i + 1 : b]),
            "leave out the position of the center, not every word that equals it":
                rows(lambda a, i, b: [word for word in words[a:b] if word != words[i]]),
        }  # fmt: skip
        got = [(center, list(context)) for center, context in windows(words, size)]
        right = rows(lambda a, i, b: words[a:i] + words[i + 1 : b])
        expect(got, right, f"{sentence!r}, size={size}", wrong)

    tried("the man loves his son", 2)
    tried("a rose is a rose", 3)
    tried("it rains", 5)


def subsampling(keep_probabilities, subsampled_rows):
    """Words that are always kept, never, and sometimes; the reach of 4,000 windows."""
    counts = np.array([900, 50, 45, 5])
    part = torch.tensor([0.9, 0.05, 0.045, 0.005])
    wrong = {
        "a probability is at most 1": (0.01 / part).sqrt(),
        "take the square root": (0.01 / part).clamp(max=1),
        "the threshold is divided by the frequency, so that rare words are kept":
            (part / 0.01).sqrt().clamp(max=1),
        "f is a relative frequency: divide the counts by their sum":
            (0.01 / torch.tensor(counts)).sqrt(),
    }  # fmt: skip
    got = torch.as_tensor(np.asarray(keep_probabilities(counts, 0.01)))
    expect(got, (0.01 / part).sqrt().clamp(max=1), "counts 900, 50, 45, 5, t = 0.01", wrong)
    with _world(subsampled_rows, sentences=[[0, 1, 2, 3], [2]]):
        got = [(c, list(near)) for c, near in subsampled_rows(np.array([1, 0, 1, 1]), 1)]
        wrong = {
            "remove words before the windows are formed": [(2, [3]), (3, [2])],
            "a word that is removed is no context word either": [(0, [1]), (2, [1, 3]), (3, [2])],
            "keep[word] is the probability to keep a word, not to drop it": [],
            "leave out centers that have no context word":
                [(0, [2]), (2, [0, 3]), (3, [2]), (2, [])],
        }  # fmt: skip
        right = [(0, [2]), (2, [0, 3]), (3, [2])]
        expect(got, right, "[[0, 1, 2, 3], [2]], word 1 never kept, size=1", wrong)
    with _world(subsampled_rows, sentences=[[*range(30)]] * 200):
        keep = np.ones(30)
        reach = [len(near) // 2 for c, near in subsampled_rows(keep, 5) if 5 <= c < 25]
        assert set(reach) != {5}, "draw the reach of each window, instead of size for all"
        assert set(reach) == {*range(1, 6)}, f"draw the reach from 1 to 5, not from {set(reach)}"
        same = all(len(set(reach[i : i + 20])) == 1 for i in range(0, 4000, 20))
        assert not same, "draw the reach for each center, not once for a sentence"
        part = sum(c == 0 for c, _ in subsampled_rows(keep * 0.3, 5)) / 200
        expect(part, 0.3, "the fraction kept of a word with keep = 0.3", atol=0.12)


def skip_gram(SkipGram):
    """The scores with weights set by hand, the start and its gradients."""
    model, ids = SkipGram(3, 2), torch.tensor([2, 0])
    v, u = torch.tensor([[[1.0, 2], [3, -1], [0, 2]], [[2.0, 1], [1, 1], [-1, 0]]])
    model.center.weight.data, model.context.weight.data = v, u
    wrong = {
        "multiply by the context vectors, not by the center vectors": v[ids] @ v.T,
        "the centers are looked up in self.center": u[ids] @ v.T,
        "return the scores, without the softmax": (v[ids] @ u.T).softmax(1),
    }
    expect(model(ids).detach(), v[ids] @ u.T, "the scores of three words for centers 2, 0", wrong)
    model = SkipGram(400, 20)
    F.cross_entropy(model(ids), ids).backward()
    moved = any(p.grad.any() for p in model.parameters() if p.grad is not None)
    assert moved, "all gradients are 0 at the start: the center vectors must not be 0, too"
    assert not model.context.weight.any(), "the context vectors start at 0: then the loss is log V"
    spread = float(model.center.weight.detach().std())
    expect(spread, 0.01, "the standard deviation of the center vectors at the start", atol=5e-4)


def noise(running_sums, draw_noise):
    """Four words, 4,000 draws, and true words that must not be drawn."""
    counts, right = np.array([81, 16, 1, 1]), torch.tensor([27.0, 35, 36, 37])
    wrong = {
        "take the counts to the power of 0.75": torch.tensor([81.0, 97, 98, 99]),
        "return running sums": torch.tensor([27.0, 8, 1, 1]),
        "first the power, then the sums": torch.tensor(np.cumsum(counts) ** 0.75),
    }
    expect(torch.tensor(running_sums(counts)), right, "counts 81, 16, 1, 1", wrong)
    with _world(draw_noise, vocab=range(4), cumulative=[27, 35, 36, 37]):
        drawn = draw_noise([], 4000)
        part = torch.tensor([drawn.count(word) / len(drawn) for word in range(4)])
        wrong = {
            "draw with cum_weights=cumulative, not with equal probabilities": torch.ones(4) / 4,
            "the sums are given as cum_weights, not as weights": right / right.sum(),
        }
        right = torch.tensor([27.0, 8, 1, 1]) / 37
        expect(part, right, "fractions of 4,000 noise words", wrong, atol=0.03)
        expect(
            len(drawn),
            4000,
            "how many noise words for n = 4,000",
            {"return only the first n": 8000},
        )
        few = draw_noise([1, 3], 400)
        assert not {1, 3} & {*few}, "words of the window are no noise: drop those in true_words"
        assert len(few) == 400, f"draw 2 * n words, then drop, then take n: got {len(few)} of 400"


def pad(pad):
    """Rows of three lengths, one with too little noise, and a true word with the id 0."""
    rows, asked = [(7, [3, 5]), (8, [0]), (4, [1])], []

    def draw_noise(true_words, n):
        asked.append(([*true_words], n))
        return [[9, 2, 6, 9], [6, 2], []][(len(asked) - 1) % 3][:n]

    with _world(pad, draw_noise=draw_noise):
        centers, candidates, labels, mask = pad(rows, 2)
    assert rows[0] == (7, [3, 5]), "the rows that were given are changed: make new lists"
    wrong = {"draw noise_words for each context word": [([3, 5], 2), ([0], 2), ([1], 2)]}
    expect(asked, [([3, 5], 4), ([0], 2), ([1], 2)], "calls of draw_noise(near, n)", wrong)
    expect(centers, torch.tensor([7, 8, 4]), "the centers")
    words = [[3, 5, 9, 2, 6, 9], [0, 6, 2, 0, 0, 0], [1, 0, 0, 0, 0, 0]]
    expect(candidates, torch.tensor(words), "the candidates, noise_words=2")
    true, real = (torch.tensor([[float(i < n) for i in range(6)] for n in ns])
                  for ns in ((2, 1, 1), (6, 3, 1)))  # fmt: skip
    assert labels.is_floating_point(), "labels are numbers with a point, 0.0 and 1.0: use float()"
    wrong = {
        "the label of a noise word is 0": real,
        "the label of a true word is 1": 1 - true,
    }
    expect(labels, true, "the labels", wrong)
    wrong = {
        "the word with the id 0 is real: make the mask from the lengths": (
            candidates != 0
        ).double(),
        "noise words are real, their mask is 1": true,
        "the mask is 0 at padding": torch.ones(3, 6),
        "the mask is 1 at real words and 0 at padding": 1 - real,
    }
    expect(mask, real, "the mask", wrong)


def negative_sampling(NegativeSkipGram):
    """The loss at the start, padding, weights set by hand, and scores of 1000."""
    v, u = torch.tensor([[1.0, -2], [2, 1], [0.5, 3], [1, 1], [0, -1], [2, 2]]), torch.ones(6, 2)
    u = u * torch.tensor([[1.0], [-2], [0.5], [2], [3], [-1]]) + torch.tensor([0.0, 1.0])
    model = NegativeSkipGram(6, 2)
    model.center.weight.data, model.context.weight.data = v.clone(), u.clone()
    centers, candidates = torch.tensor([1, 3]), torch.tensor([[0, 2, 4, 5], [3, 1, 0, 0]])
    labels, mask = torch.tensor([[[1.0, 1, 0, 0], [1, 0, 0, 0]], [[1, 1, 1, 1], [1, 1, 0, 0]]])
    right = torch.einsum("bd,bld->bl", v[centers], u[candidates])
    wrong = {
        "score the candidates alone, not the whole table": v[centers] @ u.T,
        "candidates are looked up in self.context": (v[centers][:, None] * v[candidates]).sum(2),
        "centers are looked up in self.center": (u[centers][:, None] * u[candidates]).sum(2),
    }
    got = model(centers, candidates).detach()
    expect(got, right, "scores of four candidates for each of two centers", wrong)
    each = F.softplus(right) - labels * right
    flipped = F.softplus(right) - (1 - labels) * right
    wrong = {
        "multiply by the mask: padding has no loss": each.sum() / 3,
        "divide by the number of true pairs, not of real entries": (each * mask).sum() / 6,
        "divide by the number of true pairs, not by that of centers": (each * mask).sum() / 2,
        "divide the sum by the number of true pairs": (each * mask).sum(),
        "noise words count, too: the mask, not the labels": (each * labels).sum() / 3,
        "the label 1 belongs to log σ(s), 0 to log(1 - σ(s))": (flipped * mask).sum() / 3,
    }  # fmt: skip
    got = model.loss(centers, candidates, labels, mask).detach()
    expect(got, (each * mask).sum() / 3, "the loss of three true pairs, three noise words", wrong)
    new = NegativeSkipGram(6, 2)
    one, six = torch.tensor([1.0, 0, 0, 0, 0, 0]), torch.arange(6)[None]
    start = new.loss(torch.tensor([1]), six, one[None], torch.ones(1, 6)).item()
    wrong = {"divide by the number of true pairs, not of all entries": log(2)}
    expect(start, 6 * log(2), "the loss of a new model, a true word and five noise words", wrong)
    model.center.weight.data *= 1000
    got = model.loss(centers, candidates, labels, mask)
    assert torch.isfinite(got), (
        "nan or inf for scores of 1000: use logsigmoid or binary_cross_entropy_with_logits"
    )


def analogy(analogy):
    """Seven words on a plane, vectors of different lengths."""
    words = dict(
        a=(1, 0), b=(0, 2), c=(3, 0), right=(1, 4), long=(9, 9), turned=(2, -1), less=(-1, 1)
    )
    table = torch.tensor([*words.values()]) * 1.0
    with _world(analogy, vocab=Vocab(words)):
        got = analogy(table, "a", "b", "c")
    wrong = {
        "a word of the question is no answer": "b",
        "scale all vectors to length 1": "long",
        "from a to b is b minus a": "turned",
        "add c": "less",
    }
    expect(got, "right", f"a : b = c : ?, with {words}", wrong)
