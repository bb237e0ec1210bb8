"""Tokens to numbers: the `basic_english` tokenizer, `Vocab`, and `Corpus`, a text as one array."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

_PUNCTUATION = str.maketrans(
    {mark: f" {mark} " for mark in "'.,()!?"} | {mark: " " for mark in ";:"}
)


def basic_english(text: str) -> list[str]:
    """Return the lower-cased tokens of a text, punctuation marks as tokens of their own.

    Double quotes vanish; `;`, `:` and `<br />` become spaces.
    Source: torchtext 0.18, `get_tokenizer("basic_english")`, token for token.
    """
    text = text.lower().replace('"', "").replace("<br />", " ")
    return text.translate(_PUNCTUATION).split()


class Vocab:
    """A list of distinct tokens and their indices in it, with torchtext 0.18's interface.

    Looking up a token that is missing gives the default index, or KeyError while none is set.
    """

    def __init__(self, tokens: Iterable[str]):
        self._itos = list(tokens)
        self._stoi = {token: index for index, token in enumerate(self._itos)}
        self._default: int | None = None
        if len(self._stoi) < len(self._itos):
            twice = [token for token, n in Counter(self._itos).items() if n > 1][:5]
            raise ValueError(f"a vocabulary holds each token once; given more than once: {twice}")

    def __len__(self) -> int:
        return len(self._itos)

    def __contains__(self, token: str) -> bool:
        return token in self._stoi

    def __getitem__(self, token: str) -> int:
        index = self._stoi.get(token, self._default)
        if index is None:
            raise KeyError(f"token {token!r} is not in the vocabulary; call set_default_index()")
        return index

    def __call__(self, tokens: Sequence[str]) -> list[int]:
        return self.lookup_indices(tokens)

    def lookup_indices(self, tokens: Sequence[str]) -> list[int]:
        """Return the index of each token."""
        return [self[token] for token in tokens]

    def lookup_token(self, index: int) -> str:
        """Return the token at an index, 0 … len - 1."""
        if index < 0:
            raise IndexError(f"expected an index from 0 to {len(self) - 1}, got {index}")
        return self._itos[index]

    def lookup_tokens(self, indices: Iterable[int]) -> list[str]:
        """Return the token at each index."""
        return [self.lookup_token(index) for index in indices]

    def set_default_index(self, index: int | None) -> None:
        """Set the index of every missing token; None makes a missing token an error."""
        self._default = index

    def get_itos(self) -> list[str]:
        """Return the tokens in order."""
        return list(self._itos)

    def get_stoi(self) -> dict[str, int]:
        """Return the index of each token."""
        return dict(self._stoi)


def build_vocab_from_iterator(
    iterator: Iterable[Iterable[str] | Mapping[str, int]],
    min_freq: int = 1,
    specials: Sequence[str] | None = None,
    max_tokens: int | None = None,
) -> Vocab:
    """Return the specials, then the tokens by falling frequency, ties by the token itself.

    Args:
        iterator: lists of tokens, or dictionaries of how often each token occurs.
        min_freq: the lowest frequency kept.
        specials: tokens that come first, each once, even if it also occurs in the text.
        max_tokens: the most tokens, specials included.
    Source: torchtext 0.18, the function of the same name.
    """
    if isinstance(iterator, str) or isinstance(specials, str):
        raise ValueError("expected lists of tokens, got one str")
    counts: Counter[str] = Counter()
    for tokens in iterator:
        counts.update(tokens)
    specials = list(specials or ())
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if max_tokens is not None:
        if max_tokens <= len(specials):
            raise ValueError(f"max_tokens={max_tokens} leaves no room beside {specials}")
        ordered = ordered[: max_tokens - len(specials)]
    apart = set(specials)
    kept = [token for token, freq in ordered if freq >= min_freq and token not in apart]
    return Vocab([*specials, *kept])


@dataclass
class Corpus:
    """A text as token ids: sentence i is `ids[offsets[i]:offsets[i + 1]]`."""

    ids: np.ndarray  # (n_tokens,) int32
    offsets: np.ndarray  # (n_sentences + 1,) int64, from 0 to n_tokens
    vocab: Vocab

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        i = range(len(self))[i]
        return self.ids[self.offsets[i] : self.offsets[i + 1]]

    @property
    def counts(self) -> np.ndarray:
        """How often each token of the vocabulary occurs, (vocab_size,) int64."""
        return np.bincount(self.ids, minlength=len(self.vocab))

    def tokens(self, i: int) -> list[str]:
        """Return sentence i as words."""
        return self.vocab.lookup_tokens(self[i])

    @classmethod
    def from_text(
        cls,
        text: str | Iterable[str],
        *,
        min_freq: int = 1,
        specials: Sequence[str] = (),
        unk: str | None = None,
        vocab: Vocab | None = None,
        tokenizer: Callable[[str], list[str]] = str.split,
    ) -> Corpus:
        """Return the corpus of a text, one sentence a line; sentences without a token are left out.

        A word rarer than `min_freq`, or outside a given `vocab`, is replaced by `unk`; with
        `unk=None` it is left out, as word2vec and GloVe do, and its neighbors move together.
        """
        line_end = "\0"
        if isinstance(text, str) and tokenizer is str.split and line_end not in text:
            # One split of the whole text is twice as fast as one a line: see the benchmarks.
            flat = text.replace("\n", f" {line_end} ").split()
        else:
            line_end, lines = None, text.split("\n") if isinstance(text, str) else text
            flat = [token for line in lines for token in (*tokenizer(line), line_end)]
        numbers: defaultdict[str | None, int] = defaultdict(count().__next__)
        numbers[line_end]  # gets number 0
        ids = np.fromiter(map(numbers.__getitem__, flat), np.int32, len(flat))
        _, *seen = numbers
        if vocab is None:
            freq = np.bincount(ids, minlength=len(numbers))[1:].tolist()
            if unk is not None and unk not in specials:
                specials = (unk, *specials)
            counts = dict(zip(seen, freq, strict=True))
            vocab = build_vocab_from_iterator([counts], min_freq, specials)
            vocab.set_default_index(None if unk is None else vocab[unk])
        stoi, missing = vocab.get_stoi(), -1 if unk is None else vocab[unk]
        renumber = np.array([-2, *(stoi.get(token, missing) for token in seen)], np.int32)
        ids = renumber[ids]
        ids = ids[ids != -1]
        ends = np.flatnonzero(ids == -2)
        ids = ids[ids >= 0]
        if len(ids) == 0:
            raise ValueError(f"no token is left with min_freq={min_freq}; give more text")
        offsets = np.concatenate([[0], ends - np.arange(len(ends)), [len(ids)]])
        return cls(ids, offsets[np.append(True, np.diff(offsets) > 0)], vocab)
