"""ToyWorld: English-like text from a grammar in which every probability is known.

A sentence fills a pattern such as "{country.capital} is the capital of {country} ." from tables
(`toyworld_words.py` holds both, `toyworld_grammar.py` their meaning). A paragraph draws a topic, a
length and a first sentence, and its later sentences keep the things that the first one names.

The grammar of sentences is unambiguous: one can be made in one way only, and `ToyWorld` refuses
tables and patterns that do not guarantee it. So the log-probability of a sentence is the sum of
the logs of the choices that made it, the entropy of the text is the sum of the entropies of its
choices, and no language model can have a lower expected loss than that.
"""

from __future__ import annotations

import math
import operator
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from . import toyworld_words
from .toyworld_grammar import Choice, Kind, Pattern, matches

TOPICS = tuple(toyworld_words.TOPICS)


@dataclass(frozen=True)
class Paragraph:
    """Sentences about the same things, and the index of their topic in TOPICS, as in AG News."""

    topic: int
    sentences: tuple[str, ...]


class ToyWorld:
    """A language: tables, weighted sentence patterns, and paragraph patterns by topic.

    `lengths` gives the weight of each number of sentences in a paragraph.
    Raises: ValueError if some sentence could be made in two ways.
    """

    def __init__(
        self,
        tables: Mapping[str, str],
        sentences: str,
        topics: Mapping[str, str] | None = None,
        lengths: Mapping[int, int] | None = None,
    ):
        self.kinds = {name: Kind(name, table) for name, table in tables.items()}
        self.patterns = self._read(sentences)
        self.topics = [
            [self._read(stage) for stage in re.split(r"\n\s*\n", text)]
            for text in (topics or {}).values()
        ]
        self.lengths = Choice(list(lengths or [1]), list((lengths or {1: 1}).values()))
        if self.topics and max(self.lengths.items) > min(map(len, self.topics)):
            raise ValueError(f"no patterns for {max(self.lengths.items)} sentences in each topic")
        self._require_unambiguous()

    def _read(self, text: str) -> Choice:
        lines = [line.split(maxsplit=1) for line in text.strip().splitlines()]
        return Choice([Pattern(t, self.kinds) for _, t in lines], [int(w) for w, _ in lines])

    def _require_unambiguous(self) -> None:
        """Raise ValueError unless rival patterns differ in a word and what is drawn is shown."""
        for one, two in combinations(self.patterns.items, 2):
            if len(one) == len(two) and all(map(set.intersection, one.words, two.words)):
                raise ValueError(f"{one.text!r} and {two.text!r} could make the same sentence")
        for pattern in self.patterns.items:
            shown = {kind.name for kind, field in pattern.slots if kind.identified_by(field)}
            if hidden := set(pattern.kinds) - shown:
                raise ValueError(f"{pattern.text!r} does not show which {hidden} it is about")

    def sentences(self, seed: int = 0, n: int = 20_000) -> list[str]:
        """Return n independent sentences: the first n of an endless list that the seed fixes."""
        uniform = _uniform(seed, n)
        return [self.patterns.draw(uniform).write(uniform, {}) for _ in range(n)]

    def text(self, seed: int = 0, n: int = 20_000) -> str:
        """Return the same n sentences as one text, one a line."""
        return "".join(sentence + "\n" for sentence in self.sentences(seed, n))

    def paragraphs(self, seed: int = 0, n: int = 4_000) -> list[Paragraph]:
        """Return n independent paragraphs; each topic is equally likely."""
        uniform = _uniform(seed, n)
        topics = Choice(range(len(self.topics)), [1] * len(self.topics))
        made = []
        for _ in range(n):
            topic, length, known = topics.draw(uniform), self.lengths.draw(uniform), {}
            first, *rest = self.topics[topic][:length]
            lines = [first.draw(uniform).write(uniform, known)]
            lines += [stage.draw(uniform).write(uniform, dict(known)) for stage in rest]
            made.append(Paragraph(topic, tuple(lines)))
        return made

    def derivations(self, sentence: str) -> list[tuple[str, dict[str, str]]]:
        """Return every way to make a sentence: its pattern, and the first word of each record."""
        tokens = sentence.split()
        found = []
        for pattern, beliefs, _ in matches(self.patterns, tokens):
            names = [kind.words(kind.first) for kind in pattern.kinds.values()]
            for records in product(*beliefs.values()) if len(pattern) == len(tokens) else ():
                words = map(operator.getitem, names, records)
                found.append((pattern.text, dict(zip(beliefs, words, strict=True))))
        return found

    def log_prob(self, sentence: str) -> float:
        """Return the log-probability of a sentence in nats.

        Raises: ValueError naming the first token at which no sentence continues.
        """
        tokens = sentence.split()
        for pattern, _, prob in matches(self.patterns, tokens):
            if len(pattern) == len(tokens):
                return math.log(prob)
        raise _refusal(self.patterns, tokens)

    def next_token_log_probs(self, prefix: Sequence[str]) -> dict[str, float]:
        """Return the log-probability of each token that can follow, in a stream of sentences.

        Args: prefix, tokens; what precedes its last full stop has no influence.
        Raises: ValueError naming the first token at which no sentence continues.
        """
        tokens = list(prefix)
        while "." in tokens:
            tokens = tokens[tokens.index(".") + 1 :]
        chances: dict[str, float] = {}
        for pattern, beliefs, prob in matches(self.patterns, tokens):
            for word, share in pattern.next_word(len(tokens), beliefs).items():
                chances[word] = chances.get(word, 0.0) + prob * share
        if not chances:
            raise _refusal(self.patterns, tokens)
        total = sum(chances.values())
        return {word: math.log(chance / total) for word, chance in chances.items()}

    def entropy_per_token(self, end_tokens: int = 0) -> float:
        """Return the entropy of independent sentences in nats per token, full stops counted.

        It is the lowest expected loss that any model can reach. `end_tokens` counts the marks that
        a data set adds to each sentence: after a full stop they are certain, and cost nothing.
        """
        patterns = self.patterns
        entropy = patterns.entropy + patterns.mean(Pattern.entropy)
        return entropy / (patterns.mean(len) + end_tokens)

    def vocabulary(self) -> list[str]:
        """Return every word that sentences and paragraphs can hold, in alphabetical order."""
        stages = [self.patterns, *(stage for topic in self.topics for stage in topic)]
        return sorted(set().union(*(w for stage in stages for p in stage.items for w in p.words)))


