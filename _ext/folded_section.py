"""Fold the sections away whose heading stands in a cell tagged `going-deeper`.

The title stays in sight, in the page and in its table of contents; the rest of the section goes
into a <details>, which needs no JavaScript and which browsers open for a link that leads into it.
"""

from __future__ import annotations

import json
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform

TAG = "going-deeper"
LABELS = {"en": "Going deeper", "zh_CN": "深入一步"}
LINES_OF_A_CELL = 10_000  # MyST-NB counts the lines of the first cell from here, and so on


class Folded(nodes.General, nodes.Element):
    """What a section holds below its title."""


def tags_of_cells(env: BuildEnvironment) -> list[tuple[int, list[str]]]:
    """Return the number and the tags of each cell of the page that is read, if it is a notebook."""
    path = Path(env.doc2path(env.docname))
    if path.suffix != ".ipynb":
        return []
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [(n, cell["metadata"].get("tags", [])) for n, cell in enumerate(cells, 1)]


class FoldSections(SphinxPostTransform):
    """Folds the tagged sections of a notebook; by then the tables of contents are made."""

    default_priority = 198
    formats = ("html",)

    def run(self, **kwargs: object) -> None:
        """Put all but the title of each tagged section into one node."""
        tagged = {n for n, tags in tags_of_cells(self.env) if TAG in tags}
        for section in list(self.document.findall(nodes.section)):
            cell = (section.line or 0) // LINES_OF_A_CELL
            if cell in tagged:
                tagged.remove(cell)  # a heading further down in the cell is folded with it
                title, *body = section.children
                section.children = [title]
                section += Folded("", *body)


def open_fold(translator: nodes.NodeVisitor, node: Folded) -> None:
    """Write the start of the fold."""
    label = LABELS.get(translator.config.language, LABELS["en"])
    translator.body.append(f'<details class="going-deeper"><summary>{label}</summary>\n')


def close_fold(translator: nodes.NodeVisitor, node: Folded) -> None:
    """Write its end."""
    translator.body.append("</details>\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the transform and its node to Sphinx."""
    app.add_node(Folded, html=(open_fold, close_fold))
    app.add_post_transform(FoldSections)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
