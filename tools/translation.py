"""The Chinese edition: the notebooks and pages of the book, with their messages from PO files.

    python -m tools.translation update     carry the English text into locale/, list what is to do
    python -m tools.translation build      write the edition into _build/html/zh/
    python -m tools.translation complete   say what is left to do, and fail if anything is

A message is a paragraph, a heading, a cell of a table or the text that stands for a picture, as
Sphinx takes it from a page. Whoever changes an English sentence makes its message new: `update`
keeps the old translation beside it, marked fuzzy, until somebody has mended it; until then the
Chinese page shows the English. That stops a release (`complete`), and no test.
tests/test_translation.py finds what a translation has lost: a formula, a number, a link.

COURSE_LANGUAGES=en leaves the edition out: no command does anything, and no page leads to it.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import functools
import hashlib
import io
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import nbformat
import polib
from jupyter_book.sphinx import build_sphinx
from nbformat import NotebookNode
from PIL import Image
from sphinx_intl import basic

ROOT = Path(__file__).resolve().parent.parent
LOCALE = ROOT / "locale"
LANGUAGE = "zh_CN"
TITLE = "动手学预训练"
MESSAGES = LOCALE / LANGUAGE / "LC_MESSAGES"
FIGURES = LOCALE / LANGUAGE / "figures"  # made by tools/chinese_figures.py
HTML = ROOT / "_build" / "html"
LANGUAGES = re.findall(r"\w+", os.environ.get("COURSE_LANGUAGES") or "en, zh")
if LANGUAGES not in (["en"], ["en", "zh"]):
    raise SystemExit(f"COURSE_LANGUAGES is {', '.join(LANGUAGES)}, but must be: en, or en,zh")
CHINESE = "zh" in LANGUAGES
FOLDERS = ("", "zh/") if CHINESE else ("",)  # of the editions, in _build/html/
PROMPTS = {  # of folded cells; they stand in the cells' metadata, where Sphinx looks for no message
    "Checks": "自查",
    "Settings": "设置",
    "Setup": "准备",
    "Show the code": "显示代码",
    "Show the solution": "显示解答",
    "Hide the code": "收起代码",
    "Hide the solution": "收起解答",
}
LEFT_OUT = "COURSE_LANGUAGES leaves the Chinese edition out"

MATH = re.compile(r"(?<!\\)\$[^$]+(?<!\\)\$")
ROLE = re.compile(r"(?<![A-Za-z])\{([\w:-]+)\}`([^`]+)`")  # not \p{L}
CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
TARGET = re.compile(r"\]\(([^)\s]+)\)|<(https?://[^>]+)>")
EXPLICIT = re.compile(r".*<([^<>]+)>", re.DOTALL)
WORDS_IN_MATH = re.compile(r"\\(?:text|mathrm|textit|textbf|operatorname)\s*\{[^{}]*\}")
# What may stand before a message in its line: the mark of a heading, a list, a table, a directive.
BEFORE = (
    r"^[ \t>]*(?:(?:#+|[-*+:]|\d+\.|`{3,}\{[\w-]+\}|:{3,}\{[\w-]+\}|\[\^\w+\]:)[ \t]+)*"
    r"|\|[ \t]*"
)
IN_LABEL = re.compile(r"\d+(?:[.,]\d+)*")
# Of two digits or more; "head 1" may become 第一个头, and "124 million" 1.24 亿.
NUMBER = re.compile(
    r"(?<![\w.,])\d+(?:[.,]?\d+)+"
    r"(?!\w|[.,]\d|(?: and [\d.]+)? [mb]illion| trillion| thousand)"
)


def extract(folder: Path) -> int | Exception:
    """Write the messages of the book into a folder, one file a page; return Sphinx's status."""
    return build_sphinx(
        ROOT,
        folder / "pot",
        path_config=ROOT / "_config.yml",
        noconfig=True,
        doctreedir=folder / "doctrees",
        confoverrides={
            "latex_individualpages": False,
            "gettext_compact": False,
        },
        builder="gettext",
        freshenv=True,
        quiet=True,
        warningiserror=True,
        keep_going=True,
    )


def build() -> int | Exception:
    """Write the Chinese pages into the folder of the English ones, and have these link to them.

    Raises: FileNotFoundError if the English pages have not been built.
    """
    marker = HTML / "_static" / "editions.js"
    if not marker.exists():
        raise FileNotFoundError(f"{HTML} has no English pages: run `make book` first")
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "locale"  # Sphinx puts compiled catalogs beside the PO files
        shutil.copytree(LOCALE, copied)
        status = build_sphinx(
            ROOT,
            HTML / "zh",
            path_config=ROOT / "_config.yml",
            noconfig=True,
            doctreedir=Path(folder) / "doctrees",
            confoverrides={
                "latex_individualpages": False,
                "gettext_compact": False,
                "language": LANGUAGE,
                "locale_dirs": [str(copied)],
                "html_title": TITLE,
                "numfig_format": {"figure": "图 %s", "exercise": "练习 %s", "solution": "解答 %s"},
                "nitpicky": True,
            },
            freshenv=True,
            quiet=True,
            warningiserror=True,
            keep_going=True,
        )
    if status == 0:
        marker.write_text(marker.read_text(encoding="utf-8").replace("false", "true"), "utf-8")
    return status


