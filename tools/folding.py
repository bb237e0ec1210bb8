"""What the reader does not see at first: one tag a cell, and all that follows from it.

A cell is folded by one tag:

    setup          the first code cell, which makes `support` importable
    settings       all sizes and rates of the notebook, for the three profiles
    plot           the code of a figure; the figure is shown
    checks         the assertions that prove a section
    solution       what a reader of a lab writes; `fold` finds it by nbgrader's mark
    going-deeper   a whole section; the tag is at the text cell that opens with the heading

`fold` derives from it how the book, JupyterLab and Colab show the cell. In the book Settings and
Checks are folded whole, code and output; whoever runs a notebook sees what Settings has chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

from nbformat import NotebookNode, from_dict

GOING_DEEPER = "going-deeper"
IGNORED = "nbval-ignore-output"


@dataclass(frozen=True)
class Fold:
    """How a code cell is folded: the title of the fold, and what lies within."""

    title: str  # in the book while closed, and on Colab
    open_title: str  # in the book while open
    in_book: str  # MyST-NB's tag
    output_in_lab: bool = True  # whether JupyterLab shows the output
    compared: bool = True  # whether the output is the same in every profile


FOLDS = {
    "setup": Fold("Setup", "Setup", "hide-input"),
    "settings": Fold("Settings", "Settings", "hide-cell", compared=False),
    "plot": Fold("Show the code", "Hide the code", "hide-input"),
    "checks": Fold("Checks", "Checks", "hide-cell", output_in_lab=False),
    "solution": Fold("Show the solution", "Hide the solution", "hide-input"),
}
# What `fold` derives, and what an editor leaves of one run; all other metadata is the author's.
DERIVED = {"cellView", "id", "jp-MarkdownHeadingCollapsed", "jupyter", "mystnb", "tags"}
PASSING = {"ExecuteTime", "collapsed", "execution", "outputId", "scrolled", "trusted"}
DERIVED_TAGS = {"hide-input", "hide-output", "hide-cell"}
TITLE_LINES = {tag: f"# @title {fold.title}" for tag, fold in FOLDS.items()}


def fold_tag(cell: NotebookNode) -> str | None:
    """Return the tag by which the code cell is folded, or None."""
    return next((tag for tag in FOLDS if tag in cell.metadata.get("tags", [])), None)


def fold(cell: NotebookNode) -> None:
    """Derive from the cell's tag how it is folded: metadata, and a code cell's first line.

    Metadata that the course does not know, such as nbgrader's, stays.
    """
    tags = [tag for tag in cell.metadata.get("tags", []) if tag not in DERIVED_TAGS]
    mystnb = {k: v for k, v in cell.metadata.get("mystnb", {}).items() if "prompt" not in k}
    metadata = {k: v for k, v in cell.metadata.items() if k not in DERIVED | PASSING}
    if cell.cell_type == "code":
        solved = "### BEGIN SOLUTION" in cell.source and "solution" not in tags
        tags += ["solution"] * solved
        name = next((tag for tag in FOLDS if tag in tags), None)
        cell.source = _without_title(cell.source)
        if name:
            own = FOLDS[name]
            rest = [tag for tag in tags if tag not in (name, IGNORED)]
            ignored = IGNORED in tags or not own.compared
            tags = [name, own.in_book, *[IGNORED] * ignored, *rest]
            mystnb |= {"code_prompt_show": own.title, "code_prompt_hide": own.open_title}
            metadata["jupyter"] = {"source_hidden": True}
            if not own.output_in_lab:
                metadata["jupyter"]["outputs_hidden"] = True
            metadata["cellView"] = "form"
            cell.source = f"{TITLE_LINES[name]}\n{cell.source}"
    elif GOING_DEEPER in tags:
        metadata["jp-MarkdownHeadingCollapsed"] = True
        metadata["id"] = cell.id  # by which Colab's collapsed_sections names it
    metadata |= {key: value for key, value in (("tags", tags), ("mystnb", mystnb)) if value}
    cell.metadata = from_dict(metadata)


def collapsed_on_colab(cells: list[NotebookNode]) -> dict:
    """Return the part of a notebook's metadata that folds its tagged sections on Colab."""
    ids = [cell.id for cell in cells if GOING_DEEPER in cell.metadata.get("tags", [])]
    return {"colab": {"collapsed_sections": ids}} if ids else {}


def _without_title(source: str) -> str:
    """Return the source without the line that an earlier run has put first."""
    first, _, rest = source.partition("\n")
    return rest if first in TITLE_LINES.values() else source
