"""The grammar behind ToyWorld: tables of records, and sentence patterns that show their fields.

Three choices make a sentence: a pattern; a record for each kind of thing that the pattern names;
and one of the options that a field offers. Each choice is a `Choice`, with integer weights, and
drawing, probability and entropy are short functions of the same choices. No word is named here.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

_UNIT = 2**53  # random() returns multiples of 1 / _UNIT
_PRONOUNS = {"he": {"him": "him", "his": "his"}, "she": {"him": "her", "his": "her"}}

Beliefs = dict[str, dict[int, float]]  # kind -> record -> P(record, the words seen of it)


class Choice:
    """A distribution over a few items with integer weights; its entropy is in nats."""

    def __init__(self, items: Sequence[Any], weights: Sequence[int]):
        if not items or min(weights) <= 0:
            raise ValueError(f"a choice needs items with weights above 0, not {weights}")
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
    """One table: a prior over its records, and each record's options for each field.

    Raises: ValueError if a record has too few or too many fields, or an option twice.
    """

    def __init__(self, name: str, table: str):
        fields, *lines = [line.split() for line in re.split(r"[\n|]", table.strip())]
        self.name, self.first = name, fields[0]
        # The shift keeps rare records common enough to be learned from 20,000 sentences.
        self.prior = zipf(range(len(lines)), shift=6)
        self.records = [self._record(fields, values) for values in lines]
        self.likelihood: dict[str, dict[str, dict[int, float]]] = {}  # field, word, record
        for n, record in enumerate(self.records):
            for field, choice in record.items():
                by_word = self.likelihood.setdefault(field, {})
                for word, prob in zip(choice.items, choice.probs, strict=True):
                    by_word.setdefault(word, {})[n] = prob

    @staticmethod
    def _record(fields: Sequence[str], values: Sequence[str]) -> dict[str, Choice]:
        options = [value.split(",") for value in values]
        if len(values) != len(fields) or any(len(set(o)) < len(o) for o in options):
            raise ValueError(f"a record {values} should have the fields {fields}, no option twice")
        record = {field: zipf(words) for field, words in zip(fields, options, strict=True)}
        record["a"] = zipf(["an" if values[0][0] in "aeiou" else "a"])
        if "he" in record:
            pronouns = _PRONOUNS[record["he"].items[0]]
            record.update({field: zipf([word]) for field, word in pronouns.items()})
        return record

    def words(self, field: str) -> list[str]:
        """Return each record's likeliest word for a field."""
        return [record[field].items[0] for record in self.records]

    def identified_by(self, field: str) -> bool:
        """Return whether a word of the field tells which record it comes from."""
        return all(len(records) == 1 for records in self.likelihood[field].values())


class Slot(NamedTuple):
    """A place in a pattern: one word, taken from a field of the record drawn for a kind."""

    kind: Kind
    field: str


class Pattern:
    """A sentence with slots, such as "{country.capital} is the capital of {country} .".

    `kinds` are those it names, `words` the sets of words that can stand at its positions.
    Raises: ValueError for a slot that no table has, or a "." elsewhere than at the end.
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
            raise ValueError(f"a pattern has one '.', a word of its own at the end, not {text!r}")

    def __len__(self) -> int:
        return len(self.tokens)

    @staticmethod
    def _token(token: str, kinds: Mapping[str, Kind]) -> str | Slot:
        if not set(token) & set("{}"):
            return token
        name, _, field = token[1:-1].partition(".")
        kind = kinds.get(name)
        if kind is None or (field or kind.first) not in kind.likelihood:
            raise ValueError(f"no table has a field for {token!r}")
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
        found: Beliefs = {}
        for token, word in zip(self.tokens, tokens, strict=False):
            if isinstance(token, str):
                if token != word:
                    return None
                continue
            name, likelihood = token.kind.name, token.kind.likelihood[token.field].get(word, {})
            belief = found.get(name) or self._prior(name)
            found[name] = {n: belief[n] * p for n, p in likelihood.items() if n in belief}
            if not found[name]:
                return None
        return {name: found.get(name) or self._prior(name) for name in self.kinds}

    def _prior(self, name: str) -> dict[int, float]:
        return dict(enumerate(self.kinds[name].prior.probs))

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


def matches(patterns: Choice, tokens: Sequence[str]) -> Iterator[tuple[Pattern, Beliefs, float]]:
    """Yield each pattern that can begin with the tokens, its beliefs, and P(pattern, tokens)."""
    for pattern, prob in zip(patterns.items, patterns.probs, strict=True):
        beliefs = pattern.beliefs(tokens)
        if beliefs is not None:
            yield pattern, beliefs, prob * math.prod(sum(b.values()) for b in beliefs.values())
