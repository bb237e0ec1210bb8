"""ToyWorld: English-like text from a grammar in which every probability is known.

A sentence fills a pattern such as "{country.capital} is the capital of {country} ." from tables
(`toyworld.txt` holds both). Three choices make it: a pattern; a record for each kind of thing
that the pattern names; and one of the options that a field offers. A paragraph draws a topic, a
length and a first sentence, and its later sentences keep the things that the first one names.

The grammar of sentences is unambiguous: one can be made in one way only, and `ToyWorld` refuses
tables and patterns that do not guarantee it. So the log-probability of a sentence is the sum of
the logs of the choices that made it, the entropy of the text is the sum of the entropies of its
choices, and no language model can have a lower expected loss than that.
"""

from __future__ import annotations

import math
import random
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations
from pathlib import Path
from typing import Any, NamedTuple


def _parts(path: Path) -> dict[str, dict[str, str]]:
    """Return the parts of ToyWorld's file by kind and name; a line `@kind` stands for that part."""
    _, *parts = re.split(r"^== (\w+) ?(.*)\n", path.read_text(encoding="utf-8"), flags=re.M)
    found: dict[str, dict[str, str]] = {}
    for kind, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        text = re.sub(r"^@(\w+)$", lambda line: found[line[1]][""], text, flags=re.M)
        found.setdefault(kind, {})[name] = text.strip()
    return found


_PARTS = _parts(Path(__file__).with_name("toyworld.txt"))
TABLES, SENTENCES = _PARTS["table"], _PARTS["sentences"][""]
TOPICS = tuple(_PARTS["topic"])

_UNIT = 2**53  # random() returns multiples of 1 / _UNIT
_PRONOUNS = {"he": {"him": "him", "his": "his"}, "she": {"him": "her", "his": "her"}}

Beliefs = dict[str, dict[int, float]]  # kind -> record -> P(record, the words seen of it)


