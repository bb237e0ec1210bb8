"""The lab on training with several workers: memory, accumulation, the ring, shared batches."""

import threading
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from unittest import mock

import torch
from torch import distributed, nn
from torch.nn import functional as F

from support.labs import equal, expect


def memory(held_bytes, largest_model):
    """A layer with AdamW, another that is frozen; eight workers without and with FSDP.

    held_bytes: nbytes (2 for a float16 number) of all weights of model, frozen ones, too; of
    gradients that are not None; of what optimizer.state has for a weight, if anything, but scalars.
    largest_model: memory minus activations, both of one worker; over 16; times workers with fsdp
    """
    model = nn.ModuleList((nn.Linear(3, 2).float(), nn.Linear(3, 3).half().requires_grad_(False)))
    optimizer = torch.optim.AdamW(model[0].parameters())
    model[0](torch.ones(3).float()).sum().backward()
    optimizer.step()
    wrong = {"count bytes, not numbers": 44, "leave out scalars: they count steps": 168}
    expect(held_bytes(model, optimizer), 152, "8 numbers with AdamW, 12 frozen in float16", wrong)
    wrong = {"each worker holds activations: subtract them before you multiply": 11.75e9}
    for fsdp, right in ((True, 10e9), (False, 1.25e9)):
        expect(float(largest_model(24e9, 4e9, 8, fsdp)), right, f"8 of 24 GB, {fsdp=}", wrong)


def accumulate(accumulate, accumulate_padded):
    """Three pieces, and two with padding, after an older gradient.

    model.zero_grad() once, before the loop; ids.chunk(pieces), not split, along dim 0; each loss
    divided by pieces. Padded: n counts targets != -100, 0 too, in all pieces, before the loop; all
    T logits with all T targets; each sum divided by n, then backward; return the total, a float
    """
    model, ids, none = nn.Embedding(5, 5), torch.randint(5, (6, 4)), []

    def gradient(x, y):
        return torch.autograd.grad(F.cross_entropy(model(x).mT, y), model.weight)[0]

    right, model.weight.grad = gradient(ids[:, :-1], ids[:, 1:]), torch.ones(5, 5)
    model.register_forward_hook(lambda *_: none.append(model.weight.grad is None))
    accumulate(model, ids, 3)
    wrong = {"an older gradient is left: begin with model.zero_grad()": right + 1}
    wrong["divide each loss by the number of pieces"] = 3 * right
    expect(model.weight.grad, right, "6 sequences in 3 pieces", wrong)
    x, y = torch.tensor([[3, 1, 2], [3, 4, 0]]), torch.tensor([[1, 2, 0], [3, -100, -100]])
    late, pieces, right = none[-1], [*zip(x.split(1), y.split(1), strict=True)], gradient(x, y)
    wrong = {"divide by the tokens of all pieces": sum(gradient(*p) for p in pieces) / 2}
    wrong["do not count padding: only targets that are not -100"] = right * 4 / 6
    loss = accumulate_padded(model, pieces)
    expect(model.weight.grad, right, "pieces of 3 tokens and 1", wrong)
    assert not (late or none[-1]), "call backward after each piece, or all activations are kept"
    expect((type(loss), loss), (float, F.cross_entropy(model(x).mT, y).item()), "the loss returned")


def recompute(loss_by_layers, new_model):
    """Loss and gradient against the model's own, and in which order the layers run.

    tokens(ids[:, :-1]) plus positions; x = layer(x, is_causal=True), or x = checkpoint(layer, x,
    is_causal=True, use_reentrant=False) with again, for each layer; final_norm before the logits
    """
    model, ids = new_model(), torch.randint(1_024, (2, 33))
    right = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    own = torch.autograd.grad(right, model.tokens.weight)
    for i, layer in enumerate(model.layers):
        layer.register_forward_pre_hook(lambda *_, i=i: runs.append(i))
    for again, name in enumerate(("without again, no checkpoint", "with again, use checkpoint")):
        runs, orders = [], ([0, 1], [0, 1, 1, 0])
        expect(loss := loss_by_layers(model, ids, bool(again)), right, f"the loss, {again=}")
        expect(torch.autograd.grad(loss, model.tokens.weight), own, f"gradient, {again=}")
        expect(runs, orders[again], f"the layers that ran, {again=}", {name: orders[not again]})


