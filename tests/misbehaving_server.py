"""A server on this machine that does wrong whatever a server can, and a place to download to."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import os
import shutil
import socket
import struct
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from support.data import downloads
from support.data.files import DataFile, Mirror

GOOD = bytes(range(256)) * 20  # 5,120 bytes
HTML = b"\n<!DOCTYPE html><html><body>Access denied</body></html>"
# As long as, and of the form of, what the first home of WikiText-2 answers to this day.
XML = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n'
    b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message>"
    b"<RequestId>0123456789ABCDEF</RequestId><HostId>" + b"h" * 76 + b"</HostId></Error>"
)
MEGABYTE = 10**6


class Server(http.server.ThreadingHTTPServer):
    """Answers each path as `routes` says; notes what was asked, and how much it has sent."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

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

    def act(self, path: str, *answers: Callable[[Answer], None]) -> str:
        """Make a path give these answers in turn, the last for ever; return its address."""
        left = list(answers)
        self.routes[path] = lambda request: (left.pop(0) if len(left) > 1 else left[0])(request)
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
    monkeypatch.setattr(downloads, "_LOOPBACK_MAY_BE_PLAIN", True)
    monkeypatch.setattr(downloads, "TIMEOUT", 5.0)
    monkeypatch.setattr(downloads, "PAUSE", 0.01)
    monkeypatch.setattr(downloads, "SLOWEST", downloads.SLOWEST)  # undone where a test lowers it
    yield tmp_path / "cache"
    assert strays(tmp_path) == []


def strays(tmp_path: Path) -> list[str]:
    """What lies in the folders that a download has no business in, or beside them."""
    found = [path for name in ("here", "home", "tmp") for path in (tmp_path / name).rglob("*")]
    return sorted(str(p) for p in found + list(tmp_path.glob("escaped*")))


def files_in(folder: Path) -> list[str]:
    """What lies in a folder or below, folders and the cache's locks left out."""
    found = [p.relative_to(folder) for p in folder.rglob("*") if not p.is_dir() or p.is_symlink()]
    return sorted(p.as_posix() for p in found if ".locks" not in p.parts)


def sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def altered(data: bytes) -> bytes:
    """The same bytes but for one bit in the middle."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def zipped(*pairs: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED, **members) -> bytes:
    """A zip archive of these members."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, data in [*pairs, *members.items()]:
            archive.writestr(name, data)
    return stream.getvalue()


def toy(*mirrors: str | Mirror, content: bytes = GOOD, path: str = "toy/file.bin", **changes):
    """A data file with some content, at some addresses."""
    homes = tuple(m if isinstance(m, Mirror) else Mirror(m) for m in mirrors)
    return DataFile(path, len(content), changes.pop("digest", sha256(content)), homes, **changes)


def packed_mirror(server: Server, archive: bytes, member="file.bin", digest="", at_most=10**6):
    """A mirror of a member of an archive, of which by default the checksum is known."""
    digest = digest or "sha1:" + hashlib.sha1(archive).hexdigest()
    return Mirror(server.serve("/archive.zip", archive), member, digest, at_most)


def spare(server: Server, path: str) -> str:
    """The address of a mirror that does nothing wrong, of `toy(path=path)`."""
    return server.serve("/spare", gzip.compress(GOOD) if path.endswith(".gz") else GOOD)


# What a server can do wrong. Each makes the server do it, and returns the mirror that does. Where
# it would go on for long, it gives up after a while, so that a client without patience is seen.


def html_page_with_status_200(server):
    return server.serve("/html", HTML)


def html_page_longer_than_the_file(server):
    return server.serve("/html", HTML + b" " * 9000)


def xml_access_denied_with_status_200(server):
    return server.serve("/xml", XML)


def status_301_to_a_host_that_is_none(server):
    return server.serve("/gone", b"", 301, Location="https://nowhere.invalid/file")


def status_301_to_a_closed_port(server):
    return server.serve("/gone", b"", 301, Location=closed_port(server))


