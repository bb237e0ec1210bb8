"""Labeled sets to fine-tune on: real ones, checked, or stand-ins of the same form from ToyWorld.

Every loader takes split and source, as those of `support.data.datasets` do, and raises what they
raise. The stand-ins are no copies of the real tasks: the classes of `rt_polarity` and `bbc` are
topics there, and the pairs, tags and questions are about people, countries and their food.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from support.data import datasets, files, toyworld
from support.data.catalog import FILES
from support.data.datasets import LabeledTexts

RT_CLASSES = ("negative", "positive")
BBC_CLASSES = ("business", "entertainment", "politics", "sport", "tech")
SICK_CLASSES = ("entailment", "neutral", "contradiction")
_SEEDS = {"train": 10, "trial": 11, "valid": 11, "test": 12}


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
    datasets.check("split", split, ("train", "test"))
    found = datasets.find(source, [f"rt-polarity/rt-polarity.{end}" for end in ("neg", "pos")])
    if not found:
        texts, topics = datasets.toy_paragraphs(split)
        two = np.flatnonzero(topics < 2)
        classes = datasets.AG_NEWS_CLASSES[:2]
        return LabeledTexts([texts[i] for i in two], topics[two], classes, "embedded")
    paths, origin = found
    lines = [files.read(path).decode("cp1252").splitlines() for path in paths]
    texts = [line.strip() for part in lines for line in part]
    labels = np.repeat(np.arange(2), [len(part) for part in lines])
    return _part(LabeledTexts(texts, labels, RT_CLASSES, origin), split)


def bbc(split: str = "train", *, source: str = "auto") -> LabeledTexts:
    """Return news articles of some hundred words in five classes; split train or test.

    Of each class every fifth article is for testing (444), the others for training (1,781). For
    research; copyright BBC. The stand-in joins six paragraphs of one topic.
    Source: Greene and Cunningham 2006.
    """
    datasets.check("split", split, ("train", "test"))
    found = _unpacked_bbc(source) or datasets.find(source, ["bbc/articles.txt"])
    if not found:
        texts, topics = datasets.toy_paragraphs(split)
        joined, labels = [], []
        for topic in np.unique(topics):
            own = [texts[i] for i in np.flatnonzero(topics == topic)]
            joined += [" ".join(own[i : i + 6]) for i in range(0, len(own) - 5, 6)]
            labels += [topic] * (len(joined) - len(labels))
        return LabeledTexts(joined, np.array(labels), datasets.AG_NEWS_CLASSES, "embedded")
    where, origin = found
    data = where if isinstance(where, bytes) else files.read(where[0])
    parts = re.split(rb"^== bbc/(\w+)/\d+\.txt\n", data, flags=re.M)[1:]
    labels = np.array([BBC_CLASSES.index(name.decode()) for name in parts[::2]])
    # One article has a pound sign in another encoding than all others.
    texts = [_utf8_or_latin1(article).strip() for article in parts[1::2]]
    return _part(LabeledTexts(texts, labels, BBC_CLASSES, origin), split)


def sick(split: str = "train", *, source: str = "auto") -> TextPairs:
    """Return pairs of sentences: does the first entail the second, contradict it, or neither?

    split train (4,439), trial (495) or test (4,906). CC BY-NC-SA 3.0.
    Source: Marelli et al. 2014.
    """
    datasets.check("split", split, ("train", "trial", "test"))
    found = datasets.find(source, ["sick/SICK.txt"])
    if not found:
        return _toy_pairs(split, 1_500 if split == "train" else 400)
    [path], origin = found
    header, *rows = [line.split("\t") for line in files.read(path).decode("utf-8").splitlines()]
    column = {name: header.index(name) for name in header}
    rows = [row for row in rows if row[column["SemEval_set"]] == split.upper()]
    first, second, answers = (
        [row[column[name]] for row in rows]
        for name in ("sentence_A", "sentence_B", "entailment_label")
    )
    labels = np.array([SICK_CLASSES.index(answer.lower()) for answer in answers])
    return TextPairs(first, second, labels, SICK_CLASSES, origin)


def wnut17(split: str = "train", *, source: str = "auto") -> TaggedTexts:
    """Return sentences from the web with their named entities; split train, valid or test.

    There are 3,394, 1,009 and 1,287 of them, and six kinds of entities; most of those for testing
    are in no sentence for training. CC BY 4.0. Source: Derczynski et al. 2017.
    """
    names = {
        "train": "wnut17train.conll",
        "valid": "emerging.dev.conll",
        "test": "emerging.test.annotated",
    }
    datasets.check("split", split, tuple(names))
    found = datasets.find(source, [f"wnut17/{names[split]}"])
    if not found:
        return _toy_tags(split, 800 if split == "train" else 300)
    [path], origin = found
    blocks = re.split(r"\n\s*\n", files.read(path).decode("utf-8").strip("\n"))
    rows = [[line.split("\t") for line in block.split("\n")] for block in blocks]
    words, tags = ([[row[i] for row in block] for block in rows] for i in (0, 1))
    return TaggedTexts(words, tags, origin)


def squad(split: str = "train", *, source: str = "auto") -> Questions:
    """Return questions about paragraphs of Wikipedia, each answered by a piece of its paragraph.

    These are the questions that SQuAD keeps for development (10,570 about 48 articles), which
    need 5 MB: every fifth article is for testing, the others are for training. CC BY-SA 4.0.
    Source: Rajpurkar et al. 2016.
    """
    datasets.check("split", split, ("train", "test"))
    found = datasets.find(source, ["squad/dev-v1.1.json"])
    if not found:
        return _toy_questions(split, 1_500 if split == "train" else 300)
    [path], origin = found
    articles = json.loads(files.read(path))["data"]
    items = [
        Question(
            article["title"],
            paragraph["context"],
            asked["question"].strip(),
            tuple(answer["text"] for answer in asked["answers"]),
            tuple(answer["answer_start"] for answer in asked["answers"]),
        )
        for number, article in enumerate(articles)
        if (number % 5 == 4) == (split == "test")
        for paragraph in article["paragraphs"]
        for asked in paragraph["qas"]
    ]
    return Questions(items, origin)


def _unpacked_bbc(source: str) -> tuple[bytes, str] | None:
    """Return the articles if PRETRAIN_DATA_DIR has them as they come out of their archive."""
    folder = files.data_dir()
    if datasets.wants_embedded(source) or not folder or not (folder / "bbc/business").is_dir():
        return None
    paths = sorted(folder.glob("bbc/*/*.txt"))
    data = files.joined({path.relative_to(folder).as_posix(): path.read_bytes() for path in paths})
    if hashlib.sha256(data).hexdigest() != FILES["bbc/articles.txt"].sha256:
        raise ValueError(f"{folder / 'bbc'} does not hold the 2,225 articles as published")
    return data, "folder"


def _part(whole: LabeledTexts, split: str) -> LabeledTexts:
    """Return the texts of a split: of each class every fifth is for testing."""
    chosen = np.flatnonzero(datasets.every_fifth(whole.labels) == (split == "test"))
    texts = [whole.texts[i] for i in chosen]
    return LabeledTexts(texts, whole.labels[chosen], whole.classes, whole.origin)


def _utf8_or_latin1(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


# The stand-ins. ToyWorld's grammar says of each sentence how it was made, so the answers are known.


def _derived(split: str, n: int, words: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield different sentences with one of the words, their patterns, what they are about.

    No sentence is in two splits: its checksum says in which it is.
    """
    wanted = set(words.split())
    own = {"train": (0, 1, 2), "trial": (3,), "valid": (3,), "test": (4,)}[split]
    for sentence in dict.fromkeys(toyworld.sentences(seed=_SEEDS[split], n=n)):
        if zlib.crc32(sentence.encode()) % 5 not in own:
            continue
        if not wanted or wanted & set(sentence.split()):
            ((pattern, about),) = toyworld.derivations(sentence)
            yield sentence, pattern, about


