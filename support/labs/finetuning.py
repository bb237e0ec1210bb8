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


def _free(model):
    return sorted(name for name, w in model.named_parameters() if w.requires_grad)


def classifier(Classifier):
    """Two sentences, of two real tokens and of five."""
    body, ids, lengths = _bert(), torch.randint(7, (2, 5)), torch.tensor([2, 5])
    model, states = Classifier(body, 3), body(ids, lengths=lengths)
    real = states * (torch.arange(5) < lengths[:, None])[..., None]
    right = real.sum(1) / lengths[:, None]
    wrong = {
        "leave padding out of the mean": states.mean(1),
        "divide by the number of real tokens, not by T": real.mean(1),
        "take the mean of all real tokens, not the first state": states[:, 0],
    }
    expect(model.vectors(ids, lengths), right, "two real tokens and five", wrong)
    z = model.head(right)
    expect(model(ids, lengths), z, "the logits", {"return logits, without softmax": z.softmax(1)})


def train(train, Classifier):
    """Twenty steps on ten sentences in batches of three, the last one of one."""
    start, ids, labels = Classifier(_bert(), 3), torch.randint(7, (10, 4)), torch.randint(3, (10,))
    nn.init.normal_(start.head.weight, std=3.0)

    def losses(clip=1.0, warmup=2, zero=True):
        model, factor = copy.deepcopy(start), warmup_linear(warmup, 20)
        torch.manual_seed(3)
        optimizer = torch.optim.AdamW(model.parameters())
        steps = [rows for _ in range(5) for rows in torch.randperm(10).split(3)]
        for step, rows in enumerate(steps):
            optimizer.param_groups[0]["lr"] = 0.01 * factor(step)
            loss = F.cross_entropy(model(ids[rows], labels[rows] + 1), labels[rows])
            if zero:
                model.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            yield loss.item()

    wrong = {
        "clip the norm of the gradient to 1": [*losses(clip=torch.inf)],
        "warm up for a tenth of the steps": [*losses(warmup=0)],
        "call zero_grad in each step": [*losses(zero=False)],
    }
    got = train(model := copy.deepcopy(start).eval(), ids, labels + 1, labels, 0.01, 5, 3, 3)
    assert model.training, "call model.train(): dropout is on"
    expect(got, [*losses()], "the losses of twenty steps with seed 3", wrong)


def lora_linear(LoRALinear):
    """The output at the start, the size of A, and a random B."""
    linear, x = nn.Linear(4, 3), torch.randn(2, 5, 4)
    layer, old = LoRALinear(linear, 2), linear(x)
    assert layer.A.any(), "A = B = 0 never learns, since neither gets a gradient: make A random"
    assert not layer.B.any(), "start B at zero, or training does not start from the old layer"
    size, wrong = LoRALinear(nn.Linear(400, 3), 200).A.std().item(), {"divide A by the root": 1.0}
    expect(size, 0.05, "standard deviation of A with n_in = 400", wrong, 0.01)
    nn.init.normal_(layer.B)
    change = x @ layer.A.T @ layer.B.T
    wrong = {"add the change to the old layer's output": change}
    wrong["the scale of the change is 1, not 1 / rank"] = old + change / 2
    expect(layer(x), old + change, "W x + b + B A x", wrong)


def frozen(train_last, add_lora, Classifier, LoRALinear):
    """A BERT of three layers, with the last one free, and with LoRA."""
    model = train_last(Classifier(_bert(), 2), 1)
    names = sorted(name for name, _ in model.named_parameters())
    right = [n for n in names if n.startswith(("body.encoder.layers.2.", "head."))]
    wrong = {"freeze the body first": names}
    wrong["leave the head free: freeze model.body, not model"] = right[:-2]
    expect(_free(model), right, "the free weights with n_layers = 1", wrong)
    model = add_lora(Classifier(_bert(), 2), 2)
    new = [name for name, m in model.named_modules() if isinstance(m, LoRALinear)]
    wrong = {"LoRA belongs into model.body.encoder alone": 13}
    expect(len(new), 12, "how many layers have LoRA, of four in each BERT layer", wrong)
    right = sorted([*(f"{name}.{end}" for name in new for end in "AB"), "head.bias", "head.weight"])
    wrong = {"freeze the body before you add A and B, or they are frozen": right[-2:]}
    expect(_free(model), right, "the free weights with LoRA", wrong)


def merge(merge, LoRALinear):
    """A layer inside another module, with a random B."""
    model = nn.Sequential(nn.Sequential(layer := LoRALinear(nn.Linear(3, 3), 2)))
    nn.init.normal_(layer.B)
    W, change = layer.linear.weight.clone(), layer.B @ layer.A
    merge(model)
    assert model[0][0] is layer.linear, "put child.linear back, also inside other modules"
    wrong = {"add B @ A to the matrix, it does not replace it": change}
    wrong["add B @ A, which has the form of W, not its transpose"] = W + change.T
    expect(layer.linear.weight, W + change, "the merged matrix", wrong)
