"""Download every data file from each of its addresses, and prove right what each gives.

    python -m tools.check_mirrors [--only PATH] [--report FILE]

PATH is a file of the catalog or a folder of it, such as mnist. Prints a table in Markdown, and
writes it into FILE as well; ends with status 1 if any address failed. Nothing is kept.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from support.data import catalog, files
from support.data.files import DataFile

HEAD = ["| File | Address | Result | Seconds |", "|---|---|---|--:|"]


def chosen(only: str) -> list[DataFile]:
    """Return the files of the catalog that a path names, itself or as a folder; all for ""."""
    folder = only.rstrip("/") + "/"
    return [f for path, f in catalog.FILES.items() if not only or f"{path}/".startswith(folder)]


def check(file: DataFile, url: str) -> tuple[str, bool]:
    """Return a row of the table for an address of a file, and whether it gave the right one."""
    start, words = time.monotonic(), ""
    with tempfile.TemporaryDirectory() as folder:
        try:
            files.fetch(file, url, Path(folder))
        except Exception as error:
            # A server chooses some of these words: in code they can be no link or mention.
            words = " ".join(str(error).replace("`", "'").replace("|", "/").split())
            words = f"{type(error).__name__}: {words}"
    result = f"**failed**: `{words}`" if words else "ok"
    return f"| {file.path} | {url} | {result} | {time.monotonic() - start:.1f} |", not words


def main(arguments: list[str] | None = None) -> int:
    """Check the addresses that the arguments choose; return the status to end with."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", metavar="PATH", default="", help="a file or folder of the catalog"
    )
    parser.add_argument("--report", metavar="FILE", type=Path, help="where to write the table too")
    given = parser.parse_args(arguments)
    wanted = chosen(given.only)
    if not wanted:
        sets = ", ".join(sorted({path.split("/")[0] for path in catalog.FILES}))
        parser.error(f"the catalog has no {given.only!r}; its folders are {sets}")
    os.environ.setdefault("PRETRAIN_PROFILE", "smoke")  # which draws no progress bars

    lines, passed = list(HEAD), []
    print(*HEAD, sep="\n", flush=True)
    for file in wanted:
        for url in file.urls:
            row, right = check(file, url)
            lines.append(row)
            passed.append(right)
            print(row, flush=True)
    lines += ["", f"{sum(passed)} of {len(passed)} addresses gave the right file."]
    print(*lines[-2:], sep="\n")
    if given.report:
        given.report.parent.mkdir(parents=True, exist_ok=True)
        given.report.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
