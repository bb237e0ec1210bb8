"""Draw figures again with Chinese labels, for the Chinese edition: locale/zh_CN/figures/.

    python -m tools.chinese_figures [--list] PAGE…      such as chapters/transformer

The notebook of a page runs in the profile laptop, or PRETRAIN_PROFILE's: smoke is enough for the
diagrams. A figure with a label that figures.po translates is saved, unless the run draws the
English one otherwise than committed: no two show different numbers. --list prints the labels
without a translation. Needed: Debian's fonts-noto-cjk.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
from typing import Any
from unittest import mock

import nbformat
import numpy as np
from IPython.core import pylabtools
from matplotlib.font_manager import findfont
from matplotlib.text import Text
from nbclient import NotebookClient
from PIL import Image, PngImagePlugin

from support import play
from tools import run_notebooks, translation
from tools.translation import figures

FONTS = ["DejaVu Sans", "Noto Sans CJK SC"]
HOOK = "import sys; sys.path.append({!r}); from tools import chinese_figures as c; c.hook({!r})"
LEVELS = 48  # of 255: two drawings of a pixel differ by less


def hook(page: str) -> None:
    """Have this process draw each figure twice; the Chinese one goes into the output's metadata."""
    known, draw, get_text = translation.labels(page), pylabtools.print_figure, Text.get_text

    def both(figure: Any, *args: Any, **options: Any) -> Any:
        labels = {}

        def get_chinese(text: Text) -> str:
            english = get_text(text)
            labels[english] = translation.label(english, known)
            if labels[english] != english:
                text.set_fontfamily(FONTS)
            return labels[english]

        png = draw(figure, *args, **options)
        with mock.patch.object(Text, "get_text", get_chinese):
            return png and (png, {"chinese": draw(figure, *args, **options), "labels": labels})

    pylabtools.print_figure = both


def image(png: str) -> Image.Image:
    """Return the image of a PNG in base64."""
    return Image.open(io.BytesIO(base64.b64decode(png)))


def alike(png: str, other: str) -> bool:
    """Return whether two PNGs show the same, but for how edges are smoothed."""
    one, two = (np.asarray(image(x).convert("RGB"), int) for x in (png, other))
    return one.shape == two.shape and np.abs(one - two).max() < LEVELS


def main() -> None:
    """Save the figures of the pages named, say which are left out, and list labels if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="+", metavar="PAGE")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    findfont(FONTS[1], fallback_to_default=False)  # says what it does not find
    for page in options.pages:
        path, left = translation.ROOT / f"{page}.ipynb", set()
        notebook = nbformat.read(path, as_version=4)
        english = {f: (out.data["image/png"], sha) for f, out, sha in figures(page, notebook)}
        first = nbformat.v4.new_code_cell(HOOK.format(str(translation.ROOT), page))
        notebook.cells.insert(0, first)
        NotebookClient(
            notebook,
            kernel_manager_class=run_notebooks.ThisPython,
            timeout=None,
            resources={"metadata": {"path": str(path.parent)}},
        ).execute(env={"PRETRAIN_PROFILE": "laptop", **os.environ, play.FOLDER: ""})
        for file, out, _ in figures(page, notebook):
            drawn = out.metadata.get("image/png", {"labels": {}})  # which Matplotlib has not drawn
            left |= {text for text, said in drawn["labels"].items() if said == text}
            if left.issuperset(drawn["labels"]):
                continue
            png, sha = english.get(file, ("", ""))
            if not (png and alike(run_notebooks.smaller(out.data["image/png"]), png)):
                print(f"{page}: {file.stem} is left out: the English figure comes out otherwise")
                continue
            info = PngImagePlugin.PngInfo()
            info.add_text("English", sha)
            file.parent.mkdir(parents=True, exist_ok=True)
            chinese = image(run_notebooks.smaller(drawn["chinese"]))
            chinese.save(file, pnginfo=info, optimize=True)
        if options.list:
            print(*sorted(text for text in left if text.upper() != text.lower()), sep="\n")


if __name__ == "__main__":
    main()
