"""A server on this machine that does wrong what a server can, and a place to download to."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import os
import socket
import struct
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
MEGABYTE = 10**6


class Server(http.server.ThreadingHTTPServer):
    """Answers each path as `routes` says; notes what was asked, and how much it has sent."""

    daemon_threads = True
    block_on_close = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.routes: dict[str, Callable[[Answer], None]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.sent = 0
        self.over = threading.Event()

    @property
    def home(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def paths(self) -> list[str]:
        """What was asked, in order."""
        return [path for path, _ in self.asked]

    def serve(self, path: str, body: bytes = GOOD, status: int = 200, **headers) -> str:
        """Make a path answer with a body; return its address. A header None is left out."""

        def answer(request: Answer) -> None:
            request.start(status, len(body), **headers)
            request.send(body)

        return self.act(path, answer)

    def act(self, path: str, answer: Callable[[Answer], None]) -> str:
        """Make a path give this answer; return its address."""
        self.routes[path] = answer
        return self.home + path

    def handle_error(self, request, client_address):
        """Say nothing: a client that hangs up early is what these tests are about."""


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.path, dict(self.headers)))
        self.server.routes.get(self.path, lambda request: request.send_error(404))(self)

    def start(self, status: int = 200, length: int | None = None, **headers) -> None:
        """Send the status and the headers."""
        self.send_response(status)
        given = {"Content_Length": None if length is None else str(length)}
        for field, value in (given | headers).items():
            if value is not None:
                self.send_header(field.replace("_", "-"), value)
        self.end_headers()

    def send(self, data: bytes) -> None:
        self.wfile.write(data)
        self.server.sent += len(data)

    def wait(self, seconds: float) -> bool:
        """Return whether the test is over, after so many seconds at most."""
        return self.server.over.wait(seconds)

    def reset(self) -> None:
        """End the connection with RST instead of FIN."""
        forget = struct.pack("hh" if os.name == "nt" else "ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, forget)
        self.close_connection = True
        socket.close(self.connection.detach())

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
    """The path of a cache that is not there yet; at the end nothing must be anywhere else.

    The current folder, the home and the folder of temporary files lie in tmp_path, and are watched.
    """
    for name in ("here", "home", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    for variable in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(variable, str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delenv("PRETRAIN_DATA_DIR", raising=False)
    monkeypatch.setenv("PRETRAIN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PRETRAIN_PROFILE", "laptop")
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(files, "_require_https", https_or_this_server(files._require_https))
    monkeypatch.setattr(files, "TIMEOUT", 5.0)
    monkeypatch.setattr(files, "SLOWEST", files.SLOWEST)  # undone where a test changes it
    yield tmp_path / "cache"
    watched = [path for name in ("here", "home", "tmp") for path in (tmp_path / name).rglob("*")]
    assert watched + list(tmp_path.glob("escaped*")) == []


def https_or_this_server(require: Callable[[str], None]) -> Callable[[str], None]:
    """Let the tests' server, which speaks plain http, pass; the rule holds for all others."""
    return lambda address: None if address.startswith("http://127.0.0.1:") else require(address)


def files_in(folder: Path) -> list[str]:
    """What lies in a folder or below, folders left out."""
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir())


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


# What a server can do wrong. Each makes the server do it, and returns the address that does. Where
# it would go on for long, it gives up after a while, so that a client without patience is seen.


def a_page_with_status_200(server):
    return server.serve("/page", PAGE)


def status_404(server):
    return server.home + "/nothing-here"


def one_wrong_byte(server):
    return server.serve("/altered", altered(GOOD))


def one_byte_too_long(server):
    return server.serve("/long", GOOD + b"!")


def a_body_of_600_megabytes(server):
    def answer(request):
        request.start(200)
        for _ in range(600):
            request.send(bytes(MEGABYTE))

    return server.act("/endless", answer)


def cut_off_at_90_percent(server):
    return server.serve("/cut", GOOD[:4608], Content_Length=str(len(GOOD)))


def cut_off_at_90_percent_silently(server):
    return server.serve("/cut", GOOD[:4608], Content_Length=None)


def connection_refused(server):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{closed.getsockname()[1]}/"


def connection_reset_in_mid_body(server):
    def answer(request):
        request.start(200, len(GOOD))
        request.send(GOOD[:2000])
        request.wait(0.02)
        request.reset()

    return server.act("/reset", answer)


def no_such_host(server):
    return "https://nowhere.invalid/file"


def never_answers(server):
    files.TIMEOUT = 0.5
    return server.act("/never", lambda request: request.wait(1.2))


def stops_half_way(server):
    files.TIMEOUT = 0.5

    def answer(request):
        request.start(200, len(GOOD))
        request.send(GOOD[:2000])
        request.wait(1.2)

    return server.act("/half", answer)


def trickles(server):
    files.TIMEOUT = 0.5
    files.SLOWEST = 100_000

    def answer(request):
        request.start(200, len(GOOD))
        for start in range(0, len(GOOD), 1024):  # never 0.5 s without a byte, but for 1.5 s
            request.send(GOOD[start : start + 1024])
            if request.wait(0.3):
                return

    return server.act("/trickle", answer)


def plain_http(server):
    return f"http://localhost:{server.server_port}/plain"


def redirect_to_plain_http(server):
    server.serve("/plain")
    return server.serve("/redirect", b"", 302, Location=plain_http(server))


def redirect_for_ever(server):
    return server.serve("/round", b"", 302, Location="/round")


def gzip_that_is_none(server):
    return server.serve("/file.gz", GOOD)


def gzip_cut_off(server):
    return server.serve("/file.gz", gzip.compress(GOOD)[:-10])


def gzip_that_is_a_bomb(server):
    return server.serve("/file.gz", gzip.compress(bytes(3 * MEGABYTE)))


def zip_that_is_none(server):
    return server.serve("/archive.zip", PAGE) + "#file.bin"


def zip_without_the_file(server):
    return server.serve("/archive.zip", zipped(("elsewhere", GOOD))) + "#file.bin"


def zip_with_other_contents(server):
    return server.serve("/archive.zip", zipped(("file.bin", altered(GOOD)))) + "#file.bin"


def zip_that_is_a_bomb(server):
    return server.serve("/archive.zip", zipped(("file.bin", bytes(10 * MEGABYTE)))) + "#file.bin"
