"""The lab on GloVe."""

import torch
from torch import nn

from support.labs import expect


def count(count):
    """A window of two, a longer sentence, a word twice in a window, and two sentences."""
    right = {"ab": 3.0, "ba": 3.0, "aa": 1.0, "bb": 1.0}
    wrong = {
        "count each pair in both directions": {"ab": 2.0, "ba": 1.0, "aa": 0.5, "bb": 0.5},
        "a pair at distance d counts 1/d, not 1": right | {"aa": 2.0, "bb": 2.0},
        "the window reaches words at distance window, too": {"ab": 3.0, "ba": 3.0},
        "add up the counts of all occurrences": {"ab": 1.0, "ba": 1.0, "aa": 0.5, "bb": 0.5},
    }
    got = {a + b: n for (a, b), n in count([["a", "b", "a", "b"], ["b"]], 2).items()}
    expect(got, right, "[a b a b], [b], window 2", wrong)


def ratio(probability_ratio):
    """Two words of different frequency."""
    x = {("ice", "solid"): 2.0, ("ice", "gas"): 0.5, ("steam", "solid"): 1.0, ("steam", "gas"): 7.0}
    x |= {(b, a): n for (a, b), n in x.items()}
    wrong = {"divide by the sum of its word's counts": 2.0, "k counts in the sum": 28.0}
    got = float(probability_ratio(x, "solid", "ice", "steam"))
    expect(got, 6.4, "solid with ice (2 of 2.5) and with steam (1 of 8)", wrong)


def weights(f, weighted_loss):
    """Counts below, at and above x_max, and four pairs."""
    x = torch.tensor([2.0, 1 / 3, 7 / 6, 3])
    weight = (x / 2).clamp(max=1) ** 0.75
    wrong = {"at most 1": (x / 2) ** 0.75, "first divide by x_max": (x**0.75 / 2).clamp(max=1)}
    expect(f(x, 2), weight, "f of 2, 1/3, 7/6, 3 with x_max = 2", wrong)
    predicted = torch.tensor([0.0, 1, -2, 0.5])
    each = weight * (predicted - x.log()) ** 2
    wrong = {"predict log x": (weight * (predicted - x) ** 2).mean(), "take the mean": each.sum()}
    expect(weighted_loss(predicted, x, weight), each.mean(), "the loss of four pairs", wrong)


def model(GloVe):
    """Random weights, pairs in which a word is center and context, and the start."""
    model, (i, j) = GloVe(3, 2), torch.tensor([[0, 2, 1, 1], [1, 0, 1, 2]])
    (v, u), (b, c) = torch.randn(2, 3, 2), torch.randn(2, 3)
    model.center.weight.data, model.context.weight.data = v, u
    model.center_bias.data, model.context_bias.data = b, c
    wrong = {
        "add both biases": (v[i] * u[j]).sum(1) + b[i],
        "one prediction for each pair, not for all combinations": v[i] @ u[j].T + b[i] + c[j],
        "context words have vectors of their own": (v[i] * v[j]).sum(1) + b[i] + c[j],
    }
    expect(model(i, j).detach(), (v[i] * u[j]).sum(1) + b[i] + c[j], "four pairs", wrong)
    new = GloVe(400, 20)
    assert not new.center_bias.any() and not new.context_bias.any(), "the biases start at 0"
    for name in ("center", "context"):
        spread = getattr(new, name).weight.std().item()
        expect(spread, 0.01, f"initialize {name}, too: standard deviation", atol=5e-4)


def chance(GloVeFromChance):
    """Three words whose row sums are 2, 8 and 30."""
    sums = torch.tensor([2.0, 8, 30])
    model, log_n = GloVeFromChance(sums, 2), sums.sum().log()
    wrong = {"halve log n": sums.log() - log_n, "initialize both biases": torch.zeros(3)}
    for bias in (model.center_bias, model.context_bias):
        expect(bias.detach(), sums.log() - log_n / 2, "a bias for the row sums 2, 8, 30", wrong)


def gradients(f, gradients):
    """A matrix that is not symmetric, with empty cells."""
    x = torch.tensor([[0.0, 3, 0.5], [1, 0, 2], [0.2, 0, 4]])
    (v, u), (b, c) = torch.randn(2, 3, 2), torch.randn(2, 3)
    error = v @ u.T + b[:, None] + c - x.clamp(min=0.1).log()
    slope = 2 * (x / 2).clamp(max=1) ** 0.75 * error
    right = [slope @ u, slope.T @ v, slope.sum(1), slope.sum(0)]
    wrong = {
        "transpose for u: the sum is over the centers i": [slope @ u, slope @ v, *right[2:]],
        "the derivative of a square has the factor 2": [g / 2 for g in right],
        "b belongs to the rows: sum over the columns": [*right[:2], right[3], right[2]],
    }
    got = gradients(v, u, b, c, x, 2)
    assert all(g.isfinite().all() for g in got), "log 0 is -inf: put another number there"
    for i, name in enumerate("vubc"):
        expect(got[i], right[i], f"the gradient of {name}", {w: wrong[w][i] for w in wrong})


def train(train):
    """Six pairs: two epochs in one batch, and one in batches of four."""
    i, x, weight = torch.arange(6), torch.arange(2.0, 8), torch.rand(6)
    asked, after, pairs = [], [], (i, i, x, weight)

    class Numbers(nn.Embedding):
        def forward(self, i, j):
            asked.extend(i.tolist())
            return super().forward(i)[:, 0]

    model = Numbers(6, 1, _weight=torch.zeros(6, 1))
    losses = train(model, pairs, 0.1, 2, 6, after.append)
    wrong = {"multiply by the weights": (x.log() ** 2).mean().item()}
    expect(losses[0], (weight * x.log() ** 2).mean().item(), "the first loss", wrong)
    second = 1 - 0.1 / x.log()  # the second gradient, where the first is 1
    right, stale = (0.1 + 0.1 * g / (1 + g**2).sqrt() for g in (second, 1 + second))
    wrong = {"set the gradients to zero before each backward": stale}
    expect(model.weight[:, 0].detach(), right, "numbers after two steps of AdaGrad", wrong)
    assert after == [model] * 2, "call after_epoch(model) once in each epoch"
    assert sorted(asked[:6]) == sorted(asked[6:]) == [*range(6)], "visit all pairs in each epoch"
    assert asked[:6] != asked[6:], "visit the pairs in a new random order in each epoch"
    expect(len(train(model, pairs, 0.1, 1, 4)), 2, "how many losses for batches of 4 and 2 pairs")
