"""The data of BERT's pre-training: pairs of sentences, and tokens hidden for the model to guess.

Everything that chance decides is drawn afresh in each epoch: the partner of a sentence, the order
of the pairs, the tokens to hide. All of it is made for a whole batch at once, on arrays.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch

from support import checks
from support.text.vocab import Corpus, Vocab
from support.text.wordpiece import SPECIALS

_HEADING = re.compile("=.*=")
_SENTENCE_END = re.compile(r' (?:(?<= [.!?] )|(?<= [.!?] " ))(?![.!?"](?: |$))')


class SpecialIds(NamedTuple):
    """The ids of BERT's special tokens; a vocabulary that needs no unk gives pad's id twice."""

    pad: int = 0
    unk: int = 1
    cls: int = 2
    sep: int = 3
    mask: int = 4


class PretrainingBatch(NamedTuple):
    """B pairs of sentences, [CLS] a [SEP] b [SEP], of rising length; all are int64 tensors.

    rows and places follow from positions, see `pretraining_batch`. They are made with the batch, on
    the CPU, since their sizes are not known to the program once the batch is on a GPU.
    """

    ids: torch.Tensor  # (B, T) what the model sees, padded to the longest pair of the batch
    segments: torch.Tensor  # (B, T) 1 behind the first [SEP] up to the second, else 0
    lengths: torch.Tensor  # (B,) tokens without padding
    positions: torch.Tensor  # (P,) rising places in ids.flatten() of what is to be predicted
    targets: torch.Tensor  # (P,) the ids that stood there
    is_next: torch.Tensor  # (B,) 1 where b follows a in the text, else 0
    rows: torch.Tensor  # (B, 1 + K) 0, then the columns of a row's predictions, at most K; then 0
    places: torch.Tensor  # (P,) where the predictions stand in rows.flatten()


def pretraining_batch(
    ids: np.ndarray,
    segments: np.ndarray,
    lengths: np.ndarray,
    positions: np.ndarray,
    targets: np.ndarray,
    is_next: np.ndarray,
) -> PretrainingBatch:
    """Return the batch of these arrays, of int64, or tensors on the CPU: see PretrainingBatch."""
    row, column = np.divmod(np.asarray(positions), ids.shape[1])
    counts = np.bincount(row, minlength=len(ids))
    # The first place of a row is for [CLS], in column 0.
    place = 1 + np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
    rows = np.zeros((len(ids), 1 + counts.max()), np.int64)
    rows[row, place] = column
    arrays = ids, segments, lengths, positions, targets, is_next
    arrays += (rows, row * rows.shape[1] + place)
    return PretrainingBatch(*map(torch.as_tensor, arrays))


def split_sentences(text: str) -> list[list[str]]:
    """Return the sentences of each paragraph of a text with one paragraph a line.

    Words and marks must stand apart, as in WikiText-2 and ToyWorld. A sentence ends after the last
    of the marks . ! ? and a quotation mark behind it. Headings (" = Title = ") are left out.
    """
    lines = (line.strip() for line in text.split("\n"))
    return [_SENTENCE_END.split(line) for line in lines if line and not _HEADING.fullmatch(line)]


@dataclass(frozen=True, eq=False)
class Documents:
    """Paragraphs of sentences of token ids, as flat arrays; vocab is None if only ids are known.

    Sentence i is ids[sentences[i]:sentences[i + 1]]; the sentences of a paragraph likewise.
    Raises: ValueError for no text, an empty sentence or paragraph, and ids outside the vocabulary.
    """

    ids: np.ndarray  # (N,) int32
    sentences: np.ndarray  # (S + 1,) int64
    paragraphs: np.ndarray  # (P + 1,) int64
    vocab: Vocab | None
    vocab_size: int
    special: SpecialIds = SpecialIds()

    def __post_init__(self):
        for name, end in ("sentences", len(self.ids)), ("paragraphs", len(self.sentences) - 1):
            bounds = getattr(self, name)
            if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != end or np.diff(bounds).min() < 1:
                raise ValueError(f"{name} must rise from 0 to {end}, got {bounds[:9]}")
        low, high = min(self.ids.min(), *self.special), max(self.ids.max(), *self.special)
        if low < 0 or high >= self.vocab_size:
            raise ValueError(f"ids must be in 0 … {self.vocab_size - 1}, got {low} … {high}")

    @classmethod
    def from_text(cls, text: str, *, min_freq: int = 1, vocab: Vocab | None = None) -> Documents:
        """Return the documents of a text with one paragraph a line; see `split_sentences`.

        Words rarer than min_freq, or outside a given vocab, become [UNK], as does <unk>.
        Raises: ValueError if there is no text, or a given vocab lacks a special token.
        """
        checks.text(text=text)
        if missing := [token for token in SPECIALS if vocab and token not in vocab]:
            raise ValueError(f"the given vocabulary lacks the special tokens {missing}")
        paragraphs = split_sentences(text.replace("<unk>", "[UNK]"))
        options = {"min_freq": min_freq, "specials": SPECIALS, "unk": "[UNK]", "vocab": vocab}
        corpus = Corpus.from_text("\n".join(chain.from_iterable(paragraphs)), **options)
        bounds, vocab = np.cumsum([0, *map(len, paragraphs)], dtype=np.int64), corpus.vocab
        special = SpecialIds(*vocab.lookup_indices(SPECIALS))
        return cls(corpus.ids, corpus.offsets, bounds, vocab, len(vocab), special)

    @classmethod
    def from_ids(
        cls,
        paragraphs: Iterable[Sequence[Sequence[int]]],
        vocab_size: int,
        special: SpecialIds | None = None,
    ) -> Documents:
        """Return the documents of sentences that a tokenizer has encoded, without special tokens.

        Raises: ValueError for an empty sentence or paragraph, or an id outside the vocabulary.
        """
        sentences = list(chain.from_iterable(paragraphs := list(paragraphs)))
        ids = np.array(list(chain.from_iterable(sentences)))
        if len(ids) and (ids.dtype.kind not in "iu" or ids.max() >= 2**31):
            raise ValueError(f"ids must be integers below 2**31, got {ids}")
        ends = [np.cumsum([0, *map(len, x)], dtype=np.int64) for x in (sentences, paragraphs)]
        return cls(ids.astype(np.int32), *ends, None, vocab_size, special or SpecialIds())


class SentencePairs:
    """The pairs of consecutive sentences of a paragraph, and random partners for the first of each.

    A random partner is a sentence that is itself the second of some pair, so that neither half of
    a pair alone gives the answer away. It is never from the same paragraph, nor a copy of the true
    next sentence, nor one that could become a copy when pairs are shortened to room tokens.
    first, second: (n_pairs,) numbers of sentences.
    Raises: ValueError if there is no pair, or none but excluded partners for one.
    """

    def __init__(self, documents: Documents, room: int):
        bounds, counts = documents.sentences, np.diff(documents.paragraphs)
        self.paragraph = np.repeat(np.arange(len(counts), dtype=np.int64), counts)  # (S,)
        self.first = np.flatnonzero(self.paragraph[1:] == self.paragraph[:-1])
        self.second = self.first + 1
        if len(self.first) == 0:
            raise ValueError(f"none of the {len(counts)} paragraphs has two sentences")
        # No sentence is cut below half the room: two that differ up to there stay different.
        spans = zip(bounds[:-1], np.minimum(bounds[1:], bounds[:-1] + room // 2), strict=True)
        seen: dict[bytes, int] = {}
        texts = (documents.ids[start:end].tobytes() for start, end in spans)
        self.text = np.array([seen.setdefault(text, len(seen)) for text in texts])  # (S,)
        paragraph, text = self.paragraph[self.second], self.text[self.second]
        both = np.unique(paragraph * len(seen) + text, return_inverse=True)[1]
        excluded = sum(np.bincount(x)[x] for x in (paragraph, text)) - np.bincount(both)[both]
        if excluded.max() == len(self.first):
            lonely = self.second[excluded.argmax()]
            raise ValueError(f"nothing can take the place of sentence {lonely}: give more text")

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return a second sentence for each first, and whether it is the true next; (n_pairs,)."""
        is_next = rng.random(len(self.first)) < 0.5
        second, again = self.second.copy(), np.flatnonzero(~is_next)
        while len(again):
            second[again] = self.second[rng.integers(len(self.second), size=len(again))]
            same = (x[second[again]] == x[self.second[again]] for x in (self.paragraph, self.text))
            again = again[np.logical_or(*same)]
        return second, is_next


