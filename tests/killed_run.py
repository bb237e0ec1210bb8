"""A run with everything random in it, and a program that kills such runs and lets them go on.

    python -m tests.killed_run FOLDER SEED

Importing PyTorch takes seconds, so the program does that once and forks a child for each run. A
child is killed at a line of code, counted as they are run. Printed are, as JSON, what came of a
run that was never killed, and of each that was killed and then went on: the epoch at which that
was, and what came of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from support import checkpoints, training
from support.data import files
from support.training import History, fit, warmup_cosine

X = torch.linspace(-1, 1, 24)[:, None]
Y = 3 * X - 2


def squares(model, batch):
    x, y = batch
    return F.mse_loss(model(x), y)


class Run:
    """A run with everything random in it: dropout, order, noise from all three generators."""

    def __init__(self, optimizer=torch.optim.AdamW, lr=0.05):
        torch.manual_seed(5)
        self.model = nn.Sequential(
            nn.Linear(1, 8), nn.Dropout(0.3), nn.BatchNorm1d(8), nn.Linear(8, 1)
        )
        self.optimizer = optimizer(self.model.parameters(), lr=lr)
        data = torch.utils.data.TensorDataset(X, Y)
        self.loader = torch.utils.data.DataLoader(data, batch_size=5, shuffle=True)
        self.history, self.after = History(), ()

    def batches(self, epoch):
        for x, y in self.loader:
            yield x + 0.01 * random.random(), y + 0.01 * np.random.randn()

    def go(self, epochs, folder=None, **given):
        given = {"schedule": warmup_cosine(3, 30), "clip_norm": 1.0, "seed": 9, **given}
        given = {"batches": self.batches, "checkpoint": folder, **given}
        options = {"epochs": epochs, "optimizer": self.optimizer, "device": "cpu", **given}
        self.history = fit(self.model, loss_fn=squares, **options)
        self.after = random.random(), np.random.rand(), np.random.randn(), torch.rand(1).item()
        return self

    def result(self):
        """Return everything that a run leaves but the seconds, exactly, as JSON can hold it."""
        state, tensors = self.optimizer.state_dict(), self.model.state_dict()
        for i, kept in state["state"].items():
            tensors |= {f"{i}.{name}": value for name, value in kept.items() if value is not None}
        sums = [
            [name, hashlib.sha256(value.numpy().tobytes()).hexdigest()]
            for name, value in sorted(tensors.items())
        ]
        history = {key: value for key, value in vars(self.history).items() if key != "seconds"}
        return [sums, repr(state["param_groups"]), history, list(self.after)]


# Counting lines, and dying at one of them.

TRACED = {__file__, *(module.__file__ for module in (checkpoints, files, training))}


class Lines:
    """Counts the lines that are run, and kills the process at one; saving: those of saving."""

    def __init__(self, kill_at=None):
        self.kill_at, self.count, self.depth, self.saving = kill_at, 0, 0, []

    def trace(self, frame, event, _):
        """See sys.settrace."""
        code = frame.f_code
        if code.co_filename not in TRACED:
            return None
        is_save = code.co_name == "save" and code.co_filename == checkpoints.__file__
        if event == "line":
            self.count += 1
            if self.depth:
                self.saving.append(self.count)
            if self.count == self.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        elif is_save and event in ("call", "return"):
            self.depth += 1 if event == "call" else -1
        return self.trace


def in_child(folder, kill_at=None):
    """Train for six epochs in a child; return what came of it and its lines, None if killed."""
    written = Path(f"{folder}.json")
    if not (pid := os.fork()):
        lines = Lines(kill_at)
        sys.settrace(lines.trace)
        result = Run().go(6, folder, accumulate=2).result()
        sys.settrace(None)
        written.write_text(json.dumps([result, lines.count, lines.saving]))
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if os.WTERMSIG(status) == signal.SIGKILL:
        return None
    assert status == 0, "a child failed"
    return json.loads(written.read_text())


def warm_up():
    """Load what PyTorch loads when it is used, so that no child has to.

    Nothing here computes gradients: PyTorch may start threads for that, which no fork survives.
    """
    run = Run()
    next(iter(run.loader))
    for value in run.model.parameters():
        value.grad = torch.zeros_like(value)
    nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
    run.optimizer.step()
    run.optimizer.load_state_dict(run.optimizer.state_dict())
    run.result()


def main(folder, seed):
    torch.set_num_threads(1)
    warm_up()
    folder, rng = Path(folder), random.Random(int(seed))
    whole, count, saving = in_child(folder / "whole")
    training_lines = sorted({*range(1, count + 1)} - {*saving})
    moments = rng.sample(training_lines, 12) + rng.sample(saving, 12)
    found = []
    for moment in moments:
        run = folder / f"killed at {moment}"
        assert in_child(run, moment) is None
        saved = [int(path.stem[6:]) for path in run.glob("epoch-*.safetensors")]
        result = in_child(run)[0]
        left = sorted(path.name for path in run.iterdir())
        found.append([max(saved, default=0), result, left])
    print(json.dumps([whole, found]))


if __name__ == "__main__":
    main(*sys.argv[1:])
