"""Grade labs that were handed in, notebooks or modules that are named as their lab.

    python -m support.labs grade FILE… [--lab NAME] [--json FILE] [--seconds 60]

Only imports, functions, classes, and the constants that these use are executed, each file in a
process of its own. An answer that takes too long, or ends the process, fails that check alone.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from support import labs

Node = ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom | ast.Assign


def sources(path: Path) -> list[str]:
    """Return the code cells of a notebook without magics, or a module as one cell."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return [text]
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return [re.sub(r"(?m)^[%!].*$", "", "".join(cell["source"])) for cell in cells]


def definitions(cells: list[str]) -> list[Node]:
    """Return imports, functions, classes, and assignments to names that one of them reads."""
    nodes: list = []
    for cell in cells:
        try:
            nodes += ast.parse(cell).body
        except SyntaxError:  # an unfinished cell: its names are missing, and the checks say so
            continue
    kinds = ast.FunctionDef, ast.ClassDef
    kept = [n for n in nodes if isinstance(n, (*kinds, ast.Import, ast.ImportFrom))]
    waiting = [n for n in nodes if isinstance(n, ast.Assign)]
    new = [n for n in kept if isinstance(n, kinds)]
    while new:
        parts = [part for n in new for part in ast.walk(n)]
        names = [part for part in parts if isinstance(part, ast.Name)]
        own = {part.id for part in names if not isinstance(part.ctx, ast.Load)}
        own |= {part.arg for part in parts if isinstance(part, ast.arg)}
        read = {part.id for part in names} - own
        new = [n for n in waiting if read & {t.id for t in n.targets if isinstance(t, ast.Name)}]
        waiting = [n for n in waiting if n not in new]
        kept += new
    return [n for n in nodes if n in kept]


def executed(cells: list[str]) -> dict:
    """Return what the definitions of some cells give; one that fails is left out."""
    space: dict = {"__name__": "answers"}
    for node in definitions(cells):
        try:
            exec(compile(ast.Module([node], []), "answer", "exec"), space)
        except Exception:  # a check says later which name is missing
            continue
    return space


def answer(path: str, names: list[str]) -> None:
    """Check the answers of a file, one JSON line before and after each check, on standard output.

    What the answers print is lost, and the checks are read anew after their definitions.
    """
    results = os.fdopen(os.dup(1), "w")
    for own in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), own)
    space = executed(sources(Path(path)))
    for module in [name for name in sys.modules if name.startswith("support.labs")]:
        del sys.modules[module]
    from support import labs as pristine

    for name in names:
        print(json.dumps([name]), file=results, flush=True)
        parameters = inspect.signature(pristine.checks(name.partition(".")[0])[name]).parameters
        missing = [p for p in parameters if p not in space]
        said = f"{name}: not yet. There is no {', '.join(missing)}"
        said = said if missing else pristine.check(name, *(space[p] for p in parameters))
        print(json.dumps([name, said]), file=results, flush=True)


def grade(path: Path, lab: str, seconds: float) -> dict[str, str]:
    """Return what each check of the lab says of a file."""
    names, said = list(labs.checks(lab)), {}
    while rest := [name for name in names if name not in said]:
        command = [sys.executable, "-m", "support.labs", "answer", str(path.resolve()), *rest]
        found: queue.Queue = queue.Queue()
        with tempfile.TemporaryDirectory() as folder, subprocess.Popen(
            command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=folder, text=True,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        ) as child:  # fmt: skip
            threading.Thread(
                target=lambda c=child, f=found: [*map(f.put, c.stdout), f.put("")], daemon=True
            ).start()
            current, reason = rest[0], "the answer ends the program"
            try:
                while line := found.get(timeout=seconds):
                    current, *result = json.loads(line)
                    if result:
                        said[current] = result[0]
            except queue.Empty:
                reason = f"took longer than {seconds:g} seconds"
            child.kill()
        if current not in said:
            said[current] = f"{current}: not yet. {reason}"
        elif reason[0] == "t" and reason[1] == "o":  # it hangs between two checks
            said |= {name: f"{name}: not yet. {reason}" for name in rest if name not in said}
    return {name: said[name] for name in names}


def main(arguments: list[str] | None = None) -> int:
    """Grade the files named; the exit status is 0 where all pass."""
    parser = argparse.ArgumentParser(prog="support.labs", description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["grade"])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument(
        "--lab", help="the lab, where files are not called bpe.ipynb, lab_bpe.ipynb or bpe.py"
    )
    parser.add_argument("--json", type=Path, help="where to write what each check says")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each check")
    options = parser.parse_args(arguments)
    said, failed = {}, False
    for path in options.files:
        lab = options.lab or path.stem.removeprefix("lab_")
        try:
            sources(path), labs.checks(lab)
        except (OSError, ValueError, KeyError) as error:
            print(f"{path}: not graded, {error}{' (or name it: --lab)' * ('no lab' in str(error))}")
            said[str(path)], failed = {}, True
            continue
        said[str(path)] = results = grade(path, lab, options.seconds)
        passed = sum(map(bool, map(labs.Result, results.values())))
        print(f"{path}: {passed} of {len(results)}")
        print(*(f"    {result}" for result in results.values()), sep="\n")
    if len(said) > 1:
        print("\nTogether:")
        for path, results in said.items():
            passed = sum(map(bool, map(labs.Result, results.values())))
            print(f"    {path}: {passed} of {len(results)}")
    if options.json:
        options.json.write_text(json.dumps(said, indent=1), encoding="utf-8")
    return int(
        failed or not all(labs.Result(r) for results in said.values() for r in results.values())
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["answer"]:
        answer(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main())
