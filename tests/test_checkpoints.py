"""Checkpoints: a run goes on where it was stopped, by whatever; a damaged one is refused."""

import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from support import checkpoints, generations, training
from support.data.files import whole_file
from support.training import fit
from tests import killed_run
from tests.killed_run import Lines, Run, X, Y, trained_for

FILES = [*generations.FILES, "checkpoint.json"]
posix = pytest.mark.skipif(os.name != "posix", reason="fork and SIGKILL are POSIX's")


@pytest.fixture(autouse=True, scope="module")
def smoke():
    """Run everything, `kept` too, on one thread of the CPU: on two, sums are rounded otherwise."""
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("PRETRAIN_PROFILE", "smoke")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
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


def contents(folder):
    """Return all that is in a folder: contents of files, None for folders, targets of links."""
    return {
        path.relative_to(folder).as_posix(): os.readlink(path)
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else None
        for path in folder.rglob("*")
    }


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def restored(folder):
    """Return a run brought to the checkpoint in the folder."""
    run = Run()
    run.checkpoint().restore(folder)
    return run


# A run goes on as if it had not been interrupted.

SETTINGS = [
    {},
    {"precision": "bf16"},
    {"accumulate": 2},
    {"schedule": None, "clip_norm": None},
    {"on_epoch": lambda epoch, history: torch.rand(3)},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: ", ".join(settings) or "none")
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path, settings):
    whole = Run().go(6, **settings)
    saved = Run().go(6, tmp_path / "saved", **settings)
    assert saved.result() == whole.result(), "saving changes nothing"
    for epochs in (1, 2, 5, 6):
        last = Run().go(epochs, tmp_path / "run", **settings)
    assert last.result() == whole.result()
    assert Run().go(6, tmp_path / "run", **settings).result() == whole.result()
    assert Run().go(6, seed=10, **settings).result() != whole.result()


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9, nesterov=True),
        torch.optim.Adagrad,
        lambda p, lr: torch.optim.Adam(p, lr=lr, amsgrad=True),
        torch.optim.RMSprop,
    ],
)
def test_any_optimizer_resumes(tmp_path, optimizer):
    whole = Run(optimizer).go(4)
    Run(optimizer).go(2, tmp_path)
    assert Run(optimizer).go(4, tmp_path).result() == whole.result()


def own_generator():
    """Return a DataLoader that shuffles by a generator of its own."""
    data = torch.utils.data.TensorDataset(X, Y)
    generator = torch.Generator().manual_seed(3)
    return torch.utils.data.DataLoader(data, batch_size=5, shuffle=True, generator=generator)


def own_sampler():
    """Return a DataLoader whose sampler has a generator of its own."""
    data = torch.utils.data.TensorDataset(X, Y)
    generator = torch.Generator().manual_seed(3)
    sampler = torch.utils.data.RandomSampler(data, replacement=True, generator=generator)
    return torch.utils.data.DataLoader(data, batch_size=5, sampler=sampler)


@pytest.mark.parametrize("loader", [own_generator, own_sampler])
def test_the_order_of_a_data_loader_resumes(tmp_path, loader):
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
    checkpoints.Run(run.model, run.optimizer, old, run.history).save(tmp_path)
    assert new.state_dict() != old.state_dict()
    checkpoints.Run(run.model, run.optimizer, new, run.history).restore(tmp_path)
    assert new.state_dict() == old.state_dict() and new.get_scale() == 512.0


@pytest.mark.parametrize("devices", [1, 2])
def test_the_random_numbers_of_gpus_resume_where_there_are_as_many(monkeypatch, devices):
    """Without a GPU: what is asked of PyTorch, not what it does."""
    states, given = [torch.arange(16, dtype=torch.uint8)], []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: states)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", given.append)
    tensors = {}
    packed = checkpoints._pack(checkpoints._random_state(None), tensors)
    checkpoints._set_random_state(checkpoints._unpack(packed, tensors), None)
    assert len(given) == (devices == 1) and all(torch.equal(*states, *back) for back in given)