def _toy_pairs(split: str, n: int) -> TextPairs:
    """Return n pairs: who was in which capital, and who was in which country."""
    rng = random.Random(_SEEDS[split])
    where = re.compile(r"\{person\} (bought|flew|learned) .*\{country.capital\}")
    premises = [
        (sentence, about["person"], about["country"])
        for sentence, pattern, about in _derived(split, 40_000, "bought flew learned")
        if where.match(pattern)
    ]
    people = sorted({person for _, person, _ in premises})
    countries = sorted({country for _, _, country in premises})
    pairs: dict[tuple[str, str], int] = {}
    while len(pairs) < n:
        premise, person, country = rng.choice(premises)
        answer = len(pairs) % 3
        other = rng.choice([c for c in countries if c != country])
        stranger = rng.choice([p for p in people if p != person])
        second = [
            f"{person} was in {country} .",
            f"{stranger} was in {rng.choice([country, other])} .",
            f"{person} was in {other} .",
        ][answer]
        pairs.setdefault((premise, second), answer)
    first, second = map(list, zip(*pairs, strict=True))
    return TextPairs(first, second, np.array(list(pairs.values())), SICK_CLASSES, "embedded")


# What heads a phrase, by kind, and what stands before it within the phrase.
_HEADS = {
    "person": "person role relative",
    "location": "country country.partner country.capital",
    "product": "country.food noun.food role.thing relative.thing verb.object",
    "group": "noun noun.plural",
}
_KIND_OF = {slot: kind for kind, slots in _HEADS.items() for slot in slots.split()}
_BEFORE = set(
    "number color look mood country.nationality adjective role.his relative.his person.his".split()
)


