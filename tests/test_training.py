"""The training loop: it learns, it repeats itself bit for bit, and it says what cannot be meant."""

import copy
import json
import math
import os
import socket
import subprocess
import sys
import time
from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.killed_run import X, Y, squares
from torch import nn
from torch.nn import functional as F
from transformers import BatchEncoding

from support import training
from support.training import History, fit, warmup_cosine, warmup_linear
from tests import in_processes


@pytest.fixture(autouse=True)
def smoke(monkeypatch):
    monkeypatch.setenv("PRETRAIN_PROFILE", "smoke")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so small are these models that threads only wait for each other
    yield
    torch.set_num_threads(threads)


def line(**given):
    """Fit a line to 24 points on a line, in batches of 8; return the model and the history."""
    torch.manual_seed(0)
    model = given.pop("model") if "model" in given else nn.Linear(1, 1)
    batches = given.pop("batches", list(zip(X.split(8), Y.split(8), strict=True)))
    loss_fn = given.pop("loss_fn", squares)
    if "optimizer" not in given:
        given["optimizer"] = torch.optim.SGD(model.parameters(), lr=0.1)
    history = fit(model, batches, loss_fn, **{"epochs": 2, **given})
    return model, history


def test_it_learns_a_line():
    model, history = line(epochs=60)
    assert abs(model.weight.item() - 3) < 1e-3 and abs(model.bias.item() + 2) < 1e-3
    assert len(history.losses) == len(history.learning_rates) == 180
    assert len(history.epoch_losses) == len(history.seconds) == len(history.items) == 60
    assert history.epoch_losses[1] == pytest.approx(sum(history.losses[3:6]) / 3)
    assert history.epoch_losses[-1] < 1e-5 < history.epoch_losses[0]
    assert history.items == [24] * 60
    assert history.items_per_second == pytest.approx(60 * 24 / sum(history.seconds))
    assert set(history.learning_rates) == {0.1}
    assert History().items_per_second == 0


def test_its_steps_are_those_of_a_loop_by_hand():
    model, history = line(epochs=2)
    torch.manual_seed(0)
    twin, losses = nn.Linear(1, 1), []
    for _ in range(2):
        for x, y in zip(X.split(8), Y.split(8), strict=True):
            loss = F.mse_loss(twin(x), y)
            grads = torch.autograd.grad(loss, list(twin.parameters()))
            with torch.no_grad():
                for parameter, grad in zip(twin.parameters(), grads, strict=True):
                    parameter -= 0.1 * grad
            losses.append(loss.item())
    assert history.losses == pytest.approx(losses, rel=1e-5)
    torch.testing.assert_close(model.weight, twin.weight)


def test_a_gradient_left_over_from_before_is_not_used():
    model = nn.Linear(1, 1)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    line(model=model, epochs=1)
    clean = model.weight.item()
    model.load_state_dict(start)
    (model(X).sum() * 1000).backward()
    line(model=model, epochs=1)
    assert model.weight.item() == clean


@dataclass(frozen=True)
class Pair:
    x: object
    y: object


Named = namedtuple("Named", "x y")


def floats(texts):
    return torch.tensor([[float(number) for number in text.split()] for text in texts])


# How a batch is made of x and y, and how x and y are taken out of it again.
FORMS = {
    "tuple": (lambda x, y: (x, y), lambda batch: batch),
    "list": (lambda x, y: [x, y], lambda batch: batch),
    "named tuple": (Named, lambda batch: (batch.x, batch.y)),
    "dictionary": (lambda x, y: {"x": x, "y": y}, lambda batch: batch.values()),
    "BatchEncoding": (
        lambda x, y: BatchEncoding({"texts": ["a"] * 9, "x": x, "y": y}),
        lambda batch: (batch["x"], batch["y"]),
    ),
    "dataclass": (Pair, lambda batch: (batch.x, batch.y)),
    "tensor": (lambda x, y: torch.cat([x, y], 1), lambda batch: batch.split(1, 1)),
    "NumPy arrays": (lambda x, y: (x.numpy(), y.numpy()), lambda batch: batch),
    "nested": (
        lambda x, y: {"scale": torch.tensor(1.0), "pair": ("a remark", Pair(x, [y]))},
        lambda batch: (batch["pair"][1].x, batch["pair"][1].y[0]),
    ),
    "texts": (
        lambda x, y: [f"{a} {b}" for a, b in torch.cat([x, y], 1).tolist()],
        lambda batch: floats(batch).split(1, 1),
    ),
    "texts and labels": (
        lambda x, y: ([f"{a}" for (a,) in x.tolist()], y.tolist()),
        lambda batch: (floats(batch[0]), torch.tensor(batch[1])),
    ),
}


