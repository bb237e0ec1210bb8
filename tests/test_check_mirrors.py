"""The tool that asks every address: what it shows for good and bad ones, and how it ends."""

from __future__ import annotations

import re

import pytest

from support.data import catalog
from tests.misbehaving_server import FAULTS, toy
from tools import check_mirrors


@pytest.fixture
def check(monkeypatch, capsys, tmp_path, cache):
    """Run the tool on these files for a catalog; return its status and the rows of its table."""

    def run(*files, only=()):
        monkeypatch.setattr(catalog, "FILES", {file.path: file for file in files})
        status = check_mirrors.main([*only, "--report", str(tmp_path / "report.md")])
        out = capsys.readouterr().out
        assert (tmp_path / "report.md").read_text("utf-8") == out
        assert not cache.exists(), "what is checked is not kept"
        return status, out.splitlines()[2:]

    return run


def test_every_address_is_asked_and_bad_ones_are_named(server, check):
    good = [server.serve("/a"), server.serve("/b")]
    status, lines = check(toy(*good))
    assert status == 0 and server.paths == ["/a", "/b"]
    assert re.fullmatch(rf"\| toy/file\.bin \| {good[0]} \| ok \| \d+\.\d \|", lines[0])
    assert lines[2:] == ["", "2 of 2 addresses gave the right file."]
    bad = FAULTS["altered"][0](server)
    status, lines = check(toy(bad, good[0]))
    assert status == 1 and lines[3] == "1 of 2 addresses gave the right file."
    assert re.fullmatch(rf"\| toy/file\.bin \| {bad} \| \*\*failed\*\*: `\w+: .+` \|.*", lines[0])


def test_what_a_server_says_stays_in_its_cell(server, check):
    def answer(request):
        request.wfile.write(b"HTTP/1.1 418 a`b|c @all [x](y)\r\nContent-Length: 0\r\n\r\n")

    status, lines = check(toy(server.act("/x", answer)))
    assert status == 1
    assert lines[0].count("|") == 5 and lines[0].count("`") == 2 and "a'b/c @all" in lines[0]


def test_only_some_files(server, check, capsys):
    files = [toy(server.serve(f"/{p}"), path=p) for p in ("set/one", "set/two", "settee/one")]
    for only, n in (("", 3), ("set/two", 1), ("set", 2), ("set/", 2)):
        server.paths.clear()
        assert check(*files, only=["--only", only])[0] == 0 and len(server.paths) == n
    with pytest.raises(SystemExit):
        check_mirrors.main(["--only", "minst"])
    assert "the catalog has no 'minst'; its folders are set, settee" in capsys.readouterr().err
