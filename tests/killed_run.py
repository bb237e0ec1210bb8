"""A run with everything random in it, and a server that starts processes to be killed.

Importing PyTorch takes seconds, so the server does that once and forks a child for each request.
A request is a line of JSON on standard input: the name of a task, its arguments, and perhaps
kill_at, for SIGKILL at that line of code, counted as they are run. The answer is a line as well:
the signal that ended the child, or its exit status.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import traceback
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from support import checkpoints, training
from support.training import History, fit, warmup_cosine

X = torch.linspace(-1, 1, 24)[:, None]
Y = 3 * X - 2


def squares(model, batch):
    x, y = batch
    return F.mse_loss(model(x), y)


class Run:
    """A run with everything random in it: dropout, order, noise from all three generators."""

    def __init__(self, optimizer=torch.optim.AdamW):
        torch.manual_seed(5)
        self.model = nn.Sequential(
            nn.Linear(1, 8), nn.Dropout(0.3), nn.BatchNorm1d(8), nn.Linear(8, 1)
        )
        self.optimizer = optimizer(self.model.parameters(), lr=0.05)
        data = torch.utils.data.TensorDataset(X, Y)
        self.loader = torch.utils.data.DataLoader(data, batch_size=5, shuffle=True)
        self.history, self.after = History(), ()

    def batches(self, epoch):
        for x, y in self.loader:
            yield x + 0.01 * random.random(), y + 0.01 * np.random.randn()

    def go(self, epochs, folder=None, **given):
        given = {"schedule": warmup_cosine(3, 30), "clip_norm": 1.0, "seed": 9, **given}
        batches = given.pop("batches", self.batches)
        self.history = fit(
            self.model, batches, squares, epochs=epochs, optimizer=self.optimizer,
            checkpoint=folder, **given,
        )  # fmt: skip
        self.after = random.random(), np.random.rand(), np.random.randn(), torch.rand(1).item()
        return self

    def result(self):
        """Return everything that a run leaves but the seconds, exactly, as JSON can hold it."""
        tensors = {}
        state = checkpoints._pack([self.model.state_dict(), self.optimizer.state_dict()], tensors)
        sums = [hashlib.sha256(value.numpy().tobytes()).hexdigest() for value in tensors.values()]
        history = {key: value for key, value in vars(self.history).items() if key != "seconds"}
        return {"state": state, "tensors": sums, "history": history, "after": list(self.after)}

    def checkpoint(self):
        return checkpoints.Run(self.model, self.optimizer, None, self.history)


def trained_for(epochs):
    """Return a run that looks as if it had trained for so many epochs: every number is that."""
    run = Run()
    with torch.no_grad():
        for value in run.model.parameters():
            value.fill_(epochs)
    numbers = [float(epochs)] * epochs
    run.history = History(numbers, numbers, numbers, numbers, [epochs] * epochs)
    return run


# What a child can be asked to do.


def train(folder, result, forget=False):
    """Train for six epochs, in steps of two batches, and write what came of it."""
    if forget:
        checkpoints._set_random_state = lambda *_: None
    run = Run().go(6, folder, accumulate=2)
    Path(result).write_text(json.dumps(run.result()))


def save(folder, epochs, copied=False):
    """Save what `trained_for` returns; with copied, files get their names one by one."""
    os.fsync = lambda _: None  # what a killed process has written outlives it anyway
    if copied:
        Path.rename = _copied
    trained_for(epochs).checkpoint().save(folder)


def save_with_a_full_disk(folder, epochs, limit, result):
    """Save where no file may be longer than so many bytes, and write the message of the error."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    message = _message(save, folder, epochs)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    Path(result).write_text(message)


def save_where_nobody_may_write(folder, epochs, result):
    """Save into a folder that is read-only, and write the message of the error."""
    mode = os.stat(folder).st_mode
    os.chmod(folder, 0o555)
    if os.geteuid() == 0:
        os.seteuid(65534)  # the superuser may write everywhere
    try:
        message = _message(save, folder, epochs)
    finally:
        os.seteuid(os.getuid())
        os.chmod(folder, mode)
    Path(result).write_text(message)


TASKS = {task.__name__: task for task in (train, save)}
TASKS |= {task.__name__: task for task in (save_with_a_full_disk, save_where_nobody_may_write)}


def _message(task, *given):
    try:
        task(*given)
    except OSError as error:
        return f"{type(error).__name__} {error.errno}: {error}"
    return "no error"


def _copied(self, target):
    target.mkdir()
    for path in sorted(self.iterdir()):
        shutil.copy(path, target)
    return target


# Counting lines, and dying at one of them.

TRACED = [__file__, *(module.__file__ for module in (checkpoints, training))]


class Lines:
    """Counts the lines of some files as they are run, and acts at one of them.

    saving: the numbers of those that are run while a checkpoint is being saved.
    """

    def __init__(self, at=None, act=None, files=TRACED):
        self.at, self.act, self.files = at, act, files
        self.count, self.depth, self.saving = 0, 0, []

    def trace(self, frame, event, _):
        """See sys.settrace."""
        code = frame.f_code
        if code.co_filename not in self.files:
            return None
        is_save = code.co_name == "save" and code.co_filename == checkpoints.__file__
        if event == "line":
            self.count += 1
            if self.depth:
                self.saving.append(self.count)
            if self.count == self.at:
                self.act()
        elif is_save and event in ("call", "return"):
            self.depth += 1 if event == "call" else -1
        return self.trace


def _die():
    os.kill(os.getpid(), signal.SIGKILL)


def _child(task, kill_at=None, lines=None, files=TRACED, **given):
    if kill_at or lines:
        counter = Lines(kill_at, _die, files)
        sys.settrace(counter.trace)
    TASKS[task](**given)
    sys.settrace(None)
    if lines:
        Path(lines).write_text(json.dumps([counter.count, counter.saving]))


def _warm_up():
    """Import what is only imported when it is used, so that no child has to.

    Nothing here computes gradients: PyTorch may start threads for that, which no fork survives.
    """
    torch.set_num_threads(1)
    training._accelerator(torch.device("cpu"), "no")
    run = trained_for(1)
    run.loader.generator = torch.Generator()
    next(iter(run.loader))
    for value in run.model.parameters():
        value.grad = torch.zeros_like(value)
    nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
    run.optimizer.step()
    run.optimizer.load_state_dict(run.optimizer.state_dict())
    run.result()


def _serve():
    _warm_up()
    print("ready", flush=True)
    for request in sys.stdin:
        pid = os.fork()
        if not pid:
            try:
                _child(**json.loads(request))
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        status = os.waitpid(pid, 0)[1]
        print(os.WTERMSIG(status) or os.WEXITSTATUS(status), flush=True)


if __name__ == "__main__":
    _serve()