def messages(page: str) -> dict[str, str]:
    """Return the messages of a page that have an up-to-date translation, with it."""
    path = MESSAGES / f"{page}.po"
    file = polib.pofile(str(path)) if path.exists() else []  # a new page has none
    return {entry.msgid: entry.msgstr for entry in file if to_do(entry) is None}


def translate(text: str, known: Mapping[str, str]) -> str:
    """Return a text in MyST's Markdown with each paragraph, heading or table's cell translated.

    What has no translation in `known` stays as it is.
    """
    words = " ".join(text.split())
    found = {m: c for m, c in known.items() if " ".join(m.split()) in words}
    done: list[str] = []
    for message in sorted(found, key=len, reverse=True):  # a part of another one comes later
        spaced = r"[\s>]+".join(map(re.escape, message.split()))
        mark = f"\0{len(done)}\0"
        done.append(found[message].strip())
        pattern = rf"(?m)({BEFORE}){spaced}(?=[ \t]*(?:$|\||\Z))"
        text = re.sub(pattern, lambda match, mark=mark: match[1] + mark, text)
    return re.sub(r"\x00(\d+)\x00", lambda match: done[int(match[1])], text)


def labels(page: str) -> dict[str, str]:
    """Return the labels of figures that are translated; one may have a page as its context."""
    done = [entry for entry in polib.pofile(f"{FIGURES}.po") if to_do(entry) is None]
    return {e.msgid: e.msgstr for context in (None, page) for e in done if e.msgctxt == context}


def label(text: str, known: Mapping[str, str]) -> str:
    """Return a label in Chinese, or as it is; a message may have {} for each of its numbers."""
    numbers = iter(IN_LABEL.findall(text))
    said = known.get(text) or known.get(IN_LABEL.sub("{}", text))
    return re.sub("{}", lambda found: next(numbers, found[0]), said) if said else text


def figures(page: str, notebook: NotebookNode) -> Iterator[tuple[Path, NotebookNode, str]]:
    """Yield for each PNG of a notebook the file of its Chinese figure, its output, its sha-256."""
    for cell in notebook.cells:
        found = [out for out in cell.get("outputs", []) if "image/png" in out.get("data", {})]
        for n, out in enumerate(found, start=1):
            name = f"{cell.id}_{n}" if len(found) > 1 else cell.id
            sha = hashlib.sha256(base64.b64decode(out.data["image/png"])).hexdigest()
            yield FIGURES / page / f"{name}.png", out, sha


def put_figures(page: str, notebook: NotebookNode) -> set[Path]:
    """Put the Chinese figures that are of the English ones in their places; return their files."""
    used, known = set(), labels(page)
    for path, out, sha in figures(page, notebook):
        if path.exists() and Image.open(path).info.get("English") == sha:
            out.data["image/png"] = base64.b64encode(path.read_bytes()).decode()
            used.add(path)
    for data in [out.get("data", {}) for cell in notebook.cells for out in cell.get("outputs", [])]:
        if svg := data.get("image/svg+xml"):  # its labels are text
            said = re.sub("(?<=>)[^<>]+(?=</text>)", lambda text: label(text[0], known), svg)
            data["image/svg+xml"] = said
    return used


def old_figures() -> list[str]:
    """Return a line for each Chinese figure whose English one has changed or gone."""
    old = set(FIGURES.rglob("*.png"))
    for page in {path.parent.relative_to(FIGURES).as_posix() for path in old}:
        if (path := ROOT / f"{page}.ipynb").exists():
            old -= put_figures(page, nbformat.read(path, as_version=4))
    names = sorted(path.relative_to(FIGURES).with_suffix("").as_posix() for path in old)
    return [f"{name}: figure of another English one: draw it again" for name in names]


def carried(message: str) -> Counter[tuple[str, str]]:
    """Return what a translation has to carry along: formulas, code, roles, links and numbers."""
    kept: Counter[tuple[str, str]] = Counter()
    for role, content in ROLE.findall(message):
        explicit = EXPLICIT.fullmatch(content)
        target = explicit[1] if explicit else content
        kept[role, target.lower() if role == "term" else target] += 1
    rest = ROLE.sub(" ", message)
    for formula in MATH.findall(rest):
        kept["formula", WORDS_IN_MATH.sub("", re.sub(r"\s", "", formula))] += 1
    rest = MATH.sub(" ", rest)
    for _, code in CODE.findall(rest):
        kept["code", code] += 1
    rest = CODE.sub(" ", rest)
    for link, url in TARGET.findall(rest):
        kept["link", link or url] += 1
    for number in NUMBER.findall(TARGET.sub(" ", rest)):
        kept["number", number] += 1
    return kept


