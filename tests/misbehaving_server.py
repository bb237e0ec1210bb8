"""A server on this machine that does wrong what a server can, and a place to download to."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from support.data import files
from support.data.files import DataFile

GOOD = bytes(range(256)) * 20  # 5,120 bytes
PAGE = b"\n<!DOCTYPE html><html><body>Access denied</body></html>"


class Server(http.server.ThreadingHTTPServer):
    """Answers each path as `routes` says, and notes what was asked."""

    daemon_threads = True
    block_on_close = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.routes: dict[str, Callable[[Answer], None]] = {}
        self.asked: list[dict[str, str]] = []  # the headers of each request
        self.paths: list[str] = []
        self.over = threading.Event()
        self.home = f"http://127.0.0.1:{self.server_port}"

    def serve(self, path: str, body: bytes = GOOD, status: int = 200, **headers) -> str:
        """Make a path answer with a body; return its address."""

        def answer(request: Answer) -> None:
            request.start(status, **{"Content_Length": str(len(body))} | headers)
            request.wfile.write(body)

        return self.act(path, answer)

    def act(self, path: str, answer: Callable[[Answer], None]) -> str:
        """Make a path give this answer; return its address."""
        self.routes[path] = answer
        return self.home + path

    def handle_error(self, request, client_address):
        """Say nothing: a client that hangs up early is what these tests are about."""


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(dict(self.headers))
        self.server.paths.append(self.path)
        self.server.routes.get(self.path, lambda request: request.send_error(404))(self)

    def start(self, status: int = 200, **headers) -> None:
        self.send_response(status)
        for field, value in headers.items():
            self.send_header(field.replace("_", "-"), value)
        self.end_headers()

    def log_message(self, *_):
        pass


@contextmanager
def running() -> Iterator[Server]:
    """A server that runs until the test is over."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()


@contextmanager
def shut_in(tmp_path: Path, monkeypatch) -> Iterator[Path]:
    """The path of a cache that is not there yet; at the end nothing must lie anywhere else."""
    for name in ("here", "home", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.delenv("PRETRAIN_DATA_DIR", raising=False)
    monkeypatch.setenv("PRETRAIN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PRETRAIN_PROFILE", "laptop")
    monkeypatch.setenv("NO_PROXY", "*")
    require = files._require_https  # which this server, and no other, may pass by
    here = "http://127.0.0.1:"
    monkeypatch.setattr(files, "_require_https", lambda a: a.startswith(here) or require(a))
    monkeypatch.setattr(files, "TIMEOUT", 0.5)
    yield tmp_path / "cache"
    watched = [path for name in ("here", "home", "tmp") for path in (tmp_path / name).rglob("*")]
    assert watched + list(tmp_path.glob("escaped*")) == []


def files_in(folder: Path) -> list[str]:
    """What lies in a folder or below; temporary folders too, but not those of data sets."""
    left = [path for path in folder.rglob("*") if path.is_file() or path.name.startswith(".")]
    return sorted(path.relative_to(folder).as_posix() for path in left)


def altered(data: bytes) -> bytes:
    """The same bytes but for one bit in the middle."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def zipped(*pairs: tuple[str, bytes]) -> bytes:
    """A zip archive of these members."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in pairs:
            archive.writestr(name, data)
    return stream.getvalue()


def toy(*urls: str, content: bytes = GOOD, path: str = "toy/file.bin") -> DataFile:
    """A data file with some content, at some addresses."""
    return DataFile(path, len(content), hashlib.sha256(content).hexdigest(), urls)


def stalls(request: Answer) -> None:
    """Send a part, and then nothing for longer than a client should wait."""
    request.start(Content_Length=str(len(GOOD)))
    request.wfile.write(GOOD[:2000])
    request.server.over.wait(2)


# What a server can do wrong: what makes it do so and returns the address, and what pytest must see.
HTTP = "ValueError: http://localhost.* is refused, as it is not https"
FAULTS = {
    "404": (lambda server: server.home + "/nothing-here", "HTTPError: 404 .*Not Found"),
    "altered": (lambda server: server.serve("/x", altered(GOOD)), "SHA-256 .* instead of"),
    "page": (lambda server: server.serve("/x", PAGE), "55 bytes instead of 5,120"),
    "cut": (
        lambda server: server.serve("/x", GOOD[:4608], Content_Length=str(len(GOOD))),
        "4608 bytes read|4,608 bytes instead of 5,120",
    ),
    "stalls": (lambda server: server.act("/x", stalls), "timed out"),
    "no host": (lambda server: "https://nowhere.invalid/file", "gaierror"),
    "http": (lambda server: f"http://localhost:{server.server_port}/plain", HTTP),
    "redirect": (
        lambda server: server.serve(
            "/x", b"", 302, Location=f"http://localhost:{server.server_port}/plain"
        ),
        HTTP,
    ),
    "no gzip": (lambda server: server.serve("/x.gz", GOOD), "BadGzipFile"),
    "cut gzip": (lambda server: server.serve("/x.gz", gzip.compress(GOOD)[:-4]), "EOFError"),
    "no zip": (lambda server: server.serve("/x.zip", PAGE) + "#file.bin", "BadZipFile"),
    "empty zip": (lambda server: server.serve("/x.zip", zipped()) + "#file.bin", "No such file"),
}
