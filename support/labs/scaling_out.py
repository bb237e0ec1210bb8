"""The lab on training with several workers: memory, accumulation, the ring, shared batches."""

import copy
import queue
import threading
from collections import Counter
from unittest import mock

import torch
from torch import distributed, nn
from torch.nn import functional as F

from support.labs import equal, expect


def memory(held_bytes, largest_model):
    """AdamW, SGD with and without momentum, a frozen weight, 16 bits; eight workers and one."""
    for name, kind, dtype, frozen, right, wrong in (
        ("SGD", {}, torch.float32, False, 64, {"count the gradients": 32}),
        ("momentum", {"momentum": 0.9}, torch.float32, False, 96, {}),
        ("AdamW", None, torch.float32, False, 128, {"count both means of Adam": 96}),
        ("AdamW, bfloat16", None, torch.bfloat16, False, 64, {"ask each tensor for nbytes": 128}),
        ("AdamW, weights frozen", None, torch.float32, True, 56, {}),
    ):
        model = nn.Linear(3, 2).to(dtype)
        model.weight.requires_grad_(not frozen)
        weights = model.parameters()
        sgd = kind is not None
        optimizer = torch.optim.SGD(weights, 0.1, **kind) if sgd else torch.optim.AdamW(weights)
        model(torch.ones(4, 3, dtype=dtype)).sum().backward()
        optimizer.step()
        states = [s for kept in optimizer.state.values() for s in kept.values()]
        scalars = sum(s.nbytes for s in states if torch.is_tensor(s) and not s.dim())
        wrong["count bytes, not numbers"] = right * 8 // torch.finfo(dtype).bits
        wrong["leave out scalars: they count steps"] = right + scalars
        expect(held_bytes(model, optimizer), right, f"a layer of 8, {name}", wrong)
    wrong = {
        "with FSDP the model is divided among the workers": 1.25e9,
        "each worker holds activations: subtract them before you multiply": 11.75e9,
        "16 bytes a parameter, not 4": 40e9,
        "subtract the activations": 12e9,
    }
    expect(float(largest_model(24e9, 4e9, 8, True)), 10e9, "8 of 24 GB, FSDP", wrong)
    wrong = {"without FSDP each worker holds the whole model": 10e9, "subtract activations": 1.5e9}
    expect(float(largest_model(24e9, 4e9, 8, False)), 1.25e9, "8 of 24 GB, no FSDP", wrong)


class _Table(nn.Embedding):
    """A bigram model of five tokens that notes when it runs, on how many rows, and backward."""

    def __init__(self):
        super().__init__(5, 5)
        self.events = []
        self.weight.grad = torch.ones(5, 5)  # from an earlier batch

    def forward(self, ids):
        self.events.append(len(ids))
        logits = super().forward(ids)
        if logits.requires_grad:
            logits.register_hook(lambda _: self.events.append("backward"))
        return logits


def _by_hand(model, pieces, divisor=None):
    """Return the gradient of the sum of the tokens' losses, by their number or divisor."""
    logits = torch.cat([F.embedding(x, model.weight).flatten(0, 1) for x, _ in pieces])
    targets = torch.cat([y.flatten() for _, y in pieces])
    loss = F.cross_entropy(logits, targets, reduction="sum")
    loss = loss / (divisor or int((targets != -100).sum()))
    return torch.autograd.grad(loss, model.weight)[0]


def _one_piece_at_a_time(events, n):
    assert len([e for e in events if e != "backward"]) == n, (
        f"run the model once a piece, {n} times"
    )
    early = "call backward for each piece before the next one runs, or all activations are kept"
    assert events[1::2] == ["backward"] * n, early


