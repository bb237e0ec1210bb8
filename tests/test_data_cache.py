"""Where files are looked for and kept: the folder of the user, the cache, and what is amiss there.

Checks of a protection are also run without it, and must notice. A read-only cache and a limit of
the size of files are in test_downloads_in_processes.py.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import filelock
import pytest

from support.data import downloads, files
from support.data.files import DownloadError, locate
from tests import misbehaving_server as bad
from tests.misbehaving_server import GOOD, HTML, XML, altered, files_in, packed_mirror, toy, zipped

# Each test has a cache of its own, in which alone it may write.
pytestmark = pytest.mark.usefixtures("cache")

WITHIN = 10.0  # seconds, for what here takes less than one: a machine may be busy


# The cache, and the folder of the user.


BAD = {"altered": altered(GOOD), "cut off": GOOD[:-1], "too long": GOOD + b"!", "empty": b""}
BAD |= {"HTML page": HTML, "XML page": XML}


def plant(path, bad_file, elsewhere):
    """Put something bad in the place of a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if bad_file == "link to nothing":
        path.symlink_to(elsewhere / "nothing")
    elif bad_file == "link to a bad file":
        (elsewhere / "bad").write_bytes(HTML)
        path.symlink_to(elsewhere / "bad")
    else:
        path.write_bytes(BAD[bad_file])


def check_bad_file(server, path, bad_file, elsewhere):
    plant(path, bad_file, elsewhere)
    linked = sorted(elsewhere.iterdir())
    try:
        locate(toy(bad.status_404(server)))
    except DownloadError:
        assert files_in(path.parent) == []
    else:
        raise AssertionError("the bad file was taken")
    plant(path, bad_file, elsewhere)
    assert locate(toy(server.serve("/good"))) == (path, "download")
    assert path.read_bytes() == GOOD and not path.is_symlink()
    assert sorted(elsewhere.iterdir()) == linked, "what a link leads to is not the cache's"


in_the_cache = pytest.mark.parametrize(
    "bad_file",
    [
        *BAD,
        *[
            pytest.param(
                link, marks=pytest.mark.skipif(os.name == "nt", reason="links need a privilege")
            )
            for link in ("link to nothing", "link to a bad file")
        ],
    ],
)


@in_the_cache
def test_a_bad_file_in_the_cache_is_removed_and_fetched_again(server, cache, tmp_path, bad_file):
    (tmp_path / "elsewhere").mkdir()
    check_bad_file(server, cache / "toy/file.bin", bad_file, tmp_path / "elsewhere")


@in_the_cache
def test_a_bad_file_in_the_cache_is_seen_without_its_protection(
    server, cache, tmp_path, bad_file, monkeypatch
):
    (tmp_path / "elsewhere").mkdir()
    is_there = os.path.lexists
    monkeypatch.setattr(files, "_is_right", lambda file, path: is_there(path))
    with pytest.raises(AssertionError):
        check_bad_file(server, cache / "toy/file.bin", bad_file, tmp_path / "elsewhere")


def test_a_file_in_the_cache_that_may_not_be_read_is_fetched_again(server, cache, monkeypatch):
    path = cache / "toy/file.bin"
    plant(path, "altered", cache)
    real = files.DataFile.open

    def open_it(file, asked):
        if asked == path and path.read_bytes() != GOOD:
            raise PermissionError(13, "Permission denied", str(asked))
        return real(file, asked)

    monkeypatch.setattr(files.DataFile, "open", open_it)
    assert locate(toy(server.serve("/good"))) == (path, "download")
    assert path.read_bytes() == GOOD


def check_folder_in_the_way(server, path):
    path.mkdir(parents=True)
    (path / "of the user").write_text("kept")
    try:
        locate(toy(server.serve("/good")))
    except DownloadError as error:
        assert f"  {path}: cannot be stored: " in str(error)
    except OSError as error:
        raise AssertionError("not an error for the reader") from error
    assert (path / "of the user").read_text() == "kept"
    assert server.asked == [], "what cannot be stored is not fetched"


def naive(file):
    """The cache without its protections."""
    path = files.cache_dir() / file.path
    files._download(file, path)
    return path, "download"


def test_a_folder_in_the_place_of_the_file(server, cache, monkeypatch):
    check_folder_in_the_way(server, cache / "toy/file.bin")
    shutil.rmtree(cache)
    monkeypatch.setattr(files, "_kept", naive)
    with pytest.raises(AssertionError):
        check_folder_in_the_way(server, cache / "toy/file.bin")


def test_a_cache_that_is_a_file(server, cache):
    cache.write_text("a file where the folder should be")
    with pytest.raises(DownloadError, match=f"{re.escape(str(cache))}.*: cannot be stored"):
        locate(toy(server.serve("/good")))
    assert server.asked == []


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
    assert files_in(folder) == ["toy/file.bin"]


@pytest.mark.parametrize(
    ("bad_file", "found"),
    [
        ("altered", "sha256 [0-9a-f]{64} instead of [0-9a-f]{64}"),
        ("cut off", "size 5,119 instead of 5,120"),
        ("too long", "size 5,121 instead of 5,120"),
        ("HTML page", "an HTML page of 55 bytes"),
        ("XML page", "an XML page of 243 bytes"),
    ],
)
def test_a_wrong_file_of_the_user_is_refused_and_left_alone(
    server, cache, tmp_path, monkeypatch, bad_file, found
):
    path = tmp_path / "toy/file.bin"
    plant(path, bad_file, tmp_path)
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path))
    with pytest.raises(
        ValueError, match=f"{re.escape(str(path))} is not the toy/file.bin .*: {found}"
    ):
        locate(toy(server.serve("/good")))
    assert path.read_bytes() == BAD[bad_file]
    assert server.asked == [] and not cache.exists()


