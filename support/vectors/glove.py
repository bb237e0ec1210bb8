"""GloVe: co-occurrence counts, and word vectors whose products are the counts' logarithms.

The biases ride along as two columns: a row (w, b, 1) times a column (c, 1, b') is w·c + b + b'.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from tqdm import tqdm

from support import checks, profile
from support.text.vocab import Corpus
from support.vectors.word_vectors import WordVectors

CHUNK = 2_000_000  # words counted at a time, which bounds the memory of counting
BETAS = (0.9, 0.99)  # Adam's averages: short ones, for there are only hundreds of steps


@dataclass
class Cooccurrences:
    """How often words stand near each other: a symmetric CSR `matrix` (n_words, n_words)."""

    matrix: scipy.sparse.csr_matrix
    words: list[str]

    @property
    def n_pairs(self) -> int:
        """Number of entries above zero; (i, j) and (j, i) are two."""
        return self.matrix.nnz


@dataclass
class GloVe:
    """What training gives back.

    vectors: center plus context vectors, as the paper recommends. center, context: each alone,
    (n_words, dim). center_bias, context_bias: (n_words,). losses: mean cost an epoch, taken
    while training. pairs_per_second: entries above zero visited a second, preparation included.
    """

    vectors: WordVectors
    center: np.ndarray
    context: np.ndarray
    center_bias: np.ndarray
    context_bias: np.ndarray
    losses: list[float] = field(default_factory=list)
    pairs_per_second: float = 0.0


def count(corpus: Corpus, window: int = 5, by_distance: bool = True) -> Cooccurrences:
    """Return the co-occurrences within sentences; a pair d words apart counts 1/d, or 1.

    Raises: ValueError for a window below 1, or if no two words share a sentence.
    Source: Pennington et al. 2014, section 4.2.
    """
    checks.integers(1, window=window)
    size = len(corpus.vocab)
    total = scipy.sparse.csr_matrix((size, size), dtype=np.float64)
    sentence = np.repeat(np.arange(len(corpus), dtype=np.int32), np.diff(corpus.offsets))
    for start in range(0, len(corpus.ids), CHUNK):
        ids = corpus.ids[start : start + CHUNK + window]
        place = sentence[start : start + CHUNK + window]
        for distance in range(1, min(window, len(ids) - 1) + 1):
            left, right = ids[:-distance][:CHUNK], ids[distance:][:CHUNK]
            near = place[:-distance][:CHUNK] == place[distance:][:CHUNK]
            weight = np.full(int(near.sum()), 1 / distance if by_distance else 1.0)
            pairs = (left[near], right[near])
            total = total + scipy.sparse.coo_matrix((weight, pairs), total.shape).tocsr()
    matrix = (total + total.T).tocsr().astype(np.float32)
    if matrix.nnz == 0:
        raise ValueError(f"no two words share a sentence in {len(corpus)} sentences")
    matrix.sort_indices()
    return Cooccurrences(matrix, corpus.vocab.get_itos())


def weight(counts: np.ndarray, x_max: float = 100.0, alpha: float = 0.75) -> np.ndarray:
    """Return h(x): (x / x_max)^alpha below x_max, 1 from there on; same shape.

    Raises: ValueError unless x_max and alpha are above 0. Source: Pennington et al. 2014, eq. 9.
    """
    checks.above(0, x_max=x_max, alpha=alpha)
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
    progress: bool | None = None,
) -> GloVe:
    """Return vectors that lower the mean over pairs of ½ h(x) (w·c + b + b' - ln x)².

    A step takes a block of rows and all columns; rates fall linearly to 0 (Adam).
    Args: blocks: steps an epoch.
    The same seed gives the same vectors on one machine.
    Raises: ValueError for arguments out of range; FloatingPointError if the cost is no number.
    Source: Pennington et al. 2014, eq. 8; Kingma and Ba 2015.
    """
    checks.integers(1, dim=dim, epochs=epochs, blocks=blocks)
    checks.above(0, lr=lr, x_max=x_max, alpha=alpha)
    size = len(counts.words)
    if counts.matrix.shape != (size, size):
        raise ValueError(f"{size} words need a square table, given {counts.matrix.shape}")
    if not (counts.n_pairs and counts.matrix.data.min() > 0):
        raise ValueError(f"entries must be above 0, given {counts.matrix.data[:9]}")
    device = torch.device(device or profile.device())
    start = time.perf_counter()
    rows = np.array_split(np.random.default_rng(seed).permutation(size), min(blocks, size))
    batches = [_Block(counts.matrix, r, x_max, alpha, device) for r in rows]
    rng = torch.Generator().manual_seed(seed)
    center = _Side(size, dim, bias=dim, rng=rng, device=device)
    context = _Side(size, dim, bias=dim + 1, rng=rng, device=device)
    losses: list[float] = []
    steps_left = steps = epochs * len(batches)
    shown = profile.progress_enabled() if progress is None else progress
    with tqdm(
        total=epochs * counts.n_pairs, unit="pair", unit_scale=True, disable=not shown
    ) as bar:
        for epoch in range(epochs):
            cost = torch.zeros((), device=device)
            for i in torch.randperm(len(batches), generator=rng).tolist():
                rate = lr * steps_left / steps
                squares, for_rows, for_columns = batches[i].gradients(center.table, context.table)
                center.descend(for_rows, rate, batches[i].rows)
                context.descend(for_columns, rate)
                cost += squares
                steps_left -= 1
                bar.update(batches[i].n_pairs)
            losses.append(float(cost) / (2 * counts.n_pairs))
            if not math.isfinite(losses[-1]):
                raise FloatingPointError(f"cost {losses[-1]} in epoch {epoch + 1}; lower lr={lr}")
    seconds = time.perf_counter() - start
    w, c = center.table.cpu().numpy(), context.table.cpu().numpy()
    return GloVe(
        WordVectors(counts.words, w[:, :dim] + c[:, :dim]),
        w[:, :dim],
        c[:, :dim],
        w[:, dim],
        c[:, dim + 1],
        losses,
        epochs * counts.n_pairs / seconds,
    )


class _Side:
    """The vectors of one side with bias and constant, (n_words, dim + 2), and Adam's state."""

    def __init__(self, size: int, dim: int, bias: int, rng: torch.Generator, device: torch.device):
        table = (torch.rand(size, dim + 2, generator=rng) - 0.5) / dim
        self.one = 2 * dim + 1 - bias  # the column that the other side's bias meets
        table[:, bias], table[:, self.one] = 0, 1
        self.table = table.to(device)
        self.mean, self.square = torch.zeros_like(self.table), torch.zeros_like(self.table)
        self.steps = torch.zeros(size, 1, device=device)

    def descend(self, gradient: Tensor, rate: float, rows: Tensor | slice = slice(None)) -> None:
        """Take one step of Adam on some rows. Source: Kingma and Ba 2015, algorithm 1."""
        gradient[:, self.one] = 0
        self.steps[rows] += 1
        self.mean[rows] = torch.lerp(gradient, self.mean[rows], BETAS[0])
        self.square[rows] = torch.lerp(gradient.square(), self.square[rows], BETAS[1])
        mean = self.mean[rows] / (1 - BETAS[0] ** self.steps[rows])
        square = self.square[rows] / (1 - BETAS[1] ** self.steps[rows])
        self.table[rows] -= rate * mean / (square.sqrt() + 1e-8)


class _Block:
    """Some rows of the counts: only the products of pairs that occur are computed."""

    def __init__(self, matrix, rows: np.ndarray, x_max: float, alpha: float, device):
        part = matrix[rows].tocsr()
        order = scipy.sparse.csr_matrix(
            (np.arange(part.nnz), part.indices, part.indptr), part.shape
        )
        by_column = order.tocsc()  # the same entries, column after column
        self.n_pairs = part.nnz
        self.rows, self.h, self.minus_log = _on(
            device, rows, weight(part.data, x_max, alpha), -np.log(part.data)
        )
        self.row_ends, self.columns = _on(device, part.indptr, part.indices)
        self.column_ends, self.of_rows, self.order = _on(
            device, by_column.indptr, by_column.indices, by_column.data
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


def _on(device: torch.device, *arrays: np.ndarray) -> list[Tensor]:
    """The arrays as tensors on a device: whole numbers as int64, others as float32."""
    tensors = [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
    return [t.to(device, torch.float32 if t.is_floating_point() else torch.int64) for t in tensors]


def _csr(ends: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch calls its sparse matrices a beta, once
        return torch.sparse_csr_tensor(ends, columns, values, shape, check_invariants=False)
