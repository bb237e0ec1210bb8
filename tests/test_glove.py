"""Counts against a slow reference, gradients against autograd, training against known ends."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from support.data import datasets
from support.text.vocab import Corpus, Vocab
from support.vectors import glove

ROOT = Path(__file__).resolve().parents[1]


def corpus_of(sentences: list[list[int]], n_words: int = 0) -> Corpus:
    """Return a corpus of sentences given as word numbers."""
    ids = np.array([i for sentence in sentences for i in sentence], np.int32)
    offsets = np.cumsum([0, *map(len, sentences)])
    n_words = n_words or int(ids.max()) + 1
    return Corpus(ids, offsets, Vocab(f"w{i}" for i in range(n_words)))


def reference(sentences: list[list[int]], n_words: int, window: int, by_distance: bool):
    """Return the counts, (n_words, n_words): every two positions of a sentence compared."""
    table = np.zeros((n_words, n_words))
    for sentence in sentences:
        for a, one in enumerate(sentence):
            for b, other in enumerate(sentence):
                if 0 < abs(a - b) <= window:
                    table[one, other] += 1 / abs(a - b) if by_distance else 1
    return table


def random_counts(size: int = 30, share: float = 0.3, seed: int = 0) -> glove.Cooccurrences:
    """Return a symmetric random table with entries on both sides of x_max = 100."""
    rng = np.random.default_rng(seed)
    half = np.triu(rng.lognormal(1, 2, (size, size)) * (rng.random((size, size)) < share))
    table = scipy.sparse.csr_matrix((half + half.T).astype(np.float32))
    return glove.Cooccurrences(table, [f"w{i}" for i in range(size)])


def cost_of(model: glove.GloVe, counts: glove.Cooccurrences, x_max=100.0, alpha=0.75) -> float:
    """Return the mean over pairs of ½ h error², one pair at a time."""
    table, costs = counts.matrix.tocoo(), []
    for i, j, x in zip(table.row, table.col, table.data, strict=True):
        product = model.center[i] @ model.context[j]
        error = product + model.center_bias[i] + model.context_bias[j] - np.log(x)
        costs.append(min((x / x_max) ** alpha, 1) * error**2 / 2)
    return float(np.mean(costs))


# Counting.

SENTENCES = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=12), min_size=1, max_size=6)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(SENTENCES, st.integers(1, 14), st.booleans())
def test_counts_equal_the_reference(sentences, window, by_distance):
    expected = reference(sentences, 6, window, by_distance)
    corpus = corpus_of(sentences, n_words=6)
    if not expected.any():
        with pytest.raises(ValueError, match=f"share a sentence in {len(sentences)} sentences"):
            glove.count(corpus, window, by_distance)
        return
    counts = glove.count(corpus, window, by_distance)
    np.testing.assert_allclose(counts.matrix.toarray(), expected, rtol=1e-5)
    assert counts.n_pairs == (expected > 0).sum(), "no entry is stored that is zero"
    assert (counts.matrix != counts.matrix.T).nnz == 0, "exactly symmetric"


def test_counts_of_a_sentence_by_hand():
    counts = glove.count(Corpus.from_text("a b c a"), window=2)
    assert counts.words == ["a", "b", "c"]
    # Of a: b next to it and at two; c likewise; the other a is three away.
    np.testing.assert_allclose(counts.matrix.toarray(), [[0, 1.5, 1.5], [1.5, 0, 1], [1.5, 1, 0]])


# The weighting function.


def test_weight_by_hand():
    found = glove.weight(np.array([[0, 1, 16], [81, 100, 1e9]]), x_max=100)
    expected = [[0, 10**-1.5, 0.16**0.75], [0.81**0.75, 1, 1]]
    np.testing.assert_allclose(found, expected)


# One block.


@pytest.mark.parametrize("x_max, alpha", [(100.0, 0.75), (3.0, 0.5)])
def test_gradients_equal_autograd(x_max, alpha):
    counts = random_counts()
    matrix = counts.matrix.tolil()
    matrix[7] = 0  # a row of the block without any pair
    matrix = matrix.tocsr()
    rows = np.array([12, 3, 7, 29, 0])
    generator = torch.Generator().manual_seed(0)
    center, context = torch.randn(2, 30, 6, generator=generator)
    block = glove._Block(matrix, rows, x_max, alpha, torch.device("cpu"))
    squares, for_rows, for_columns = block.gradients(center, context)

    leaves = [t.double().requires_grad_() for t in (center, context)]
    loss = torch.zeros((), dtype=torch.float64)
    for i in rows:
        for j in range(30):
            x = float(matrix[i, j])
            if x > 0:
                error = leaves[0][i] @ leaves[1][j] - np.log(x)
                loss = loss + min((x / x_max) ** alpha, 1) * error**2 / 2
    gradients = torch.autograd.grad(loss, leaves)
    torch.testing.assert_close(squares.double() / 2, loss.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(for_rows.double(), gradients[0][rows], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(for_columns.double(), gradients[1], rtol=1e-4, atol=1e-4)


def test_a_step_is_adams_and_leaves_the_constants_alone():
    generator = torch.Generator().manual_seed(0)
    side = glove._Side(7, 3, bias=3, rng=generator, device=torch.device("cpu"))
    assert side.one == 4 and (side.table[:, 4] == 1).all() and (side.table[:, 3] == 0).all()
    twin = side.table.clone().requires_grad_()
    adam = torch.optim.Adam([twin], lr=0.1, betas=glove.BETAS, eps=1e-8)
    for rate in (0.1, 0.05, 0.01):
        gradient = torch.randn(7, 5, generator=generator)
        twin.grad = gradient.clone()
        twin.grad[:, 4] = 0
        adam.param_groups[0]["lr"] = rate
        adam.step()
        side.descend(gradient, rate)
    torch.testing.assert_close(side.table, twin.detach())
    assert (side.table[:, 4] == 1).all()


def test_a_step_of_some_rows_leaves_the_others_alone():
    generator = torch.Generator().manual_seed(0)
    side = glove._Side(7, 3, bias=4, rng=generator, device=torch.device("cpu"))
    assert side.one == 3
    before = side.table.clone()
    rows = torch.tensor([5, 2])
    # A gradient that is always the same moves each number by the rate itself, at every step.
    for _ in range(2):
        side.descend(torch.ones(2, 5), 0.1, rows)
    moved = torch.zeros(7, 5)
    moved[rows] = torch.tensor([0.2, 0.2, 0.2, 0, 0.2])
    torch.testing.assert_close(before - side.table, moved)
    # So it does at the first step of the other rows: they have taken none before.
    side.descend(torch.ones(1, 5), 0.1, torch.tensor([0]))
    moved[0] = torch.tensor([0.1, 0.1, 0.1, 0, 0.1])
    torch.testing.assert_close(before - side.table, moved)


# Training.


def test_the_same_seed_gives_the_same_vectors_and_another_seed_others():
    counts = random_counts()
    first, again = (glove.train(counts, dim=5, epochs=2, seed=3) for _ in range(2))
    other = glove.train(counts, dim=5, epochs=2, seed=4)
    np.testing.assert_array_equal(first.vectors.matrix, again.vectors.matrix)
    np.testing.assert_array_equal(first.vectors.matrix, first.center + first.context)
    assert first.losses == again.losses
    assert np.abs(first.vectors.matrix - other.vectors.matrix).max() > 0.01
    starts = [glove.train(counts, dim=5, epochs=1, lr=0.0, seed=seed).center for seed in (3, 4)]
    assert np.abs(starts[0] - starts[1]).max() > 0.01, "the seed draws the initial vectors, too"


def test_the_rate_falls_linearly_to_zero(monkeypatch):
    rates = []
    descend = glove._Side.descend

    def spy(self, gradient, rate, rows=slice(None)):
        rates.append(rate)
        descend(self, gradient, rate, rows)

    monkeypatch.setattr(glove._Side, "descend", spy)
    glove.train(random_counts(), dim=2, epochs=3, blocks=4, lr=0.06)
    assert len(rates) == 2 * 12, "a step moves one block of rows and all columns"
    np.testing.assert_allclose(rates[::2], 0.06 * np.arange(12, 0, -1) / 12)
    assert rates[::2] == rates[1::2]


def test_the_loss_falls_and_is_the_cost_of_what_comes_back():
    counts = random_counts()
    model = glove.train(counts, dim=3, epochs=60, lr=0.05)
    assert model.losses[-1] < model.losses[0] / 3
    # The last steps are small, so the cost taken on the way is that of the end.
    assert model.losses[-1] == pytest.approx(cost_of(model, counts), rel=0.02)


def test_x_max_and_alpha_reach_the_cost():
    counts = random_counts()
    given = {"x_max": 5.0, "alpha": 0.3}
    model = glove.train(counts, dim=3, epochs=60, lr=0.05, **given)
    assert model.losses[-1] == pytest.approx(cost_of(model, counts, **given), rel=0.02)
    assert model.losses[-1] > 1.2 * cost_of(model, counts)


def test_enough_dimensions_fit_every_count():
    counts = random_counts(size=12, share=0.6)
    model = glove.train(counts, dim=12, epochs=300, lr=0.05, x_max=1.0, blocks=3)
    assert model.losses[-1] < 1e-5
    i, j = counts.matrix.nonzero()
    predicted = (
        (model.center @ model.context.T)[i, j] + model.center_bias[i] + model.context_bias[j]
    )
    frequent = counts.matrix.data >= 1
    np.testing.assert_allclose(predicted[frequent], np.log(counts.matrix.data[frequent]), atol=0.05)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("broken", ["rate", "entry"])
def test_a_cost_that_is_no_number_stops_the_training(broken):
    counts = random_counts()
    if broken == "entry":
        counts.matrix.data[3] = -1
    with pytest.raises(FloatingPointError, match="in epoch 1; lower lr="):
        glove.train(counts, dim=3, epochs=2, lr=1e30 if broken == "rate" else 0.1)


# Real text.


@pytest.mark.skipif(
    not os.environ.get("PRETRAIN_DATA_DIR"), reason="PRETRAIN_DATA_DIR does not name real data"
)
def test_ptb_reaches_the_c_programs_cost_in_eight_epochs():
    text = datasets.ptb("train", source="real").text
    counts = glove.count(Corpus.from_text(text, min_freq=10), window=5)
    assert (len(counts.words), counts.n_pairs) == (6719, 1_657_392)
    model = glove.train(counts, dim=50, epochs=8, x_max=100, alpha=0.75)
    assert min(model.losses) < 0.0126, model.losses
    near = [word for word, _ in model.vectors.most_similar("monday", 4)]
    assert {"tuesday", "wednesday", "thursday", "friday"} & set(near), near
