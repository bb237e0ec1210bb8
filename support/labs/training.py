"""The lab on automatic differentiation and optimizers."""

import torch
from torch.nn import functional as F

from support.labs import expect


def _g():
    return torch.tensor([[1.0, 2, 3], [4, 5, -6]])


def unbroadcast(unbroadcast):
    """Missing dimensions, dimensions of 1, both, and neither."""
    g = _g()
    for shape in ((3,), (2, 1), (1, 3), (), (1,), (2, 3)):
        wrong = {
            "add up the gradients of all uses, don't average them": g.mean(0),
            "keep the dimensions of size 1": g.sum(1 if shape == (2, 1) else 0),
        }
        expect(unbroadcast(g, shape), g.sum_to_size(shape), f"from (2, 3) to {shape}", wrong)


def add_and_multiply(Value, add, multiply):
    """A matrix and a row that is broadcast."""
    g, a, b = _g(), Value(_g() + 1), Value(torch.tensor([2.0, -1, 3]))
    for name, operation, data, to_a, to_b in (
        ("+", add, a.data + b.data, g, g),
        ("*", multiply, a.data * b.data, g * b.data, g * a.data),
    ):
        out = operation(a, b)
        expect(out.data, data, f"the data of a {name} b")
        assert out.parents == (a, b), f"the parents of a {name} b must be the Values (a, b)"
        wrong = {
            "the slope of a product for one factor is the other": (to_b, to_a.sum(0)),
            "undo the broadcasting of b in pull": (to_a, to_b),
            "multiply by the gradient g that comes in": (b.data.expand(2, 3), a.data.sum(0)),
        }
        expect(out.pull(g), (to_a, to_b.sum(0)), f"pull(g) of a {name} b, (2, 3) and (3,)", wrong)


def matmul_and_relu(Value, matmul, relu):
    """Square and oblong matrices, and inputs below, at and above 0."""
    x, w, g = torch.tensor([[[1.0, 2], [-1, 4]], [[1, 0], [3, -1]], [[1, 1], [-2, 5]]])
    wrong = {
        "transpose the weights: x gets g @ w.T": (g @ w, x.T @ g),
        "transpose x: w gets x.T @ g": (g @ w.T, x @ g),
        "w gets x.T @ g, not g.T @ x": (g @ w.T, g.T @ x),
        "pull returns the gradient of x first, then that of w": (x.T @ g, g @ w.T),
    }
    out = matmul(Value(x), Value(w))
    expect(out.data, x @ w, "the data of a product")
    expect(out.pull(g), (g @ w.T, x.T @ g), "pull(g) of a product of 2 × 2 matrices", wrong)
    a, g = _g() - torch.tensor([3.0, 2, 1]), _g()
    expect(matmul(Value(a), Value(a.T)).pull(x), (x @ a, a.T @ x), "pull(g), (2, 3) @ (3, 2)")
    wrong = {
        "the slope of ReLU is 1 where the input is positive": (g * a.relu(),),
        "the sign of the input decides, not that of the gradient": (g.relu(),),
        "stop the gradient where the input is negative": (g,),
        "the slope at 0 is 0": (g * (a >= 0),),
    }
    expect(relu(Value(a)).data, a.relu(), "the data of relu")
    expect(relu(Value(a)).pull(g), (g * (a > 0),), "pull(g) of relu, a tuple of one", wrong)


def cross_entropy(Value, cross_entropy):
    """A batch of two against PyTorch, a gradient of 2, and scores of 1000."""
    scores = torch.tensor([[1.0, 2, 0.5], [0.3, -1.2, 3]], requires_grad=True)
    y, two = torch.tensor([0, 1]), torch.tensor(2.0)
    right = F.cross_entropy(scores, y)
    (slope,) = torch.autograd.grad(right, scores)
    out, right, p = cross_entropy(Value(scores.detach()), y), right.detach(), scores.detach()
    wrong = {
        "take the mean over the examples, not the sum": right * 2,
        "the softmax is over the classes, dimension 1": -p.log_softmax(0)[[0, 1], y].mean(),
        "minus the logarithm of the probability": -right,
    }
    expect(out.data, right, "the loss of two examples", wrong)
    wrong = {
        "divide the gradient by B, too": (4 * slope,),
        "multiply by the gradient g that comes in": (slope,),
        "subtract 1 at the correct class": (p.softmax(1),),
        "probability minus truth, not truth minus probability": (-2 * slope,),
    }
    expect(out.pull(two), (2 * slope,), "pull(2) of the loss of two examples", wrong)
    large = cross_entropy(Value([[1000.0, 0], [0, -1000]]), torch.tensor([0, 0]))
    finite = all(torch.isfinite(t).all() for t in (large.data, *large.pull(two)))
    assert finite, "scores of 1000 give nan or inf: subtract each row's largest score before exp"


