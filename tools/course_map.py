"""The map of the chapters, the paths and the tables in index.md and README.md.

    python -m tools.course_map

_toc.yml gives the order, chapters/chapters.yml says what each page is about, chapters/courses.yml
what is read when, and a notebook's run card what it needs and how long it runs. How long it takes
to read is counted.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import cycle, groupby, zip_longest
from pathlib import Path

import polib
import yaml
from nbformat import NotebookNode

from tools import address
from tools.format_notebooks import read
from tools.notebook_parts import cells, in_view, prose_lines
from tools.report import MATH_OR_LINK

ROOT = address.ROOT
MESSAGES = ROOT / "locale" / "zh_CN" / "LC_MESSAGES"
TIME = re.compile(
    r"\*\*Time\*\* on two cores: "
    r"(?:(?P<all>\S+ s) in every profile|.*?`laptop` (?P<laptop>[^,;.]+(?:\.\d+ min)?))"
)
NEEDS = re.compile(r"^- \*\*Prerequisites\*\*:.*?(?=^- )", re.M | re.S)
BEGIN = "<!-- chapters: from _toc.yml and chapters/chapters.yml, by `make format` -->"
END = "<!-- end of chapters -->"
SPEEDRUN = "labs/speedrun"
LAB = "^(Lab|编程实验)[:：] *"
COLORS = ("#E69F00", "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")  # a part's, in turn
BOX, GAP = (144, 68), (12, 36)  # width and height of a box, and what is left between two
LONGEST_LINE = 15  # characters of a title that fit in a box
MAP = "Map of the chapters: an arrow leads from a chapter to one that builds on it."
AFTER = ", after {}"
WORDS, CELL, STAR = (
    150,
    0.5,
    10,
)  # words a minute; minutes for a cell of code, for an exercise's star
PLANS = yaml.safe_load((ROOT / "chapters" / "courses.yml").read_text(encoding="utf-8"))
PATHS, COURSES = (  # weeks or days joined by commas
    {name: ", ".join(units) for name, units in PLANS[kind].items()} for kind in ("paths", "courses")
)
EVERYTHING = "all chapters in the order below, with the six worked solutions"
KINDS = ("reading", "doing")


@dataclass(frozen=True)
class Page:
    """A page of the book: its file without the ending, its part and number, what it is about."""

    file: str
    part: str
    number: str
    about: str
    outcome: str = ""  # what its reader can do, after "can"
    skip: str = ""  # what a course short of time leaves out
    ask: str | None = None  # the label of the exercise on its last slide

    @property
    def path(self) -> Path:
        """The page's file, a notebook if there is one."""
        notebook = ROOT / f"{self.file}.ipynb"
        return notebook if notebook.exists() else notebook.with_suffix(".md")

    @property
    def name(self) -> str:
        """The path of the page's file in the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def notebook(self) -> NotebookNode | None:
        """The notebook, if the page is one."""
        return read(self.path) if self.path.suffix == ".ipynb" else None

    @cached_property
    def text(self) -> str:
        """All text of the page."""
        if self.notebook is None:
            return self.path.read_text(encoding="utf-8")
        return "\n\n".join(cell.source for cell in cells(self.notebook, "markdown"))

    @cached_property
    def title(self) -> str:
        """The page's title, which the sidebar shows."""
        return re.search(r"^# (.+)", self.text, re.M)[1]

    @cached_property
    def needs(self) -> Sequence[str]:
        """The chapters to which the run card links as needed."""
        card = NEEDS.search(self.text)
        links = re.findall(r"\]\((?:\.\./chapters/)?(\w+)\.ipynb", card[0] if card else "")
        return [f"chapters/{name}" for name in links]

    @property
    def reading(self) -> int:
        """How many minutes it takes to read what is in view, formulas left out."""
        seen = in_view(self.notebook)
        lines = [line for c in seen if c.cell_type == "markdown" for line in prose_lines(c)]
        words = re.findall(r"[^\W\d_]{2,}|[aI]\b", MATH_OR_LINK.sub(" ", "\n".join(lines)))
        return round(len(words) / WORDS + CELL * sum(c.cell_type == "code" for c in seen))

    @property
    def running(self) -> str:
        """How long the notebook takes in laptop by its run card.

        Raises: ValueError if the run card does not say it.
        """
        found = TIME.search(self.text)
        if found is None:
            raise ValueError(f"the run card of {self.name} does not give the time in laptop")
        return found["all"] or found["laptop"]

    @property
    def doing(self) -> int:
        """How many minutes a lab takes, or exercises; one without a star counts as with one."""
        if hours := self.notebook.metadata.get("lab", {}).get("hours"):
            return 60 * hours
        exercises = re.findall(r"\{exercise(?:-start)?\}(.*)", self.text)
        return STAR * sum(max(1, title.count("★")) for title in exercises)


