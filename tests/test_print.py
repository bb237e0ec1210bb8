"""A printed page has bookmarks, its number, its code, and nothing that only a screen can use."""

from __future__ import annotations

import shutil

import pytest

from tools import address

pypdf = pytest.importorskip("pypdf")
printing = pytest.importorskip("tools.print")
PAGE = """<!doctype html><html lang="en"><head><link rel="stylesheet" href="course.css"></head>
<body><h1>A title{long}</h1><a href="other.html#there">other</a><a href="#here">here</a>
<details class="hide"><summary>Checks</summary>hidden</details>
<details class="going-deeper"><summary>Going deeper</summary>seen</details>
<div class="solution dropdown">solved</div><h2 id="here">A section</h2>
<div class="highlight"><pre>{code}</pre></div></body></html>"""


@pytest.mark.parametrize("solutions", [False, True])
def test_page_is_printed(browser, tmp_path, monkeypatch, solutions):
    monkeypatch.setattr(printing, "HTML", tmp_path)
    shutil.copy(address.ROOT / "_static" / "course.css", tmp_path)
    long, code = " that is long" * 12, "x = " + "12345678 + " * 30 + "the_end"
    (tmp_path / "small.html").write_text(PAGE.format(long=long, code=code), encoding="utf-8")
    tab, path = browser.new_page(), tmp_path / "made" / "small.pdf"
    assert printing.pdf(tab, "small", path, first=41, solutions=solutions) == 1
    tab.close()
    printed = pypdf.PdfReader(path)
    title, (section,) = printed.outline
    assert (title.title, section.title) == (f"A title{long}", "A section")
    text = printed.pages[0].extract_text()
    assert {"41", "the_end", "seen"} <= {*text.split()}
    assert "hidden" not in text and "Going deeper" not in text
    assert ("solved" in text) == solutions
    actions = [note.get("/A", {}) for note in printed.pages[0]["/Annots"]]
    links = [action["/URI"] for action in actions if "/URI" in action]
    assert links == [address.pages(address.repository()) + "other.html#there"]
