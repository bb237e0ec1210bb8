"""The map of the chapters in index.md, and the tables there and in README.md.

    python -m tools.course_map

_toc.yml gives the order, chapters/chapters.yml says what each page is about, and a notebook's run
card says how long it runs.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import cycle, groupby, zip_longest
from pathlib import Path

import yaml

from tools import address
from tools.format_notebooks import read

ROOT = address.ROOT
TIME = re.compile(
    r"\*\*Time\*\* on two cores: "
    r"(?:(?P<all>\S+ s) in every profile|.*?`laptop` (?P<laptop>[^,;.]+(?:\.\d+ min)?))"
)
BEGIN = "<!-- chapters: from _toc.yml and chapters/chapters.yml, by `make format` -->"
END = "<!-- end of chapters -->"
COLORS = ("#E69F00", "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")  # a part's, in turn
BOX, GAP = (138, 56), (16, 40)  # width and height of a box, and what is left between two
LONGEST_LINE = 13  # characters of a title that fit in a box
MAP = "Map of the chapters; an arrow leads from a chapter to one that is best read after it"
AFTER = ", best read after {}"


@dataclass(frozen=True)
class Chapter:
    """A page of the book: its file without the ending, and what the two lists say of it."""

    file: str
    part: str
    title: str
    about: str
    needs: Sequence[str] = ()

    @property
    def path(self) -> Path:
        """The page's file, a notebook if there is one."""
        notebook = ROOT / f"{self.file}.ipynb"
        return notebook if notebook.exists() else notebook.with_suffix(".md")


def chapters() -> list[Chapter]:
    """Return all pages in the order of the book.

    Raises: ValueError if chapters/chapters.yml lacks the pages of _toc.yml or their order, or if a
    page needs one that does not come before it.
    """
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    said = yaml.safe_load((ROOT / "chapters" / "chapters.yml").read_text(encoding="utf-8"))
    parts = {
        page["file"]: part["caption"]
        for part in toc["parts"]
        for chapter in part["chapters"]
        for page in (chapter, *chapter.get("sections", ()))
    }
    for here, there in zip_longest(parts, said, fillvalue="no page"):
        if here != there:
            raise ValueError(
                f"_toc.yml has {here} where chapters/chapters.yml has {there}: list the same pages "
                "in both, in the same order"
            )
    found: dict[str, Chapter] = {}
    for file, part in parts.items():
        found[file] = Chapter(file, part, **said[file])
        for need in found[file].needs:
            if need not in found or need == file:
                raise ValueError(
                    f"chapters/chapters.yml: {file} needs {need}, which does not come before it"
                )
    return list(found.values())


def rows(shown: list[Chapter]) -> list[list[Chapter]]:
    """Return the chapters in rows, each below all that it needs and ordered so as to be near them.

    A chapter without needs stands right above the first that needs it, or in the last row.
    """
    level: dict[str, int] = {}
    for chapter in shown:
        level[chapter.file] = 1 + max((level[need] for need in chapter.needs), default=-1)
    for chapter in shown:
        if not chapter.needs:
            after = [level[other.file] for other in shown if chapter.file in other.needs]
            level[chapter.file] = min(after) - 1 if after else max(level.values())
    column: dict[str, float] = {}
    arranged = []
    for number in range(1 + max(level.values())):
        row = [chapter for chapter in shown if level[chapter.file] == number]
        row.sort(
            key=lambda c: sum(column[need] for need in c.needs) / len(c.needs) if c.needs else -99
        )
        column |= {chapter.file: i - len(row) / 2 for i, chapter in enumerate(row)}
        arranged.append(row)
    return arranged


def arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """Return a line from below one box to above another, each given by its upper left corner."""
    x1, y1 = start[0] + BOX[0] / 2, start[1] + BOX[1]
    x2, y2 = end[0] + BOX[0] / 2, end[1] - 6
    bend = (y2 - y1) / 2
    d = f"M{x1:g} {y1:g}C{x1:g} {y1 + bend:g} {x2:g} {y2 - bend:g} {x2:g} {y2:g}"
    return f'<path d="{d}" fill="none" stroke="currentColor" marker-end="url(#course-arrow)"/>'


def box(chapter: Chapter, corner: tuple[float, float], color: str, after: str) -> str:
    """Return a box with the chapter's title that links to its page, its upper left at `corner`."""
    lines = textwrap.wrap(chapter.title, LONGEST_LINE, break_on_hyphens=False)
    middle, first = corner[0] + BOX[0] / 2, corner[1] + BOX[1] / 2 + 6 - 10 * (len(lines) - 1)
    label = "".join(
        f'<tspan x="{middle:g}" y="{first + 20 * i:g}">{escape(line)}</tspan>'
        for i, line in enumerate(lines)
    )
    return (
        f'<a href="{chapter.file}.html"><title>{escape(chapter.title + after)}</title>'
        f'<rect x="{corner[0]:g}" y="{corner[1]:g}" width="{BOX[0]}" height="{BOX[1]}" rx="6" '
        f'fill="{color}" fill-opacity="0.2" stroke="{color}" stroke-width="2"/>'
        f'<text text-anchor="middle" font-size="18" fill="currentColor">{label}</text></a>'
    )


