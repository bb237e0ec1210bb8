"""The plain notebooks of the built book: the originals' cells, and what the pages print."""

from __future__ import annotations

import functools
import html
import re
from pathlib import Path

import nbformat
import pytest

from tests.browser import HTML
from tools import address
from tools.format_notebooks import notebooks

PLAIN = HTML.parent / "colab"
NAMES = [f"{path.parent.name}/{path.stem}" for path in notebooks()]


@functools.cache
def read(folder: Path, name: str) -> nbformat.NotebookNode:
    """Return the notebook of that name in a folder."""
    return nbformat.read(folder / f"{name}.ipynb", as_version=4)


def prose(name: str) -> str:
    """Return the Markdown of a plain notebook, all cells in one."""
    cells = read(PLAIN, name).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def printed(page: str, pattern: str) -> list[str]:
    """Return what the first group of the pattern finds on a page, as a reader sees it."""
    found = re.findall(pattern, page, re.DOTALL)
    texts = (html.unescape(re.sub(r"<[^>]+>", "", text)) for text in found)
    straight = str.maketrans("’“”", '\'""', "#")
    return [" ".join(text.translate(straight).split()) for text in texts]


@pytest.fixture(params=NAMES)
def name(request) -> str:
    """Return the name of a notebook such as chapters/gpt."""
    return request.param


@pytest.fixture
def page(name) -> str:
    """Return the article of the notebook's page in HTML."""
    return (
        (HTML / f"{name}.html").read_text(encoding="utf-8").split('<article class="bd-article')[1]
    )


def test_every_notebook_has_its_plain_form():
    names = {path.relative_to(PLAIN).with_suffix("").as_posix() for path in PLAIN.rglob("*.ipynb")}
    assert names == set(NAMES)


def test_code_is_that_of_the_original(name):
    """Cells, outputs, ids and tags: so what nbval says of the originals holds for these too."""
    pairs = zip(
        *(
            [cell for cell in read(folder, name).cells if cell.cell_type == "code"]
            for folder in (HTML.parent.parent, PLAIN)
        ),
        strict=True,
    )
    for original, plain in pairs:
        source = re.sub(r"\A# @title Solution to Exercise [\d.]+\n", "", plain.source)
        assert source == original.source
        assert (plain.id, plain.outputs) == (original.id, original.outputs)
        added = {"cellView", "collapsed", "jupyter"}
        kept = {key: value for key, value in plain.metadata.items() if key not in added}
        assert kept == {k: v for k, v in original.metadata.items() if k not in added}
        assert source == plain.source or added <= set(plain.metadata)


def test_no_markup_of_the_book_is_left(name):
    text = re.sub(r"^```.*?^```|`[^`\n]+`(?!`)", "", prose(name), flags=re.DOTALL | re.MULTILINE)
    assert not re.findall(r"\{[\w:]+\}`|^ *(?:```|:::).*\{.*|^\([\w-]+\)=.*", text, re.MULTILINE)
    assert not re.findall(r"\]\((?!https?://)[^)]*\)", re.sub(r"\$[^$]+\$", "", text))


def test_numbers_are_those_of_the_page(name, page):
    text = prose(name)
    tags = [f"({number})" for number in re.findall(r"\\tag\{([\d.]+)\}", text)]
    assert tags == printed(page, r'<span class="eqno">(.*?)</span>')
    references = re.findall(r"(?<![\w.])\(\d+\.\d+\)", re.sub(r"(?s)\$\$.*?\$\$", "", text))
    shown = printed(page, r'<a class="reference internal" href="[^"]*\#equation-[^"]*">(.*?)</a>')
    assert set(shown) <= set(references)
    exercises = re.findall(r"^\*\*(Exercise(?: [\d.]+)?(?: \(.*\))?)\*\*$", text, re.MULTILINE)
    titles = printed(
        page, r'<div class="exercise admonition".*?<p class="admonition-title">(.*?)</p>'
    )
    assert exercises == titles


def test_citations_are_those_of_the_page(name, page):
    """The names and years in their order; the page has square brackets, the notebook round ones."""
    names = printed(page, r'<span class="bibtex-citation"[^>]*>(.*?)</span>')
    text = " ".join(re.sub(r"\]\(https?://[^)]*\)|\*|\[", "", prose(name)).split())
    place = 0
    for citation in names:
        citation = citation.replace("[", "(").replace("]", ")")
        place = text.find(citation, place) + 1
        assert place, f"{citation} is not in the notebook, or not in its place"


def test_buttons_open_the_plain_notebook(name):
    plain = (PLAIN / f"{name}.ipynb").read_bytes()
    assert (HTML / "_sources" / f"{name}.ipynb").read_bytes() == plain
    whole = (HTML / f"{name}.html").read_text(encoding="utf-8")
    assert f'href="../_sources/{name}.ipynb"' in whole
    assert f'href="{address.colab(address.repository(), name)}.ipynb"' in whole
    assert "/blob/notebooks/" in address.colab(address.repository(), name)
