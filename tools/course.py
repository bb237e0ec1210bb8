"""Take chapters out of the course, or make one of a text, in all files that name them.

    python -m tools.course remove chapters/tags [labs/bpe …] [--dry-run]
    python -m tools.course add my_chapter.md --after chapters/gpt --about "what it is about"

Everything is worked out before anything is written; at the end comes what `make format` does. A
line is printed for each thing done and for each that is left to you, such as a sentence to mend.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tools import address, check, course_map, notebook_rules
from tools.format_notebooks import bootstrap, format_notebook, read, text_of
from tools.removal import ABOUT, TOC, Removal

ROOT = address.ROOT
CARD = """```{{admonition}} Run card
:class: tip
- **Prerequisites**: {needs}.
- **Data**: none.
- **Time** on two cores: 1 s in every profile.
```"""


@dataclass
class Change:
    """What will be written and deleted, and what is said about it."""

    new: dict[str, str | None] = field(default_factory=dict)  # None: the file is deleted
    done: list[str] = field(default_factory=list)
    left: dict[str, None] = field(default_factory=dict)  # in order, each once

    def text(self, name: str) -> str:
        """Return a file as it will be, nothing if it is deleted."""
        if name in self.new:
            return self.new[name] or ""
        return (ROOT / name).read_text(encoding="utf-8")

    def edit(self, name: str, text: str, said: str) -> None:
        """Note the new text of a file, and what has been done to it."""
        if text != self.text(name):
            self.new[name] = text
            self.done.append(f"{name}: {said}")

    def delete(self, name: str) -> None:
        """Note that a file goes, if it is there."""
        if (ROOT / name).exists():
            self.new[name] = None
            self.done.append(f"{name}: deleted")

    def leave(self, said: str) -> None:
        """Note what is left to do, in one line."""
        self.left[" ".join(said.split())] = None

    def files(self, *endings: str) -> list[str]:
        """Return the names of git's files that end so and stay."""
        names = (path.relative_to(ROOT).as_posix() for path in check.files(everything=True))
        return [n for n in names if n.endswith(endings) and self.new.get(n, "") is not None]

    def check(self) -> None:
        """Raise ValueError if git does not have the present text of a file that is to change."""
        names = [*self.new, *course_map.contents()]
        status = ["git", "status", "--porcelain", "--", *names]
        said = subprocess.run(status, cwd=ROOT, capture_output=True, text=True)
        if said.returncode or said.stdout:
            raise ValueError(f"commit or stash these files first:\n{said.stdout or said.stderr}")

    def write(self) -> None:
        """Write the files, and do what `make format` does."""
        tables = course_map.contents()
        for name, text in self.new.items():
            if text is None:
                (ROOT / name).unlink()
            else:
                (ROOT / name).write_text(text, encoding="utf-8")
        for tool in ("format_notebooks", "course_map", "gallery"):
            if tool != "gallery" or importlib.util.find_spec("PIL"):
                command = [sys.executable, "-m", f"tools.{tool}"]
                subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        self.done.append(f"made again: the pictures, and the tables of {', '.join(tables)}")


def remove(names: list[str], change: Change) -> None:
    """Take pages out of the course."""
    pages = course_map.chapters()
    removals = [Removal(pages, name, change) for name in sorted(names, reverse=True)]
    for step in (
        Removal.lists,
        Removal.delete,
        Removal.unlink,
        Removal.unlink_translations,
        Removal.mention,
    ):
        for removal in removals:
            step(removal)
    change.leave("the translations of what has changed: `make translate` lists them")


def from_text(text: str) -> nbformat.NotebookNode:
    """Return the notebook of a text in Markdown; its blocks of Python become cells of code."""
    cells = []
    for n, part in enumerate(re.split(r"^```python\n(.*?)^```$", text, flags=re.M | re.S)):
        for piece in [part] if n % 2 else re.split(r"^(?=## )", part, flags=re.M):
            if piece.strip():
                cells.append((new_code_cell if n % 2 else new_markdown_cell)(piece.strip()))
    if cells:  # the run card stands below the first paragraph
        start = re.match(r"# .+\n+(?:.+\n?)+", cells[0].source)
        if start and (rest := cells[0].source[start.end() :].strip()):
            cells[:1] = [new_markdown_cell(start[0].strip()), new_markdown_cell(rest)]
    return new_notebook(cells=cells)


