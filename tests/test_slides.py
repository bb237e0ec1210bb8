"""A deck of slides fits on its slides, needs no other host, and asks the room a question."""

from __future__ import annotations

import re

import pytest
from browser import HTML, unavailable

from tools import course_map

slides = pytest.importorskip("tools.slides")
bs4 = pytest.importorskip("bs4")
CHAPTERS = [
    page.file
    for page in course_map.chapters()
    if page.notebook
    and any({*cell.metadata.get("tags", [])} & {"slide"} for cell in page.notebook.cells)
]
SAMPLE = ("chapters/word2vec", "chapters/bpe", "chapters/gpt")
OVERFLOW = """() => [...document.querySelectorAll(".slides > section")].flatMap((slide, n) => {
  Reveal.slide(n);
  const wide = (x) => x.clientWidth && x.scrollWidth > x.clientWidth + 1;
  const tall = (x) => x.matches("section, .shown") && x.scrollHeight > x.clientHeight + 1;
  const small = (x) => x.matches("img") && (x.clientHeight < 180 || !x.naturalWidth);
  return [slide, ...slide.querySelectorAll(".shown, pre, table, mjx-container, img")]
    .filter((x) => wide(x) || tall(x) || small(x))
    .map((x) => `slide ${n + 1}: ${x.tagName} ${x.className}`);
})"""


def paragraph(html):
    return bs4.BeautifulSoup(f"<p>{html}</p>", "html.parser").p


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("One is. Two <em>are. Not</em> so. Three come:", "One is.", "Three come"),
        ("At 0.5 it <code>a. b</code> stays:", "At 0.5 it a. b stays:", "At 0.5 it a. b stays"),
        ("第一句。第二句（<b>见</b>）：", "第一句。", "第二句（见）"),
    ],
)
def test_the_first_and_the_last_sentence_of_a_paragraph(text, first, last):
    assert slides.first_sentence(paragraph(text)).get_text() == first
    assert slides.last_sentence(paragraph(text)).get_text() == last


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if page in SAMPLE else pytest.mark.exhaustive, id=page)
        for page in CHAPTERS
    ],
)
def test_a_deck_fits_and_asks(browser, page):
    if not (HTML / "index.html").exists():
        unavailable("the book is not built: run `make book`")
    slides.main([page])
    for folder in slides.SAID:
        path = HTML / folder / "slides" / f"{page.rpartition('/')[2]}.html"
        if not path.exists():
            continue
        text = path.read_text(encoding="utf-8")
        assert 15 <= text.count('<aside class="notes') <= 25
        assert not re.search(r'(?:src|href)="(?:https?:)?//', text)
        tab = browser.new_page(viewport={"width": 1280, "height": 720})
        requests = []
        tab.on("request", lambda request, to=requests: to.append(request.url))
        tab.goto(path.as_uri())
        tab.evaluate("MathJax.startup.promise.then(() => document.fonts.ready).then(() => 0)")
        assert tab.evaluate(OVERFLOW) == []
        assert all(url.startswith("file:") for url in requests)
        question, answer = tab.query_selector_all("section.asked .shown")
        assert question.text_content().strip() and answer.text_content().strip()
        tab.close()
