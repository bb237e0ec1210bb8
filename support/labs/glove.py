"""The lab on GloVe."""

import torch
from torch import nn

from support.labs import expect


def count(count):
    """A window of three, a longer sentence, a word twice in a window, and two sentences.

    1/distance once to (word, other) and once to (other, word), also where both are one word; the
    nearest has distance 1, also on the left; up to window, none farther; positions from enumerate,
    not from index(); one dictionary with pairs as keys, no entries of 0, no pairs across sentences
    """
    right = dict(ab=4.0, ba=4.0, bb=11 / 3, aa=2 / 3)
    wrong = {
        "count each pair in both directions": dict(ab=2.5, ba=1.5, bb=11 / 6, aa=1 / 3),
        "a pair at distance d counts 1/d, not 1": dict(ab=5.0, ba=5.0, bb=6.0, aa=2.0),
        "the window reaches words at distance window, too": dict(ab=4.0, ba=4.0, bb=3.0),
        "add up the counts of all occurrences": dict(ab=1.0, ba=1.0, bb=0.5, aa=1 / 3),
        "a word that meets itself counts in both directions": right | dict(bb=11 / 6, aa=1 / 3),
    }
    got = {a + b: n for (a, b), n in count([[*"abbab"], ["c"]], 3).items()}
    expect(got, right, "[a b b a b], [c], window 3", wrong)


def ratio(probability_ratio):
    """Two words of different frequency, one of which meets itself.

    P(k | a) is x[a, k] by the sum of x[a, …] over all words, k and a too, each once; P(k | b) is
    x[b, k] by the sum of x[b, …]; P(k | a) is divided by P(k | b)
    """
    x = {("ice", "solid"): 2.0, ("ice", "gas"): 1.0, ("steam", "solid"): 1.0, ("steam", "gas"): 7.0}
    x |= {(b, a): n for (a, b), n in x.items()} | {("ice", "ice"): 1.0}
    wrong = {"divide x[a, k] by the sum of all x[a, …], also b": 2.0, "k counts in the sum": 7.0}
    wrong["x[a, a] counts in the sum"] = 16 / 3
    got = float(probability_ratio(x, "solid", "ice", "steam"))
    expect(got, 4.0, "solid with ice (2 of 4) and with steam (1 of 8)", wrong)


def weights(f, weighted_loss):
    """Counts below, at and above x_max, and four pairs.

    f: x by x_max, clamp(max=1), to the power of 0.75, in new tensors; weighted_loss: predicted is a
    logarithm already, x is not: its natural log(); the argument weight, as it is, times the squared
    error, pair by pair, not halved; then the mean over the number of pairs, a tensor, no item()
    """
    x = torch.tensor([2.0, 1 / 3, 7 / 6, 3])
    weight = (x / 2).clamp(max=1) ** 0.75
    wrong = {"at most 1": (x / 2) ** 0.75, "first divide by x_max": (x**0.75 / 2).clamp(max=1)}
    expect(f(x, 2), weight, "f of 2, 1/3, 7/6, 3 with x_max = 2", wrong)
    assert x[3] == 3, "f leaves x unchanged: no clamp_, div_ or /="
    predicted = torch.tensor([0.0, 1, -2, 0.5])
    each = weight * (predicted - x.log()) ** 2
    wrong = {"predict log x": (weight * (predicted - x) ** 2).mean(), "take the mean": each.sum()}
    expect(weighted_loss(predicted, x, weight).detach(), each.mean(), "the loss of 4 pairs", wrong)