def accumulate(accumulate):
    """1, 2, 3 and 6 pieces of six sequences, after an older gradient."""
    ids = torch.randint(5, (6, 4))
    for n in (1, 2, 3, 6):
        accumulate(model := _Table(), ids, n)
        parts = [[(part[:, :-1], part[:, 1:])] for part in ids.chunk(n)]
        whole = _by_hand(model, sum(parts, []))
        wrong = {
            "an older gradient is left: begin with model.zero_grad()": whole + 1,
            "divide each loss by the number of pieces": n * whole,
            "the gradients of the pieces add up: no zero_grad between them": whole * 0
            + _by_hand(model, parts[-1]) / n,
            "the loss is a mean already: divide by pieces, not by sequences": whole * n / 6,
        }
        expect(model.weight.grad, whole, f"6 sequences in {n} pieces", wrong)
        _one_piece_at_a_time(model.events, n)


def padded(accumulate_padded):
    """Pieces of three and one tokens, then of other lengths, with padding."""
    y = torch.tensor([[1, 2, 4], [3, -100, -100]]), torch.tensor([[0, -100]])
    pieces = [(torch.tensor([[0, 1, 2], [4, 0, 0]]), y[0]), (torch.tensor([[3, 0]]), y[1])]
    got = accumulate_padded(model := _Table(), pieces)
    right, means = _by_hand(model, pieces), [_by_hand(model, [piece]) for piece in pieces]
    wrong = {
        "a mean of means: divide the sums by the number of tokens of all pieces": sum(means) / 2,
        "add each piece's gradient, weighted by its fraction of the tokens": sum(means),
        "do not count padding: only targets that are not -100": _by_hand(model, pieces, 8),
        "divide by the number of tokens": _by_hand(model, pieces, 1),
        "an older gradient is left: begin with model.zero_grad()": right + 1,
    }
    expect(model.weight.grad, right, "pieces of 4 and 1 tokens", wrong)
    _one_piece_at_a_time(model.events, 2)
    logits = [F.embedding(x, model.weight).flatten(0, 1) for x, _ in pieces]
    losses = [
        F.cross_entropy(z, t.flatten(), reduction="none") for z, t in zip(logits, y, strict=True)
    ]
    loss = sum(part.sum().item() for part in losses) / 5
    assert isinstance(got, float), f"return the mean loss as a float: .item(), not {type(got)}"
    expect(got, loss, "the loss of pieces of 4 and 1 tokens")


def _logits(model, ids, positions=True, causal=True, norm=True):
    x = model.tokens(ids[:, :-1])
    x = x + model.positions.weight if positions else x
    for layer in model.layers:
        x = layer(x, is_causal=causal)
    return (model.final_norm(x) if norm else x) @ model.tokens.weight.T


def recompute(loss_by_layers, new_model):
    """Loss and gradients against the model's own, and how often each layer runs."""
    model = new_model()
    n = len(model.layers)
    for w in model.parameters():
        nn.init.normal_(w, std=0.5)
    ids = torch.randint(len(model.tokens.weight), (2, len(model.positions.weight) + 1))

    def loss_of(logits):
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    mistakes = {"positions": "add the position embeddings", "norm": "apply model.final_norm"}
    mistakes["causal"] = "call each layer with is_causal=True"
    with torch.no_grad():
        wrong = {m: loss_of(_logits(model, ids, **{k: False})) for k, m in mistakes.items()}
    right = loss_of(model(ids[:, :-1]))
    right.backward()
    known = [w.grad for w in model.parameters()]
    for again in (False, True):
        model.zero_grad()
        runs = Counter()
        for i, layer in enumerate(model.layers):
            layer.register_forward_pre_hook(lambda *_, i=i, runs=runs: runs.update([i]))
        loss = loss_by_layers(model, ids, again)
        expect(loss.detach(), right.detach(), f"the loss with again={again}", wrong)
        loss.backward()
        named = {
            "with again, call every layer through checkpoint": [1] * n,
            "checkpoint is for again=True, the layer itself for again=False": [2] * n,
        }
        times = [1 + again] * n
        expect(
            [runs[i] for i in range(n)],
            times,
            f"how often each layer runs with again={again}",
            named,
        )
        for layer in model.layers:
            layer._forward_pre_hooks.clear()
        for (name, w), own in zip(model.named_parameters(), known, strict=True):
            assert w.grad is not None, f"{name} has no gradient with again={again}"
            expect(w.grad, own, f"the gradient of {name} with again={again}")


