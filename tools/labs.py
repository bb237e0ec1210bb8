"""Make the labs' notebooks for readers and for teachers, and let a chapter grade answers.

    python -m tools.labs make
    python -m tools.labs chapter chapters/bpe.ipynb FILE…

A notebook in labs/ is solved, and the only source. `make` writes below _build/labs/ the blank and
the solved ones, nbgrader's source/ and Otter's masters. With `chapter` the functions and classes of
a file take the place of the chapter's own, the chapter is run in smoke, and the first cell that
fails is named.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_raw_cell

from tools import address, folding
from tools.format_notebooks import METADATA, read, text_of

LABS = address.ROOT / "labs"
OUT = address.ROOT / "_build" / "labs"
SOLUTION = re.compile(r"^( *)### BEGIN SOLUTION\n.*?### END SOLUTION$", re.M | re.S)
STUB = 'raise NotImplementedError("write this part")'
CHECK = re.compile(r"^labs\.check\(.*\)$", re.M)


def paths() -> list[Path]:
    """Return the solved notebooks of all labs."""
    return sorted(LABS.glob("*.ipynb"))


def blank(notebook: nbformat.NotebookNode, outputs: bool = False) -> nbformat.NotebookNode:
    """Return a copy with no solution and no output; with `outputs`, those of the other cells."""
    notebook = copy.deepcopy(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.source, solutions = SOLUTION.subn(rf"\1{STUB}", cell.source)
            if solutions or not outputs:
                cell.outputs, cell.execution_count = [], None
            cell.metadata.tags = [t for t in cell.metadata.get("tags", []) if t != "solution"]
            folding.fold(cell)
    return notebook


def linked(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return a copy whose links to chapters have their titles, and lead to the published pages."""

    def link(match: re.Match) -> str:
        [title] = re.findall(r"\A# (.+)", read(address.ROOT / f"{match[1]}.ipynb").cells[0].source)
        return f"[{title}]({address.pages(address.repository())}{match[1]}.html)"

    notebook = copy.deepcopy(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"\[\]\(\.\./(\w+/\w+)\.ipynb\)", link, cell.source)
    return notebook