def _phrases(pattern: str) -> list[str]:
    """Return the tag of each word of the sentences that a pattern of ToyWorld makes."""
    tags: list[str] = []
    waiting = 0  # words that a head may follow
    for slot in (token.strip("{}") for token in pattern.split()):
        kind = _KIND_OF.get(slot)
        if kind:
            start = len(tags) - waiting
            tags[start:] = [f"B-{kind}", *[f"I-{kind}"] * waiting]
        else:
            tags.append("O")
        waiting = waiting + 1 if slot in _BEFORE else 0
    return tags


def _toy_tags(split: str, n: int) -> TaggedTexts:
    made = [(s.split(), _phrases(p)) for s, p, _ in _derived(split, 6 * n, "")][:n]
    words, tags = map(list, zip(*made, strict=True))
    return TaggedTexts(words, tags, "embedded")


# Patterns that questions are about, each with questions and the slots of their answers.
_ASKED = {
    "{person} bought {country.nationality} {country.food} at the {place} in {country.capital} .": [
        ("what did {person} buy ?", "{country.nationality} {country.food}"),
        ("where was {person} ?", "the {place}"),
    ],
    "the {role} lost {role.his} {color} {role.thing} in the {role.place} .": [
        ("what did the {role} lose ?", "{role.his} {color} {role.thing}"),
        ("where was the {role} ?", "the {role.place}"),
    ],
    "the {relative} of {person} keeps {relative.his} {relative.thing} in the {relative.place} .": [
        ("what does the {relative} of {person} keep ?", "{relative.his} {relative.thing}"),
        ("where is the {relative} of {person} ?", "the {relative.place}"),
    ],
    "{person} met the {role} and gave {role.him} a {color} {role.thing} .": [
        ("who did {person} meet ?", "the {role}"),
    ],
}


def _toy_questions(split: str, n: int) -> Questions:
    """Return n different questions, each about three sentences."""
    rng = random.Random(_SEEDS[split])
    pool = [(s, p) for s, p, _ in _derived(split, 12_000, "bought lost keeps met") if p in _ASKED]
    items: dict[Question, None] = {}
    while len(items) < n:
        chosen = rng.sample(pool, 3)
        sentence, pattern = rng.choice(chosen)
        question, slots = rng.choice(_ASKED[pattern])
        pairs = list(zip(pattern.split(), sentence.split(), strict=True))
        for slot, word in pairs:
            question = question.replace(slot, word)
        length, wanted = len(slots.split()), slots.split()
        [place] = [
            i for i in range(len(pairs)) if [slot for slot, _ in pairs[i : i + length]] == wanted
        ]
        answer = " ".join(word for _, word in pairs[place : place + length])
        context = " ".join(s for s, _ in chosen)
        before = sum(len(s) + 1 for s, _ in chosen[: chosen.index((sentence, pattern))])
        start = before + sum(len(word) + 1 for _, word in pairs[:place])
        items.setdefault(Question("ToyWorld", context, question, (answer,), (start,)))
    return Questions(list(items), "embedded")