def figure(pages: list[Chapter], name: str = MAP, after: str = AFTER, and_: str = " and ") -> str:
    """Return the map of the chapters in HTML: boxes, arrows, and a legend.

    What is not in the pages' own words is said in `name`, `after` and `and_`.
    """
    shown = [page for page in pages if page.file.startswith("chapters/")]
    arranged = rows(shown)
    across = max(map(len, arranged))
    width, height = across * (BOX[0] + GAP[0]), len(arranged) * (BOX[1] + GAP[1]) - GAP[1] + 4
    corners = {
        chapter.file: (
            (across / 2 - len(row) / 2 + i) * (BOX[0] + GAP[0]) + GAP[0] / 2,
            number * (BOX[1] + GAP[1]) + 2,
        )
        for number, row in enumerate(arranged)
        for i, chapter in enumerate(row)
    }
    titles = {page.file: page.title for page in pages}
    colors = dict(zip(dict.fromkeys(page.part for page in shown), cycle(COLORS), strict=False))
    legend = " ".join(
        f'<span style="white-space:nowrap"><span style="display:inline-block;width:0.9em;'
        f'height:0.9em;background:{color};opacity:0.6"></span> {escape(part)}</span>'
        for part, color in colors.items()
    )
    notes = {
        page.file: after.format(and_.join(titles[n] for n in page.needs)) if page.needs else ""
        for page in shown
    }
    return "\n".join(
        [
            '<figure class="course-map" style="margin:0">',
            f'<svg viewBox="0 0 {width:g} {height:g}" style="width:100%;max-width:{width:g}px;'
            f'height:auto" role="group" aria-label="{escape(name)}">',
            '<defs><marker id="course-arrow" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="currentColor"/></marker>'
            "</defs>",
            *(arrow(corners[n], corners[page.file]) for page in shown for n in page.needs),
            *(box(page, corners[page.file], colors[page.part], notes[page.file]) for page in shown),
            "</svg>",
            f"<figcaption>{legend}</figcaption>",
            "</figure>",
        ]
    )


def running_time(page: Chapter) -> str:
    """Return how long a page takes in laptop by its run card, or nothing for one that does not run.

    Raises: ValueError if the run card does not say it.
    """
    if page.path.suffix != ".ipynb":
        return ""
    found = TIME.search("\n".join(cell.source for cell in read(page.path).cells))
    if found is None:
        raise ValueError(f"the run card of {page.path.name} does not give the time in laptop")
    return found["all"] or found["laptop"]


def table(pages: list[Chapter]) -> str:
    """Return a table of all pages by part, each with what it is about and how long it runs."""
    lines = ["| chapter | about | `laptop` |", "|---|---|---|"]
    for part, members in groupby(pages, lambda page: page.part):
        lines.append(f"| **{part}** | | |")
        for page in members:
            name = page.path.relative_to(ROOT).as_posix()
            lines.append(f"| [{page.title}]({name}) | {page.about} | {running_time(page)} |")
    return "\n".join(lines)


def colab_links(pages: list[Chapter]) -> str:
    """Return a table of the parts, with a link for each notebook that opens it in Colab."""
    lines = ["| part | notebooks, on Colab |", "|---|---|"]
    notebooks = [page for page in pages if page.path.suffix == ".ipynb"]
    for part, members in groupby(notebooks, lambda page: page.part):
        links = [
            f"[{page.title}]({address.colab(address.repository(), f'{page.file}.ipynb')})"
            for page in members
        ]
        lines.append(f"| {part} | {', '.join(links)} |")
    return "\n".join(lines)


def contents() -> dict[str, str]:
    """Return what is to stand between the two marks, by the name of the page that has them."""
    pages = chapters()
    return {
        "index.md": f"```{{raw}} html\n{figure(pages)}\n```\n\n{table(pages)}",
        "README.md": colab_links(pages),
    }


def updated(name: str, content: str) -> str:
    """Return the page of that name with `content` between its two marks.

    Raises: ValueError if the page does not hold the marks.
    """
    page = (ROOT / name).read_text(encoding="utf-8")
    if not (BEGIN in page and END in page):
        raise ValueError(f"{name} must hold the lines {BEGIN!r} and {END!r}")
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{content}\n{END}{rest.split(END)[1]}"


def main() -> None:
    """Write the map and the tables."""
    for name, content in contents().items():
        (ROOT / name).write_text(updated(name, content), encoding="utf-8")


if __name__ == "__main__":
    main()
