"""Mark in the pages what tools/slides.py puts on slides: the cells tagged `slide` or `fragment`.

Each node of such a cell gets the class `slide-N` or `fragment-N`, N being the number of the cell.
"""

from __future__ import annotations

from docutils import nodes
from folded_section import LINES_OF_A_CELL, tags_of_cells
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

TAGS = ("slide", "fragment")


class MarkSlides(SphinxPostTransform):
    """Adds the classes, before sections are folded."""

    default_priority = 190
    formats = ("html",)

    def run(self, **kwargs: object) -> None:
        """Mark the nodes right below the sections of a notebook."""
        marks = {
            n: f"{tag}-{n}" for n, tags in tags_of_cells(self.env) for tag in TAGS if tag in tags
        }
        for section in self.document.findall(nodes.section):
            for node in section.children:
                number = getattr(node, "line", None) or 0
                if "cell_index" in getattr(node, "attributes", {}):  # a cell of code
                    number = (node["cell_index"] + 1) * LINES_OF_A_CELL
                if mark := marks.get(number // LINES_OF_A_CELL):
                    node["classes"].append(mark)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the transform to Sphinx."""
    app.add_post_transform(MarkSlides)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
