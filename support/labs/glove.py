"""The lab on GloVe."""

import torch
from torch import nn

from support.labs import expect


def count(count):
    """A window of two, a longer sentence, a word next to itself, and two sentences."""
    got = dict(count([["ice", "is", "solid", "water"]], 2))
    half, whole = {("ice", "solid"): 0.5, ("is", "water"): 0.5}, {}
    whole = {pair: 1.0 for pair in (("ice", "is"), ("is", "solid"), ("solid", "water"))}
    right = half | whole

    def both(pairs):
        return pairs | {(b, a): n for (a, b), n in pairs.items()}

    wrong = {
        "count each pair in both directions": right,
        "a pair at distance d counts 1/d, not 1": both(dict.fromkeys(right, 1.0)),
        "neighbors are at distance 1: start counting there": both(
            dict.fromkeys(half, 1 / 3) | dict.fromkeys(whole, 0.5)
        ),
        "the window reaches words at distance window, too": both(whole),
        "the window ends at distance window": both(right | {("ice", "water"): 1 / 3}),
        "each direction counts once": {pair: 2 * n for pair, n in both(right).items()},
    }
    expect(got, both(right), "ice is solid water, window 2", wrong)
    got = {pair: n for pair, n in count([["a", "b", "a"], ["b", "c"]], 5).items() if n}
    pairs = both({("a", "b"): 2.0, ("b", "c"): 1.0}) | {("a", "a"): 1.0}
    wrong = {
        "add up the counts of all occurrences": both({("a", "b"): 1.0, ("b", "c"): 1.0})
        | {("a", "a"): 0.5},
        "windows end with the sentence": dict(count([["a", "b", "a", "b", "c"]], 5)),
    }
    expect(got, pairs, "[a b a], [b c], window 5", wrong)


def ratio(probability_ratio):
    """Two words of different frequency."""
    x = {("ice", "solid"): 2.0, ("ice", "gas"): 0.5, ("steam", "solid"): 1.0, ("steam", "gas"): 7.0}
    x |= {(b, a): n for (a, b), n in x.items()}
    wrong = {
        "divide each count by the sum of its word's counts": 2.0,
        "P(k | a) is above, P(k | b) below": 1 / 6.4,
        "x_i is the sum of a word's counts with all words, k included": (2 / 0.5) / (1 / 7),
    }
    got = float(probability_ratio(x, "solid", "ice", "steam"))
    expect(got, 6.4, "solid with ice (2 of 2.5) and with steam (1 of 8)", wrong)


def weights(f, weighted_loss):
    """Counts below, at and above x_max, and three pairs."""
    x = torch.tensor([2.0, 1 / 3, 7 / 6, 3])
    right = (x / 2).clamp(max=1) ** 0.75
    wrong = {
        "the weight is at most 1": (x / 2) ** 0.75,
        "take x / x_max to the power of 0.75": (x / 2).clamp(max=1),
        "divide by x_max before you take the power": (x**0.75 / 2).clamp(max=1),
        "the power is 0.75": (x / 2).clamp(max=1) ** 0.5,
    }
    expect(f(x, 2), right, "f of 2, 1/3, 7/6, 3 with x_max = 2", wrong)
    predicted, weight = torch.tensor([0.0, 1, -2, 0.5]), torch.tensor([1.0, 0.3, 0.7, 0.2])
    error = predicted - x.log()
    wrong = {
        "compare with the logarithm of the count": (weight * (predicted - x) ** 2).mean(),
        "take the mean over the pairs, not the sum": (weight * error**2).sum(),
        "weigh the squared error: the weight is not squared": (weight**2 * error**2).mean(),
        "square the error": (weight * error).mean(),
        "multiply by the weights": (error**2).mean(),
        "divide by the number of pairs, not by the sum of the weights":
            (weight * error**2).sum() / weight.sum(),
    }  # fmt: skip
    got = weighted_loss(predicted, x, weight)
    expect(got, (weight * error**2).mean(), "the loss of four pairs", wrong)


