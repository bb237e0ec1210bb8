"""The training loop: it learns, it repeats itself bit for bit, and it says what cannot be meant."""

import importlib.util
import json
import math
import os
import socket
import subprocess
import sys
import time

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from support import training
from support.training import History, fit, warmup_cosine, warmup_linear
from tests.killed_run import X, Y, squares


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


@pytest.mark.parametrize(
    "form",
    [
        lambda x, y: (x, y),
        lambda x, y: [x, y],
        lambda x, y: {"x": x, "y": y},
        lambda x, y: torch.cat([x, y], 1),
        lambda x, y: ((x, y), "a remark"),
    ],
)
def test_a_batch_may_have_any_form(form):
    def loss_fn(model, batch):
        if isinstance(batch, torch.Tensor):
            batch = batch.split(1, 1)
        elif isinstance(batch, dict):
            batch = batch["x"], batch["y"]
        elif isinstance(batch[0], tuple):
            batch = batch[0]
        return squares(model, batch)

    pairs = zip(X.split(8), Y.split(8), strict=True)
    model, history = line(batches=[form(x, y) for x, y in pairs], loss_fn=loss_fn)
    assert history.items == [24, 24]
    torch.testing.assert_close(model.weight, line()[0].weight)


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


TWO = """
import torch
from torch.nn import functional as F
from support.training import fit

torch.set_num_threads(1)
x = torch.linspace(-1, 1, 24)[:, None]
batches = list(zip(x.split(3), (3 * x - 2).split(3)))[:7]
torch.manual_seed(0)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_fn = lambda model, batch: F.mse_loss(model(batch[0]), batch[1])
history = fit(model, batches, loss_fn, epochs=3, optimizer=optimizer, seed=1, device="cpu")
if torch.distributed.get_rank() == 0:
    print([model.weight.item(), history.losses, history.items])
"""


def test_two_processes_share_the_batches():
    """Each step is the mean over both, as if one process had accumulated two batches."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    common |= {"ACCELERATE_USE_CPU": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", TWO],
            env={**os.environ, **common, "RANK": rank, "LOCAL_RANK": rank, "PYTHONPATH": "."},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    try:
        (out, err), (_, other) = (process.communicate(timeout=120) for process in started)
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], err + other
    weight, losses, items = json.loads(out)
    even = list(zip(X.split(3), Y.split(3), strict=True))[:6]  # the odd batch is left out
    model, history = line(batches=even, epochs=3, accumulate=2)
    assert weight == pytest.approx(model.weight.item(), rel=1e-6)
    assert losses == pytest.approx(history.losses, rel=1e-6)
    assert items == history.items == [18] * 3


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


# Precision.


def test_bfloat16_computes_in_bfloat16_and_leaves_the_model_as_it_was():
    seen = []

    def loss_fn(model, batch):
        inside = model[0].register_forward_hook(lambda _m, _i, output: seen.append(output.dtype))
        x, y = batch
        output = model(x)
        inside.remove()
        assert output.dtype == torch.float32, "the loss is computed in full precision"
        return F.mse_loss(output, y)

    model = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))
    _, history = line(model=model, loss_fn=loss_fn, precision="bf16", epochs=20)
    assert set(seen) == {torch.bfloat16}
    assert history.epoch_losses[-1] < history.epoch_losses[0] / 4
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert not {"forward", "_original_forward"} & set(vars(model))
    exact = F.linear(torch.tanh(F.linear(X, *model[0].parameters())), *model[2].parameters())
    assert torch.equal(model(X), exact), "after the run the model computes in float32 again"
    seen.clear()
    line(model=model, loss_fn=loss_fn, precision="no")
    assert set(seen) == {torch.float32}, "a run does not inherit the precision of the one before"


def test_the_model_gets_its_forward_back_even_after_a_failure():
    model = nn.Linear(1, 1)
    with pytest.raises(ZeroDivisionError):
        line(model=model, precision="bf16", loss_fn=lambda model, batch: 1 / 0)
    assert "forward" not in vars(model)


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


def test_accelerate_is_loaded_only_when_it_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate", None)
    spec = importlib.util.spec_from_file_location("support.again", training.__file__)
    again = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, again)  # where dataclass looks for its module
    spec.loader.exec_module(again)
    model = nn.Linear(1, 1)
    with pytest.raises(ImportError, match="accelerate"):
        again.fit(model, [X], squares, epochs=1, optimizer=torch.optim.SGD(model.parameters(), 1))