def _rounds(values, replaces=True, to=1, same=False):
    n, values, rounds = len(values), copy.deepcopy(values), []
    for step in range(2 * (n - 1)):
        before = copy.deepcopy(values)
        for k in range(n):
            part = k if same else (k - to * step) % n
            number = before[k][part]
            own = values[(k + to) % n]
            own[part] = number if replaces and step >= n - 1 else own[part] + number
        rounds.append(copy.deepcopy(values))
    return rounds


def ring_rounds(ring_rounds):
    """The three lists of the chapter, and four of random numbers."""
    random = torch.randint(-50, 50, (4, 4)).tolist()
    for values in ([[1, 2], [10, 20]], [[1, 2, 3], [10, 20, 30], [100, 200, 300]], random):
        got = ring_rounds(given := copy.deepcopy(values))
        assert given == values, "the lists that were given are changed: work on a copy"
        right = _rounds(values)
        wrong = {
            "send another number in each round: (k - s) mod n": _rounds(values, same=True),
            "from round n on, replace the number, do not add": _rounds(values, replaces=False),
            "send to the right neighbor, worker k + 1": _rounds(values, to=-1),
            "keep a copy of each round, or all show the last one": [right[-1]] * len(right),
            "the sums must travel on: 2 (n - 1) rounds": right[: len(values) - 1],
        }
        expect([[list(own) for own in r] for r in got], right, f"{values}", wrong)


