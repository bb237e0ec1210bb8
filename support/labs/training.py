"""The lab on automatic differentiation and optimizers."""

from functools import partial

import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from support.labs import expect


def _compare(Value, ours, theirs, inputs, g, wrong, *rest):
    """Compare an operation with PyTorch's: its data, then its gradients."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    values, right, name = [*map(Value, inputs)], theirs(*leaves, *rest), theirs.__name__
    out = ours(*values, *rest)
    expect(out.data, right.detach(), f"the data of {name}", wrong)
    assert getattr(out, "parents", 0) == (*values,), "return a Value, parents as a tuple"
    slopes = torch.autograd.grad(right, leaves, g)
    got = out.pull(copy := g.clone())
    assert isinstance(got, tuple), "pull returns a tuple, for one parent (gradient,)"
    wrong = {"the gradients have the order of the parents": slopes[::-1], **wrong}
    expect(got, slopes, f"pull(g) of {name}", wrong)
    kept, given = [g, *(leaf.detach() for leaf in leaves)], [copy, *(v.data for v in values)]
    expect(given, kept, f"g and the data given to {name}, which stay as they are")


def unbroadcast(unbroadcast):
    """Missing dimensions, dimensions of 1, both, and neither.

    the missing dimensions are the first, not the last: sum(0) until len(shape) are left; only then
    each axis where shape has 1 is summed, with keepdim=True, and each of the others stays; no
    reshape is needed
    """
    g = torch.tensor([[1.0, 2, 3], [4, 5, -6]])
    wrong = {"add up, no mean": g.mean(0), "sum all missing, then keep dimensions of 1": g.sum(0)}
    for shape in ((3,), (1, 3), (2, 1), (1,), (1, 1), (2, 3), ()):
        expect(unbroadcast(g, shape), g.sum_to_size(shape), f"from (2, 3) to {shape}", wrong)


def add_and_multiply(Value, add, multiply):
    """A matrix and a row that is broadcast.

    return Value(data, (a, b), pull); a.data + b.data, as a + b would call add again; in pull, too,
    the data of a and b; each slope times g, then unbroadcast to the shape of its own parent
    """
    g, b = torch.tensor([[1.0, 2, 3], [4, 5, -6]]), torch.tensor([2.0, -1, 3])
    a, undo = g + 1, "undo the broadcasting of b in pull"
    _compare(Value, add, torch.add, (a, b), g, {undo: (g, g)})
    wrong = {undo: (g * b, g * a), "multiply first, then unbroadcast": (g * b, g.sum(0) * a)}
    wrong["the slope of a product for one factor is the other"] = g * a, (g * b).sum(0)
    _compare(Value, multiply, torch.mul, (a, b), g, wrong)


def matmul_and_relu(Value, matmul, relu):
    """Square matrices, and inputs below, at and above 0.

    matmul: the other factor, transposed, for x on the right of g, for w on its left, no mean; relu:
    clamp(min=0); g times the mask of where a.data is positive, not the mask alone, nor with a.data
    """
    x, w, g = torch.tensor([[[1.0, 2], [-1, 0]], [[1, 0], [3, -1]], [[1, -3], [2, 5]]])
    wrong = {"x gets g @ w.T": (g @ w, x.T @ g), "w gets x.T @ g": (g @ w.T, g.T @ x)}
    _compare(Value, matmul, torch.matmul, (x, w), g, wrong)
    wrong = {"the slope of ReLU is 1 where the input is positive": (g * x.relu(),)}
    wrong |= {"the slope at 0 is 0": (g * (x >= 0),), "the input is positive, not g": (g.relu(),)}
    _compare(Value, relu, torch.relu, (x,), g, wrong)


def cross_entropy(Value, cross_entropy):
    """A batch of two against PyTorch, a gradient of 5, and scores of 1000.

    keepdim=True in amax and sum over dimension 1 (max returns values and indices); z, less its
    largest, both as z_c and in the sum; log p_c is z_c minus the log of the sum, not the log of
    p_c; the mean over B, not over all B * C; in pull the same z's probabilities, less 1 at [rows,
    y], not less y; divided by B, too
    """
    scores, y = torch.tensor([[1.0, 2, 0.5], [0.3, -1.2, 3]]), torch.tensor([0, 1])
    slope, log_p = scores.softmax(1) - F.one_hot(y, 3), scores.log_softmax(1)
    wrong = {"take the mean over the examples, not the sum": F.cross_entropy(scores, y) * 2}
    wrong["example i has class y[i]: index with rows and y"] = -log_p[:, y].mean()
    wrong |= {"divide the gradient by B": (5 * slope,), "multiply by the g given": (slope / 2,)}
    _compare(Value, cross_entropy, F.cross_entropy, (scores,), (g := torch.tensor(5.0)), wrong, y)
    wrong = {"subtract each row's largest; log p_c is z_c - log of the sum of e^z": g * torch.inf}
    _compare(Value, cross_entropy, F.cross_entropy, (1000 * scores,), g, wrong, y)


def backward(Value, add, multiply, backward):
    """Values that are used twice and three times, one with a gradient from before.

    loss.grad: a tensor of ones, of the shape of loss.data; one list, with each value once, after
    its parents; then from its end, and for each value once, pull(value.grad), not of what a
    single use gave; added to what parent.grad holds already
    """
    a, pulls = Value(3.0), []
    b = add(a, a)
    c = add(b, multiply(b, b))
    a.grad, c.grad = a.grad + 1, c.grad + 5
    pull, b.pull = b.pull, lambda g: pulls.append(g) or pull(g)
    backward(c)
    wrong = {"the gradient 1 at the loss": [5.0, 131.0], "add to the gradient there": [1.0, 6.0]}
    wrong |= {"list a value after all its parents": [1.0, 3.0], "list each value once": [1.0, 79.0]}
    wrong["go from the loss, the list's end, back: all uses of a value come before it"] = [1.0, 1.0]
    wrong["pass a gradient on once, after all uses have added theirs"] = [1.0, 43.0]
    where = "b = a + a, c = b + b * b, a = 3, gradients 1 in a, 5 in c: those of c, a"
    expect([float(c.grad), float(a.grad)], [1.0, 27.0], where, wrong)
    expect(len(pulls), 1, "how often the pull of b is called")


def _steps(rule, make, wrong, **options):
    """Compare two steps of a rule with those of torch.optim."""
    w, memory, kept, theirs = torch.ones(2), {}, [], torch.ones(2, requires_grad=True)
    optimizer = make([theirs], 0.3, **options)
    where = f"w = (1, 1), g = (3, 1e-5), (1, 1e-5), lr = 0.3, 0.2 {options or ''}"
    for lr, g in zip((0.3, 0.2), torch.tensor([[3.0, 1e-5], [1, 1e-5]]), strict=True):
        kept += [(w, w.clone()), (g, g.clone())]
        w, theirs.grad, optimizer.param_groups[0]["lr"] = rule(w, g, lr, memory), g, lr
        optimizer.step()
        expect(w, theirs.detach(), where, wrong)
        assert all(a.equal(b) for a, b in kept), "w or g is changed: make a new tensor, w = w - …"


def sgd_and_momentum(sgd, momentum):
    """Two steps, against torch.optim.

    w minus lr times g, or m; m starts at 0, by memory.get, so that the first m is g; each new m
    is beta, the argument, times the old one plus g, without lr, and is kept in memory
    """
    wrong = {"m is a sum: add all of g, not (1 - beta) of it": torch.tensor([0.91, 1 - 3e-7])}
    wrong['keep m in memory["m"]'] = torch.tensor([-0.1, 1 - 5e-6])
    _steps(sgd, torch.optim.SGD, {})
    _steps(momentum, torch.optim.SGD, wrong, momentum=0.9)
    _steps(partial(momentum, beta=0.5), torch.optim.SGD, wrong, momentum=0.5)


def adam_and_adamw(adam, adamw):
    """Two steps, with a large and a tiny gradient, against torch.optim.

    t, which is 1 in the first step and grows; m and s, means: beta times the old one plus 1 - beta
    times g or g**2; m over 1 - beta1**t, s over 1 - beta2**t, the undivided ones kept in memory;
    the root of s, plus 1e-8; betas as given; adamw: adam of w * (1 - lr * decay), same memory
    """
    g = torch.tensor([3.0, 1e-5])
    wrong = {"divide m and s by 1 - beta**t": 1 - 0.03 * g / (0.001**0.5 * g + 1e-8)}
    wrong["divide s by 1 - beta2**t, too"] = 1 - 0.3 * g / (0.001**0.5 * g + 1e-8)
    wrong["add 1e-8 to the root, not below it"] = 1 - 0.3 * g / (g**2 + 1e-8).sqrt()
    wrong["add 1e-8 to the root"] = torch.full((2,), 0.7)
    _steps(adam, torch.optim.Adam, wrong)
    _steps(partial(adam, beta1=0.5, beta2=0.9), torch.optim.Adam, {}, betas=(0.5, 0.9))
    wrong = {"shrink the weights themselves, not by way of the gradient": torch.full((2,), 0.7)}
    _steps(adamw, torch.optim.AdamW, wrong, weight_decay=0.5)
    _steps(partial(adamw, decay=0.2), torch.optim.AdamW, wrong, weight_decay=0.2)


def orthogonalize(orthogonalize):
    """A strong and a weak direction, in a wide and in a tall matrix.

    divided once, before the rounds, by the norm of the whole matrix, the root of the sum of all
    squares, not the largest singular value or norms of rows; five rounds, each with a new A; A @
    A, no elementwise product; the sum times X; x.T, not reshape, and x.T at the end
    """
    x = wide = torch.tensor([[1.8, -0.08, 0], [2.4, 0.06, 0]])
    x = x / x.norm()
    for _ in range(5):
        x = 3.4445 * x - 4.7750 * x @ x.T @ x + 2.0315 * x @ x.T @ x @ x.T @ x
    wrong = {"the numbers grow without limit: divide by the norm first": x * torch.nan}
    for given, right in ((wide, x), (wide.T, x.T)):
        got = orthogonalize(copy := given.clone())
        assert copy.equal(given), "x is changed: make a new matrix, x = x / …, not x /= …"
        expect(got, right, f"a {tuple(given.shape)} matrix", wrong)
    expect(orthogonalize(0 * wide), 0 * wide, "zeros: add 1e-7 to the norm")
    with FlopCounterMode(display=False) as counter:
        orthogonalize(torch.ones(40, 2))
    assert counter.get_total_flops() < 20_000, "A is too large: transpose a tall matrix, A = X X^T"