def test_a_folder_that_is_none_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path / "mistyped"))
    with pytest.raises(ValueError, match="PRETRAIN_DATA_DIR must name a folder.*mistyped"):
        locate(toy("https://nowhere.invalid/"))


def test_the_cache_is_the_users_own_unless_told(monkeypatch):
    import pooch

    monkeypatch.delenv("PRETRAIN_CACHE_DIR")
    assert files.cache_dir() == Path(pooch.os_cache("pretraining-by-hand"))


@pytest.mark.parametrize(
    "name", ["with spaces", "语言模型预训练", "🤖 模型", "[a]*b?" if os.name != "nt" else "[a]"]
)
def test_a_cache_of_any_name(server, tmp_path, monkeypatch, name):
    monkeypatch.setenv("PRETRAIN_CACHE_DIR", str(tmp_path / name / "cache"))
    file = toy(packed_mirror(server, zipped(("file.bin", GOOD))))
    assert locate(file) == (tmp_path / name / "cache/toy/file.bin", "download")
    assert locate(file) == (tmp_path / name / "cache/toy/file.bin", "cache")
    assert files_in(tmp_path / name) == ["cache/toy/file.bin"]


def test_both_folders_may_be_below_the_home(server, tmp_path, monkeypatch):
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setenv("PRETRAIN_DATA_DIR", "~/data")
    monkeypatch.setenv("PRETRAIN_CACHE_DIR", "~/kept")
    (tmp_path / "data").mkdir()
    assert locate(toy(server.serve("/good"))) == (tmp_path / "kept/toy/file.bin", "download")
    (tmp_path / "kept/toy").rename(tmp_path / "data/toy")
    assert locate(toy()) == (tmp_path / "data/toy/file.bin", "folder")


# A full disk.


def check_full_disk(server, cache, tmp_path, content, packed):
    (tmp_path / "full").unlink(missing_ok=True)
    (tmp_path / "full").symlink_to("/dev/full")
    mirror = server.serve("/good", content)
    if packed:
        mirror = packed_mirror(server, zipped(("file.bin", content)))
    with pytest.raises(
        DownloadError, match="  http.*: cannot be stored: .*No space left on device"
    ):
        locate(toy(mirror, content=content))
    assert files_in(cache) == []


@pytest.fixture
def full_disk(tmp_path, monkeypatch):
    """Where a file of the cache is written, the disk is full; an archive still has its place."""
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    real = files._temporary
    full = nullcontext(tmp_path / "full")
    monkeypatch.setattr(
        files, "_temporary", lambda path: real(path) if path.name == "full" else full
    )


@pytest.mark.parametrize("content", [GOOD, GOOD * 20], ids=["one write", "several writes"])
@pytest.mark.parametrize("packed", [False, True], ids=["file", "zip"])
def test_a_full_disk(server, cache, tmp_path, full_disk, content, packed):
    check_full_disk(server, cache, tmp_path, content, packed)


def test_a_full_disk_is_seen_without_its_protection(
    server, cache, tmp_path, full_disk, monkeypatch
):
    monkeypatch.setattr(downloads._Sink, "write", lambda self, data: self.file.write(data))
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check_full_disk(server, cache, tmp_path, GOOD * 20, False)


# Threads, and the reader's own hand.


def test_an_interrupted_download_leaves_nothing(server, cache, monkeypatch):
    def interrupted(url, target, at_most):
        target.write_bytes(GOOD[:99])
        raise KeyboardInterrupt

    monkeypatch.setattr(downloads, "answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        locate(toy("https://nowhere.invalid/"))
    assert files_in(cache) == []


def check_readers(server, cache):
    file, seen = toy(server.serve("/good")), []
    readers = [threading.Thread(target=lambda: seen.append(locate(file)[0])) for _ in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert [path.read_bytes() for path in seen] == [GOOD] * 8
    assert files_in(cache) == ["toy/file.bin"]
    assert server.paths == ["/good"]


def test_eight_threads_at_once_fetch_a_file_once(server, cache, monkeypatch):
    check_readers(server, cache)
    shutil.rmtree(cache)
    monkeypatch.setattr(files, "_alone", lambda file, path: nullcontext())
    with pytest.raises(AssertionError):
        check_readers(server, cache)


def test_the_wait_for_another_process_is_bounded(server, cache, monkeypatch):
    monkeypatch.setattr(downloads, "seconds", lambda at_most: 0.2)
    lock = cache / ".locks/toy-file.bin.lock"
    lock.parent.mkdir(parents=True)
    start = time.monotonic()
    with filelock.FileLock(lock):
        with pytest.raises(DownloadError, match="another process has been fetching it for more"):
            locate(toy(server.serve("/good")))
    assert bad.seconds_since(start) < WITHIN
    assert server.asked == []


@pytest.mark.parametrize("error", [OSError, PermissionError, NotImplementedError])
def test_where_no_lock_can_be_had_files_are_fetched_all_the_same(server, cache, monkeypatch, error):
    def fail(*_, **__):
        raise error("no locks here")

    monkeypatch.setattr(filelock.FileLock, "acquire", fail)
    assert locate(toy(server.serve("/good"))) == (cache / "toy/file.bin", "download")
