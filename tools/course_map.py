"""The map of the course in index.md: a figure of links, and a table of order and times.

    python -m tools.course_map [--check]

The times are those of the run cards. With --check nothing is written, and the exit status is 1 if
index.md is not up to date.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from html import escape

from tools.address import ROOT
from tools.format_notebooks import read

PAGE = ROOT / "index.md"
TIME = re.compile(
    r"\*\*Time\*\* on two cores: "
    r"(?:(?P<all>\S+ s) in every profile|"
    r"`smoke` (?P<smoke>\S+ s), `laptop` (?P<laptop>[^,;.]+(?:\.\d+ min)?))"
)
BEGIN, END = "<!-- map: python -m tools.course_map -->", "<!-- end of map -->"
BEGIN_TABLE, END_TABLE = "<!-- times: python -m tools.course_map -->", "<!-- end of times -->"
COLORS = {
    "Foundations": "#E69F00",
    "Word vectors": "#0072B2",
    "Autoencoders": "#009E73",
    "Language models": "#D55E00",
    "Questions": "#CC79A7",
}
BOX, GAP = (138, 56), (16, 40)  # width and height of a box, and what is left between two


@dataclass(frozen=True)
class Chapter:
    """A chapter: a label of one or two lines, part, place, and the chapters that it follows."""

    label: tuple[str, ...]
    part: str
    column: float
    row: int
    needs: tuple[str, ...] = ()


MAP = {
    "training": Chapter(("training",), "Foundations", 1.5, 0),
    "bpe": Chapter(("byte pair", "encoding"), "Word vectors", 3, 0),
    "word2vec": Chapter(("word2vec",), "Word vectors", 0, 1, ("training",)),
    "autoencoders": Chapter(("autoencoders",), "Autoencoders", 1, 1, ("training",)),
    "text_encoders": Chapter(("text", "encoders"), "Foundations", 2, 1, ("training",)),
    "glove": Chapter(("GloVe",), "Word vectors", 0, 2, ("word2vec",)),
    "vae": Chapter(("variational", "autoencoder"), "Autoencoders", 1, 2, ("autoencoders",)),
    "transformer": Chapter(("the", "Transformer"), "Foundations", 2, 2, ("text_encoders",)),
    "fasttext": Chapter(("fastText",), "Word vectors", 0, 3, ("glove",)),
    "bert": Chapter(("BERT",), "Language models", 1, 3, ("transformer",)),
    "seq2seq": Chapter(("sequence to", "sequence"), "Language models", 2, 3, ("transformer",)),
    "gpt": Chapter(("GPT",), "Language models", 3, 3, ("transformer", "bpe")),
    "similarity_and_analogy": Chapter(
        ("similarity,", "analogy"), "Word vectors", 0, 4, ("fasttext",)
    ),
    "finetuning": Chapter(("fine-tuning",), "Language models", 1, 4, ("bert",)),
    "pretrained_models": Chapter(
        ("the model", "families"), "Language models", 2, 4, ("bert", "gpt")
    ),
    "questions": Chapter(("twelve", "questions"), "Questions", 1, 5, ("finetuning",)),
    "exercises": Chapter(("exercises", "27.1–27.6"), "Questions", 2, 5, ("pretrained_models",)),
    "errata": Chapter(("errata",), "Questions", 3, 5),
}


def x(chapter: Chapter) -> float:
    """Return the left end of a chapter's box."""
    return chapter.column * (BOX[0] + GAP[0]) + GAP[0] / 2


def y(chapter: Chapter) -> float:
    """Return the upper end of a chapter's box."""
    return chapter.row * (BOX[1] + GAP[1]) + 2


def arrow(start: Chapter, end: Chapter) -> str:
    """Return a line from below one box to above another."""
    x1, y1 = x(start) + BOX[0] / 2, y(start) + BOX[1]
    x2, y2 = x(end) + BOX[0] / 2, y(end) - 6
    bend = (y2 - y1) / 2
    d = f"M{x1:g} {y1:g}C{x1:g} {y1 + bend:g} {x2:g} {y2 - bend:g} {x2:g} {y2:g}"
    return f'<path d="{d}" fill="none" stroke="currentColor" marker-end="url(#course-arrow)"/>'


