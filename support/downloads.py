"""One address answered into one file: https only, bounded in size and in time."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urljoin, urlsplit

from tqdm import tqdm

from support import profile

# Seconds without a connection or a byte after which an address is given up, and the mean speed
# in bytes a second below which it is too: together they bound the time that any can take.
TIMEOUT = 20.0
SLOWEST = 50_000
# wikitext.smerity.com, for one, refuses the names under which Python's libraries call.
HEADERS = {"User-Agent": "pretraining-by-hand/1 (course)", "Accept-Encoding": "identity"}
_LOOPBACK_MAY_BE_PLAIN = False  # the tests' own server speaks plain http; nothing else may


class Refused(Exception):
    """Why an address is given up, in words for the reader."""


def answer(url: str, target: Path, at_most: int) -> None:
    """Write what an address answers, at most so many bytes, into the file target.

    Raises: Refused with the reason: no https, here or after a redirect; no answer; an error
    for an answer; an end that comes too early, too late in bytes, or too late in time.
    """
    if not _secure(url):
        raise Refused("plain http is refused")
    allowed = TIMEOUT + at_most / SLOWEST
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
        worker = threading.Thread(target=_request, args=(url, sink, outcome), daemon=True)
        worker.start()
        try:
            worker.join(allowed)
        finally:
            sink.closed = True
    if not outcome:
        raise Refused(f"not done after {allowed:.0f} s")
    if outcome[0]:
        raise Refused(_reason(outcome[0], target, at_most)) from outcome[0]


def page(path: Path) -> str:
    """Return a line that says so if path holds a web page or an error report, else ""."""
    with path.open("rb") as file:
        start = file.read(1024).lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not start.startswith(b"<"):
        return ""
    kind = "HTML" if b"<html" in start or b"<!doctype html" in start else "XML"
    return f"an {kind} page of {path.stat().st_size:,} bytes instead of the data"


def _secure(url: str) -> bool:
    """Return whether an address may be asked."""
    parts = urlsplit(url)
    plain_but_here = parts.scheme == "http" and parts.hostname == "127.0.0.1"
    return parts.scheme == "https" or (_LOOPBACK_MAY_BE_PLAIN and plain_but_here)


class _Overflow(Exception):
    """An address sends more than the file has."""


class _Sink:
    """A file that can be written to until it is full or given up, with a progress bar."""

    def __init__(self, file: BinaryIO, at_most: int, bar: tqdm):
        self.file, self.room, self.bar, self.closed = file, at_most, bar, False

    def write(self, data: bytes) -> None:
        if self.closed:
            raise Refused("given up")
        self.file.write(data[: self.room])
        self.bar.update(len(data))
        if len(data) > self.room:
            raise _Overflow
        self.room -= len(data)

    def flush(self) -> None:
        """Do nothing: pooch asks for it after every piece, and once at the end is enough."""


def _request(url: str, sink: _Sink, outcome: list[BaseException | None]) -> None:
    """Send what an address answers to the sink; append what went wrong, or None, to outcome."""
    import pooch

    responses = []

    def follow_only_https(response, **_):
        responses.append(response)
        if response.is_redirect:
            onward = urljoin(response.url, response.headers["location"])
            if not _secure(onward):
                raise Refused(f"redirects to {onward}, which is not https")

    download = pooch.HTTPDownloader(
        headers=HEADERS, timeout=TIMEOUT, hooks={"response": follow_only_https}, chunk_size=1 << 14
    )
    try:
        download(url, sink, None)
        outcome.append(None)
    except BaseException as error:
        outcome.append(error)
    finally:
        for response in responses:
            response.close()


def _reason(error: BaseException, target: Path, at_most: int) -> str:
    """Return in a few words why a request failed."""
    import requests

    if isinstance(error, Refused):
        return str(error)
    if isinstance(error, _Overflow):
        return page(target) or f"more than the {at_most:,} bytes expected"
    if isinstance(error, requests.HTTPError):
        return f"HTTP {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke off before the end"
    root = error
    while root.__context__:
        root = root.__context__
    if isinstance(error, requests.Timeout) or isinstance(root, TimeoutError):
        return f"no answer for {TIMEOUT:g} s"
    return getattr(root, "strerror", None) or f"{type(root).__name__}: {root}"
