"""fastText: skip-gram with word vectors that are means over a word and its character n-grams.

Each n-gram is hashed to one of a fixed number of buckets, the same as fastText's. Buckets that
occur in the same words of the vocabulary get the same gradient at every step, so they share one
row: the buckets that no word uses have none, and memory does not grow with their number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from support import profile
from support.text.vocab import Corpus
from support.vectors import word2vec
from support.vectors.word_vectors import WordVectors

BUCKETS = 2_000_000  # as fastText has them


def ngram_hashes(word: str, min_n: int, max_n: int) -> list[int]:
    """Return the 32-bit hashes of a word's n-grams; a hash modulo `buckets` is a bucket.

    The n-grams are those of the word between the marks < and >, which alone are none.
    Source: Bojanowski et al. 2017, section 3.2; for the hash, FNV-1a (Fowler, Noll and Vo) over
    UTF-8 bytes, each widened with its sign, as fastText's dictionary.cc does.
    """
    marked, hashes = f"<{word}>", []
    for start in range(len(marked)):
        value = 2166136261
        for n, letter in enumerate(marked[start : start + max_n], 1):
            for byte in letter.encode("utf-8", "surrogatepass"):
                value ^= byte if byte < 128 else byte | 0xFFFFFF00
                value = value * 16777619 % 2**32
            mark_alone = n == 1 and start in (0, len(marked) - 1)
            if n >= min_n and not mark_alone:
                hashes.append(value)
    return hashes


class Subwords:
    """The rows that a word's vector is the mean of: its n-grams' by bucket, and one of its own.

    `members`, `owners` and `weights` (n,) are a row, a word that has it, and its weight in the mean
    of that word; in order of the words, whose members start at `offsets` (n_words + 1,).
    """

    def __init__(self, words: list[str], min_n: int, max_n: int, buckets: int):
        self.min_n, self.max_n, self.buckets = min_n, max_n, buckets
        hashes = [ngram_hashes(word, min_n, max_n) for word in words]
        owner = np.repeat(np.arange(len(words)), [len(found) for found in hashes])
        bucket = np.array([h % buckets for found in hashes for h in found], np.int64)
        used, index = np.unique(bucket, return_inverse=True)
        index = np.append(index, len(used) + np.arange(len(words)))  # buckets, then the words
        owner = np.append(owner, np.arange(len(words)))
        # A random number a word: buckets with equal sums occur in the same words, equally often.
        sums = np.zeros(len(used) + len(words), np.uint64)
        marks = np.random.default_rng(0).integers(2**63, size=len(words), dtype=np.uint64)
        np.add.at(sums, index, marks[owner])
        distinct, row = np.unique(sums, return_inverse=True)
        self.rows, self.row_of_word = len(distinct), row[len(used) :]
        self.row_of_bucket = dict(zip(used.tolist(), row.tolist(), strict=False))
        pairs, times = np.unique(owner * self.rows + row[index], return_counts=True)
        self.owners, self.members = np.divmod(pairs, self.rows)
        self.weights = (times / np.bincount(owner)[self.owners]).astype(np.float32)
        self.offsets = np.append(0, np.cumsum(np.bincount(self.owners, minlength=len(words))))


@dataclass
class FastText(word2vec.Word2Vec):
    """What training gives back: beside what word2vec gives, the rows that word vectors are made of.

    Indexing gives the vector (dim,) of any word; in an unseen one, unseen n-grams count as 0.
    """

    subwords: Subwords
    table: np.ndarray  # (rows, dim) float32

    def __getitem__(self, word: str) -> np.ndarray:
        if word in self.vectors:
            return self.vectors[word]
        of = self.subwords
        buckets = [h % of.buckets for h in ngram_hashes(word, of.min_n, of.max_n)]
        rows = [of.row_of_bucket[b] for b in buckets if b in of.row_of_bucket]
        if not rows:
            raise ValueError(f"no n-gram of {word!r} occurs in the words of the training text")
        return self.table[rows].sum(0) / len(buckets)

    def most_similar(self, word: str, k: int = 10) -> list[tuple[str, float]]:
        """Return the k words of the vocabulary nearest to any word, which itself is left out."""
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
    progress: bool = True,
) -> FastText:
    """Return word and n-gram vectors trained on a corpus by skip-gram with negative sampling.

    Args:
        min_n, max_n: the shortest and longest n-grams.
        buckets: how many numbers they are hashed to.
        dim, …: as in `word2vec.train`.
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


class SubwordTable:
    """Word vectors that are means of rows, for `word2vec.Trainer` in place of its plain table."""

    def __init__(self, subwords: Subwords, vectors: Tensor):
        self.table = word2vec.Table(vectors)
        self.members = torch.from_numpy(subwords.members).to(vectors.device)
        self.weights = torch.from_numpy(subwords.weights).to(vectors.device)
        self.offsets = torch.from_numpy(subwords.offsets).to(vectors.device)

    def look_up(self, ids: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the vectors of words, ids.shape + (dim,), and what `ascend` is to be told."""
        words, index = ids.unique(return_inverse=True)  # each different word once
        size = self.offsets[words + 1] - self.offsets[words]
        starts = size.cumsum(0) - size
        # For each row of each word: the word, the row, its weight in the word's mean.
        owners = torch.repeat_interleave(torch.arange(len(words), device=ids.device), size)
        within = torch.arange(len(owners), device=ids.device) - starts[owners]
        member = self.offsets[words][owners] + within
        rows, weights = self.members[member], self.weights[member]
        means = F.embedding_bag(
            rows, self.table.vectors, starts, mode="sum", per_sample_weights=weights
        )
        return means[index], (index, rows, weights, owners, starts)

    def ascend(self, parts: tuple[Tensor, ...], gradient: Tensor, lr: float) -> None:
        """Add to the rows of the words looked up their gradient, ids.shape + (dim,)."""
        index, rows, weights, owners, starts = parts
        by_word = gradient.new_zeros(len(starts), gradient.shape[-1])
        by_word.index_add_(0, index.reshape(-1), gradient.reshape(-1, gradient.shape[-1]))
        rows, order = rows.sort()  # all words of one row side by side
        rows, times = rows.unique_consecutive(return_counts=True)
        starts = times.cumsum(0) - times
        by_row = F.embedding_bag(
            owners[order], by_word, starts, mode="sum", per_sample_weights=weights[order]
        )
        self.table.ascend(rows, by_row, lr)
