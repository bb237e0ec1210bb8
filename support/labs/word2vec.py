"""The lab on word2vec."""

from itertools import cycle
from random import Random
from unittest.mock import Mock, patch

import numpy as np
import torch
from torch.nn import functional as F

from support.labs import expect
from support.text.vocab import Vocab


def windows(windows):
    """Both ends of a sentence, windows longer than it, words that occur twice.

    one (center, new list) for each position i: slices of `size` words before and as many after it,
    in order; remove() and index() take the first equal word, pop(size) a wrong one near the start
    """
    wrong = {
        "begin at max(0, i - size): -1 is the last word": "a:bca b:cab c:ab a:abcb b:bca",
        "the window reaches up to i + 1 + size": "a:bc b:aca c:abab a:abcb b:bca",
        "leave out the center's position, not all words like it": "a:bc b:aca c:abab a:bcb b:ca",
    }
    got = " ".join(f"{center}:{''.join(context)}" for center, context in [*windows([*"abcab"], 3)])
    expect(got, "a:bca b:acab c:abab a:abcb b:bca", "a b c a b, size=3", wrong)


def subsampling(keep_probabilities, subsampled_rows):
    """Words that are kept, dropped, and sometimes kept; a reach of 1 and of 5, in turn.

    f is counts / counts.sum(); np.minimum(1, root of t / f), the probability to keep, not to drop;
    first random.random() < keep[word] for each occurrence, in a new list; then windows; each center
    draws one reach for both sides by random.randint(1, size); a list of (center, list of words)
    """
    ratio = 0.01 / torch.tensor([0.9, 0.05, 0.045, 0.005])
    wrong = {"a probability is at most 1": ratio.sqrt(), "take the square root": ratio.clamp(max=1)}
    got = keep_probabilities(np.array([900, 50, 45, 5]), 0.01)
    expect(got, ratio.sqrt().clamp(max=1), "counts 900, 50, 45, 5, t = 0.01", wrong)
    reaches, keep = cycle([min, max]), np.array([0.6, 0.45, 0.45, 0.6, 0.6])
    draws = {"random": cycle([0.4, 0.5]).__next__, "randint": lambda *ends: next(reaches)(ends)}
    world = {"sentences": [[0, 1, 2, 3, 4], [2, 3, 0], [1]], "random": Mock(spec=[*draws], **draws)}
    with patch.dict(subsampled_rows.__globals__, world):
        got = subsampled_rows(keep, 5)
    assert world["sentences"] == [[0, 1, 2, 3, 4], [2, 3, 0], [1]], "sentences must stay as it is"
    right = [(0, [2]), (2, [0, 3, 4]), (3, [2, 4]), (4, [0, 2, 3]), (3, [0]), (0, [3])]
    wrong = {"remove words before the windows are formed": right[1:], "keep short rows": right[1:4]}
    wrong["draw the reach of each window"] = [(0, [2, 3, 4]), right[1], (3, [0, 2, 4]), *right[3:]]
    wrong["leave out centers that have no context word"] = [*right, (1, [])]
    expect(got, right, f"{world['sentences']}, keep = {keep}, draws 0.4, 0.5, … and 1, 5, …", wrong)


def skip_gram(SkipGram):
    """The scores with weights set by hand, and the start.

    the rows of self.center by the transposed weight of self.context, all words; no softmax; nn.init
    for both weights: center with std=0.01, context with zeros; from_pretrained(…, freeze=False)
    """
    model, ids = SkipGram(3, 2), torch.tensor([2, 0])
    v, u = torch.tensor([[[1.0, 2], [3, -1], [0, 2]], [[2.0, 1], [1, 1], [-1, 0]]])
    model.center.weight.data, model.context.weight.data = v, u
    wrong = {"multiply by the context vectors": v[ids] @ v.T, "make two nn.Embedding": u[ids] @ u.T}
    expect(model(ids).detach(), v[ids] @ u.T, "the scores of three words for centers 2, 0", wrong)
    model(ids).sum().backward()
    assert all(p.grad is not None for p in model.parameters()), "no .data or detach() in forward"
    start = SkipGram(400, 20)
    assert not start.context.weight.any(), "the context vectors start at 0: then the loss is log V"
    wrong = {"all gradients are 0 at the start: the center vectors must not be 0, too": 0.0}
    expect(start.center.weight.std().item(), 0.01, "the center vectors' deviation", wrong, 5e-4)


def noise(running_sums, draw_noise):
    """Four words, 4,000 draws, and true words that must not be drawn.

    first the power, then the sums, not divided; random.choices over all of range(len(vocab)),
    with cum_weights=cumulative, k=2 * n, whatever true_words holds; a list, no set: its first n
    """
    sums, wrong = [27.0, 35.0, 36.0, 37.0], {"take the power of 0.75": [81, 97, 98, 99]}
    expect([*running_sums(np.array([81, 16, 1, 1]))], sums, "counts 81, 16, 1, 1", wrong)
    with patch.dict(draw_noise.__globals__, vocab=range(4), cumulative=sums, random=Random(0)):
        drawn, few = draw_noise([], 4000), draw_noise([0, 3], 4000)
    part, right = torch.tensor(drawn).long().bincount() / 4000, torch.tensor([27.0, 8, 1, 1]) / 37
    wrong = {"the sums are cum_weights, not weights": torch.tensor(sums) / sum(sums)}
    expect(part, right, "fractions of 4,000 noise words", wrong, atol=0.03)
    assert not {0, 3} & {*few}, "drop all words in true_words: they are no noise; make a new list"
    assert len(few) > 1700, f"draw 2 * n words, then drop, then take n: got {len(few)}, not 1900"
    part, where = torch.tensor(few).bincount() / len(few), "fractions of what is left without 0, 3"
    expect(part, torch.tensor([0.0, 8, 1]) / 9, where, atol=0.03)


