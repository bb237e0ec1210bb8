"""One address answered into one file: https only, bounded in size, in time and in attempts.

And one member of a zip archive unpacked into one file.
"""

from __future__ import annotations

import http.client
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urljoin, urlsplit

import requests
from tqdm import tqdm

from support import profile

# Seconds without a connection or a byte after which an address is given up, and the mean speed
# in bytes a second below which it is too: together they bound the time that any can take.
TIMEOUT = 20.0
SLOWEST = 50_000
# How often an address is asked whose server or connection breaks; the seconds before the second
# time, which double from then on; and the longest that a server may have us wait (Retry-After).
ATTEMPTS = 3
PAUSE = 0.5
LONGEST_PAUSE = 10.0
REDIRECTS = 10
# wikitext.smerity.com, for one, refuses the names under which Python's libraries call.
HEADERS = {"User-Agent": "pretraining-by-hand/1 (course)", "Accept-Encoding": "identity"}
_BROKEN = "the connection broke off before the end"
_PIECE = 1 << 14
_LOOPBACK_MAY_BE_PLAIN = False  # the tests' own server speaks plain http; nothing else may


class Refused(Exception):
    """Why an address is given up, in words for the reader."""


class _Passing(Refused):
    """A fault that may pass; pause is the seconds that the server asks for, if it does."""

    def __init__(self, reason: str, pause: float | None = None):
        super().__init__(reason)
        self.pause = pause


def answer(url: str, target: Path, at_most: int) -> None:
    """Write what an address answers, at most so many bytes, into the file target.

    Raises: Refused with the reason: no https, here or after a redirect; no answer; an error
    for an answer; an end that comes too early, too late in bytes, or too late in time; a file
    that cannot be written. OSError if it cannot be opened or closed.
    """
    if not _secure(url):
        raise Refused("plain http is refused")
    allowed = seconds(at_most)
    end = time.monotonic() + allowed
    outcome: list[BaseException | None] = []
    bar = tqdm(
        desc=target.name.split(".part")[0],
        unit="B",
        unit_scale=True,
        leave=False,
        delay=1,
        disable=not profile.progress_enabled(),
    )
    with target.open("wb") as file, bar:
        sink = _Sink(file, at_most, bar)
        # In a thread, because a socket's timeout starts anew with every byte: an address that
        # drips would hold the reader for hours.
        worker = threading.Thread(target=_work, args=(url, sink, end, outcome), daemon=True)
        worker.start()
        while worker.is_alive() and time.monotonic() < end:
            worker.join(0.1)  # so short because Windows does not interrupt a join
        in_time = outcome[:]  # now, because a worker still at it fails once the file is closed
    if not in_time:
        raise Refused(f"not done after {allowed:.0f} s")
    if in_time[0]:
        raise in_time[0]


def unpack(archive: Path, member: str, target: Path, at_most: int) -> None:
    """Write a member of a zip archive into target, at most so many bytes.

    No name in the archive says where anything is written.
    Raises: Refused if the archive does not give it; OSError if target cannot be written.
    """
    with target.open("wb") as file:
        file.writelines(_pieces(archive, member, at_most))


def seconds(at_most: int) -> float:
    """Return the longest that an address can take to answer with so many bytes."""
    return TIMEOUT + at_most / SLOWEST


def page(path: Path) -> str:
    """Return a line that says so if path holds a web page or an error report, else ""."""
    with path.open("rb") as file:
        start = file.read(1024).lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not start.startswith(b"<"):
        return ""
    kind = "HTML" if b"<html" in start or b"<!doctype html" in start else "XML"
    return f"an {kind} page of {path.stat().st_size:,} bytes instead of the data"


def _pieces(archive: Path, member: str, at_most: int) -> Iterator[bytes]:
    """Yield what a member of a zip archive holds, at most so many bytes."""
    try:
        with zipfile.ZipFile(archive) as opened:
            info = opened.getinfo(member)
            # Of the other methods zipfile unpacks whole blocks, which may be gigabytes.
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise zipfile.BadZipFile(f"packed by method {info.compress_type}")
            with opened.open(info) as stream:
                while piece := stream.read(min(_PIECE, at_most)):
                    at_most -= len(piece)
                    yield piece
    except Exception as error:  # zipfile raises errors of many kinds on a hostile archive
        raise Refused(f"the archive does not give {member} ({error})") from error


def _secure(url: str) -> bool:
    """Return whether an address may be asked."""
    parts = urlsplit(url)
    plain_but_here = parts.scheme == "http" and parts.hostname == "127.0.0.1"
    return parts.scheme == "https" or (_LOOPBACK_MAY_BE_PLAIN and plain_but_here)


