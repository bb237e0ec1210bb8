"""The lab on fine-tuning: a classifier on a body, its loop, and LoRA."""

import copy
import math
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from support.labs import equal, expect
from support.models import bert
from support.training import warmup_linear


class _Given(nn.Module):
    """A body with three given states for each of two sentences, the last one of which is long."""

    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(d_model=2)
        states = [[[1, 0], [3, 2], [9, 9]], [[2, -1], [0, 4], [1, 3]]]
        self.states = nn.Parameter(torch.tensor(states) + 0.0)

    def forward(self, ids, lengths=None):
        assert lengths is not None, "hand the lengths to the body, or it attends to padding"
        return self.states


def classifier(Classifier):
    """States that are given, two real tokens and three, with large numbers at the padding."""
    model, ids, lengths = Classifier(_Given(), 3), torch.ones(2, 3).long(), torch.tensor([2, 3])
    with torch.no_grad():
        got, states = model.vectors(ids, lengths), model.body.states
        right = torch.stack([states[0, :2].mean(0), states[1].mean(0)])
        real = states.clone()
        real[0, 2] = 0
        wrong = {
            "leave padding out of the mean": states.mean(1),
            "divide by the number of real tokens, not by T": real.mean(1),
            "take the mean of all real tokens, not the first state": states[:, 0],
            "divide the sum by the lengths": real.sum(1),
            "each sentence has its own length": states[:, :2].mean(1),
        }
        expect(got, right, "states (1, 0), (3, 2), padding (9, 9), and three real ones", wrong)
        expect(tuple(model.head.weight.shape), (3, 2), "the shape of head.weight for three classes")
        assert model.head.bias is not None, "the head has a bias"
        model.head.bias.fill_(7.0)
        z = right @ model.head.weight.T + 7
        wrong = {"return logits, without softmax": z.softmax(1), "add the head's bias": z - 7}
        expect(model(ids, lengths), z, "the logits", wrong)
    model(ids, lengths).square().sum().backward()
    assert model.body.states.grad is not None, "the gradient must reach the body: no no_grad"


class _Words(nn.Module):
    """A sum of word vectors and a head: what a loop needs, and which rows it saw, and how."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.words, self.frozen, self.seen = nn.Embedding(6, 4), nn.Linear(4, 4), []
        self.frozen.requires_grad_(False)
        self.head = nn.Linear(4, 3)
        nn.init.normal_(self.head.weight, std=2.0)
        self.eval()

    def forward(self, ids, lengths):
        self.seen.append((self.training, len(ids)))
        return self.head(self.frozen(self.words(ids).sum(1)) / lengths[:, None])


def _trained(data, lr, epochs, size, clip=1.0, zero=True, factor=None, anew=True, decay=0.01):
    """Return the losses of the loop, or of one with a mistake."""
    ids, lengths, labels = data
    model = _Words()
    torch.manual_seed(3)
    free = [w for w in model.train().parameters() if w.requires_grad]
    optimizer = torch.optim.AdamW(free, lr, weight_decay=decay)
    order = [torch.randperm(len(ids)).split(size) for _ in range(epochs)]
    order = order if anew else [order[0]] * epochs
    steps, losses = sum(map(list, order), []), []
    factor = factor or warmup_linear(len(steps) // 10, len(steps))
    for step, rows in enumerate(steps):
        optimizer.param_groups[0]["lr"] = lr * factor(step)
        loss = F.cross_entropy(model(ids[rows], lengths[rows]), labels[rows])
        if zero:
            optimizer.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(free, clip)
        optimizer.step()
        losses.append(loss.item())
    return losses


def train(train):
    """Twenty steps on ten sentences in batches of three, the last one of one."""
    data = torch.randint(6, (10, 4)), torch.randint(1, 4, (10,)), torch.randint(3, (10,))
    model = _Words()
    start = {name: w.clone() for name, w in model.state_dict().items()}
    got = train(model, *data, 0.1, 5, size=3, seed=3)
    assert all(training for training, _ in model.seen), "call model.train(): dropout is on"
    sizes = [n for _, n in model.seen]
    expect(sizes, [3, 3, 3, 1] * 5, "the sizes of the batches, 10 sentences, 5 epochs")
    right = _trained(data, 0.1, 5, 3)
    named = {
        "clip the norm of the gradient to 1": {"clip": None},
        "call zero_grad in each step: gradients add up": {"zero": False},
        "set the learning rate of each step to lr * factor(step)": {"factor": lambda step: 1.0},
        "warm up for a tenth of the steps": {"factor": warmup_linear(0, 20)},
        "the factor of the first step is factor(0), not factor(1)": {
            "factor": lambda step: warmup_linear(2, 20)(step + 1)
        },
        "draw a new order in each epoch": {"anew": False},
        "keep AdamW's weight decay": {"decay": 0.0},
    }
    wrong = {name: _trained(data, 0.1, 5, 3, **how) for name, how in named.items()}
    expect(list(map(float, got)), right, "the losses of twenty steps with seed 3", wrong)
    for name, w in model.state_dict().items():
        moved = not equal(w, start[name])
        assert moved != name.startswith("frozen"), f"{name} has {'' if moved else 'not '}moved"


class _Model(nn.Module):
    """A small BERT with large weights and a head, in the form of the reader's classifier."""

    def __init__(self, n_layers):
        super().__init__()
        sizes = {"d_model": 8, "n_layers": n_layers, "n_heads": 2, "d_ff": 12, "max_length": 6}
        self.body = bert.Bert(bert.BertConfig(7, **sizes)).eval()
        self.head = nn.Linear(8, 2)
        for w in self.parameters():
            nn.init.normal_(w, std=0.5)

    def forward(self, ids):
        return self.head(self.body(ids).mean(1))


