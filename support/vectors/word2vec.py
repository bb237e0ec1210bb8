"""word2vec: skip-gram with negative sampling, fast.

Training goes by blocks of consecutive words. All centers of a block meet all words and noise words
of the block in one small matrix product, and a matrix of weights says how much each meeting counts.
Most count nothing; computing them all is still several times faster than picking out the few.
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

from support import profile
from support.text.vocab import Corpus
from support.vectors.word_vectors import WordVectors

BLOCK = 16  # words a block: small enough to waste little, large enough for fast products
NOISE_WORDS = 32  # noise words that the words of a block share


@dataclass
class Word2Vec:
    """What training gives back."""

    vectors: WordVectors  # of the words as centers
    context: WordVectors  # of the words as context words
    losses: list[float]  # nats a pair, about 100 values an epoch
    words_per_second: float
    centers_per_second: float  # without the words that subsampling drops


@dataclass
class Examples:
    """The skip-gram examples of one pass over a corpus, one row a (center, context) pair."""

    centers: np.ndarray  # (n_pairs,) int32
    contexts: np.ndarray  # (n_pairs,) int32
    negatives: np.ndarray  # (n_pairs, K) int32
    n_centers: int  # words that subsampling kept


def keep_probability(counts: np.ndarray, threshold: float) -> np.ndarray:
    """Return the probability that subsampling keeps each word, (vocab_size,); 1 for rare words.

    Source: Mikolov et al. 2013b, eq. 5: a word is left out with probability 1 - sqrt(t / f).
    """
    frequency = counts / max(counts.sum(), 1)
    return np.sqrt(np.minimum(threshold / np.maximum(frequency, 1e-12), 1.0))


def noise_table(counts: np.ndarray, power: float = 0.75, size: int = 2**20) -> np.ndarray:
    """Return word ids (size,), each as often as its noise probability says, to 1 / size.

    Source: Mikolov et al. 2013b, section 2.2, unigram^0.75.
    """
    cumulative = np.cumsum(counts.astype(np.float64) ** power)
    quantiles = (np.arange(size) + 0.5) / size * cumulative[-1]
    return np.searchsorted(cumulative, quantiles).astype(np.int32)


def skipgram_examples(
    corpus: Corpus, window: int = 5, negatives: int = 5, subsample: float = 1e-4, seed: int = 0
) -> Examples:
    """Return all pairs of one pass with their noise words, none of which equals its context word.

    Args:
        window: the largest; each center draws its own from 1 … window.
        negatives: noise words a pair.
        subsample: the threshold of `keep_probability`; 0 keeps all words.
    """
    rng = np.random.default_rng(seed)
    ids = corpus.ids
    sentence = np.repeat(np.arange(len(corpus), dtype=np.int32), np.diff(corpus.offsets))
    if subsample:
        keep = keep_probability(corpus.counts, subsample).astype(np.float32)
        kept = rng.random(len(ids), dtype=np.float32) < keep[ids]
        ids, sentence = ids[kept], sentence[kept]
    reach = rng.integers(1, window + 1, len(ids), dtype=np.int32)
    centers, contexts = [], []
    for distance in range(1, min(window, len(ids) - 1) + 1):
        together = sentence[distance:] == sentence[:-distance]
        left, right = ids[:-distance], ids[distance:]
        forward = together & (reach[:-distance] >= distance)
        backward = together & (reach[distance:] >= distance)
        centers += [left[forward], right[backward]]
        contexts += [right[forward], left[backward]]
    center, context = (np.concatenate([ids[:0], *parts]) for parts in (centers, contexts))
    table = noise_table(corpus.counts)
    noise = table[rng.integers(0, len(table), (len(center), negatives), dtype=np.uint32)]
    flat, partner = noise.reshape(-1), context[:, None]
    # A text of one word has no other noise word.
    while len(clash := np.flatnonzero(noise == partner)) and table[0] < table[-1]:
        flat[clash] = table[rng.integers(0, len(table), len(clash))]
    return Examples(center, context, noise, len(ids))


def train(
    corpus: Corpus,
    *,
    dim: int = 100,
    window: int = 5,
    negatives: int = 5,
    subsample: float = 1e-4,
    epochs: int = 5,
    lr: float = 0.15,
    batch: int = 1024,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: bool = True,
) -> Word2Vec:
    """Return word vectors trained on a corpus. The same seed gives the same on one machine.

    Args:
        window, negatives, subsample: as in `skipgram_examples`.
        lr: the learning rate at first; it falls linearly to 0.
        batch: center words a step, at least 16.
    Raises:
        FloatingPointError: the loss is no longer a number.
    Source: Mikolov et al. 2013a, 2013b; AdaGrad by rows after Duchi et al. 2011.
    """
    device = torch.device(device or profile.device())
    trainer = Trainer(corpus, dim, window, negatives, seed, device)
    losses, *speeds = trainer.run(epochs, lr, subsample, batch, progress)
    words = corpus.vocab.get_itos()
    sides = (trainer.inputs.vectors, trainer.outputs.vectors)
    vectors = (WordVectors(words, side.cpu().numpy()) for side in sides)
    return Word2Vec(*vectors, losses, *speeds)


class Table:
    """An embedding table that AdaGrad changes, with one sum of squares for a whole row.

    Source: Duchi et al. 2011, where every number has a sum of its own.
    """

    def __init__(self, vectors: Tensor):
        self.vectors = vectors  # (n_rows, dim)
        self.squares = torch.full((len(vectors),), 1e-8, device=vectors.device)

    def look_up(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the vectors of rows (n, R), (n, R, dim), and what `ascend` is to be told."""
        return self.vectors[rows], rows

    def ascend(self, rows: Tensor, gradient: Tensor, lr: float) -> None:
        """Add to rows (n, R) their gradient (n, R, dim); a row that is there twice gets both."""
        rows, gradient = rows.reshape(-1), gradient.reshape(-1, gradient.shape[-1])
        self.squares.index_add_(0, rows, gradient.square().mean(1))
        scale = lr * torch.rsqrt(self.squares[rows])
        self.vectors.index_add_(0, rows, gradient * scale[:, None])


