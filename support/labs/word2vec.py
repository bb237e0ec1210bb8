"""The lab on word2vec."""

from random import Random
from unittest.mock import Mock, patch

import numpy as np
import torch
from torch.nn import functional as F

from support.labs import expect
from support.text.vocab import Vocab


def windows(windows):
    """Both ends of a sentence, windows longer than it, words that occur twice."""
    wrong = {
        "begin at max(0, i - size): -1 is the last word": "a:bca b:cab c:ab a:abcb b:bca",
        "the window reaches up to i + 1 + size": "a:bc b:aca c:abab a:abcb b:bca",
        "leave out the center's position, not all words like it": "a:bc b:aca c:abab a:bcb b:ca",
    }
    got = " ".join(f"{center}:{''.join(context)}" for center, context in windows([*"abcab"], 3))
    expect(got, "a:bca b:acab c:abab a:abcb b:bca", "a b c a b, size=3", wrong)


def subsampling(keep_probabilities, subsampled_rows):
    """Words that are always kept, never, and sometimes; a reach of 1, drawn from 1 to 5."""
    ratio = 0.01 / torch.tensor([0.9, 0.05, 0.045, 0.005])
    wrong = {"a probability is at most 1": ratio.sqrt(), "take the square root": ratio.clamp(max=1)}
    got = keep_probabilities(np.array([900, 50, 45, 5]), 0.01)
    expect(got, ratio.sqrt().clamp(max=1), "counts 900, 50, 45, 5, t = 0.01", wrong)
    world = {"sentences": [[0, 1, 2, 3], [2]], "random": Mock(random=lambda: 0.5, randint=min)}
    with patch.dict(subsampled_rows.__globals__, world):
        got = [(center, [*near]) for center, near in subsampled_rows(np.array([1, 0, 1, 0.6]), 5)]
    right = [(0, [2]), (2, [0, 3]), (3, [2])]
    wrong = {
        "remove words before the windows are formed": [(2, [3]), (3, [2])],
        "draw the reach of each window": [(0, [2, 3]), (2, [0, 3]), (3, [0, 2])],
        "leave out centers that have no context word": [*right, (2, [])],
    }
    expect(got, right, "[[0, 1, 2, 3], [2]], keep = 1, 0, 1, 0.6, all draws 0.5 and 1", wrong)


def skip_gram(SkipGram):
    """The scores with weights set by hand, and the start."""
    model, ids = SkipGram(3, 2), torch.tensor([2, 0])
    v, u = torch.tensor([[[1.0, 2], [3, -1], [0, 2]], [[2.0, 1], [1, 1], [-1, 0]]])
    model.center.weight.data, model.context.weight.data = v, u
    wrong = {"multiply by the context vectors, not by the center vectors": v[ids] @ v.T}
    expect(model(ids).detach(), v[ids] @ u.T, "the scores of three words for centers 2, 0", wrong)
    start = SkipGram(400, 20)
    assert not start.context.weight.any(), "the context vectors start at 0: then the loss is log V"
    wrong = {"all gradients are 0 at the start: the center vectors must not be 0, too": 0.0}
    expect(start.center.weight.std().item(), 0.01, "the center vectors' deviation", wrong, 5e-4)


def noise(running_sums, draw_noise):
    """Four words, 4,000 draws, and true words that must not be drawn."""
    sums, wrong = [27.0, 35.0, 36.0, 37.0], {"take the power of 0.75": [81, 97, 98, 99]}
    expect([*running_sums(np.array([81, 16, 1, 1]))], sums, "counts 81, 16, 1, 1", wrong)
    world = {"vocab": range(4), "cumulative": sums, "random": Random(0)}
    with patch.dict(draw_noise.__globals__, world):
        drawn, few = draw_noise([], 4000), draw_noise([1, 3], 400)
    part, right = torch.tensor(drawn).bincount() / 4000, torch.tensor([27.0, 8, 1, 1]) / 37
    wrong = {"the sums are cum_weights, not weights": torch.tensor(sums) / sum(sums)}
    expect(part, right, "fractions of 4,000 noise words", wrong, atol=0.03)
    assert not {1, 3} & {*few}, "words of the window are no noise: drop those in true_words"
    assert len(few) == 400, f"draw 2 * n words, then drop, then take n: got {len(few)} of 400"


def pad(pad):
    """Rows of three lengths, one with too little noise, and a true word with the id 0."""
    rows, noise = [(7, [3, 5]), (8, [0]), (4, [1])], {3: [9, 2, 6, 9], 0: [6, 2], 1: []}
    with patch.dict(pad.__globals__, draw_noise=lambda near, n: noise[near[0]][:n]):
        centers, candidates, labels, mask = pad(rows, 2)
    expect(centers, torch.tensor([7, 8, 4]), "the centers")
    words = torch.tensor([[3, 5, 9, 2, 6, 9], [0, 6, 2, 0, 0, 0], [1, 0, 0, 0, 0, 0]])
    wrong = {"draw noise_words for each context word": words[:, :4]}
    expect(candidates, words, "the candidates, noise_words=2", wrong)
    true, real = (torch.arange(6) < torch.tensor(n)[:, None] for n in ((2, 1, 1), (6, 3, 1)))
    assert labels.is_floating_point(), "labels are numbers with a point, 0.0 and 1.0: use float()"
    expect(labels, true, "the labels", {"the label of a noise word is 0": real})
    wrong = {"make the mask from the lengths": words != 0, "noise words are real": true}
    expect(mask, real, "the mask", wrong)


def negative_sampling(NegativeSkipGram):
    """Padding, random weights, and scores of 1000."""
    model, (v, u) = NegativeSkipGram(6, 2), torch.randn(2, 6, 2)
    model.center.weight.data, model.context.weight.data = v, u
    centers, candidates = torch.tensor([1, 3]), torch.tensor([[0, 2, 4, 5], [3, 1, 0, 0]])
    labels, mask = torch.tensor([[[1.0, 1, 0, 0], [1, 0, 0, 0]], [[1, 1, 1, 1], [1, 1, 0, 0]]])
    right = (v[centers][:, None] * u[candidates]).sum(2)
    wrong = {"candidates are in self.context": (v[centers][:, None] * v[candidates]).sum(2)}
    expect(model(centers, candidates).detach(), right, "scores of four candidates", wrong)
    each = F.binary_cross_entropy_with_logits(right, labels, reduction="none")
    right = (each * mask).sum() / 3
    wrong = {"padding has no loss": each.sum() / 3, "divide by the true pairs": right / 2}
    got = model.loss(centers, candidates, labels, mask).detach()
    expect(got, right, "the loss of three true pairs, three noise words", wrong)
    model.center.weight.data *= 1000
    assert model.loss(centers, candidates, labels, mask).isfinite(), "large scores: use logsigmoid"


def analogy(analogy):
    """Seven words on a plane, vectors of different lengths."""
    words = dict(a=(1, 0), b=(0, 2), c=(3, 0), right=(1, 4), far=(9, 9), back=(2, -1), no_c=(-1, 1))
    wrong = {"b is no answer": "b", "scale to length 1": "far", "take b minus a": "back"}
    with patch.dict(analogy.__globals__, vocab=Vocab(words)):
        got = analogy(torch.tensor([*words.values()]) * 1.0, "a", "b", "c")
    expect(got, "right", f"a : b = c : ?, with {words}", wrong)
