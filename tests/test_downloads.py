"""Files fetched from a server that misbehaves in every way: the right file, or one clear error.

Every fault is checked twice: with the protection in place, and with it taken out, which the check
must notice. The cache: test_data_cache.py. Killed and racing: test_downloads_in_processes.py.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import sys
import threading
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st

from support.data import downloads, files
from support.data.files import DownloadError, Mirror, locate
from tests import misbehaving_server as bad
from tests.misbehaving_server import (
    GOOD,
    HTML,
    MEGABYTE,
    altered,
    files_in,
    packed_mirror,
    sha256,
    spare,
    strays,
    toy,
    zipped,
)

# Each test has a cache of its own, in which alone it may write.
pytestmark = pytest.mark.usefixtures("cache")

WITHIN = 10.0  # seconds, for what here takes one or two: a machine may be busy
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


# The protections, each taken out.


def without(target, name, value):
    """Return what replaces a name for the length of a test."""

    def take_out(monkeypatch):
        monkeypatch.setattr(target, name, value)

    take_out.__name__ = name
    return take_out


def without_size_limit(monkeypatch):
    monkeypatch.setattr(downloads._Sink, "write", lambda self, data: self.file.write(data))


def without_words(monkeypatch):
    """Errors of the libraries come as they are."""

    def as_it_is(error):
        raise error

    monkeypatch.setattr(downloads, "_explain", as_it_is)


def without_time_limits(monkeypatch):
    monkeypatch.setattr(downloads, "ATTEMPTS", 1)
    # A fault sets its own short timeout; it is lengthened where it is used.
    monkeypatch.setattr(downloads, "seconds", lambda at_most: 60.0)
    real = requests.Session.get
    monkeypatch.setattr(
        requests.Session, "get", lambda *args, **given: real(*args, **given | {"timeout": 60})
    )


def following_redirects_blindly(monkeypatch):
    monkeypatch.setattr(
        downloads._Session, "get_redirect_target", requests.Session.get_redirect_target
    )


without_proof = without(files.DataFile, "fault", lambda file, path: "")
without_status = without(downloads, "_check", lambda response: None)
without_archive_proof = without(files, "fetch_archive", lambda mirror, target: (
    downloads.answer(mirror.url, target, mirror.at_most)
))  # fmt: skip
without_https = without(downloads, "_secure", lambda url: True)
once_only = without(downloads, "ATTEMPTS", 1)
any_pause = without(downloads, "LONGEST_PAUSE", 10**6)
any_redirects = without(downloads, "REDIRECTS", 10**6)


def unpacking_all_of_it(monkeypatch):
    def extract(archive, member, target, at_most):
        with zipfile.ZipFile(archive) as opened:
            target.write_bytes(opened.read(member))

    monkeypatch.setattr(downloads, "unpack", extract)


@dataclass(frozen=True)
class Fault:
    """How a server does wrong, the reason that must be given, and the protection against it."""

    make: object
    reason: str
    protection: object
    marks: tuple = ()
    path: str = "toy/file.bin"


WRONG = "{0} {1} instead of {2}"
FAULTS = [
    Fault(bad.html_page_with_status_200, "an HTML page of 55 bytes instead", without_proof),
    Fault(bad.html_page_longer_than_the_file, "an HTML page of 5,120 bytes", without_size_limit),
    Fault(bad.xml_access_denied_with_status_200, "an XML page of 243 bytes", without_proof),
    Fault(
        bad.status_301_to_a_host_that_is_none,
        "redirects to https://nowhere.invalid/file: .*nowhere.invalid",
        without_words,
    ),
    Fault(
        bad.status_301_to_a_closed_port,
        r"redirects to http://127.0.0.1:\d+/: .*refused",
        without_words,
    ),
    Fault(bad.status_301_without_a_place, "HTTP 301 Moved Permanently", without_status),
    Fault(bad.status_403, "HTTP 403 Forbidden", without_status),
    Fault(bad.status_404, "HTTP 404 Not Found", without_status),
    Fault(bad.status_429_for_an_hour, "HTTP 429 Too Many Requests, asks to wait 3600 s", any_pause),
    Fault(
        bad.status_429_until_a_date,
        "HTTP 429 Too Many Requests, asks to wait Fri, 31 Dec 2100 23:59:59 GMT",
        without_status,
    ),
    Fault(bad.status_429_without_end, "HTTP 429 Too Many Requests, 3 times", once_only),
    Fault(
        bad.status_429_for_longer_than_there_is_time,
        "HTTP 429 Too Many Requests, and no time to ask again",
        without(downloads, "LONGEST_PAUSE", 1),
    ),
    Fault(bad.status_500_without_end, "HTTP 500 Internal Server Error, 3 times", once_only),
    Fault(bad.status_206, "HTTP 206 Partial Content", without_status),
    Fault(bad.empty, "size 0 instead of 5,120", without_proof),
    Fault(bad.cut_off_at_90_percent, "broke off before the end, 3 times", once_only),
    Fault(bad.cut_off_at_90_percent_silently, "size 4,608 instead of 5,120", without_proof),
    Fault(
        bad.one_wrong_byte,
        WRONG.format("sha256", sha256(altered(GOOD))[7:], sha256(GOOD)[7:]),
        without_proof,
    ),
    Fault(bad.one_byte_too_long, "more than the 5,120 bytes expected", without_size_limit),
    Fault(bad.body_of_600_megabytes, "more than the 5,120 bytes expected", without_size_limit),
    Fault(
        bad.redirect_with_a_body_of_150_megabytes,
        "HTTP 404 Not Found",
        following_redirects_blindly,
    ),
    Fault(bad.connection_refused, "refused", without_words),
    Fault(bad.no_such_host, "nowhere.invalid$", without_words),
    Fault(bad.connection_reset_before_the_answer, "broke off before the end", without_words),
    Fault(bad.connection_reset_in_mid_body, "broke off before the end", without_words),
    Fault(bad.hangs_up_without_an_answer, "broke off before the end", without_words),
    Fault(bad.never_answers, "no answer for 0.5 s", without_time_limits),
    Fault(bad.never_accepts, "no answer for 0.5 s", without_time_limits, (linux_only,)),
    Fault(bad.stops_half_way, "no answer for 0.5 s", without_time_limits),
    Fault(bad.drips_its_body, "not done after 1 s", without_time_limits),
    Fault(bad.drips_its_headers, "not done after 1 s", without_time_limits),
    Fault(bad.talks_nonsense, "BadStatusLine: hello", without_words),
    Fault(
        bad.encoding_that_was_not_asked_for,
        "is sent in the encoding br, which was not asked for",
        without_status,
    ),
    Fault(bad.encoding_upon_encoding, "in the encoding gzip, gzip, which", without_status),
    Fault(bad.encoding_that_is_none, "/none: .*failed to decode it", without_words),
    Fault(bad.gzip_bomb_as_encoding, "more than the 5,120 bytes expected", without_size_limit),
    Fault(bad.plain_http, "plain http is refused", without_https),
    Fault(bad.redirect_to_plain_http, "redirects to http://localhost:", without_https),
    Fault(bad.redirect_for_ever, "redirects more than 10 times", any_redirects),
    Fault(bad.zip_with_other_contents, "sha256 [0-9a-f]{64} instead of", without_proof),
    Fault(bad.zip_that_is_a_bomb, "size 5,121 instead of 5,120", unpacking_all_of_it),
    Fault(bad.zip_packed_by_another_method, "packed by method 12", unpacking_all_of_it),
    Fault(bad.zip_with_one_wrong_byte, "sha1 [0-9a-f]{40} instead of", without_archive_proof),
    Fault(bad.zip_that_is_a_page, "an HTML page of 55 bytes instead", without_archive_proof),
    Fault(bad.zip_that_is_none, "the archive does not give file.bin", unpacking_all_of_it),
    Fault(bad.zip_without_the_file, "the archive does not give file.bin", unpacking_all_of_it),
    Fault(bad.zip_longer_than_known, "more than the 100 bytes expected", without_size_limit),
    Fault(bad.zip_with_a_link_for_the_file, "size 13 instead of 5,120", without_proof),
    Fault(bad.zip_whose_members_overlap, "the archive does not give file.bin", unpacking_all_of_it),
    Fault(bad.zip_with_a_password, "does not give file.bin .*encrypted", unpacking_all_of_it),
]
every_fault = pytest.mark.parametrize(
    "fault", [pytest.param(fault, id=fault.make.__name__, marks=fault.marks) for fault in FAULTS]
)


def check(server, cache, fault):
    """Assert that a bad mirror alone gives one clear error, and before a good one the file."""
    start = time.monotonic()
    mirror = fault.make(server)
    address = getattr(mirror, "url", mirror)
    try:
        locate(toy(mirror, path=fault.path))
    except DownloadError as error:
        lines = [line for line in str(error).splitlines() if line.startswith("  ")]
        assert len(lines) == 1 and lines[0].startswith(f"  {address}: ")
        assert re.search(fault.reason, lines[0]), lines[0]
        assert "cannot be stored" not in lines[0]
    except Exception as error:
        raise AssertionError(f"not an error for the reader: {error!r}") from error
    else:
        raise AssertionError("the bad file was taken")
    assert files_in(cache) == []
    server.over.clear()
    path, origin = locate(toy(mirror, spare(server, fault.path), path=fault.path))
    assert (path.read_bytes(), origin) == (GOOD, "download")
    assert files_in(cache) == [fault.path]
    assert bad.seconds_since(start) < WITHIN
    assert server.sent < 40 * MEGABYTE, "what is on its way when a connection is closed is lost"


@every_fault
def test_a_fault_gives_one_clear_error_or_the_next_mirror(server, cache, fault):
    check(server, cache, fault)


@every_fault
def test_a_fault_is_seen_without_its_protection(server, cache, fault, monkeypatch):
    fault.protection(monkeypatch)
    with pytest.raises(AssertionError):
        check(server, cache, fault)


# Faults that pass: the same mirror is asked again.

LONG = GOOD * 20  # of which the first pieces are stored before the fault comes


def status_500(request):
    request.start(500, 5)
    request.send(b"sorry")


def cut_off(request):
    request.start(200, len(LONG))
    request.send(LONG[: len(LONG) * 9 // 10])


def reset(request):
    request.start(200, len(LONG))
    request.send(LONG[:50_000])
    request.wait(0.05)
    request.reset()


def wait_a_second(request):
    request.start(429, 0, Retry_After="1")


def wait_for_service(request):
    request.start(503, 0, Retry_After="0")


def good(request):
    request.start(200, len(LONG))
    request.send(LONG)


PASSING = [status_500, cut_off, reset, wait_for_service]


def check_passing(server, cache, *faults):
    try:
        path, _ = locate(toy(server.act("/file", *faults, good), content=LONG))
    except Exception as error:
        raise AssertionError("the mirror was given up") from error
    assert path.read_bytes() == LONG
    assert server.paths == ["/file"] * (len(faults) + 1)
    assert files_in(cache) == ["toy/file.bin"]


@pytest.mark.parametrize("fault", PASSING, ids=lambda fault: fault.__name__)
def test_twice_and_then_good(server, cache, fault):
    check_passing(server, cache, fault, fault)


@pytest.mark.parametrize("fault", PASSING, ids=lambda fault: fault.__name__)
def test_twice_and_then_good_needs_another_try(server, cache, fault, monkeypatch):
    once_only(monkeypatch)
    with pytest.raises(AssertionError, match="given up"):
        check_passing(server, cache, fault, fault)


@pytest.mark.parametrize("fault", [cut_off, reset], ids=lambda fault: fault.__name__)
def test_another_try_needs_an_empty_file(server, cache, fault, monkeypatch):
    monkeypatch.setattr(downloads._Sink, "restart", lambda self: None)
    with pytest.raises(AssertionError, match="given up"):
        check_passing(server, cache, fault)


def test_an_end_that_comes_too_early_is_noticed_where_urllib3_does_not():
    came = SimpleNamespace(headers={"Content-Length": "10"}, raw=SimpleNamespace(tell=lambda: 9))
    with pytest.raises(downloads.Refused, match="broke off before the end"):
        downloads._check_end(came)


def test_a_short_wait_that_is_asked_for_is_kept(server, cache):
    start = time.monotonic()
    check_passing(server, cache, wait_a_second)
    assert 1 <= bad.seconds_since(start) < 1 + WITHIN


def test_a_short_wait_that_is_asked_for_is_not_cut_short(server, cache, monkeypatch):
    slept = []
    monkeypatch.setattr(downloads, "time", SimpleNamespace(
        monotonic=time.monotonic, sleep=slept.append
    ))  # fmt: skip
    check_passing(server, cache, wait_a_second, status_500)
    assert slept == [1, downloads.PAUSE * 2]


@pytest.mark.parametrize(
    "fault", [bad.status_500_without_end, bad.connection_reset_before_the_answer]
)
def test_a_mirror_is_asked_three_times_and_no_more(server, fault):
    with pytest.raises(DownloadError):
        locate(toy(fault(server)))
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    "fault", [bad.status_404, bad.status_429_for_an_hour, bad.one_wrong_byte, bad.never_answers]
)
def test_a_mirror_that_will_not_change_its_mind_is_asked_once(server, fault):
    with pytest.raises(DownloadError):
        locate(toy(fault(server)))
    assert len(server.asked) == 1


# Redirects, encodings, and what a mirror is told.


def test_plain_http_is_not_even_asked(server):
    for address in (bad.plain_http(server), bad.redirect_to_plain_http(server)):
        with pytest.raises(DownloadError):
            locate(toy(address))
    assert server.paths == ["/redirect"]


def test_http_is_refused_on_this_machine_too_outside_the_tests(server, monkeypatch):
    monkeypatch.setattr(downloads, "_LOOPBACK_MAY_BE_PLAIN", False)
    with pytest.raises(DownloadError, match="plain http is refused"):
        locate(toy(server.serve("/good")))
    assert server.asked == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_that_may_be_followed_is_followed(server, status):
    server.serve("/good")
    moved = server.serve("/moved", b"", status, Location="/good")
    assert locate(toy(moved))[1] == "download"
    assert server.paths == ["/moved", "/good"]


def test_a_file_packed_for_the_way_is_unpacked(server):
    packed = server.serve("/good", gzip.compress(GOOD), Content_Encoding="gzip")
    assert locate(toy(packed))[0].read_bytes() == GOOD


def test_mirrors_are_asked_in_turn_by_our_name_and_the_good_file_only_once(server, cache):
    file = toy(bad.status_404(server), server.serve("/good"), server.serve("/spare"))
    path, origin = locate(file)
    assert (path, origin) == (cache / "toy/file.bin", "download")
    assert locate(file) == (path, "cache")
    assert server.paths == ["/nothing-here", "/good"]
    assert all(headers["User-Agent"].startswith("pretraining") for _, headers in server.asked)


def test_the_error_has_a_line_for_each_mirror_and_says_the_ways_on(server, monkeypatch, tmp_path):
    mirrors = (bad.status_404(server), bad.status_429_for_an_hour(server), bad.empty(server))
    file = toy(*mirrors)
    with pytest.raises(DownloadError) as caught:
        locate(file)
    assert str(caught.value).splitlines() == [
        "toy/file.bin could not be downloaded:",
        f"  {mirrors[0]}: HTTP 404 Not Found",
        f"  {mirrors[1]}: HTTP 429 Too Many Requests, asks to wait 3600 s",
        f"  {mirrors[2]}: size 0 instead of 5,120",
        'Two ways on: ask for source="embedded", the data that the course carries; or put the '
        f"file at {Path('FOLDER/toy/file.bin')} and set PRETRAIN_DATA_DIR to that FOLDER.",
    ]
    monkeypatch.setenv("PRETRAIN_DATA_DIR", str(tmp_path))
    with pytest.raises(DownloadError) as caught:
        locate(file)
    assert f"put the file at {tmp_path / 'toy/file.bin'}." in str(caught.value)
    with pytest.raises(DownloadError) as caught:
        locate(toy("https://nowhere.invalid/", embedded=False))
    assert "no embedded stand-in" in str(caught.value)
    assert 'source="embedded"' not in str(caught.value)


def test_what_comes_after_the_end_of_patience_is_not_written(server, cache):
    going_on = threading.Event()
    downloads.TIMEOUT = 0.3
    slow = bad.slow_then(server, GOOD[:100], GOOD[100:], going_on)
    path, _ = locate(toy(slow, server.serve("/good")))
    threads = threading.active_count()
    going_on.set()
    end = time.monotonic() + WITHIN
    while threading.active_count() >= threads and time.monotonic() < end:
        time.sleep(0.01)
    assert path.read_bytes() == GOOD and files_in(cache) == ["toy/file.bin"]


# Archives.


def link(name, to):
    """A member of a zip archive that is a symbolic link."""
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, 0o120777 << 16
    return info, to.encode()


OUTSIDE = {
    "parents": [("../../escaped", b"x")],
    "parents in Windows' way": [("..\\..\\escaped", b"x")],
    "absolute": [("{tmp}/escaped", b"x")],
    "a symbolic link": [link("folder", "../.."), ("folder/escaped", b"x")],
    "an absolute symbolic link": [link("folder", "{tmp}"), ("folder/escaped", b"x")],
    "the file itself, by parents": [("../../escaped", GOOD)],
    "the file itself, absolute": [("{tmp}/escaped", GOOD)],
}


def archive_that_writes_outside(case, tmp_path):
    """Return an archive with such members, and the name in it of the file."""
    members = []
    for name, data in OUTSIDE[case]:
        if isinstance(name, zipfile.ZipInfo):
            data = data.decode().format(tmp=tmp_path).encode()
        else:
            name = name.format(tmp=tmp_path)
        members.append((name, data))
    if "itself" not in case:
        members.append(("file.bin", GOOD))
    return zipped(*members), members[-1][0]


def check_outside(server, cache, tmp_path, case):
    archive, member = archive_that_writes_outside(case, tmp_path)
    path, _ = locate(toy(packed_mirror(server, archive, member)))
    assert path.read_bytes() == GOOD
    assert files_in(cache) == ["toy/file.bin"]
    assert strays(tmp_path) == []


def unpacking_by_name(archive, member, target, at_most):
    """Unpack all members by their names, as a careless program does; give the one asked for."""
    folder = target.parent
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            place = folder / info.filename.replace("\\", "/")
            if info.external_attr >> 28 == 0xA:
                place.symlink_to(opened.read(info).decode())
            else:
                place.write_bytes(opened.read(info))
    shutil.copy(folder / member, target)


@pytest.mark.parametrize("case", OUTSIDE)
def test_a_zip_that_writes_outside_its_folder(server, cache, tmp_path, case):
    check_outside(server, cache, tmp_path, case)


@pytest.mark.skipif(os.name == "nt", reason="Windows has other names")
@pytest.mark.parametrize("case", OUTSIDE)
def test_a_zip_that_writes_outside_is_seen_without_its_protection(
    server, cache, tmp_path, monkeypatch, case
):
    monkeypatch.setattr(downloads, "unpack", unpacking_by_name)
    with pytest.raises(AssertionError):
        check_outside(server, cache, tmp_path, case)
    for stray in strays(tmp_path):
        Path(stray).unlink()


def test_a_member_of_an_archive_is_kept_and_the_archive_is_not(server, cache):
    archive = zipped(("folder/file.bin", GOOD), ("other", b"x"))
    path, _ = locate(toy(packed_mirror(server, archive, "folder/file.bin")))
    assert path.read_bytes() == GOOD
    assert files_in(cache) == ["toy/file.bin"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("order", [("wrong", "right"), ("right", "wrong")])
def test_a_zip_with_a_name_twice_gives_the_right_file_or_none(server, cache, order):
    contents = {"right": GOOD, "wrong": altered(GOOD)}
    archive = zipped(*[("file.bin", contents[which]) for which in order])
    file = toy(packed_mirror(server, archive))
    if order[-1] == "right":
        assert locate(file)[0].read_bytes() == GOOD
    else:
        with pytest.raises(DownloadError, match="sha256 [0-9a-f]{64} instead of"):
            locate(file)
        assert files_in(cache) == []


@settings(max_examples=200, derandomize=True, database=None, deadline=None)
@given(changes=st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 255)), max_size=6))
def test_a_damaged_zip_gives_the_right_file_or_none(tmp_path_factory, changes):
    folder = tmp_path_factory.getbasetemp() / "damaged"
    folder.mkdir(exist_ok=True)
    raw = bytearray(zipped(("file.bin", GOOD), ("other.bin", GOOD[:100])))
    for place, value in changes:
        raw[place % len(raw)] = value
    (folder / "archive").write_bytes(raw)
    try:
        files.unpack(toy(), Mirror("", "file.bin"), folder / "archive", folder / "file")
    except downloads.Refused:
        return
    assert (folder / "file").read_bytes() == GOOD


# What proves a file right.


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


def test_for_a_packed_file_what_is_inside_counts(server):
    """Two wrappers of the same bytes are the same file."""
    for level in (1, 9):
        address = server.serve("/file.gz", gzip.compress(GOOD, level, mtime=level))
        file = toy(address, path=f"toy/{level}.gz")
        assert file.read(locate(file)[0]) == GOOD


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        pytest.param(gzip.compress(altered(GOOD)), "sha256 .* instead of", id="other contents"),
        pytest.param(altered(gzip.compress(GOOD, 0)), "does not unpack", id="one wrong byte"),
        pytest.param(gzip.compress(GOOD)[:-10], "does not unpack", id="cut off"),
        pytest.param(GOOD, "does not unpack", id="not packed"),
        pytest.param(HTML, "an HTML page", id="HTML page"),
        pytest.param(gzip.compress(GOOD[:-1]), "size 5,119 instead of 5,120", id="too short"),
        pytest.param(gzip.compress(GOOD + b"!"), "unpacks to more than 5,120", id="too long"),
        pytest.param(gzip.compress(bytes(10**6)), "unpacks to more than 5,120", id="bomb"),
    ],
)
def test_a_bad_packed_file(server, cache, packed, reason, monkeypatch):
    check_packed(server, cache, packed, reason)
    shutil.rmtree(cache)
    without_proof(monkeypatch)
    with pytest.raises(pytest.fail.Exception):
        check_packed(server, cache, packed, reason)


def check_packed(server, cache, packed, reason):
    with pytest.raises(DownloadError, match=reason):
        locate(toy(server.serve("/file.gz", packed), path="toy/file.gz"))
    assert files_in(cache) == []
    good = server.serve("/good.gz", gzip.compress(GOOD))
    assert locate(toy(server.serve("/file.gz", packed), good, path="toy/file.gz"))
    assert files_in(cache) == ["toy/file.gz"]


def test_a_gzip_bomb_is_unpacked_no_further_than_the_file_is_long(tmp_path, monkeypatch):
    path = tmp_path / "bomb.gz"
    path.write_bytes(bad.gzip_bomb())
    file, read = toy(path="bomb.gz"), 0
    real = gzip.GzipFile.read

    def counted(self, size=-1):
        nonlocal read
        data = real(self, size)
        read += len(data)
        return data

    monkeypatch.setattr(gzip.GzipFile, "read", counted)
    assert "more than" in file.fault(path)
    assert read <= len(GOOD) + 1
    assert len(file.read(path)) == len(GOOD)
