"""Plant known mistakes in support/, one at a time, and see whether the tests notice.

    python -m benchmarks.mutants [--only NAME …] [--save before]

Each entry of mutants.toml is one mistake that a learner or a refactoring makes in silence: a
`name` that says it in words, the `file`, the `old` text (which occurs there once), the `new` text
that makes the mistake, and the `tests` that should notice. A mutant is planted in a temporary
copy, never in the checkout. It is killed if a test fails, and survives if all of them pass.
Where the code has been rewritten, the old text is gone and the mutant is outdated: plant the
mistake that its name describes in the new code.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).with_suffix(".toml")
TIMEOUT = 300  # seconds: a mutant that makes a test hang is noticed, too


def run_tests(tests: list[str], folder: Path) -> str:
    """Return the name of the first test that fails, or "" if all pass.

    Raises: RuntimeError if pytest cannot run them, as for a mutant that is no Python.
    """
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    # No bytecode: a mutant of the same size in the same second would run as the code before it.
    settings = {"PRETRAIN_PROFILE": "smoke", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    environment = os.environ | settings | {"PYTHONPATH": str(folder)}
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    # A session of its own, so that the processes that a test starts are stopped with it.
    process = subprocess.Popen(
        command, cwd=folder, env=environment, start_new_session=True, **output
    )
    try:
        written, _ = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "a test that hangs"
    if process.returncode == 0:
        return ""
    if found := re.search(r"^(?:FAILED|ERROR) (?:tests/)?([^\s[]+::[^\s[]+)", written, re.M):
        return found[1]
    raise RuntimeError(f"pytest ended with {process.returncode}:\n{written[-2000:]}")


def try_mutant(mutant: dict, folder: Path) -> str:
    """Return "killed: <test>", "survived" or "outdated"."""
    path = folder / mutant["file"]
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if text.count(mutant["old"]) != 1:
        return "outdated"
    path.write_text(text.replace(mutant["old"], mutant["new"]), encoding="utf-8")
    try:
        test = run_tests(mutant["tests"], folder)
    finally:
        path.write_text(text, encoding="utf-8")
    return f"killed: {test}" if test else "survived"


def to_toml(mutant: dict) -> str:
    """Return a mutant as an entry of the list."""
    lines = ["[[mutant]]"]
    for key, value in mutant.items():
        if key not in ("old", "new"):
            lines.append(f"{key} = {json.dumps(value)}")
        elif "\n" in value or "'" in value:
            lines.append(f"{key} = '''\n{value}'''")
        else:
            lines.append(f"{key} = '{value}'")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Try the mutants, print what became of each, and keep it in the list if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="whose file or name has this in it"
    )
    parser.add_argument("--save", metavar="FIELD", help="write the results into this field")
    options = parser.parse_args()
    mutants = tomllib.loads(LIST.read_text(encoding="utf-8"))["mutant"]
    words = options.only or [""]
    chosen = [m for m in mutants if any(word in m["file"] + m["name"] for word in words)]
    results: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        hidden_and_built = shutil.ignore_patterns(".*", "_build", "__pycache__")
        folder = Path(shutil.copytree(ROOT, Path(name, "copy"), ignore=hidden_and_built))
        # Tests that are red already would kill every mutant.
        for tests in sorted({tuple(m["tests"]) for m in chosen}):
            if red := run_tests([*tests], folder):
                sys.exit(f"{red} fails without any mutant: mend it first")
        for mutant in chosen:
            results.append(try_mutant(mutant, folder))
            print(f"{mutant['file']}: {mutant['name']}: {results[-1]}", flush=True)
            if options.save:
                mutant[options.save] = results[-1]
                LIST.write_text("\n".join(map(to_toml, mutants)), encoding="utf-8")
    counts = {end: sum(r.startswith(end) for r in results) for end in ("killed", "outdated")}
    print(f"killed {counts['killed']} of {len(results)}, outdated {counts['outdated']}")


if __name__ == "__main__":
    main()
