"""Files of data sets: found or downloaded, and checked before anything reads them.

pooch downloads and unpacks. Added here: several mirrors for a file, https only, and a checksum of
the content, whatever it comes packed in.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import urljoin

from support import profile

if TYPE_CHECKING:
    import requests

TIMEOUT = 20.0  # seconds without a byte, after which the next mirror is tried
# wikitext.smerity.com, for one, refuses the names under which Python's libraries call.
HEADERS = {"User-Agent": "pretraining-by-hand/1 (course)", "Accept-Encoding": "identity"}
WORTH_A_BAR = 1_000_000  # bytes; smaller files arrive before a progress bar could be read


class DownloadError(RuntimeError):
    """No address gave the file at `path`; `reasons` has, for each, (address, what went wrong)."""

    def __init__(self, path: str, reasons: Sequence[tuple[str, str]]):
        folder = data_dir()
        put = f"put the file at {(folder or Path('FOLDER')) / path}"
        name_it = "" if folder else " and set PRETRAIN_DATA_DIR to that FOLDER"
        embedded = 'where the course has embedded data instead, ask for source="embedded"'
        tried = [f"  {url}: {reason}" for url, reason in reasons]
        ways = f"Ways on: {put}{name_it}; or, {embedded}."
        super().__init__("\n".join([f"{path} could not be downloaded:", *tried, ways]))
        self.path, self.reasons = path, list(reasons)


@dataclass(frozen=True)
class DataFile:
    """A file of a data set, its checksum, and the addresses that have it.

    Attributes:
        path: relative to the data folder and to the cache.
        size: of the unpacked content, in bytes.
        sha256: of the unpacked content, in hexadecimal.
        urls: where to get it. The file at an address ending in .gz is unpacked. What follows a "#"
            is the member of a zip archive; with a "*", all members of such names, `joined`; for
            "#head", the file is the beginning of what is there.
    """

    path: str
    size: int
    sha256: str
    urls: tuple[str, ...]

    def fault(self, path: Path) -> str:
        """Return what is wrong with the file at path, "" if it is the correct one."""
        try:
            content = read(path)
        except (OSError, EOFError, zlib.error) as error:
            return f"cannot be read ({error})"
        if len(content) != self.size:
            return f"{len(content):,} bytes instead of {self.size:,}"
        found = hashlib.sha256(content).hexdigest()
        return "" if found == self.sha256 else f"SHA-256 {found} instead of {self.sha256}"


def locate(files: Sequence[DataFile], *, packed: bool = True) -> tuple[list[Path], str]:
    """Return the paths of files whose checksums are correct, and where they come from.

    Args:
        files: of one data set.
        packed: whether files of the reader's own may be packed by gzip, named as here plus ".gz".
    Returns:
        The paths, and their origin: "folder" if PRETRAIN_DATA_DIR has them all, else "cache" or,
        if one had to be fetched, "download".
    Raises:
        ValueError: PRETRAIN_DATA_DIR is no folder, or has a wrong file, which is left alone.
        DownloadError: no address gives one of the files.
    """
    if own := _own_files(files, packed):
        return own, "folder"
    cache = cache_dir()
    paths = [cache / file.path for file in files]
    missing = [file for file, path in zip(files, paths, strict=True) if file.fault(path)]
    for file in missing:
        _download(file, cache)
    return paths, "download" if missing else "cache"


def read(path: Path) -> bytes:
    """Return the content of a file, unpacked if its name ends in .gz."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
        return stream.read()


def joined(folder: Path, pattern: str) -> bytes:
    """Return the files below a folder as one, ordered by name, a line "== name" before each."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.glob(pattern))
    return b"".join(b"== %s\n%s\n" % (n.encode(), (folder / n).read_bytes()) for n in names)


def fetch(file: DataFile, url: str, folder: Path) -> None:
    """Put a file below a folder, from one of its addresses: all of it, or nothing and an error."""
    import pooch

    pooch.get_logger().setLevel("WARNING")  # it would print this machine's paths in a notebook
    address, _, part = url.partition("#")
    _require_https(address)
    headers, unpack = HEADERS, None
    if part == "head":
        headers = HEADERS | {"Range": f"bytes=0-{file.size - 1}"}
    elif part:
        unpack = pooch.Unzip(members=[part.partition("/*")[0]])
    elif address.endswith(".gz"):
        unpack = pooch.Decompress(method="gzip")
    download = pooch.HTTPDownloader(
        progressbar=profile.progress_enabled() and file.size > WORTH_A_BAR,
        headers=headers,
        timeout=TIMEOUT,
        hooks={"response": _check_redirect},
    )
    path = folder / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as work:
        found = pooch.retrieve(address, None, "download", work, unpack, download)
        if part == "head":
            os.truncate(found, file.size)  # a server may ignore the range
        elif part:
            unzipped = Path(work, "download.unzip")
            found = unzipped / part
            if "*" in part:
                found = unzipped / "joined"
                found.write_bytes(joined(unzipped, part))
        if fault := file.fault(Path(found)):
            raise ValueError(fault)
        os.replace(found, path)


def cache_dir() -> Path:
    """Return the folder of downloaded files: PRETRAIN_CACHE_DIR, else the user's own cache."""
    import pooch

    given = os.environ.get("PRETRAIN_CACHE_DIR")
    return Path(given).expanduser() if given else pooch.os_cache("pretraining-by-hand")


def data_dir() -> Path | None:
    """Return the folder that PRETRAIN_DATA_DIR names, if any."""
    given = os.environ.get("PRETRAIN_DATA_DIR")
    return Path(given).expanduser() if given else None


@contextmanager
def whole_file(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """Yield a file to write bytes to, which takes its name only when it is complete.

    After an error the file that had the name is as it was, and nothing else is left. A symbolic
    link stays one: the file that it names is written.
    """
    path = Path(os.path.realpath(path))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # or a loss of power could leave the new name without content
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _own_files(files: Sequence[DataFile], packed: bool) -> list[Path]:
    """Return where PRETRAIN_DATA_DIR has the files, [] if it lacks one."""
    folder = data_dir()
    if not folder:
        return []
    if not folder.is_dir():
        raise ValueError(f"PRETRAIN_DATA_DIR must name a folder, got {str(folder)!r}")
    paths = []
    for file in files:
        candidates = [folder / file.path, folder / f"{file.path}.gz"][: 1 + packed]
        paths += [path for path in candidates if path.is_file()][:1]
    if len(paths) < len(files):
        return []
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


def _check_redirect(response: requests.Response, **_: object) -> None:
    _require_https(urljoin(response.url, response.headers.get("location", "")))


def _require_https(address: str) -> None:
    if not address.startswith("https://"):
        raise ValueError(f"{address} is refused, as it is not https")