def model(GloVe):
    """Weights set by hand, pairs in which a word is center and context, and the start."""
    model, (i, j) = GloVe(3, 2), torch.tensor([[0, 2, 1, 1], [1, 0, 1, 2]])
    v, u = torch.tensor([[[1.0, 2], [3, -1], [0, 2]], [[2.0, 1], [1, 1], [-1, 0]]])
    b, c = torch.tensor([[0.5, -1, 2], [10, 20, 40]])
    model.center.weight.data, model.context.weight.data = v, u
    model.center_bias.data, model.context_bias.data = b, c
    product = (v[i] * u[j]).sum(1)
    wrong = {
        "add both biases": product + b[i],
        "add the biases": product,
        "one prediction for each pair (i[n], j[n]), not for all combinations":
            v[i] @ u[j].T + b[i] + c[j],
        "context words have vectors of their own": (v[i] * v[j]).sum(1) + b[i] + c[j],
        "context words have biases of their own": product + b[i] + b[j],
        "sum the products over the dimensions of a vector": product.sum() + b[i] + c[j],
    }  # fmt: skip
    expect(model(i, j).detach(), product + b[i] + c[j], "four pairs, weights set by hand", wrong)
    new = GloVe(400, 20)
    assert not new.center_bias.any() and not new.context_bias.any(), "the biases start at 0"
    for name in ("center", "context"):
        spread = float(getattr(new, name).weight.detach().std())
        assert spread < 0.5, (
            f"initialize {name}, too: nn.Embedding's own start is a hundred times larger"
        )
        expect(spread, 0.01, f"the standard deviation of {name} at the start", atol=5e-4)


def chance(GloVeFromChance):
    """Three words whose row sums are 2, 8 and 30."""
    sums = torch.tensor([2.0, 8, 30])
    model = GloVeFromChance(sums, 2)
    log_n = sums.sum().log()
    right = sums.log() - log_n / 2
    wrong = {
        "halve log n: both biases together subtract it once": sums.log() - log_n,
        "subtract half of log n": sums.log(),
        "take logarithms": sums - sums.sum() / 2,
        "n is the sum of the matrix, and not the number of words": sums.log()
        - torch.tensor(3.0).log() / 2,
        "initialize both biases": torch.zeros(3),
    }
    for name in ("center_bias", "context_bias"):
        bias = getattr(model, name)
        assert isinstance(bias, nn.Parameter), (
            f"{name} must remain an nn.Parameter: change its data"
        )
        expect(bias.detach(), right, f"{name} for the row sums 2, 8, 30", wrong)
    model.center_bias.data += 1
    expect(model.context_bias.detach(), right, "context_bias after center_bias has changed: copy")


def gradients(f, gradients):
    """A matrix that is not symmetric, with empty cells, against autograd."""
    x = torch.tensor([[0.0, 3, 0.5], [1, 0, 2], [0.2, 0, 4]])
    leaves = [torch.randn(*shape, requires_grad=True) for shape in ((3, 2), (3, 2), (3,), (3,))]
    v, u, b, c = (t.detach() for t in leaves)
    log_x, weight = torch.where(x > 0, x, 1).log(), (x / 2).clamp(max=1) ** 0.75
    error = leaves[0] @ leaves[1].T + leaves[2][:, None] + leaves[3] - log_x
    right = torch.autograd.grad((weight * error**2).sum(), leaves)
    slope = 2 * weight * error.detach()
    plain = 2 * error.detach() * (x > 0)
    turned = 2 * weight * (v @ u.T + b + c[:, None] - log_x)
    wrong = {
        "transpose for u: the sum is over the centers i": (slope @ u, slope @ v, *right[2:]),
        "the derivative of a square has the factor 2": tuple(g / 2 for g in right),
        "v gets a sum of context vectors u, and u one of v": (slope @ v, slope.T @ u, *right[2:]),
        "b belongs to the rows: sum over the columns": (*right[:2], right[3], right[2]),
        "multiply by the weights f(x)": (plain @ u, plain.T @ v, plain.sum(1), plain.sum(0)),
        "b is added to the rows, b[:, None], and c to the columns":
            (turned @ u, turned.T @ v, turned.sum(1), turned.sum(0)),
        "it is the gradient of the sum, not of the mean": tuple(g / 9 for g in right),
    }  # fmt: skip
    got = tuple(gradients(v, u, b, c, x, 2))
    assert len(got) == 4, "return four gradients: of v, u, b and c"
    finite = all(torch.isfinite(g).all() for g in got)
    assert finite, "nan or inf: where x is 0, log x is -inf. Put another number there before log"
    expect(got, tuple(right), "the gradients of v, u, b, c with three words", wrong)


