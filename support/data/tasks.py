"""Labeled sets to fine-tune on: real ones, or stand-ins of the same form.

Every loader takes split and source, and raises errors, as those of `support.data.datasets` do. The
stand-ins are no copies of the real tasks: the classes of `rt_polarity` and `bbc` are topics there,
and the pairs, tags and questions, made from ToyWorld's grammar, are about people, countries and
their food. The folder `embedded` has them in the form of the real files.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from support.data.catalog import FILES
from support.data.datasets import (
    AG_NEWS_CLASSES,
    LabeledTexts,
    check,
    find,
    one_of_five,
    toy_paragraphs,
    wants_embedded,
)
from support.data.files import data_dir, joined, read

BBC_CLASSES = ("business", "entertainment", "politics", "sport", "tech")
SICK_CLASSES = ("entailment", "neutral", "contradiction")


@dataclass(frozen=True)
class TextPairs:
    """N pairs of texts with labels (N,) int64, each an index into classes."""

    first: list[str]
    second: list[str]
    labels: np.ndarray
    classes: tuple[str, ...]
    origin: str


@dataclass(frozen=True)
class TaggedTexts:
    """Sentences, each a list of words, and a tag for each word: O, B-kind or I-kind."""

    words: list[list[str]]
    tags: list[list[str]]
    origin: str


@dataclass(frozen=True)
class Question:
    """A question about a context, and the answers that people gave: context[start:] begins so."""

    title: str
    context: str
    question: str
    answers: tuple[str, ...]
    starts: tuple[int, ...]


@dataclass(frozen=True)
class Questions:
    """Questions, those about one context next to each other."""

    items: list[Question]
    origin: str


def rt_polarity(split: str = "train", *, source: str = "auto") -> LabeledTexts:
    """Return sentences from film reviews, negative or positive; split train or test.

    Of each class every fifth sentence is for testing (2,132), the others for training (8,530).
    Source: Pang and Lee 2005.
    """
    check("split", split, ("train", "test"))
    found = find(source, [f"rt-polarity/rt-polarity.{end}" for end in ("neg", "pos")])
    if not found:
        texts, topics = toy_paragraphs(split)
        two = np.flatnonzero(topics < 2)
        return LabeledTexts([texts[i] for i in two], topics[two], AG_NEWS_CLASSES[:2], "embedded")
    paths, origin = found
    lines = [read(path).decode("cp1252").splitlines() for path in paths]
    texts = [line.strip() for part in lines for line in part]
    labels = np.repeat(np.arange(2), [len(part) for part in lines])
    return one_of_five(LabeledTexts(texts, labels, ("negative", "positive"), origin), split)


def bbc(split: str = "train", *, source: str = "auto") -> LabeledTexts:
    """Return news articles of some hundred words in five classes; split train or test.

    Of each class every fifth article is for testing (444), the others for training (1,781). For
    research; copyright BBC. PRETRAIN_DATA_DIR may hold them as they come out of their archive.
    The stand-in joins six paragraphs of one topic.
    Source: Greene and Cunningham 2006.
    """
    check("split", split, ("train", "test"))
    folder = None if wants_embedded(source) else data_dir()
    if folder and (folder / "bbc/business").is_dir():
        data, origin = joined(folder, "bbc/*/*.txt"), "folder"
        if hashlib.sha256(data).hexdigest() != FILES["bbc/articles.txt"].sha256:
            raise ValueError(f"{folder / 'bbc'} does not hold the 2,225 articles as published")
    elif found := find(source, ["bbc/articles.txt"]):
        data, origin = read(found[0][0]), found[1]
    else:
        texts, topics = toy_paragraphs(split)
        own = [[texts[i] for i in np.flatnonzero(topics == topic)] for topic in range(4)]
        six = [[" ".join(o[i : i + 6]) for i in range(0, len(o) - 5, 6)] for o in own]
        labels = np.repeat(np.arange(4), [len(articles) for articles in six])
        return LabeledTexts(sum(six, []), labels, AG_NEWS_CLASSES, "embedded")
    # One pound sign, unlike all others, is encoded in Latin-1.
    text = data.decode("utf-8", "surrogateescape").replace("\udca3", "£")
    _, *parts = re.split(r"^== bbc/(\w+)/\d+\.txt\n", text, flags=re.M)
    labels = np.array([BBC_CLASSES.index(name) for name in parts[::2]])
    articles = [article.strip() for article in parts[1::2]]
    return one_of_five(LabeledTexts(articles, labels, BBC_CLASSES, origin), split)


def sick(split: str = "train", *, source: str = "auto") -> TextPairs:
    """Return pairs of sentences: does the first entail the second, contradict it, or neither?

    split train (4,439), trial (495) or test (4,906); embedded 1,500, 400 and 400. CC BY-NC-SA 3.0.
    Source: Marelli et al. 2014.
    """
    check("split", split, ("train", "trial", "test"))
    [path], origin = find(source, ["sick/SICK.txt"])
    header, *lines = read(path).decode("utf-8").splitlines()
    rows = [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]
    rows = [row for row in rows if row["SemEval_set"] == split.upper()]
    labels = np.array([SICK_CLASSES.index(row["entailment_label"].lower()) for row in rows])
    first, second = ([row[f"sentence_{letter}"] for row in rows] for letter in "AB")
    return TextPairs(first, second, labels, SICK_CLASSES, origin)


def wnut17(split: str = "train", *, source: str = "auto") -> TaggedTexts:
    """Return sentences from the web with their named entities; split train, valid or test.

    There are 3,394, 1,009 and 1,287 of them, embedded 800, 300 and 300, and six kinds of entities;
    most of those for testing are in no sentence for training. CC BY 4.0.
    Source: Derczynski et al. 2017.
    """
    names = {
        "train": "wnut17train.conll",
        "valid": "emerging.dev.conll",
        "test": "emerging.test.annotated",
    }
    check("split", split, tuple(names))
    [path], origin = find(source, [f"wnut17/{names[split]}"])
    return TaggedTexts(*read_tagged(path, "\t"), origin)


def read_tagged(path: Path, separator: str) -> tuple[list[list[str]], list[list[str]]]:
    """Return words and tags of each sentence of a file with a word a line, blank lines between."""
    blocks = re.split(r"\n\s*\n", read(path).decode("utf-8").strip("\n"))
    rows = [[line.split(separator) for line in block.split("\n")] for block in blocks]
    words, tags = ([[row[i] for row in block] for block in rows] for i in (0, 1))
    return words, tags


def squad(split: str = "train", *, source: str = "auto") -> Questions:
    """Return questions about paragraphs of Wikipedia, each answered by a span of its paragraph.

    These are the questions that SQuAD keeps for development (10,570 about 48 articles), which
    need 5 MB: every fifth article is for testing, the others are for training. Embedded are 1,500
    and 300 questions. CC BY-SA 4.0.
    Source: Rajpurkar et al. 2016.
    """
    check("split", split, ("train", "test"))
    [path], origin = find(source, ["squad/dev-v1.1.json"])
    items = [
        Question(
            article["title"],
            paragraph["context"],
            asked["question"].strip(),
            tuple(answer["text"] for answer in asked["answers"]),
            tuple(answer["answer_start"] for answer in asked["answers"]),
        )
        for number, article in enumerate(json.loads(read(path))["data"])
        if (number % 5 == 4) == (split == "test")
        for paragraph in article["paragraphs"]
        for asked in paragraph["qas"]
    ]
    return Questions(items, origin)
