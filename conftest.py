"""Measures how long each notebook takes under nbval, and fails when one is over its budget."""

from __future__ import annotations

import os
from collections import defaultdict

import pytest

LIMIT = float(os.environ.get("PRETRAIN_NOTEBOOK_SECONDS", "20"))
seconds: dict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add a cell's time to its notebook's; starting and stopping the kernel count as well."""
    notebook = report.nodeid.split("::")[0]
    if notebook.endswith(".ipynb"):
        seconds[notebook] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Turn success into failure when a notebook took too long."""
    if session.exitstatus == pytest.ExitCode.OK and any(s > LIMIT for s in seconds.values()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the seconds of each notebook next to the limit."""
    if seconds:
        terminalreporter.section(f"seconds per notebook (limit {LIMIT:g})")
    for notebook, taken in sorted(seconds.items()):
        verdict = "" if taken <= LIMIT else "   TOO SLOW"
        terminalreporter.write_line(f"{taken:7.1f}  {notebook}{verdict}")