def status_301_without_a_place(server):
    return server.serve("/gone", b"", 301)


def status_403(server):
    return server.serve("/denied", XML, 403)


def status_404(server):
    return server.home + "/nothing-here"


def status_429_for_an_hour(server):
    return server.serve("/busy", b"", 429, Retry_After="3600")


def status_429_until_a_date(server):
    return server.serve("/busy", b"", 429, Retry_After="Fri, 31 Dec 2100 23:59:59 GMT")


def status_429_without_end(server):
    return server.serve("/busy", b"", 429, Retry_After="0")


def status_429_for_longer_than_there_is_time(server):
    downloads.TIMEOUT = 1.0
    return server.serve("/busy", b"", 429, Retry_After="9")


def status_500_without_end(server):
    return server.serve("/broken", b"sorry", 500)


def status_206(server):
    return server.serve("/part", GOOD, 206)


def empty(server):
    return server.serve("/empty", b"")


def cut_off_at_90_percent(server):
    return server.serve("/cut", GOOD[:4608], Content_Length=str(len(GOOD)))


def cut_off_at_90_percent_silently(server):
    return server.serve("/cut", GOOD[:4608], Content_Length=None)


def one_wrong_byte(server):
    return server.serve("/altered", altered(GOOD))


def one_byte_too_long(server):
    return server.serve("/long", GOOD + b"!")


def body_of_600_megabytes(server):
    def answer(request):
        request.start(200, 600 * MEGABYTE)
        for _ in range(600):
            request.send(bytes(MEGABYTE))

    return server.act("/endless", answer)


def redirect_with_a_body_of_150_megabytes(server):
    downloads.TIMEOUT = 1.5

    def answer(request):
        request.start(302, 150 * MEGABYTE, Location="/nothing-here")
        for _ in range(150):
            request.send(bytes(MEGABYTE))

    return server.act("/endless", answer)


def connection_refused(server):
    return closed_port(server)


def closed_port(server):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{closed.getsockname()[1]}/"


def no_such_host(server):
    return "https://nowhere.invalid/file"


def connection_reset_before_the_answer(server):
    return server.act("/reset", lambda request: request.reset())


def connection_reset_in_mid_body(server):
    def answer(request):
        request.start(200, len(GOOD))
        request.send(GOOD[:2000])
        request.wait(0.02)
        request.reset()

    return server.act("/reset", answer)


def hangs_up_without_an_answer(server):
    return server.act("/hangs-up", lambda request: None)


def never_answers(server):
    downloads.TIMEOUT = 0.5
    return server.act("/never", lambda request: request.wait(1.2))


def never_accepts(server):
    """A queue for connections that is full: the system answers no more calls."""
    downloads.TIMEOUT = 0.5
    busy = socket.socket()
    busy.bind(("127.0.0.1", 0))
    busy.listen(0)
    callers = [socket.socket() for _ in range(4)]
    for caller in callers:
        caller.setblocking(False)
        caller.connect_ex(busy.getsockname())

    def free():
        server.over.wait(1.2)
        for each in (busy, *callers):
            each.close()

    threading.Thread(target=free, daemon=True).start()
    return f"http://127.0.0.1:{busy.getsockname()[1]}/"


def stops_half_way(server):
    downloads.TIMEOUT = 0.5

    def answer(request):
        request.start(200, len(GOOD))
        request.send(GOOD[:2000])
        request.wait(1.2)

    return server.act("/half", answer)


def drips_its_body(server):
    downloads.TIMEOUT = 0.5

    def answer(request):
        request.start(200, len(GOOD))
        for byte in GOOD[:12]:  # never 0.5 s without a byte, but for 1.2 s
            request.send(bytes([byte]))
            if request.wait(0.1):
                return

    return server.act("/drip", answer)


def drips_its_headers(server):
    downloads.TIMEOUT = 0.5

    def answer(request):
        request.send(b"HTTP/1.1 200 OK\r\n")
        for i in range(12):
            request.send(b"X-%d: 0\r\n" % i)
            if request.wait(0.1):
                return

    return server.act("/drip", answer)


