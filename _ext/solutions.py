"""The book without a solution, for handing out: `SOLUTIONS=none make book`.

They are taken out of a page's source when Sphinx reads it, so nothing made of it has them: no page,
figure, search index or plain notebook. A lab keeps its stubs, a page in solutions/ its title.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx_exercise.nodes import solution_node

from tools import labs

LEFT_OUT = "The solutions are left out of this edition."
GATE = re.compile(r"^(`{3,}|:{3,})\{solution(-start|-end|)\}.*?^\1[ \t]*$", re.M | re.S)


def cut(text: str, within: bool = False) -> tuple[str, bool]:
    """Return a text without solutions. within: is one open where it begins? And where it ends?"""
    kept, done = "", 0
    for gate in GATE.finditer(text):
        kept += "" if within else text[done : gate.start()]
        within, done = gate[2] == "-start", gate.end()
    return kept + ("" if within else text[done:]), within


def without(notebook: nbformat.NotebookNode, folder: str) -> nbformat.NotebookNode:
    """Return a notebook of a folder without solutions; its cells keep their numbers."""
    new, within = nbformat.v4.new_markdown_cell, False
    if folder == "solutions":
        title = re.search("^# .*", notebook.cells[0].source, re.M)[0]
        notebook.cells = [new(f"{title}\n\n{LEFT_OUT}", id=notebook.cells[0].id)]
    for n, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            cell.source, within = cut(cell.source, within)
        elif within:
            notebook.cells[n] = new(id=cell.id)
    return labs.blank(notebook, outputs=True) if folder == "labs" else notebook


def take_out(app: Sphinx, docname: str, source: list[str]) -> None:
    """Take the solutions out of the source of a page; those who translate get them all."""
    path = Path(app.env.doc2path(docname))
    if path.suffix == ".ipynb" and app.builder.name != "gettext":
        notebook = nbformat.reads(source[0], as_version=4)
        source[0] = nbformat.writes(without(notebook, path.parent.name))


def complain(app: Sphinx, doctree: nodes.document) -> None:
    """Warn of a solution that is still there, such as one in a list or in a page of text."""
    for node in doctree.findall(solution_node):
        logging.getLogger(__name__).warning("a solution is not left out", location=node)


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx what to call. Another value of the variable has it read all pages anew."""
    wanted = os.environ.get("SOLUTIONS", "all")
    app.add_config_value("solutions", wanted, "env")
    if wanted == "none":
        app.connect("source-read", take_out)
        app.connect("doctree-read", complain)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
