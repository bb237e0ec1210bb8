"""Files looked for and fetched: the right file, or one clear error and nothing left behind."""

from __future__ import annotations

import gzip
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pooch
import pytest

from support.data import files
from support.data.files import DownloadError, locate
from tests import misbehaving_server as bad
from tests.misbehaving_server import GOOD, MEGABYTE, PAGE, altered, files_in, toy, zipped

# Each test has a cache of its own, in which alone it may write.
pytestmark = pytest.mark.usefixtures("cache")

ROOT = Path(__file__).parents[1]
WITHIN = 10.0  # seconds, for what here takes one or two: a machine may be busy
needs_posix = pytest.mark.skipif(os.name != "posix", reason="needs limits and signals of POSIX")

# Whatever a server does wrong.

FAULTS = {
    bad.a_page_with_status_200: "ValueError: 55 bytes instead of 5,120",
    bad.status_404: "HTTPError: 404 .*Not Found",
    bad.one_wrong_byte: "ValueError: SHA256 hash .* does not match the known hash",
    bad.one_byte_too_long: "ValueError: more than the 5,120 bytes expected",
    bad.a_body_of_600_megabytes: "ValueError: more than the 5,120 bytes expected",
    bad.cut_off_at_90_percent: "4608 bytes read|4,608 bytes instead of 5,120",
    bad.cut_off_at_90_percent_silently: "ValueError: 4,608 bytes instead of 5,120",
    bad.connection_refused: "ConnectionRefusedError",
    bad.connection_reset_in_mid_body: "ConnectionResetError",
    bad.no_such_host: "gaierror",
    bad.never_answers: "timed out",
    bad.stops_half_way: "timed out",
    bad.trickles: "TimeoutError: .* bytes in 1 s are too few",
    bad.plain_http: "ValueError: http://localhost.* is refused, as it is not https",
    bad.redirect_to_plain_http: "ValueError: http://localhost.* is refused, as it is not https",
    bad.redirect_for_ever: "TooManyRedirects",
    bad.gzip_that_is_none: "BadGzipFile",
    bad.gzip_cut_off: "EOFError",
    bad.gzip_that_is_a_bomb: "ValueError: more than the 5,120 bytes expected",
    bad.zip_that_is_none: "BadZipFile",
    bad.zip_without_the_file: "no item named 'file.bin'",
    bad.zip_with_other_contents: "ValueError: SHA256 hash .* does not match",
    bad.zip_that_is_a_bomb: "ValueError: more than the 5,120 bytes expected",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_gives_one_clear_error_or_the_next_address(server, cache, fault):
    start = time.monotonic()
    address = fault(server)
    with pytest.raises(DownloadError) as caught:
        locate([toy(address)])
    [line] = [line for line in str(caught.value).splitlines() if line.startswith("  ")]
    assert re.match(f"  {re.escape(address)}: .*({FAULTS[fault]})", line), line
    assert files_in(cache) == []
    assert "/plain" not in server.paths
    server.over.clear()
    paths, origin = locate([toy(address, server.serve("/good"))])
    assert ([path.read_bytes() for path in paths], origin) == ([GOOD], "download")
    assert files_in(cache) == ["toy/file.bin"]
    assert time.monotonic() - start < WITHIN
    assert server.sent < 40 * MEGABYTE, "what is on its way when a connection is closed is lost"


def test_a_zip_archive_has_an_upper_bound(server, cache, monkeypatch):
    monkeypatch.setattr(files, "LARGEST_ARCHIVE", 100)
    archive = server.serve("/archive.zip", zipped(("file.bin", GOOD)))
    with pytest.raises(DownloadError, match="more than the 100 bytes expected"):
        locate([toy(f"{archive}#file.bin")])
    assert files_in(cache) == []


def test_plain_http_is_refused_by_everyone_but_these_tests(monkeypatch, server):
    monkeypatch.undo()
    with pytest.raises(ValueError, match="is not https"):
        files.fetch(toy(), server.serve("/good"), Path("nowhere"))
    assert server.asked == []


# What is as it should be.


def test_addresses_are_asked_in_turn_by_our_name_and_only_until_one_is_good(server, cache):
    file = toy(bad.status_404(server), server.serve("/good"), server.serve("/spare"))
    assert locate([file]) == ([cache / "toy/file.bin"], "download")
    assert locate([file]) == ([cache / "toy/file.bin"], "cache")
    assert server.paths == ["/nothing-here", "/good"]
    assert all(headers["User-Agent"].startswith("pretraining") for _, headers in server.asked)


def test_a_redirect_that_may_be_followed_is_followed(server):
    server.serve("/good")
    moved = server.serve("/moved", b"", 301, Location="/good")
    assert locate([toy(moved)])[1] == "download"
    assert server.paths == ["/moved", "/good"]


def test_what_is_packed_is_unpacked_and_the_archive_is_not_kept(server, cache):
    packed = server.serve("/file.gz", gzip.compress(GOOD))
    outside = [("../../escaped", b"x"), ("/escaped", b"x")]
    archive = server.serve("/archive.zip", zipped(*outside, ("folder/file.bin", GOOD)))
    one = toy(packed, path="toy/one")
    two = toy(f"{archive}#folder/file.bin", path="toy/two")
    paths, _ = locate([one, two])
    assert [path.read_bytes() for path in paths] == [GOOD, GOOD]
    assert files_in(cache) == ["toy/one", "toy/two"]


def test_the_error_has_a_line_for_each_address_and_says_the_ways_on(server, monkeypatch, tmp_path):
    file = toy(bad.status_404(server), bad.a_page_with_status_200(server))
    with pytest.raises(DownloadError) as caught:
        locate([file])
    assert str(caught.value).splitlines() == [
        "toy/file.bin could not be downloaded:",
        f"  {file.urls[0]}: HTTPError: 404 Client Error: Not Found for url: {file.urls[0]}",
        f"  {file.urls[1]}: ValueError: 55 bytes instead of 5,120",
        f"Ways on: put the file at {Path('FOLDER/toy/file.bin')} and set PRETRAIN_DATA_DIR to "
        "that FOLDER; or, where the course carries a stand-in, ask for "
        'source="embedded".',
    ]
    assert [url for url, _ in caught.value.reasons] == list(file.urls)
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path))
    with pytest.raises(DownloadError, match=re.escape(f"put the file at {tmp_path}")):
        locate([file])


