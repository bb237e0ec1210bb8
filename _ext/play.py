"""The explorers: a page that has one gets their scripts, and `{play}` puts one on another page.

    ```{play} gpt
    ```

stands for the explorer of the notebook whose figure is tagged `play-gpt`, and that figure with it.
"""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util.docutils import SphinxDirective

FOLDER = "play/"
BOX = re.compile(r'<div class="cell[^"]* tag_play-([\w-]+)[^>]*>')
ABSENT = {  # what stands above the figure where the page may run no scripts
    "en": "The text speaks of a box to play with. It needs JavaScript; here is a figure instead.",
    "zh_CN": "文中所说的交互框需要 JavaScript，这里以一张图代替。",
}


def figure(root: Path, name: str) -> tuple[Path, str, str]:
    """Return the notebook with the figure of an explorer, the figure as PNG, and its alt text.

    Raises: ValueError if no notebook has it.
    """
    for path in sorted(root.glob("*/*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if f"play-{name}" not in cell["metadata"].get("tags", []):
                continue
            for output in cell["outputs"]:
                if png := output.get("data", {}).get("image/png"):
                    alt = cell["metadata"]["mystnb"]["image"]["alt"]
                    return path, "".join(png).replace("\n", ""), alt
    raise ValueError(f"no notebook has a figure tagged play-{name}")


class Play(SphinxDirective):
    """The place of an explorer, with its figure."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the figure in a box of the class that the explorers look for.

        Raises: an error of the directive if no notebook has it.
        """
        name = self.arguments[0]
        try:
            path, png, alt = figure(Path(self.env.srcdir), name)
        except ValueError as error:
            raise self.error(str(error)) from None
        self.env.note_dependency(str(path))
        image = f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{png}" />'
        box = f'<div class="cell tag_play-{name}"><div class="cell_output">{image}</div></div>'
        return [nodes.raw("", box, format="html")]


def leave_out(app: Sphinx, config: Config) -> None:
    """Take the explorers out of what Jupyter Book puts on every page: all that lies in _static."""
    for files in (config.html_js_files, config.html_css_files):
        files[:] = [file for file in files if not str(file[0]).startswith(FOLDER)]


def put_in(app: Sphinx, pagename: str, template: str, context: dict, doctree: object) -> None:
    """Put the ground of the explorers on a page that has one; it loads the rest."""
    names = BOX.findall(context.get("body", ""))
    if names:
        absent = ABSENT.get(app.config.language, ABSENT["en"])
        note = f"<noscript><p>{absent}</p></noscript>"
        context["body"] = BOX.sub(rf"\g<0>{note}", context["body"])
        app.add_js_file(f"{FOLDER}play.js")
        app.add_css_file(f"{FOLDER}play.css")
    for name in names:
        if (Path(app.srcdir) / "_static" / FOLDER / f"{name}.css").exists():
            app.add_css_file(f"{FOLDER}{name}.css")


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx what to call."""
    app.add_directive("play", Play)
    app.connect("config-inited", leave_out, priority=900)  # after Sphinx has made pairs of them
    app.connect("html-page-context", put_in)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