def _uniform(seed: int, n: int) -> Callable[[], float]:
    seed, n = operator.index(seed), operator.index(n)
    if seed < 0 or n < 0:
        raise ValueError(f"seed and n are whole numbers from 0 up, not {seed} and {n}")
    return random.Random(seed).random  # Python promises the same numbers in every version


def _refusal(patterns: Choice, tokens: Sequence[str]) -> ValueError:
    for n, token in enumerate(tokens):
        if not any(matches(patterns, tokens[: n + 1])):
            return ValueError(f"no sentence continues {' '.join(tokens[:n])!r} with {token!r}")
    return ValueError(f"no sentence ends after {' '.join(tokens)!r}")


def _pairs(fields: str) -> list[tuple[str, str]]:
    """Return the words of two fields of each record; a pair already there backwards is left out."""
    (kind, one), (_, two) = (field.split(".") for field in fields.split())
    table, pairs = _WORLD.kinds[kind], []
    for pair in zip(table.words(one), table.words(two), strict=True):
        if pair[::-1] not in pairs:
            pairs.append(pair)
    return pairs


def analogies() -> dict[str, list[tuple[str, str, str, str]]]:
    """Return questions (a, b, c, d), a is to b as c is to d, by section."""
    sections = {}
    for section, fields in toyworld_words.ANALOGIES.items():
        pairs = [pair for two in fields for pair in _pairs(two)]
        sections[section] = [one + two for one in pairs for two in pairs if one != two]
    return sections


_WORLD = ToyWorld(
    toyworld_words.TABLES, toyworld_words.SENTENCES, toyworld_words.TOPICS, {2: 2, 3: 3, 4: 3, 5: 2}
)
sentences, paragraphs, text = _WORLD.sentences, _WORLD.paragraphs, _WORLD.text
log_prob, next_token_log_probs = _WORLD.log_prob, _WORLD.next_token_log_probs
entropy_per_token = _WORLD.entropy_per_token
derivations, vocabulary = _WORLD.derivations, _WORLD.vocabulary