def ring_mean(ring_mean):
    """Three workers as threads, which can only send and receive.

    chunk(n), not split(n); first send, then receive, by isend and recv alone; part (own - step) % n
    goes to the right, part (own - 1 - step) % n comes from the left: add it in the first n - 1
    rounds, then replace, step counted on; nobody collects; change values itself
    """
    given, sent, came, waits = torch.randint(-50, 50, (3, 12)).double(), [0] * 3, [0] * 3, []
    held, lines = [*given.clone()], {(a, b): Queue() for a in range(3) for b in range(3)}

    def isend(tensor, to, *_):
        own = distributed.get_rank()
        sent[own] += tensor.numel()
        lines[own, to].put(tensor.clone())
        return mock.Mock(wait=lambda *_, n=sent[own]: waits.append(came[own] >= n))

    def recv(tensor, sender, *_):
        tensor.copy_(lines[sender, distributed.get_rank()].get(timeout=3))
        came[distributed.get_rank()] += tensor.numel()

    fake = {"get_rank": lambda: int(threading.current_thread().name[-1]), "isend": isend}
    fake |= {"get_world_size": lambda: 3, "recv": recv}
    with mock.patch.multiple(distributed, **fake), ThreadPoolExecutor(3) as pool:
        [*pool.map(lambda _: ring_mean(held[distributed.get_rank()]), range(3))]
    wrong = {"divide by n at the end, in place: values /= n": given.sum(0).expand(3, 12)}
    wrong["change values in place: a new tensor is lost"] = given / 3
    expect(torch.stack(held), given.mean(0).expand(3, 12), "the values of all workers", wrong)
    expect(sent, [16] * 3, "numbers sent", {"send one part in each round, not all": [24] * 3})
    assert waits and all(waits), "call .wait() on what isend returns, but after recv"


def train_shared(train_shared):
    """One worker and two, whose gradients, steps and losses are compared.

    call the argument mean, not ring_mean, once a step, on gradient(model): it returns nothing;
    write the mean back with put_gradient, by w.grad.copy_ or w.grad =, each weight's own numbers,
    in order; AdamW with lr=0.001 steps after that; note mean_of(loss), the loss before the step
    """

    def trained(rank, n, means=None):
        def mean(flat):
            seen.append(flat.clone())
            flat.copy_(means[len(seen) - 1] if means else flat)

        def step(optimizer, *_):
            group = optimizer.param_groups[0]
            assert group.setdefault("first", not steps), "make AdamW once, before the loop"
            steps.append((group["lr"], torch.cat([w.grad.flatten() for w in group["params"]])))
            group["params"][0].data *= torch.nan if len(steps) == 3 else 1  # no loss after the last

        seen, steps, fake = [], [], {"get_rank": lambda: rank, "get_world_size": lambda: n}
        # The other worker has a loss of 1, and other random numbers.
        fake["all_reduce"] = lambda total: (total.add_(n - 1), torch.manual_seed(rank))
        with mock.patch.multiple(distributed, **fake), mock.patch("torch.optim.AdamW.step", step):
            return train_shared(3, 4, mean), seen, steps

    losses, whole, _ = trained(0, 1)
    (first, a, steps), (second, b, _) = trained(0, 2, whole), trained(1, 2, whole)
    assert not equal(a, b), "call mean on the gradient of the own rows alone, ids.chunk(n)[own]"
    means = [(x + y) / 2 for x, y in zip(a, b, strict=True)]
    expect(steps, [(0.001, flat) for flat in whole], "rates and gradients in the steps of AdamW")
    assert equal(means, whole), "seed each step with step, in all workers; rows: chunk(n)[own]"
    assert whole[2].norm() < 1.6 * whole[0].norm(), "gradients add up: zero_grad before backward"
    got = [x + y - 1 for x, y in zip(first, second, strict=True)]
    expect(got, losses, "the losses of the whole batch before each step, by mean_of(loss)")