class Trainer:
    """A text, the embedding tables of both sides, and the steps that change them by the text."""

    def __init__(
        self, corpus: Corpus, dim: int, window: int, negatives: int, seed: int, device: torch.device
    ):
        self.window, self.negatives, self.counts = window, negatives, corpus.counts
        self.rng = torch.Generator(device).manual_seed(seed)
        self.ids = torch.from_numpy(corpus.ids).long().to(device)
        sentence = np.repeat(np.arange(len(corpus)), np.diff(corpus.offsets))
        self.sentence = torch.from_numpy(sentence).to(device)
        self.noise = torch.from_numpy(noise_table(self.counts)).long().to(device)
        # fastText has a table of its own in place of this one.
        self.inputs = Table(self.small_random(len(corpus.vocab), dim))
        self.outputs = Table(torch.zeros(len(corpus.vocab), dim, device=device))
        positions = torch.arange(BLOCK + 2 * window, device=device) - window
        distance = (positions - torch.arange(BLOCK, device=device)[:, None]).abs()
        self.distance = distance.masked_fill(distance == 0, window + 1)  # (BLOCK, BLOCK + 2 window)

    def small_random(self, rows: int, dim: int) -> Tensor:
        """Return initial vectors (rows, dim), each entry within 1 / (2 dim) of 0."""
        uniform = torch.rand(rows, dim, generator=self.rng, device=self.ids.device)
        return (uniform - 0.5) / dim

    def run(
        self, epochs: int, lr: float, subsample: float, batch: int, progress: bool
    ) -> tuple[list[float], float, float]:
        """Train, and return the losses, words a second and centers a second."""
        n_words, n_centers, losses = len(self.ids), 0, []
        start = time.perf_counter()
        for epoch in tqdm(range(epochs), disable=not (progress and profile.progress_enabled())):
            ids, sentence, order = self.subsample(subsample)
            steps, reported = order.split(batch // BLOCK), []
            for step, blocks in enumerate(steps):
                now = lr * (1 - (epoch + step / len(steps)) / epochs)
                report = step % max(len(steps) // 100, 1) == 0
                loss = self.step(*self.windows(ids, sentence, blocks), now, report)
                reported += [loss] if report else []
            # Read once an epoch, so that no step on a GPU waits for the one before.
            losses += torch.stack(reported).tolist()
            if not np.isfinite(losses).all():
                raise FloatingPointError(f"the loss is no longer a number; lower lr={lr}")
            n_centers += int((sentence >= 0).sum())
        seconds = time.perf_counter() - start
        return losses, epochs * n_words / seconds, n_centers / seconds

    def subsample(self, threshold: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return the words of a fresh epoch, frequent ones thinned out, and a random order.

        Returns:
            ids: (window + n_blocks * BLOCK + window,), so that every block has its whole window.
            sentence: the same shape, each word's sentence; negative in the padding.
            order: (n_blocks,) in which the blocks are visited.
        """
        ids, sentence, device = self.ids, self.sentence, self.ids.device
        if threshold:
            keep = torch.from_numpy(keep_probability(self.counts, threshold)).float().to(device)
            kept = torch.rand(len(ids), generator=self.rng, device=device) < keep[ids]
            ids, sentence = ids[kept], sentence[kept]
        if len(ids) < 2:
            raise ValueError(f"{len(ids)} words are left after subsampling; raise the threshold")
        n_blocks = math.ceil(len(ids) / BLOCK)
        padding = (self.window, self.window + n_blocks * BLOCK - len(ids))
        order = torch.randperm(n_blocks, generator=self.rng, device=device)
        return F.pad(ids, padding), F.pad(sentence, padding, value=-1), order

    def windows(self, ids: Tensor, sentence: Tensor, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """Return words (n, BLOCK + 2 window) and which two share a sentence (n, BLOCK, same)."""
        span = torch.arange(BLOCK + 2 * self.window, device=ids.device)
        positions = blocks[:, None] * BLOCK + span
        around = sentence[positions]
        center = around[:, self.window : -self.window, None]
        return ids[positions], (center == around[:, None, :]) & (center >= 0)

    def step(self, words: Tensor, together: Tensor, lr: float, report: bool) -> Tensor | None:
        """Change the vectors by one batch of blocks; return the mean loss, (), if `report`."""
        (n, width), device = words.shape, words.device
        center = words[:, self.window : width - self.window]  # (n, BLOCK)
        reach = torch.randint(1, self.window + 1, (n, BLOCK, 1), generator=self.rng, device=device)
        pairs = (together & (self.distance <= reach)).float()  # (n, BLOCK, width)
        pick = torch.randint(len(self.noise), (n, NOISE_WORDS), generator=self.rng, device=device)
        columns = torch.cat([words, self.noise[pick]], 1)  # (n, C) what the centers meet
        label = torch.zeros(n, 1, width + NOISE_WORDS, device=device)
        label[:, :, :width] = 1
        # A center's pairs have `negatives` noise words each; the block's few stand for all.
        noise_weight = pairs.sum(2, keepdim=True) * (self.negatives / NOISE_WORDS)
        weight = torch.cat([pairs, noise_weight.expand(-1, -1, NOISE_WORDS)], 2)  # (n, BLOCK, C)
        u, columns = self.outputs.look_up(columns)  # (n, C, dim)
        v, rows = self.inputs.look_up(center)  # (n, BLOCK, dim)
        score = v @ u.mT  # (n, BLOCK, C)
        error = weight * (label - torch.sigmoid(score))  # minus the gradient of the score
        gradient_u = error.mT @ v
        self.inputs.ascend(rows, error @ u, lr)
        self.outputs.ascend(columns, gradient_u, lr)
        if not report:
            return None
        loss = (weight * F.softplus((1 - 2 * label) * score)).sum()
        return loss / pairs.sum().clamp(min=1)
