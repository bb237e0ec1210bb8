"""fastText: skip-gram with word vectors that are means over a word and its character n-grams.

Each n-gram is hashed to one of a fixed number of buckets, the same as fastText's. Buckets that
occur in the same words of the vocabulary get the same gradient at every step, so they share one
row: the buckets that no word uses have none, and memory does not grow with their number.

fastText's text format, .vec, is that of word2vec: `model.vectors.save(path, "word2vec")` writes it
and `WordVectors.load` reads it. It has no n-grams; .bin, which holds them, is not read here.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from support import checks, profile
from support.text.vocab import Corpus
from support.vectors import word2vec
from support.vectors.word_vectors import WordVectors

BUCKETS = 2_000_000  # as fastText has them


def ngrams(word: str, min_n: int = 3, max_n: int = 6) -> list[str]:
    """Return a word's character n-grams between the marks < and >, short ones first.

    Raises: ValueError unless 2 <= min_n <= max_n and the word has a letter.
    Source: Bojanowski et al. 2017, section 3.2.
    """
    _check_words([word], min_n, max_n)
    marked = f"<{word}>"
    return [marked[i : i + n] for n in range(min_n, max_n + 1) for i in range(len(marked) - n + 1)]


def ngram_hashes(words: list[str], min_n: int, max_n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the hashes of all words' n-grams, (n,) uint32, and the number of each's word, (n,).

    A word's hashes are in the order of `ngrams`, the words' mixed; hash % buckets is the bucket.
    Raises: ValueError as `ngrams`. Source: FNV-1a (Fowler, Noll and Vo) over UTF-8 bytes, each
    widened with its sign, as fastText's dictionary.cc does.
    """
    _check_words(words, min_n, max_n)
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
    Raises: ValueError as `ngrams`, or for buckets outside 1 … 2**31.
    """

    def __init__(self, words: list[str], min_n: int, max_n: int, buckets: int):
        checks.integers(-math.inf, buckets=buckets)
        if not 1 <= buckets <= 2**31:
            raise ValueError(f"buckets must be from 1 to 2**31, given {buckets}")
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
    block = word2vec.BLOCK
    checks.integers(1, dim=dim, window=window, negatives=negatives, epochs=epochs)
    checks.at_least(0, subsample=subsample, lr=lr)
    checks.integers(block, batch=batch)
    words = corpus.vocab.get_itos()
    subwords = Subwords(words, min_n, max_n, buckets)
    device = torch.device(device or profile.device())
    trainer = _Trainer(corpus, subwords, dim, window, negatives, seed, device)
    shown = profile.progress_enabled() if progress is None else progress
    losses, centers, start = [], 0, time.perf_counter()
    for epoch in tqdm(range(epochs), unit="epoch", disable=not shown):
        text = trainer.subsample(subsample)
        steps = math.ceil(text.n_blocks / (batch // block))
        for step, some in enumerate(text.batches(batch // block)):
            rate = lr * (1 - (epoch + step / steps) / epochs)
            loss = trainer.step(*some, rate, step % max(steps // 100, 1) == 0)
            losses += [] if loss is None else [loss]
        centers += text.n_words
    seconds = time.perf_counter() - start
    trainer.compose(torch.arange(len(words), device=device))
    vectors = [WordVectors(words, x.cpu().numpy()) for x in (trainer.inputs, trainer.outputs)]
    speeds = epochs * len(corpus.ids) / seconds, centers / seconds
    return FastText(*vectors, losses, *speeds, subwords, trainer.table.cpu().numpy())


class _Trainer(word2vec._Trainer):
    """word2vec's step, whose inputs are means of rows, and whose gradient goes to these rows."""

    def __init__(self, corpus, subwords, dim, window, negatives, seed, device):
        super().__init__(corpus, "skipgram", "negative", dim, window, negatives, seed, device)
        chance = torch.rand(subwords.rows, dim, generator=self.rng, device=device)
        self.table = (chance - 0.5) / dim
        self.squares[id(self.table)] = torch.full((subwords.rows,), 1e-8, device=device)
        self.members = torch.from_numpy(subwords.members).to(device)
        self.weights = torch.from_numpy(subwords.weights).to(device)
        self.offsets = torch.from_numpy(subwords.offsets).to(device)

    def compose(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Set the inputs of some words (n,); return their rows, the weights, and whose they are."""
        size = self.offsets[ids + 1] - self.offsets[ids]
        start = size.cumsum(0) - size
        owner = torch.repeat_interleave(torch.arange(len(ids), device=ids.device), size)
        place = torch.arange(len(owner), device=ids.device) + (self.offsets[ids] - start)[owner]
        rows, weights = self.members[place], self.weights[place]
        mean = F.embedding_bag(rows, self.table, start, mode="sum", per_sample_weights=weights)
        self.inputs.index_copy_(0, ids, mean)
        return rows, weights, owner

    def step(self, words, together, rate, report):
        ids, self.place = words[:, self.window : -self.window].unique(return_inverse=True)
        self.parts = self.compose(ids)
        return super().step(words, together, rate, report)

    def ascend(self, table, rows, gradient, rate):
        if table is not self.inputs:
            return super().ascend(table, rows, gradient, rate)
        members, weights, owner = self.parts
        by_word = gradient.new_zeros(int(owner[-1]) + 1, gradient.shape[-1])
        by_word.index_add_(0, self.place.reshape(-1), gradient.reshape(-1, gradient.shape[-1]))
        members, order = members.sort()  # all words of one row side by side
        rows, times = members.unique_consecutive(return_counts=True)
        owner, weights, start = owner[order], weights[order], times.cumsum(0) - times
        by_row = F.embedding_bag(owner, by_word, start, mode="sum", per_sample_weights=weights)
        return super().ascend(self.table, rows, by_row, rate)


def _check_words(words: list[str], min_n: int, max_n: int) -> None:
    checks.integers(0, min_n=min_n, max_n=max_n)
    if not 2 <= min_n <= max_n:
        raise ValueError(f"n-grams need 2 <= min_n <= max_n, given {min_n} and {max_n}")
    checks.strings(words=words)
    if "" in words:
        raise ValueError("a word needs a letter at least, given ''")
