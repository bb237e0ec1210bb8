"""fastText: skip-gram with word vectors that are means over a word and its character n-grams.

Each n-gram is hashed to one of a fixed number of buckets, the same as fastText's. Buckets that
occur in the same words of the vocabulary get the same gradient at every step, so they share one
row: the buckets that no word uses have none, and memory does not grow with their number.

fastText's text format, .vec, is that of word2vec: `model.vectors.save(path, "word2vec")` writes it
and `WordVectors.load` reads it. It has no n-grams; .bin, which holds them, is not read here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from support import checks, profile
from support.text.vocab import Corpus
from support.vectors import word2vec
from support.vectors.word_vectors import WordVectors

BUCKETS = 2_000_000  # as fastText has them


def ngram_hashes(words: list[str], min_n: int, max_n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the hashes of all words' n-grams, (n,) uint32, and the number of each's word, (n,).

    The n-grams are those of a word between the marks < and >, short ones first, the words' mixed;
    hash % buckets is the bucket.
    Raises: ValueError unless 2 <= min_n <= max_n. Source: Bojanowski et al. 2017, section 3.2; for
    the hash, FNV-1a (Fowler, Noll and Vo) over UTF-8 bytes, each widened with its sign, as
    fastText's dictionary.cc does.
    """
    checks.strings(words=words)
    _check_lengths(min_n, max_n)
    marked = "".join(f"<{word}>" for word in words)
    raw = np.frombuffer(marked.encode("utf-8", "surrogatepass"), np.uint8)
    signed = raw.view(np.int8).astype(np.int32).view(np.uint32)
    start = np.flatnonzero(raw & 0xC0 != 0x80)  # (n_characters,) other bytes continue one
    size = np.diff(start, append=len(raw))
    owner = np.repeat(np.arange(len(words)), [len(word) + 2 for word in words])
    hashes, owners = [], []
    value = np.full(len(owner), 2166136261, np.uint32)
    for n in range(1, max_n + 1):  # the hash of n characters goes on from that of n - 1
        last = owner[n - 1 :]  # the word of the n-th character
        value = value[: len(last)]
        for byte in range(size.max(initial=0)):
            more = size[n - 1 :] > byte
            value[more] = (value[more] ^ signed[start[n - 1 :][more] + byte]) * np.uint32(16777619)
        if n >= min_n:
            inside = last == owner[: len(last)]
            hashes.append(value[inside])
            owners.append(last[inside])
    return np.concatenate(hashes), np.concatenate(owners)


class Subwords:
    """The rows that a word's vector is the mean of: its n-grams' by bucket, and one of its own.

    rows: their number; row_of_bucket: of each bucket in use; row_of_word: (n_words,).
    members, owners, weights: (n,) a row, a word that has it, its share in that word's mean; in
    order of the words. offsets: (n_words + 1,) where each word's members start.
    Raises: ValueError as `ngram_hashes`, or without a bucket.
    """

    def __init__(self, words: list[str], min_n: int, max_n: int, buckets: int):
        checks.integers(1, buckets=buckets)
        self.min_n, self.max_n, self.buckets = min_n, max_n, buckets
        hashes, owner = ngram_hashes(words, min_n, max_n)
        used, place = np.unique(hashes % buckets, return_inverse=True)
        place = np.append(place, len(used) + np.arange(len(words)))  # buckets, then the words
        owner = np.append(owner, np.arange(len(words)))
        # A random number a word: buckets with equal sums occur in the same words, equally often.
        sums = np.zeros(len(used) + len(words), np.uint64)
        marks = np.random.default_rng(0).integers(2**63, size=len(words), dtype=np.uint64)
        np.add.at(sums, place, marks[owner])
        distinct, row = np.unique(sums, return_inverse=True)
        self.rows, self.row_of_word = len(distinct), row[len(used) :]
        self.row_of_bucket = dict(zip(used.tolist(), row.tolist(), strict=False))
        pairs, times = np.unique(owner * self.rows + row[place], return_counts=True)
        self.owners, self.members = np.divmod(pairs, self.rows)
        self.weights = (times / np.bincount(owner)[self.owners]).astype(np.float32)
        self.offsets = np.append(0, np.cumsum(np.bincount(self.owners, minlength=len(words))))


@dataclass
class FastText(word2vec.Word2Vec):
    """What training gives back: beside what word2vec gives, the rows that word vectors are made of.

    subwords: which rows; table: (rows, dim) float32, their vectors.
    """

    subwords: Subwords | None = None
    table: np.ndarray | None = None

    def __getitem__(self, word: str) -> np.ndarray:
        """Return the vector (dim,) of any word; in an unseen one, unseen n-grams count as 0.

        Raises: ValueError if an unseen word has no n-gram that occurs in the words of the text.
        """
        if word in self.vectors:
            return self.vectors[word]
        of = self.subwords
        buckets = ngram_hashes([word], of.min_n, of.max_n)[0] % of.buckets
        rows = [of.row_of_bucket[b] for b in buckets.tolist() if b in of.row_of_bucket]
        if not rows:
            raise ValueError(f"no n-gram of {word!r} occurs in the words of the training text")
        return self.table[rows].sum(0) / len(buckets)

    def most_similar(self, word: str, k: int = 10) -> list[tuple[str, float]]:
        """Return the k words of the vocabulary nearest to any word, which itself is left out.

        Raises: ValueError as indexing, or for k < 1.
        """
        return self.vectors.most_similar(word if word in self.vectors else self[word], k)


