"""Check the form of files, in seconds and without PyTorch: what `make lint` does for all of them.

    python -m tools.check [--all]

Checked are the files that differ from the branch main, or all. Each complaint names the file and
says what to do.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from tools import address, course_map, notebook_rules
from tools.format_notebooks import format_notebook, read, text_of

ROOT = address.ROOT
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def _git(*arguments: str) -> list[str]:
    """Return the lines that git prints, none where it fails or is not there."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, encoding="utf-8")
    except FileNotFoundError:
        return []
    return done.stdout.split("\0")[:-1] if "-z" in arguments else done.stdout.splitlines()


def files(everything: bool) -> list[Path]:
    """Return the files that differ from main, or all that git has or would take."""
    new = _git("ls-files", "-z", "--others", "--exclude-standard")
    if everything:
        names = _git("ls-files", "-z") + new
    else:
        bases = (_git("merge-base", "HEAD", branch) for branch in ("origin/main", "main"))
        [base] = next(filter(None, bases), ["HEAD"])
        names = _git("diff", "--name-only", "-z", base, "--") + new
    return [path for name in sorted({*names}) if (path := ROOT / name).is_file()]


def notebook(path: Path) -> list[str]:
    """Return what is wrong with the form of a notebook."""
    book = read(path)
    formatted = text_of(format_notebook(book, path.stem))
    unformatted = path.read_text(encoding="utf-8") != formatted
    return ["run `make format`"] * unformatted + notebook_rules.complaints(book)


def page(path: Path) -> list[str]:
    """Return the links of a page of text that lead to no file."""
    targets = LINK.findall(re.sub(r"`[^`\n]*`", "", path.read_text(encoding="utf-8")))
    lost = [target for target in targets if not (path.parent / target).exists()]
    return [f"the link to {target} leads to no file" for target in lost]


def of_the_book() -> list[str]:
    """Return which tables made from the table of contents are stale, and what it lacks."""
    try:
        made = course_map.contents()
        stale = [name for name, new in made.items() if course_map.updated(name, new) != _text(name)]
    except ValueError as error:
        return [str(error)]
    return [f"{name}: the chapters' table or map is stale: run `make format`" for name in stale]


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def python(paths: list[Path]) -> int:
    """Return how many of ruff's two checks the files fail; ruff prints why."""
    if not paths:
        return 0
    commands = (["check", "--output-format=concise"], ["format", "--check"])
    runs = [
        subprocess.run(
            [sys.executable, "-m", "ruff", *c, "--quiet", "--", *map(str, paths)], cwd=ROOT
        )
        for c in commands
    ]
    return sum(run.returncode != 0 for run in runs)


def main(arguments: list[str] | None = None) -> int:
    """Print what is wrong and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="all files, not only the changed ones")
    paths = files(parser.parse_args(arguments).all)
    found = of_the_book()
    for path in paths:
        name = path.relative_to(ROOT).as_posix()
        check = {".ipynb": notebook, ".md": page}.get(path.suffix, lambda _: [])
        found += [f"{name}: {complaint}" for complaint in check(path)]
    print(*found, sep="\n", end="\n" if found else "")
    failed = len(found) + python([path for path in paths if path.suffix == ".py"])
    print(f"{len(paths)} files checked: {'all in form' if not failed else 'see above'}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
