"""Download every data file from every mirror, and prove right what each gives.

    python -m tools.check_mirrors [--only PATH] [--report FILE]

PATH is a file of the catalog or a folder of it, such as mnist. Prints a table in Markdown, and
writes it into FILE as well; ends with status 1 if any mirror failed. All is done as where a reader
downloads, but that an archive which several files share is fetched once, and that nothing is kept.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from support.data import catalog
from support.data import files as datafiles
from support.data.downloads import Refused
from support.data.files import DataFile, Mirror

HEAD = ["| File | Mirror | Result | Bytes | Seconds |", "|---|---|---|--:|--:|"]


@dataclass(frozen=True)
class Result:
    """What came of one mirror of one file; fault is "" if it was the right file.

    size is the bytes that the mirror sent, seconds what fetching and proving took.
    """

    path: str
    url: str
    fault: str
    size: int
    seconds: float

    def row(self) -> str:
        """Return the result as a row of the table."""
        # A server chooses some of these words: in code they can be no link, mention or column.
        words = " ".join(self.fault.replace("`", "'").replace("|", "/").split())
        shown = f"**failed**: `{words}`" if self.fault else "ok"
        return f"| {self.path} | {self.url} | {shown} | {self.size:,} | {self.seconds:.1f} |"


def chosen(only: str) -> list[DataFile]:
    """Return the files of the catalog that a path names, itself or as a folder; all for ""."""
    folder = only.rstrip("/") + "/"
    return [f for path, f in catalog.FILES.items() if not only or f"{path}/".startswith(folder)]


def check(files: Iterable[DataFile], folder: Path) -> Iterator[Result]:
    """Yield the result for each mirror of each file; folder is where they are downloaded to."""
    archives: dict[str, Path | Exception] = {}
    target = folder / "file"
    for file in files:
        for mirror in file.mirrors:
            came, fault, start = target, "", time.monotonic()
            target.unlink(missing_ok=True)
            try:
                if mirror.member:
                    came = _archive(mirror, folder, archives)
                    datafiles.unpack(file, mirror, came, target)
                else:
                    datafiles.fetch(file, mirror, target)
            except (Refused, OSError) as error:
                fault = str(error)
            size = came.stat().st_size if came.exists() else 0
            yield Result(file.path, mirror.url, fault, size, time.monotonic() - start)


def _archive(mirror: Mirror, folder: Path, known: dict[str, Path | Exception]) -> Path:
    """Return where the archive of a mirror lies, fetched at the first time; raises as `fetch`."""
    if mirror.url not in known:
        path = folder / f"archive-{len(known)}"
        try:
            datafiles.fetch_archive(mirror, path)
            known[mirror.url] = path
        except (Refused, OSError) as error:
            path.unlink(missing_ok=True)
            known[mirror.url] = error
    if isinstance(found := known[mirror.url], Exception):
        raise found
    return found


def main(arguments: list[str] | None = None) -> int:
    """Check the mirrors that the arguments choose; return the status to end with."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", metavar="PATH", default="", help="a file or folder of the catalog"
    )
    parser.add_argument("--report", metavar="FILE", type=Path, help="where to write the table too")
    given = parser.parse_args(arguments)
    files = chosen(given.only)
    if not files:
        sets = ", ".join(sorted({path.split("/")[0] for path in catalog.FILES}))
        parser.error(f"the catalog has no {given.only!r}; its folders are {sets}")
    os.environ.setdefault("PRETRAIN_PROFILE", "smoke")  # which draws no progress bars

    lines, results = list(HEAD), []
    print(*HEAD, sep="\n", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for result in check(files, Path(folder)):
            results.append(result)
            lines.append(result.row())
            print(lines[-1], flush=True)
    failed = sum(bool(result.fault) for result in results)
    lines += ["", f"{len(results) - failed} of {len(results)} mirrors gave the right file."]
    print(*lines[-2:], sep="\n")
    if given.report:
        given.report.parent.mkdir(parents=True, exist_ok=True)
        given.report.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
