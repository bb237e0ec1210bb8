"""Huffman trees: the shortest prefix-free codes, and a hierarchical softmax that sums to one."""

import itertools
import math
from functools import lru_cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from support.vectors.huffman import HuffmanTree

quick = settings(max_examples=100, derandomize=True, database=None, deadline=None)
many_counts = st.lists(st.integers(0, 50) | st.integers(0, 10**9), min_size=2, max_size=40)


def codes(tree):
    """Return each symbol's code, the sequence of (node, turn) from the root to the symbol."""
    found = []
    for nodes, turns, on_path in zip(tree.nodes, tree.turns, tree.on_path, strict=True):
        length = int(on_path.sum())
        assert on_path.tolist() == [1.0] * length + [0.0] * (len(on_path) - length)
        assert nodes[length:].sum() == turns[length:].sum() == 0
        found.append(list(zip(nodes[:length].tolist(), turns[:length].tolist(), strict=True)))
    return found


def cost(tree, counts):
    return sum(
        int(n) * length for n, length in zip(counts, tree.code_lengths().tolist(), strict=True)
    )


def best_cost(counts):
    """Return the cost of the best binary tree by trying all ways to split the symbols in two."""

    @lru_cache(None)
    def best(symbols):
        if len(symbols) == 1:
            return 0
        first, *rest = symbols
        splits = []
        for mask in range(2 ** len(rest) - 1):
            left = (first, *(s for i, s in enumerate(rest) if mask >> i & 1))
            right = tuple(s for s in symbols if s not in left)
            splits.append(best(left) + best(right))
        return sum(counts[s] for s in symbols) + min(splits)

    return best(tuple(range(len(counts))))


def merge_cost(counts):
    """Return the cost of Huffman's code as the sum of all merges of the two smallest counts."""
    counts, total = sorted(counts), 0
    while len(counts) > 1:
        first, second, *rest = counts
        total += first + second
        counts = sorted([first + second, *rest])
    return total


def test_a_tree_by_hand():
    tree = HuffmanTree.from_counts(np.array([1, 10, 2, 4]))
    assert tree.code_lengths().tolist() == [3, 1, 3, 2]
    assert tree.nodes.tolist() == [[2, 1, 0], [2, 0, 0], [2, 1, 0], [2, 1, 0]]
    assert tree.turns.tolist() == [[1, 1, 1], [0, 0, 0], [1, 1, 0], [1, 0, 0]]
    assert tree.on_path.tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 1], [1, 1, 0]]


@given(many_counts)
@quick
def test_the_tables_describe_one_binary_tree(counts):
    tree = HuffmanTree.from_counts(np.array(counts))
    n = len(counts)
    depth = int(tree.code_lengths().max())
    assert tree.nodes.shape == tree.turns.shape == tree.on_path.shape == (n, depth)
    assert tree.nodes.dtype == tree.code_lengths().dtype == torch.int64
    assert tree.turns.dtype == tree.on_path.dtype == torch.float32
    assert all(t.is_contiguous() for t in (tree.nodes, tree.turns, tree.on_path))
    paths = codes(tree)
    turns = ["".join("RL"[int(turn)] for _, turn in path) for path in paths]
    for i, one in enumerate(turns):
        assert not any(other.startswith(one) for j, other in enumerate(turns) if i != j)
    assert sum(2.0 ** -len(code) for code in turns) == 1  # Kraft: no branch is left empty
    prefix_of = {}
    for path, code in zip(paths, turns, strict=True):
        for step, (node, _) in enumerate(path):
            assert prefix_of.setdefault(node, code[:step]) == code[:step]
    assert sorted(prefix_of) == list(range(n - 1))
    assert len(set(prefix_of.values())) == n - 1


@given(st.lists(st.integers(0, 12), min_size=2, max_size=6))
@quick
def test_no_tree_is_cheaper(counts):
    assert cost(HuffmanTree.from_counts(np.array(counts)), counts) == best_cost(counts)


@given(many_counts)
@quick
def test_the_cost_is_huffmans_and_within_a_bit_of_the_entropy(counts):
    tree = HuffmanTree.from_counts(np.array(counts))
    assert cost(tree, counts) == merge_cost(counts)
    if total := sum(counts):
        entropy = -sum(n / total * math.log2(n / total) for n in counts if n)
        assert entropy - 1e-9 <= cost(tree, counts) / total <= entropy + 1
        assert 0 in counts or cost(tree, counts) / total < entropy + 1
    ranked = sorted(zip(counts, tree.code_lengths().tolist(), strict=True))
    for (fewer, longer), (more, shorter) in itertools.pairwise(ranked):
        assert fewer == more or longer >= shorter, "a more frequent symbol has a longer code"


def test_equal_powers_of_two_give_equal_codes():
    assert HuffmanTree.from_counts(np.full(16, 7)).code_lengths().tolist() == [4] * 16


def test_the_deepest_possible_tree():
    fibonacci = [1, 1]
    while len(fibonacci) < 40:
        fibonacci.append(sum(fibonacci[-2:]))
    lengths = HuffmanTree.from_counts(np.array(fibonacci)).code_lengths().tolist()
    assert lengths == [39, *range(39, 0, -1)]


def test_two_symbols_take_one_bit_each():
    tree = HuffmanTree.from_counts(np.array([5, 3]))
    assert tree.nodes.tolist() == [[0], [0]] and sorted(tree.turns.ravel().tolist()) == [0, 1]


@given(many_counts, st.integers(0, 99))
@quick
def test_the_probabilities_of_all_words_sum_to_one(counts, seed):
    tree = HuffmanTree.from_counts(np.array(counts))
    score = 3 * torch.randn(
        len(counts) - 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    turn = torch.sigmoid((2 * tree.turns - 1) * score[tree.nodes])
    probability = torch.where(tree.on_path > 0, turn, 1.0).prod(1)
    assert (probability > 0).all()
    assert float(probability.sum()) == pytest.approx(1, abs=1e-12)


def test_the_order_of_equal_counts_does_not_change_between_runs():
    counts = np.random.default_rng(0).integers(0, 5, 50)
    one, two = HuffmanTree.from_counts(counts), HuffmanTree.from_counts(counts.copy())
    assert codes(one) == codes(two)


@pytest.mark.parametrize("counts", [[], [4]])
def test_fewer_than_two_symbols_are_refused(counts):
    with pytest.raises(ValueError, match=f"at least 2 symbols, given {len(counts)}"):
        HuffmanTree.from_counts(np.array(counts, np.int64))