# The folder of the user.


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that PRETRAIN_DATA_DIR names."""
    (tmp_path / "data/toy").mkdir(parents=True)
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def test_the_folder_of_the_user_comes_first_if_it_has_all_files(server, cache, folder):
    one = toy(server.serve("/good"), path="toy/one")
    two = toy(server.serve("/good"), path="toy/two")
    (folder / "toy/one").write_bytes(GOOD)
    assert locate([one]) == ([folder / "toy/one"], "folder")
    assert locate([one, two]) == ([cache / "toy/one", cache / "toy/two"], "download")
    (folder / "toy/two.gz").write_bytes(gzip.compress(GOOD, mtime=5))
    paths, origin = locate([one, two])
    assert (paths, origin) == ([folder / "toy/one", folder / "toy/two.gz"], "folder")
    assert [files.read(path) for path in paths] == [GOOD, GOOD]
    assert files_in(folder) == ["toy/one", "toy/two.gz"]


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("file.bin", altered(GOOD), "SHA-256 [0-9a-f]{64} instead of [0-9a-f]{64}"),
        ("file.bin", GOOD + b"!", "5,121 bytes instead of 5,120"),
        ("file.bin", PAGE, "55 bytes instead of 5,120"),
        ("file.bin.gz", gzip.compress(altered(GOOD)), "SHA-256 [0-9a-f]{64} instead of"),
        ("file.bin.gz", GOOD, "cannot be read .*gzip"),
        ("file.bin.gz", gzip.compress(GOOD)[:-10], "cannot be read .*ended"),
    ],
)
def test_a_wrong_file_of_the_user_is_refused_and_left_alone(
    server, cache, folder, name, content, found
):
    path = folder / "toy" / name
    path.write_bytes(content)
    with pytest.raises(
        ValueError, match=f"{re.escape(str(path))} is not the toy/file.bin .*: {found}"
    ):
        locate([toy(server.serve("/good"))])
    assert path.read_bytes() == content
    assert server.asked == [] and not cache.exists()


def test_a_folder_that_is_none_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path / "mistyped"))
    with pytest.raises(ValueError, match="PRETRAIN_DATA_DIR must name a folder.*mistyped"):
        locate([toy()])


# The cache.


@pytest.mark.parametrize("content", [altered(GOOD), GOOD[:-1], GOOD + b"!", b"", PAGE])
def test_a_wrong_file_in_the_cache_is_fetched_anew(server, cache, content):
    path = cache / "toy/file.bin"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert locate([toy(server.serve("/good"))]) == ([path], "download")
    assert path.read_bytes() == GOOD and files_in(cache) == ["toy/file.bin"]


def test_what_is_in_the_way_is_left_alone(server, cache):
    cache.write_text("a file where the folder should be")
    with pytest.raises(DownloadError, match="FileExistsError|NotADirectoryError"):
        locate([toy(server.serve("/good"))])
    assert cache.read_text() == "a file where the folder should be"


def test_the_cache_is_the_users_own_unless_told(monkeypatch, tmp_path):
    monkeypatch.delenv("PRETRAIN_CACHE_DIR")
    assert files.cache_dir() == Path(pooch.os_cache("pretraining-by-hand"))
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setenv("PRETRAIN_CACHE_DIR", "~/语言 模型")
    assert files.cache_dir() == tmp_path / "语言 模型"


def test_an_interrupted_download_leaves_nothing(server, cache, monkeypatch):
    def interrupted(self, data):
        self.file.write(data)
        raise KeyboardInterrupt

    monkeypatch.setattr(files._Bounded, "write", interrupted)
    for address in (server.serve("/good"), server.serve("/x.zip", zipped(("a", GOOD))) + "#a"):
        with pytest.raises(KeyboardInterrupt):
            locate([toy(address)])
        assert files_in(cache) == []


def test_no_file_is_half_written(tmp_path):
    (tmp_path / "file").write_bytes(b"before")
    with pytest.raises(OSError, match="full"):
        with files.whole_file(tmp_path / "file") as file:
            file.write(b"aft")
            raise OSError("the disk is full")
    assert (tmp_path / "file").read_bytes() == b"before"
    assert [path.name for path in tmp_path.glob("*file*")] == ["file"]
    with files.whole_file(tmp_path / "file") as file:
        file.write(b"after")
        assert (tmp_path / "file").read_bytes() == b"before"
    assert (tmp_path / "file").read_bytes() == b"after"
    assert [path.name for path in tmp_path.glob("*file*")] == ["file"]


# Processes.

PROGRAM = """
import sys
from support.data import files
from support.data.files import DataFile
from tests.misbehaving_server import https_or_this_server
files._require_https = https_or_this_server(files._require_https)
{before}
print("ready", flush=True)
try:
    [path], _ = files.locate([{file!r}])
    print(path.read_bytes() == {content!r})
