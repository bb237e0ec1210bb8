"""Files of data sets: looked for, downloaded, and proved right before anything reads them.

pooch downloads a file into its place, whole and with the right SHA-256, or leaves no trace. Added
here are what it lacks: several addresses for a file, https alone, bounds of size and of time.
"""

from __future__ import annotations

import fnmatch
import gzip
import hashlib
import io
import json
import os
import shutil
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import urljoin

from support import profile

if TYPE_CHECKING:
    import requests

# Seconds without a byte after which an address is given up, and the mean speed in bytes a second
# below which it is too: together they bound the time that any can take.
TIMEOUT = 20.0
SLOWEST = 10_000
# The most bytes that are taken for a zip archive, of which the catalog knows one member only.
LARGEST_ARCHIVE = 1_000_000_000
# wikitext.smerity.com, for one, refuses the names under which Python's libraries call.
HEADERS = {"User-Agent": "pretraining-by-hand/1 (course)", "Accept-Encoding": "identity"}
# Smaller files have come before anybody could read a progress bar.
WORTH_A_BAR = 1_000_000


class DownloadError(RuntimeError):
    """No address gave the file; reasons has a pair for each, (address, why), as the message does.

    The message says the ways on, too.
    """

    def __init__(self, path: str, reasons: Sequence[tuple[str, str]]):
        folder = data_dir()
        put = f"put the file at {(folder or Path('FOLDER')) / path}"
        lines = [
            f"{path} could not be downloaded:",
            *[f"  {url}: {reason}" for url, reason in reasons],
            f"Ways on: {put}"
            + ("" if folder else " and set PRETRAIN_DATA_DIR to that FOLDER")
            + '; or, where the course carries a stand-in, ask for source="embedded".',
        ]
        super().__init__("\n".join(lines))
        self.path = path
        self.reasons = list(reasons)


@dataclass(frozen=True)
class DataFile:
    """A file of a data set, what proves it right, and the addresses that have it.

    path is relative to the data folder and to the cache; size (bytes) and sha256 (hexadecimal)
    are those of the content. An address that ends in .gz has it packed by gzip; one such as
    https://host/archive.zip#folder/name has it as that member of a zip archive, and #*/*.txt as all
    members with such names, `joined`; of what is at https://host/name#head it is the beginning.
    """

    path: str
    size: int
    sha256: str
    urls: tuple[str, ...]

    def fault(self, path: Path) -> str:
        """Return what is wrong with the file at path, "" if it is the right one."""
        digest, size = hashlib.sha256(), 0
        try:
            with _opened(path) as stream:
                while piece := stream.read(1 << 20):
                    digest.update(piece)
                    size += len(piece)
        except (OSError, EOFError, zlib.error) as error:
            return f"cannot be read ({error})"
        if size != self.size:
            return f"{size:,} bytes instead of {self.size:,}"
        found = digest.hexdigest()
        return "" if found == self.sha256 else f"SHA-256 {found} instead of {self.sha256}"


def locate(files: Sequence[DataFile]) -> tuple[list[Path], str]:
    """Return where the files of a data set lie, each proved right, and their origin.

    They are taken from PRETRAIN_DATA_DIR if it has them all, where each may also be packed by
    gzip, with .gz at the end of its name: origin "folder". Otherwise they are taken from the cache,
    "cache", into which those that it lacks are downloaded, "download".
    Raises: ValueError if PRETRAIN_DATA_DIR is no folder or holds a wrong file, which is left
    alone because it is the user's; DownloadError if no address gives a file.
    """
    if given := _given(files):
        return given, "folder"
    cache = cache_dir()
    paths = [cache / file.path for file in files]
    missing = [file for file, path in zip(files, paths, strict=True) if file.fault(path)]
    for file in missing:
        _download(file, cache)
    return paths, "download" if missing else "cache"


def read(path: Path) -> bytes:
    """Return the content of a file, unpacked if its name ends in .gz."""
    with _opened(path) as stream:
        return stream.read()


def joined(members: Mapping[str, bytes]) -> bytes:
    """Return the files of an archive as one, in the order of their names, "== name" before each."""
    return b"".join(b"== %s\n%s\n" % (name.encode(), members[name]) for name in sorted(members))


def fetch(file: DataFile, url: str, folder: Path) -> Path:
    """Put a file below a folder from one of its addresses, and return its path.

    What lies there already, if it is the right file, is kept; otherwise it is replaced.
    Raises: an exception of any kind, of the network, the archive or the disk; nothing is left then.
    """
    import pooch

    # It would write each path on this machine into the output of a notebook.
    pooch.get_logger().setLevel("WARNING")
    path = folder / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    answer = partial(_answer, size=file.size)
    pooch.retrieve(url, f"sha256:{file.sha256}", path.name, path.parent, downloader=answer)
    return path


def cache_dir() -> Path:
    """Return the folder of downloaded files: PRETRAIN_CACHE_DIR, else the user's own cache."""
    import pooch

    given = os.environ.get("PRETRAIN_CACHE_DIR")
    return Path(given).expanduser() if given else pooch.os_cache("pretraining-by-hand")


