"""Files of data sets: found, fetched, and proved right before anything reads them."""

from __future__ import annotations

import glob
import gzip
import hashlib
import importlib.util
import os
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from support.data import downloads

_PIECE = 1 << 16


class DownloadError(RuntimeError):
    """No mirror gave the file; the message has a line for each with its reason."""

    def __init__(self, path: str, reasons: list[tuple[str, str]], ways_on: str):
        lines = [f"  {url}: {reason}" for url, reason in reasons]
        super().__init__("\n".join([f"{path} could not be downloaded:", *lines, ways_on]))
        self.path = path
        self.reasons = reasons


@dataclass(frozen=True)
class Mirror:
    """An address of a file, or of a zip archive in which the file is the member named.

    digest ("algorithm:hexadecimal") and at_most (bytes) are then those of the archive.
    """

    url: str
    member: str = ""
    digest: str = ""
    at_most: int = 0


@dataclass(frozen=True)
class DataFile:
    """A file of a data set, what proves it right, and where it is to be had.

    path is relative to the data folder and to the cache. size (bytes) and digest
    ("algorithm:hexadecimal"; algorithm is sha256, sha1, md5, or git for the name that git gives a
    blob) are those of the content, which for a path in .gz is what lies inside, whoever packed it.
    embedded tells whether the course carries a stand-in.
    """

    path: str
    size: int
    digest: str
    mirrors: tuple[Mirror, ...]
    embedded: bool = True

    @property
    def at_most(self) -> int:
        """The most bytes that the file can have as it is stored."""
        # Bytes that do not compress grow a little when they are packed.
        return self.size + (1024 + self.size // 1000 if self.path.endswith(".gz") else 0)

    def open(self, path: Path) -> BinaryIO:
        """Return the content of path, unpacked, as a binary stream."""
        return gzip.open(path, "rb") if self.path.endswith(".gz") else path.open("rb")

    def read(self, path: Path) -> bytes:
        """Return the content of path, unpacked, and never more than the file's size of it."""
        with self.open(path) as stream:
            return stream.read(self.size)

    def fault(self, path: Path) -> str:
        """Return what is wrong with the file at path, "" if it is the right one."""
        try:
            with self.open(path) as stream:
                size, fault = _measure(stream, self.digest, self.size)
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            return downloads.page(path) or f"does not unpack ({error})"
        if not self.path.endswith(".gz"):
            size = path.stat().st_size
        elif size > self.size:
            return f"unpacks to more than {self.size:,} bytes"
        if size != self.size:
            fault = f"size {size:,} instead of {self.size:,}"
        return fault and (downloads.page(path) or fault)


def locate(file: DataFile) -> tuple[Path, str]:
    """Return where a file lies, proved right, and its origin: "folder", "cache" or "download".

    Looked for in PRETRAIN_DATA_DIR, then in the cache, then at its mirrors in turn.
    Raises: ValueError if PRETRAIN_DATA_DIR is no folder or holds a wrong file, which is left
    alone because it is the user's; DownloadError if no mirror gives the file.
    """
    path = _given(file)
    return (path, "folder") if path else _kept(file)


def locate_folder(files: Sequence[DataFile], package: str = "") -> Path:
    """Return the folder that holds all of the files, which share one, each proved right.

    Looked for in PRETRAIN_DATA_DIR, then in package, a Python package and a path in it ("name/a"),
    then in the cache, which the mirrors fill. A folder that lacks a file is passed over.
    Raises: as `locate`.
    """
    given = [_given(file) for file in files]
    if all(given):
        return given[0].parent
    if folder := _installed(package):
        paths = [(file, folder / Path(file.path).name) for file in files]
        if all(path.is_file() and not file.fault(path) for file, path in paths):
            return folder
    return [_kept(file)[0].parent for file in files][0]


def fetch(file: DataFile, mirror: Mirror, target: Path) -> None:
    """Write the file that a mirror has into target, and prove it right.

    Raises: downloads.Refused with the reason, which leaves anything or nothing in target; OSError
    if target cannot be written.
    """
    if mirror.member:
        with _temporary(target) as archive:
            fetch_archive(mirror, archive)
            unpack(file, mirror, archive, target)
        return
    downloads.answer(mirror.url, target, file.at_most)
    if fault := file.fault(target):
        raise downloads.Refused(fault)


def fetch_archive(mirror: Mirror, target: Path) -> None:
    """Write the archive of a mirror into target, and prove it right; raises as `fetch`."""
    downloads.answer(mirror.url, target, mirror.at_most)
    with target.open("rb") as stream:
        _, fault = _measure(stream, mirror.digest, mirror.at_most)
    if fault:
        raise downloads.Refused(downloads.page(target) or fault)


def unpack(file: DataFile, mirror: Mirror, archive: Path, target: Path) -> None:
    """Unpack the file from the archive of a mirror, and prove it right; raises as `fetch`."""
    one_more_shows = file.size + 1
    downloads.unpack(archive, mirror.member, target, one_more_shows)
    if fault := file.fault(target):
        raise downloads.Refused(fault)


def cache_dir() -> Path:
    """Return the folder of downloaded files: PRETRAIN_CACHE_DIR, else the user's own cache."""
    import pooch

    given = os.environ.get("PRETRAIN_CACHE_DIR")
    return Path(given).expanduser() if given else pooch.os_cache("pretraining-by-hand")


def _given(file: DataFile) -> Path | None:
    """Return where a file lies in PRETRAIN_DATA_DIR, proved right; None if it does not."""
    folder = _data_dir()
    if not folder:
        return None
    if not folder.is_dir():
        raise ValueError(f"PRETRAIN_DATA_DIR must name a folder, got {str(folder)!r}")
    path = folder / file.path
    if not path.is_file():
        return None
    if fault := file.fault(path):
        raise ValueError(f"{path} is not the {file.path} that it should be: {fault}")
    return path


def _installed(package: str) -> Path | None:
    """Return a folder in an installed package; it is not imported, which could load much else."""
    name, _, inside = package.partition("/")
    spec = importlib.util.find_spec(name) if name else None
    return Path(spec.origin).parent / inside if spec and spec.origin else None


def _kept(file: DataFile) -> tuple[Path, str]:
    """Return where a file lies in the cache, proved right, and its origin."""
    path = cache_dir() / file.path
    if _is_right(file, path):
        return path, "cache"
    with _alone(file, path):
        if _is_right(file, path):  # another process has fetched it meanwhile
            return path, "cache"
        try:
            path.unlink(missing_ok=True)
            _download(file, path)
        except OSError as error:
            reason = f"cannot be stored: {error}"
            raise DownloadError(file.path, [(str(path), reason)], _ways_on(file)) from error
    return path, "download"


def _is_right(file: DataFile, path: Path) -> bool:
    try:
        return path.is_file() and not file.fault(path)
    except OSError:  # it may not be read, or another process has just removed it
        return False


@contextmanager
def _alone(file: DataFile, path: Path) -> Iterator[None]:
    """Hold off all others, of any process, that would fetch the file; clear up after the killed.

    Where the cache cannot hold a lock, do neither: it saves work, and no file is put together by
    two, because each writes into one of its own.
    Raises: DownloadError if another holds the file for longer than it can take to fetch it.
    """
    import filelock

    patience = sum(downloads.seconds(mirror.at_most or file.at_most) for mirror in file.mirrors)
    folder = cache_dir() / ".locks"
    lock = filelock.FileLock(folder / (file.path.replace("/", "-") + ".lock"), timeout=patience)
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(lock)
        except filelock.Timeout as error:
            reason = f"another process has been fetching it for more than {patience:.0f} s"
            raise DownloadError(file.path, [(str(path), reason)], _ways_on(file)) from error
        except (OSError, NotImplementedError):
            pass
        else:
            for leftover in path.parent.glob(glob.escape(path.name) + ".part-*"):
                with suppress(OSError):
                    leftover.unlink()
        yield


def _data_dir() -> Path | None:
    given = os.environ.get("PRETRAIN_DATA_DIR")
    return Path(given).expanduser() if given else None


def _download(file: DataFile, path: Path) -> None:
    """Put a file at path from the first mirror that gives it whole."""
    reasons = []
    path.parent.mkdir(parents=True, exist_ok=True)
    with _temporary(path) as fetched:
        for mirror in file.mirrors:
            try:
                fetch(file, mirror, fetched)
            except downloads.Refused as refusal:
                reasons.append((mirror.url, str(refusal)))
            except OSError as error:
                reasons.append((mirror.url, f"cannot be stored: {error}"))
            else:
                os.replace(fetched, path)
                return
    raise DownloadError(file.path, reasons, _ways_on(file))


def _ways_on(file: DataFile) -> str:
    """Return what a reader can do who cannot download a file."""
    folder = _data_dir()
    put = f"put the file at {(folder or Path('FOLDER')) / file.path}"
    put += "." if folder else " and set PRETRAIN_DATA_DIR to that FOLDER."
    if not file.embedded:
        return f"There is no embedded stand-in for it. The way on: {put}"
    return f'Two ways on: ask for source="embedded", the data that the course carries; or {put}'


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Give a new empty file beside path, which is gone at the end unless it was moved."""
    handle, name = tempfile.mkstemp(prefix=path.name + ".part-", dir=path.parent)
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _measure(stream: BinaryIO, digest: str, size: int) -> tuple[int, str]:
    """Return the length of a stream, read one byte past size at most, and its fault or ""."""
    algorithm, expected = digest.split(":")
    hashed = hashlib.new("sha1" if algorithm == "git" else algorithm, usedforsecurity=False)
    if algorithm == "git":
        hashed.update(b"blob %d\0" % size)  # git's name of a blob covers its size
    done = 0
    while piece := stream.read(min(_PIECE, size + 1 - done)):
        hashed.update(piece)
        done += len(piece)
    found = hashed.hexdigest()
    return done, "" if found == expected else f"{algorithm} {found} instead of {expected}"


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