except files.DownloadError as error:
    print(error)
"""


def started(file, content=GOOD, before=""):
    """A process that is about to look for a file."""
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(file=file, content=content, before=before)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    assert child.stdout.readline() == "ready\n"
    return child


def half_then(server, going_on):
    """The address of a file of which the second half is sent when an event is set."""

    def answer(request):
        request.start(200, len(GOOD))
        request.send(GOOD[:2560])
        going_on.wait(WITHIN)
        request.send(GOOD[2560:])

    return server.act("/slow", answer)


def wait_for(condition):
    end = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def test_processes_that_fetch_one_file_at_once_all_get_it_whole(server, cache):
    going_on = threading.Event()
    file = toy(half_then(server, going_on))
    children = [started(file) for _ in range(3)]
    wait_for(lambda: len(server.asked) == 3)
    assert not (cache / "toy/file.bin").exists(), "half of a file must not have its name"
    going_on.set()
    assert [child.communicate(timeout=WITHIN)[0] for child in children] == ["True\n"] * 3
    assert files_in(cache) == ["toy/file.bin"]


@needs_posix
def test_a_full_disk_leaves_nothing_half_written(server, cache):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))"
    file = toy(server.serve("/good"))
    said, _ = started(file, before=limit).communicate(timeout=WITHIN)
    assert re.search(r"  http.*/good: OSError: \[Errno 27\] File too large", said), said
    assert files_in(cache) == []


@needs_posix
@pytest.mark.exhaustive
def test_a_killed_process_leaves_no_file_of_that_name(server, cache):
    file = toy(half_then(server, threading.Event()))
    child = started(file)
    wait_for(lambda: server.sent >= 2560)
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=WITHIN)
    assert not (cache / "toy/file.bin").exists()
    assert locate([toy(server.serve("/good"))])[1] == "download"