def model(GloVe):
    """Random weights, pairs in which a word is center and context, and the start.

    v_i times u_j, summed over dim=-1, plus center_bias[i] and context_bias[j]; no exp: it predicts
    the logarithm; two nn.Embedding; two biases, each an nn.Parameter, shape (vocab_size,), no .data
    """
    new, model, (i, j) = GloVe(400, 20), GloVe(3, 2), torch.tensor([[0, 2, 1, 1], [1, 0, 1, 2]])
    assert not new.center.weight.equal(new.context.weight), "two nn.Embedding: context is no copy"
    (v, u), (b, c) = torch.randn(2, 3, 2), torch.randn(2, 3)
    model.center.weight.data, model.context.weight.data = v, u
    for name, value in ("center_bias", b), ("context_bias", c):
        model.get_parameter(name).data.copy_(value)
    wrong = {
        "add both biases": (v[i] * u[j]).sum(1) + b[i],
        "one prediction for each pair, not for all combinations": v[i] @ u[j].T + b[i] + c[j],
        "context words have vectors of their own": (v[i] * v[j]).sum(1) + b[i] + c[j],
        "each bias has memory of its own: use two tensors": (v[i] * u[j]).sum(1) + c[i] + c[j],
    }
    expect(model(i, j).detach(), (v[i] * u[j]).sum(1) + b[i] + c[j], "four pairs", wrong)
    used = torch.autograd.grad(model(i, j).sum(), [*model.parameters()], allow_unused=True)
    assert all(g is not None for g in used), "a parameter gets no gradient: use it without .data"
    assert not new.center_bias.any() and not new.context_bias.any(), "the biases start at 0"
    for name in ("center", "context"):
        expect(getattr(new, name).weight.std(), 0.01, f"initialize {name}, too: std", atol=5e-4)


def chance(GloVeFromChance):
    """Three words whose row sums are 2, 8 and 30.

    row_sums.log(), minus half of log n; n is the sum of row_sums; .data.copy_ into both biases
    """
    sums, log_n = torch.tensor([2.0, 8, 30]), torch.tensor(40.0).log()
    right, model = sums.log() - log_n / 2, GloVeFromChance(sums, 2)
    wrong = {"halve log n": right - log_n / 2, "initialize both biases": torch.zeros(3)}
    for bias in (model.center_bias, model.context_bias):
        expect(bias.detach(), right, "a bias for the row sums 2, 8, 30", wrong)
    assert sums[0] == 2, "row_sums must stay as it is: log(), not log_()"
    assert all(p.any() and p.requires_grad for p in model.parameters()), "set .data of biases alone"
    assert len({p.data_ptr() for p in model.parameters()}) == 4, "biases share memory: use clone()"


def gradients(f, gradients):
    """A matrix that is not symmetric, with empty cells.

    for v a product of the slopes with u, for u one with v, transposed slopes; sums for b and c are
    (V,), no keepdim; the order v, u, b, c; slopes: 2 * f(x, x_max) * error, of x as given, no mean;
    error: v @ u.T, rows are centers, b[i] + c[j], b[:, None] + c, minus log x; 0 only where x is 0
    """
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
    assert (x == 0).sum() == 3, "x must stay as it is: clone() it"
    assert all(g.isfinite().all() for g in got), "log 0 is -inf: put another number there"
    for i, name in enumerate("vubc"):
        expect(got[i], right[i], f"the gradient of {name}", {w: wrong[w][i] for w in wrong})


def train(train):
    """Six pairs: two epochs in one batch, and one in batches of four.

    pairs has counts, of which weighted_loss takes the logarithms, and finished weights; its mean
    is the loss, not times the batch's size; in each epoch one randperm, which orders all four
    tensors alike; one Adagrad with lr, made before the epochs; loss.item() for each batch
    """
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
    wrong = {"set the gradients to zero before backward": stale, "backward, then step": 0 * stale}
    expect(model.weight[:, 0].detach(), right, "numbers after two steps of AdaGrad", wrong)
    assert sorted(asked[:6]) == sorted(asked[6:]) == [*range(6)], "visit all pairs in each epoch"
    assert asked[:6] != asked[6:], "visit the pairs in a new random order in each epoch"
    got = [type(x) for x in train(model, pairs, 0.1, 1, 4, after.append)]
    expect(got, [float, float], "types of the losses, one for each batch, of 4 and 2 pairs")
    assert after == [model] * 3, "call after_epoch(model) once in each epoch, after all batches"