def pad(pad):
    """Rows of three lengths, two with too little noise, and a true word with the id 0.

    just one call a row, draw_noise(context, noise_words * len(context)), of context words, without
    the center; it may return fewer; mask: 1 for all that came; labels by position, not by what is
    in context; a row is a new list: context, noise, then zeros up to the longest row of this batch
    """
    rows, noise = [(7, [3, 5]), (8, [0]), (4, [1])], {(3, 5): [9, 2, 6], (0,): [6, 2], (1,): []}
    with patch.dict(pad.__globals__, draw_noise=lambda near, n: noise.pop(tuple(near))[:n]):
        centers, candidates, labels, mask = pad(rows, 2)
    expect(centers, torch.tensor([7, 8, 4]), "the centers")
    words = torch.tensor([[3, 5, 9, 2, 6], [0, 6, 2, 0, 0], [1, 0, 0, 0, 0]])
    expect(candidates, words, "candidates", {"noise_words for each context word": words[:, :4]})
    true, real = (torch.arange(5) < torch.tensor(n)[:, None] for n in ((2, 1, 1), (5, 3, 1)))
    assert candidates.dtype == torch.int64, "candidates are ids: a tensor of integers"
    assert labels.is_floating_point(), "labels are numbers with a point, 0.0 and 1.0: use float()"
    expect(labels, true, "the labels", {"the label of noise is 0; labels come before mask": real})
    wrong = {"make the mask from the lengths": words != 0, "noise words are real": true}
    expect(mask, real, "the mask", wrong)
    assert rows[0][1] == [3, 5], "rows must stay as they are: make new lists, without += or extend"


def negative_sampling(NegativeSkipGram):
    """Padding, random weights, and scores of 1000.

    self.center(centers), self.context(candidates), a dot product with its own center, over the last
    dimension: (B, L), also for B = 1; no sigmoid; -logsigmoid(s), for noise of -s; the mask times
    the losses, not the scores; a sum over true words and noise, divided once by labels.sum()
    """
    model, (v, u) = NegativeSkipGram(6, 2), torch.randn(2, 6, 2)
    centers, candidates = torch.tensor([1, 3]), torch.tensor([[0, 2, 4, 5], [3, 1, 2, 0]])
    labels, mask = torch.tensor([[[1.0, 1, 0, 0], [1, 0, 0, 0]], [[1, 1, 1, 1], [1, 1, 1, 0]]])
    model.context.weight.data, center = u, v[centers][:, None]
    for scale, where in (1, "three true pairs, four noise words"), (1000, "scores times 1000"):
        model.center.weight.data = scale * v
        right = scale * (center * u[candidates]).sum(2)
        wrong = {"candidates are in self.context": scale * (center * v[candidates]).sum(2)}
        expect(model(centers, candidates).detach(), right, "scores of four candidates", wrong)
        expect(model(centers[:1], candidates[:1]), right[:1], "scores of one center")
        each = F.binary_cross_entropy_with_logits(right, labels, reduction="none")
        right, got = (each * mask).sum() / 3, model.loss(centers, candidates, labels, mask)
        assert getattr(got, "requires_grad", 0), "the loss has no gradient: no item() or detach()"
        wrong = {"padding has no loss": each.sum() / 3, "divide by the true pairs": right * 3 / 7}
        wrong["large scores: use logsigmoid"] = got if scale > 1 else None
        expect(got, right, f"the loss of {where}", wrong)
    got.backward()
    assert all(p.grad is not None for p in model.parameters()), "no .data, no detach() in forward"


def analogy(analogy):
    """Ten words on a plane, vectors of different lengths.

    scale the rows of table, dim=1, into a new tensor first; b - a + c; the largest cosine, not the
    smallest; the words of the question get -inf, not 0; return a word: vocab.lookup_token(int(…))
    """
    words = dict(a=(1, 0), b=(0, 2), c=(2, 3), right=(-3, 5), far=(10, 12), back=(3, -1))
    words |= dict(no_c=(-6, 5), swapped=(7, 3), sum=(1.1, 1.3), low=(1, -4))
    wrong = {"b is no answer": "b", "scale each row to length 1": "far", "take b minus a": "back"}
    wrong |= {"take a away, add c": "swapped", "add c": "no_c", "take a away": "sum"}
    for asked, right in (words, "right"), ({k: words[k] for k in ("a", "b", "c", "low")}, "low"):
        table = torch.tensor([*asked.values()]).double().requires_grad_()
        with patch.dict(analogy.__globals__, vocab=Vocab(asked)):
            got = analogy(table, *"abc")
        expect(got, right, f"a : b = c : ?, with {asked}", wrong)
        assert table[2, 1] == 3, "table must stay as it is: scale into a new tensor"
