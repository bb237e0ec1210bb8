"""The plain notebooks of the built book: the originals' cells, and what the pages print."""

from __future__ import annotations

import copy
import functools
import html
import re
from pathlib import Path

import nbformat
import pytest

from tests import page_rules
from tests.browser import HTML, no_chinese
from tools import address, translation
from tools.format_notebooks import notebooks
from tools.labs import blank

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
    return (HTML / f"{name}.html").read_text("utf-8").split('<article class="bd-article')[1]


def code(source):
    """Return a cell's source without the title that Colab shows in its place."""
    return re.sub(r"\A# @title .+\n", "", source)


@pytest.mark.parametrize("edition", ["", "zh"])
def test_code_is_that_of_the_original(name, edition):
    """Cells, outputs, ids and tags: so what nbval says of the originals holds for these too."""
    if edition and not (PLAIN / edition).exists():
        no_chinese()
    original = copy.deepcopy(read(HTML.parent.parent, name))
    if edition:
        translation.put_figures(name, original)
    books = blank(original) if name.startswith("labs/") else original, read(PLAIN / edition, name)
    cells = ([c for c in book.cells if c.cell_type == "code"] for book in books)
    for original, plain in zip(*cells, strict=True):
        assert code(plain.source) == code(original.source)
        assert (plain.id, plain.outputs) == (original.id, original.outputs)
        assert plain.metadata.get("tags") == original.metadata.get("tags")


def test_a_chinese_notebook_shows_what_is_translated(name):
    """Each paragraph of ten words or more that has a translation."""
    if not (PLAIN / "zh").exists():
        no_chinese()
    known = translation.messages(name)
    cells = read(PLAIN / "zh", name).cells
    text = " ".join(" ".join(c.source.split()) for c in cells if c.cell_type == "markdown")
    plain = [m for m in known if not re.search(r"[`{}\[$*]", m) and len(m.split()) >= 10]
    assert not [message for message in plain if message in text]
    assert sum(known[message] in text for message in plain) >= len(plain) / 2  # not alt texts


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
    figures = re.findall(r"^\*\*(Fig\. [\d.]+)\*\* ", text, re.MULTILINE)
    assert figures == printed(page, r'<span class="caption-number">(Fig.*?)</span>')
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


def test_each_term_of_the_glossary_leads_to_a_page():
    text = (HTML / "appendix" / "glossary.html").read_text("utf-8")
    entries = re.findall(r"<dt id=[^>]*>(.*?)<.*?<dd>(.*?)</dd>", text, re.DOTALL)
    alone = [name for name, meaning in entries if '<p class="glossary-see">' not in meaning]
    assert len(entries) > 300 and not alone
    letters = re.search(r'<p class="glossary-letters">(.*?)</p>', text, re.DOTALL)[1]
    assert printed(letters, r"<a[^>]*>(.)</a>") == sorted({name[0].upper() for name, _ in entries})


def test_links_lead_to_places_of_the_book(name):
    start = re.escape(address.pages(address.repository()))
    links = re.findall(rf"\]\({start}([^)#]+)#?([^)]*)\)", prose(name))
    assert links, "at least one to the page itself"
    gone = [link for link in links if link[1] and link[1] not in page_rules.page(link[0]).ids]
    assert not gone, "the book has no such page or heading"
