"""Files looked for and fetched: the right file, or one clear error and nothing left behind."""

from __future__ import annotations

import gzip
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.data import files
from support.data.files import DownloadError, locate
from tests.misbehaving_server import FAULTS, GOOD, PAGE, altered, files_in, toy, zipped

# Each test has a cache of its own, in which alone it may write.
pytestmark = pytest.mark.usefixtures("cache")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_gives_one_clear_error_or_the_next_address(server, cache, fault):
    make, message = FAULTS[fault]
    address = make(server)
    with pytest.raises(DownloadError) as caught:
        locate([toy(address)])
    [line] = [line for line in str(caught.value).splitlines() if line.startswith("  ")]
    assert re.match(f"  {re.escape(address)}: .*({message})", line), line
    assert files_in(cache) == []
    paths, origin = locate([toy(address, server.serve("/good"))])
    assert ([path.read_bytes() for path in paths], origin) == ([GOOD], "download")
    assert files_in(cache) == ["toy/file.bin"]
    assert "/plain" not in server.paths


def test_addresses_are_asked_in_turn_by_our_name_and_only_until_one_is_good(server, cache):
    moved = server.serve("/moved", b"", 301, Location="/good")
    file = toy(server.home + "/nothing-here", moved, server.serve("/good"))
    assert locate([file]) == ([cache / "toy/file.bin"], "download")
    assert locate([file]) == ([cache / "toy/file.bin"], "cache")
    assert server.paths == ["/nothing-here", "/moved", "/good"]
    assert all(headers["User-Agent"].startswith("pretraining") for headers in server.asked)


def test_what_is_packed_is_unpacked_and_the_archive_is_not_kept(server, cache):
    packed = server.serve("/file.gz", gzip.compress(GOOD))
    outside = [("../../escaped", b"x"), ("/escaped", b"x")]
    archive = server.serve("/a.zip", zipped(*outside, ("folder/file.bin", GOOD)))
    several = server.serve("/b.zip", zipped(("b/README", b"x"), ("b/c/2", b"two"), ("b/c/1", b"1")))
    paths, _ = locate(
        [
            toy(packed, path="toy/one"),
            toy(f"{archive}#folder/file.bin", path="toy/two"),
            toy(f"{several}#b/*/*", content=b"== b/c/1\n1\n== b/c/2\ntwo\n", path="toy/three"),
        ]
    )
    assert [path.read_bytes() for path in paths[:2]] == [GOOD, GOOD]
    assert files_in(cache) == ["toy/one", "toy/three", "toy/two"]


@pytest.mark.parametrize("body", [b"head", b"head and much else"])
def test_the_head_of_a_file_is_enough(server, body):
    """Whether or not the server minds the range that it is asked for."""
    [path], _ = locate([toy(server.serve("/f", body) + "#head", content=b"head")])
    assert path.read_bytes() == b"head"
    assert server.asked[0]["Range"] == "bytes=0-3"


def test_the_error_has_a_line_for_each_address_and_says_the_ways_on(server, monkeypatch, tmp_path):
    file = toy(server.home + "/nothing-here", server.serve("/page", PAGE))
    put = f"put the file at {Path('FOLDER/toy/file.bin')} and set PRETRAIN_DATA_DIR to that FOLDER"
    with pytest.raises(DownloadError, match=put) as caught:
        locate([file])
    lines = str(caught.value).splitlines()
    assert [line.split(": ")[0].strip() for line in lines[1:-1]] == list(file.urls)
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path))
    with pytest.raises(DownloadError, match=re.escape(f"put the file at {tmp_path}/toy/file.bin;")):
        locate([file])


# The folder of the reader.


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that PRETRAIN_DATA_DIR names."""
    (tmp_path / "data/toy").mkdir(parents=True)
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def test_the_folder_of_the_reader_comes_first_if_it_has_all_files(server, cache, folder):
    one, two = (toy(server.serve("/good"), path=f"toy/{name}") for name in ("one", "two"))
    (folder / "toy/one").write_bytes(GOOD)
    assert locate([one]) == ([folder / "toy/one"], "folder")
    assert locate([one, two]) == ([cache / "toy/one", cache / "toy/two"], "download")
    (folder / "toy/two.gz").write_bytes(gzip.compress(GOOD, mtime=5))
    paths, origin = locate([one, two])
    assert (paths, origin) == ([folder / "toy/one", folder / "toy/two.gz"], "folder")
    assert [files.read(path) for path in paths] == [GOOD, GOOD]
    assert locate([two], packed=False) == ([cache / "toy/two"], "cache")


@pytest.mark.parametrize("content", [altered(GOOD), GOOD + b"!", GOOD[:-1], b"", PAGE])
def test_a_wrong_file_is_refused_in_the_readers_folder_and_replaced_in_the_cache(
    server, cache, folder, monkeypatch, content
):
    file = toy(server.serve("/good"))
    for path, data in (("toy/file.bin.gz", gzip.compress(content)), ("toy/file.bin", content)):
        (folder / path).write_bytes(data)
        message = f"{re.escape(str(folder / path))} is not the toy/file.bin .*instead of"
        with pytest.raises(ValueError, match=message):
            locate([file])
        assert (folder / path).read_bytes() == data
    assert server.asked == [] and not cache.exists()
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(folder / "mistyped"))
    with pytest.raises(ValueError, match="PRETRAIN_DATA_DIR must name a folder.*mistyped"):
        locate([file])
    monkeypatch.delenv("PRETRAIN_DATA_DIR")
    (cache / "toy").mkdir(parents=True)
    (cache / "toy/file.bin").write_bytes(content)
    assert locate([file]) == ([cache / "toy/file.bin"], "download")
    assert (cache / "toy/file.bin").read_bytes() == GOOD and files_in(cache) == ["toy/file.bin"]


def test_a_packed_file_cut_at_any_byte_is_refused(folder):
    packed = gzip.compress(GOOD)
    for n in range(len(packed)):
        (folder / "toy/file.bin.gz").write_bytes(packed[:n])
        with pytest.raises(ValueError, match="is not the toy/file.bin that it should be"):
            locate([toy()])


# The cache, and the disk.


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit of POSIX")
def test_a_full_disk_leaves_nothing_half_written(server, cache):
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limits[1]))
    try:
        with pytest.raises(DownloadError, match="OSError.*File too large"):
            locate([toy(server.serve("/good"))])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert files_in(cache) == []


def test_all_who_fetch_one_file_at_once_get_it_whole(server, cache):
    def slow(request):
        request.start(Content_Length=str(len(GOOD)))
        request.wfile.write(GOOD[:2560])
        server.over.wait(0.2)
        request.wfile.write(GOOD[2560:])

    file = toy(server.act("/slow", slow))
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: locate([file])[0][0].read_bytes(), range(3)))
    assert found == [GOOD] * 3 and len(server.asked) > 1
    assert files_in(cache) == ["toy/file.bin"]


def test_no_file_is_half_written(tmp_path):
    (tmp_path / "file").write_bytes(b"before")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(OSError, match="full"):
        with files.whole_file(tmp_path / "link") as file:
            file.write(b"aft")
            raise OSError("the disk is full")
    assert (tmp_path / "file").read_bytes() == b"before"
    with files.whole_file(tmp_path / "link") as file:
        file.write(b"after")
        assert (tmp_path / "file").read_bytes() == b"before"
    assert (tmp_path / "file").read_bytes() == b"after" and (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.glob("*[fl]i*")) == ["file", "link"]