@contextmanager
def whole_file(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """Yield a file to write bytes to, which takes its name only when it is complete.

    After an error the file that had the name is as it was, and nothing else is left.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # or a loss of power could leave the new name without content
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_json(path: Path) -> dict:
    """Return what a file of ours holds; ValueError, which says what to do, if it is damaged."""
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        reason = "remove it and try again; only what it says is lost"
        raise ValueError(f"{path} is damaged ({error}): {reason}") from error


def data_dir() -> Path | None:
    """Return the folder that PRETRAIN_DATA_DIR names, if any."""
    given = os.environ.get("PRETRAIN_DATA_DIR")
    return Path(given).expanduser() if given else None


def _given(files: Sequence[DataFile]) -> list[Path]:
    """Return where the files lie in PRETRAIN_DATA_DIR, proved right; [] if it lacks one."""
    folder = data_dir()
    if not folder:
        return []
    if not folder.is_dir():
        raise ValueError(f"PRETRAIN_DATA_DIR must name a folder, got {str(folder)!r}")
    paths = []
    for file in files:
        plain, packed = folder / file.path, folder / f"{file.path}.gz"
        if not plain.is_file() and not packed.is_file():
            return []
        paths.append(plain if plain.is_file() else packed)
    for file, path in zip(files, paths, strict=True):
        if fault := file.fault(path):
            raise ValueError(f"{path} is not the {file.path} that it should be: {fault}")
    return paths


def _download(file: DataFile, folder: Path) -> None:
    """Put a file below a folder from the first of its addresses that gives it whole."""
    reasons = []
    for url in file.urls:
        try:
            fetch(file, url, folder)
            return
        except Exception as error:  # whatever went wrong, the next address may do better
            while error.__context__:  # at the root lies what the system or the server said
                error = error.__context__
            reasons.append((url, f"{type(error).__name__}: {error}"))
    raise DownloadError(file.path, reasons)


def _answer(url: str, target: str, _: object, size: int) -> None:
    """Write the content of so many bytes that an address has into a file, as pooch asks."""
    address, _, member = url.partition("#")
    bar = profile.progress_enabled() and size > WORTH_A_BAR
    with open(target, "wb") as file:
        if member == "head":
            with suppress(_EnoughError):
                _request(address, file, size, bar, head=True)
        elif member or address.endswith(".gz"):
            with tempfile.TemporaryFile(dir=Path(target).parent) as packed:
                _request(address, packed, LARGEST_ARCHIVE if member else size, bar)
                with _unpacked(packed, member, size) as content:
                    shutil.copyfileobj(content, _Bounded(file, size))
        else:
            _request(address, file, size, bar)
        if file.tell() != size:
            raise ValueError(f"{file.tell():,} bytes instead of {size:,}")


def _request(address: str, file: BinaryIO, most: int, bar: bool, head: bool = False) -> None:
    """Write what an address answers, which is at most so many bytes, or its head, into a file."""
    import pooch

    _require_https(address)
    options = {"headers": HEADERS, "timeout": TIMEOUT, "hooks": {"response": _check_redirect}}
    pooch.HTTPDownloader(progressbar=bar, **options)(address, _Bounded(file, most, head), None)


def _check_redirect(response: requests.Response, **_: object) -> None:
    _require_https(urljoin(response.url, response.headers.get("location", "")))


def _require_https(address: str) -> None:
    if not address.startswith("https://"):
        raise ValueError(f"{address} is refused, as it is not https")


class _EnoughError(Exception):
    """All bytes that were wanted have come."""


class _Bounded:
    """A file that takes no more than so many bytes, and none from who sends them too slowly."""

    def __init__(self, file: BinaryIO, most: int, head: bool = False):
        self.file, self.most, self.head = file, most, head
        self.start = time.monotonic()

    def write(self, data: bytes) -> None:
        if self.head:
            data = data[: self.most - self.file.tell()]
        self.file.write(data)
        size, seconds = self.file.tell(), time.monotonic() - self.start
        if self.head and size == self.most:
            raise _EnoughError
        if size > self.most:
            raise ValueError(f"more than the {self.most:,} bytes expected")
        if seconds > TIMEOUT + size / SLOWEST:
            raise TimeoutError(f"{size:,} bytes in {seconds:.0f} s are too few")

    def flush(self) -> None:
        self.file.flush()


@contextmanager
def _unpacked(packed: BinaryIO, member: str, most: int) -> Iterator[BinaryIO]:
    """Yield the content of members of a zip archive, or with no name that of a gzip file."""
    packed.seek(0)
    if member:
        with zipfile.ZipFile(packed) as archive:
            if "*" in member:
                names = fnmatch.filter(archive.namelist(), member)
                if sum(archive.getinfo(name).file_size for name in names) > most:
                    raise ValueError(f"more than the {most:,} bytes expected")
                yield io.BytesIO(joined({name: archive.read(name) for name in names}))
            else:
                with archive.open(member) as content:
                    yield content
    else:
        with gzip.open(packed) as content:
            yield content


def _opened(path: Path) -> BinaryIO:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")
