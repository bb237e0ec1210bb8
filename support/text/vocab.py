"""Tokens to numbers: the `basic_english` tokenizer, `Vocab`, and `Corpus`, a text as one array."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from numbers import Integral

import numpy as np

from support import checks

_LINE_END = "\0"
_PUNCTUATION = str.maketrans(
    {mark: f" {mark} " for mark in "'.,()!?"} | {mark: " " for mark in ";:"}
)


def basic_english(text: str) -> list[str]:
    """Return the lower-cased tokens of a text, punctuation marks as tokens of their own.

    Double quotes vanish; `;`, `:` and `<br />` become spaces.
    Raises: ValueError for what is no str.
    Source: torchtext 0.18, `get_tokenizer("basic_english")`, token for token.
    """
    checks.text(text=text)
    text = text.lower().replace('"', "").replace("<br />", " ")
    return text.translate(_PUNCTUATION).split()


class Vocab:
    """A list of distinct tokens and their positions in it, with torchtext 0.18's interface.

    Looking up a token that is missing gives the default index, or KeyError while none is set.
    """

    def __init__(self, tokens: Iterable[str]):
        """Number the tokens from 0. Raises: ValueError for one that is no str or comes twice."""
        self._itos = list(tokens)
        checks.strings(tokens=self._itos)
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

    def __repr__(self) -> str:
        return f"Vocab({len(self)} tokens, default index {self._default})"

    def lookup_indices(self, tokens: Sequence[str]) -> list[int]:
        """Return the index of each token."""
        return [self[token] for token in tokens]

    def lookup_token(self, index: int) -> str:
        """Return the token at an index. Raises: IndexError outside 0 … len - 1."""
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} is outside 0 … {len(self) - 1}")
        return self._itos[index]

    def lookup_tokens(self, indices: Iterable[int]) -> list[str]:
        """Return the token at each index."""
        return [self.lookup_token(index) for index in indices]

    def set_default_index(self, index: int | None) -> None:
        """Set the index of every missing token; None makes a missing token an error."""
        if isinstance(index, bool) or not isinstance(index, Integral | None):
            raise ValueError(f"index must be an integer or None, given {index!r}")
        self._default = index

    def get_itos(self) -> list[str]:
        """Return the tokens in order, as a new list."""
        return list(self._itos)

    def get_stoi(self) -> dict[str, int]:
        """Return token to index, as a new dictionary."""
        return dict(self._stoi)


def vocab_from_counts(
    counts: Mapping[str, int],
    min_freq: int = 1,
    specials: Sequence[str] = (),
    max_tokens: int | None = None,
) -> Vocab:
    """Return the specials, then the tokens by falling frequency, ties by the token itself.

    `max_tokens` counts the specials in. A special that also occurs as a token keeps its own place.
    Raises: ValueError if min_freq < 1, if max_tokens leaves no room beside the specials, and for
    tokens or specials that are no str.
    Source: torchtext 0.18, `build_vocab_from_iterator`.
    """
    checks.integers(1, min_freq=min_freq)
    checks.strings(specials=specials, counts=counts)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if max_tokens is not None:
        checks.integers(len(specials) + 1, max_tokens=max_tokens)
        ordered = ordered[: max_tokens - len(specials)]
    apart = set(specials)
    tokens = [token for token, freq in ordered if freq >= min_freq and token not in apart]
    return Vocab([*specials, *tokens])


def build_vocab_from_iterator(
    iterator: Iterable[Iterable[str]],
    min_freq: int = 1,
    specials: Sequence[str] | None = None,
    max_tokens: int | None = None,
) -> Vocab:
    """Return the vocabulary of an iterable of token lists; see `vocab_from_counts`."""
    if isinstance(iterator, str):
        raise ValueError(f"a vocabulary is built from lists of tokens, given {iterator!r:.80}")
    counts = Counter(chain.from_iterable(iterator))
    return vocab_from_counts(counts, min_freq, specials or (), max_tokens)


@dataclass
class Corpus:
    """A text as numbers: sentence i is `ids[offsets[i]:offsets[i + 1]]`.

    ids: (n_tokens,) int32. offsets: (n_sentences + 1,) int64, from 0 to n_tokens.
    Raises: ValueError for ids outside the vocabulary, or offsets that do not rise so.
    """

    ids: np.ndarray
    offsets: np.ndarray
    vocab: Vocab

    def __post_init__(self):
        low, high = (self.ids.min(), self.ids.max()) if len(self.ids) else (0, -1)
        if low < 0 or high >= len(self.vocab):
            raise ValueError(f"ids must be in 0 … {len(self.vocab) - 1}, given {low} … {high}")
        ends = self.offsets[:1].tolist() + self.offsets[-1:].tolist()
        if ends != [0, len(self.ids)] or (np.diff(self.offsets) < 0).any():
            raise ValueError(f"offsets must rise from 0 to {len(self.ids)}, given {ends}")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        if not -len(self) <= i < len(self):
            raise IndexError(f"sentence {i} is outside 0 … {len(self) - 1}")
        i %= len(self)
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
        Raises: ValueError if no token remains, for what is no text, or if `unk` is not in a given
        vocabulary.
        """
        checks.strings(specials=specials)
        ids, lengths, seen = _number(text, tokenizer)
        n_tokens = len(ids)
        if vocab is None:
            freq = np.bincount(ids, minlength=len(seen)).tolist()
            counts = dict(zip(seen, freq, strict=True))
            extra = (unk,) if unk is not None and unk not in specials else ()
            vocab = vocab_from_counts(counts, min_freq, (*extra, *specials))
            vocab.set_default_index(None if unk is None else vocab[unk])
        if unk is not None and unk not in vocab:
            raise ValueError(f"unk={unk!r} is not in the given vocabulary")
        missing = -1 if unk is None else vocab[unk]
        stoi = vocab.get_stoi()
        renumber = [stoi.get(token, missing) for token in seen]
        ids = np.array(renumber, np.int32)[ids] if renumber else ids
        if unk is None:
            kept = ids >= 0
            lengths = np.diff(np.append(0, np.cumsum(kept))[np.append(0, np.cumsum(lengths))])
            ids = ids[kept]
        if len(ids) == 0:
            raise ValueError(
                f"no token left of {n_tokens} in {len(lengths)} lines with min_freq={min_freq}; "
                "give more text or a lower min_freq"
            )
        offsets = np.append(0, np.cumsum(lengths[lengths > 0]))
        return cls(ids, offsets, vocab)


def _number(
    text: str | Iterable[str], tokenizer: Callable[[str], list[str]]
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return ids by first sight (n_tokens,), tokens a line (n_lines,), and the tokens by id."""
    numbers: defaultdict[str, int] = defaultdict(count().__next__)
    if tokenizer is str.split and isinstance(text, str) and _LINE_END not in text:
        # One split of the whole text is twice as fast as one a line; the mark keeps the lines.
        flat = text.replace("\n", f" {_LINE_END} ").split()
        numbers[_LINE_END]  # takes number 0
        ids = np.fromiter(map(numbers.__getitem__, flat), np.int32, len(flat)) - 1
        ends = np.append(np.flatnonzero(ids < 0), len(ids))
        return ids[ids >= 0], np.diff(ends, prepend=-1) - 1, list(numbers)[1:]
    lines = text.split("\n") if isinstance(text, str) else list(text)
    if tokenizer is str.split:
        checks.strings(text=lines)
    sentences = [tokenizer(line) for line in lines]
    flat = chain.from_iterable(sentences)
    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    ids = np.fromiter(map(numbers.__getitem__, flat), np.int32, int(lengths.sum()))
    return ids, lengths, list(numbers)
