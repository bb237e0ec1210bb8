"""The training loop: its steps are those of a loop by hand, and no mistake passes in silence."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from support.text.masking import PretrainingBatch
from support.training import fit, warmup_cosine, warmup_linear

X = torch.linspace(-1, 1, 24)[:, None]
Y = 3 * X - 2
BATCHES = list(zip(X.split(8), Y.split(8), strict=True))


def squares(model, batch):
    x, y = batch
    return F.mse_loss(model(x), y)


def line(**given):
    """Fit a line to 24 points in batches of 8; return the model and the history."""
    torch.manual_seed(0)
    model = given.pop("model", None) or nn.Linear(1, 1)
    given.setdefault("optimizer", torch.optim.SGD(model.parameters(), lr=0.1))
    options = {"batches": BATCHES, "loss_fn": squares, "epochs": 2, "device": "cpu"}
    return model, fit(model, **options | given)


def test_it_learns_a_line():
    model, history = line(epochs=60)
    assert abs(model.weight.item() - 3) < 1e-3 and abs(model.bias.item() + 2) < 1e-3
    assert len(history.losses) == len(history.learning_rates) == 180
    assert len(history.seconds) == 60 and history.losses[-1] < 1e-5 < history.losses[0]


def test_its_steps_are_those_of_a_loop_by_hand():
    torch.manual_seed(0)
    model = nn.Linear(1, 1).eval()
    groups = torch.optim.SGD([{"params": [model.weight]}, {"params": [model.bias]}], lr=0.1)
    _, history = line(model=model, optimizer=groups, schedule=warmup_linear(2, 6), clip_norm=0.7)
    assert model.training
    torch.manual_seed(0)
    twin, losses = nn.Linear(1, 1), []
    for step, (x, y) in enumerate(BATCHES * 2):
        losses.append(F.mse_loss(twin(x), y))
        grads = torch.autograd.grad(losses[-1], list(twin.parameters()))
        norm = torch.cat([grad.flatten() for grad in grads]).norm().item()
        rate = 0.1 * [0.5, 1, 1, 0.75, 0.5, 0.25][step]
        with torch.no_grad():
            for parameter, grad in zip(twin.parameters(), grads, strict=True):
                parameter -= rate * grad * min(1, 0.7 / norm)
    assert history.losses == pytest.approx([loss.item() for loss in losses], rel=1e-5)
    torch.testing.assert_close(model.weight, twin.weight)
    torch.testing.assert_close(model.bias, twin.bias)


def test_a_gradient_left_over_from_before_is_not_used():
    model = nn.Linear(1, 1)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    line(model=model)
    clean = model.weight.item()
    model.load_state_dict(start)
    (model(X).sum() * 1000).backward()
    line(model=model)
    assert model.weight.item() == clean


def test_only_what_is_trained_is_clipped():
    """A gradient that nothing resets, of a parameter that the optimizer leaves alone, grows."""
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD([model.bias], lr=1.0)
    before = model.bias.item()
    batches = [(X + 9, 100 * Y)]
    line(model=model, optimizer=optimizer, batches=batches, epochs=4, clip_norm=0.5)
    assert abs(model.bias.item() - before) == pytest.approx(4 * 0.5, abs=1e-4)


def test_batches_may_be_a_function_of_the_epoch():
    seen = []
    line(batches=lambda epoch: seen.append(epoch) or BATCHES, epochs=3)
    assert seen == [0, 1, 2]
    with pytest.raises(ValueError, match="epoch 1 has no batches"):
        line(batches=iter(BATCHES))


def test_named_batches_and_tensors_keep_their_form():
    batch = PretrainingBatch(*[torch.tensor([i]) for i in range(len(PretrainingBatch._fields))])

    def loss_fn(model, given):
        assert given._fields == batch._fields and given.ids.item() == 0
        return squares(model, BATCHES[0])

    line(batches=[batch], loss_fn=loss_fn)
    line(batches=[torch.cat([X, Y], 1)], loss_fn=lambda m, b: squares(m, b.split(1, 1)))


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        (warmup_linear(4, 8), [0.25, 0.5, 0.75, 1, 1, 0.75, 0.5, 0.25, 0, 0]),
        (warmup_linear(0, 4), [1, 0.75, 0.5, 0.25, 0, 0]),
        (warmup_linear(1, 2), [1, 1, 0]),
        (warmup_cosine(2, 6), [0.5, 1, 1, (2 + 2**0.5) / 4, 0.5, (2 - 2**0.5) / 4, 0, 0]),
        (warmup_cosine(0, 2, floor=0.2), [1, 0.6, 0.2, 0.2]),
    ],
)
def test_schedules(schedule, values):
    assert [schedule(step) for step in range(len(values))] == pytest.approx(values)


@pytest.mark.parametrize(("warmup", "total"), [(-1, 5), (5, 5), (0, 0)])
def test_schedules_without_a_fall(warmup, total):
    for make in (warmup_linear, warmup_cosine):
        with pytest.raises(ValueError, match=f"got {warmup} and {total}"):
            make(warmup, total)


def test_the_schedule_scales_the_learning_rate_of_every_group_and_gives_it_back():
    model = nn.Linear(1, 1)
    groups = [{"params": [model.weight], "lr": 0.2}, {"params": [model.bias], "lr": 0.4}]
    optimizer, seen = torch.optim.SGD(groups), []
    optimizer.register_step_pre_hook(
        lambda opt, *_: seen.append([group["lr"] for group in opt.param_groups])
    )
    _, history = line(model=model, optimizer=optimizer, schedule=warmup_linear(2, 6))
    factors = [0.5, 1, 1, 0.75, 0.5, 0.25]
    assert seen == [pytest.approx([0.2 * factor, 0.4 * factor]) for factor in factors]
    assert history.learning_rates == pytest.approx([0.2 * factor for factor in factors])
    _, history = line(model=model, optimizer=optimizer)
    assert set(history.learning_rates) == {0.2}, "it does not go on where the schedule ended"
    optimizer.param_groups[0]["lr"] = 0.05
    _, history = line(model=model, optimizer=optimizer)
    assert set(history.learning_rates) == {0.05}, "it starts where the caller says"


def test_bfloat16_is_used_in_products_and_not_in_weights():
    kinds = []

    def loss_fn(model, batch):
        kinds.append(model(batch[0]).dtype)
        return squares(model, batch)

    model, _ = line(loss_fn=loss_fn, bf16=True)
    line(loss_fn=loss_fn)
    assert kinds == [torch.bfloat16] * 6 + [torch.float32] * 6
    assert model.weight.dtype == torch.float32


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_named_and_not_learned_from(bad):
    model, losses = nn.Linear(1, 1), iter([1, 1, bad])

    def loss_fn(model, batch):
        loss_fn.before = model.weight.item()
        return squares(model, batch) * next(losses)

    with pytest.raises(FloatingPointError, match=f"step 2 is {bad}"):
        line(model=model, loss_fn=loss_fn)
    assert model.weight.item() == loss_fn.before
