"""Chinese texts: news titles in ten classes, poems of the Song dynasty (ci), and tagged resumes.

Each loader takes `source` as those of `datasets` do. The stand-ins are sentences of our own, made
from a small grammar, in the form of the real files.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from support.data.catalog import FILES
from support.data.datasets import LabeledTexts, check, find
from support.data.files import read
from support.data.tasks import TaggedTexts, read_tagged

TITLE_CLASSES = tuple(
    "finance realty stocks education science society politics sports game entertainment".split()
)
# The file that stands for a split; of the 180,000 titles to train on, these are the first.
_TITLE_FILES = {"train": "train.head45000", "dev": "dev", "test": "test"}


@dataclass(frozen=True)
class Poem:
    """A poem: the tune whose pattern it follows, its poet, and its lines with their punctuation."""

    tune: str
    author: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Poems:
    """Poems and their origin."""

    poems: list[Poem]
    origin: str


def thucnews(split: str = "train", *, source: str = "auto") -> LabeledTexts:
    """Return Chinese news titles in ten classes; split train, dev or test (10,000 each).

    train has the first 45,000 titles of the file to train on, without the 128 that are in dev or
    test too. Embedded: 3,200, 400 and 400 titles.
    Source: Sun et al. 2016 (THUCNews); the choice of titles is that of its public copy.
    """
    check("split", split, tuple(_TITLE_FILES))
    names = list(_TITLE_FILES) if split == "train" else [split]
    paths, origin = find(source, [f"thucnews/{_TITLE_FILES[name]}.txt" for name in names])
    own, *others = [_titles(path) for path in paths]
    known = {text for titles in others for text, _ in titles}
    kept = [(text, label) for text, label in own if text not in known]
    labels = np.array([label for _, label in kept], dtype=np.int64)
    return LabeledTexts([text for text, _ in kept], labels, TITLE_CLASSES, origin)


def song_ci(*, source: str = "auto") -> Poems:
    """Return 21,000 ci of the Song dynasty, in simplified characters, each different one once.

    Left out are poems in which a character is lost (□ or �) and entries without a text. Embedded:
    1,000 made ones.
    Source: the collection chinese-poetry (MIT license), after the Complete Song Ci.
    """
    paths, origin = find(source, [path for path in FILES if path.startswith("song_ci/")])
    poems = []
    for path in paths:
        for entry in json.loads(read(path)):
            lines = tuple(line.strip() for line in entry["paragraphs"])
            poems.append(Poem(entry["rhythmic"], entry["author"], lines))
    lost = re.compile("[□�*]|^$|（缺词文）")
    whole = [poem for poem in poems if not lost.search("".join(poem.lines))]
    return Poems(list({poem.lines: poem for poem in reversed(whole)}.values())[::-1], origin)


def resume_ner(split: str = "train", *, source: str = "auto") -> TaggedTexts:
    """Return sentences of Chinese resumes, a tag for each character; split train, dev or test.

    The tags are BMES: B begins an entity of several characters, M is within it, E ends it, S is an
    entity of one, and O is none: B-NAME, E-NAME. 3,821, 463 and 477 sentences; embedded 800, 100
    and 100. Source: Zhang and Yang 2018.
    """
    check("split", split, ("train", "dev", "test"))
    [path], origin = find(source, [f"resume_ner/{split}.char.bmes"])
    return TaggedTexts(*read_tagged(path, " "), origin)


def _titles(path: Path) -> list[tuple[str, int]]:
    """Return the titles of a file and their labels, from lines "title, tab, label"."""
    lines = (line.rpartition("\t") for line in read(path).decode("utf-8").splitlines())
    return [(text, int(label)) for text, _, label in lines]
