"""Measure the notebooks against the guides for a chapter, and print a table.

    python -m tools.report [NOTEBOOK…]

Without names, all notebooks of chapters/ and solutions/. A number outside its guide is marked with
a star; nothing fails by it. "In view" is what a reader sees without unfolding anything.
"""

from __future__ import annotations

import argparse
import re
import statistics
from pathlib import Path

from nbformat import NotebookNode

from tools.format_notebooks import notebooks, read
from tools.notebook_parts import assertions, in_view, prose_lines, sections

MATH_OR_LINK = re.compile(r"\$\$.*?\$\$|\$[^$]*\$|\]\([^)]*\)|\{[\w:]+\}", re.S)
# Heading, the least and the most that the guides ask for (None where they name no bound).
GUIDES = {
    "cells": (None, 40),
    "median": (None, 8),
    "longest": (None, 25),
    "words": (None, 4_000),
    "words a line": (6, 12),
    "asserts": (None, 5),
    "True": (None, 0),
    "in a row": (None, None),
    "step()": (1, None),
    "exercises": (None, None),
    "summary": (None, None),
}
# The most words in view of the pages that get fewer, or more, than others.
BUDGET = {
    "regularization": 2_500,
    "glove": 3_500, "fasttext": 3_200, "bpe": 3_800, "similarity_and_analogy": 2_800, "bias": 2_800,
    "text_encoders": 3_000, "recurrent_networks": 3_500, "gpt": 3_500, "generation": 2_500,
    "modern_gpt": 3_500,
    "pairs_and_spans": 3_800,
    "codes": 2_500, "compression": 3_500, "questions": 2_600,
    **{f"exercise_27_{n}": 1_800 for n in range(1, 7)},
}  # fmt: skip
LEGEND = """\
In view: cells of code, their median and longest length in lines, words of prose, these for a line
of code, assertions, cells that print True, cells of code that follow one without text between,
cells with `.step()`. Then exercises, and points of the summary. A star: outside the guide below."""


def measure(notebook: NotebookNode) -> dict[str, float]:
    """Return the number below each heading of GUIDES."""
    seen = in_view(notebook)
    code = [cell for cell in seen if cell.cell_type == "code"]
    lengths = [len(cell.source.splitlines()) for cell in code] or [0]
    text = "\n".join(line for c in seen if c.cell_type == "markdown" for line in prose_lines(c))
    words = len(re.findall(r"[^\W\d_]{2,}|[aI]\b", MATH_OR_LINK.sub(" ", text)))
    everything = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    summary = [c.source for title, body in sections(notebook) if title == "Summary" for c in body]
    points = re.split(r"^#+ Summary\s*$", "\n".join(summary), flags=re.M)[-1].split("\n#")[0]
    pairs = zip(seen, seen[1:], strict=False)
    return {
        "cells": len(code),
        "median": statistics.median(lengths),
        "longest": max(lengths),
        "words": words,
        "words a line": round(words / max(sum(lengths), 1), 1),
        "asserts": sum(assertions(cell.source) for cell in code),
        "True": sum(_prints_true(cell) for cell in code),
        "in a row": sum(a.cell_type == b.cell_type == "code" for a, b in pairs),
        "step()": sum(".step()" in cell.source for cell in code),
        "exercises": len(re.findall(r"\{exercise(?:-start)?\}", everything)),
        "summary": len(re.findall(r"^(?:[-*+]|\d+\.) ", points, re.M)),
    }


def _prints_true(cell: NotebookNode) -> bool:
    """Return whether an output of the cell says True."""
    texts = [output.get("text", "") for output in cell.outputs]
    texts += [output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    return any(re.search(r"\bTrue\b", text) for text in texts)


def outside(name: str, heading: str, value: float) -> bool:
    """Return whether a number of the notebook of that name is outside its guide."""
    least, most = GUIDES[heading]
    if heading == "words":
        most = BUDGET.get(name, most)
    return (least is not None and value < least) or (most is not None and value > most)


def table(paths: list[Path]) -> list[str]:
    """Return the lines of the table for these notebooks."""
    measured = {path.stem: measure(read(path)) for path in paths}
    width = max([len(name) for name in measured] + [8])
    bounds = {
        heading: " ".join(
            f"{sign} {bound}" for sign, bound in zip("≥≤", pair, strict=True) if bound is not None
        )
        for heading, pair in GUIDES.items()
    }
    columns = {heading: max(len(heading), len(bounds[heading])) + 2 for heading in GUIDES}
    lines = [" " * width + "".join(f"{heading:>{n}} " for heading, n in columns.items())]
    lines.append(f"{'guide':{width}}" + "".join(f"{bounds[h]:>{n}} " for h, n in columns.items()))
    for name, row in measured.items():
        marked = (
            (h, f"{value:g}", "*" if outside(name, h, value) else " ") for h, value in row.items()
        )
        lines.append(
            f"{name:{width}}" + "".join(f"{v:>{columns[h]}}{star}" for h, v, star in marked)
        )
    return [line.rstrip() for line in lines]


def main(arguments: list[str] | None = None) -> None:
    """Print the table for the notebooks named, or for all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path)
    pages = [path for path in notebooks() if path.parent.name != "labs"]
    print(LEGEND, *table(parser.parse_args(arguments).notebooks or pages), sep="\n")


if __name__ == "__main__":
    main()
