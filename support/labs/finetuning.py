"""The lab on fine-tuning: a classifier on a body, its loop, and LoRA."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from support.labs import brief, expect
from support.models import bert
from support.training import warmup_linear


def _bert():
    return bert.Bert(bert.BertConfig(7, 8, 3, 2, 12, 6, dropout=0.0, attention_dropout=0.0))


def _check_free(model, right, where):
    for module in model.modules():
        assert "requires_grad" not in vars(module), (
            "on a module, requires_grad = does nothing: call requires_grad_"
        )
    free = {name for name, w in model.named_parameters() if w.requires_grad}
    for names, what in ((free - {*right}, "frozen"), ({*right} - free, "free")):
        assert not names, f"{where}: these should be {what}: {brief(sorted(names))}"


def classifier(Classifier):
    """Two sentences, of two real tokens and of five.

    real: torch.arange(T) < lengths[:, None], not <=, nor ids != 0, with [CLS] and [SEP];
    real[..., None] times states; the sum over dimension 1 alone, divided by lengths[:, None]; a
    tensor (B, d_model), no list; logits as they are
    """
    body, ids, lengths = _bert(), torch.arange(10).view(2, 5) % 7, torch.tensor([2, 5])
    model, states, blind = Classifier(body, 3), body(ids, lengths=lengths), body(ids)
    real = (torch.arange(5) < lengths[:, None])[..., None]
    right = (states * real).sum(1) / lengths[:, None]
    wrong = {
        "leave padding out of the mean": states.mean(1),
        "divide by the number of real tokens, not by T": (states * real).mean(1),
        "divide by the number of real tokens": (states * real).sum(1),
        "take the mean of all real tokens, not the first state": states[:, 0],
        "hand lengths to the body": (blind * real).sum(1) / lengths[:, None],
    }
    expect(model.vectors(ids, lengths), right, "two real tokens and five", wrong)
    assert model.vectors(ids, lengths).grad_fn, "the body is trained, too: no detach or no_grad"
    assert getattr(model.head, "bias", None) is not None, "head is one nn.Linear, with a bias"
    expect(model(ids, lengths), model.head(right), "the logits, without softmax")


def train(train, Classifier):
    """Twenty steps on ten sentences in batches of three, the last one of one.

    torch.manual_seed(seed), then at once randperm; one AdamW, made before the epochs, of the
    weights that are free already: train frees and freezes none; F.cross_entropy, a mean; zero_grad
    before backward; n, the number of all steps, and n // 10; s, from 0 through all epochs; lr *
    factor(s), of the lr given, before each step; one clip_grad_norm_ of all weights together
    """
    start, ids, labels = Classifier(_bert(), 3), torch.randint(7, (10, 4)), torch.randint(3, (10,))
    nn.init.normal_(start.head.weight, std=3.0)
    start.body.encoder.layers[0].requires_grad_(False)
    torch.manual_seed(3)
    rate, epochs = warmup_linear(2, 20), [torch.randperm(10).split(3) for _ in range(5)]

    def losses(rate=rate, limit=1.0, clear=nn.Module.zero_grad, epochs=epochs, **options):
        model = copy.deepcopy(start)
        optimizer = torch.optim.AdamW(model.parameters(), **options)
        for step, rows in enumerate(sum(epochs, ())):
            optimizer.param_groups[0]["lr"] = 0.01 * rate(step)
            loss = F.cross_entropy(model(ids[rows], labels[rows] + 1), labels[rows])
            clear(model)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), limit)
            optimizer.step()
            yield loss.item()

    got = train(model := copy.deepcopy(start).eval(), ids, labels + 1, labels, 0.01, 5, 3, 3)
    assert model.training, "call model.train(): dropout is on"
    length = sum(isinstance(loss, float) for loss in got)
    expect(length, 20, "a list of numbers: one loss a step of size=3 rows, small last batches too")
    wrong = {
        "clip the norm of the gradient to 1, between backward and step": {"limit": torch.inf},
        "warm up for a tenth of the steps": {"rate": warmup_linear(0, 20)},
        "call zero_grad in each step": {"clear": lambda model: None},
        "AdamW has a weight decay: leave it as it is": {"weight_decay": 0.0},
        "seed once, and draw a new permutation in each epoch": {"epochs": epochs[:1] * 5},
        "set the learning rate to lr * factor(s) before each step": {"rate": lambda step: 1},
        "n counts the small last batches, too": {"rate": warmup_linear(1, 15)},
    }
    wrong, right = {name: [*losses(**how)] for name, how in wrong.items()}, [*losses()]
    expect(got[0], right[0], "the first loss; seed with 3, permute ids, lengths and labels alike")
    expect(got, right, "the losses of twenty steps with seed 3", wrong)


def lora_linear(LoRALinear):
    """The output at the start, the size of A, and a random B.

    torch.randn for A, divided by math.sqrt(n_in), where linear.weight is (n_out, n_in); as
    vectors are rows of x, both matrices transposed, A first; the sum with self.linear(x), weight
    and bias, neither of which changes
    """
    linear, x = nn.Linear(4, 3), torch.randn(2, 5, 4)
    layer, old = LoRALinear(linear, 2), linear(x)
    assert layer.linear is linear, "keep the old layer as it was given: self.linear = linear"
    assert {"A", "B"} <= {*layer._parameters}, "A and B are an nn.Parameter each"
    expect([*layer.A.shape, *layer.B.shape], [2, 4, 3, 2], "A (rank, n_in) and B (n_out, rank)")
    assert layer.A.any(), "A is random, B alone is zero: with A = B = 0 nothing is learned"
    assert not layer.B.any(), "start B at zero, or training does not start from the old layer"
    size = LoRALinear(nn.Linear(400, 3), 200).A.std().item()
    wrong = {"divide A by the root of n_in": 1.0}
    expect(size, 0.05, "standard deviation of A with n_in = 400", wrong, 0.01)
    nn.init.normal_(layer.B)
    change = x @ layer.A.T @ layer.B.T
    expect(layer(x), old + change, "W x + b + B A x, not divided by the rank")
    expect(linear(x), old, "the old layer's output after a call of the new one")
    layer(x).sum().backward()
    assert all(w.grad is not None for w in (layer.A, layer.B)), "A and B learn: no detach, no data"


def frozen(train_last, add_lora, Classifier, LoRALinear):
    """A BERT of three layers, with the last one free, and with LoRA.

    both return the model; replace: named_children(); where child is an nn.Linear, setattr of
    module, with a new LoRALinear of this rank; else replace(child, rank), so that no LoRALinear
    is entered; called with the encoder, whose layers have attention and feed-forward network,
    without pooler and head
    """
    start, ids, lengths = Classifier(_bert(), 2), torch.randint(7, (2, 5)), torch.tensor([2, 5])
    names, head = [name for name, _ in start.named_parameters()], ["head.weight", "head.bias"]
    for n, layers in ((1, "2"), (2, "12")):
        right = [w for w in names for i in layers if w.startswith(f"body.encoder.layers.{i}.")]
        _check_free(train_last(copy.deepcopy(start), n), right + head, f"the last {n}")
    model = add_lora(copy.deepcopy(start), 2)
    new = {name: m for name, m in model.named_modules() if isinstance(m, LoRALinear)}
    expect(len(new), 12, "LoRA, put in with setattr: four in each layer of the encoder alone")
    head += [f"{name}.{end}" for name in new for end in "AB"]
    _check_free(model, head, "LoRA, the body frozen first")
    expect({len(layer.A) for layer in new.values()}, {2}, "add_lora(model, 2): hand rank on")
    wrong = {"LoRA never runs: call setattr on the parent of each child": start(ids, lengths)}
    for name, layer in new.items():
        nn.init.normal_(layer.B)
        start.get_submodule(name).weight.data += layer.B @ layer.A
    expect(model(ids, lengths), start(ids, lengths), "the logits with LoRA and a random B", wrong)


def merge(merge, LoRALinear):
    """A layer inside another module, with a random B.

    child.B @ child.A, in this order, added once, with +=, to the data of child.linear.weight; for
    each child that is a LoRALinear, at any depth; then child.linear set in its place, by its name
    """
    model = nn.Sequential(nn.Sequential(layer := LoRALinear(nn.Linear(3, 3), 2)))
    nn.init.normal_(layer.B)
    W, change = layer.linear.weight.clone(), layer.B @ layer.A
    merge(model)
    assert model[0][0] is layer.linear, (
        "in module itself, no copy, put back child.linear for each LoRALinear, at any depth"
    )
    wrong = {"add B @ A to the matrix, it does not replace it": change}
    wrong["add B @ A, which has the form of W, not its transpose"] = W + change.T
    expect(layer.linear.weight, W + change, "the merged matrix", wrong)