def unfolded(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return a copy as the blank one, but with the solutions."""
    copied, title = blank(notebook), folding.TITLE_LINES["solution"] + "\n"
    copied.metadata = nbformat.from_dict(METADATA)
    for cell, solved in zip(copied.cells, notebook.cells, strict=True):
        cell.source = solved.source.removeprefix(title)
    return copied


def for_nbgrader(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return a copy whose cells are marked for nbgrader; a check is worth one point."""
    notebook = unfolded(notebook)
    for cell in notebook.cells:
        solution, check = bool(SOLUTION.search(cell.source)), bool(CHECK.search(cell.source))
        if cell.cell_type == "code" and (solution or check):
            cell.source = CHECK.sub(r"result = \g<0>\nassert result, result\nresult", cell.source)
            cell.metadata["nbgrader"] = {
                "grade": check, "solution": solution, "locked": check, "task": False,
                "grade_id": cell.id, "schema_version": 3, "cell_type": "code",
            } | ({"points": 1} if check else {})  # fmt: skip
    return notebook


def for_otter(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return a copy as Otter's master notebook: a question for each check.

    The reader's version has the cells of the blank notebook: it runs without Otter, whose own tests
    are hidden. Otter finds them by their names once the notebook has been handed in.
    """
    notebook, cells, waiting = unfolded(notebook), [], []
    for cell in notebook.cells:
        solution = cell.cell_type == "code" and SOLUTION.search(cell.source)
        check = cell.cell_type == "code" and CHECK.search(cell.source)
        if solution:
            cell.source = SOLUTION.sub(in_otter, cell.source)
            waiting += [new_raw_cell("# BEGIN SOLUTION"), cell, new_raw_cell("# END SOLUTION")]
        elif waiting or check:
            waiting.append(cell)
        else:
            cells.append(cell)
        if check:
            name = check[0].split('"')[1].replace(".", "_")
            question = f"# BEGIN QUESTION\nname: {name}\npoints: 1\ncheck_cell: false"
            test = new_code_cell(f"# HIDDEN\nassert {check[0]}")
            cells += [new_raw_cell(question), *waiting, new_raw_cell("# BEGIN TESTS"), test]
            cells += [new_raw_cell("# END TESTS"), new_raw_cell("# END QUESTION")]
            waiting = []
    if waiting:
        raise ValueError(f"no check follows the solution {waiting[1].id}")
    config = "# ASSIGNMENT CONFIG\ninit_cell: false\nexport_cell: false"
    notebook.cells = [new_raw_cell(config), *cells]
    return notebook


def in_otter(solution: re.Match) -> str:
    """Return a solution with Otter's marks, and the stub that takes its place."""
    indent, body = solution[1], "\n".join(solution[0].split("\n")[1:-1])
    stub = f'""" # BEGIN PROMPT\n{indent}{STUB}\n{indent}"""; # END PROMPT'
    marks = f"{indent}# BEGIN SOLUTION NO PROMPT\n{body}\n{indent}# END SOLUTION"
    return f"{marks}\n{indent}{stub}"


def make(out: Path = OUT) -> list[Path]:
    """Write every form of every lab, and return the files written."""
    written = []
    for path in paths():
        lab = linked(read(path))
        for folder, notebook in (
            ("blank", blank(lab)),
            ("solved", lab),
            (f"nbgrader/source/{path.stem}", for_nbgrader(lab)),
            (f"otter/{path.stem}", for_otter(lab)),
        ):
            file = out / folder / path.name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text_of(notebook), encoding="utf-8")
            written.append(file)
    return written


def in_chapter(path: Path, chapter: Path) -> str:
    """Run a chapter in smoke with the answers of a file; return which cell fails first, or none."""
    from support.labs.__main__ import definitions, sources  # which needs torch, unlike the rest

    kinds = ast.FunctionDef, ast.ClassDef
    own = {n.name: ast.unparse(n) for n in definitions(sources(path)) if isinstance(n, kinds)}
    notebook, replaced = nbformat.read(chapter, 4), {}
    for cell in reversed([cell for cell in notebook.cells if cell.cell_type == "code"]):
        lines = cell.source.split("\n")
        for node in reversed(ast.parse(cell.source).body):
            if isinstance(node, kinds) and node.name in own and node.name not in replaced:
                lines[node.lineno - 1 : node.end_lineno] = own[node.name].split("\n")
                replaced[node.name] = cell.id
        cell.source = "\n".join(lines)
    if not replaced:
        return f"the chapter has none of {', '.join(own) or 'its functions: there are none'}"
    said = f"with your {', '.join(reversed(replaced))}"
    where = {"metadata": {"path": str(chapter.resolve().parent)}}
    try:
        NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where).execute(
            env=os.environ | {"PRETRAIN_PROFILE": "smoke"}
        )
    except CellExecutionError as error:
        cell = next(c for c in notebook.cells if any(o.get("ename") for o in c.get("outputs", [])))
        start = cell.source.removeprefix("# @title Checks\n").split("\n")[0]
        return f"{said}, cell {cell.id} fails ({start!r}): {error.ename}: {error.evalue[:300]}"
    return f"{said}, every cell runs and every check passes"


def main(arguments: list[str] | None = None) -> int:
    """Do what is asked; the exit status is 0 where every answer passes."""
    parser = argparse.ArgumentParser(prog="tools.labs", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("make")
    chapter = commands.add_parser("chapter")
    chapter.add_argument("chapter", type=Path)
    chapter.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "make":
        print(f"{len(make())} notebooks of {len(paths())} labs are in {os.path.relpath(OUT)}/")
        return 0
    said = [in_chapter(path, options.chapter) for path in options.files]
    print(*(f"{path}: {what}" for path, what in zip(options.files, said, strict=True)), sep="\n")
    return int(not all(what.endswith("every check passes") for what in said))


if __name__ == "__main__":
    sys.exit(main())