class _Numbers(nn.Module):
    """Predicts a number for each center, and records the pairs that it is asked for."""

    def __init__(self):
        super().__init__()
        self.numbers, self.asked = nn.Parameter(torch.tensor([0.0, 1, -1])), []

    def forward(self, i, j):
        self.asked += zip(i.tolist(), j.tolist(), strict=True)
        return self.numbers[i]


def _trained(make=torch.optim.Adagrad, zero=True, weigh=True, fresh=False):
    model, x, weight = _Numbers(), *_pairs()[2:]
    optimizer = make(model.parameters(), 0.1)
    for _ in range(3):
        optimizer = make(model.parameters(), 0.1) if fresh else optimizer
        error = model.numbers[_pairs()[0]] - x.log()
        if zero:
            optimizer.zero_grad()
        (weight * error**2 if weigh else error**2).mean().backward()
        optimizer.step()
    return model.numbers.detach()


def _pairs():
    x, weight = torch.tensor([[1.0, 2, 3, 4, 5, 6], [0.1, 0.9, 0.3, 0.4, 1, 0.2]])
    return torch.arange(6) // 2, torch.arange(6).flip(0), x, weight


def train(train):
    """Six pairs: three epochs in one batch, and two in batches of four."""
    model, after = _Numbers(), []
    losses = train(model, _pairs(), 0.1, 3, 6, after.append)
    wrong = {
        "set the gradients to zero before each backward": _trained(zero=False),
        "multiply by the weights": _trained(weigh=False),
        "the optimizer is Adagrad, not SGD": _trained(torch.optim.SGD),
        "the optimizer is Adagrad, not Adam": _trained(torch.optim.Adam),
        "make one optimizer, before the first epoch: its memory is lost": _trained(fresh=True),
    }
    expect(model.numbers.detach(), _trained(), "three epochs of six pairs in a batch", wrong)
    assert len(losses) == 3 and all(isinstance(n, float) for n in losses), (
        "return the loss of each step as a number: losses.append(loss.item())"
    )
    assert len(after) == 3 and after[0] is model, "call after_epoch(model) once in each epoch"
    i, _, x, weight = _pairs()
    first = _Numbers().numbers.detach()[i] - x.log()
    wrong = {"the loss is a mean over the batch, not a sum": float((weight * first**2).sum())}
    expect(losses[0], float((weight * first**2).mean()), "the first loss", wrong)
    model = _Numbers()
    expect(len(train(model, _pairs(), 0.1, 2, 4)), 4, "how many losses for 2 epochs of 4 + 2 pairs")
    epochs = model.asked[:6], model.asked[6:]
    pairs = sorted(zip(*(ids.tolist() for ids in _pairs()[:2]), strict=True))
    for asked in epochs:
        assert sorted(asked) == pairs, "visit every pair once in each epoch, i and j together"
    assert epochs[0] != epochs[1], "visit the pairs in a new random order in each epoch"
    assert pairs not in epochs, "visit the pairs in a random order"