@pytest.mark.parametrize(("make", "take"), FORMS.values(), ids=FORMS)
def test_a_batch_may_have_any_form(make, take):
    def loss_fn(model, batch):
        x, y = take(batch)
        assert isinstance(x, torch.Tensor) and isinstance(batch, type(given[0]))
        return squares(model, (x, y))

    given = [make(x, y) for x, y in zip(X.split(8), Y.split(8), strict=True)]
    model, history = line(batches=given, loss_fn=loss_fn)
    assert history.items == [24, 24]
    torch.testing.assert_close(model.weight, line()[0].weight)


@pytest.mark.parametrize(("make", "take"), FORMS.values(), ids=FORMS)
def test_all_tensors_of_a_batch_are_moved_and_what_was_given_stays(make, take):
    batch = make(X, Y)
    kinds = torch.Tensor, np.ndarray
    before = [part for part in training._parts(batch) if isinstance(part, kinds)]
    moved = training._parts(training._moved(batch, torch.device("meta")))
    devices = [part.device.type for part in moved if isinstance(part, kinds)]
    assert devices == ["meta"] * len(before)
    after = [part for part in training._parts(batch) if isinstance(part, kinds)]
    assert all(a is b for a, b in zip(before, after, strict=True))


def test_batches_may_be_a_function_of_the_epoch():
    asked = []

    def batches(epoch):
        asked.append(epoch)
        yield X[epoch : epoch + 2], Y[epoch : epoch + 2]

    assert line(batches=batches, epochs=3)[1].items == [2, 2, 2]
    assert asked == [0, 1, 2]