def add(source: Path, after: str, about: str, change: Change) -> None:
    """Make a chapter of a text or a notebook, behind another one."""
    name = re.sub(r"\W+", "_", source.stem.lower()).strip("_")
    file, pages = f"chapters/{name}", {page.file: page for page in course_map.chapters()}
    if after not in pages or not after.startswith("chapters/"):
        raise ValueError(f"{TOC} has no chapter {after}: name one such as chapters/gpt")
    if file in pages or (ROOT / f"{file}.ipynb").exists():
        raise ValueError(f"there is a {file} already: give {source} another name")
    notebook = read(source) if source.suffix == ".ipynb" else from_text(source.read_text("utf-8"))
    if not notebook.cells or not notebook.cells[0].source.startswith("# "):
        raise ValueError(f"{source} must begin with its title, a line such as: # My chapter")
    if not re.search(r"\{admonition\} Run card", str(notebook.cells)):
        title, link = course_map.short(pages[after].title), f"{Path(after).name}.ipynb"
        needs = f"the chapter on [{title}]({link})" if pages[after].notebook else "none"
        notebook.cells.insert(1, new_markdown_cell(CARD.format(needs=needs)))
    if "find_spec(" not in next((c.source for c in notebook.cells if c.cell_type == "code"), ""):
        notebook.cells.insert(2, new_code_cell(bootstrap()))
    toc = change.text(TOC)
    place = re.search(rf"^( *)- file: {after}\n(?:\1 .*\n)*", toc, re.M)
    last = re.findall(r"- file: (\S+)", place[0])[-1]  # it may have pages below it
    change.edit(
        TOC, f"{toc[: place.end()]}{place[1]}- file: {file}\n{toc[place.end() :]}", "listed"
    )
    block = re.search(rf"^{last}:.*\n(?: +.*\n)*", said := change.text(ABOUT), re.M)
    line = f"{file}: {json.dumps(about, ensure_ascii=False)}\n"
    change.edit(ABOUT, said[: block.end()] + line + said[block.end() :], "listed")
    change.check()
    change.new[f"{file}.ipynb"] = executed(notebook, ROOT / f"{file}.ipynb")
    change.done.append(f"{file}.ipynb: made of {source}")
    for complaint in notebook_rules.complaints(nbformat.reads(change.new[f"{file}.ipynb"], 4)):
        change.leave(f"{file}.ipynb: {complaint}")
    change.leave(f"{file}.ipynb: mend its run card: prerequisites, data, time in laptop")


def executed(notebook: nbformat.NotebookNode, path: Path) -> str:
    """Return a notebook as it will be saved, after a run if it has code of its own; none is saved.

    Raises: ValueError if a cell fails.
    """
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if len(code) == 1:  # the setup, which prints nothing
        code[0].execution_count = 1
        return text_of(format_notebook(notebook, path.stem))
    environment = {"PRETRAIN_PROFILE": "laptop", **os.environ}
    command = [sys.executable, "-m", "tools.run_notebooks", str(path)]
    try:
        path.write_text(text_of(format_notebook(notebook, path.stem)), encoding="utf-8")
        subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", str(path)], cwd=ROOT)
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if run.returncode:
            raise ValueError(f"a cell of it fails, so nothing is written:\n{run.stderr}")
        seconds = max(1, round(float(re.search(r" … ([\d.]+) s", run.stdout)[1])))
        return path.read_text(encoding="utf-8").replace("1 s in every", f"{seconds} s in every")
    finally:
        path.unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    out = commands.add_parser("remove", help="take pages out, with what refers to them")
    out.add_argument("pages", nargs="+", metavar="PAGE", help="such as chapters/tags")
    new = commands.add_parser("add", help="make a chapter of a text or a notebook")
    new.add_argument("source", type=Path, metavar="FILE", help="a .md or an .ipynb")
    new.add_argument("--after", required=True, metavar="PAGE", help="such as chapters/gpt")
    new.add_argument("--about", required=True, help="what it is about, in a few words")
    for command in (out, new):
        command.add_argument("--dry-run", action="store_true", help="write nothing, only say")
    options, change = parser.parse_args(arguments), Change()
    try:
        if options.command == "remove":
            remove(options.pages, change)
        else:
            add(options.source, options.after, options.about, change)
        change.check()
        if not options.dry_run:
            change.write()
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("Would do:" if options.dry_run else "Done:", *change.done, sep="\n  ")
    print("Left to you:", *change.left, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
