"""The data of BERT's pre-training: pairs of sentences, and tokens masked for the model to predict.

Partners, order and masks are drawn afresh in each epoch, for a whole batch at once, on arrays.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch

from support.text.vocab import Corpus, Vocab
from support.text.wordpiece import SPECIALS

_HEADING = re.compile("=.*=")
_SENTENCE_END = re.compile(r' (?:(?<= [.!?] )|(?<= [.!?] " ))(?![.!?"](?: |$))')


class PretrainingBatch(NamedTuple):
    """B pairs of sentences, [CLS] a [SEP] b [SEP], of rising length; all are int64 tensors."""

    ids: torch.Tensor  # (B, T) what the model sees, padded to the longest pair of the batch
    segments: torch.Tensor  # (B, T) 1 behind the first [SEP] up to the second, else 0
    lengths: torch.Tensor  # (B,) tokens without padding
    positions: torch.Tensor  # (P,) rising positions in ids.flatten() of what is to be predicted
    targets: torch.Tensor  # (P,) the ids before masking
    is_next: torch.Tensor  # (B,) 1 where b follows a in the text, else 0


def split_sentences(text: str) -> list[list[str]]:
    """Return the sentences of each paragraph of a text with one paragraph a line.

    Words and marks must be separate, as in WikiText-2 and ToyWorld. A sentence ends after the last
    of the marks . ! ? and a quotation mark behind it. Headings (" = Title = ") are left out.
    """
    lines = (line.strip() for line in text.split("\n"))
    return [_SENTENCE_END.split(line) for line in lines if line and not _HEADING.fullmatch(line)]


@dataclass
class Documents:
    """Paragraphs of sentences of token ids, as flat arrays.

    Sentence i is ids[sentences[i]:sentences[i + 1]]; the sentences of a paragraph likewise.
    """

    ids: np.ndarray  # (N,) int32
    sentences: np.ndarray  # (S + 1,) int64
    paragraphs: np.ndarray  # (P + 1,) int64
    vocab: Vocab

    @classmethod
    def from_text(cls, text: str, *, min_freq: int = 1, vocab: Vocab | None = None) -> Documents:
        """Return the documents of a text with one paragraph a line; see `split_sentences`.

        Words rarer than min_freq, or outside a given vocab, become [UNK], as does <unk>.
        """
        if vocab and (missing := [token for token in SPECIALS if token not in vocab]):
            raise ValueError(f"expected a vocabulary with {SPECIALS}, got one without {missing}")
        paragraphs = split_sentences(text.replace("<unk>", "[UNK]"))
        lines = "\n".join(chain.from_iterable(paragraphs))
        corpus = Corpus.from_text(
            lines, min_freq=min_freq, specials=SPECIALS, unk="[UNK]", vocab=vocab
        )
        bounds = np.cumsum([0, *map(len, paragraphs)])
        return cls(corpus.ids, corpus.offsets, bounds, corpus.vocab)

    @property
    def vocab_size(self) -> int:
        """Number of different tokens, the special ones included."""
        return len(self.vocab)

    @property
    def special_ids(self) -> list[int]:
        """The ids of [PAD], [UNK], [CLS], [SEP] and [MASK]."""
        return self.vocab.lookup_indices(SPECIALS)


class SentencePairs:
    """The pairs of consecutive sentences of a paragraph, and random partners for the first of each.

    A random partner is a sentence that is itself the second of some pair, so that neither half of
    a pair alone gives the answer away. It is never from the same paragraph, nor a copy of the true
    next sentence, nor one that could become a copy when pairs are shortened to `room` tokens.
    A pair whose first sentence is all [UNK], as far as it is sure to be kept, is left out: a batch
    of such pairs would have nothing to predict, and a masked-LM loss of NaN.
    """

    def __init__(self, documents: Documents, room: int):
        start, end = documents.sentences[:-1], documents.sentences[1:]
        known = np.append(0, np.cumsum(~np.isin(documents.ids, documents.special_ids)))
        predictable = known[np.minimum(end, start + (room + 1) // 2)] > known[start]  # (S,)
        counts = np.diff(documents.paragraphs)
        self.paragraph = np.repeat(np.arange(len(counts)), counts)  # (S,)
        together = self.paragraph[1:] == self.paragraph[:-1]
        self.first = np.flatnonzero(together & predictable[:-1])  # (n_pairs,) indices of sentences
        self.second = self.first + 1
        # No sentence is cut below half the room: two that differ up to there stay different.
        seen: dict[bytes, int] = {}
        spans = zip(start, np.minimum(end, start + room // 2), strict=True)
        texts = (documents.ids[i:j].tobytes() for i, j in spans)
        self.text = np.array([seen.setdefault(text, len(seen)) for text in texts])  # (S,)

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return a second sentence for each first, and whether it is the true next; (n_pairs,)."""
        is_next = rng.random(len(self.first)) < 0.5
        second, again = self.second.copy(), np.flatnonzero(~is_next)
        for _ in range(1000):
            if len(again) == 0:
                return second, is_next
            second[again] = self.second[rng.integers(len(self.second), size=len(again))]
            same = (x[second[again]] == x[self.second[again]] for x in (self.paragraph, self.text))
            again = again[np.logical_or(*same)]
        raise ValueError(f"sentence {self.second[again[0]]} has no random partner: give more text")


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
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ids with some tokens masked (B, T), their positions in ids.flatten(), ids before (P,).

    Args:
        choosable: (B, T) bool, the tokens that may be predicted.
        mask_id, random_ids: the id of [MASK], and the ids (R,) that can replace a token.
        share: the fraction of each sequence's choosable tokens to predict, at least one token.
        fractions: of these, how many become [MASK], become a random token, and stay.
    Source: Devlin et al. 2019, section 3.1.
    """
    if not 0 < share <= 1 or not math.isclose(sum(fractions), 1):
        raise ValueError(f"expected fractions, not percentages, got {share} and {fractions}")
    if choosable.shape != ids.shape:
        raise ValueError(f"expected choosable of shape {ids.shape}, got {choosable.shape}")
    positions = np.flatnonzero(choosable)
    row = positions // ids.shape[1]
    counts = np.bincount(row, minlength=len(ids))  # (B,)
    # Shuffle all tokens, then bring those of a row together again: a random order in each row.
    order = rng.permutation(len(positions))
    order = order[np.argsort(row[order], kind="stable")]
    rank = np.arange(len(order)) - (np.cumsum(counts) - counts)[row]
    chosen = np.empty(len(order), bool)
    chosen[order] = (rank + 0.5 <= share * counts[row]) | (rank == 0)
    positions = positions[chosen]

    targets = ids.reshape(-1)[positions]
    chance = rng.random(len(positions))
    drawn = random_ids[rng.integers(len(random_ids), size=len(positions))]
    drawn = np.where(chance < fractions[0] + fractions[1], drawn, targets)
    masked = ids.copy()
    np.put(masked, positions, np.where(chance < fractions[0], mask_id, drawn))
    return masked, positions, targets


def pretraining_batches(
    documents: Documents, batch_size: int, max_length: int = 64, *, seed: int = 0
) -> Callable[[int], list[PretrainingBatch]]:
    """Return a function from an epoch (0, 1, …) to its batches: each pair once, in random order.

    The same seed gives the same batches. Pairs are shortened to max_length tokens, three special
    ones included. Special tokens, of which [UNK] is one, are never predicted, nor do they replace
    another token.
    Source: Devlin et al. 2019, sections 3.1 and A.2; fresh masks in each epoch: Liu et al. 2019.
    """
    if max_length < 5:
        raise ValueError(f"expected a max_length of at least 5, for two tokens, got {max_length}")
    special, sizes, room = documents.special_ids, np.diff(documents.sentences), max_length - 3
    ordinary = ~np.isin(np.arange(documents.vocab_size), special)
    options = {"mask_id": special[-1], "random_ids": np.flatnonzero(ordinary)}
    pairs = SentencePairs(documents, room)
    if len(pairs.first) == 0:
        raise ValueError("no paragraph has two sentences, of which the first holds a known word")

    def make(epoch: int) -> list[PretrainingBatch]:
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
        second, is_next = pairs.draw(rng)
        length_a, length_b = shorten_pairs(sizes[pairs.first], sizes[second], room)
        lengths, columns = length_a + length_b + 3, (pairs.first, second, length_a, length_b)
        order, batches = rng.permutation(len(second)), []
        for rows in np.split(order, range(batch_size, len(order), batch_size)):
            rows = rows[np.argsort(lengths[rows], kind="stable")]
            ids, segments, source = _join(documents, *(column[rows] for column in columns))
            choosable = (source >= 0) & ordinary[ids]
            masked, positions, targets = mask_tokens(ids, choosable, rng, **options)
            follows = is_next[rows].astype(np.int64)
            arrays = masked, segments, lengths[rows], positions, targets, follows
            batches.append(PretrainingBatch(*map(torch.from_numpy, arrays)))
        return batches

    return make


def _join(
    documents: Documents, a: np.ndarray, b: np.ndarray, length_a: np.ndarray, length_b: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ids, segments, and each token's index in documents.ids or -1, all (B, T)."""
    pad, _, cls, sep, _ = documents.special_ids
    row, column = np.arange(len(a)), np.arange((length_a + length_b).max() + 3)
    middle = length_a[:, None] + 1  # (B, 1) the position of the first [SEP]
    end = middle + length_b[:, None] + 1  # (B, 1) the position of the second
    start_a, start_b = documents.sentences[a][:, None], documents.sentences[b][:, None]
    source = np.where((column > 0) & (column < middle), start_a + column - 1, -1)
    source = np.where((column > middle) & (column < end), start_b + column - middle - 1, source)
    ids = np.where(source >= 0, documents.ids[source], pad).astype(np.int64)
    ids[:, 0], ids[row, middle[:, 0]], ids[row, end[:, 0]] = cls, sep, sep
    return ids, ((column > middle) & (column <= end)).astype(np.int64), source
