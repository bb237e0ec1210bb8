"""The parts of a notebook that rules and reports speak of: cells, sections, prose, assertions."""

from __future__ import annotations

import ast
import re

from nbformat import NotebookNode

from tools import folding

FENCE = re.compile(r"^(?P<fence>`{3,}|:{3,})(?P<rest>.*)$")


def cells(notebook: NotebookNode, kind: str) -> list[NotebookNode]:
    """Return the notebook's cells of one kind, code or markdown."""
    return [cell for cell in notebook.cells if cell.cell_type == kind]


def code(notebook: NotebookNode) -> list[tuple[int, NotebookNode]]:
    """Return the code cells, numbered from 1 as a reader counts them."""
    return list(enumerate(cells(notebook, "code"), start=1))


def tags(cell: NotebookNode) -> set[str]:
    """Return the cell's tags."""
    return set(cell.metadata.get("tags", []))


def prose_lines(cell: NotebookNode) -> list[str]:
    """Return the lines of a markdown cell, those inside fences of code left out."""
    lines = []
    open_fences: list[tuple[str, bool]] = []  # each with whether it holds code
    for line in cell.source.splitlines():
        match = FENCE.match(line.strip())
        fence, rest = (match["fence"], match["rest"].strip()) if match else ("", "")
        inner, in_code = open_fences[-1] if open_fences else ("", False)
        if fence and not rest and fence.startswith(inner or "none"):
            open_fences.pop()
        elif not in_code:
            if fence:
                open_fences.append((fence, fence[0] == "`" and not rest.startswith("{")))
            lines.append(line)
    return lines


def prose(notebook: NotebookNode) -> list[str]:
    """Return the lines of all markdown cells, those inside fences of code left out."""
    return [line for cell in cells(notebook, "markdown") for line in prose_lines(cell)]


def heading(cell: NotebookNode) -> tuple[int, str]:
    """Return level and title of the first heading in a cell, or 0 and nothing without one."""
    if cell.cell_type == "markdown":
        for line in prose_lines(cell):
            if match := re.match(r"(#+) +(.+?)\s*$", line):
                return len(match[1]), match[2]
    return 0, ""


def sections(notebook: NotebookNode) -> list[tuple[str, list[NotebookNode]]]:
    """Return title and cells of each section, from one heading to the next of any level.

    Cells above the first heading below the notebook's title stand under an empty one.
    """
    found: list[tuple[str, list[NotebookNode]]] = [("", [])]
    for cell in notebook.cells:
        level, title = heading(cell)
        if level >= 2:
            found.append((title, []))
        found[-1][1].append(cell)
    return found


def assertions(source: str) -> int:
    """Return how many assertions a cell of code holds."""
    lines = [line for line in source.splitlines() if not line.lstrip().startswith(("%", "!"))]
    try:
        nodes = list(ast.walk(ast.parse("\n".join(lines))))
    except SyntaxError:  # a cell that shows one
        return 0
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    names = [getattr(call, "attr", getattr(call, "id", "")) for call in calls]
    asserts = sum(isinstance(node, ast.Assert) for node in nodes)
    return asserts + sum(name.startswith("assert_") for name in names)


def in_view(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the cells that a reader sees without unfolding anything, figures' code left out.

    Folded are the tagged cells, the sections to go deeper, and the solutions of exercises.
    """
    seen = []
    deeper = 0  # level of the heading of the folded section that we are in
    in_solution = False
    for cell in notebook.cells:
        level, _ = heading(cell)
        if level and level <= deeper:
            deeper = 0
        if not deeper and folding.GOING_DEEPER in tags(cell):
            deeper = level
        lines = prose_lines(cell) if cell.cell_type == "markdown" else []
        was_in_solution = in_solution
        for line in lines:
            if gate := re.search(r"\{solution-(start|end)\}", line):
                in_solution = gate[1] == "start"
        if not deeper and not was_in_solution and not folding.fold_tag(cell):
            seen.append(cell)
    return seen