def losing(monkeypatch, part):
    """Let a resumed run lose a part of what was saved."""
    if part == "optimizer":
        monkeypatch.setattr(torch.optim.AdamW, "load_state_dict", lambda *_: None)
    elif part == "step":
        rates = training._set_rates
        monkeypatch.setattr(training, "_set_rates", lambda o, s, step: rates(o, s, step + 1))
    elif part == "history":
        monkeypatch.setattr(checkpoints, "fields", lambda _: [])
    else:
        set_all = checkpoints._set_random_state

        def set_others(state, batches):
            set_all(state | {part: checkpoints._random_state(batches)[part]}, batches)

        monkeypatch.setattr(checkpoints, "_set_random_state", set_others)


PARTS = ["python", "numpy", "torch", "batches", "optimizer", "step", "history"]


@pytest.mark.parametrize("part", PARTS)
def test_each_part_of_the_state_is_needed(tmp_path, monkeypatch, part):
    """With one part lost the resumed run is another: the comparison above would notice."""
    loader = own_generator if part == "batches" else lambda: Run().batches
    whole = Run().go(3, batches=loader())
    Run().go(2, tmp_path, batches=loader())
    losing(monkeypatch, part)
    assert Run().go(3, tmp_path, batches=loader()).result() != whole.result()


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


def test_resume_false_starts_anew(saved):
    short = Run().go(1, saved, resume=False)
    assert short.result() == Run().go(1).result()
    assert names(saved) == ["epoch-0001"], "the old run is given up"
    assert len(Run().go(2, saved).history.epoch_losses) == 2


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


# Killed.