def train(
    corpus: Corpus,
    *,
    min_n: int = 3,
    max_n: int = 6,
    buckets: int = BUCKETS,
    dim: int = 100,
    window: int = 5,
    negatives: int = 5,
    subsample: float = 1e-4,
    epochs: int = 5,
    lr: float = 0.15,
    batch: int = 2048,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: bool | None = None,
) -> FastText:
    """Return word and n-gram vectors trained on a corpus by skip-gram with negative sampling.

    Args: as `word2vec.train`; min_n, max_n: the shortest and longest n-grams; buckets: how many
    numbers they are hashed to. Raises: as `word2vec.train` and `Subwords`.
    Source: Bojanowski et al. 2017, section 3, with a mean in place of the sum, as in their program.
    """
    device = torch.device(device or profile.device())
    trainer = word2vec.Trainer(corpus, dim, window, negatives, seed, device)
    words = corpus.vocab.get_itos()
    subwords = Subwords(words, min_n, max_n, buckets)
    trainer.inputs = SubwordTable(subwords, trainer.small_random(subwords.rows, dim))
    losses, *speeds = trainer.run(epochs, lr, subsample, batch, progress)
    means, _ = trainer.inputs.look_up(torch.arange(len(words), device=device))
    sides = (means, trainer.outputs.vectors)
    vectors = (WordVectors(words, side.cpu().numpy()) for side in sides)
    table = trainer.inputs.table.vectors.cpu().numpy()
    return FastText(*vectors, losses, *speeds, subwords, table)


class _Parts(NamedTuple):
    """What some words of a batch are made of, one word after the other.

    place: the shape of the ids looked up, the number of each id's word among the different ones.
    rows, weights, owners: (n,) a row, its share in the mean of a word, the number of that word.
    starts: (n_different,) where each word's rows start.
    """

    place: Tensor
    rows: Tensor
    weights: Tensor
    owners: Tensor
    starts: Tensor


class SubwordTable:
    """Word vectors that are means of rows, for `word2vec.Trainer` in place of its plain table.

    table: the `word2vec.Table` of the rows, which is what learns.
    """

    def __init__(self, subwords: Subwords, vectors: Tensor):
        self.table = word2vec.Table(vectors)
        self.members = torch.from_numpy(subwords.members).to(vectors.device)
        self.weights = torch.from_numpy(subwords.weights).to(vectors.device)
        self.offsets = torch.from_numpy(subwords.offsets).to(vectors.device)

    def look_up(self, ids: Tensor) -> tuple[Tensor, _Parts]:
        """Return the vectors of words, ids.shape + (dim,), and what they are made of."""
        words, place = ids.unique(return_inverse=True)
        size = self.offsets[words + 1] - self.offsets[words]
        starts = size.cumsum(0) - size
        owners = torch.repeat_interleave(torch.arange(len(words), device=ids.device), size)
        member = (
            torch.arange(len(owners), device=ids.device) + (self.offsets[words] - starts)[owners]
        )
        rows, weights = self.members[member], self.weights[member]
        means = _weighted_sums(self.table.vectors, rows, weights, starts)
        return means[place], _Parts(place, rows, weights, owners, starts)

    def ascend(self, parts: _Parts, gradient: Tensor, rate: float) -> None:
        """Add to the rows of the words looked up their gradient, ids.shape + (dim,)."""
        by_word = gradient.new_zeros(len(parts.starts), gradient.shape[-1])
        by_word.index_add_(0, parts.place.reshape(-1), gradient.reshape(-1, gradient.shape[-1]))
        rows, order = parts.rows.sort()  # all words of one row side by side
        rows, times = rows.unique_consecutive(return_counts=True)
        starts = times.cumsum(0) - times
        by_row = _weighted_sums(by_word, parts.owners[order], parts.weights[order], starts)
        self.table.ascend(rows, by_row, rate)


def _weighted_sums(table: Tensor, rows: Tensor, weights: Tensor, starts: Tensor) -> Tensor:
    """Return sums of weighted rows of a table, (n, dim); sum i has the rows from starts[i] on."""
    return F.embedding_bag(rows, table, starts, mode="sum", per_sample_weights=weights)


def _check_lengths(min_n: int, max_n: int) -> None:
    checks.integers(2, min_n=min_n)
    checks.integers(min_n, max_n=max_n)
