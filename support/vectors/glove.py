"""GloVe: co-occurrence counts, and word vectors whose products are the counts' logarithms.

The biases ride along as two columns: a row (w, b, 1) times a column (c, 1, b') is w·c + b + b'.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from tqdm import tqdm

from support import profile
from support.text.vocab import Corpus
from support.vectors.word_vectors import WordVectors

BETAS = (0.9, 0.99)  # Adam's averages: short ones, for there are only hundreds of steps


@dataclass
class Cooccurrences:
    """How often words occur near each other: a symmetric CSR `matrix` (n_words, n_words)."""

    matrix: scipy.sparse.csr_matrix
    words: list[str]

    @property
    def n_pairs(self) -> int:
        """Number of entries above zero; (i, j) and (j, i) are two."""
        return self.matrix.nnz


@dataclass
class GloVe:
    """What training gives back."""

    vectors: WordVectors  # center plus context vectors, as the paper recommends
    center: np.ndarray  # (n_words, dim)
    context: np.ndarray
    center_bias: np.ndarray  # (n_words,)
    context_bias: np.ndarray
    losses: list[float]  # the mean cost of each epoch, taken while training
    pairs_per_second: float  # entries above zero visited, preparation included


def count(corpus: Corpus, window: int = 5, by_distance: bool = True) -> Cooccurrences:
    """Return the co-occurrences within sentences; a pair d words apart counts 1/d, or 1.

    Source: Pennington et al. 2014, section 4.2.
    """
    size, ids = len(corpus.vocab), corpus.ids
    total = scipy.sparse.csr_matrix((size, size), dtype=np.float64)
    sentence = np.repeat(np.arange(len(corpus), dtype=np.int32), np.diff(corpus.offsets))
    for distance in range(1, min(window, len(ids) - 1) + 1):
        near = sentence[:-distance] == sentence[distance:]
        pairs = ids[:-distance][near], ids[distance:][near]
        weight = np.full(len(pairs[0]), 1 / distance if by_distance else 1.0)
        total = total + scipy.sparse.coo_matrix((weight, pairs), total.shape).tocsr()
    matrix = (total + total.T).tocsr().astype(np.float32)
    if matrix.nnz == 0:
        raise ValueError(f"no two words share a sentence in {len(corpus)} sentences")
    matrix.sort_indices()
    return Cooccurrences(matrix, corpus.vocab.get_itos())


def weight(counts: np.ndarray, x_max: float = 100.0, alpha: float = 0.75) -> np.ndarray:
    """Return h(x): (x / x_max)^alpha below x_max, 1 from there on; same shape.

    Source: Pennington et al. 2014, eq. 9.
    """
    return np.minimum((counts / x_max) ** alpha, 1.0)


def train(
    counts: Cooccurrences,
    *,
    dim: int = 50,
    epochs: int = 15,
    lr: float = 0.1,
    x_max: float = 100.0,
    alpha: float = 0.75,
    blocks: int = 64,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: bool = True,
) -> GloVe:
    """Return vectors that lower the mean over pairs of ½ h(x) (w·c + b + b' - ln x)².

    The same seed gives the same vectors on one machine.
    Args:
        lr: the learning rate (Adam) at first; it falls linearly to 0.
        x_max, alpha: as in `weight`.
        blocks: steps an epoch; a step takes a block of rows and all columns.
    Raises:
        FloatingPointError: the cost is no longer a number.
    Source: Pennington et al. 2014, eq. 8; Kingma and Ba 2015.
    """
    size = len(counts.words)
    device = torch.device(device or profile.device())
    start = time.perf_counter()
    rows = np.array_split(np.random.default_rng(seed).permutation(size), min(blocks, size))
    batches = [_Block(counts.matrix, r, x_max, alpha, device) for r in rows]
    rng = torch.Generator().manual_seed(seed)
    center = _Side(size, dim, bias=dim, rng=rng, device=device)
    context = _Side(size, dim, bias=dim + 1, rng=rng, device=device)
    losses: list[float] = []
    steps_left = steps = epochs * len(batches)
    for epoch in tqdm(range(epochs), disable=not (progress and profile.progress_enabled())):
        cost = torch.zeros((), device=device)
        for i in torch.randperm(len(batches), generator=rng).tolist():
            now = lr * steps_left / steps
            squares, for_rows, for_columns = batches[i].gradients(center.table, context.table)
            center.descend(for_rows, now, batches[i].rows)
            context.descend(for_columns, now)
            cost += squares
            steps_left -= 1
        losses.append(float(cost) / (2 * counts.n_pairs))
        if not math.isfinite(losses[-1]):
            raise FloatingPointError(f"cost {losses[-1]} in epoch {epoch + 1}; lower lr={lr}")
    seconds = time.perf_counter() - start
    w, c = center.table.cpu().numpy(), context.table.cpu().numpy()
    vectors = WordVectors(counts.words, w[:, :dim] + c[:, :dim])
    sides = w[:, :dim], c[:, :dim], w[:, dim], c[:, dim + 1]
    return GloVe(vectors, *sides, losses, epochs * counts.n_pairs / seconds)


class _Side:
    """The vectors of one side with bias and constant, (n_words, dim + 2), and Adam's state."""

    def __init__(self, size: int, dim: int, bias: int, rng: torch.Generator, device: torch.device):
        table = (torch.rand(size, dim + 2, generator=rng) - 0.5) / dim
        self.one = 2 * dim + 1 - bias  # the column that the other side's bias meets
        table[:, bias], table[:, self.one] = 0, 1
        self.table = table.to(device)
        self.mean, self.square = torch.zeros_like(self.table), torch.zeros_like(self.table)
        self.steps = torch.zeros(size, 1, device=device)

    def descend(self, gradient: Tensor, lr: float, rows: Tensor | slice = slice(None)) -> None:
        """Take one step of Adam on some rows. Source: Kingma and Ba 2015, algorithm 1."""
        gradient[:, self.one] = 0
        self.steps[rows] += 1
        self.mean[rows] = torch.lerp(gradient, self.mean[rows], BETAS[0])
        self.square[rows] = torch.lerp(gradient.square(), self.square[rows], BETAS[1])
        mean = self.mean[rows] / (1 - BETAS[0] ** self.steps[rows])
        square = self.square[rows] / (1 - BETAS[1] ** self.steps[rows])
        self.table[rows] -= lr * mean / (square.sqrt() + 1e-8)


class _Block:
    """Some rows of the counts: only the products of pairs that occur are computed."""

    def __init__(self, matrix, rows: np.ndarray, x_max: float, alpha: float, device):
        part = matrix[rows].tocsr()
        numbered = (np.arange(part.nnz), part.indices, part.indptr)
        by_column = scipy.sparse.csr_matrix(numbered, part.shape).tocsc()
        h = weight(part.data, x_max, alpha)
        self.h, self.minus_log = (
            torch.from_numpy(x).float().to(device) for x in (h, -np.log(part.data))
        )
        self.rows, self.row_ends, self.columns, self.column_ends, self.of_rows, self.order = (
            torch.from_numpy(np.ascontiguousarray(x)).long().to(device)
            for x in (rows, part.indptr, part.indices)
            + (by_column.indptr, by_column.indices, by_column.data)
        )

    def gradients(self, center: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sum of h·error², and the gradients for the rows and for all columns."""
        w, shape = center[self.rows], (len(self.rows), len(context))
        target = _csr(self.row_ends, self.columns, self.minus_log, shape)
        error = torch.sparse.sampled_addmm(target, w, context.mT).values()  # w·c + b + b' - ln x
        slope = self.h * error
        for_rows = _csr(self.row_ends, self.columns, slope, shape) @ context
        for_columns = _csr(self.column_ends, self.of_rows, slope[self.order], shape[::-1]) @ w
        return slope @ error, for_rows, for_columns


def _csr(ends: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch calls its sparse matrices a beta, once
        return torch.sparse_csr_tensor(ends, columns, values, shape, check_invariants=False)
