"""The lab on training with several workers: memory, accumulation, the ring, shared batches."""

import threading
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, Queue
from unittest import mock

import torch
from torch import distributed, nn
from torch.nn import functional as F

from support.labs import equal, expect


def memory(held_bytes, largest_model):
    """A layer with AdamW; eight workers with FSDP."""
    model = nn.Linear(3, 2).float()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(3).float()).sum().backward()
    optimizer.step()
    steps = sum(state["step"].nbytes for state in optimizer.state.values())
    wrong = {"count bytes, not numbers": 32, "leave out scalars: they count steps": 128 + steps}
    expect(held_bytes(model, optimizer), 128, "a layer of 8 with AdamW", wrong)
    wrong = {"each worker holds activations: subtract them before you multiply": 11.75e9}
    expect(float(largest_model(24e9, 4e9, 8, True)), 10e9, "8 of 24 GB, FSDP", wrong)


def accumulate(accumulate, accumulate_padded):
    """Three pieces, and two with padding, after an older gradient."""
    model, ids, none = nn.Embedding(5, 5), torch.randint(5, (6, 4)), []

    def gradient(x, y):
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        return torch.autograd.grad(loss, model.weight)[0]

    right, model.weight.grad = gradient(ids[:, :-1], ids[:, 1:]), torch.ones(5, 5)
    model.register_forward_hook(lambda *_: none.append(model.weight.grad is None))
    accumulate(model, ids, 3)
    assert not none[-1], "call backward for each piece at once, or all activations are kept"
    wrong = {"an older gradient is left: begin with model.zero_grad()": right + 1}
    wrong["divide each loss by the number of pieces"] = 3 * right
    expect(model.weight.grad, right, "6 sequences in 3 pieces", wrong)
    x, y = ids[:2, :3], torch.tensor([[1, 2, 4], [3, -100, -100]])
    pieces, right = [*zip(x.split(1), y.split(1), strict=True)], gradient(x, y)
    wrong = {"divide by the tokens of all pieces": sum(gradient(*p) for p in pieces) / 2}
    wrong["do not count padding: only targets that are not -100"] = right * 4 / 6
    accumulate_padded(model, pieces)
    expect(model.weight.grad, right, "pieces of 3 tokens and 1", wrong)


def recompute(loss_by_layers, new_model):
    """Loss and gradient against the model's own, and how often a layer runs."""
    model, runs, ids = new_model(), [], torch.randint(1_024, (2, 33))
    right = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    own = torch.autograd.grad(right, model.tokens.weight)
    model.layers[0].register_forward_pre_hook(lambda *_: runs.append(1))
    for again, name in enumerate(("call the layer itself", "with again, use checkpoint")):
        expect(loss := loss_by_layers(model, ids, bool(again)), right, f"the loss, again={again}")
        expect(torch.autograd.grad(loss, model.tokens.weight), own, f"gradient, again={again}")
        expect(len(runs), 1 + 2 * again, f"runs of a layer, again={again}", {name: 2})


def ring_mean(ring_mean):
    """Three workers as threads, which can only send and receive."""
    given, sent = torch.randint(-50, 50, (3, 9)).double(), []
    held, lines = [*given.clone()], {(a, b): Queue() for a in range(3) for b in range(3)}

    def isend(tensor, to, *_):
        sent.append(tensor.numel())
        lines[distributed.get_rank(), to].put(tensor.clone())
        return mock.Mock()

    def recv(tensor, sender, *_):
        try:
            tensor.copy_(lines[sender, distributed.get_rank()].get(timeout=3))
        except Empty as error:
            raise AssertionError("nobody sends: first send, then receive") from error

    fake = {"get_rank": lambda: int(threading.current_thread().name[-1]), "isend": isend}
    fake |= {"get_world_size": lambda: 3, "recv": recv}
    with mock.patch.multiple(distributed, **fake), ThreadPoolExecutor(3) as pool:
        [*pool.map(lambda _: ring_mean(held[distributed.get_rank()]), range(3))]
    wrong = {"divide the sum by the number of workers": given.sum(0).expand(3, 9)}
    wrong["change values in place: a new tensor is lost"] = given / 3
    expect(torch.stack(held), given.mean(0).expand(3, 9), "the values of all workers", wrong)
    expect(sum(sent), 36, "numbers sent", {"send one part in each round, not all values": 54})


def train_shared(train_shared):
    """One worker and two, whose gradients and losses are compared."""

    def trained(rank, n, means=None):
        def mean(flat):
            seen.append(flat.clone())
            flat.copy_(means[len(seen) - 1] if means else flat)

        seen, fake = [], {"get_rank": lambda: rank, "get_world_size": lambda: n}
        fake["all_reduce"] = lambda total: total.add_(n - 1)  # the other has a loss of 1
        with mock.patch.multiple(distributed, **fake):
            return train_shared(3, 4, mean), seen

    losses, whole = trained(0, 1)
    (first, a), (second, b) = trained(0, 2, whole), trained(1, 2, whole)
    assert not equal(a, b), "call mean on the gradient of the own rows alone, ids.chunk(n)[own]"
    means = [(x + y) / 2 for x, y in zip(a, b, strict=True)]
    assert equal(means[0], whole[0]), "the workers draw different batches: seed all with the step"
    assert equal(means, whole), "write the mean back with put_gradient, before the optimizer's step"
    assert whole[2].norm() < 1.6 * whole[0].norm(), "gradients add up: zero_grad before backward"
    got = [x + y - 1 for x, y in zip(first, second, strict=True)]
    expect(got, losses, "the losses of the whole batch, by mean_of(loss)")
