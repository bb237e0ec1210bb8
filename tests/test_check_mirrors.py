"""The tool that asks every mirror: what it shows for good and bad ones, and how it ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.data import catalog
from support.data import files as datafiles
from tests import misbehaving_server as bad
from tests.misbehaving_server import GOOD, packed_mirror, toy, zipped
from tools import check_mirrors

ROOT = Path(__file__).resolve().parent.parent
HEAD = "| File | Mirror | Result | Bytes | Seconds |\n|---|---|---|--:|--:|\n"


@pytest.fixture(autouse=True)
def cache(cache):
    yield cache
    assert not cache.exists(), "what is checked is not kept"


@pytest.fixture
def check(monkeypatch, capsys, tmp_path):
    """Run the tool on these files for a catalog; return its status, its table and its report."""

    def run(*files, only=()):
        monkeypatch.setattr(catalog, "FILES", {file.path: file for file in files})
        status = check_mirrors.main([*only, "--report", str(tmp_path / "report.md")])
        out = capsys.readouterr().out
        report = (tmp_path / "report.md").read_text("utf-8")
        assert report == out and out.startswith(HEAD)
        return status, out[len(HEAD) :].splitlines()

    return run


def row(path, url, result, size):
    return f"| {path} | {url} | {result} | {size} | "


def test_every_mirror_is_asked_and_not_only_the_first_that_works(server, check):
    homes = [server.serve("/a"), server.serve("/b")]
    status, lines = check(toy(*homes))
    assert status == 0 and server.paths == ["/a", "/b"]
    for home, line in zip(homes, lines, strict=False):
        assert line.startswith(row("toy/file.bin", home, "ok", "5,120"))
        assert re.search(r"\| \d+\.\d \|$", line)
    assert lines[2:] == ["", "2 of 2 mirrors gave the right file."]


@pytest.mark.parametrize(
    ("fault", "reason", "size"),
    [
        (bad.status_404, "HTTP 404 Not Found", "0"),
        (bad.xml_access_denied_with_status_200, "an XML page of 243 bytes instead of", "243"),
        (bad.cut_off_at_90_percent_silently, "size 4,608 instead of 5,120", "4,608"),
        (bad.one_wrong_byte, "sha256 [0-9a-f]{64} instead of [0-9a-f]{64}", "5,120"),
        (bad.body_of_600_megabytes, "more than the 5,120 bytes expected", "5,120"),
        (bad.connection_reset_in_mid_body, "the connection broke off before the end", r"\d+"),
        (bad.never_answers, "no answer for 0.5 s", "0"),
        (bad.no_such_host, "nowhere.invalid", "0"),
        (bad.plain_http, "plain http is refused", "0"),
        (bad.zip_with_other_contents, "sha256 [0-9a-f]{64} instead of", r"\d+"),
        (bad.zip_with_one_wrong_byte, "sha1 [0-9a-f]{40} instead of", "0"),
        (bad.zip_that_is_none, "the archive does not give file.bin", "10"),
    ],
)
def test_a_bad_mirror_is_named_beside_good_ones(server, check, fault, reason, size):
    mirror = fault(server)
    good = server.serve("/good")
    status, lines = check(toy(server.serve("/first"), mirror, good))
    assert status == 1
    address = re.escape(getattr(mirror, "url", mirror))
    line = rf"\| toy/file\.bin \| {address} \| \*\*failed\*\*: `.*{reason}.*` \| {size} \| .* \|"
    assert re.fullmatch(line, lines[1]), lines[1]
    assert lines[0].startswith(row("toy/file.bin", f"{server.home}/first", "ok", "5,120"))
    assert lines[2].startswith(row("toy/file.bin", good, "ok", "5,120"))
    assert lines[3:] == ["", "2 of 3 mirrors gave the right file."]


def test_it_proves_with_the_code_of_the_product(server, check, monkeypatch):
    """With the product's proof taken out, a wrong file passes."""
    monkeypatch.setattr(datafiles.DataFile, "fault", lambda file, path: "")
    assert check(toy(bad.one_wrong_byte(server)))[0] == 0


@pytest.mark.parametrize("good", [True, False], ids=["good", "bad"])
def test_an_archive_of_several_files_is_fetched_once(server, check, good):
    archive = zipped(("one", GOOD), ("two", GOOD[:99]))
    sent = archive if good else bad.altered(archive)
    known = packed_mirror(server, archive, "one")
    mirrors = [
        datafiles.Mirror(server.serve("/x.zip", sent), name, known.digest, known.at_most)
        for name in ("one", "two")
    ]
    status, lines = check(
        toy(mirrors[0], path="set/one"), toy(mirrors[1], path="set/two", content=GOOD[:99])
    )
    assert status == (0 if good else 1)
    assert server.paths == ["/x.zip"]
    for line, path in zip(lines, ("set/one", "set/two"), strict=False):
        result = f"| ok | {len(archive):,} |" if good else "| **failed**: `sha1 "
        assert line.startswith(f"| {path} | {server.home}/x.zip {result}")


def test_what_a_server_says_stays_in_its_cell(server, check):
    def answer(request):
        request.send(b"HTTP/1.1 418 a`b|c @all [x](y)\r\nContent-Length: 0\r\n\r\n")

    status, lines = check(toy(server.act("/x", answer)))
    assert status == 1
    assert lines[0].count("|") == 6 and "`HTTP 418 a'b/c @all [x](y)`" in lines[0]


@pytest.mark.parametrize(
    ("only", "paths"),
    [
        ("", ["set/one", "set/two", "settee/one"]),
        ("set/two", ["set/two"]),
        ("set", ["set/one", "set/two"]),
        ("set/", ["set/one", "set/two"]),
    ],
)
def test_only_some_files(server, check, only, paths):
    files = [toy(server.serve(f"/{p}"), path=p) for p in ("set/one", "set/two", "settee/one")]
    status, _ = check(*files, only=["--only", only] if only else [])
    assert status == 0 and server.paths == [f"/{path}" for path in paths]


def test_only_what_the_catalog_has():
    done = subprocess.run(
        [sys.executable, "-m", "tools.check_mirrors", "--only", "minst"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        encoding="utf-8",
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "the catalog has no 'minst'; its folders are ag_news_csv, all-MiniLM" in done.stderr


def test_without_a_word_all_of_the_catalog():
    assert check_mirrors.chosen("") == list(catalog.FILES.values())
    assert len(check_mirrors.chosen("mnist")) == 4
