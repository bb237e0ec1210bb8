"""Slides of the built book: a reveal.js deck a chapter, for both editions, in _build/html/slides/.

    python -m tools.slides [PAGE…]

A cell tagged `slide` begins a slide, one tagged `fragment` is added to it. A slide has the heading
of its section, the first sentence of each paragraph, and what else its cells hold: formulas, lists,
code, figures; above code, the sentence that leads to it. The paragraphs in full are the speaker's
notes (press S). Each deck ends with an exercise and, behind it, its answer: the first of the page,
or `ask` of chapters/chapters.yml.
"""

from __future__ import annotations

import argparse
import copy
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import sphinx_revealjs
from bs4 import BeautifulSoup, NavigableString, Tag
from pygments.formatters import HtmlFormatter

from tools import address, translation
from tools.course_map import Page, chapters, short

HTML = address.ROOT / "_build" / "html"
REVEAL = Path(sphinx_revealjs.__file__).parent / "_static" / "revealjs"
SAID = {  # folder: language, the question, its answer, the summary's heading, the book
    "": ("en", "A question to the room", "Answer", "Summary", "Pretraining by Hand"),
    "zh/": ("zh-CN", "向全班提问", "回答", "小结", "动手学预训练"),
}
MARK = re.compile(r"(slide|fragment)-(\d+)")
END = re.compile(r"(?<=[.!?])(?=\s|$)|(?<=[。！？])")
DECK = """<!doctype html>
<html lang="{lang}">
<head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="{static}/reveal/reveal.css">
<style>{style}</style>
<script>window.MathJax = {{options: {{enableMenu: false}}}}</script>
<script defer src="{static}/mathjax/tex-chtml.js"></script>
</head>
<body><div class="reveal"><div class="slides">
{slides}
</div></div>
<script src="{static}/reveal/reveal.js"></script>
<script src="{static}/reveal/notes.js"></script>
<script>
Reveal.initialize({{width: 1280, height: 720, margin: 0, center: false, hash: true,
  slideNumber: true, controls: false, transition: "none", plugins: [RevealNotes]}});
</script></body></html>
"""
STYLE = (Path(__file__).parent / "slides.css").read_text(encoding="utf-8")
SIZES = ((13, 20), (17, 17), (21, 15))  # of code: up to so many lines, in pixels


@dataclass
class Slide:
    """A slide: its heading, what it shows, and what the speaker says."""

    heading: str
    shown: list[Tag] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def html(self, kind: str = "") -> str:
        """Return the slide as a section of a deck."""
        code = [
            tag.get_text().strip("\n") for tag in self.shown if "highlight" in str(tag.get("class"))
        ]
        lines = sum(text.count("\n") + 1.5 for text in code)
        size = next((size for most, size in SIZES if lines <= most), SIZES[-1][1])
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return (
            f'<section class="{kind}" style="--code: {size}px"><h2>{self.heading}</h2>'
            f'<div class="shown">{"".join(map(str, self.shown))}</div>'
            f'<aside class="notes tex2jax_ignore">{notes}</aside></section>'
        )


def cleaned(article: Tag) -> Tag:
    """Take from a page what a slide has no use for; a link keeps its text."""
    for tag in article.select(".headerlink, .term-tooltip, button, script, .hide, style"):
        picture = tag.name == "details" and tag.select_one(".cell_output")
        if not picture:
            tag.decompose()
    for link in article.select("a"):
        link.unwrap()
    for tag in article.select("[id]"):
        if tag.name != "div" or "admonition" not in tag.get("class", ()):
            del tag["id"]
    return article


def first_sentence(paragraph: Tag) -> Tag:
    """Return a paragraph up to the end of its first sentence."""
    cut = copy.copy(paragraph)
    for child in list(cut.children):
        if isinstance(child, NavigableString) and (end := END.search(child)):
            for later in list(child.next_siblings):
                later.extract()
            child.replace_with(child[: end.start()])
            break
    return cut


def last_sentence(paragraph: Tag) -> Tag:
    """Return the last sentence of a paragraph, which leads to what comes next; its colon goes."""
    cut = copy.copy(paragraph)
    children = list(cut.children)
    if isinstance(children[-1], NavigableString):
        children[-1].replace_with(re.sub(r"[:：]\s*$", "", children[-1]))
    for child in reversed(list(cut.children)):
        ends = (
            [m.start() for m in END.finditer(child)] if isinstance(child, NavigableString) else []
        )
        if begins := [end for end in ends if child[end:].strip() or child.next_sibling]:
            for earlier in list(child.previous_siblings):
                earlier.extract()
            child.replace_with(child[begins[-1] :].lstrip())
            break
    return cut


def spoken(paragraph: Tag) -> str:
    """Return a paragraph in full, as the speaker's notes have it."""
    return " ".join(paragraph.get_text().split())


def heading_of(tag: Tag) -> str:
    """Return the heading of the section that holds a node, in HTML."""
    heading = tag.find_previous(re.compile("h[1-4]$")).decode_contents()
    said = re.sub(r"^(Going deeper|深入一步)[:：]\s*", "", heading)
    return said[:1].upper() + said[1:]


