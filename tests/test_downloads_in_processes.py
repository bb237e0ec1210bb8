"""Downloads that are killed, interrupted, raced for, or short of disk or memory, each for real.

What must not happen to the tests' own process happens to children of it. As in test_downloads.py,
each check is also run with the protection taken out, and must notice.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import pytest

from support.data import files
from support.data.files import locate
from tests import misbehaving_server as bad
from tests.misbehaving_server import (
    GOOD,
    MEGABYTE,
    files_in,
    packed_mirror,
    sha256,
    slow_then,
    toy,
    zipped,
)

# Each test has a cache of its own, in which alone it may write.
pytestmark = pytest.mark.usefixtures("cache")

BIG = GOOD * 40
HALF = len(BIG) // 2
ROOT = Path(__file__).resolve().parent.parent
WITHIN = 20.0  # seconds, starting Python among them: a machine may be busy
needs_posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals and limits")
PROGRAM = """
import hashlib, json, os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where we run in the background
from support.data import downloads, files
from support.data.files import DataFile, Mirror
import filelock, pooch
downloads._LOOPBACK_MAY_BE_PLAIN, downloads.TIMEOUT, downloads.PAUSE = True, 20.0, 0.01
downloads.HEADERS["X-Process"] = str(os.getpid())

def memory():
    # Of this program alone: what getrusage gives on Linux begins with the parent's.
    try:
        with open("/proc/self/status") as status:
            return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) / 1024
    except FileNotFoundError:
        if os.name != "posix":
            return 0
        import resource
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20