def _numbered(toc: dict) -> Iterator[tuple[str, str, str]]:
    """Yield file, part and number of each page of the table of contents."""
    number = 0
    for part in toc["parts"]:
        for chapter in part["chapters"]:
            number += bool(part.get("numbered"))
            own = str(number) if part.get("numbered") else ""
            yield chapter["file"], part["caption"], own
            for n, page in enumerate(chapter.get("sections", ()), start=1):
                yield page["file"], part["caption"], own and f"{own}.{n}"


def chapters() -> list[Page]:
    """Return all pages in the order of the book.

    Raises: ValueError if chapters/chapters.yml lacks the pages of _toc.yml or their order, or if a
    run card needs a chapter that does not come before it.
    """
    toc = list(_numbered(yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))))
    said = yaml.safe_load((ROOT / "chapters" / "chapters.yml").read_text(encoding="utf-8"))
    for here, there in zip_longest([file for file, *_ in toc], said, fillvalue="no page"):
        if here != there:
            raise ValueError(
                f"_toc.yml has {here} where chapters/chapters.yml has {there}: list the same pages "
                "in both, in the same order"
            )
    pages = [
        Page(*where, **(about if isinstance(about, dict) else {"about": about}))
        for where, about in zip(toc, said.values(), strict=True)
    ]
    before: set[str] = set()
    for page in pages:
        if late := [need for need in page.needs if need not in before]:
            raise ValueError(
                f"the run card of {page.name} needs {late[0]}, which does not come before it"
            )
        before.add(page.file)
    return pages


def arrows(shown: list[Page]) -> dict[str, list[str]]:
    """Return the chapters from which an arrow leads to each: those needed, the implied left out."""
    all_before: dict[str, set[str]] = {}
    for page in shown:
        all_before[page.file] = set(page.needs).union(*(all_before[n] for n in page.needs))
    return {
        page.file: [
            need
            for need in dict.fromkeys(page.needs)
            if not any(need in all_before[other] for other in page.needs)
        ]
        for page in shown
    }


def rows(shown: list[Page]) -> list[list[Page]]:
    """Return the chapters in rows, each below all that it needs and in the order of the book.

    A chapter without needs stands right above the first that needs it, or in the last row.
    """
    level: dict[str, int] = {}
    for chapter in shown:
        level[chapter.file] = 1 + max((level[need] for need in chapter.needs), default=-1)
    for chapter in shown:
        if not chapter.needs:
            after = [level[other.file] for other in shown if chapter.file in other.needs]
            level[chapter.file] = min(after) - 1 if after else max(level.values())
    return [
        [chapter for chapter in shown if level[chapter.file] == number]
        for number in range(1 + max(level.values()))
    ]


def arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """Return a line from below one box to above another, each given by its upper left corner."""
    x1, y1 = start[0] + BOX[0] / 2, start[1] + BOX[1]
    x2, y2 = end[0] + BOX[0] / 2, end[1] - 6
    bend = (y2 - y1) / 2
    d = f"M{x1:g} {y1:g}C{x1:g} {y1 + bend:g} {x2:g} {y2 - bend:g} {x2:g} {y2:g}"
    return f'<path d="{d}" fill="none" stroke="currentColor" marker-end="url(#course-arrow)"/>'


def short(title: str) -> str:
    """Return a title as far as its colon."""
    return re.split("[:：]", title)[0]


def box(page: Page, title: str, corner: tuple[float, float], color: str, after: str) -> str:
    """Return a box with the chapter's title that links to its page, its upper left at `corner`."""
    label = f"{page.number} {short(title)}"
    fit = LONGEST_LINE if label.isascii() else LONGEST_LINE * 3 // 5  # Chinese is wider
    lines = textwrap.wrap(label, fit, break_on_hyphens=False)
    middle, first = corner[0] + BOX[0] / 2, corner[1] + BOX[1] / 2 + 5.5 - 9.5 * (len(lines) - 1)
    label = "".join(
        f'<tspan x="{middle:g}" y="{first + 19 * i:g}">{escape(line)}</tspan>'
        for i, line in enumerate(lines)
    )
    return (
        f'<a href="{page.file}.html"><title>{escape(title + after)}</title>'
        f'<rect x="{corner[0]:g}" y="{corner[1]:g}" width="{BOX[0]}" height="{BOX[1]}" rx="6" '
        f'stroke="{color}" stroke-width="2" '
        f'style="fill:color-mix(in srgb,{color} 20%,var(--pst-color-background))"/>'
        f'<text text-anchor="middle" font-size="16" fill="currentColor">{label}</text></a>'
    )