def parts(node: Tag, crowded: bool) -> Iterator[Tag]:
    """Yield what a slide shows of a marked node; of a crowded cell, what leads to its formulas."""
    after = node.find_next_sibling()
    formula = after is not None and "math" in after.get("class", ())
    if node.name == "p":
        if not crowded or formula:
            yield last_sentence(node) if formula else first_sentence(node)
    elif "cell" in node.get("class", ()):
        yield from node.select(":scope .cell_input .highlight, :scope .cell_output > *")
    elif not crowded or "math" in node.get("class", ()) or node.name == "table":
        yield node


def slides(article: Tag) -> list[Slide]:
    """Return the slides of the marked nodes of a page, in its order."""
    cells: dict[str, list[Tag]] = {}
    for node in article.select('[class*="slide-"], [class*="fragment-"]'):
        mark = next((name for name in node["class"] if MARK.fullmatch(name)), None)
        if mark and node.name not in ("section", "h2", "h3"):
            cells.setdefault(mark, []).append(node)
    made: list[Slide] = []
    for mark, nodes in cells.items():
        texts = sum(node.name == "p" for node in nodes)
        crowded = texts > 3 and any("math" in node.get("class", ()) for node in nodes)
        shown = [(node, part) for node in nodes for part in parts(node, crowded)]
        if mark.startswith("slide") or not made:
            made.append(Slide(heading_of((shown or [(nodes[0], None)])[0][0])))
            before = nodes[0].find_previous_sibling()
            if "cell" in nodes[0]["class"] and before is not None and before.name == "p":
                made[-1].shown.append(last_sentence(before))
                made[-1].notes.append(spoken(before))
        made[-1].shown += [part for _, part in shown]
        after = nodes[-1].find_next_sibling() if "cell" in nodes[-1]["class"] else None
        said = [node for node in (*nodes, after) if node is not None and node.name == "p"]
        made[-1].notes += map(spoken, said)
    return made


def question(article: Tag, label: str | None) -> list[Slide]:
    """Return an exercise and its answer as two slides, or one in a book without solutions."""
    asked = article.find(id=label) if label else article.select_one("div.exercise")
    answer = asked.find_next("div", class_="solution")
    made = []
    for box in filter(None, (asked, answer)):
        content = box.select_one("section") or box
        shown = content.select(":scope > p, :scope > ul, :scope > ol, :scope > div.math")
        text = [tag for tag in shown if "admonition-title" not in tag.get("class", ())]
        made.append(Slide("", text))
    return made


def deck(page: Page, folder: str, ask: str | None) -> str | None:
    """Return the deck of a page in an edition, or None if no cell of it is on a slide."""
    lang, asks, answers, summed, book = SAID[folder]
    text = (HTML / folder / f"{page.file}.html").read_text(encoding="utf-8")
    article = BeautifulSoup(text, "html.parser").select_one("article")
    summary = article.select_one("section#summary h2")
    made = slides(cleaned(article))
    if not made:
        return None
    title, lead = article.find("h1"), article.select_one("h1 ~ p")
    first = Slide(title.decode_contents(), [first_sentence(lead)], [spoken(lead)])
    asked = question(article, ask)
    for slide, heading in zip(asked, (asks, answers), strict=False):
        slide.heading = heading
    last = Slide(summed, [summary.find_next("ul")])
    shown = [first.html("title"), *(slide.html() for slide in made)]
    shown += [*(slide.html("asked") for slide in asked), last.html("summary")]
    return DECK.format(
        lang=lang,
        static="../_static" if not folder else "../../_static",
        title=escape(f"{short(title.get_text())} · {book}"),
        style=HtmlFormatter().get_style_defs(".highlight") + STYLE,
        slides="\n".join(shown).replace('loading="lazy"', ""),
    )


def main(arguments: list[str] | None = None) -> int:
    """Write the decks, and say how many slides each has."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="such as chapters/bpe")
    wanted = parser.parse_args(arguments).pages
    if not (HTML / "index.html").exists():
        parser.error("the book is not built: run `make book` first")
    assets = HTML / "_static" / "reveal"
    assets.mkdir(exist_ok=True)
    for name in ("dist/reveal.js", "dist/reveal.css", "plugin/notes/notes.js"):
        shutil.copy(REVEAL / name, assets)
    for folder in translation.FOLDERS:
        if not (HTML / folder / "index.html").exists():
            continue
        (HTML / folder / "slides").mkdir(exist_ok=True)
        for page in chapters():
            if page.notebook and (not wanted or page.file in wanted):
                if text := deck(page, folder, page.ask):
                    name = f"{folder}slides/{Path(page.file).name}.html"
                    (HTML / name).write_text(text, encoding="utf-8")
                    print(f"{name}: {text.count('<section')} slides")
    return 0


if __name__ == "__main__":
    sys.exit(main())
