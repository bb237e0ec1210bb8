"""Prove that nbgrader and Otter can hand out and grade the labs that `make labs` exports.

    python -m tools.exports [LAB…]

In an environment of their own, _build/exports/venv, each makes the readers' version of a lab and
grades two that are handed in: one solved, one untouched. The readers' version must have the code of
the blank lab; the points, read from what the tools write, must be all and none.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tools import address, labs
from tools.format_notebooks import read

FOLDER = address.ROOT / "_build" / "exports"
PYTHON = FOLDER / "venv" / "bin" / "python"
CONFIG = """\
c = get_config()
c.CourseDirectory.course_id = "labs"
c.ClearSolutions.code_stub = {"python": %r}
"""


def run(*command: str | Path, cwd: Path = FOLDER) -> None:
    """Run a command; where it fails, print what it has said, and end."""
    ours = {"PYTHONPATH": str(address.ROOT), "PRETRAIN_PROFILE": "smoke", "OMP_NUM_THREADS": "1"}
    ours["PATH"] = f"{PYTHON.parent}{os.pathsep}{os.environ['PATH']}"  # for the notebooks' kernels
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=os.environ | ours, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{done.stdout}\n{' '.join(map(str, command))}: failed")


def environment() -> None:
    """Make the environment, unless it is there: the two tools, and behind them what we have."""
    if (FOLDER / "venv" / "made").exists():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    run(sys.executable, "-m", "venv", "--clear", FOLDER / "venv")
    run(PYTHON, "-m", "pip", "install", "--quiet", "nbgrader", "otter-grader")
    [packages] = (FOLDER / "venv").glob("lib/python*/site-packages")
    (packages / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    (FOLDER / "venv" / "made").touch()


def code(path: Path) -> list[str]:
    """Return the code cells of a notebook."""
    return [cell.source for cell in read(path).cells if cell.cell_type == "code"]


def nbgrader(lab: str) -> tuple[list[str], dict[str, tuple[float, float]]]:
    """Return the code that readers get, and the points of those who hand in, with all there are."""
    course = FOLDER / "nbgrader"
    shutil.rmtree(course, ignore_errors=True)
    shutil.copytree(labs.OUT / "nbgrader" / "source" / lab, course / "source" / lab)
    (course / "nbgrader_config.py").write_text(CONFIG % labs.STUB, encoding="utf-8")
    run(PYTHON, "-m", "nbgrader", "generate_assignment", lab, cwd=course)
    for reader, version in (("solved", "source"), ("blank", "release")):
        shutil.copytree(course / version / lab, course / "submitted" / reader / lab)
    run(PYTHON, "-m", "nbgrader", "autograde", lab, cwd=course)
    run(PYTHON, "-m", "nbgrader", "export", "--to=grades.csv", cwd=course)
    with (course / "grades.csv").open(encoding="utf-8", newline="") as grades:
        rows = list(csv.DictReader(grades))
    points = {row["student_id"]: (float(row["score"]), float(row["max_score"])) for row in rows}
    return code(course / "release" / lab / f"{lab}.ipynb"), points


def otter(lab: str) -> tuple[list[str], dict[str, tuple[float, float]]]:
    """Return the same of Otter."""
    made, points = FOLDER / "otter" / lab, {}
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    master = labs.OUT / "otter" / lab / f"{lab}.ipynb"
    run(PYTHON, "-m", "otter", "assign", "--no-pdfs", master, made)
    [grader] = (made / "autograder").glob("*.zip")
    for reader, version in (("solved", "autograder"), ("blank", "student")):
        out = made / reader
        out.mkdir()
        run(PYTHON, "-m", "otter", "run", "-a", grader, "-o", out, made / version / f"{lab}.ipynb")
        tests = json.loads((out / "results.json").read_text(encoding="utf-8"))["tests"]
        got, most = (sum(test.get(key, 0) for test in tests) for key in ("score", "max_score"))
        points[reader] = got, most
    return code(made / "student" / f"{lab}.ipynb"), points


def main(names: list[str]) -> int:
    """Try the labs named, or all, and return the exit status."""
    environment()
    labs.make()
    failed = 0
    for path in labs.paths():
        if names and path.stem not in names:
            continue
        blank = labs.blank(read(path))
        every = sum(bool(labs.CHECK.search(cell.source)) for cell in blank.cells)
        for tool, form in ((nbgrader, labs.for_nbgrader), (otter, None)):
            handed_out, points = tool(path.stem)
            cells = (form(blank) if form else blank).cells
            same = handed_out == [cell.source for cell in cells if cell.cell_type == "code"]
            right = same and points == {"solved": (every, every), "blank": (0, every)}
            failed += not right
            said = ", ".join(f"{who} {got:g} of {most:g}" for who, (got, most) in points.items())
            form = "the blank lab's code" if same else "NOT the blank lab's code"
            print(f"{path.stem}, {tool.__name__}: {form}; {said}: {'ok' if right else 'WRONG'}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