def talks_nonsense(server):
    return server.act("/nonsense", lambda request: request.send(b"hello\r\n\r\n"))


def encoding_that_was_not_asked_for(server):
    return server.serve("/br", GOOD, Content_Encoding="br")


def encoding_upon_encoding(server):
    body = gzip.compress(gzip.compress(GOOD))
    return server.serve("/twice", body, Content_Encoding="gzip, gzip")


def encoding_that_is_none(server):
    return server.serve("/none", GOOD, Content_Encoding="gzip")


def gzip_bomb_as_encoding(server):
    return server.serve("/bomb", gzip_bomb(), Content_Encoding="gzip")


def plain_http(server):
    return f"http://localhost:{server.server_port}/plain"


def redirect_to_plain_http(server):
    server.serve("/plain")
    return server.serve("/redirect", b"", 302, Location=plain_http(server))


def redirect_for_ever(server):
    downloads.TIMEOUT = 1.0
    return server.serve("/round", b"", 302, Location="/round")


@cache
def gzip_bomb(megabytes: int = 100) -> bytes:
    """Zeros packed a thousandfold."""
    return gzip.compress(bytes(10 * MEGABYTE)) * (megabytes // 10)


@cache
def zip_bomb(megabytes: int = 100, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive, archive.open("file.bin", "w") as member:
        shutil.copyfileobj(io.BytesIO(bytes(megabytes * MEGABYTE)), member, MEGABYTE)
    return stream.getvalue()


def zip_with_other_contents(server):
    return packed_mirror(server, zipped(("file.bin", altered(GOOD))))


def zip_that_is_a_bomb(server):
    return packed_mirror(server, zip_bomb(10))


def zip_packed_by_another_method(server):
    return packed_mirror(server, zipped(("file.bin", GOOD), method=zipfile.ZIP_BZIP2))


def zip_with_one_wrong_byte(server):
    right = zipped(("file.bin", GOOD))
    return packed_mirror(server, altered(right), digest="sha1:" + hashlib.sha1(right).hexdigest())


def zip_that_is_a_page(server):
    return packed_mirror(server, HTML, digest="sha1:" + "0" * 40)


def zip_that_is_none(server):
    return packed_mirror(server, b"no archive")


def zip_without_the_file(server):
    return packed_mirror(server, zipped(("elsewhere", GOOD)))


def zip_longer_than_known(server):
    return packed_mirror(server, zipped(("file.bin", GOOD)), at_most=100)


def zip_with_a_link_for_the_file(server):
    link = zipfile.ZipInfo("file.bin")
    link.external_attr = 0o120777 << 16
    return packed_mirror(server, zipped((link, b"../../escaped")))


def zip_whose_members_overlap(server):
    """Two names for one place, as in a bomb without recursion; the first is asked for."""
    raw = zipped(("other.bin", GOOD), ("file.bin", GOOD), method=zipfile.ZIP_STORED)
    second = raw.index(b"PK\3\4", 4)
    entry = raw.rindex(b"PK\1\2") + 42  # the offset in the directory of the second member
    return packed_mirror(server, raw[:entry] + struct.pack("<I", second - 9) + raw[entry + 4 :])


def zip_with_a_password(server):
    raw = bytearray(zipped(("file.bin", GOOD)))
    raw[6] |= 1
    raw[raw.rindex(b"PK\1\2") + 8] |= 1
    return packed_mirror(server, bytes(raw))


def slow_then(server, first: bytes, rest: bytes, going_on: threading.Event) -> str:
    """An address that sends the rest only when the event comes."""

    def answer(request):
        request.start(200, len(first) + len(rest))
        request.send(first)
        while not going_on.wait(0.01):
            if request.wait(0):
                return
        request.send(rest)

    return server.act("/slow", answer)


def seconds_since(start: float) -> float:
    return time.monotonic() - start
