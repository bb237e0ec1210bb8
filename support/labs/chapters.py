"""The exercises of the chapters that ask for a function or a class, in the chapters' order."""

import torch
from torch.nn import functional as F

from support.labs import expect


def Layers(Layers):
    """Widths of 5, 4, 3 and 3, a batch of six, and the size of new weights.
    from the last layer to the first h.T @ g and the sum of g, then g @ W.T where h > 0"""
    layers, x, y = Layers(5, 4, 3, 3), torch.randn(6, 5), torch.arange(6) % 3
    h = x
    for W, b in zip(layers.W, layers.b, strict=True):
        W.requires_grad_().data.normal_(), b.requires_grad_().data.normal_()
        z, h = (z := h @ W + b), z.relu()
    wrong = {"the last layer has no ReLU": F.cross_entropy(h, y)}
    expect(layers.forward(x, y), loss := F.cross_entropy(z, y), "the loss", wrong)
    right = [*torch.autograd.grad(loss, [*layers.W, *layers.b])]
    W, b = zip(*layers.backward(), strict=True)
    wrong = {"the loss is a mean: divide by the number of rows": [6 * g for g in right]}
    expect([*W, *b], right, "the gradients of W and of b, each from the first layer", wrong)
    wrong = {"divide by the number of inputs, not of outputs": torch.tensor(0.05)}
    expect(Layers(50, 800).W[0].std(), torch.tensor(0.2), "standard deviation", wrong, 0.01)


def negative_gradient(negative_gradient):
    """A center, a context word and three noise words.
    sigma(u v) - 1 times the context word, sigma(u v) times each noise word"""
    v, u, noise = torch.randn(4), torch.randn(4), torch.randn(3, 4)
    near, far = ((u @ v).sigmoid() - 1) * u, (noise @ v).sigmoid() @ noise
    wrong = {"add up the noise words, no mean": near + far / 3, "the loss has a minus": -near - far}
    expect(negative_gradient(v, u, noise), near + far, "the gradient for the center", wrong)


def best_gain(best_gain):
    """Four words where the three rules choose different pairs.
    n log n of the counts before and after: of a, b and ab, and of all symbols"""
    words = {"aeed": 7, "aea": 4, "dac": 2, "bbe": 6}
    wrong = {"take the gain, not the count": ("a", "e"), "leave out a = b": ("b", "b")}
    wrong["take the gain, not the score, and use the frequencies"] = ("a", "c")
    expect(best_gain({w: [*w] for w in words}, words), ("e", "d"), f"{words}", wrong)


def corrected_lists(corrected_lists):
    """Nine points, lists of two neighbors.
    cosines of unit vectors, none with itself, not in r either; r the mean of the k largest"""
    x = torch.randn(9, 3)
    cosine = F.cosine_similarity(x[:, None], x, dim=-1).fill_diagonal_(-torch.inf)
    r = cosine.topk(2).values.mean(1)
    wrong = {"subtract r(v)": cosine, "the cosine counts twice": cosine - r, "": 2 * cosine - r}
    wrong = {s: y.topk(2).indices.flatten().bincount(minlength=9) for s, y in wrong.items()}
    expect(corrected_lists(x, 2), wrong.pop(""), "how often each is a neighbor, k = 2", wrong)


def mish_slope(mish_slope):
    """Numbers from -5 to 5.
    the product rule, then the chain rule: tanh' = 1 - tanh^2, and s' = sigma(x)"""
    x = torch.linspace(-5, 5, 11)
    t = F.softplus(x).tanh()
    wrong = {"s' is sigma(x)": t + x * (1 - t**2), "x' tanh s, too": x.sigmoid() * x * (1 - t**2)}
    expect(mish_slope(x), t + x * x.sigmoid() * (1 - t**2), "from -5 to 5", wrong)


def attend_in_one_pass(attend_in_one_pass):
    """Forty keys, and scores whose exponentials overflow.
    the largest score so far; when it grows, both sums times e^(old - new); the root of len(q)"""
    q, (k, v) = torch.randn(8), torch.randn(2, 40, 8)
    for size in (1.0, 1e4):
        s = size * (k @ q) / 8**0.5
        e = (s - s.cummax(0).values).exp()
        wrong = {"divide the scores by the square root of d": (s * 8**0.5).softmax(0) @ v}
        wrong["when a larger score comes, multiply both sums"] = e @ v / e.sum()
        got = attend_in_one_pass(size * q, k, v)
        expect(got, s.softmax(0) @ v, f"40 keys, a query times {size:g}", wrong)


