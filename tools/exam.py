"""Write an exam and its answer sheet: questions to solve by hand, with computed answers.

    python -m tools.exam --seed 7 [--weeks 1-10] [--questions 8] [--out _build/exam]

The same seed gives the same exam. The weeks, such as 3 or 1-5,8, are those of the path "Ten weeks
with labs"; a question belongs to the week of its chapter. `ill_posed` and `check` say what is wrong
with a question, and none for which they say anything gets into an exam.
"""

from __future__ import annotations

import argparse
import html
import importlib.util
import math
import re
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import cycle, islice, zip_longest
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell, new_notebook

from tools import address
from tools.course_map import PATHS
from tools.exam_kinds import KINDS, Question
from tools.format_notebooks import METADATA, text_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

OUT = address.ROOT / "_build" / "exam"
PATH = "Ten weeks with labs"
WEEKS = {n: week.split() for n, week in enumerate(PATHS[PATH].split(","), 1)}
FUNCTIONS = (r"\log", r"\exp", r"\sigma(", r"\sqrt")  # what no calculator of four functions has
NUMBER = re.compile(r"\d[\d,]*\.?\d*")
MARGIN = 0.15  # units of the third digit between an answer and where its rounding changes
TOO_LONG = 10**8  # a calculator shows eight digits
TRIES = 1000
ROOM = 5  # millimeters to write in, for each minute
MARKING = "A mistake that is carried along counts once; the last digit may differ by one."
RULES = """\
Name:

Allowed: a calculator with the four basic operations. Logarithms are natural. Use the values given \
and keep all digits between the steps. Where no rounding is asked for, give exact numbers: whole \
numbers, fractions or finite decimals. Write down how you got there; it is worth points."""
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<link rel="stylesheet" href="{style}"><style>
body {{ font: 15px/1.45 "DejaVu Serif", Georgia, serif; margin: 0; }}
h1 {{ font-size: 24px; }} h2 {{ font-size: 17px; margin: 1.5em 0 0.4em; }}
table {{ border-collapse: collapse; }} th, td {{ border: 1px solid #999; padding: 0.1em 0.7em; }}
pre {{ background: #f4f4f4; font: 12px/1.35 "DejaVu Sans Mono", monospace; padding: 0.6em; }}
section, .answer {{ break-inside: avoid; }}
.answer {{ border-left: 3px solid #0072B2; padding-left: 0.9em; }}
</style><script src="{mathjax}" async></script></head><body>{body}</body></html>"""


def rounded(x: float) -> str:
    """Return a number with three significant digits, as one writes it."""
    places = 2 - math.floor(math.log10(abs(x))) if x else 2
    return f"{round(x, places):,.{max(places, 0)}f}"


def shown(value: object) -> str:
    """Return an answer in Markdown."""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))})"
    if isinstance(value, Fraction) and value.denominator > 1:
        sign = "-" if value < 0 else ""
        finite = f" = {float(value):g}" if 10**4 % value.denominator == 0 else ""
        return rf"${sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}{finite}$"
    number = rounded(value) if isinstance(value, float) else f"{int(value):,}"
    return f"${number.replace(',', '{,}')}$"


def same(answer: object, again: object) -> bool:
    """Return whether two answers agree, to three digits if the first is to be rounded."""
    if isinstance(answer, tuple):
        return len(answer) == len(again) and all(map(same, answer, again))
    if isinstance(answer, float):
        return rounded(answer) == rounded(again)
    return math.isclose(answer, again) if isinstance(again, float) else answer == again


def check(question: Question) -> str | None:
    """Return which answer the recomputation does not confirm, or None if it confirms all."""
    again = question.again()
    if again.keys() != question.answers.keys():
        return f"the answers are {[*question.answers]}, recomputed are {[*again]}"
    for part, answer in question.answers.items():
        if not same(answer, again[part]):
            return f"{part} is {answer}, but recomputed {again[part]}"
    return None


def ill_posed(question: Question) -> str | None:
    """Return why a question cannot be asked, or None if nothing speaks against it."""
    text, used = question.text, question.statement + question.marking
    written = {n.rstrip(",.").replace(",", "") for n in NUMBER.findall(text.replace("{,}", ","))}
    for values in question.ranked:
        if sorted(values)[-2:-1] == [max(values)]:
            return f"a tie: the largest of {values} is not unique"
    for function in FUNCTIONS:
        if function in used and function not in question.given:
            return f"no values of {function} are given"
    for value in question.values:
        if isinstance(value, str):
            if re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text):
                return f"{value} can be read off the statement"
            continue
        size = abs(value)
        if size >= TOO_LONG:
            return f"{value} has more than eight digits"
        if size in {float(n) for n in written}:
            return f"{value} can be read off the statement"
        if isinstance(value, float):
            if "three significant digits" not in text:
                return f"how to round {value} is not stated"
            if size < 0.05:
                return f"{value} is too close to zero for the values given"
            if abs(size * 10 ** (2 - math.floor(math.log10(size))) % 1 - 0.5) < MARGIN:
                return f"{value} is close to where its rounding changes"
            if rounded(size).replace(",", "") in written:
                return f"{rounded(value)} can be read off the statement"
    return None


def week_numbers(said: str) -> list[int]:
    """Return the weeks that "1-5,8" names. Raises: ValueError for one that is not on the path."""
    weeks = []
    for part in said.split(","):
        found = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        new = range(int(found[1]), int(found[2] or found[1]) + 1) if found else ()
        weeks += new
        if not new or not {*new} <= WEEKS.keys():
            raise ValueError(f"no week {part!r} in {PATH!r}: name weeks from 1 to {len(WEEKS)}")
    return sorted({*weeks})


def draw(name: str, seed: int, number: int, asked: list[Question]) -> Question:
    """Draw a well-posed question of a kind that has not been asked in the same words.

    Raises: ValueError if its answers disagree, or if there is no such question.
    """
    for attempt in range(TRIES):
        rng = Random(f"{seed} {name} {number} {attempt}")
        question = replace(KINDS[name].draw(rng), kind=KINDS[name])
        if ill_posed(question) or question.text in {other.text for other in asked}:
            continue
        if wrong := check(question):
            raise ValueError(f"{name}: {wrong}, in: {question.text}")
        return question
    raise ValueError(f"no more questions of the kind {name} can be drawn: ask for fewer")


def compose(seed: int, weeks: list[int], n: int = 8) -> list[Question]:
    """Return n questions, of as many weeks as possible, in the order of the book.

    Raises: ValueError if there are no such questions.
    """
    if n < 1:
        raise ValueError("ask for at least one question")
    rng = Random(f"exam {seed}")
    of_weeks = [[k for k in KINDS if KINDS[k].chapter in WEEKS[week]] for week in weeks]
    for kinds in of_weeks:
        rng.shuffle(kinds)
    rng.shuffle(of_weeks)
    order = [k for turn in zip_longest(*of_weeks) for k in turn if k]  # a kind of each, and again
    asked: list[Question] = []
    for number, name in enumerate(islice(cycle(order), n)):
        asked.append(draw(name, seed, number, asked))
    return sorted(asked, key=lambda question: [*KINDS].index(question.kind.name))


def notebook(asked: list[Question], source: str, answers: bool = False) -> NotebookNode:
    """Return the exam as a notebook, or its answer sheet, which says what it was made from."""
    points, minutes = (sum(getattr(q.kind, what) for q in asked) for what in ("points", "minutes"))
    title = "# Exam: answers and marking" if answers else "# Exam"
    worth = f"{len(asked)} questions · **{points} points** · **{minutes} minutes**"
    head = "\n\n".join((title, worth, f"Made from {source}. {MARKING}" if answers else RULES))
    cells = [new_markdown_cell(head, id="title")]
    for number, question in enumerate(asked, 1):
        worth = f"{question.kind.points} points, {question.kind.minutes} minutes"
        said = f"## {number}. {question.kind.title} ({worth})\n\n{question.text}"
        cells.append(new_markdown_cell(said, id=f"question-{number}"))
        if answers:
            values = " · ".join(f"{part} {shown(v)}" for part, v in question.answers.items())
            said = f"**Answer.** {values}\n\n**Marking.** {question.marking}"
        else:
            said = "*Your answer:*"
        cells.append(new_markdown_cell(said, id=f"answer-{number}"))
    return new_notebook(cells=cells, metadata=METADATA)


def page(exam: NotebookNode, asked: list[Question], answers: bool) -> str:
    """Return the notebook as a page to print, with room to write or with the answers."""

    def formula(content: str, options: dict) -> str:
        return html.escape(rf"\[{content}\]" if options["display_mode"] else rf"\({content}\)")

    parser = MarkdownIt("commonmark").enable("table")
    parser.use(dollarmath_plugin, renderer=formula, allow_digits=False)
    first, *rest = (parser.render(cell.source) for cell in exam.cells)
    for question, answer, of in zip(rest[::2], rest[1::2], asked, strict=True):
        space = 0 if of is asked[-1] else ROOM * of.kind.minutes  # no blank page at the end
        room = f'<div style="height: {space}mm"></div>'
        after = f'<div class="answer">{answer}</div>' if answers else room
        first += f"<section>{question}{after}</section>"
    mathjax = Path(importlib.util.find_spec("sphinx-mathjax-offline").origin).parent
    return PAGE.format(
        title="Answers" if answers else "Exam",
        style=(address.ROOT / "_static" / "course.css").as_uri(),
        mathjax=(mathjax / "static" / "mathjax" / "tex-chtml.js").as_uri(),
        body=first,
    )


def print_in(browser: Browser, pages: dict[str, str], out: Path) -> None:
    """Print the pages as PDFs in `out`."""
    from tools import print as printing

    for name, text in pages.items():
        draft = out / f".{name}.html"
        draft.write_text(text, encoding="utf-8")
        printing.pdf(browser.new_page(), draft.stem, out / f"{name}.pdf", folder=out.resolve())
        draft.unlink()


def print_all(pages: dict[str, str], out: Path) -> str:
    """Print the pages with Chromium; return which files that makes, or why it makes none."""
    try:
        from playwright.sync_api import Error, sync_playwright

        from tools.print import chromium
    except ImportError as error:
        return f"no PDF, since {error.name} is not installed (requirements/dev.txt)"
    try:
        with sync_playwright() as playwright:
            browser = chromium(playwright)
            print_in(browser, pages, out)
            browser.close()
    except Error as error:
        return f"no PDF, since Chromium fails: {error.message.splitlines()[0]}"
    return ", ".join(f"{name}.pdf" for name in pages)


def write(asked: list[Question], source: str, out: Path) -> dict[str, str]:
    """Write the exam and its answer sheet as notebooks; return them as pages to print."""
    out.mkdir(parents=True, exist_ok=True)
    pages = {}
    for name, answers in (("exam", False), ("answers", True)):
        made = notebook(asked, source, answers)
        (out / f"{name}.ipynb").write_text(text_of(made), encoding="utf-8")
        pages[name] = page(made, asked, answers)
    return pages


def main(arguments: list[str] | None = None) -> int:
    """Write an exam, and return the exit status."""
    parser = argparse.ArgumentParser(prog="tools.exam", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True, help="the same seed, the same exam")
    parser.add_argument("--weeks", default=f"1-{len(WEEKS)}", help="such as 3 or 1-5,8")
    parser.add_argument("--questions", type=int, default=8, metavar="N")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER")
    options = parser.parse_args(arguments)
    try:
        asked = compose(options.seed, week_numbers(options.weeks), options.questions)
    except ValueError as error:
        parser.error(str(error))
    source = f"seed {options.seed}, weeks {options.weeks}, {len(asked)} questions"
    printed = print_all(write(asked, source, options.out), options.out)
    print(f"in {options.out}: exam.ipynb, answers.ipynb, {printed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
