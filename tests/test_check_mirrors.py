"""The tool that asks every address: what it shows for good and bad ones, and how it ends."""

from __future__ import annotations

import re

import pytest

from support.data import catalog
from tests import misbehaving_server as bad
from tests.misbehaving_server import toy
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


def test_every_address_is_asked_and_not_only_the_first_that_works(server, check):
    homes = [server.serve("/a"), server.serve("/b")]
    status, lines = check(toy(*homes))
    assert status == 0 and server.paths == ["/a", "/b"]
    for home, line in zip(homes, lines, strict=False):
        assert re.fullmatch(rf"\| toy/file\.bin \| {home} \| ok \| \d+\.\d \|", line)
    assert lines[2:] == ["", "2 of 2 addresses gave the right file."]


@pytest.mark.parametrize("fault", [bad.status_404, bad.one_wrong_byte, bad.zip_that_is_none])
def test_a_bad_address_is_named_beside_a_good_one(server, check, fault):
    address = fault(server)
    status, lines = check(toy(address, server.serve("/good")))
    assert status == 1
    assert re.fullmatch(
        rf"\| toy/file\.bin \| {address} \| \*\*failed\*\*: `\w+: .+` \| .* \|", lines[0]
    )
    assert "| ok |" in lines[1]
    assert lines[3] == "1 of 2 addresses gave the right file."


def test_what_a_server_says_stays_in_its_cell(server, check):
    def answer(request):
        request.send(b"HTTP/1.1 418 a`b|c @all [x](y)\r\nContent-Length: 0\r\n\r\n")

    status, lines = check(toy(server.act("/x", answer)))
    assert status == 1
    assert lines[0].count("|") == 5 and lines[0].count("`") == 2 and "a'b/c @all" in lines[0]


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


def test_only_what_the_catalog_has(capsys):
    with pytest.raises(SystemExit):
        check_mirrors.main(["--only", "minst"])
    said = capsys.readouterr().err
    assert "the catalog has no 'minst'; its folders are ag_news_csv, all-MiniLM" in said
    assert len(check_mirrors.chosen("")) == len(catalog.FILES)
    assert len(check_mirrors.chosen("mnist")) == 4
