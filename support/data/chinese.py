"""Chinese texts: news titles in ten classes, poems of the Song dynasty (ci), and tagged resumes.

Each loader takes `source` as those of `datasets` do. The stand-ins are sentences of our own, which
`chinese.txt` makes from a small grammar.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from support.data import datasets, readers
from support.data.catalog import FILES
from support.data.datasets import LabeledTexts
from support.data.files import read
from support.data.tasks import TaggedTexts

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

    train has the first 45,000 titles of the file to train on, without the 128 that stand
    in dev or test too. Embedded: 3,200, 400 and 400 titles.
    Source: Sun et al. 2016 (THUCNews); the choice of titles is that of its public copy.
    """
    datasets.check("split", split, tuple(_TITLE_FILES))
    wanted = list(_TITLE_FILES) if split == "train" else [split]
    found = datasets.find(source, [f"thucnews/{_TITLE_FILES[name]}.txt" for name in wanted])
    if not found:
        return _made_titles(split)
    paths, origin = found
    texts, labels = _titles(read(paths[0]), str(paths[0]))
    known = {text for path in paths[1:] for text in _titles(read(path), str(path))[0]}
    kept = [i for i, text in enumerate(texts) if text not in known]
    return LabeledTexts([texts[i] for i in kept], labels[kept], TITLE_CLASSES, origin)


def song_ci(*, source: str = "auto") -> Poems:
    """Return 21,000 ci of the Song dynasty, in simplified characters, each different one once.

    Left out are poems in which a character is lost (□ or �) and entries without a text. Embedded:
    1,000 made ones.
    Source: the collection chinese-poetry (MIT license), after the Complete Song Ci.
    """
    found = datasets.find(source, [path for path in FILES if path.startswith("song_ci/")])
    if not found:
        return Poems(_made_poems(1_000), "embedded")
    paths, origin = found
    poems = []
    for path in paths:
        for entry in json.loads(readers.text(read(path), str(path))):
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
    datasets.check("split", split, ("train", "dev", "test"))
    found = datasets.find(source, [f"resume_ner/{split}.char.bmes"])
    if not found:
        return _made_resumes(split)
    [path], origin = found
    return TaggedTexts(*_tagged(read(path), str(path)), origin)


def _titles(data: bytes, name: str) -> tuple[list[str], np.ndarray]:
    """Return the titles of a file and their labels (N,), from lines "title, tab, label"."""
    texts, labels = [], []
    for number, line in enumerate(readers.text(data, name).splitlines(), 1):
        text, _, label = line.rpartition("\t")
        if not re.fullmatch("[0-9]", label) or not text:
            raise ValueError(f"{name}, line {number}: expected a title, a tab, a digit: {line!r}")
        texts.append(text)
        labels.append(int(label))
    return texts, np.array(labels, dtype=np.int64)


def _tagged(data: bytes, name: str) -> tuple[list[list[str]], list[list[str]]]:
    """Return characters and tags of each sentence; a blank line ends one."""
    rows: list[list[list[str]]] = [[]]
    for number, line in enumerate(readers.text(data, name).splitlines(), 1):
        parts = line.split(" ")
        if not line:
            rows.append([])
        elif len(parts) == 2 and len(parts[0]) == 1:
            rows[-1].append(parts)
        else:
            raise ValueError(f"{name}, line {number}: expected a character and a tag: {line!r}")
    rows = [row for row in rows if row]
    return [[c for c, _ in row] for row in rows], [[tag for _, tag in row] for row in rows]


# The stand-ins.


def _parts() -> dict[str, list[str]]:
    text = Path(__file__).with_name("chinese.txt").read_text(encoding="utf-8")
    _, *parts = re.split(r"^== (\w+)\n", text, flags=re.M)
    return {name: part.split("\n") for name, part in zip(parts[::2], parts[1::2], strict=True)}


_PARTS = {name: [line for line in lines if line] for name, lines in _parts().items()}
_WORDS = {name: words for name, *words in map(str.split, _PARTS["words"])}


def _filled(pattern: str, rng: random.Random) -> list[tuple[str, str]]:
    """Return the pieces of a pattern, its words chosen, and the tag of each, "" for none."""
    pieces = []
    for literal, names, tag in re.findall(r"([^{]+)|\{([a-z+]+):?([A-Z]*)\}", pattern):
        drawn = "".join(rng.choice(_WORDS[name]) for name in names.split("+") if name)
        pieces.append((literal or drawn, tag))
    return pieces


def _text(pieces: list[tuple[str, str]]) -> str:
    return "".join(piece for piece, _ in pieces)


def _different(n: int, draw: Callable[[random.Random], tuple]) -> list[tuple]:
    """Return n draws, no two of which have the same text, their first item."""
    rng, found = random.Random(0), {}
    while len(found) < n:
        drawn = draw(rng)
        found.setdefault(drawn[0], drawn)
    return list(found.values())


def _tenth(items: list[tuple], split: str) -> list[tuple]:
    """Return the items of a split: of ten, one is for dev, one for test, the others for train."""
    ends: Mapping[int, str] = {8: "dev", 9: "test"}
    return [item for i, item in enumerate(items) if ends.get(i % 10, "train") == split]


def _made_titles(split: str) -> LabeledTexts:
    def draw(rng: random.Random) -> tuple[str, int]:
        name, pattern = rng.choice(_PARTS["titles"]).split(" ", 1)
        return _text(_filled(pattern, rng)), TITLE_CLASSES.index(name)

    made = _tenth(_different(4_000, draw), split)
    labels = np.array([label for _, label in made], dtype=np.int64)
    return LabeledTexts([text for text, _ in made], labels, TITLE_CLASSES, "embedded")


def _made_poems(n: int) -> list[Poem]:
    rng = random.Random(0)
    sized: dict[int, list[str]] = {}
    for pattern in _PARTS["lines"]:
        sized.setdefault(len(_text(_filled(pattern, rng))), []).append(pattern)
    poems = []
    for i in range(n):
        tune, *sizes = rng.choice(_PARTS["tunes"]).split()
        lines = (_text(_filled(rng.choice(sized[int(size)]), rng)) + "。" for size in sizes)
        poems.append(Poem(tune, f"made {i % 20}", tuple(lines)))
    return poems


def _made_resumes(split: str) -> TaggedTexts:
    def draw(rng: random.Random) -> tuple[str, list[tuple[str, str]]]:
        pieces = _filled(rng.choice(_PARTS["resumes"]), rng)
        return _text(pieces), pieces

    made = _tenth(_different(1_000, draw), split)
    tags = [[tag for piece in pieces for tag in _bmes(*piece)] for _, pieces in made]
    return TaggedTexts([list(text) for text, _ in made], tags, "embedded")


def _bmes(text: str, kind: str) -> list[str]:
    """Return the tags of a piece of text: a whole entity of a kind, or none."""
    if not kind:
        return ["O"] * len(text)
    if len(text) == 1:
        return [f"S-{kind}"]
    return [f"B-{kind}", *[f"M-{kind}"] * (len(text) - 2), f"E-{kind}"]