def rotate_neighbors(rotate_neighbors):
    """Two heads, five positions, eight components, base 100.
    positions from 0; angles t base^(-2i/d); a cos - b sin beside a sin + b cos"""
    x, angles = torch.randn(1, 2, 5, 8), torch.arange(5)[:, None] * 100 ** -(torch.arange(4) / 4)
    z, turn = torch.view_as_complex(x.unflatten(-1, (4, 2))), torch.polar(angles * 0 + 1, angles)
    right = torch.view_as_real(z * turn)
    wrong = {"rotate the other way": torch.view_as_real(z / turn).flatten(-2)}
    wrong["put the components of each pair side by side"] = right.mT.flatten(-2)
    expect(rotate_neighbors(x, 100.0), right.flatten(-2), "x (1, 2, 5, 8), base 100", wrong)


def grouped(grouped, GroupedQueryAttention):
    """Six heads of keys and values that become two.
    neighbors are a group; the mean of their rows in key and in value; query and out as before"""
    made = grouped(full := GroupedQueryAttention(12, 6, 6), 2)
    for name, n in (("key", 2), ("value", 2), ("query", 6), ("out", 6)):
        W = getattr(full, name).weight.view(n, -1, 2, 12)
        wrong = {"heads 0, 1 and 2 are a group": W.view(-1, n, 2, 12).mean(0).flatten(0, 1)}
        wrong["take the mean of a group, not its first head"] = W[:, 0].flatten(0, 1)
        expect(getattr(made, name).weight, W.mean(1).flatten(0, 1), f"{name}.weight", wrong)
    expect(made.group, 3, "group, the number of query heads for each head of keys")


def count_valid(count_valid):
    """One to twelve words.
    no I after O and none at the first word; a count for each tag, not a list of all sequences"""
    got, wrong = [count_valid(n) for n in (1, 2, 3, 12)], {"no I after O": [2, 6, 18, 354_294]}
    wrong["no I at the first word"] = [3, 8, 21, 121_393]
    expect([*map(int, got)], [2, 5, 13, 75_025], "the numbers for 1, 2, 3 and 12 words", wrong)


def longest_match_right(longest_match_right):
    """Nested words, a letter that is no word, and two directions that differ.
    text[-n:] for all lengths, the last letter where none is a word; the words in their order"""
    words, wrong = ["ab", "abc", "bc", "de", "cde"], {"start at the end": ["x", "abc", "de"]}
    wrong["put each word before those found so far"] = ["cde", "ab", "x"]
    wrong["take the longest word, not the shortest"] = ["x", "a", "bc", "de"]
    expect(longest_match_right("xabcde", words), ["x", "ab", "cde"], f"xabcde, {words}", wrong)


def most_probable(most_probable):
    """A rare long word, a word with the count 0, a letter that is not listed, and 200 letters.
    sums of log(n / total), as a product of 200 is 0; 1 for letters alone; where the last begins"""
    counts = {"abc": 2, "ab": 30, "cd": 20, "d": 5, "x": 10, "y": 10, "xy": 3, "yz": 0}
    wrong = {"a word of two letters with the count 0 is not listed": ["ab", "cd", "x", "yz"]}
    wrong["divide each count by the total"] = ["ab", "cd", "x", "y", "z"]
    wrong["take the best product, not the longest word"] = ["abc", "d", "xy", "z"]
    expect(most_probable("abcdxyz", counts, 999), ["ab", "cd", "xy", "z"], "abcdxyz", wrong)
    expect(most_probable("ab" * 100, counts, 999), ["ab"] * 100, "100 times ab")


def permuted(permuted):
    """An order of five words, counted from 0.
    when each word comes in the order; row i is true at the words that come before word i"""
    order, before = [2, 0, 4, 3, 1], torch.ones(5, 5, dtype=torch.bool).tril(-1)
    right = torch.tensor([[order.index(j) < order.index(i) for j in range(5)] for i in range(5)])
    wrong = {"row i is for word i, not for step i": before}
    wrong["order[k] is a word, not the rank of word k"] = before[order][:, order]
    wrong["no word sees itself"] = right | torch.eye(5).bool()
    expect(permuted(order), right, f"the order {order}", wrong)


def scan(scan):
    """Eleven steps, which take four rounds.
    new a and b from those of the round before; (1, 0) before the first step"""
    a, b = torch.rand(2, 11)
    P = a.log().cumsum(0)
    got, rounds = scan(a.clone(), b.clone())
    wrong = {"the later step's a multiplies the earlier b": (b * (P - a.log()).exp()).cumsum(0)}
    expect(got, (P[:, None] - P).exp().tril() @ b, "the states of 11 steps", wrong)
    expect(rounds, 4, "the number of rounds", {"the reach doubles in each round": 10})