def box(name: str, chapter: Chapter) -> str:
    """Return a box with the chapter's label that links to its page."""
    left, top = x(chapter), y(chapter)
    middle, first = left + BOX[0] / 2, top + BOX[1] / 2 + 6 - 10 * (len(chapter.label) - 1)
    lines = "".join(
        f'<tspan x="{middle:g}" y="{first + 20 * i:g}">{escape(line)}</tspan>'
        for i, line in enumerate(chapter.label)
    )
    color = COLORS[chapter.part]
    return (
        f'<a href="chapters/{name}.html"><title>{escape(" ".join(chapter.label))}</title>'
        f'<rect x="{left:g}" y="{top:g}" width="{BOX[0]}" height="{BOX[1]}" rx="6" '
        f'fill="{color}" fill-opacity="0.2" stroke="{color}" stroke-width="2"/>'
        f'<text text-anchor="middle" font-size="18" fill="currentColor">{lines}</text></a>'
    )


def figure() -> str:
    """Return the map as a block of HTML for index.md: figure, links, and a legend."""
    width = max(x(chapter) for chapter in MAP.values()) + BOX[0] + GAP[0] / 2
    height = max(y(chapter) for chapter in MAP.values()) + BOX[1] + 2
    arrows = [arrow(MAP[need], chapter) for chapter in MAP.values() for need in chapter.needs]
    legend = " ".join(
        f'<span style="white-space:nowrap"><span style="display:inline-block;width:0.9em;'
        f'height:0.9em;background:{color};opacity:0.6"></span> {part}</span>'
        for part, color in COLORS.items()
    )
    return "\n".join(
        [
            BEGIN,
            "```{raw} html",
            '<figure class="course-map" style="margin:0">',
            f'<svg viewBox="0 0 {width:g} {height:g}" style="width:100%;max-width:{width:g}px;'
            'height:auto" role="group" aria-label="Map of the chapters; an arrow leads from a '
            'chapter to one that is best read after it">',
            '<defs><marker id="course-arrow" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="currentColor"/></marker>'
            "</defs>",
            *arrows,
            *(box(name, chapter) for name, chapter in MAP.items()),
            "</svg>",
            f"<figcaption>{legend}</figcaption>",
            "</figure>",
            "```",
            END,
        ]
    )


def times(name: str) -> tuple[str, str]:
    """Return how long a chapter takes in smoke and in laptop, by its run card.

    Raises: ValueError if the run card does not say it.
    """
    text = "\n".join(cell.source for cell in read(ROOT / "chapters" / f"{name}.ipynb").cells)
    found = TIME.search(text)
    if found is None:
        raise ValueError(f"the run card of {name} does not give the times in smoke and in laptop")
    return (found["all"], found["all"]) if found["all"] else (found["smoke"], found["laptop"])


def table() -> str:
    """Return a table of what to read before each chapter and how long it takes."""
    lines = ["| chapter | best read after | `smoke` | `laptop` |", "|---|---|---|---|"]
    for name, chapter in MAP.items():
        needs = ", ".join(" ".join(MAP[need].label) for need in chapter.needs) or "–"
        label = " ".join(chapter.label)
        lines.append(f"| [{label}](chapters/{name}.ipynb) | {needs} | {' | '.join(times(name))} |")
    return "\n".join([BEGIN_TABLE, *lines, END_TABLE])


def updated(page: str) -> str:
    """Return the page with its map and its table made anew.

    Raises: ValueError if the page does not hold the lines between which they stand.
    """
    for begin, end, content in ((BEGIN, END, figure()), (BEGIN_TABLE, END_TABLE, table())):
        if not (begin in page and end in page):
            raise ValueError(f"{PAGE.name} must hold the lines {begin!r} and {end!r}")
        between = f"{re.escape(begin)}.*{re.escape(end)}"
        page = re.sub(between, lambda _, new=content: new, page, flags=re.S)
    return page


def main() -> None:
    """Write the map, or check it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail if it differs")
    page = PAGE.read_text(encoding="utf-8")
    if parser.parse_args().check:
        sys.exit(page != updated(page))
    PAGE.write_text(updated(page), encoding="utf-8")


if __name__ == "__main__":
    main()