class _Session(requests.Session):
    """Leaves redirects to `_request`: requests reads their bodies, however long."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        return None

    def onward(self, response: requests.Response) -> str | None:
        """Return where a response redirects to."""
        return super().get_redirect_target(response)


class _Sink:
    """A file that can be written to until it is full, with a progress bar."""

    def __init__(self, file: BinaryIO, at_most: int, bar: tqdm):
        self.file, self.at_most, self.bar = file, at_most, bar

    def write(self, data: bytes) -> None:
        room = self.at_most - self.file.tell()
        try:
            self.file.write(data[:room])
            self.file.flush()
        except OSError as error:
            raise Refused(f"cannot be stored: {error}") from error
        self.bar.update(len(data))
        if len(data) > room:
            instead = page(Path(self.file.name))
            raise Refused(instead or f"more than the {self.at_most:,} bytes expected")

    def restart(self) -> None:
        """Forget what was written."""
        self.file.seek(0)
        self.file.truncate()
        self.bar.reset()


def _work(url: str, sink: _Sink, end: float, outcome: list[BaseException | None]) -> None:
    """Append to outcome what `_persist` raises, or None."""
    try:
        outcome.append(_persist(url, sink, end))
    except BaseException as error:
        outcome.append(error)


def _persist(url: str, sink: _Sink, end: float) -> None:
    """Send what an address answers to the sink, asking again where the fault may pass."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _request(url, sink)
        except _Passing as fault:
            pause = PAUSE * 2 ** (attempt - 1) if fault.pause is None else fault.pause
            if attempt == ATTEMPTS:
                raise Refused(f"{fault}, {attempt} times") from fault
            if time.monotonic() + pause > end:
                raise Refused(f"{fault}, and no time to ask again") from fault
        time.sleep(pause)
        sink.restart()


def _request(url: str, sink: _Sink) -> None:
    """Send what an address answers to the sink; raise Refused where it does not."""
    asked = url
    try:
        with _Session() as session:
            for _ in range(REDIRECTS + 1):
                with session.get(asked, headers=HEADERS, timeout=TIMEOUT, stream=True) as response:
                    if not (onward := session.onward(response)):
                        _check(response)
                        for piece in response.iter_content(_PIECE):
                            sink.write(piece)
                        _check_end(response)
                        return
                asked = urljoin(asked, onward)
                if not _secure(asked):
                    raise Refused(f"redirects to {asked[:200]}, which is not https")
    except Refused:
        raise
    except Exception as error:
        reason, kind = _explain(error)
        to = f"redirects to {asked[:200]}: " if asked != url else ""
        raise kind(to + reason) from error
    raise Refused(f"redirects more than {REDIRECTS} times")


def _check(response: requests.Response) -> None:
    """Raise Refused if a response is not the start of a file."""
    # More than one layer of packing, or another kind, can unpack a few bytes to gigabytes at once.
    if (packing := response.headers.get("Content-Encoding", "")) not in ("", "identity", "gzip"):
        raise Refused(f"is sent in the encoding {packing[:40]}, which was not asked for")
    if response.status_code == 200:
        return
    status = f"HTTP {response.status_code} {response.reason}"
    if (wait := response.headers.get("Retry-After", "")[:40]) and response.status_code in (
        429,
        503,
    ):
        if wait.isdecimal() and int(wait) <= LONGEST_PAUSE:
            raise _Passing(status, int(wait))
        raise Refused(f"{status}, asks to wait {f'{wait} s' if wait.isdecimal() else wait}")
    raise (_Passing if response.status_code >= 500 else Refused)(status)


def _check_end(response: requests.Response) -> None:
    """Raise Refused if fewer bytes came than were announced; urllib3 does so from version 2 on."""
    announced = response.headers.get("Content-Length", "")
    if announced.isdecimal() and response.raw.tell() < int(announced):
        raise _Passing(_BROKEN)


def _explain(error: Exception) -> tuple[str, type[Refused]]:
    """Return in a few words why a request failed, and as what."""
    chain: list[BaseException] = [error]
    while chain[-1].__context__:
        chain.append(chain[-1].__context__)
    # What the system or the protocol said; below it may lie attempts of the libraries' own.
    known = (OSError, http.client.HTTPException)
    root = next((link for link in reversed(chain) if isinstance(link, known)), error)
    if isinstance(error, requests.Timeout) or isinstance(root, TimeoutError):
        return f"no answer for {TIMEOUT:g} s", Refused
    # A refused connection is an answer of a sort, and not worth another try.
    broken = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
    if isinstance(error, requests.exceptions.ChunkedEncodingError) or isinstance(root, broken):
        return _BROKEN, _Passing
    return getattr(root, "strerror", None) or f"{type(root).__name__}: {root}", Refused