def backward(Value, add, multiply, matmul, relu, cross_entropy, backward):
    """Values used twice, two losses, calls of pull, and a network against PyTorch."""
    a, calls = Value(3.0), []
    b = add(a, a)
    pull, b.pull = b.pull, lambda g: calls.append(g) or pull(g)
    backward(add(b, multiply(b, b)))
    once = "pass a gradient on once, after all uses have added theirs"
    assert len(calls) < 2, f"{once}: the pull of a Value with two uses was called more than once"
    wrong = {
        "start with the gradient 1 at the loss": 0.0,
        "add to the gradient that is there": 6.0,
        f"{once}: go through the list from its end": 2.0,
    }
    expect(float(a.grad), 26.0, "a = 3, b = a + a, c = b + b * b: the gradient of a", wrong)
    backward(add(a, Value(1.0)))
    wrong = {"keep the gradient that is there, and add to it": 1.0}
    expect(float(a.grad), 27.0, "a after a second loss, a + 1, whose slope is 1", wrong)
    tensors = [torch.randn(*shape, requires_grad=True) for shape in ((4, 3), (3, 3), (3,))]
    x, w, c = values = [Value(t.detach()) for t in tensors]
    y, z = torch.tensor([0, 2, 1, 1]), tensors[0] @ tensors[1]
    backward(cross_entropy(add(matmul(relu(add(matmul(x, w), c)), w), matmul(x, w)), y))
    F.cross_entropy((z + tensors[2]).relu() @ tensors[1] + z, y).backward()
    for name, value, right in zip("xwb", values, tensors, strict=True):
        expect(value.grad, right.grad, f"{name} in relu(x w + b) w + x w, against PyTorch")


def sgd_and_momentum(sgd, momentum):
    """One step of the one, two of the other."""
    one, memory = torch.ones(1), {}
    wrong = {"step against the gradient: subtract": 1.1 * one}
    expect(sgd(one, one, 0.1, {}), 0.9 * one, "sgd, w = 1, g = 1, lr = 0.1", wrong)
    w = momentum(one, one, 0.1, memory, beta=0.8)
    wrong = {
        "m is a sum: add the whole gradient, not (1 - beta) of it": 0.944 * one,
        "keep m in memory, and step along it, not along g": 0.8 * one,
        "multiply the old sum by beta": 0.7 * one,
        "use the beta that is given": 0.71 * one,
    }
    where = "two steps of momentum, w = 1, g = 1 and 1, lr = 0.1, beta = 0.8"
    expect(momentum(w, one, 0.1, memory, beta=0.8), 0.72 * one, where, wrong)


def _adam(mean=True, square=True, power=2, root=0.5, inside=False, coupled=0.0, decay=0.0):
    """Return the weights after two steps from 1 and 1, by Adam or by a mistaken form of it."""
    w, m, s = torch.ones(2), 0, 0
    for t, g in enumerate(torch.tensor([[3.0, 1e-5], [1, 1e-5]]), 1):
        w, g = w - 0.1 * decay * w, g + coupled * w
        m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g**power
        a, b = m / (1 - 0.9**t if mean else 1), s / (1 - 0.999**t if square else 1)
        w = w - 0.1 * a / ((b + 1e-8) ** root if inside else b**root + 1e-8)
    return w


def adam_and_adamw(adam, adamw):
    """Two steps, with a large and a tiny gradient, against torch.optim."""
    adam_wrong = {
        "divide m and s by 1 - beta**t, since they start at zero": _adam(False, False),
        "divide m, too, by 1 - beta1**t": _adam(mean=False),
        "divide s, too, by 1 - beta2**t": _adam(square=False),
        "s is the running mean of the squares of the gradients": _adam(power=1),
        "divide by the root of s": _adam(root=1.0),
        "add 1e-8 to the root, not below it": _adam(inside=True),
        "t is 1 in the first step, not 0": torch.full((2,), torch.nan),
    }
    adamw_wrong = {
        "shrink the weights themselves, don't add the decay to the gradient": _adam(coupled=0.5),
        "the weights shrink by lr times decay, not by decay": _adam(decay=5.0),
        "shrink the weights before Adam's step": _adam(),
    }
    for rule, make, decay, wrong in (
        (adam, torch.optim.Adam, 0, adam_wrong),
        (adamw, torch.optim.AdamW, 0.5, adamw_wrong),
    ):
        w, memory, theirs = torch.ones(2), {}, torch.ones(2, requires_grad=True)
        optimizer = make([theirs], 0.1, weight_decay=decay)
        for g in torch.tensor([[3.0, 1e-5], [1, 1e-5]]):
            w, theirs.grad = rule(w, g, 0.1, memory), g
            optimizer.step()
        where = f"{make.__name__}: w = (1, 1), two steps, g = (3, 1e-5), (1, 1e-5), lr = 0.1"
        expect(w, theirs.detach(), where, wrong)


def orthogonalize(orthogonalize):
    """Strong and weak directions, wide and tall matrices, large ones."""

    def rounds(s, n=5):
        for _ in range(n):
            s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
        return s

    x = torch.tensor([[3.0, 0], [0, 0.1]])
    s, got = x / x.norm(), orthogonalize(x)
    assert torch.isfinite(got).all(), "the numbers grow without limit: divide by the norm first"
    wrong = {
        "five rounds": rounds(s, 1),
        "divide by the root of the sum of squares, not by the largest entry": rounds(x / 3),
        "divide by the norm, not by its square": rounds(x / x.norm() ** 2),
    }
    expect(got, rounds(s), "the matrix of 3 and 0.1", wrong)
    u, s, v = torch.linalg.svd(300 * torch.randn(4, 3), full_matrices=False)
    tall, right = u @ s.diag() @ v, u @ rounds(s / s.norm()).diag() @ v
    for name, given, wanted in (("tall", tall, right), ("wide", tall.T, right.T)):
        got = orthogonalize(given)
        assert got.shape == given.shape, f"a {name} matrix comes back transposed: turn it back"
        expect(got, wanted, f"a {name} matrix with random singular values")