def shorten_pairs(a: np.ndarray, b: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the lengths (B,) at which sentences of a and of b (B,) tokens fit into room together.

    The longer one loses tokens from its end until both are equal, then the second and the first by
    turns. Source: Devlin et al. 2019, the authors' code.
    """
    short_a = np.minimum(a, np.maximum(room - b, (room + 1) // 2))
    return short_a, np.minimum(b, np.maximum(room - a, room // 2))


def mask_tokens(
    ids: np.ndarray,
    choosable: np.ndarray,
    rng: np.random.Generator,
    *,
    mask_id: int,
    random_ids: np.ndarray,
    share: float = 0.15,
    fractions: tuple[float, float, float] = (0.8, 0.1, 0.1),
    word_starts: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ids with some tokens hidden (B, T), their places in ids.flatten() and ids before (P,).

    Of the n tokens of a row that are choosable (B, T), share · n are chosen, rounded, at least one.
    A chosen token becomes mask_id, becomes one of random_ids (R,), which can be itself, or stays,
    with the chances in fractions. With word_starts (B, T), True at a word's first token, words are
    chosen whole, to come near the share; a token that is not choosable ends a word.
    Raises: ValueError for shapes that differ, or a share or fractions that are no chances.
    Source: Devlin et al. 2019, section 3.1; whole words: the authors' code, May 2019.
    """
    checks.shares(share=share)
    checks.chances(3, fractions=fractions)
    starts = np.ones_like(choosable) if word_starts is None else word_starts.copy()
    shapes = (ids.shape, choosable.shape, starts.shape)
    if ids.ndim != 2 or len(set(shapes)) != 1 or choosable.dtype != bool or not len(random_ids):
        wanted = "random_ids must not be empty, and ids and bool choosable, word_starts (B, T)"
        raise ValueError(f"{wanted} must have one shape, got {shapes}")
    starts[:, 0] = True
    starts[:, 1:] |= ~choosable[:, :-1]
    places = np.flatnonzero(choosable)
    row = (places // ids.shape[1]).astype(np.min_scalar_type(len(ids)))  # 16 bits sort fastest
    starts = starts.reshape(-1)[places]
    word, word_row = np.cumsum(starts) - 1, row[starts]  # each token's word, each word's row

    # Shuffle all words, then bring those of a row together again: a random order in each row.
    order = rng.permutation(len(word_row))
    order = order[np.argsort(word_row[order], kind="stable")]
    size = np.bincount(word, minlength=len(order))[order]
    row_size = np.bincount(row, minlength=len(ids))
    end = np.cumsum(size) - (np.cumsum(row_size) - row_size)[word_row]
    chosen = np.empty(len(order), bool)
    # A word counts as within the share if its middle is; for single tokens this rounds the share.
    chosen[order] = (end - size / 2 <= share * row_size[word_row]) | (end == size)
    places = places[chosen[word]]

    targets = ids.reshape(-1)[places]
    chance = rng.random(len(places))
    drawn = random_ids[rng.integers(len(random_ids), size=len(places))]
    drawn = np.where(chance < fractions[0] + fractions[1], drawn, targets)
    noisy = ids.copy()
    np.put(noisy, places, np.where(chance < fractions[0], mask_id, drawn))
    return noisy, places, targets


class Epoch:
    """The batches of an epoch, which can be gone through again; len() is their number."""

    def __init__(self, n_batches: int, make: Callable[[], Iterator[PretrainingBatch]]):
        self._n_batches, self._make = n_batches, make

    def __len__(self) -> int:
        return self._n_batches

    def __iter__(self) -> Iterator[PretrainingBatch]:
        return self._make()


def pretraining_batches(
    documents: Documents,
    batch_size: int,
    max_length: int = 64,
    *,
    seed: int = 0,
    share: float = 0.15,
    fractions: tuple[float, float, float] = (0.8, 0.1, 0.1),
    word_starts: np.ndarray | None = None,
) -> Callable[[int], Epoch]:
    """Return a function from an epoch (0, 1, …) to its batches: each pair once, in random order.

    The same seed gives the same batches. Special tokens, of which [UNK] is one, are never to be
    predicted, nor put in the place of another token.
    Args: max_length counts the special tokens; longer pairs are shortened. share and fractions as
    in `mask_tokens`. word_starts: (N,) bool, where in documents.ids a word starts, to hide whole
    words; of a table over the vocabulary, table[documents.ids].
    Raises: ValueError for arguments out of range, and as `SentencePairs`.
    Source: Devlin et al. 2019, sections 3.1 and A.2; fresh masks in each epoch: Liu et al. 2019.
    """
    checks.integers(1, batch_size=batch_size)
    checks.integers(5, max_length=max_length)
    checks.integers(0, seed=seed)
    checks.shares(share=share)
    checks.chances(3, fractions=fractions)
    if word_starts is not None and (given := word_starts.shape) != documents.ids.shape:
        raise ValueError(f"word_starts must have shape {documents.ids.shape}, got {given}")
    special, sizes, room = documents.special, np.diff(documents.sentences), max_length - 3
    ordinary = ~np.isin(np.arange(documents.vocab_size), special)
    options = {"mask_id": special.mask, "random_ids": np.flatnonzero(ordinary)}
    hide = partial(mask_tokens, **options, share=share, fractions=fractions)
    pairs = SentencePairs(documents, room)

    def make(epoch: int) -> Iterator[PretrainingBatch]:
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
        second, is_next = pairs.draw(rng)
        length_a, length_b = shorten_pairs(sizes[pairs.first], sizes[second], room)
        lengths, columns = length_a + length_b + 3, (pairs.first, second, length_a, length_b)
        order = rng.permutation(len(second))
        for rows in np.split(order, range(batch_size, len(order), batch_size)):
            rows = rows[np.argsort(lengths[rows], kind="stable")]
            ids, segments, source = _join(documents, *(column[rows] for column in columns))
            choosable = (source >= 0) & ordinary[ids]
            starts = None if word_starts is None else word_starts[source]
            noisy, places, targets = hide(ids, choosable, rng, word_starts=starts)
            follows = is_next[rows].astype(np.int64)
            yield pretraining_batch(noisy, segments, lengths[rows], places, targets, follows)

    return lambda epoch: Epoch(math.ceil(len(pairs.first) / batch_size), partial(make, epoch))


def _join(
    documents: Documents, a: np.ndarray, b: np.ndarray, length_a: np.ndarray, length_b: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ids, segments, and each token's place in documents.ids or -1, all (B, T)."""
    row, special = np.arange(len(a)), documents.special
    column = np.arange((length_a + length_b).max() + 3)
    sep = length_a[:, None] + 1  # (B, 1) the place of the first [SEP]
    end = sep + length_b[:, None] + 1  # (B, 1) the place of the second
    start_a, start_b = documents.sentences[a][:, None], documents.sentences[b][:, None]
    source = np.where((column > 0) & (column < sep), start_a + column - 1, -1)
    source = np.where((column > sep) & (column < end), start_b + column - sep - 1, source)
    ids = np.where(source >= 0, documents.ids[source], special.pad).astype(np.int64)
    ids[:, 0], ids[row, sep[:, 0]], ids[row, end[:, 0]] = special.cls, special.sep, special.sep
    return ids, ((column > sep) & (column <= end)).astype(np.int64), source
