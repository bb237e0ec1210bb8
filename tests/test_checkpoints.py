"""Checkpoints: a run goes on where it was stopped, by whatever; a damaged one is passed over."""

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import nn
from torch.nn import functional as F

from support import checkpoints
from support.data import files
from support.training import fit, warmup_linear
from tests.killed_run import Run, X, Y

NEWEST, BEFORE = "epoch-0003.safetensors", "epoch-0002.safetensors"


@pytest.fixture(autouse=True, scope="module")
def smoke():
    """Run everything, `kept` too, on one thread of the CPU: on two, sums are rounded otherwise."""
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("PRETRAIN_PROFILE", "smoke")
        torch.set_num_threads(1)
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Return a folder with the checkpoints of epochs 2 and 3 of a Run; not to be changed."""
    folder = tmp_path_factory.mktemp("kept")
    Run().go(3, folder)
    return folder


@pytest.fixture
def saved(kept, tmp_path):
    """Return a copy of kept."""
    return Path(shutil.copytree(kept, tmp_path / "saved"))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# A run goes on as if it had not been interrupted.

SETTINGS = [{}, {"precision": "bf16"}, {"accumulate": 2}, {"schedule": None, "clip_norm": None}]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: ", ".join(settings) or "none")
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path, settings):
    whole = Run().go(6, **settings)
    assert Run().go(6, tmp_path / "saved", **settings).result() == whole.result()
    for epochs in (1, 2, 5, 6):
        last = Run().go(epochs, tmp_path / "run", **settings)
    assert last.result() == whole.result()
    assert Run().go(6, tmp_path / "run", **settings).result() == whole.result()
    assert Run().go(6, seed=10, **settings).result() != whole.result()


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9, nesterov=True),
        torch.optim.SGD,
        torch.optim.Adagrad,
        lambda p, lr: torch.optim.Adam(p, lr=lr, amsgrad=True),
        torch.optim.RMSprop,
    ],
)
def test_any_optimizer_resumes(tmp_path, optimizer):
    whole = Run(optimizer).go(4)
    Run(optimizer).go(2, tmp_path)
    assert Run(optimizer).go(4, tmp_path).result() == whole.result()


def test_the_order_of_a_data_loader_with_its_own_generator_resumes(tmp_path):
    def loader():
        data = torch.utils.data.TensorDataset(X, Y)
        generator = torch.Generator().manual_seed(3)
        return torch.utils.data.DataLoader(data, batch_size=5, shuffle=True, generator=generator)

    whole = Run().go(4, batches=loader())
    Run().go(2, tmp_path, batches=loader())
    assert Run().go(4, tmp_path, batches=loader()).result() == whole.result()
    with pytest.raises(ValueError, match="DataLoader's generators is 1 there and 0 here"):
        Run().go(5, tmp_path)


def test_the_scaler_of_gradients_resumes(tmp_path):
    def scaler():
        return torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=3)

    old, new, run = scaler(), scaler(), Run().go(1)
    old.scale(torch.ones(1))  # makes the tensor that holds the scale
    old.update(512.0)
    checkpoints.Run(run.model, run.optimizer, old).save(tmp_path, 1, {})
    assert new.state_dict() != old.state_dict()
    checkpoints.Run(run.model, run.optimizer, new).restore(tmp_path)
    assert new.state_dict() == old.state_dict() and new.get_scale() == 512.0


@pytest.mark.parametrize("part", ["python", "numpy", "torch"])
def test_the_state_of_each_generator_is_needed(tmp_path, monkeypatch, part):
    """With one lost the resumed run is another: the comparisons above would notice."""
    whole = Run().go(3)
    Run().go(2, tmp_path)
    set_all, other = checkpoints._set_random_state, checkpoints._random_state(X.device, None)
    monkeypatch.setattr(
        checkpoints,
        "_set_random_state",
        lambda state, *given: set_all(state | {part: other[part]}, *given),
    )
    assert Run().go(3, tmp_path).result() != whole.result()


def test_a_resumed_run_takes_the_rate_that_the_caller_sets(tmp_path):
    for schedule in (None, warmup_linear(1, 60)):
        folder = tmp_path / str(schedule is None)
        Run().go(2, folder, schedule=schedule)
        run = Run(lr=0.01).go(3, folder, schedule=schedule)
        n = len(run.history.losses) // 3
        factors = [schedule(step) if schedule else 1 for step in range(3 * n)]
        expected = [0.05 * f for f in factors[: 2 * n]] + [0.01 * f for f in factors[2 * n :]]
        assert run.history.learning_rates == pytest.approx(expected)
        assert run.optimizer.param_groups[0]["lr"] == 0.01


def test_a_run_that_died_in_an_epoch_goes_on_from_the_last_one_saved(tmp_path):
    whole, dying = Run().go(4), Run()

    def batches(epoch):
        for i, batch in enumerate(dying.batches(epoch)):
            if (epoch, i) == (2, 1):
                raise KeyboardInterrupt
            yield batch

    with pytest.raises(KeyboardInterrupt):
        dying.go(4, tmp_path, batches=batches)
    assert Run().go(4, tmp_path).result() == whole.result()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        return self.head(self.embedding(ids))


def test_tied_weights_stay_tied(tmp_path):
    def run(epochs, folder=None):
        torch.manual_seed(0)
        model = Tied()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        ids = torch.arange(5)
        loss_fn = lambda model, ids: F.cross_entropy(model(ids), ids.roll(1))  # noqa: E731
        fit(model, [ids], loss_fn, epochs=epochs, optimizer=optimizer, checkpoint=folder)
        assert model.head.weight is model.embedding.weight
        return model.head.weight.detach()

    whole = run(4)
    run(2, tmp_path)
    assert torch.equal(run(4, tmp_path), whole)


@pytest.mark.exhaustive
@pytest.mark.skipif(os.name != "posix", reason="fork and SIGKILL are POSIX's")
def test_24_of_24_killed_runs_resume_bit_for_bit(tmp_path, tally):
    """Twelve die anywhere in the training, twelve while a checkpoint is being saved."""
    command = [sys.executable, "-m", "tests.killed_run", str(tmp_path), "6"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": "."}
    # macOS else stops a forked child that loads one of its own libraries.
    environment["OBJC_DISABLE_INITIALIZE_FORK_SAFETY"] = "YES"
    options = {"capture_output": True, "text": True, "cwd": Path(__file__).parents[1]}
    done = subprocess.run(command, env=environment, **options)
    assert done.returncode == 0, done.stderr
    whole, found = json.loads(done.stdout)
    equal = sum(result == whole for _, result, _ in found)
    tally(f"killed runs: {equal} of {len(found)} resumed bit for bit")
    assert equal == len(found) == 24
    both = ["epoch-0005.safetensors", "epoch-0006.safetensors"]
    assert all(left == both for *_, left in found), "the next save tidies up"
    assert len({epoch for epoch, *_ in found}) >= 5, "they went on from many epochs"


# Saves that fail, and files that are not as they were written.


def test_a_full_disk_leaves_the_checkpoints_before(saved, monkeypatch):
    before = {path.name: path.read_bytes() for path in saved.iterdir()}

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(files.os, "fsync", full)
        with pytest.raises(OSError, match="No space left on device"):
            Run().go(4, saved)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    assert Run().go(4, saved).result() == Run().go(4).result()


def damages(data):
    """Yield damaged versions of a file: cut off, grown, and with one bit flipped."""
    rng = random.Random(8)
    for size in {0, 1, 8, 9, len(data) - 1, *range(0, len(data), len(data) // 10)}:
        yield data[:size]
    yield data + b"\0"
    for place in {0, 8, len(data) - 1, *rng.sample(range(len(data)), 40)}:
        flipped = bytearray(data)
        flipped[place] ^= 1 << rng.randrange(8)
        yield bytes(flipped)


def test_a_damaged_checkpoint_is_passed_over_with_a_warning(saved):
    path, good = saved / NEWEST, (saved / NEWEST).read_bytes()
    for data in damages(good):
        path.write_bytes(data)
        run = Run()
        with pytest.warns(UserWarning, match=f"{path} is damaged: .*; it is passed over"):
            history = checkpoints.Run(run.model, run.optimizer).restore(saved)
        assert len(history["epoch_losses"]) == 2
    with pytest.warns(UserWarning, match="is passed over"):
        assert Run().go(4, saved).result() == Run().go(4).result()


def test_if_all_are_damaged_there_is_an_error_and_nothing_changes(saved):
    for name in (NEWEST, BEFORE):
        (saved / name).write_bytes(b"")
    run = Run()
    before = run.result(), random.getstate(), torch.get_rng_state().tolist()
    with (
        pytest.warns(UserWarning, match="damaged"),
        pytest.raises(ValueError, match=f"no checkpoint in {saved} is whole: remove them"),
    ):
        checkpoints.Run(run.model, run.optimizer).restore(saved)
    assert (run.result(), random.getstate(), torch.get_rng_state().tolist()) == before


def test_a_file_of_safetensors_that_is_no_checkpoint_is_damaged(saved):
    from safetensors.torch import save_file

    save_file({"model.0.weight": torch.ones(8, 1)}, saved / NEWEST)
    with pytest.warns(UserWarning, match="is damaged"):
        assert Run().go(3, saved).result() == Run().go(3).result()


# Checkpoints of another run.


@pytest.mark.parametrize(
    ("at", "layer", "message"),
    [
        (0, nn.Linear(1, 8, dtype=torch.float64), "0.weight is torch.float32 .* torch.float64"),
        (3, nn.Linear(8, 2), r"3.weight is torch.float32 \(1, 8\) there and .* \(2, 8\) here"),
        (2, nn.BatchNorm1d(8, track_running_stats=False), "2.running_mean is .* missing here"),
    ],
)
def test_what_is_different_in_another_model_is_named(saved, at, layer, message):
    run = Run()
    run.model[at] = layer
    run.optimizer = torch.optim.AdamW(run.model.parameters())
    before = run.result()
    with pytest.raises(ValueError, match=f"of another model or optimizer: .*{message}"):
        checkpoints.Run(run.model, run.optimizer).restore(saved)
    assert run.result() == before


def test_a_checkpoint_of_another_optimizer_is_refused(saved):
    with pytest.raises(ValueError, match="the optimizer is AdamW there and Adagrad here"):
        Run(torch.optim.Adagrad).go(4, saved)
    run = Run()
    groups = [{"params": [p], "lr": 0.1} for p in run.model.parameters()]
    run.optimizer = torch.optim.AdamW(groups)
    with pytest.raises(ValueError, match="of another model or optimizer: its group 0 is 0.weight"):
        run.go(4, saved)


def test_running_out_of_memory_is_not_taken_for_another_model(saved, monkeypatch):
    def full(*_, **given):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(nn.Module, "load_state_dict", full)
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        Run().go(4, saved)


# What a checkpoint holds.


def test_two_checkpoints_are_kept_beside_the_readers_own_files(saved):
    own = ["notes.txt", "epoch-1.safetensors", "model.safetensors", "epoch-0001"]
    for name in own:
        (saved / name).write_text("mine")
    Run().go(5, saved)
    both = ["epoch-0004.safetensors", "epoch-0005.safetensors"]
    assert names(saved) == sorted([*both, *own])
    assert {(saved / name).read_text() for name in own} == {"mine"}


def test_a_checkpoint_holds_tensors_and_json(saved):
    assert names(saved) == [BEFORE, NEWEST], "the newest and the one before"
    with safe_open(saved / NEWEST, framework="pt") as file:
        state, inside = json.loads(file.metadata()["state"]), set(file.keys())
        assert file.get_tensor("model.0.weight").shape == (8, 1)
    assert state.keys() == {"form", "random", "scaler"}
    assert {name.partition(".")[0] for name in inside} == {"model", "optimizer", "history"}