def _free(model):
    return sorted(name for name, w in model.named_parameters() if w.requires_grad)


def train_last(train_last):
    """A BERT of three layers: the last one, the last two."""
    for n in (1, 2):
        model = train_last(given := _Model(3), n)
        assert model is given, "return the model that was given"
        layers = [f"body.encoder.layers.{i}." for i in range(3)]
        names = [name for name, _ in model.named_parameters()]

        def having(*starts, names=names):
            return sorted(name for name in names if name.startswith(starts))

        right = having("head.", *layers[3 - n :])
        wrong = {
            "leave the head free: freeze model.body, not model": having(*layers[3 - n :]),
            "the last layers, not the first": having("head.", *layers[:n]),
            "freeze the embeddings and the pooler, too": sorted({*names} - {*having(*layers[:-n])}),
            "freeze the body first": sorted(names),
            "free the last layers again": having("head."),
            "n_layers is how many, not which": having("head.", layers[3 - n]),
            "the last n_layers are layers[-n_layers:], not these": having("head.", *layers[n:]),
        }
        expect(_free(model), right, f"the free weights with n_layers={n}", wrong)


def lora_linear(LoRALinear):
    """Start, gradients at the start, the size of A, and matrices that are given."""
    linear = nn.Linear(4, 3)
    old, x = copy.deepcopy(linear), torch.randn(2, 5, 4)
    layer = LoRALinear(linear, 2)
    for name, shape in (("A", (2, 4)), ("B", (3, 2))):
        matrix = getattr(layer, name)
        assert isinstance(matrix, nn.Parameter), f"{name} must be trained: make it an nn.Parameter"
        turned = {f"{name} is {'(rank, n_in)' if name == 'A' else '(n_out, rank)'}": shape[::-1]}
        expect(tuple(matrix.shape), shape, f"the shape of {name}, 4 to 3 of rank 2", turned)
    dead = "A = B = 0 never learns, since neither gets a gradient: make A random, and B alone zero"
    assert layer.A.any() or layer.B.any(), dead
    assert not layer.B.any(), "start B at zero, or training does not start from the old layer"
    wrong = {"add the change to the old layer's output": 0 * old(x)}
    expect(layer(x), old(x), "the output at the start, which is the old layer's", wrong)
    layer(x).square().sum().backward()
    assert layer.B.grad is not None and layer.B.grad.any(), (
        "B has no gradient at the start: compute B A x from self.A and self.B"
    )
    times = LoRALinear(nn.Linear(400, 3), 200).A.std().item() * math.sqrt(400)
    sizes = {"divide A by the square root of n_in": 20.0, "1 / sqrt(n_in), not 1 / n_in": 0.05}
    sizes |= {"A is scaled by n_in, not by the rank": math.sqrt(2)}
    expect(times, 1.0, "the standard deviation of A, times sqrt(n_in)", sizes, atol=0.15)
    with torch.no_grad():
        layer.A.copy_(A := torch.tensor([[0.5, 0.0, 1.0, -2.0], [1.0, 3.0, 0.0, 1.0]]))
        layer.B.copy_(B := torch.tensor([[1.0, 2.0], [0.0, -1.0], [-2.0, 0.5]]))
        right, change = old(x) + x @ A.T @ B.T, x @ A.T @ B.T
        wrong = {
            "add the change to the old layer's output": change,
            "keep the old layer's bias": right - old.bias,
            "add the change: its sign is wrong": old(x) - change,
            "the output needs the change B A x": old(x),
            "the scale of the change is 1, not 1 / rank": old(x) + change / 2,
        }
        expect(layer(x), right, "W x + b + B A x with given matrices", wrong)


