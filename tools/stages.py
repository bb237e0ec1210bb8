"""Run the parts of `make test`, two at a time, and print how long each took.

    python -m tools.stages [STAGE…]

Each stage is a target of the Makefile. Its output is printed whole when it is done. What depends on
a stage that failed is left out; the rest still runs, and the exit status says whether all passed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

# Each with what must have passed before; of those that are ready the first starts first, so the
# longest chain comes before what can run at any time.
STAGES: dict[str, tuple[str, ...]] = {
    "lint": (),
    "book": (),
    "chinese": ("book",),
    "pages": ("chinese",),
    "notebooks": (),
    "unit": (),
    "colab-test": ("book",),
}
LANES = 2


@dataclass
class Run:
    """The stages of one run: those that wait, and of the others the outcome and the seconds."""

    needs: dict[str, tuple[str, ...]]
    command: list[str]
    waiting: list[str] = field(init=False)
    outcome: dict[str, str] = field(default_factory=dict)  # "passed", "FAILED" or "left out"
    seconds: dict[str, float] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self.waiting = list(self.needs)

    def _next(self) -> str | None:
        """Return the next stage that is ready, when there is one, or None when none is left."""
        with self.changed:
            while self.waiting:
                for stage in list(self.waiting):
                    before = [self.outcome.get(n, "") for n in self.needs[stage] if n in self.needs]
                    if {"FAILED", "left out"} & set(before):
                        self.waiting.remove(stage)
                        self.outcome[stage] = "left out"
                        self.changed.notify_all()
                    elif all(before):
                        self.waiting.remove(stage)
                        return stage
                if self.waiting:
                    self.changed.wait()
            return None

    def lane(self) -> None:
        """Run one stage after another until none is left."""
        while stage := self._next():
            start = time.perf_counter()
            done = subprocess.run(
                [*self.command, stage],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
            )
            with self.changed:
                self.seconds[stage] = time.perf_counter() - start
                self.outcome[stage] = "FAILED" if done.returncode else "passed"
                print(f"== {stage}: {self.outcome[stage]}", done.stdout, sep="\n", flush=True)
                self.changed.notify_all()

    def table(self, total: float) -> str:
        """Return a line for each stage: its outcome, and its minutes and seconds."""
        rows = [(s, self.outcome[s], self.seconds.get(s, 0.0)) for s in self.needs]
        rows.append(("all, two at a time", "passed" if self.passed else "FAILED", total))
        return "\n".join(
            f"{name:<20}{how:<10}{round(s) // 60:3}:{round(s) % 60:02}" for name, how, s in rows
        )

    @property
    def passed(self) -> bool:
        """Whether every stage has passed."""
        return set(self.outcome.values()) == {"passed"}


def run(needs: dict[str, tuple[str, ...]], command: list[str]) -> bool:
    """Run `command STAGE` for each stage, print the table, and return whether all passed."""
    start = time.perf_counter()
    this = Run(needs, command)
    lanes = [threading.Thread(target=this.lane) for _ in range(LANES)]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    print(this.table(time.perf_counter() - start), flush=True)
    return this.passed


def main(arguments: list[str]) -> int:
    """Run the stages named, or all, and return the exit status."""
    needs = {stage: STAGES[stage] for stage in arguments or STAGES}
    cores = os.cpu_count() or 1
    processes = [f"PROCESSES={max(1, cores // LANES)}", f"NOTEBOOK_PROCESSES={cores}"]
    make = ["make", "--no-print-directory", *processes]
    return 0 if run(needs, make) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
