"""A plugin of pytest that says at the end how long each notebook took under nbval.

    python -m pytest -p tools.notebook_seconds --nbval chapters

The Makefile gives it to every run of nbval.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

seconds: dict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add a cell's time to its notebook's; starting and stopping the kernel count as well."""
    notebook = report.nodeid.split("::")[0]
    if notebook.endswith(".ipynb"):
        seconds[notebook] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the seconds of each notebook, the slowest first. What hangs, nbval itself stops."""
    if seconds:
        terminalreporter.section("seconds per notebook")
    for notebook, taken in sorted(seconds.items(), key=lambda pair: -pair[1]):
        terminalreporter.write_line(f"{taken:7.1f}  {notebook}")