def test_a_seed_repeats_a_run():
    data = torch.utils.data.TensorDataset(X, Y)
    loader = torch.utils.data.DataLoader(data, batch_size=5, shuffle=True)
    runs = [line(batches=loader, seed=seed)[1].losses for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_accumulated_batches_are_one_larger_batch():
    small = list(zip(X.split(4), Y.split(4), strict=True))
    whole, expected = line(epochs=3)
    parts, history = line(batches=small, accumulate=2, epochs=3)
    torch.testing.assert_close(parts.weight, whole.weight)
    assert history.losses == pytest.approx(expected.losses, rel=1e-5)
    assert len(history.losses) == 9 and history.items == [24] * 3
    # A last step of one batch only is the mean over one, and takes nothing into the next epoch.
    _, history = line(batches=small[:3], accumulate=2, epochs=2)
    assert len(history.losses) == 4


def in_two_processes(program, *given):
    """Return what the first of two processes prints as JSON, as torchrun starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    common |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONPATH": "."}
    started = [
        subprocess.Popen(
            [sys.executable, program, *given],
            env={**os.environ, **common, "RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    try:
        (out, err), (_, other) = (process.communicate(timeout=300) for process in started)
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], err + other
    return json.loads(out)


def test_two_processes_are_one_that_accumulates_twice_as_much(tmp_path):
    """Every model, twice in a row, with and without accumulating; see tests/in_processes.py."""
    found = in_two_processes(in_processes.__file__, str(tmp_path))
    alone = in_processes.runs(2)
    assert list(found) == list(alone)
    for name, (losses, weights, items) in alone.items():
        assert found[name][0] == pytest.approx(losses, abs=1e-5), name
        assert found[name][1] == pytest.approx(weights, abs=1e-5), name
        assert found[name][2] == items, name


def test_a_lone_last_batch_weighs_as_much_as_a_full_step():
    torch.manual_seed(3)
    start = nn.Linear(1, 1).state_dict()
    results = []
    for accumulate in (1, 4):
        model = nn.Linear(1, 1)
        model.load_state_dict(start)
        line(model=model, batches=[(X, Y)], accumulate=accumulate)
        results.append(model.weight.item())
    assert results[0] == results[1]


def test_the_gradient_is_clipped():
    steps = []
    for clip_norm in (None, 0.5):
        model = nn.Linear(1, 1)
        before = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        line(
            model=model, optimizer=optimizer, batches=[(X, 100 * Y)], epochs=1, clip_norm=clip_norm
        )
        after = torch.cat([p.detach().flatten() for p in model.parameters()])
        steps.append((after - before).norm().item())
    assert steps[0] > 10
    assert steps[1] == pytest.approx(0.5, abs=1e-4)


# Schedules.


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


@pytest.mark.parametrize("make", [warmup_linear, warmup_cosine])
@pytest.mark.parametrize(("warmup", "total"), [(-1, 5), (5, 5), (6, 5), (0, 0)])
def test_schedules_that_cannot_be(make, warmup, total):
    with pytest.raises(ValueError, match=f"warmup_steps < total_steps, got {warmup}, {total}"):
        make(warmup, total)


@pytest.mark.parametrize("floor", [-0.1, 1.0, 2.0])
def test_a_floor_that_cannot_be(floor):
    with pytest.raises(ValueError, match="floor must be in"):
        warmup_cosine(1, 5, floor=floor)


def test_the_schedule_scales_the_rate_of_every_group():
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


def test_a_second_run_starts_at_the_rate_that_the_caller_set():
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    line(model=model, optimizer=optimizer, schedule=warmup_linear(0, 7))
    assert optimizer.param_groups[0]["lr"] == 0.2
    _, history = line(model=model, optimizer=optimizer)
    assert set(history.learning_rates) == {0.2}, "it does not go on at the rate of the last step"
    optimizer.param_groups[0]["lr"] = 0.1
    _, history = line(model=model, optimizer=optimizer, schedule=lambda step: 0.5)
    assert set(history.learning_rates) == {0.05}
    assert (
        optimizer.param_groups[0].keys()
        == torch.optim.SGD(model.parameters()).param_groups[0].keys()
    )


def test_the_rate_is_set_again_after_a_failure():
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    with pytest.raises(FloatingPointError):
        line(
            model=model,
            optimizer=optimizer,
            schedule=lambda step: 0.5,
            loss_fn=lambda model, batch: squares(model, batch) * math.nan,
        )
    assert optimizer.param_groups[0]["lr"] == 0.2


def test_only_what_is_trained_is_clipped():
    """A gradient that nothing resets, of a parameter that the optimizer leaves alone, grows."""
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD([model.bias], lr=1.0)
    before = model.bias.item()
    line(model=model, optimizer=optimizer, batches=[(X + 9, 100 * Y)], epochs=4, clip_norm=0.5)
    assert abs(model.bias.item() - before) == pytest.approx(4 * 0.5, abs=1e-4)


# Precision.


class Parts(nn.Module):
    """A model whose loss calls a part of it, and a weight of it, outside of forward."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(1, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return torch.tanh(self.body(x))


def by_parts(seen):
    """Return a loss for Parts that notes the types that products are computed in."""

    def loss_fn(model, batch):
        x, y = batch
        inside = model.body(x)
        output = F.linear(torch.tanh(inside), model.head.weight, model.head.bias)
        seen.append((inside.dtype, model(x).dtype, output.dtype))
        return F.mse_loss(output, y)

    return loss_fn


@pytest.mark.parametrize("again", [lambda model: model, copy.deepcopy], ids=["same", "copy"])
def test_the_precision_holds_in_every_run_for_the_whole_loss(again):
    model, kinds = Parts(), {"bf16": torch.bfloat16, "no": torch.float32}
    for precision in ("bf16", "bf16", "no", "bf16"):
        model, seen = again(model), []
        before = set(vars(model))
        _, history = line(model=model, loss_fn=by_parts(seen), precision=precision, epochs=20)
        assert set(seen) == {(kinds[precision],) * 3}
        assert set(vars(model)) == before, "no trace is left"
        assert {p.dtype for p in model.parameters()} == {torch.float32}
        assert model(X).dtype == torch.float32
    assert len(list(model.parameters())) == 4
    assert history.epoch_losses[-1] < 0.5


def test_the_loss_itself_is_computed_in_full_precision():
    def loss_fn(model, batch):
        loss = squares(model, batch)
        assert loss.dtype == torch.float32
        return loss

    line(loss_fn=loss_fn, precision="bf16")


@pytest.mark.parametrize(
    ("capability", "best"), [((7, 5), "fp16"), ((8, 0), "bf16"), ((9, 0), "bf16")]
)
def test_the_best_precision_is_what_the_card_computes_in(monkeypatch, capability, best):
    assert training.best_precision() == training.best_precision("cpu") == "no"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert training.best_precision("cuda") == training.best_precision("cuda:1") == best


def test_float16_needs_a_gpu():
    with pytest.raises(ValueError, match='precision="fp16" needs a GPU'):
        line(precision="fp16")


def test_a_device_that_is_not_there():
    with pytest.raises(ValueError, match="device cuda is not there"):
        line(device="cuda")


def test_a_compiled_model_can_be_trained_saved_and_resumed(tmp_path):
    whole = nn.Linear(1, 1)
    line(model=whole, epochs=3, seed=1)
    for epochs in (1, 3):
        core = nn.Linear(1, 1)
        compiled = torch.compile(core, backend="eager")
        line(model=compiled, epochs=epochs, seed=1, checkpoint=tmp_path / "run")
    assert not {"forward", "_original_forward"} & set(vars(core))
    plain = nn.Linear(1, 1)
    line(model=plain, epochs=3, checkpoint=tmp_path / "run")
    assert torch.equal(plain.weight, core.weight), "saved from the compiled, read by the plain"


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_it_trains_on_the_gpu_that_is_asked_for():
    seen = []

    def loss_fn(model, batch):
        seen.append(batch[0].device)
        return squares(model, batch)

    model, _ = line(device="cuda:1", loss_fn=loss_fn)
    assert {*seen, model.weight.device} == {torch.device("cuda:1")}


def test_the_index_of_a_device_is_kept(monkeypatch):
    """Without a GPU: where the model and the batches are sent, not what becomes of them."""
    device, sent, model = torch.device("cuda:1"), [], nn.Linear(1, 1)
    monkeypatch.setattr(torch, "empty", lambda *_, **given: SimpleNamespace(**given))
    monkeypatch.setattr(nn.Module, "to", lambda self, device: sent.append(device))
    monkeypatch.setattr(training, "_moved", lambda batch, device: (sent.append(device), batch)[1])
    line(model=model, device=device, epochs=1)
    assert sent == [device] * 4


# Failures.


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_named_and_not_learned_from(bad):
    model = nn.Linear(1, 1)
    before = []

    def loss_fn(model, batch):
        before.append(model.weight.item())
        return squares(model, batch) * (bad if len(before) == 5 else 1)

    with pytest.raises(FloatingPointError, match=f"loss of step 4 is {bad}"):
        line(model=model, loss_fn=loss_fn)
    assert model.weight.item() == before[-1]


def reads(monkeypatch):
    """Return a list that grows whenever a value is taken out of a tensor."""
    seen = []
    for name in ("item", "tolist", "__float__", "__int__", "__bool__"):
        take = getattr(torch.Tensor, name)
        monkeypatch.setattr(
            torch.Tensor,
            name,
            lambda self, take=take, name=name: (seen.append(name), take(self))[1],
        )
    return seen


def test_on_a_gpu_values_are_read_every_so_many_steps(monkeypatch):
    """Read as if the CPU were a GPU: every 50 steps, and at the end of the epoch."""
    monkeypatch.setitem(training.READ_EVERY, "cpu", 50)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    options = {"clip_norm": 1.0, "schedule": warmup_linear(5, 500), "accumulate": 2}
    expected = line(model=copy.deepcopy(model), batches=[(X, Y)] * 240, accumulate=2)[1]
    seen = reads(monkeypatch)
    _, history = line(model=model, optimizer=optimizer, batches=[(X, Y)] * 240, **options)
    assert seen == ["tolist"] * 2 * 3
    assert len(history.losses) == len(history.learning_rates) == len(expected.losses) == 240
    assert history.losses[0] == expected.losses[0]


def test_the_first_bad_step_is_named_although_losses_are_read_later(monkeypatch):
    monkeypatch.setitem(training.READ_EVERY, "cpu", 50)
    counted = iter(range(99))

    def loss_fn(model, batch):
        return squares(model, batch) * (math.nan if next(counted) == 4 else 1)

    with pytest.raises(FloatingPointError, match="loss of step 4 is nan"):
        line(loss_fn=loss_fn)
    assert next(counted) == 6, "it was found at the end of the epoch"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epochs": 0}, "epochs must be a positive integer, got 0"),
        ({"epochs": 1.5}, "epochs must be a positive integer"),
        ({"epochs": True}, "epochs must be a positive integer"),
        ({"accumulate": 0}, "accumulate must be a positive integer"),
        ({"precision": "int8"}, "precision must be one of .*bf16.*got 'int8'"),
        ({"precision": None}, "precision must be one of"),
        ({"clip_norm": 0}, "clip_norm must be positive"),
        ({"clip_norm": math.nan}, "clip_norm must be positive"),
        ({"batches": iter([(X, Y)])}, "batches must be a function"),
        ({"batches": 3}, "batches must be a function"),
        ({"batches": []}, "epoch 0 has no batches"),
        ({"batches": lambda epoch: [(X, Y)][epoch:]}, "epoch 1 has no batches"),
        ({"loss_fn": lambda model, batch: 1.0}, "loss_fn must return a scalar tensor"),
        ({"loss_fn": lambda model, batch: model(batch[0])}, "loss_fn must return a scalar"),
        ({"loss_fn": lambda model, batch: batch[0].sum()}, "depends on the model"),
        ({"optimizer": torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1)}, "updates none"),
        ({"seed": -1}, "seed must be an integer"),
    ],
)
def test_bad_arguments(given, message):
    with pytest.raises(ValueError, match=message):
        line(**given)


