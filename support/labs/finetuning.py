"""The lab on fine-tuning: a classifier on a body, its loop, and LoRA."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from support.labs import expect
from support.models import bert
from support.training import warmup_linear


def _bert():
    sizes = {"d_model": 8, "n_layers": 3, "n_heads": 2, "d_ff": 12, "max_length": 6}
    return bert.Bert(bert.BertConfig(7, dropout=0.0, attention_dropout=0.0, **sizes))


def _check_free(model, right, where, mistakes):
    useless = any("requires_grad" in vars(module) for module in model.modules())
    assert not useless, "requires_grad = … on a module does nothing: call requires_grad_(…)"
    free = {name for name, w in model.named_parameters() if w.requires_grad}
    named = "".join(f"{name}. " for name, wrong in mistakes.items() if free == set(wrong))
    for names, what in ((free - {*right}, "frozen"), ({*right} - free, "free")):
        assert not names, f"{named}{where}: to be {what}: {', '.join(sorted(names))}"


def classifier(Classifier):
    """Two sentences, of two real tokens and of five."""
    body, ids, lengths = _bert(), torch.randint(7, (2, 5)), torch.tensor([2, 5])
    model, states, blind = Classifier(body, 3), body(ids, lengths=lengths), body(ids)
    real = (torch.arange(5) < lengths[:, None])[..., None]
    right, more = (states * real).sum(1) / lengths[:, None], torch.tensor([3, 5])[:, None]
    wrong = {
        "leave padding out of the mean": states.mean(1),
        "divide by the number of real tokens, not by T": (states * real).mean(1),
        "divide by the number of real tokens": (states * real).sum(1),
        "take the mean of all real tokens, not the first state": states[:, 0],
        "hand lengths to the body": (blind * real).sum(1) / lengths[:, None],
        "real are the positions < lengths, not <=": (states.cumsum(1)[[0, 1], [2, 4]]) / more,
    }
    expect(model.vectors(ids, lengths), right, "two real tokens and five", wrong)
    one = isinstance(model.head, nn.Linear) and model.head.bias is not None
    assert one, "head is a single nn.Linear, with a bias"
    z = model.head(right)
    expect(model(ids, lengths), z, "the logits", {"return logits, without softmax": z.softmax(1)})


def train(train, Classifier):
    """Twenty steps on ten sentences in batches of three, the last one of one."""
    start, ids, labels = Classifier(_bert(), 3), torch.randint(7, (10, 4)), torch.randint(3, (10,))
    nn.init.normal_(start.head.weight, std=3.0)

    def losses(
        factor=warmup_linear(2, 20), limit=1.0, zero=True, head=False, once=False, **options
    ):
        model, said, clip = copy.deepcopy(start), [], nn.utils.clip_grad_norm_
        torch.manual_seed(3)
        optimizer = torch.optim.AdamW((model.head if head else model).parameters(), **options)
        order = [torch.randperm(10).split(3) for _ in range(5)]
        for step, rows in enumerate(rows for epoch in order for rows in order[0] * once or epoch):
            optimizer.param_groups[0]["lr"] = 0.01 * factor(step)
            loss = F.cross_entropy(model(ids[rows], labels[rows] + 1), labels[rows])
            if zero:
                model.zero_grad()
            loss.backward()
            clip(model.parameters(), limit)
            optimizer.step()
            said.append(loss.item())
        return said

    got = train(model := copy.deepcopy(start).eval(), ids, labels + 1, labels, 0.01, 5, 3, 3)
    assert model.training, "call model.train(): dropout is on"
    number = len(got) if isinstance(got, list) else got
    expect(number, 20, "a list of losses, one a step: five epochs of 3 + 3 + 3 + 1 sentences")
    right, factor = losses(), warmup_linear(2, 20)
    wrong = {
        "clip the norm of the gradient to 1, between backward and step": losses(limit=torch.inf),
        "warm up for a tenth of the steps": losses(warmup_linear(0, 20)),
        "call zero_grad in each step": losses(zero=False),
        "AdamW has a weight decay: leave it as it is": losses(weight_decay=0.0),
        "train all that is not frozen, not the head alone": losses(head=True),
        "seed once, and draw a new permutation in each epoch": losses(once=True),
        "set the learning rate to lr * factor(s) before each step": losses(lambda step: 1),
        "the steps count from 0": losses(lambda step: factor(step + 1)),
        "the learning rate is lr * factor(s)": losses(lambda step: 100 * factor(step)),
    }
    for n in (5, 10, 15, 50):
        wrong[f"n is the number of all steps, 20, not {n}"] = losses(warmup_linear(n // 10, n))
    expect(got[0], right[0], "the first loss; seed with 3, then take the first rows of randperm")
    expect(got, right, "the losses of twenty steps with seed 3", wrong)


def lora_linear(LoRALinear):
    """The output at the start, the size of A, and a random B."""
    linear, x = nn.Linear(4, 3), torch.randn(2, 5, 4)
    layer, old = LoRALinear(linear, 2), linear(x)
    assert layer.linear is linear, "keep the old layer as it was given: self.linear = linear"
    both = isinstance(layer.A, nn.Parameter) and isinstance(layer.B, nn.Parameter)
    assert both, "A and B are an nn.Parameter each, no layers and no plain tensors"
    expect([*layer.A.shape, *layer.B.shape], [2, 4, 3, 2], "A (rank, n_in) and B (n_out, rank)")
    assert layer.A.any() or not layer.B.any(), "A is random and B is zero, not the other way round"
    assert layer.A.any(), "A = B = 0 never learns, since neither gets a gradient: make A random"
    assert not layer.B.any(), "start B at zero, or training does not start from the old layer"
    size, wrong = LoRALinear(nn.Linear(400, 3), 200).A.std().item(), {"divide A by the root": 1.0}
    expect(size, 0.05, "standard deviation of A with n_in = 400", wrong, 0.01)
    nn.init.normal_(layer.B)
    change = x @ layer.A.T @ layer.B.T
    wrong = {"add the change to the old layer's output": change}
    wrong["the scale of the change is 1, not 1 / rank"] = old + change / 2
    expect(layer(x), old + change, "W x + b + B A x", wrong)
    expect(linear(x), old, "the old layer's output after a call of the new one")


def frozen(train_last, add_lora, Classifier, LoRALinear):
    """A BERT of three layers, with the last one free, and with LoRA."""
    start, ids, lengths = Classifier(_bert(), 2), torch.randint(7, (2, 5)), torch.tensor([2, 5])
    names, head = [name for name, _ in start.named_parameters()], ["head.weight", "head.bias"]
    for n, layers in ((1, "2"), (2, "12")):
        right = [w for w in names for i in layers if w.startswith(f"body.encoder.layers.{i}.")]
        wrong = {"freeze the body first": names}
        wrong["leave the head free: freeze model.body, not model"] = right
        wrong["free all of layers[-n_layers:], not only one"] = right[: len(right) // 2] + head
        model = train_last(copy.deepcopy(start), n)
        _check_free(model, right + head, f"n_layers = {n}", wrong)
    model = add_lora(copy.deepcopy(start), 2)
    new = {name: m for name, m in model.named_modules() if isinstance(m, LoRALinear)}
    wrong = {"LoRA belongs into model.body.encoder alone": 13}
    wrong["put the new layer in with setattr; go on into all other children"] = 0
    expect(len(new), 12, "how many layers have LoRA, of four in each BERT layer", wrong)
    right = [*(f"{name}.{end}" for name in new for end in "AB"), *head]
    wrong = {"freeze the body before you add A and B, or they are frozen": head}
    _check_free(model, right, "with LoRA", wrong)
    expect({len(layer.A) for layer in new.values()}, {2}, "add_lora(model, 2): hand rank on")
    old = start(ids, lengths)
    for name, layer in new.items():
        nn.init.normal_(layer.B)
        start.get_submodule(name).weight.data += layer.B @ layer.A
    wrong = {"LoRA never runs: call setattr on the parent of the child, with its own name": old}
    expect(model(ids, lengths), start(ids, lengths), "the logits with LoRA and a random B", wrong)


def merge(merge, LoRALinear):
    """A layer inside another module, with a random B."""
    model = nn.Sequential(nn.Sequential(layer := LoRALinear(nn.Linear(3, 3), 2)))
    nn.init.normal_(layer.B)
    W, change = layer.linear.weight.clone(), layer.B @ layer.A
    merge(model)
    back = "of each LoRALinear put child.linear back, also inside other modules"
    assert model[0][0] is layer.linear, back
    wrong = {"add B @ A to the matrix, it does not replace it": change}
    wrong["add B @ A, which has the form of W, not its transpose"] = W + change.T
    expect(layer.linear.weight, W + change, "the merged matrix", wrong)