class _Group:
    """n workers as threads of one process, of which one runs at a time, until it has to wait."""

    def __init__(self, n, seconds=5.0):
        self.n, self.seconds, self.sent, self.own = n, seconds, [0] * n, threading.local()
        self.lines = {(a, b): queue.Queue() for a in range(n) for b in range(n)}
        self.turn, self.barrier, self.box = threading.Lock(), threading.Barrier(n), [None] * n

    def wait_for(self, what):
        self.turn.release()
        try:
            return what(timeout=self.seconds)
        except (queue.Empty, threading.BrokenBarrierError):
            reason = "a worker waits for numbers that nobody sends: first send, then receive, in "
            raise AssertionError(f"{reason}the same order in all workers") from None
        finally:
            self.turn.acquire()

    def isend(self, tensor, dst, *_, **__):
        self.sent[self.own.rank] += tensor.numel()
        taken = threading.Event()
        self.lines[self.own.rank, dst].put((tensor.detach().clone(), taken))
        return mock.Mock(wait=lambda: True, taken=taken)

    def send(self, tensor, dst, *_, **__):
        taken = self.isend(tensor, dst).taken
        late = "send waits until the other receives, and all wait: use isend"
        assert self.wait_for(taken.wait), late

    def recv(self, tensor, src=None, *_, **__):
        got, taken = self.wait_for(self.lines[src, self.own.rank].get)
        taken.set()
        tensor.copy_(got)

    def irecv(self, tensor, src=None, *_, **__):
        return mock.Mock(wait=lambda: self.recv(tensor, src))

    def all_reduce(self, tensor, *_, **__):
        self.box[self.own.rank] = tensor.detach().clone()
        self.wait_for(self.barrier.wait)
        total = sum(self.box)
        self.wait_for(self.barrier.wait)
        tensor.copy_(total)

    def run(self, function, **changed):
        """Return function(rank) of all workers; torch.distributed sends between them."""
        results, errors = [None] * self.n, []

        def work(rank):
            self.own.rank = rank
            with self.turn:
                try:
                    results[rank] = function(rank)
                except Exception as error:
                    errors.append(error)
                    self.barrier.abort()

        names = {n: getattr(self, n) for n in ("isend", "send", "irecv", "recv", "all_reduce")}
        names |= {"get_rank": lambda *_: self.own.rank, "get_world_size": lambda *_: self.n}
        with mock.patch.multiple(distributed, **names | changed):
            threads = [threading.Thread(target=work, args=(r,), daemon=True) for r in range(self.n)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if errors:
            raise errors[0]
        return results


def ring_mean(ring_mean):
    """One to four workers, one of which runs at a time, and how many numbers each sends."""

    def forbidden(*_, **__):
        raise AssertionError("build the ring from isend and recv, without all_reduce")

    lost = "change values in place, with copy_ and /=: a new tensor is lost"
    for n in (2, 3, 4, 1):
        given = torch.randint(-50, 50, (n, 3 * n)).double()
        held = [row.clone() for row in given]
        group = _Group(n)
        group.run(lambda rank, held=held: ring_mean(held[rank]), all_reduce=forbidden)
        mean = given.mean(0)
        right, total = [mean] * n, given.sum(0)
        wrong = {
            "divide the sum by the number of workers": [total] * n,
            "divide once, at the end": [mean / n] * n,
            lost: list(given),
            f"{lost} ": list(given / n),
        }
        reached = torch.stack(held).mul(n).sub(total).abs().min(0).values.max() < 1e-6
        if reached and not equal(held, right):
            wrong["go on for 2 (n - 1) rounds: each sum must reach every worker"] = held
        expect(held, right, f"the values of all {n} workers", wrong)
        numbers = {"send one part in each round, not all values": [2 * (n - 1) * 3 * n] * n}
        expect(group.sent, [2 * (n - 1) * 3] * n, f"how many numbers each of {n} sends", numbers)


def train_shared(train_shared, put_gradient):
    """One worker and two, whose gradients and losses are compared, and a layer of eight weights."""
    layer, flat = nn.Linear(3, 2), torch.arange(8.0)
    layer(torch.ones(3)).sum().backward()
    before = [w.detach().clone() for w in layer.parameters()]
    put_gradient(layer, flat)
    assert equal([*map(torch.Tensor.detach, layer.parameters())], before), (
        "write into the gradients, w.grad, not into the weights"
    )
    expect([w.grad for w in layer.parameters()], [flat[:6].view(2, 3), flat[6:]], "put_gradient")

    def trained(n):
        group, seen = _Group(n), [[] for _ in range(n)]

        def mean(flat):
            seen[group.own.rank].append(flat.clone())
            group.all_reduce(flat)
            flat /= n

        return group.run(lambda _: train_shared(3, 4, mean)), seen

    ([alone], [whole]), (losses, parts) = trained(1), trained(2)
    assert len(whole) == 3 and all(len(own) == 3 for own in parts), (
        "call mean(flat) once in each step"
    )
    if equal(parts[0][0], parts[1][0]):
        same = "take the own rows alone, ids.chunk(n)[own]"
        raise AssertionError(f"both workers have the gradient of the same rows: {same}")
    first = (parts[0][0] + parts[1][0]) / 2
    differ = "the workers draw different batches, or start from different models"
    assert equal(first, whole[0]), f"{differ}: seed with the number of the step, in all of them"
    expect(len(alone), 3, "the number of losses")
    for step in (1, 2):
        now = (parts[0][step] + parts[1][step]) / 2
        apart = "write the mean back with put_gradient, before the optimizer's step"
        assert equal(now, whole[step]), f"from step {step} on the workers' models differ: {apart}"
    own = "a worker returns the loss of its own rows: mean_of(loss) is that of the whole batch"
    expect(losses, [alone, alone], "three losses of two workers", {own: losses})
    rising = "gradients of earlier steps are left: zero_grad before backward"
    sizes = [float(w.norm()) for w in whole]
    assert sizes[2] < 1.6 * sizes[0], rising