class Choice:
    """A distribution over a few items with integer weights; its entropy is in nats."""

    def __init__(self, items: Sequence[Any], weights: Sequence[int]):
        if min(weights) <= 0:
            raise ValueError(f"expected weights above 0, got {weights}")
        total = sum(weights)
        self.items = tuple(items)
        self.probs = tuple(weight / total for weight in weights)
        self.entropy = -sum(p * math.log(p) for p in self.probs)
        # Whole numbers, so that no rounding can change what is drawn.
        self._thresholds = [_UNIT * below // total for below in accumulate(weights)][:-1]

    def draw(self, uniform: Callable[[], float]) -> Any:
        """Return an item; `uniform` gives numbers in [0, 1), none of which a single item uses."""
        if not self._thresholds:
            return self.items[0]
        return self.items[bisect_right(self._thresholds, int(uniform() * _UNIT))]

    def mean(self, value: Callable[[Any], float]) -> float:
        """Return the expected value of a function of the item."""
        return sum(p * value(item) for p, item in zip(self.probs, self.items, strict=True))


def zipf(items: Sequence[Any], shift: int = 0) -> Choice:
    """Return a choice with weights 1 / (rank + shift), the first item being the likeliest.

    Source: Zipf 1935; with a shift, Mandelbrot 1953.
    """
    return Choice(items, [10**9 // (rank + shift) for rank in range(1, len(items) + 1)])


class Kind:
    """One table: a prior over its records, and each record's options for each field."""

    def __init__(self, name: str, table: str):
        fields, *lines = [line.split() for line in re.split(r"[\n|]", table.strip())]
        self.name, self.first = name, fields[0]
        # The shift keeps rare records common enough to be learned from 20,000 sentences.
        self.prior = zipf(range(len(lines)), shift=6)
        self.chances = dict(enumerate(self.prior.probs))  # of its records, before a word is seen
        self.records = [self._record(fields, values) for values in lines]
        self.likelihood: dict[str, dict[str, dict[int, float]]] = {}  # field, word, record
        for n, record in enumerate(self.records):
            for field, choice in record.items():
                by_word = self.likelihood.setdefault(field, {})
                for word, prob in zip(choice.items, choice.probs, strict=True):
                    by_word.setdefault(word, {})[n] = prob

    @staticmethod
    def _record(fields: Sequence[str], values: Sequence[str]) -> dict[str, Choice]:
        record = {}
        for field, value in zip(fields, values, strict=True):
            options = value.split(",")
            if len(set(options)) < len(options):
                raise ValueError(f"an option of {values} is given twice")
            record[field] = zipf(options)
        record["a"] = zipf(["an" if values[0][0] in "aeiou" else "a"])
        if "he" in record:
            pronouns = _PRONOUNS[record["he"].items[0]]
            record.update({field: zipf([word]) for field, word in pronouns.items()})
        return record

    def words(self, field: str = "") -> list[str]:
        """Return each record's likeliest word for a field, by default the first."""
        return [record[field or self.first].items[0] for record in self.records]

    def identified_by(self, field: str) -> bool:
        """Return whether a word of the field tells which record it comes from."""
        return all(len(records) == 1 for records in self.likelihood[field].values())


class Slot(NamedTuple):
    """A position in a pattern: one word, from a field of the record drawn for a kind."""

    kind: Kind
    field: str


class Pattern:
    """A sentence with slots, such as "{country.capital} is the capital of {country} .".

    `kinds` are those it names, `words` the sets of words that are possible at its positions.
    """

    def __init__(self, text: str, kinds: Mapping[str, Kind]):
        self.text = text
        self.tokens = [self._token(token, kinds) for token in text.split()]
        self.slots = [token for token in self.tokens if isinstance(token, Slot)]
        self.kinds = {slot.kind.name: slot.kind for slot in self.slots}
        self.words = [
            set(token.kind.likelihood[token.field]) if isinstance(token, Slot) else {token}
            for token in self.tokens
        ]
        if "." in self.tokens[:-1] or self.tokens[-1] != ".":
            raise ValueError(f"expected one '.', as the last word, got the pattern {text!r}")

    def __len__(self) -> int:
        return len(self.tokens)

    @staticmethod
    def _token(token: str, kinds: Mapping[str, Kind]) -> str | Slot:
        if not set(token) & set("{}"):
            return token
        name, _, field = token[1:-1].partition(".")
        kind = kinds[name]
        return Slot(kind, field or kind.first)

    def write(self, uniform: Callable[[], float], records: dict[str, int]) -> str:
        """Return a sentence; draws a record for each kind that is not in `records`, and adds it."""
        for name, kind in self.kinds.items():
            if name not in records:
                records[name] = kind.prior.draw(uniform)
        return " ".join(
            token
            if isinstance(token, str)
            else token.kind.records[records[token.kind.name]][token.field].draw(uniform)
            for token in self.tokens
        )

    def entropy(self) -> float:
        """Return the entropy of the sentence in nats."""
        drawn = sum(kind.prior.entropy for kind in self.kinds.values())
        return drawn + sum(
            kind.prior.mean(lambda n, k=kind, f=field: k.records[n][f].entropy)
            for kind, field in self.slots
        )

    def beliefs(self, tokens: Sequence[str]) -> Beliefs | None:
        """Return what the first tokens of a sentence tell of the records; None if they cannot be.

        P(tokens | pattern) is the product over kinds of the sum over records.
        """
        if len(tokens) > len(self):
            return None
        found: Beliefs = {name: kind.chances for name, kind in self.kinds.items()}
        for token, word in zip(self.tokens, tokens, strict=False):
            if isinstance(token, str):
                if token != word:
                    return None
                continue
            belief = found[token.kind.name]
            likelihood = token.kind.likelihood[token.field].get(word, {})
            belief = {n: belief[n] * p for n, p in likelihood.items() if n in belief}
            if not belief:
                return None
            found[token.kind.name] = belief
        return found

    def next_word(self, position: int, beliefs: Beliefs) -> dict[str, float]:
        """Return the distribution of the word at a position, given `beliefs` from those before."""
        token = self.tokens[position]
        if isinstance(token, str):
            return {token: 1.0}
        belief = beliefs[token.kind.name]
        total = sum(belief.values())
        chances: dict[str, float] = {}
        for n, share in belief.items():
            choice = token.kind.records[n][token.field]
            for word, prob in zip(choice.items, choice.probs, strict=True):
                chances[word] = chances.get(word, 0.0) + share / total * prob
        return chances


@dataclass(frozen=True)
class Paragraph:
    """Sentences about the same things, and the index of their topic in TOPICS, as in AG News."""

    topic: int
    sentences: tuple[str, ...]


class ToyWorld:
    """A language: tables, weighted sentence patterns, and paragraph patterns by topic.

    Raises:
        ValueError: some sentence could be made in two ways.
    """

    # How many sentences a paragraph has.
    lengths = Choice([2, 3, 4, 5], [2, 3, 3, 2])

    def __init__(
        self, tables: Mapping[str, str], sentences: str, topics: Mapping[str, str] | None = None
    ):
        self.kinds = {name: Kind(name, table) for name, table in tables.items()}
        self.patterns = self._read(sentences)
        self.topics = [
            [self._read(stage) for stage in re.split(r"\n\s*\n", text)]
            for text in (topics or {}).values()
        ]
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
        uniform = random.Random(int(seed)).random  # the same numbers in every version of Python
        return [self.patterns.draw(uniform).write(uniform, {}) for _ in range(n)]

    def text(self, seed: int = 0, n: int = 20_000) -> str:
        """Return the same n sentences as one text, one a line."""
        return "".join(sentence + "\n" for sentence in self.sentences(seed, n))

    def paragraphs(self, seed: int = 0, n: int = 4_000) -> list[Paragraph]:
        """Return n independent paragraphs; each topic is equally likely."""
        uniform = random.Random(int(seed)).random
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
        """Return how a sentence is made: its pattern, and the first word of each record.

        The list has one entry, and none if this language has no such sentence.
        """
        tokens = sentence.split()
        return [
            (pattern.text, {name: self.kinds[name].words()[n] for name, (n,) in beliefs.items()})
            for pattern, beliefs, _ in self._matches(tokens)
            if len(pattern) == len(tokens)
        ]

    def log_prob(self, sentence: str) -> float:
        """Return the log-probability of a sentence in nats.

        Raises:
            ValueError: there is no such sentence.
        """
        tokens = sentence.split()
        for pattern, _, prob in self._matches(tokens):
            if len(pattern) == len(tokens):
                return math.log(prob)
        raise ValueError(f"the grammar has no sentence {sentence!r}")

    def next_token_log_probs(self, prefix: Sequence[str]) -> dict[str, float]:
        """Return the log-probability of each token that can follow, in a stream of sentences.

        Args:
            prefix: tokens; what precedes its last full stop has no influence.
        Raises:
            ValueError: no sentence begins so.
        """
        tokens = list(prefix)
        while "." in tokens:
            tokens = tokens[tokens.index(".") + 1 :]
        chances: dict[str, float] = {}
        for pattern, beliefs, prob in self._matches(tokens):
            for word, share in pattern.next_word(len(tokens), beliefs).items():
                chances[word] = chances.get(word, 0.0) + prob * share
        if not chances:
            raise ValueError(f"the grammar has no sentence that begins {' '.join(tokens)!r}")
        total = sum(chances.values())
        return {word: math.log(chance / total) for word, chance in chances.items()}

    def entropy_per_token(self, end_tokens: int = 0) -> float:
        """Return the entropy of independent sentences in nats per token, full stops counted.

        It is the lowest expected loss that any model can reach.
        Args:
            end_tokens: marks that a data set adds to each sentence: after a full stop they are
                certain, so they add to the number of tokens alone.
        """
        patterns = self.patterns
        entropy = patterns.entropy + patterns.mean(Pattern.entropy)
        return entropy / (patterns.mean(len) + end_tokens)

    def grammar(self) -> dict[str, Any]:
        """Return how sentences are made, as plain lists for a program in another language.

        "kinds" holds, for each kind and field, the options of every record, with the probabilities
        of zipf; "patterns" holds probabilities and tokens, each a word or a slot [kind, field].
        """
        used = {slot for pattern in self.patterns.items for slot in pattern.slots}
        kinds: dict[str, dict[str, list]] = {}
        for kind, field in sorted(used, key=lambda slot: (slot.kind.name, slot.field)):
            options = [list(record[field].items) for record in kind.records]
            kinds.setdefault(kind.name, {})[field] = options
        patterns = [
            [prob, [t if isinstance(t, str) else [t.kind.name, t.field] for t in pattern.tokens]]
            for pattern, prob in zip(self.patterns.items, self.patterns.probs, strict=True)
        ]
        return {"kinds": kinds, "patterns": patterns}

    def vocabulary(self) -> list[str]:
        """Return every word that sentences and paragraphs can hold, in alphabetical order."""
        stages = [self.patterns, *(stage for topic in self.topics for stage in topic)]
        return sorted(set().union(*(w for stage in stages for p in stage.items for w in p.words)))

    def analogies(self) -> dict[str, list[tuple[str, str, str, str]]]:
        """Return questions (a, b, c, d), a is to b as c is to d, by section."""
        sections = {}
        for section, relations in _PARTS["analogies"].items():
            pairs = [pair for relation in relations.splitlines() for pair in self._pairs(relation)]
            sections[section] = [one + two for one in pairs for two in pairs if one != two]
        return sections

    def _pairs(self, relation: str) -> list[tuple[str, str]]:
        """Return the words of two fields of each record, of a pair and its reverse the first."""
        (kind, one), (_, two) = (field.split(".") for field in relation.split())
        table, pairs = self.kinds[kind], []
        for pair in zip(table.words(one), table.words(two), strict=True):
            if pair[::-1] not in pairs:
                pairs.append(pair)
        return pairs

    def _matches(self, tokens: Sequence[str]) -> Iterator[tuple[Pattern, Beliefs, float]]:
        """Yield each pattern that can begin with tokens, its beliefs, and P(pattern, tokens)."""
        for pattern, prob in zip(self.patterns.items, self.patterns.probs, strict=True):
            beliefs = pattern.beliefs(tokens)
            if beliefs is not None:
                yield pattern, beliefs, prob * math.prod(sum(b.values()) for b in beliefs.values())


_WORLD = ToyWorld(TABLES, SENTENCES, _PARTS["topic"])
sentences, paragraphs, text = _WORLD.sentences, _WORLD.paragraphs, _WORLD.text
log_prob, next_token_log_probs = _WORLD.log_prob, _WORLD.next_token_log_probs
entropy_per_token, derivations = _WORLD.entropy_per_token, _WORLD.derivations
vocabulary, analogies, grammar = _WORLD.vocabulary, _WORLD.analogies, _WORLD.grammar