def add_lora(add_lora, LoRALinear):
    """A BERT of two layers: what is free, how many numbers, and the logits before and after."""
    model, ids = _Model(2), torch.randint(7, (2, 6))
    before, names = model(ids).detach(), [name for name, _ in model.named_parameters()]
    assert add_lora(model, 2) is model, "return the model that was given"
    new = [name for name, m in model.named_modules() if isinstance(m, LoRALinear)]
    assert new, "no layer was replaced: go on into children that are not linear"
    assert "head" not in new, "LoRA belongs into the encoder: the head stays a linear layer"
    assert "body.pooler" not in new, "LoRA belongs into model.body.encoder, not into the pooler"
    deep = "a LoRALinear inside a LoRALinear: do not go on into a layer that was replaced"
    assert not any(name.endswith("linear") for name in new), deep
    expect(len(new), 8, "the number of LoRA layers in a BERT of two layers")
    own = [name + end for name in new for end in (".A", ".B")]
    kept = [n for n, _ in model.named_parameters() if n not in own]
    wrong = {
        "freeze the body before you add A and B, or they are frozen": ["head.bias", "head.weight"],
        "freeze the body": sorted([*own, *kept]),
        "the head must stay free: freeze model.body": sorted(own),
    }
    expect(_free(model), sorted([*own, "head.bias", "head.weight"]), "the free weights", wrong)
    count = sum(w.numel() for n, w in model.named_parameters() if n in own)
    expect(count, 2 * 2 * (8 + 24 + 8 + 8 + 8 + 12 + 12 + 8), "how many numbers LoRA of rank 2 has")
    expect(len(names) + 16, len(list(model.parameters())), "weights, with 16 of LoRA")
    expect(model(ids).detach(), before, "the logits at the start, as without LoRA")


def merge(merge, LoRALinear):
    """Square layers at two depths, with given matrices."""

    def layer():
        made = LoRALinear(nn.Linear(3, 3), 2)
        nn.init.normal_(made.A)
        nn.init.normal_(made.B)
        return made

    model = nn.Sequential(layer(), nn.Sequential(nn.Tanh(), layer()))
    x, old = torch.randn(5, 3), copy.deepcopy(model)
    with torch.no_grad():
        right = old(x)
        merge(model)
        left = [name for name, m in model.named_modules() if isinstance(m, LoRALinear)]
        deep = "go on into children that are not LoRA layers"
        assert left != ["1.1"], f"a layer inside a child is not merged: {deep}"
        assert not left, "put child.linear back with setattr, or the change counts twice"
        product = old[0].B @ old[0].A
        W = old[0].linear.weight
        wrong = {
            "add B @ A to the matrix, it does not replace it": product,
            "add B @ A, which has the form of W, not its transpose": W + product.T,
            "add the change before you put the old layer back": W,
            "add the change: its sign is wrong": W - product,
        }
        expect(model[0].weight, W + product, "the merged matrix", wrong)
        expect(model(x), right, "the outputs after merging")
    trained = isinstance(model[0].weight, nn.Parameter)
    assert trained, "the merged matrix is no parameter: change weight.data in place"


def low_rank(low_rank):
    """A diagonal matrix, and a random one of 5 by 3, with ranks from 0 to 3."""
    for change in (torch.tensor([[3.0, 0.0], [0.0, 4.0]]), torch.randn(5, 3)):
        U, s, V = torch.linalg.svd(change, full_matrices=False)
        for rank in range(len(s) + 1):
            near, fraction = low_rank(change, rank)
            squares, where = s.square(), f"{tuple(change.shape)}, rank {rank}"
            right = float(squares[:rank].sum() / squares.sum())
            wrong = {
                "a fraction of the squares of the singular values": float(s[:rank].sum() / s.sum()),
                "of the squared norm, without the root": math.sqrt(right),
                "the fraction that is kept, not what is lost": 1 - right,
            }
            expect(fraction, right, f"the fraction, {where}", wrong)
            best = U[:, :rank] @ torch.diag(s[:rank]) @ V[:rank]
            last = U[:, rank:] @ torch.diag(s[rank:]) @ V[rank:]
            wrong = {
                "keep the first directions, the largest": last,
                "svd returns V transposed: take its rows": U[:, :rank] * s[:rank] @ V.T[:rank],
                "multiply by the singular values": U[:, :rank] @ V[:rank],
                "keep the first directions alone": change,
            }
            expect(near, best, f"the approximation, {where}", wrong)