def figure(
    pages: list[Page],
    name: str = MAP,
    after: str = AFTER,
    and_: str = " and ",
    say: Callable[[str, str], str] = lambda text, page: text,
) -> str:
    """Return the map of the chapters in HTML: boxes, arrows, and a legend.

    What is not in the pages' own words is said in `name`, `after` and `and_`; `say` translates a
    text of a page, named by its file.
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
    titles = {page.file: say(page.title, page.file) for page in shown}
    colors = dict(zip(dict.fromkeys(page.part for page in shown), cycle(COLORS), strict=False))
    legend = " ".join(
        f'<span style="white-space:nowrap"><span style="display:inline-block;width:0.9em;'
        f'height:0.9em;background:{color};opacity:0.6"></span> {escape(say(part, "index"))}</span>'
        for part, color in colors.items()
    )
    before = arrows(shown)
    notes = {
        page.file: after.format(and_.join(short(titles[n]) for n in before[page.file]))
        if page.needs
        else ""
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
            *(arrow(corners[n], corners[page.file]) for page in shown for n in before[page.file]),
            *(
                box(
                    page, titles[page.file], corners[page.file], colors[page.part], notes[page.file]
                )
                for page in shown
            ),
            "</svg>",
            f"<figcaption>{escape(name)}<br>{legend}</figcaption>",
            "</figure>",
        ]
    )


def hours(minutes: int) -> str:
    """Return minutes in whole hours."""
    return f"{max(1, round(minutes / 60))} h"


def paths(pages: list[Page]) -> str:
    """Return the paths through the book, each with its hours of reading and of doing."""
    by_name = {
        p.file if p.file[:5] == "labs/" else Path(p.file).name: p for p in pages if p.notebook
    }
    everything = " ".join(by_name)
    lines = []
    for path, names in (PATHS | {"Everything": everything}).items():
        walked = [by_name[name] for name in re.findall(r"[\w/]+", names)]
        reading, doing = (hours(sum(getattr(p, kind) for p in walked)) for kind in KINDS)
        lines.append(f"**{path}** · reading {reading}, doing {doing}")
        weeks = [", ".join(f"[]({by_name[n].name})" for n in w.split()) for w in names.split(",")]
        if path == "Everything":
            lines.append(f": {EVERYTHING}\n")
        elif len(weeks) == 1:
            lines.append(f": {weeks[0]}\n")
        else:
            lines += [f"{': ' if n == 1 else '  '}{n}. {w}" for n, w in enumerate(weeks, 1)] + [""]
    return "\n".join(lines).rstrip()


def table(pages: list[Page]) -> str:
    """Return a table of all pages by part: what each is about, how long it is read and runs."""
    lines = ["| no. | chapter | about | read | run |", "|---|---|---|---|---|"]
    for part, members in groupby(pages, lambda page: page.part):
        lines.append(f"| | **{part}** | | | |")
        for page in members:
            times = (
                f"{5 * round(page.reading / 5)} min | {page.running}" if page.notebook else " | "
            )
            lines.append(f"| {page.number} | []({page.name}) | {page.about} | {times} |")
    return "\n".join(lines)


def syllabus(pages: list[Page]) -> str:
    """Return a table a course: what is read and done when, how long it takes, to what end."""
    by_name = {p.file.removeprefix("chapters/"): p for p in pages if p.notebook}
    lines = []
    for course, units in COURSES.items():
        unit = course.split()[1].removesuffix("s")
        lines += [f"## {course}", "", f"| {unit} | read or write | the student can |"]
        lines.append("|---|---|---|")
        total = 0
        for number, names in enumerate(units.split(","), 1):
            for first, name in enumerate(names.split()):
                page = by_name[name]
                lab = name.startswith("labs/")
                total += page.doing if lab else page.reading
                time = hours(page.doing) if lab else f"{5 * round(page.reading / 5)} min"
                can = f"write: {page.about}" if lab else page.outcome
                skip = f"; without {page.skip}" if page.skip else ""
                where = "" if first else number
                lines.append(f"| {where} | [](../{page.name}), {time}{skip} | {can} |")
        lines += ["", f"Together {hours(total)} a student, without the exercises.", ""]
    return "\n".join(lines).rstrip()


def downloads() -> str:
    """Return a table of the files that notebooks download: where each belongs, how large it is."""
    kinds = json.loads((ROOT / "support" / "data" / "catalog.json").read_text(encoding="utf-8"))
    lines = ["| files | MB | from |", "|---|---|---|"]
    for kind in (kind for kind in kinds if kind["urls"]):
        urls = [url.replace("{hub}", "https://huggingface.co") for url in kind["urls"]]
        size = sum(file["size"] for file in kind["files"].values()) / 1e6
        folder, _, file = kind["path"].partition("/")
        names = [f"`{file.format(name=name)}`" for name in kind["files"]]
        if len(names) > 4:
            names = [f"{len(names)} files, such as {min(names, key=len)}"]
        shown = f"`{folder}/`: {', '.join(names)}"
        places = [f"[{n}]({url.split('#')[0]})" for n, url in enumerate(urls, 1)]
        links = ", ".join(places).replace("{name}", next(iter(kind["files"])))
        lines.append(f"| {shown} | {size:.0f} | {links} |")
    return "\n".join(lines)


def colab_links(
    pages: list[Page], folder: str = "", say: Callable[[str, str], str] = lambda text, page: text
) -> str:
    """Return a table of the parts, with a link for each notebook that opens it in Colab.

    The notebooks are those in a folder of the branch; `say` translates a text of a page.
    """
    lines = ["| | |", "|---|---|"]
    notebooks, where = [page for page in pages if page.notebook], address.repository()
    for part, members in groupby(notebooks, lambda page: page.part):
        links = [
            f"[{short(re.sub(LAB, '', say(page.title, page.file)))}]"
            f"({address.colab(where, folder + page.name)})"
            for page in members
        ]
        lines.append(f"| {say(part, 'index')} | {', '.join(links)} |")
    return "\n".join(lines)


def labs_table(pages: list[Page]) -> str:
    """Return a table of the labs: what is written in each, and in how many hours."""
    lines = ["| lab | you write | hours |", "|---|---|---|"]
    for page in pages:
        if page.file.startswith("labs/"):
            title = short(page.title.removeprefix("Lab: "))
            hours = page.notebook.metadata.lab["hours"]
            lines.append(f"| [{title}](../{page.file}.ipynb) | {page.about} | {hours} |")
    return "\n".join(lines)


def speedrun_table() -> str:
    """Return the speedrun's record as a table, with what each entry's first line says of it."""
    lines = ["| entry | what it is | excess on each held-out set | trained for | date |"]
    lines.append("|---|---|---|---|---|")
    for row in json.loads((ROOT / SPEEDRUN / "record.json").read_text(encoding="utf-8")):
        name = f"{SPEEDRUN}/{row['entry']}.py"
        about = ast.get_docstring(ast.parse((ROOT / name).read_text(encoding="utf-8")))
        found = zip(row["excess"], row["standard_error"], strict=True)
        scores = " · ".join(f"{excess:.5f} ± {error:.5f}" for excess, error in found)
        lines.append(
            f"| [{row['entry']}]({address.repository()}/blob/main/{name}) | "
            f"{about.splitlines()[0]} | {scores} | "
            f"{row['processor_seconds']:,} of {row['budget']:,.0f} s | {row['date']} |"
        )
    return "\n".join(lines)


def contents() -> dict[str, list[str]]:
    """Return what is to stand between each two marks, by the name of the page that has them."""
    pages = chapters()

    def chinese(text: str, page: str) -> str:
        path = MESSAGES / f"{page}.po"
        entry = path.exists() and polib.pofile(str(path)).find(text)
        return entry.msgstr if entry and entry.msgstr and not entry.fuzzy else text

    return {
        "index.md": [paths(pages), f"```{{raw}} html\n{figure(pages)}\n```\n\n{table(pages)}"],
        "README.md": [colab_links(pages)],
        ".github/README.zh.md": [colab_links(pages, "zh/", chinese)],
        "chapters/labs.md": [labs_table(pages), speedrun_table()],
        "appendix/syllabus.md": [syllabus(pages)],
        "appendix/downloads.md": [downloads()],
    }


def updated(name: str, blocks: list[str]) -> str:
    """Return the page of that name with the blocks between its marks.

    Raises: ValueError if the page does not hold as many pairs of marks.
    """
    page = (ROOT / name).read_text(encoding="utf-8")
    parts = re.split(f"{re.escape(BEGIN)}.*?{re.escape(END)}", page, flags=re.S)
    if len(parts) != len(blocks) + 1:
        raise ValueError(f"{name} must hold the lines {BEGIN!r} and {END!r}, {len(blocks)} times")
    marked = [f"{BEGIN}\n{block}\n{END}" for block in blocks]
    return "".join(a + b for a, b in zip_longest(parts, marked, fillvalue=""))


def main() -> None:
    """Write the map and the tables."""
    for name, blocks in contents().items():
        (ROOT / name).write_text(updated(name, blocks), encoding="utf-8")


if __name__ == "__main__":
    main()
