"""The small pictures of the first page are those of the committed notebooks."""

from __future__ import annotations

import re

import numpy as np
import pytest
from PIL import Image

from tools import address, gallery

CARD = re.compile(r"^:img-top: _static/gallery/(\S+)\n:img-alt: (.+)\n:link: chapters/(\w+)$", re.M)
INDEX = (address.ROOT / "index.md").read_text(encoding="utf-8")
AGAIN = "run `make format` and commit _static/gallery"


@pytest.mark.parametrize("name", gallery.FIGURES)
def test_picture_is_that_of_the_committed_notebook(name):
    with Image.open(gallery.FOLDER / f"{name}.webp") as file:
        kept = np.asarray(file.convert("RGB"), float)
    now = np.asarray(gallery.picture(name), float)
    assert kept.shape == now.shape
    assert kept.std() > 20, "it shows something"
    blocks = np.abs(kept - now).reshape(15, 20, 20, 20, 3).mean((1, 3, 4))
    assert blocks.max() < 12, (
        AGAIN
    )  # a packed picture differs a little everywhere, another one a lot


@pytest.mark.skipif(gallery.SONG[0] not in gallery.CHAPTERS, reason="it is not in this course")
def test_song_is_that_of_the_committed_notebook():
    kept = (gallery.FOLDER / "song.svg").read_text(encoding="utf-8")
    assert kept == gallery.song(), AGAIN
    assert len(re.findall(r"<text[^>]*>\w{7}。</text>", kept)) == 3


def test_index_shows_every_picture_with_its_chapter_and_says_what_is_seen():
    chapters = {f"{name}.webp": chapter for name, (chapter, *_) in gallery.FIGURES.items()}
    if gallery.SONG[0] in gallery.CHAPTERS:
        chapters["song.svg"] = gallery.SONG[0]
    cards = CARD.findall(INDEX)
    assert {picture: chapter for picture, _, chapter in cards} == chapters
    assert len(cards) == INDEX.count("{grid-item-card}")
    assert all(len(alt) > 30 for _, alt, _ in cards)
    assert {path.name for path in gallery.FOLDER.iterdir()} == chapters.keys()