class Server:
    """Processes that are forked where PyTorch is loaded already; see tests/killed_run.py."""

    def __init__(self):
        root = str(Path(__file__).parents[1])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {"PRETRAIN_PROFILE": "smoke", "CUDA_VISIBLE_DEVICES": ""}
        # macOS else stops a forked child that loads one of its own libraries.
        environment["OBJC_DISABLE_INITIALIZE_FORK_SAFETY"] = "YES"
        self.process = subprocess.Popen(
            [sys.executable, killed_run.__file__],
            env={**os.environ, **environment, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline() == "ready\n"

    def ask(self, task, **given):
        """Return the signal that ended the child, or its exit status: 0 if all went well."""
        request = {"task": task, **given}
        print(json.dumps(request, default=str), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def close(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def server():
    if os.name != "posix":
        pytest.skip("fork and SIGKILL are POSIX's")
    started = Server()
    yield started
    started.close()


SIGKILL = 9


def spread(numbers, n, rng):
    """Return n of the numbers, one at random from each n-th part of them."""
    bounds = [len(numbers) * i // n for i in range(n + 1)]
    return [numbers[rng.randrange(*part)] for part in zip(bounds, bounds[1:], strict=False)]


@posix
def test_20_of_20_killed_runs_resume_bit_for_bit(server, tmp_path, tally):
    """Twelve die anywhere in the training, eight while a checkpoint is being saved."""
    result, lines = tmp_path / "result.json", tmp_path / "lines.json"
    given = {"folder": tmp_path / "whole", "result": result}
    assert server.ask("train", **given, lines=lines) == 0
    whole = json.loads(result.read_text())
    count, saving = json.loads(lines.read_text())
    rng = random.Random(6)
    training_lines = sorted({*range(1, count + 1)} - {*saving})
    moments = [*spread(training_lines, 12, rng), *spread(saving, 8, rng)]
    assert len(set(moments)) == 20

    equal, resumed_at = 0, set()
    for moment in moments:
        folder = tmp_path / f"killed at {moment}"
        given = {"folder": folder, "result": result}
        result.unlink()
        assert server.ask("train", **given, kill_at=moment) == SIGKILL
        assert not result.exists()
        resumed_at.add(max((number for number, _ in generations.found(folder)), default=0))
        assert server.ask("train", **given) == 0
        equal += json.loads(result.read_text()) == whole
        assert names(folder) == ["epoch-0005", "epoch-0006"]
    tally(f"killed runs: {equal} of {len(moments)} resumed bit for bit")
    assert equal == len(moments)
    assert len(resumed_at) >= 5, "they went on from many epochs"


@posix
def test_a_run_that_is_killed_again_and_again_ends_as_one_never_killed(server, tmp_path):
    whole, lines, result = (tmp_path / name for name in ("whole.json", "lines", "result.json"))
    assert server.ask("train", folder=tmp_path / "whole", result=whole, lines=lines) == 0
    count, _ = json.loads(lines.read_text())
    rng, kills = random.Random(7), 0
    given = {"folder": tmp_path / "run", "result": result}
    # Reading a checkpoint and an epoch are a third of the lines: about each other attempt saves.
    while ended := server.ask("train", **given, kill_at=rng.randrange(count // 4, count // 2)):
        assert ended == SIGKILL
        kills += 1
        assert kills < 40
    assert kills >= 4
    assert json.loads(result.read_text()) == json.loads(whole.read_text())


@posix
def test_without_the_random_states_the_killed_run_ends_otherwise(server, tmp_path):
    whole, lines, result = (tmp_path / name for name in ("whole.json", "lines", "result.json"))
    assert server.ask("train", folder=tmp_path / "whole", result=whole, lines=lines) == 0
    count, _ = json.loads(lines.read_text())
    given = {"folder": tmp_path / "run", "result": result, "forget": True}
    assert server.ask("train", **given, kill_at=count // 2) == SIGKILL
    assert server.ask("train", **given) == 0
    assert json.loads(result.read_text()) != json.loads(whole.read_text())


def two_epochs(folder, which=(1, 2)):
    for epochs in which:
        trained_for(epochs).checkpoint().save(folder)
    return folder


def is_whole(run):
    """Return of which epoch all of a run is, as `trained_for` makes it; 0 for one not begun."""
    if not run.history.items:
        return 0
    epochs = run.history.items[0]
    assert run.result()["history"] == trained_for(epochs).result()["history"]
    assert run.result()["tensors"] == trained_for(epochs).result()["tensors"]
    return epochs


WRITING = [generations.__file__]  # the code that writes, renames and removes files


@pytest.fixture
def no_fsync(monkeypatch):
    """Do not wait for the disk: what a process has written outlives it without that."""
    monkeypatch.setattr(generations.os, "fsync", lambda _: None)


@posix
def test_a_save_killed_at_any_line_leaves_the_old_or_the_new(server, tmp_path, no_fsync):
    template, seen = two_epochs(tmp_path / "template"), []
    for line in range(1, 1000):
        folder = Path(shutil.copytree(template, tmp_path / "run"))
        ended = server.ask("save", folder=folder, epochs=3, kill_at=line, files=WRITING)
        seen.append(is_whole(restored(folder)))
        trained_for(4).checkpoint().save(folder)
        assert names(folder) == [f"epoch-000{seen[-1]}", "epoch-0004"], "the next save tidies up"
        shutil.rmtree(folder)
        if ended == 0:
            break
    assert ended == 0 and len(seen) > 100
    assert seen == sorted(seen) and set(seen) == {2, 3}, "first the old one, then the new"


@posix
def test_files_that_get_their_names_one_by_one_would_be_seen_half_written(
    server, tmp_path, no_fsync
):
    template, files, damaged = two_epochs(tmp_path / "template"), [killed_run.__file__], set()
    for line in range(1, 100):
        folder = Path(shutil.copytree(template, tmp_path / "run"))
        given = {"folder": folder, "epochs": 3, "copied": True, "files": files}
        ended = server.ask("save", **given, kill_at=line)
        try:
            restored(folder)
        except ValueError as error:
            damaged.add(str(error).split(": ")[1].split(";")[0])
        shutil.rmtree(folder)
        if ended == 0:
            break
    path = tmp_path / "run" / "epoch-0003"
    assert ended == 0 and damaged == {f"{path / name} is missing" for name in FILES}


@pytest.mark.parametrize(
    ("before", "epochs", "expected"),
    [((1, 2), 3, [2, 3]), ((2, 3), 1, [3, 2, 0, 1])],
    ids=["the next epoch", "the first epoch of a run that replaces another"],
)
def test_a_save_interrupted_at_any_line_leaves_the_old_or_the_new(
    tmp_path, no_fsync, before, epochs, expected
):
    def interrupt():
        sys.settrace(None)
        raise KeyboardInterrupt

    template, seen, trace = two_epochs(tmp_path / "template", before), [], sys.gettrace()
    for line in range(1, 1000):
        folder = Path(shutil.copytree(template, tmp_path / "run"))
        run, interrupted = trained_for(epochs).checkpoint(), False
        try:
            sys.settrace(Lines(line, interrupt, WRITING).trace)
            run.save(folder)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            sys.settrace(trace)
        seen.append(is_whole(restored(folder)))
        run.save(folder)
        assert is_whole(restored(folder)) == epochs and len(names(folder)) == min(epochs, 2)
        shutil.rmtree(folder)
        if not interrupted:
            break
    assert not interrupted and len(seen) > 100
    assert seen == sorted(seen, key=expected.index) and set(seen) == {*expected}


# Saves that fail.


@posix
@pytest.mark.parametrize("limit", [0, 100, 600, 3000, 10_000])
def test_a_full_disk_leaves_the_checkpoints_before(server, tmp_path, limit):
    folder, result = two_epochs(tmp_path / "run"), tmp_path / "result"
    before = contents(folder)
    given = {"folder": folder, "epochs": 3, "limit": limit, "result": result}
    assert server.ask("save_with_a_full_disk", **given) == 0
    message = result.read_text()
    assert message.startswith("OSError 27: ") and "epoch-0003 could not be written" in message
    assert message.endswith(f"the last good checkpoint is {folder / 'epoch-0002'}")
    assert contents(folder) == before
    assert server.ask("save", folder=folder, epochs=3) == 0
    assert is_whole(restored(folder)) == 3


@posix
def test_a_read_only_folder_is_named_and_left_as_it_was(server):
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)  # or nobody could not even look into it
        folder, result = two_epochs(Path(name) / "run"), Path(name) / "result"
        before = contents(folder)
        given = {"folder": folder, "epochs": 3, "result": result}
        assert server.ask("save_where_nobody_may_write", **given) == 0
        message = result.read_text()
        assert message.startswith("PermissionError 13: ")
        assert "epoch-0003 could not be written" in message
        assert message.endswith(f"the last good checkpoint is {folder / 'epoch-0002'}")
        assert contents(folder) == before


def test_the_first_save_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(generations.os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device.*; there is no good checkpoint in"):
        Run().go(1, tmp_path / "new")
    assert names(tmp_path / "new") == []


def test_a_file_where_the_folder_should_be_is_left_alone(tmp_path):
    place = tmp_path / "file"
    place.write_text("mine")
    with pytest.raises(OSError, match="file"):
        Run().go(1, place)
    assert place.read_text() == "mine"


def test_all_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    """A loss of power cannot be tried here; the order of the calls can be seen."""
    calls, opened = [], {}
    fsync, rename, os_open = os.fsync, Path.rename, os.open
    monkeypatch.setattr(generations.os, "fsync", lambda n: (calls.append(name_of(n)), fsync(n)))
    monkeypatch.setattr(Path, "rename", lambda a, b: (calls.append(a.name), rename(a, b))[1])

    def look(path, *given):
        handle = os_open(path, *given)
        opened[handle] = Path(path).name
        return handle

    def name_of(handle):
        return opened.pop(handle, None) or f"file {handle}"

    monkeypatch.setattr(generations.os, "open", look)
    trained_for(1).checkpoint().save(tmp_path / "run")
    files = [call for call in calls if call.startswith("file")]
    if os.name == "posix":
        assert calls == [*files, "epoch-0001.part", "epoch-0001.part", "run"]
    assert len(files) == 3


def test_a_whole_file_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    calls, fsync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (calls.append("fsync"), fsync(handle)))
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("replace"), replace(a, b)))
    with whole_file(tmp_path / "file") as file:
        file.write(b"content")
    assert calls == ["fsync", "replace"] and contents(tmp_path) == {"file": b"content"}


# The reader's own files.


def test_files_of_the_reader_stay(tmp_path):
    own = {
        "notes.txt": "a", "checkpoint.json": "b", "model.safetensors": "c", ".hidden": "d",
        "epoch-1/model.safetensors": "e", "epoch-0001.txt": "f", "epoch-0001.part.txt": "g",
        "epoch-0050": "a file", "epoch-0060/notes.txt": "no checkpoint", "samples/1.png": "h",
        "old-epoch-0001/model.safetensors": "i", "epoch-00001/checkpoints.json": "j",
    }  # fmt: skip
    for name, text in own.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    Run().go(1, tmp_path)
    for name in ("epoch-0001/notes.txt", "epoch-0002.part/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(own.setdefault(name, name))
    (tmp_path / "epoch-0002.part").rename(tmp_path / "epoch-0009.part")
    own["epoch-0009.part/notes.txt"] = own.pop("epoch-0002.part/notes.txt")
    (tmp_path / "epoch-0009.part" / "model.safetensors").write_text("left over")
    whole = Run().go(4)
    assert Run().go(4, tmp_path).result() == whole.result()
    with pytest.raises(
        OSError, match="epoch-0001 could not be .*a folder with other files, is there"
    ):
        Run().go(1, tmp_path, resume=False)
    assert Run().go(4, tmp_path).result() == whole.result(), "that has harmed nothing"
    (tmp_path / "epoch-0001").rename(tmp_path / "mine")
    own["mine/notes.txt"] = own.pop("epoch-0001/notes.txt")
    Run().go(2, tmp_path, resume=False, seed=1)
    ours = {f"epoch-000{i}/{name}" for i in (1, 2) for name in FILES}
    after = {name: data for name, data in contents(tmp_path).items() if data is not None}
    assert ours < set(after)
    assert {name: after[name].decode() for name in set(after) - ours} == own


# Damage.


def refused(folder, *said, good="epoch-0002"):
    """Check that the checkpoint is refused with these words, the last good named, nothing done."""
    run, before = Run(), contents(folder)
    weights = {name: value.clone() for name, value in run.model.state_dict().items()}
    numbers = random.getstate(), torch.get_rng_state()
    with pytest.raises(ValueError, match="is damaged: ") as caught:
        run.checkpoint().restore(folder)
    message = str(caught.value)
    for words in map(str, said):
        assert words in message, message
    if good:
        newest = generations.found(folder)[0][1]
        assert message.endswith(
            f"the last good checkpoint is {folder / good}: to go on from it, remove {newest}"
        )
    assert contents(folder) == before
    assert all(torch.equal(value, weights[name]) for name, value in run.model.state_dict().items())
    assert random.getstate() == numbers[0] and torch.equal(torch.get_rng_state(), numbers[1])
    assert not run.history.losses and not run.optimizer.state
    return message


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_cut_off_or_has_grown_is_refused(saved, name):
    path = saved / "epoch-0003" / name
    data = path.read_bytes()
    for size in {0, 1, 7, 8, 9, 79, len(data) - 1, *range(0, len(data), len(data) // 20)}:
        path.write_bytes(data[:size])
        refused(saved, path, "cut off" if name == "checkpoint.json" else f"has {size} bytes")
    for more in (b"\0", b"\n", b"}", data):
        path.write_bytes(data + more)
        refused(saved, path)


@pytest.mark.parametrize("name", FILES)
def test_one_bit_that_is_flipped_is_noticed(saved, name):
    path, rng = saved / "epoch-0003" / name, random.Random(name)
    data = path.read_bytes()
    for place in {0, len(data) - 1, *rng.sample(range(len(data)), 50)}:
        flipped = bytearray(data)
        flipped[place] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)
        refused(saved, path, "altered")


def test_without_checksums_a_flipped_bit_would_not_be_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(generations, "_sha256", lambda data: 64 * "0")
    Run().go(1, tmp_path)
    path = tmp_path / "epoch-0001" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    restored(tmp_path)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_missing_or_of_another_epoch_is_refused(saved, name):
    path = saved / "epoch-0003" / name
    shutil.copy(saved / "epoch-0002" / name, path)
    refused(saved, path)
    path.unlink()
    refused(saved, f"{path} is missing")
    path.mkdir()
    refused(saved, f"{path} is no ordinary file")


def test_a_folder_under_another_epochs_name_or_emptied_is_refused(saved):
    (saved / "epoch-0003").rename(saved / "epoch-0007")
    refused(saved, saved / "epoch-0007" / "checkpoint.json", "is of epoch 3")
    shutil.rmtree(saved / "epoch-0007")
    (saved / "epoch-0004").mkdir()
    refused(saved, saved / "epoch-0004" / "checkpoint.json", "is missing")


def test_a_run_goes_on_as_the_message_says(saved):
    (saved / "epoch-0003" / "model.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="damaged"):
        Run().go(4, saved)
    shutil.rmtree(saved / "epoch-0003")
    assert Run().go(4, saved).result() == Run().go(4).result()


def test_two_damaged_checkpoints_leave_none_to_go_on_from(saved):
    for number in (2, 3):
        (saved / f"epoch-000{number}" / "checkpoint.json").write_bytes(b"")
    message = refused(saved, good=None)
    both = f"{saved / 'epoch-0003'} and {saved / 'epoch-0002'}"
    assert message.endswith(f"remove {both} or pass resume=False to start anew")
    assert len(Run().go(1, saved, resume=False).history.epoch_losses) == 1


def test_with_one_generation_there_would_be_no_good_one_left(tmp_path, monkeypatch):
    monkeypatch.setattr(generations, "_KEPT", 1)
    Run().go(3, tmp_path)
    (tmp_path / "epoch-0003" / "model.safetensors").unlink()
    assert "there is no good checkpoint" in refused(tmp_path, good=None)


needs_links = pytest.mark.skipif(os.name == "nt", reason="Windows makes links only for some users")


@needs_links
@pytest.mark.parametrize("name", FILES)
def test_a_link_or_a_pipe_instead_of_a_file_is_refused(saved, tmp_path, name):
    path = saved / "epoch-0003" / name
    elsewhere = path.rename(tmp_path / name)
    path.symlink_to(elsewhere)
    refused(saved, f"{path} is no ordinary file")
    path.unlink()
    path.symlink_to("nowhere")
    refused(saved, f"{path} is no ordinary file")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match="no ordinary file"):  # and no waiting for a writer
        restored(saved)


@needs_links
def test_a_link_instead_of_a_checkpoint_is_refused_and_never_followed(saved, tmp_path):
    elsewhere = (saved / "epoch-0003").rename(tmp_path / "elsewhere")
    before = contents(elsewhere)
    (saved / "epoch-0003").symlink_to(elsewhere)
    refused(saved, f"{saved / 'epoch-0003'} is a link")
    for number in (1, 2, 4, 5, 6):  # removes what is later, then what is older
        trained_for(number).checkpoint().save(saved)
    assert names(saved) == ["epoch-0003", "epoch-0005", "epoch-0006"]
    with pytest.raises(OSError, match="epoch-0003 could not be written .*a link, or"):
        trained_for(3).checkpoint().save(saved)
    assert contents(elsewhere) == before
    (saved / "epoch-0008").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="epoch-0008 is a link"):
        restored(saved)


def leaves(value, path=()):
    """Yield the way to each number, string and constant in what JSON holds."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*path, key))
    else:
        yield path, value


def test_a_manifest_that_is_altered_and_still_json_is_refused(saved):
    path = saved / "epoch-0003" / "checkpoint.json"
    text = path.read_text()
    others = ["", "[]", "{}", "null", "3", '"x"', "\0", "[" * 100_000, '{"a":' * 100_000]
    others += [f" {text}", text.replace(": ", ":"), json.dumps(json.loads(text), indent=1)]
    others += [text.replace('"sha256"', '"sha512"', 1), text[:-1] + ', "epoch": 2}']
    rng = random.Random(8)
    for way, value in rng.sample(list(leaves(json.loads(text))), 100):
        changed = json.loads(text)
        inner = changed
        for key in way[:-1]:
            inner = inner[key]
        inner[way[-1]] = value + 1 if isinstance(value, int | float) else f"{value}x"
        others.append(json.dumps(changed))
    assert json.dumps(json.loads(text)) == text, "only what was meant is changed"
    for other in others:
        path.write_text(other)
        refused(saved, f"{path} is cut off or altered")


# A checkpoint with the right checksums that nobody saved.


def forge(folder, about=None, data=None, **manifest):
    """Put other things into the checkpoint of epoch 3, with the checksums that belong to them."""
    path = folder / "epoch-0003"
    real = json.loads((path / "checkpoint.json").read_text())
    del real["sha256"]
    for name, content in (data or {}).items():
        (path / name).write_bytes(content)
        real["files"][name] = [len(content), generations._sha256(content)]
    real |= manifest
    if about is not None:
        real["about"] = about(real["about"])
    forged = generations._seal(json.dumps(real).encode())
    (path / "checkpoint.json").write_bytes(forged)


def opened(monkeypatch):
    """Return a list that grows by each file that the code of checkpoints reads."""
    read, seen = Path.read_bytes, []
    monkeypatch.setattr(Path, "read_bytes", lambda path: (seen.append(path), read(path))[1])
    return seen


@pytest.mark.parametrize(
    "manifest",
    [
        {"epoch": "3"}, {"epoch": None}, {"files": None}, {"files": []}, {"files": {}},
        {"files": {"model.safetensors": [1, "x"], "../secret": [6, "x"]}},
        {"files": {name: "../secret" for name in FILES[:2]}},
        {"files": {name: [6, "x", "../secret"] for name in FILES[:2]}},
        {"files": {name: [-1, "x"] for name in FILES[:2]}},
        {"files": {name: [2**70, "x"] for name in FILES[:2]}},
        {"files": {name: [{}, "x"] for name in FILES[:2]}},
        {"files": {name: 3 for name in FILES[:2]}},
    ],
    ids=str,
)  # fmt: skip
def test_a_forged_manifest_is_refused_and_leads_nowhere(saved, monkeypatch, manifest):
    (saved / "secret").write_text("secret")
    forge(saved, **manifest)
    refused(saved, saved / "epoch-0003")
    seen = opened(monkeypatch)
    with pytest.raises(ValueError, match="damaged"):
        restored(saved)
    inside = {saved / f"epoch-000{i}" / name for i in (2, 3) for name in FILES}
    assert set(seen) <= inside


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


def without(name):
    return lambda about: {
        **about,
        "state": {"dict": [p for p in about["state"]["dict"] if p[0] != name]},
    }


@pytest.mark.parametrize(
    "about",
    [
        lambda about: 3,
        lambda about: [],
        lambda about: {},
        lambda about: {**about, "state": None},
        lambda about: {**about, "state": {"tensor": "../secret"}},
        lambda about: {**about, "state": {"tensor": {}}},
        lambda about: {**about, "state": {"dict": [[[], 1]]}},
        lambda about: {**about, "state": {"dict": 7}},
        lambda about: {**about, "state": {"tuple": None}},
        lambda about: {**about, "state": nested(500)},
        lambda about: {**about, "run": None},
        lambda about: {**about, "run": {}},
        *[without(name) for name in ("history", "optimizer", "random")],
    ],
)
def test_forged_contents_are_refused(saved, about):
    forge(saved, about)
    with pytest.raises(ValueError, match="epoch-0003 is of another model or optimizer: "):
        restored(saved)


def test_a_manifest_deeper_than_python_can_go_is_refused(saved):
    forge(saved, about=lambda about: "PLACE")
    path = saved / "epoch-0003" / "checkpoint.json"
    body = path.read_text()[79:].replace('"PLACE"', "[" * 100_000 + "]" * 100_000)
    path.write_bytes(generations._seal(b"{" + body.encode()))
    refused(saved, f"{path} is none of ours")


def header(text, length=None, data=b"\0\0\0\0"):
    return (len(text) if length is None else length).to_bytes(8, "little") + text.encode() + data


LYING = {
    "a huge header": header("{}", 2**62),
    "a header of 99 MB": header("{}", 99_000_000),
    "a huge shape": header('{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4]}}'),
    "a huge product": header(
        '{"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,4]}}'
    ),
    "offsets far behind the end": header(
        '{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}'
    ),
    "offsets in reverse": header('{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}'),
    "a negative shape": header('{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}'),
    "data of nobody": header(
        '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', data=b"8" * 9
    ),
    "another type": header('{"a":{"dtype":"OBJECT","shape":[1],"data_offsets":[0,4]}}'),
    "a deep header": header("[" * 50_000),
    "no tensors": header("{}", data=b""),
    "nothing": b"",
}


@pytest.mark.parametrize("name", FILES[:2])
@pytest.mark.parametrize("lie", LYING)
def test_sizes_that_lie_are_refused_without_taking_the_memory(saved, name, lie):
    resource = pytest.importorskip("resource", reason="Windows does not say how much was taken")
    forge(saved, data={name: LYING[lie]})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match="epoch-0003 is of another model or optimizer: "):
        restored(saved)
    unit = 1 if sys.platform == "darwin" else 1024
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit < 30e6


# Checkpoints of another run.


def test_a_checkpoint_of_another_model_is_refused(saved):
    model = nn.Linear(1, 1)
    other = checkpoints.Run(model, torch.optim.AdamW(model.parameters()), None, Run().history)
    before = model.weight.clone()
    with pytest.raises(ValueError, match="of another model or optimizer: its group 0 is 0.weight"):
        other.restore(saved)
    assert torch.equal(model.weight, before)


@pytest.mark.parametrize(
    ("at", "layer", "message"),
    [
        (0, nn.Linear(1, 8, dtype=torch.float64), "0.weight is torch.float32 .* torch.float64"),
        (3, nn.Linear(8, 2), r"3.weight is torch.float32 \(1, 8\) there and .* \(2, 8\) here"),
        (
            2,
            nn.BatchNorm1d(8, track_running_stats=False),
            "2.num_batches_tracked is .* missing here",
        ),
        (1, nn.BatchNorm1d(8), "1.weight, "),
    ],
)
def test_what_is_different_in_another_model_is_named(saved, at, layer, message):
    run = Run()
    run.model[at] = layer
    run.optimizer = torch.optim.AdamW(run.model.parameters())
    before = {name: value.clone() for name, value in run.model.state_dict().items()}
    with pytest.raises(ValueError, match=f"of another model or optimizer: .*{message}"):
        run.checkpoint().restore(saved)
    assert all(torch.equal(value, before[name]) for name, value in run.model.state_dict().items())


def test_a_checkpoint_of_another_optimizer_is_refused(saved):
    run = Run(torch.optim.Adagrad)
    with pytest.raises(ValueError, match="the optimizer is AdamW there and Adagrad here"):
        run.go(4, saved)
    run = Run()
    groups = [{"params": [p], "lr": 0.1} for p in run.model.parameters()]
    run.optimizer = torch.optim.AdamW(groups)
    with pytest.raises(ValueError, match="of another model or optimizer: its group 0 is 0.weight"):
        run.go(4, saved)


# What a checkpoint holds.


def test_a_checkpoint_holds_safetensors_and_json(saved):
    assert names(saved) == ["epoch-0002", "epoch-0003"], "the newest and the one before"
    for folder in saved.iterdir():
        assert names(folder) == sorted(FILES)
        json.loads((folder / "checkpoint.json").read_text())
        for name in FILES[:2]:
            data = (folder / name).read_bytes()
            json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def test_what_cannot_be_packed_is_refused():
    with pytest.raises(ValueError, match="cannot hold a set"):
        checkpoints._pack({"a": {1, 2}}, {})


def test_packing_is_undone_by_unpacking():
    value = {
        "betas": (0.9, 0.999), 0: {"step": torch.tensor(3.0)}, "list": [1, None, True, "x"],
        "numbers": [0.1, 1e-300, math.inf, 2**70], "empty": [{}, [], ()],
        "strided": torch.arange(6).reshape(2, 3).T,
    }  # fmt: skip
    tensors = {}
    packed = json.loads(json.dumps(checkpoints._pack(value, tensors)))
    assert all(tensor.is_contiguous() for tensor in tensors.values()), "as safetensors wants them"
    back = checkpoints._unpack(packed, tensors)
    assert torch.equal(back.pop("strided"), value.pop("strided"))
    assert back == value and type(back["betas"]) is tuple
