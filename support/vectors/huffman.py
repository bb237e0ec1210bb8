"""Huffman trees over word frequencies, as tables that a hierarchical softmax can index."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass
class HuffmanTree:
    """The binary tree in which frequent symbols have short paths, one row of tables a symbol.

    nodes: (n_symbols, depth) inner nodes from the root down, numbered 0 … n_symbols - 2.
    turns: (n_symbols, depth) 1.0 where the path turns left at that node, 0.0 where right.
    on_path: (n_symbols, depth) 1.0 on the path; 0.0 after its end, where nodes and turns are 0.
    Source: Huffman 1952; for word2vec Mikolov et al. 2013b, section 2.1.
    """

    nodes: Tensor
    turns: Tensor
    on_path: Tensor

    @classmethod
    def from_counts(cls, counts: np.ndarray) -> HuffmanTree:
        """Return the tree of symbol counts, (n_symbols,).

        Raises: ValueError below 2 symbols, or for counts that are no integers from 0.
        """
        size = len(counts)
        if size < 2:
            raise ValueError(f"a Huffman tree needs at least 2 symbols, given {size}")
        given = np.asarray(counts)
        if given.ndim != 1 or given.dtype.kind not in "iu" or given.min() < 0:
            raise ValueError(f"counts must be integers from 0, given {counts!r:.80}")
        root = 2 * size - 2
        parent, is_left = [0] * (root + 1), [0.0] * (root + 1)
        heap = [(int(n), symbol) for symbol, n in enumerate(counts)]
        heapq.heapify(heap)
        for node in range(size, root + 1):
            (n1, left), (n2, right) = heapq.heappop(heap), heapq.heappop(heap)
            parent[left] = parent[right] = node
            is_left[left] = 1.0
            heapq.heappush(heap, (n1 + n2, node))
        paths = []
        for symbol in range(size):
            path, node = [], symbol
            while node != root:
                path.append((parent[node] - size, is_left[node], 1.0))
                node = parent[node]
            paths.append(path[::-1])
        table = np.zeros((size, max(map(len, paths)), 3), np.float32)
        for symbol, path in enumerate(paths):
            table[symbol, : len(path)] = path
        nodes, turns, on_path = torch.from_numpy(table).unbind(-1)
        return cls(nodes.long().contiguous(), turns.contiguous(), on_path.contiguous())

    def code_lengths(self) -> Tensor:
        """Return the length of each symbol's path in bits, (n_symbols,) int64."""
        return self.on_path.sum(1).long()
