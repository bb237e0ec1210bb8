"""The small pictures of index.md, cut out of what the committed notebooks show.

    python -m tools.gallery

Writes _static/gallery/. A picture is a part of a notebook's figure, which is known by the beginning
of its alt text; the song is a line that a notebook prints.
"""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

from PIL import Image, ImageOps

from tools import address
from tools.format_notebooks import read

FOLDER = address.ROOT / "_static" / "gallery"
SIZE = (400, 300)
# Name of the picture: the chapter, how the alt text of the figure begins, and the part of it, as
# shares of its width and height from the left and from the top: left, top, right, bottom.
FIGURES = {
    "digits": ("training", "A handwritten 9 and three groups", (0, 0, 1, 1)),
    "words": ("word2vec", "Two maps of twenty words", (0.505, 0, 1, 1)),
    "pieces": ("bpe", 'The sentence "What is the city', (0, 0, 0.433, 1)),
    "attention": ("transformer", "Two rows of three heat maps", (0.59, 0.45, 0.87, 1)),
    "photograph": ("compression", "The photograph and three copies", (0, 0, 1, 1)),
    "new_digits": ("vae", "A square of 13 by 13 decoded digits", (0.124, 0, 1, 0.885)),
    "gap": ("bert", "Two bar charts of the word in the gap", (0.49, 0, 1, 1)),
    "next_word": ("gpt", "Two bar charts of the next word, the bar of", (0.5, 0, 1, 1)),
    "translator": ("seq2seq", "Three heat maps, columns are the English", (0.628, 0, 0.892, 1)),
    "judge": ("finetuning", "A row of boxes from left to right", (0.53, 0, 1, 1)),
    "reader": ("pairs_and_spans", "Panels one above the other", (0.53, 0.62, 0.815, 1)),
}
CHAPTERS = {path.stem for path in (address.ROOT / "chapters").glob("*.ipynb")}
FIGURES = {name: figure for name, figure in FIGURES.items() if figure[0] in CHAPTERS}
SONG = (
    "chinese",
    r"keep the pattern: ((?:\w+。){3})",
)  # the chapter, and the first lines of a song


def outputs(chapter: str):
    """Yield each cell of code of a chapter, and each of its outputs."""
    for cell in read(address.ROOT / "chapters" / f"{chapter}.ipynb").cells:
        for output in cell.get("outputs", []):
            yield cell, output


def picture(name: str) -> Image.Image:
    """Return a picture of FIGURES, from the notebook as it is committed.

    Raises: ValueError if the chapter has no such figure.
    """
    chapter, beginning, part = FIGURES[name]
    for cell, output in outputs(chapter):
        alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
        if alt.startswith(beginning) and "image/png" in output.get("data", {}):
            png = base64.b64decode(output["data"]["image/png"])
            figure = Image.open(io.BytesIO(png)).convert("RGB")
            box = [round(share * side) for share, side in zip(part, figure.size * 2, strict=True)]
            return ImageOps.pad(figure.crop(box), SIZE, color="white")
    raise ValueError(f"no figure of {chapter} begins with {beginning!r}")


def song() -> str:
    """Return a picture of the last song that its chapter prints, as SVG.

    Raises: ValueError if it prints none.
    """
    chapter, pattern = SONG
    found = [
        s for _, output in outputs(chapter) for s in re.findall(pattern, output.get("text", ""))
    ]
    if not found:
        raise ValueError(f"{chapter} prints no song: nothing is like {pattern!r}")
    lines = re.findall(r"\w+。", found[-1])
    width, height = SIZE
    rows = "".join(
        f'<text x="{width // 2}" y="{height * (i + 1) // (len(lines) + 1) + 12}">{line}</text>'
        for i, line in enumerate(lines)
    )
    look = 'font-size="36" text-anchor="middle" font-family="serif" fill="#222"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" lang="zh">'
        f'<rect width="{width}" height="{height}" fill="white"/><g {look}>{rows}</g></svg>\n'
    )


def write(folder: Path = FOLDER) -> None:
    """Write all pictures."""
    folder.mkdir(exist_ok=True)
    for name in FIGURES:
        picture(name).save(folder / f"{name}.webp", quality=90, method=6)
    if SONG[0] in CHAPTERS:
        (folder / "song.svg").write_text(song(), encoding="utf-8")


if __name__ == "__main__":
    write()
