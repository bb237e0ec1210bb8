"""Measures how long each notebook takes under nbval, and fails when one is over its budget.

The budget is for two quiet cores. Where a machine is slower, or busy for a while, other work of the
same kind takes longer as well: by that the budget grows. Who is still over it has a second run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import defaultdict

import pytest

LIMIT = float(os.environ.get("PRETRAIN_NOTEBOOK_SECONDS", "20"))
USUAL = 4.5  # seconds that WORK takes where the limit is what it says
WORK = """
import io
import matplotlib
import torch
matplotlib.use("agg")
import matplotlib.pyplot as plt
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
optimizer, x, losses = torch.optim.Adam(net.parameters()), torch.randn(64, 256), []
for _ in range(500):
    optimizer.zero_grad()
    loss = (net(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
for _ in range(5):
    figure, axes = plt.subplots(1, 3, layout="constrained")
    for ax in axes:
        ax.plot(losses)
    figure.savefig(io.BytesIO())
"""
seconds: dict[str, float] = defaultdict(float)
weighed: dict[str, tuple[float, float]] = {}  # seconds, and how slow the machine was


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add a cell's time to its notebook's; starting and stopping the kernel count as well."""
    notebook = report.nodeid.split("::")[0]
    if notebook.endswith(".ipynb"):
        seconds[notebook] += report.duration


def slowness() -> float:
    """Return how many times as long as usual WORK takes at best, but at least 1."""
    taken = []
    for _ in range(3):  # the first run may wait for the disk
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", WORK], check=True)
        taken.append(time.perf_counter() - start)
    return max(1.0, min(taken) / USUAL)


def second_run(notebook: str, folder: os.PathLike) -> float:
    """Return the seconds that a notebook takes in a run of its own, which must pass as well."""
    command = [sys.executable, "-m", "pytest", "-q", "--nbval", "--nbval-current-env", notebook]
    environment = {**os.environ, "PRETRAIN_NOTEBOOK_SECONDS": "inf"}
    options = {"capture_output": True, "text": True, "check": True}
    done = subprocess.run(command, cwd=folder, env=environment, **options)
    return float(re.search(r"^ *([\d.]+)  \S+\.ipynb", done.stdout, re.M)[1])


def too_slow(notebook: str) -> bool:
    """Return whether a notebook is over its budget, as far as that is known."""
    taken, times = weighed.get(notebook, (seconds[notebook], 1.0))
    return taken > LIMIT * times


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Turn success into failure when a notebook took too long."""
    if session.exitstatus != pytest.ExitCode.OK or hasattr(session.config, "workerinput"):
        return
    if over := sorted(filter(too_slow, seconds)):
        times = slowness()
        weighed.update((notebook, (seconds[notebook], times)) for notebook in over)
    for notebook in filter(too_slow, over):
        before, taken = slowness(), second_run(notebook, session.config.rootpath)
        weighed[notebook] = taken, (before + slowness()) / 2
    if any(map(too_slow, over)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the seconds of each notebook next to the limit."""
    if seconds:
        terminalreporter.section(f"seconds per notebook (limit {LIMIT:g})")
    for notebook, taken in sorted(seconds.items()):
        line = f"{taken:7.1f}  {notebook}"
        if notebook in weighed:
            taken, times = weighed[notebook]
            line += f"   {taken:.1f} where all takes {times:.2f} times as long"
        terminalreporter.write_line(line + ("   TOO SLOW" if too_slow(notebook) else ""))