# Around an epoch.


def test_on_epoch_sees_the_history_before_it_is_saved(tmp_path):
    seen = []

    def look(epoch, history):
        seen.append((epoch, len(history.epoch_losses), len(list(tmp_path.glob("epoch-*")))))

    line(epochs=3, checkpoint=tmp_path, on_epoch=look)
    assert seen == [(0, 1, 0), (1, 2, 1), (2, 3, 2)]


def test_training_mode_is_set_again_after_on_epoch():
    modes = []

    def loss_fn(model, batch):
        modes.append(model.training)
        return squares(model, batch)

    model = nn.Linear(1, 1).eval()
    line(model=model, loss_fn=loss_fn, on_epoch=lambda *_: model.eval())
    assert modes == [True] * 6


def test_the_model_comes_back_in_the_mode_in_which_it_came():
    model = nn.Sequential(nn.Linear(1, 4), nn.Dropout(0.5), nn.Linear(4, 1)).eval()
    model[2].train()
    line(model=model)
    assert [part.training for part in model.modules()] == [False, False, False, True]
    with pytest.raises(ZeroDivisionError):
        line(model=model, loss_fn=lambda model, batch: 1 / 0)
    assert [part.training for part in model.modules()] == [False, False, False, True]


# Progress.


@pytest.mark.parametrize(
    ("progress", "profile", "shown"),
    [(None, "laptop", True), (None, "smoke", False), (True, "smoke", True), (False, "gpu", False)],
)
def test_progress(monkeypatch, capsys, progress, profile, shown):
    def slow(model, batch):
        time.sleep(0.06)  # long enough for the bar to move
        return squares(model, batch)

    monkeypatch.setenv("PRETRAIN_PROFILE", profile)
    line(progress=progress, loss_fn=slow)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert ("epoch 2/2" in printed.err and "loss=" in printed.err) == shown
    assert bool(printed.err) == shown


@pytest.mark.parametrize("name", training.LAUNCHED)
def test_accelerate_is_loaded_for_several_processes_only(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "accelerate", None)
    line()
    monkeypatch.setenv(name, "2")
    with pytest.raises(ImportError, match="accelerate"):
        line()