def differences(message: str, translation: str) -> list[str]:
    """Return what a translation has lost or made up, each in words."""
    if (
        "\\begin{" in message and "$" not in message
    ):  # a formula of its own, with nothing but words to translate
        ours, theirs = (
            {re.sub(r"\s", "", WORDS_IN_MATH.sub("", x))} for x in (message, translation)
        )
        return [] if ours == theirs else ["the formula differs"]
    ours, theirs = carried(message), carried(translation)
    lost = [f"{kind} {what!r} is missing" for kind, what in (ours - theirs).elements()]
    new = [
        f"{kind} {what!r} is not in the English"
        for kind, what in (theirs - ours).elements()
        if kind != "number"  # "two" may become 2
    ]
    return lost + new


def to_do(entry: polib.POEntry) -> str | None:
    """Return what is to do for a message: translate it, or mend what is fuzzy."""
    if entry.obsolete:
        return "obsolete"
    if entry.fuzzy:
        return "fuzzy"
    return None if entry.msgstr else "untranslated"


def update(pot: Path, locale: Path = LOCALE) -> None:
    """Carry PO files along with the messages in a folder of POT files.

    A file whose page has gone goes as well, and so does a message that no page has.
    """
    with contextlib.redirect_stdout(io.StringIO()):  # it says what it does with each file
        basic.update(str(locale), str(pot), (LANGUAGE,), line_width=0, ignore_obsolete=True, jobs=1)
    messages = locale / LANGUAGE / "LC_MESSAGES"
    for path in messages.rglob("*.po"):
        if (pot / path.relative_to(messages)).with_suffix(".pot").exists():
            tidy(path)
        else:
            path.unlink()


def tidy(path: Path) -> None:
    """Give a PO file a true header, no automatic flags, and each message its place.

    The place of a message of a notebook is its cell's id, which other cells do not shift.
    """
    file = polib.pofile(str(path), wrapwidth=0)
    file.header = "The Chinese edition of Pretraining by Hand. Text: CC BY 4.0."
    file.metadata_is_fuzzy = False
    revised = file.metadata.get("PO-Revision-Date", "")
    if not revised[:1].isdigit():  # a template's YEAR-MO-DA
        revised = time.strftime("%Y-%m-%d %H:%M+0000", time.gmtime())
    file.metadata = {
        "Project-Id-Version": "Pretraining by Hand",
        "PO-Revision-Date": revised,
        "Last-Translator": "Pretraining by Hand contributors",
        "Language-Team": "Chinese (simplified)",
        "Language": LANGUAGE,
        "MIME-Version": "1.0",
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Transfer-Encoding": "8bit",
        "Plural-Forms": "nplurals=1; plural=0;",
    }
    for entry in file:
        entry.flags = [flag for flag in entry.flags if flag == "fuzzy"]
        entry.occurrences = list(dict.fromkeys(map(place, entry.occurrences)))
    file.save()


def place(occurrence: tuple[str, str]) -> tuple[str, str]:
    """Return a file of the book and the line, or of a notebook the id of the cell."""
    source, line = occurrence
    source = re.sub(rf".*/{ROOT.name}/", "", source)
    if source.endswith(".ipynb") and line.isdigit():
        line = cell_ids(source)[int(line) // 10_000 - 1]
    return source, line


@functools.cache
def cell_ids(source: str) -> list[str]:
    return [cell.id for cell in nbformat.read(ROOT / source, as_version=4).cells]


def listed(locale: Path = LOCALE) -> list[str]:
    """Return what is to do, a line for each message: page, what, the message's beginning."""
    messages = locale / LANGUAGE / "LC_MESSAGES"
    lines = []
    for path in sorted(messages.rglob("*.po")):
        page = path.relative_to(messages).with_suffix("").as_posix()
        for entry in polib.pofile(str(path)):
            if state := to_do(entry):
                lines.append(f"{page}: {state}: {' '.join(entry.msgid.split())[:90]}")
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return the exit status: of `complete`, 1 if something is left to do."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["update", "build", "complete"])
    command = parser.parse_args(arguments).command
    if not CHINESE:
        print(f"{LEFT_OUT}: nothing is done for it")
        return 0
    if command == "build":
        if build() != 0:
            return 1
        print(f"The Chinese edition is built. Open: {HTML}/zh/index.html")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        if extract(Path(folder)) != 0:
            return 1
        locale = LOCALE
        if command == "complete":  # as after `update`, but in a copy
            locale = shutil.copytree(LOCALE, Path(folder) / "locale")
        update(Path(folder) / "pot", locale)
        left = listed(locale) + old_figures()
    print(*left, f"{len(left)} messages and figures to translate or to mend", sep="\n")
    return int(command == "complete" and bool(left))


if __name__ == "__main__":
    sys.exit(main())
