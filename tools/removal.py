"""What takes one page out of the course: see tools/course.py."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import polib

from tools import course_map, translation
from tools.course_map import Page
from tools.format_notebooks import text_of

if TYPE_CHECKING:
    from tools.course import Change

TOC, ABOUT, PLAN = "_toc.yml", "chapters/chapters.yml", "chapters/courses.yml"
MAP, ITEMS, WORKS = "appendix/lecture_map.md", "tests/lecture_items.tsv", "appendix/references.bib"
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
LINKS = re.compile(r"(?:\[\]\([^)]+\)(?:, |、)?)+")  # nothing but links
LABEL = re.compile(r"^\(([\w-]+)\)=|^\s*:(?:label|name):\s*(\S+)|\$\$ *\(([\w-]+)\)", re.M)
ROLE = re.compile(r"\{(?:numref|ref|eq|prf:ref)\}`(?:[^`<]*<)?([^`>]+)>?`")
CITED = re.compile(r"\{cite:\w+\}`([^`]+)`")
MADE = re.compile(f"({re.escape(course_map.BEGIN)}.*?{re.escape(course_map.END)})", re.S)
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n\s*\n|\n(?=[-|] )")


def cites(text: str) -> set[str]:
    """Return the works that a text cites."""
    return {key.strip() for keys in CITED.findall(text) for key in keys.split(",")}


def turned(name: str, text: str, turn: Callable[[str, str], str]) -> str:
    """Return a page with its texts turned, given where and what; made tables stay as they are."""
    if name.endswith(".md"):
        return "".join(t if n % 2 else turn(name, t) for n, t in enumerate(MADE.split(text)))
    notebook = nbformat.reads(text, as_version=4)
    prose = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    new = [turn(f"{name}, cell {cell.id}", cell.source) for cell in prose]
    if new == [cell.source for cell in prose]:
        return text
    for cell, source in zip(prose, new, strict=True):
        cell.source = source
    return text_of(notebook)


class Removal:
    """What takes one page out of the course."""

    def __init__(self, pages: list[Page], file: str, change: Change):
        self.change, self.file, self.name = change, file, Path(file).name
        self.page = page = next((page for page in pages if page.file == file), None)
        if page is None:
            raise ValueError(f"{TOC} has no page {file}: name one such as chapters/tags")
        below = rf"- file: {file}\n +sections:"
        if page.name in course_map.contents() or re.search(below, change.text(TOC)):
            raise ValueError(f"{file} cannot go: `make format` writes to it, or pages are below it")
        self.catalogs = [name for name in change.files(".po") if name.endswith(f"/{file}.po")]
        known = translation.messages(file) if self.catalogs else {}
        titles = (page.title, known.get(page.title, page.title))
        self.titles = [course_map.short(re.sub(course_map.LAB, "", title)) for title in titles]
        self.called = {self.titles[0].lower(), self.name.replace("_", " ")}
        self.labels = {x for found in LABEL.findall(page.text) for x in found} - {""}
        figures = (c.metadata.get("mystnb", {}).get("figure", {}) for c in self.cells())
        self.labels |= {figure["name"] for figure in figures if figure}
        before, _, after = (pages[pages.index(page) + n - len(pages)] for n in (-1, 0, 1))
        self.beside = {before.name: "next", after.name: "previous|last"}

    def cells(self) -> list[nbformat.NotebookNode]:
        """Return the cells of the page, if it is a notebook."""
        return self.page.notebook.cells if self.page.notebook else []

    def lists(self) -> None:
        """Take the page out of the table of contents, the plans and the lists of lecture topics."""
        name = self.file.removeprefix("chapters/")
        out = {
            TOC: (
                rf"^ *- file: {self.file}\n",
                r"^( *)sections:\n(?!\1 )",  # with nothing below, as in the next line
                r"^  - caption:.*\n(?:    numbered.*\n)?    chapters:\n(?!     )",
            ),
            ABOUT: (rf"^{self.file}:.*\n(?: +.*\n)*",),
            PLAN: (
                rf"(?P<kept>^    - (?:.* )?){name}(?: |$)",
                r" +$",
                r"^    -\n",
                r"^  [^:\n]+:(?: &\w+)?\n(?!    -)",
            ),
            ITEMS: (rf"^[^\t\n]+\t{re.escape(self.page.name)}\t.*\n",),
        }
        for file, patterns in out.items():
            text = self.change.text(file)
            for pattern in patterns:
                text = re.sub(pattern, lambda m: m.groupdict().get("kept", ""), text, flags=re.M)
            lost = self.change.text(file).count("\n    - ") - text.count("\n    - ")
            if file == PLAN and lost:
                self.change.leave(f"{PLAN}: {lost} weeks or days less: are the names still true?")
            self.change.edit(file, text, f"{self.file} taken out")
        rows = []
        for row in self.change.text(MAP).splitlines(keepends=True):
            start, _, last = row.rstrip("| \n").rpartition(" | ")
            if row.startswith("|") and (kept := self.without_topic(last)) != last:
                row = kept and f"{start} | {kept} |\n"
            rows.append(row)
        self.change.edit(MAP, "".join(rows), "what leads there taken out")

    def without_topic(self, cell: str) -> str:
        """Return a cell of the map of lecture topics without what leads to the page."""
        here = rf"\]\(\.\./{self.file}\.\w+[^)]*\)"
        return re.sub(rf"(?:^|[;；] ?)[^;；]*{here}[^;；]*", "", cell).lstrip(";； ")

    def delete(self) -> None:
        """Delete the page, its translation, its explorers, its picture, and a lab's checks."""
        gone = [self.page.name, *self.catalogs]
        tags = (tag for cell in self.cells() for tag in cell.metadata.get("tags", ()))
        for explorer in (tag.removeprefix("play-") for tag in tags if tag.startswith("play-")):
            gone += (f"_static/play/{explorer}.{ending}" for ending in ("data.js", "js", "css"))
            for name in self.change.files(".md"):
                if f"{{play}} {explorer}\n" in self.change.text(name):
                    self.change.leave(f"{name}: take out the block {{play}} {explorer}")
        if self.file.startswith("labs/"):
            gone += (f"{folder}/labs/{self.name}.py" for folder in ("support", "tests"))
        elif f"labs/{self.name}.ipynb" in self.change.files(".ipynb"):
            self.change.leave(f"labs/{self.name} stays, unless you remove it as well")
        rest, index = r"(?:(?!:::).*\n)*?", self.change.text("index.md")
        card = rf":::{{grid-item-card}}\n:img-top: (.+)\n{rest}:link: {self.file}\n{rest}:::\n\n"
        gone += re.findall(card, index)
        self.change.edit("index.md", re.sub(card, "", index), "its card taken out")
        for name in gone:
            self.change.delete(name)

    def leads_here(self, link: re.Match, folder: str) -> bool:
        """Return whether a link on a page in a folder leads to the page."""
        there = os.path.normpath(os.path.join(folder, link[2]))
        return os.path.splitext(there)[0] == self.file

    def plain(self, text: str, folder: str, title: str) -> str:
        """Return a text without links to the page: their words stay, or its title does."""
        links = [*LINK.finditer(text)]
        kept = [link[0] for link in links if not self.leads_here(link, folder)]
        if LINKS.fullmatch(text) and len(kept) < len(links):  # a list of links loses this one
            return ("、" if "、" in text else ", ").join(kept)
        return LINK.sub(lambda m: (m[1] or title) if self.leads_here(m, folder) else m[0], text)

    def unlink(self) -> None:
        """Make links to the page plain text."""
        for name in self.change.files(".md", ".ipynb"):
            folder = os.path.dirname(name)

            def turn(where: str, text: str, folder: str = folder) -> str:
                for link in LINK.finditer(text):
                    if self.leads_here(link, folder) and not link[3]:
                        self.called.add(" ".join(link[1].lower().split()))
                for sentence in SENTENCE.split(text):
                    if (new := self.plain(sentence, folder, self.titles[0])) != sentence:
                        self.change.leave(f"{where}: read again: {new}")
                return self.plain(text, folder, self.titles[0])

            self.change.edit(name, turned(name, self.change.text(name), turn), "links made plain")

    def unlink_translations(self) -> None:
        """Make them plain text in the messages of the pages, and in their translations."""
        for name in self.change.files(".po"):
            if self.name not in (text := self.change.text(name)):
                continue
            catalog = polib.pofile(text, wrapwidth=0)
            folder = os.path.dirname(name.split("LC_MESSAGES/")[-1])
            for entry in list(catalog):
                both = [entry.msgid, entry.msgstr]
                if name.endswith("lecture_map.po"):
                    both = [self.without_topic(message) for message in both]
                entry.msgid = self.plain(both[0], folder, self.titles[0])
                entry.msgstr = self.plain(both[1], folder, self.titles[1])
                if not entry.msgid:
                    catalog.remove(entry)
            self.change.edit(name, str(catalog), "links made plain")

    def mention(self) -> None:
        """Name what still speaks of the page or its labels; take out works that only it cites."""
        called = "|".join(map(re.escape, sorted(self.called - {""}, key=len, reverse=True)))
        speaks = rf"\bchapters?\b.{{0,90}}\b(?:{called})\b|\*{re.escape(self.titles[0])}\*"
        cited: set[str] = set()
        for name in self.change.files(".md", ".ipynb"):
            near = self.beside.get(name, "removed")
            about = re.compile(rf"{speaks}|\b(?:{near}) chapter", re.I | re.S)

            def look(where: str, text: str, about: re.Pattern = about) -> str:
                cited.update(cites(text))
                for sentence in SENTENCE.split(text):
                    if about.search(" ".join(sentence.split())):
                        self.change.leave(f"{where}: read again: {sentence}")
                    for label in self.labels.intersection(ROLE.findall(sentence)):
                        self.change.leave(f"{where}: the label {label} has gone: {sentence}")
                return text

            turned(name, self.change.text(name), look)
        for key in sorted(cites(self.page.text) - cited):
            entry = rf"^@\w+\{{{key},\n.*?^\}}\n+"
            works = re.sub(entry, "", self.change.text(WORKS), flags=re.M | re.S)
            self.change.edit(WORKS, works.rstrip("\n") + "\n", f"{key} taken out")
        own = ("tools/course.py", "tools/removal.py", "tests/test_course.py")
        for name in (n for n in self.change.files(".py", ".js", ".tsv", ".yml") if n not in own):
            for number, line in enumerate(self.change.text(name).splitlines(), 1):
                if re.search(rf"{self.file}\b|\b{self.name}\.(?:ipynb|html)", line):
                    self.change.leave(f"{name}, line {number}, names it: {line}")