result = {{}}
{before}
before = memory()
print("ready", flush=True)
try:
    path, result["origin"] = files.locate({file!r})
    result["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
except Exception as error:
    result["error"] = f"{{type(error).__name__}}: {{error}}"
result["megabytes"] = memory() - before
print(json.dumps(result), flush=True)
"""

# Protections taken out, in the child.

WITHOUT_SIZE_LIMIT = """
def write(self, data):
    self.file.write(data)
downloads._Sink.write = write
"""
WITHOUT_WORDS_FOR_THE_DISK = (
    WITHOUT_SIZE_LIMIT
    + """
downloads._explain = lambda error: (str(error), downloads.Refused)
"""
)
IN_MEMORY = """
def answer(url, target, at_most):
    import itertools, requests
    pieces = requests.get(url, stream=True).iter_content(1 << 16)
    target.write_bytes(b"".join(itertools.islice(pieces, 2000)))
downloads.answer = answer
"""
UNPACKING_ALL_OF_IT = """
import zipfile
def unpack(archive, member, target, at_most):
    with zipfile.ZipFile(archive) as opened:
        target.write_bytes(opened.read(member))
downloads.unpack = unpack
"""
MEASURING_ALL_OF_IT = """
import io
real = files._measure
files._measure = lambda stream, *known: real(io.BytesIO(stream.read()), *known)
"""
WITHOUT_LOCK = """
from contextlib import nullcontext
files._alone = lambda file, path: nullcontext()
"""
WITHOUT_A_PLACE_OF_ITS_OWN = (
    WITHOUT_LOCK
    + """
from pathlib import Path
files._temporary = lambda path: nullcontext(Path(path))
"""
)
WITHOUT_CLEARING_UP = """
import tempfile
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
@contextmanager
def temporary(path):
    handle, name = tempfile.mkstemp(prefix=path.name + ".part-", dir=path.parent)
    os.close(handle)
    yield Path(name)
files._temporary = temporary
"""
WITHOUT_CARE_FOR_THE_CACHE = """
def kept(file):
    path = files.cache_dir() / file.path
    files._download(file, path)
    return path, "download"
files._kept = kept
"""


@contextmanager
def started(file, before="", **variables):
    """A child that is about to look for the file; at the end it is gone."""
    with launched(file, before, **variables) as child:
        assert is_ready(child)
        yield child


def is_ready(child):
    return child.stdout.readline() == "ready\n"


@contextmanager
def launched(file, before="", **variables):
    """A child that will look for the file as soon as it is ready; at the end it is gone."""
    child = subprocess.Popen(
        [sys.executable, "-B", "-c", PROGRAM.format(file=file, before=before)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"} | variables,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def finished(child):
    """What a child reports at its end."""
    too_late = threading.Timer(WITHIN, child.kill)
    too_late.start()
    # Not by communicate, which loses what came together with the line that was read before.
    out = child.stdout.read()
    assert child.wait() == 0, "it failed, or took too long"
    too_late.cancel()
    return json.loads(out)


def ran(file, before="", **variables):
    with started(file, before, **variables) as child:
        return finished(child)


def wait_for(condition):
    """Return what a condition gives as soon as it is true; fail if that takes too long."""
    end = time.monotonic() + WITHIN
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.005)
    raise AssertionError("waited in vain")


def is_right(result, content=GOOD):
    return result.get("sha256") == sha256(content)[7:]


# Memory, and the disk below the file.


def zip_bomb(server, content):
    return toy(packed_mirror(server, bad.zip_bomb(100)), content=content)


def zip_bomb_of_another_method(server, content):
    archive = bad.zip_bomb(100, zipfile.ZIP_BZIP2)
    return toy(packed_mirror(server, archive), content=content)


def gzip_bomb(server, content):
    return toy(server.serve("/x", bad.gzip_bomb(100)), content=content, path="toy/x.gz")


def gzip_bomb_as_encoding(server, content):
    return toy(bad.gzip_bomb_as_encoding(server), content=content)


def body_of_600_megabytes(server, content):
    return toy(bad.body_of_600_megabytes(server), content=content)


def redirect_with_a_body_of_150_megabytes(server, content):
    return toy(bad.redirect_with_a_body_of_150_megabytes(server), content=content)


FOLLOWING_REDIRECTS_BLINDLY = """
import requests
downloads._Session.get_redirect_target = requests.Session.get_redirect_target
"""
BOMBS = [
    (zip_bomb, "size 1,000,001 instead of 1,000,000", UNPACKING_ALL_OF_IT),
    (zip_bomb_of_another_method, "packed by method 12", UNPACKING_ALL_OF_IT),
    (gzip_bomb, "unpacks to more than 1,000,000 bytes", MEASURING_ALL_OF_IT),
    (gzip_bomb_as_encoding, "more than the 1,000,000 bytes expected", IN_MEMORY),
    (body_of_600_megabytes, "more than the 1,000,000 bytes expected", IN_MEMORY),
    (redirect_with_a_body_of_150_megabytes, "HTTP 404", FOLLOWING_REDIRECTS_BLINDLY),
]
every_bomb = pytest.mark.parametrize(
    ("bomb", "reason", "protection"), BOMBS, ids=[bomb.__name__ for bomb, *_ in BOMBS]
)
# Stricter than the 300 MB that are promised, so that a bomb of 100 MB tells.
MOST_MEGABYTES = 60
NO_LARGE_FILE = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1_100_000, 1_100_000))
"""


def check_bomb(server, cache, bomb, reason, before=""):
    result = ran(bomb(server, bytes(MEGABYTE)), before)
    assert result["megabytes"] < MOST_MEGABYTES
    assert reason in result["error"]
    assert files_in(cache) == []


@needs_posix
@every_bomb
def test_a_bomb_fills_neither_the_memory_nor_the_disk(server, cache, bomb, reason, protection):
    check_bomb(server, cache, bomb, reason, NO_LARGE_FILE)


@needs_posix
@every_bomb
def test_a_bomb_is_seen_without_its_protection(server, cache, bomb, reason, protection):
    with pytest.raises(AssertionError, match=f"< {MOST_MEGABYTES}"):
        check_bomb(server, cache, bomb, reason, protection)


@needs_posix
@pytest.mark.parametrize("protection", [WITHOUT_SIZE_LIMIT, WITHOUT_WORDS_FOR_THE_DISK])
def test_a_body_without_end_is_seen_on_the_disk(server, cache, protection):
    with pytest.raises(AssertionError, match="more than the"):
        check_bomb(server, cache, *BOMBS[4][:2], NO_LARGE_FILE + protection)


# A full disk, and a cache that may only be read.


def check_full_disk(server, cache, before=""):
    limit = NO_LARGE_FILE.replace("1_100_000", "2_000")
    for mirror in (server.serve("/good", BIG), packed_mirror(server, zipped(("file.bin", BIG)))):
        result = ran(toy(mirror, content=BIG), limit + before)
        assert "cannot be stored: [Errno 27] File too large" in result["error"]
        assert files_in(cache) == []
    assert is_right(ran(toy(mirror, content=BIG)), BIG), "the next time, with more room"


@needs_posix
def test_a_limit_of_the_size_of_files(server, cache):
    check_full_disk(server, cache)
    shutil.rmtree(cache)
    with pytest.raises(AssertionError):
        check_full_disk(server, cache, WITHOUT_WORDS_FOR_THE_DISK)


@pytest.fixture
def read_only(monkeypatch):
    """A cache that may not be written, and what makes a child obey that even if we are root."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    monkeypatch.setenv("PRETRAIN_CACHE_DIR", str(folder))
    (folder / "toy").mkdir()
    for each in (folder / "toy", folder):
        each.chmod(0o555)
    yield (
        folder,
        (
            "import requests.utils, encodings.idna, http.cookiejar, netrc\n"
            "if os.geteuid() == 0: os.setuid(65534)\n"
            "assert os.access(files.cache_dir(), os.X_OK)\n"
            "assert not os.access(files.cache_dir(), os.W_OK)\n"
        ),
    )
    for each in (folder, folder / "toy"):
        each.chmod(0o755)
    shutil.rmtree(folder)


def check_read_only(server, read_only, planted, before=""):
    folder, as_nobody = read_only
    if planted is not None:
        (folder / "toy").chmod(0o755)
        (folder / "toy/file.bin").write_bytes(planted)
        (folder / "toy/file.bin").chmod(0o444)
        (folder / "toy").chmod(0o555)
    result = ran(toy(server.serve("/good")), as_nobody + before)
    if planted == GOOD:
        assert is_right(result) and result["origin"] == "cache"
    else:
        assert result["error"].startswith("DownloadError: toy/file.bin could not be downloaded")
        assert "cannot be stored: [Errno 13] Permission denied" in result["error"]
        assert server.asked == [], "what cannot be stored is not fetched"
    assert files_in(folder) == ([] if planted is None else ["toy/file.bin"])


in_it = pytest.mark.parametrize(
    "planted", [None, GOOD, bad.altered(GOOD)], ids=["empty", "good file", "bad file"]
)


@needs_posix
@in_it
def test_a_read_only_cache(server, read_only, planted):
    check_read_only(server, read_only, planted)


@needs_posix
@in_it
def test_a_read_only_cache_is_seen_without_its_protection(server, read_only, planted):
    with pytest.raises(AssertionError):
        check_read_only(server, read_only, planted, WITHOUT_CARE_FOR_THE_CACHE)


# Killed, interrupted, and many at once.


def leave_half(server, cache, file, kill, before=""):
    """End a child by a signal when half of the file is on the disk; return what it leaves."""
    sent = server.sent
    with started(file, before) as child:
        wait_for(lambda: server.sent - sent >= HALF)
        wait_for(lambda: [p for p in cache.rglob("*.part-*") if p.stat().st_size > HALF // 2])
        child.send_signal(kill)
        child.wait(WITHIN)
    return child.returncode, [name for name in files_in(cache) if ".part-" in name]


def half_of(server, packed):
    """A file of which the server sends only half, and the mirror that gives it whole."""
    body = zipped(("file.bin", BIG), method=zipfile.ZIP_STORED) if packed else BIG
    slow = slow_then(server, body[:HALF], body[HALF:], threading.Event())
    whole = packed_mirror(server, body) if packed else bad.Mirror(server.serve("/good", body))
    half = bad.Mirror(slow, whole.member, whole.digest, whole.at_most)
    return toy(half, content=BIG), toy(whole, content=BIG)


def check_killed(server, cache, packed, before=""):
    half, whole = half_of(server, packed)
    for _ in range(2):
        code, left = leave_half(server, cache, half, signal.SIGKILL, before)
        assert code == -signal.SIGKILL
        # A killed program cannot clear up after itself, but they must not pile up.
        assert len(left) == 1 + packed and files_in(cache) == left
    path, origin = locate(whole)
    assert (path.read_bytes(), origin) == (BIG, "download")
    assert files_in(cache) == ["toy/file.bin"]


@needs_posix
@pytest.mark.parametrize("packed", [False, True], ids=["file", "zip"])
def test_killed_in_mid_download(server, cache, packed):
    check_killed(server, cache, packed)


@needs_posix
def test_killed_in_mid_download_is_seen_without_its_protection(server, cache, monkeypatch):
    monkeypatch.setattr(files, "_alone", lambda file, path: nullcontext())
    with pytest.raises(AssertionError, match="part-"):
        check_killed(server, cache, False, WITHOUT_LOCK)


@needs_posix
def test_ctrl_c_in_mid_download_leaves_nothing(server, cache):
    for packed in (False, True):
        half, whole = half_of(server, packed)
        start = time.monotonic()
        code, left = leave_half(server, cache, half, signal.SIGINT)
        assert code != 0 and left == [] and files_in(cache) == []
        assert bad.seconds_since(start) < WITHIN
    code, left = leave_half(server, cache, half, signal.SIGINT, WITHOUT_CLEARING_UP)
    assert left, "the check sees what is left without its protection"
    assert locate(whole)[0].read_bytes() == BIG
    assert files_in(cache) == ["toy/file.bin"]


@contextmanager
def watched(path):
    """Note every content that a file is seen to have, and None if it is seen to vanish."""
    seen, over = set(), threading.Event()

    def watch():
        done = False
        while not done:
            done = over.wait(0.002)  # so that the last look comes after the end
            if path.is_file():
                try:
                    seen.add(path.read_bytes())
                except FileNotFoundError:
                    seen.add(None)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def check_many(server, cache, before="", kill_first=False, n=8):
    """Many processes ask at once; the first gets half of the file, and the rest when all ask."""
    going_on = threading.Event()
    file = toy(slow_then(server, BIG[:HALF], BIG[HALF:], going_on), content=BIG)
    with watched(cache / "toy/file.bin") as seen, ExitStack() as children:
        running = [children.enter_context(launched(file, before)) for _ in range(n)]
        assert all([is_ready(child) for child in running])
        _, headers = wait_for(lambda: server.asked)[0]
        wait_for(lambda: server.sent >= HALF)
        time.sleep(0.3)  # so that all of them are looking for it
        if kill_first:
            (first,) = (child for child in running if str(child.pid) == headers["X-Process"])
            first.kill()
            first.wait()
            running.remove(first)
        going_on.set()
        results = [finished(child) for child in running]
    assert seen == {BIG}, "somebody could see half of the file"
    assert all(is_right(result, BIG) for result in results), results
    assert files_in(cache) == ["toy/file.bin"]
    assert len(server.asked) == 1 + kill_first
    origins = sorted(result["origin"] for result in results)
    assert origins == ["cache"] * (n - 1 - kill_first) + ["download"]


def test_eight_processes_at_once_fetch_a_file_once(server, cache):
    check_many(server, cache)


@needs_posix
def test_eight_processes_at_once_and_the_first_is_killed(server, cache):
    check_many(server, cache, kill_first=True)


@needs_posix
@pytest.mark.parametrize(
    ("protection", "seen"),
    [(WITHOUT_LOCK, r"== \(1"), (WITHOUT_A_PLACE_OF_ITS_OWN, "half of the file")],
    ids=["lock", "place of its own"],
)
def test_processes_at_once_are_seen_without_their_protection(server, cache, protection, seen):
    with pytest.raises(AssertionError, match=seen):
        check_many(server, cache, protection, n=3)


@needs_posix
def test_a_cache_in_chinese_where_the_language_is_none(server, tmp_path):
    """In the locale C, Python 3.10 to 3.13 take file names for UTF-8, unless told not to."""
    folder = tmp_path / "预训练 🤖"
    result = ran(
        toy(server.serve("/good")),
        PRETRAIN_CACHE_DIR=str(folder),
        LC_ALL="C",
        PYTHONCOERCECLOCALE="0",
        PYTHONUTF8="0",
    )
    assert is_right(result) and files_in(folder) == ["toy/file.bin"]
